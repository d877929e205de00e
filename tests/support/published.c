/* SPDX-License-Identifier: Apache-2.0 */
#include "support/published.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/json.h"
#include "rules/knobs.h"

static arf_json *document;

static void read_fixture(void)
{
    if (document)
        return;
    arf_error error = ARF_ERROR_INIT;
    char *text = NULL;
    size_t bytes = 0;
    if (arf_read_file("tests/fixtures/rules/published.json", ARF_JSON_MAX_BYTES, &text, &bytes,
                      &error) != ARFUSE_OK ||
        arf_json_parse(text, bytes, &document, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    free(text);
}

static arf_json_value member(const arf_json_value *object, const char *name)
{
    arf_json_value value;
    arf_error error = ARF_ERROR_INIT;
    if (arf_json_member(object, name, &value, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return value;
}

static int integer(const arf_json_value *object, const char *name)
{
    arf_json_value value = member(object, name);
    int64_t number = 0;
    assert_int_equal(arf_json_integer(&value, -1, 1 << 20, &number, NULL), ARFUSE_OK);
    return (int)number;
}

static void string(const arf_json_value *object, const char *name, char text[128])
{
    arf_json_value value = member(object, name);
    assert_int_equal(arf_json_string(&value, text, 128, NULL), ARFUSE_OK);
}

static arf_switch switch_of(const arf_json_value *object, const char *name)
{
    arf_json_value value = member(object, name);
    bool truth = false;
    if (arf_json_is_null(&value))
        return ARF_EITHER;
    assert_int_equal(arf_json_boolean(&value, &truth, NULL), ARFUSE_OK);
    return truth ? ARF_ON : ARF_OFF;
}

static int count_members(const arf_json_value *object)
{
    int count = 0;
    const char *name;
    arf_json_value value;
    while (arf_json_member_at(object, count, &name, &value))
        count++;
    return count;
}

/* The plan of a preset in a kernel set, through the `published` paths of the knob table. */
static arf_plan plan_of(arf_set set, arf_pattern pattern, const char *preset)
{
    arf_json_value root = arf_json_root(document);
    arf_json_value presets = member(&root, "presets");
    arf_json_value body = member(&presets, preset);
    char name[128];
    arf_protocol protocol;
    string(&body, "protocol", name);
    assert_true(arf_protocol_parse(name, &protocol));
    string(&body, "pattern", name);
    assert_string_equal(name, arf_pattern_name(pattern));

    arf_plan plan = arf_least_plan(set, pattern, protocol);
    arf_json_value knobs = member(&body, "knobs");
    plan.tuning_null = arf_json_is_null(&knobs);
    if (plan.tuning_null)
        return plan;
    const arf_knob_table *table = arf_knobs(set, protocol, pattern);
    int nested = 0;
    for (int i = 0; i < table->count; i++) {
        const char *path = table->knob[i].published;
        const char *inner = strchr(path, '.');
        arf_json_value object = knobs;
        if (inner) {
            assert_memory_equal(path, "collective.", 11);
            object = member(&knobs, "collective");
            path = inner + 1;
            nested++;
        }
        arf_json_value value = member(&object, path);
        int64_t number = ARF_KNOB_NULL;
        bool truth = false;
        if (arf_json_is_null(&value))
            assert_true(table->knob[i].nullable);
        else if (table->knob[i].kind == ARF_KNOB_BOOLEAN) {
            assert_int_equal(arf_json_boolean(&value, &truth, NULL), ARFUSE_OK);
            number = truth;
        } else
            assert_int_equal(arf_json_integer(&value, 0, 1024, &number, NULL), ARFUSE_OK);
        plan.tuning.value[i] = (int32_t)number;
    }
    /* The map is whole: no member of the source is without a knob. */
    int members = count_members(&knobs);
    if (nested) {
        arf_json_value collective = member(&knobs, "collective");
        members += count_members(&collective) - 1;
    }
    assert_int_equal(members, table->count);
    return plan;
}

static arf_plan route_plan(const arf_json_value *preset, arf_set set, arf_pattern pattern)
{
    char name[128];
    assert_int_equal(arf_json_string(preset, name, sizeof name, NULL), ARFUSE_OK);
    return plan_of(set, pattern, name);
}

static void read_routes(const arf_json_value *one, arf_set set, arf_pattern pattern,
                        arf_routes *routes)
{
    arf_json_value list = member(one, arf_pattern_name(pattern));
    assert_int_equal(arf_json_array(&list, &routes->count, NULL), ARFUSE_OK);
    routes->min_tokens = 1;
    for (int i = 0; i < routes->count; i++) {
        arf_json_value row = arf_json_element(&list, i);
        arf_json_value bound = arf_json_element(&row, 0), preset = arf_json_element(&row, 1);
        arf_route *route = &routes->route[i];
        route->max_tokens = ARF_OPEN_BOUND;
        if (!arf_json_is_null(&bound))
            assert_int_equal(arf_json_integer(&bound, 1, ARF_MAX_TOKENS, &route->max_tokens, NULL),
                             ARFUSE_OK);
        route->plan = route_plan(&preset, set, pattern);
    }
}

int published_configurations(const published **list)
{
    static published all[64];
    static int count;
    *list = all;
    if (count)
        return count;
    read_fixture();
    arf_json_value root = arf_json_root(document), array = member(&root, "configurations");
    assert_int_equal(arf_json_array(&array, &count, NULL), ARFUSE_OK);
    assert_in_range(count, 1, 64);
    for (int i = 0; i < count; i++) {
        arf_json_value one = arf_json_element(&array, i);
        published *to = &all[i];
        char text[128];
        string(&one, "set", text);
        assert_true(arf_set_parse(text, &to->problem.set));
        string(&one, "config", to->config);
        string(&one, "gpu", text);
        to->problem.sm_count = strcmp(text, "B300") == 0 ? 148 : 152;
        to->problem.shape =
            (arf_shape){integer(&one, "tp_size"),    integer(&one, "hidden_size"),
                        integer(&one, "top_k"),      switch_of(&one, "rms_norm"),
                        switch_of(&one, "residual"), switch_of(&one, "shared_expert")};
        for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
            read_routes(&one, to->problem.set, (arf_pattern)pattern, &to->routes[pattern]);
    }
    return count;
}

const published *published_find(const char *config, int hidden_size, int tp_size, int top_k)
{
    const published *list;
    int count = published_configurations(&list);
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].config, config) == 0 &&
            list[i].problem.shape.hidden_size == hidden_size &&
            list[i].problem.shape.tp_size == tp_size && list[i].problem.shape.top_k == top_k)
            return &list[i];
    fail_msg("no published configuration %s for H=%d R=%d K=%d", config, hidden_size, tp_size,
             top_k);
    return NULL;
}

int published_unrouted(published_preset list[16])
{
    read_fixture();
    arf_json_value root = arf_json_root(document), array = member(&root, "unrouted");
    int count = 0;
    assert_int_equal(arf_json_array(&array, &count, NULL), ARFUSE_OK);
    assert_in_range(count, 1, 16);
    for (int i = 0; i < count; i++) {
        arf_json_value row = arf_json_element(&array, i), field[5];
        char text[128];
        int64_t number[3] = {0};
        for (int f = 0; f < 5; f++)
            field[f] = arf_json_element(&row, f);
        list[i].problem = (arf_problem){.sm_count = 152};
        assert_int_equal(arf_json_string(&field[0], text, sizeof text, NULL), ARFUSE_OK);
        assert_true(arf_set_parse(text, &list[i].problem.set));
        for (int f = 0; f < 3; f++)
            assert_int_equal(arf_json_integer(&field[1 + f], 1, 65536, &number[f], NULL),
                             ARFUSE_OK);
        list[i].problem.shape =
            (arf_shape){(int)number[0], (int)number[1], (int)number[2], ARF_ON, ARF_ON, ARF_ON};
        assert_int_equal(arf_json_string(&field[4], text, sizeof text, NULL), ARFUSE_OK);
        arf_json_value presets = member(&root, "presets"), body = member(&presets, text);
        string(&body, "pattern", text);
        assert_true(arf_pattern_parse(text, &list[i].pattern));
        list[i].plan = route_plan(&field[4], list[i].problem.set, list[i].pattern);
    }
    return count;
}
