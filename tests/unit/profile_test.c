/* SPDX-License-Identifier: Apache-2.0 */
/* The profile file: what is read, what is refused in which words, that writing gives it back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "profile/read.h"
#include "profile/write.h"
#include "rules/knobs.h"
#include "support/fixtures.h"
#include "support/random.h"
#include "support/scratch.h"

#define GOOD FIXTURES "profiles/good/"
#define BAD FIXTURES "profiles/bad/"

static arf_profile *load(const char *path)
{
    arf_profile *profile = NULL;
    arf_error error = ARF_ERROR_INIT;
    if (arf_profile_load(path, &profile, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return profile;
}

static char *print(const arf_profile *profile)
{
    arf_text text = {0};
    arf_error error = ARF_ERROR_INIT;
    if (arf_profile_print(profile, &text, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return text.data;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void check_good(const char *path)
{
    size_t bytes;
    char *text = fixture_text(path, &bytes);
    arf_profile *profile = load(path), *copy = arf_profile_copy(profile);
    char *printed = print(profile), *copied = print(copy);
    if (strcmp(text, printed) != 0)
        fail_msg("%s: is not as the writer writes it:\n%s", path, printed);
    assert_string_equal(text, copied);
    assert_true(arf_profile_digest(profile) == arf_profile_digest(copy));
    free(copied);
    free(printed);
    free(text);
    arf_profile_free(profile);
    arf_profile_free(copy);
}

static void good_files_are_read_and_written_back(void **state)
{
    (void)state;
    assert_true(fixture_each(GOOD, ".json", check_good) >= 8);
}

static void bad_files_are_refused_in_these_words(void **state)
{
    (void)state;
    size_t bytes;
    char *table = fixture_text(FIXTURES "profiles/bad.tsv", &bytes), *rest = NULL;
    int count = 0, wrong = 0;
    for (char *row = strtok_r(table, "\n", &rest); row; row = strtok_r(NULL, "\n", &rest)) {
        char *column = NULL, path[256], expected[1200];
        char *name = strtok_r(row, "\t", &column);
        strtok_r(NULL, "\t", &column);
        snprintf(path, sizeof path, BAD "%s.json", name);
        snprintf(expected, sizeof expected, "%s: %s", path, strtok_r(NULL, "\t", &column));
        arf_profile *profile = NULL;
        arf_error error = ARF_ERROR_INIT;
        arfuse_status status = arf_profile_load(path, &profile, &error);
        if (status != ARFUSE_PROFILE || profile != NULL || strcmp(error.text, expected) != 0) {
            print_error("status %d: %s\n     expected: %s\n", status, error.text, expected);
            wrong++;
        }
        count++;
    }
    free(table);
    assert_int_equal(wrong, 0);
    assert_true(count >= 60);
}

static void ignore(const char *path)
{
    (void)path;
}

static void every_bad_file_is_in_the_table(void **state)
{
    (void)state;
    size_t bytes;
    char *table = fixture_text(FIXTURES "profiles/bad.tsv", &bytes);
    int rows = 0;
    for (size_t i = 0; i < bytes; i++)
        rows += table[i] == '\n';
    free(table);
    assert_int_equal(fixture_each(BAD, ".json", ignore), rows);
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    arf_profile *profile = NULL;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_profile_load(BAD, &profile, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "is a folder, expected a regular file"));
    arf_error_clear(&error);
    assert_int_equal(arf_profile_load("/nonexistent", &profile, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "No such file"));

    char folder[SCRATCH_PATH], path[2 * SCRATCH_PATH];
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/large.json", folder);
    assert_int_equal(arf_write_file(path, "", 0, NULL), ARFUSE_OK);
    assert_int_equal(truncate(path, (4 << 20) + 1), 0);
    arf_error_clear(&error);
    assert_int_equal(arf_profile_load(path, &profile, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "4194305 bytes, expected at most 4194304"));
    /* Half a gigabyte is refused as fast: nothing of it is read. */
    assert_int_equal(truncate(path, INT64_C(512) << 20), 0);
    arf_error_clear(&error);
    assert_int_equal(arf_profile_load(path, &profile, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "536870912 bytes, expected at most 4194304"));
    scratch_remove(folder);
    assert_null(profile);
}

/* Every proper prefix of a good file is refused, and never crashes. */
static void every_truncation_is_refused(void **state)
{
    (void)state;
    size_t bytes;
    char *text = fixture_text(GOOD "measured.json", &bytes);
    for (size_t cut = 0; cut + 1 < bytes; cut++) { /* the last byte is the final newline */
        arf_profile *profile = NULL;
        char *prefix = malloc(cut + 1);
        memcpy(prefix, text, cut);
        assert_int_equal(arf_profile_parse("cut", prefix, cut, &profile, NULL), ARFUSE_PROFILE);
        assert_null(profile);
        free(prefix);
    }
    free(text);
}

/* ---- round trips -------------------------------------------------------------------------------
 */

/* A legal plan: each knob is turned at random, and turned back if that was not legal. */
static bool random_plan(const arf_profile *profile, arf_pattern pattern, arf_plan *plan)
{
    arf_problem problem = arf_profile_problem(profile);
    *plan = (arf_plan){.protocol = (arf_protocol)random_below(ARF_PROTOCOLS)};
    const arf_knob_table *table = arf_knobs(profile->set, plan->protocol, pattern);
    if (!table->supported)
        return false;
    plan->tuning = arf_tuning_fallback(table);
    for (int i = 0; i < table->count; i++) {
        arf_plan turned = *plan;
        int64_t span = (int64_t)table->knob[i].high - table->knob[i].low + 1;
        turned.tuning.value[i] =
            (int32_t)(table->knob[i].low + (int64_t)random_below((uint64_t)span));
        if (arf_legal(&problem, pattern, &turned, NULL))
            *plan = turned;
    }
    return arf_legal(&problem, pattern, plan, NULL);
}

static arf_profile *random_profile(void)
{
    arf_profile *profile = arf_profile_new();
    assert_non_null(profile);
    bool host = random_below(3) == 0;
    profile->set = host ? ARF_SET_HOST : ARF_SET_ARFUSE;
    for (int i = 0; i < ARF_PROTOCOLS; i++)
        profile->version[i] = arf_protocol_version(profile->set, (arf_protocol)i);
    const int hidden[] = {2880, 4096, 5120, 6144, 7168, 8192};
    profile->shape =
        (arf_shape){1 << random_below(5), hidden[random_below(6)], (int)random_below(17),
                    random_below(2),      random_below(2),         random_below(2)};
    profile->device.sm_count = host ? 0 : 148;
    profile->device.link = host ? ARF_LINK_SHM : ARF_LINK_NVLINK;
    arf_device_name(host ? "host" : "NVIDIA B300", profile->device.name);
    for (int i = 0; i < ARF_PATTERNS; i++) {
        arf_routes *routes = &profile->routes[i];
        int64_t bound = 0;
        int wanted = i == ARF_FINALIZE && profile->shape.top_k == 0 ? 0 : 1 + random_below(6);
        for (int tries = 0; routes->count < wanted && tries < 1000; tries++) {
            arf_plan plan;
            if (!random_plan(profile, (arf_pattern)i, &plan))
                continue;
            bound += 1 + (int64_t)random_below(100000);
            routes->route[routes->count++] = (arf_route){bound, plan};
        }
    }
    profile->evidence.noise = (double)random_below(1000000) / 7e6;
    profile->evidence.regret_max = 1.0 / (double)(1 + random_below(1000000));
    return profile;
}

static void random_profiles_come_back_equal(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        random_seed(seed);
        arf_profile *profile = random_profile(), *back = NULL;
        arf_error error = ARF_ERROR_INIT;
        char *text = print(profile);
        if (arf_profile_parse("p", text, strlen(text), &back, &error) != ARFUSE_OK)
            fail_msg("seed %d: %s", (int)seed, error.text);
        assert_int_equal(back->set, profile->set);
        assert_memory_equal(&back->version, &profile->version, sizeof back->version);
        assert_true(arf_shape_equal(&back->shape, &profile->shape));
        assert_string_equal(back->device.name, profile->device.name);
        for (int i = 0; i < ARF_PATTERNS; i++) {
            assert_int_equal(back->routes[i].count, profile->routes[i].count);
            for (int j = 0; j < back->routes[i].count; j++) {
                const arf_route *a = &back->routes[i].route[j], *b = &profile->routes[i].route[j];
                assert_true(a->max_tokens == b->max_tokens);
                assert_true(arf_plan_equal(back->set, (arf_pattern)i, &a->plan, &b->plan));
            }
        }
        assert_true(back->evidence.noise == profile->evidence.noise);
        assert_true(back->evidence.regret_max == profile->evidence.regret_max);
        assert_true(isnan(back->evidence.regret_geomean));
        assert_true(arf_profile_digest(back) == arf_profile_digest(profile));
        char *again = print(back);
        assert_string_equal(again, text);
        free(again);
        free(text);
        arf_profile_free(back);
        arf_profile_free(profile);
    }
}

static void unknown_evidence_is_kept(void **state)
{
    (void)state;
    arf_profile *profile = load(GOOD "retargeted_unknown_evidence.json");
    assert_string_equal(profile->evidence.extra,
                        "{\"retargeted_from\":\"tp8_h6144_k10_bf16\",\"list\":[1,2.5,{\"a\":null}],"
                        "\"when\":\"a \\u0001 b\"}");
    assert_string_equal(profile->evidence.route_extra[0][0], "{\"why\":\"H 6144 to 4096\"}");
    /* What the writer prints itself cannot be smuggled in beside it. */
    arf_text text = {0};
    arf_error error = ARF_ERROR_INIT;
    free(profile->evidence.extra);
    profile->evidence.extra = strdup("{\"noise\":3}");
    assert_int_equal(arf_profile_print(profile, &text, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text, "$.evidence: kept members: member \"noise\" is known, expected "
                                    "unknown ones only");
    arf_profile_free(profile);
}

static void the_writer_refuses_what_the_reader_would(void **state)
{
    (void)state;
    arf_text text = {0};
    arf_profile *profile = load(GOOD "measured.json");
    arf_routes *routes = &profile->routes[ARF_ALLREDUCE];

#define REFUSED(change, undo, message)                                               \
    do {                                                                             \
        arf_error error = ARF_ERROR_INIT;                                            \
        change;                                                                      \
        assert_int_equal(arf_profile_print(profile, &text, &error), ARFUSE_PROFILE); \
        assert_string_equal(error.text, message);                                    \
        undo;                                                                        \
    } while (0)

    REFUSED(routes->count = 65, routes->count = 3,
            "$.routes.allreduce: 65 routes, expected at "
            "most 64");
    REFUSED(routes->route[1].max_tokens = 12, routes->route[1].max_tokens = 1024,
            "$.routes.allreduce[1].max_tokens: 12, expected more than 12, the bound before it");
    REFUSED(profile->shape.hidden_size = 12, profile->shape.hidden_size = 6144,
            "$.shape.hidden_size: 12, expected a multiple of 8 (a pack is 8 bf16 values)");
    REFUSED(profile->evidence.noise = INFINITY, profile->evidence.noise = NAN,
            "$.evidence.noise: inf, expected a number from 0 to 1e+06");
    REFUSED(strcpy(profile->evidence.tool, "a\nb"), strcpy(profile->evidence.tool, "t"),
            "$.evidence.tool: a control character, expected a plain text");
    REFUSED(strcpy(profile->evidence.tool, "a\xff"), strcpy(profile->evidence.tool, "t"),
            "$.evidence.tool: bytes that are not valid UTF-8, expected a plain text");
    char *printed = print(profile); /* all undone */
    free(printed);
    arf_profile_free(profile);
}

/* ---- digest -----------------------------------------------------------------------------------
 */

static void the_digest_is_of_what_runs(void **state)
{
    (void)state;
    arf_profile *profile = load(GOOD "measured.json");
    uint64_t before = arf_profile_digest(profile);
    profile->evidence.noise = 0.5;
    strcpy(profile->evidence.driver, "other");
    profile->routes[0].route[0].plan.tuning.value[ARF_MAX_KNOBS - 1] = 77; /* behind the table */
    assert_true(arf_profile_digest(profile) == before);

#define CHANGES(change, undo)                               \
    do {                                                    \
        change;                                             \
        assert_true(arf_profile_digest(profile) != before); \
        undo;                                               \
        assert_true(arf_profile_digest(profile) == before); \
    } while (0)
    arf_route *route = &profile->routes[1].route[1];
    CHANGES(route->max_tokens++, route->max_tokens--);
    CHANGES(route->plan.tuning.value[0]++, route->plan.tuning.value[0]--);
    CHANGES(route->plan.transport = ARF_MULTICAST_STORE, route->plan.transport = ARF_UNICAST);
    CHANGES(profile->shape.top_k = 8, profile->shape.top_k = 10);
    CHANGES(profile->shape.residual = ARF_OFF, profile->shape.residual = ARF_ON);
    CHANGES(profile->version[ARF_LL] = 3, profile->version[ARF_LL] = 2);
    CHANGES(profile->routes[0].count--, profile->routes[0].count++);
    arf_profile_free(profile);
}

/* ---- names ------------------------------------------------------------------------------------
 */

static void device_names_are_normalised(void **state)
{
    (void)state;
    char name[ARF_NAME_TEXT];
    arf_device_name("  NVIDIA \t GB300 \n", name);
    assert_string_equal(name, "NVIDIA GB300");
    arf_device_name("", name);
    assert_string_equal(name, "");
    char longest[200];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    arf_device_name(longest, name);
    assert_true(strlen(name) < ARF_NAME_TEXT);
    char again[ARF_NAME_TEXT];
    arf_device_name(name, again);
    assert_string_equal(again, name);
}

static void no_name_leaves_the_folder(void **state)
{
    (void)state;
    const char *const names[][2] = {{"NVIDIA GB300", "nvidia-gb300-nvlink"},
                                    {"NVIDIA-GB300", "nvidia-gb300-nvlink"},
                                    {"NVIDIA B300 SXM6 AC", "nvidia-b300-sxm6-ac-nvlink"},
                                    {"../../etc/passwd", "etc-passwd-nvlink"},
                                    {"a/b\\c:d", "a-b-c-d-nvlink"},
                                    {"..", "-nvlink"}}; /* the format refuses such a name */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        arf_device_key device = {.link = ARF_LINK_NVLINK};
        char folder[ARF_NAME_TEXT + 16];
        strcpy(device.name, names[i][0]);
        arf_device_folder(&device, folder);
        assert_string_equal(folder, names[i][1]);
    }
}

static void file_names_say_the_shape(void **state)
{
    (void)state;
    char name[ARF_NAME_TEXT + 64];
    arf_shape shape = {8, 6144, 10, ARF_ON, ARF_ON, ARF_ON};
    arf_profile_filename(&shape, name);
    assert_string_equal(name, "tp8_h6144_k10_bf16.json");
    shape.rms_norm = shape.residual = shape.shared_expert = ARF_OFF;
    arf_profile_filename(&shape, name);
    assert_string_equal(name, "tp8_h6144_k10_bf16_nonorm_noresidual_noshared.json");
    shape = (arf_shape){72, 65536, 0, ARF_EITHER, ARF_ON, ARF_ON};
    arf_profile_filename(&shape, name);
    assert_string_equal(name, "tp72_h65536_bf16.json");
}

static void methods_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < ARF_METHODS; i++) {
        arf_method method = ARF_METHODS;
        assert_true(arf_method_parse(arf_method_name((arf_method)i), &method));
        assert_int_equal(method, i);
    }
    arf_method method;
    assert_false(arf_method_parse("Measured", &method));
}

/* ---- storing ----------------------------------------------------------------------------------
 */

static void stored_profiles_do_not_replace_others(void **state)
{
    (void)state;
    char root[SCRATCH_PATH], path[2 * SCRATCH_PATH], other_path[2 * SCRATCH_PATH];
    scratch_make(root);
    arf_profile *profile = load(GOOD "measured.json");
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_profile_store(profile, root, path, sizeof path, &error), ARFUSE_OK);
    assert_non_null(strstr(path, "/nvidia-b300-nvlink/tp8_h6144_k10_bf16.json"));
    /* The same key again: replaced. */
    profile->evidence.noise = 0.25;
    assert_int_equal(arf_profile_store(profile, root, path, sizeof path, &error), ARFUSE_OK);
    arf_profile *back = load(path);
    assert_true(back->evidence.noise == 0.25);
    arf_profile_free(back);

    /* Another key that comes to the same name: refused, the file stands. */
    profile->device.nodes = 2;
    assert_int_equal(arf_profile_store(profile, root, other_path, sizeof other_path, &error),
                     ARFUSE_PROFILE);
    assert_string_equal(other_path, path);
    assert_non_null(strstr(error.text, "holds the profile of another key and is not replaced"));
    assert_non_null(strstr(error.text, "2 nodes"));
    back = load(path);
    assert_int_equal(back->device.nodes, 1);
    arf_profile_free(back);

    /* So is what cannot be read: it may be a newer version's. */
    profile->device.nodes = 1;
    assert_int_equal(arf_write_file(path, "{}", 2, NULL), ARFUSE_OK);
    arf_error_clear(&error);
    assert_int_equal(arf_profile_store(profile, root, path, sizeof path, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "is not replaced; move it away"));

    /* Published profiles stand apart, by variant. */
    arf_profile *published = load(GOOD "published.json");
    arf_error_clear(&error);
    assert_int_equal(arf_profile_store(published, root, path, sizeof path, &error), ARFUSE_OK);
    assert_non_null(strstr(path, "/published/flashinfer/ht-only-config/tp8_h8192_k10_bf16.json"));
    arf_profile_free(published);
    arf_profile_free(profile);
    scratch_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files_are_read_and_written_back),
        cmocka_unit_test(bad_files_are_refused_in_these_words),
        cmocka_unit_test(every_bad_file_is_in_the_table),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(random_profiles_come_back_equal),
        cmocka_unit_test(unknown_evidence_is_kept),
        cmocka_unit_test(the_writer_refuses_what_the_reader_would),
        cmocka_unit_test(the_digest_is_of_what_runs),
        cmocka_unit_test(device_names_are_normalised),
        cmocka_unit_test(no_name_leaves_the_folder),
        cmocka_unit_test(file_names_say_the_shape),
        cmocka_unit_test(methods_have_names),
        cmocka_unit_test(stored_profiles_do_not_replace_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
