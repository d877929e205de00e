/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every published knob set against the rules: the knob tables map it whole, and
 * it is legal for the shape that it was published for. The fixture names the
 * source of each configuration.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/json.h"
#include "rules/knobs.h"
#include "rules/legal.h"

static arf_json *document;

static int read_fixture(void **state)
{
    (void)state;
    arf_error error = ARF_ERROR_INIT;
    char *text = NULL;
    size_t bytes = 0;
    if (arf_read_file("tests/fixtures/rules/published.json", ARF_JSON_MAX_BYTES, &text, &bytes,
                      &error) != ARFUSE_OK ||
        arf_json_parse(text, bytes, &document, &error) != ARFUSE_OK)
        fprintf(stderr, "%s\n", error.text);
    free(text);
    return document ? 0 : -1;
}

static int free_fixture(void **state)
{
    (void)state;
    arf_json_free(document);
    return 0;
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

static void check_plan(const arf_problem *problem, arf_pattern pattern, const char *preset)
{
    arf_plan plan = plan_of(problem->set, pattern, preset);
    char reason[ARF_REASON_TEXT];
    if (!arf_legal(problem, pattern, &plan, reason))
        fail_msg("%s: %s", preset, reason);
    bool tail = plan.protocol == ARF_HT && !plan.tuning_null &&
                problem->shape.hidden_size == 3584 && problem->shape.tp_size >= 4;
    assert_int_equal(arf_needs_tail(problem, pattern, &plan), tail);
    if (!tail)
        return;
    arf_problem plain = *problem;
    plain.set = ARF_SET_FLASHINFER;
    assert_false(arf_legal(&plain, pattern, &plan, reason));
}

static void every_published_knob_set_is_legal_for_its_shape(void **state)
{
    (void)state;
    arf_json_value root = arf_json_root(document);
    arf_json_value list = member(&root, "configurations");
    int count = 0, routes = 0;
    assert_int_equal(arf_json_array(&list, &count, NULL), ARFUSE_OK);
    assert_int_equal(count, 50);
    for (int i = 0; i < count; i++) {
        arf_json_value one = arf_json_element(&list, i);
        char text[128];
        arf_problem problem = {0};
        string(&one, "set", text);
        assert_true(arf_set_parse(text, &problem.set));
        string(&one, "gpu", text);
        problem.sm_count = strcmp(text, "B300") == 0 ? 148 : 152;
        problem.shape = (arf_shape){integer(&one, "tp_size"),    integer(&one, "hidden_size"),
                                    integer(&one, "top_k"),      switch_of(&one, "rms_norm"),
                                    switch_of(&one, "residual"), switch_of(&one, "shared_expert")};
        for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
            arf_json_value of = member(&one, arf_pattern_name((arf_pattern)pattern));
            int length = 0;
            assert_int_equal(arf_json_array(&of, &length, NULL), ARFUSE_OK);
            for (int r = 0; r < length; r++, routes++) {
                arf_json_value route = arf_json_element(&of, r);
                arf_json_value preset = arf_json_element(&route, 1);
                assert_int_equal(arf_json_string(&preset, text, sizeof text, NULL), ARFUSE_OK);
                check_plan(&problem, (arf_pattern)pattern, text);
            }
        }
    }
    assert_int_equal(routes, 221);
}

static void presets_that_no_profile_routes_to_are_legal_too(void **state)
{
    (void)state;
    arf_json_value root = arf_json_root(document);
    arf_json_value list = member(&root, "unrouted");
    int count = 0;
    assert_int_equal(arf_json_array(&list, &count, NULL), ARFUSE_OK);
    assert_int_equal(count, 10);
    for (int i = 0; i < count; i++) {
        arf_json_value row = arf_json_element(&list, i), field[5];
        char set[128], preset[128], pattern_name[128];
        int64_t number[3] = {0};
        for (int f = 0; f < 5; f++)
            field[f] = arf_json_element(&row, f);
        arf_problem problem = {.sm_count = 152};
        assert_int_equal(arf_json_string(&field[0], set, sizeof set, NULL), ARFUSE_OK);
        assert_true(arf_set_parse(set, &problem.set));
        for (int f = 0; f < 3; f++)
            assert_int_equal(arf_json_integer(&field[1 + f], 1, 65536, &number[f], NULL),
                             ARFUSE_OK);
        problem.shape =
            (arf_shape){(int)number[0], (int)number[1], (int)number[2], ARF_ON, ARF_ON, ARF_ON};
        assert_int_equal(arf_json_string(&field[4], preset, sizeof preset, NULL), ARFUSE_OK);
        arf_json_value presets = member(&root, "presets");
        arf_json_value body = member(&presets, preset);
        arf_pattern pattern;
        string(&body, "pattern", pattern_name);
        assert_true(arf_pattern_parse(pattern_name, &pattern));
        check_plan(&problem, pattern, preset);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_published_knob_set_is_legal_for_its_shape),
        cmocka_unit_test(presets_that_no_profile_routes_to_are_legal_too),
    };
    return cmocka_run_group_tests_name("published", tests, read_fixture, free_fixture);
}
