/* SPDX-License-Identifier: Apache-2.0 */
/* The model device: its truth, its noise, its clock, its files. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "device/model/truth.h"
#include "rules/knobs.h"
#include "support/model_case.h"
#include "support/scratch.h"

/* ---- truth ------------------------------------------------------------------------------------
 */

static double default_truth(arf_pattern pattern, arf_protocol protocol, int64_t tokens)
{
    arf_model model;
    arf_model_default(&model);
    arf_plan plan = model_plan(pattern, protocol), then = model_plan(ARF_ALLREDUCE, ARF_LL);
    return arf_model_time(&model, &model_shape, ARF_WARM, pattern, &plan, &then, tokens);
}

static void test_each_protocol_has_its_range(void **state)
{
    (void)state;
    static const struct {
        int64_t tokens;
        arf_protocol winner;
    } expected[] = {{1, ARF_LL}, {8, ARF_LL}, {128, ARF_BT}, {256, ARF_BT}, {8192, ARF_HT}};
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
            double own =
                default_truth((arf_pattern)pattern, expected[i].winner, expected[i].tokens);
            for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
                if (protocol != (int)expected[i].winner &&
                    arf_knobs(ARF_SET_ARFUSE, (arf_protocol)protocol, (arf_pattern)pattern)
                        ->supported)
                    assert_true(own < default_truth((arf_pattern)pattern, (arf_protocol)protocol,
                                                    expected[i].tokens));
        }
    }
}

static void test_truth_grows_with_tokens(void **state)
{
    (void)state;
    for (int64_t tokens = 1; tokens < 8192; tokens *= 2)
        for (int protocol = ARF_LL; protocol <= ARF_UNFUSED; protocol++)
            assert_true(default_truth(ARF_FINALIZE, (arf_protocol)protocol, tokens) <
                        default_truth(ARF_FINALIZE, (arf_protocol)protocol, 2 * tokens));
    assert_true(default_truth(ARF_ALLREDUCE, ARF_LL, 0) == 0.0);
}

static double ht_truth(const arf_model *model, int64_t tokens)
{
    arf_plan plan = model_plan(ARF_ALLREDUCE, ARF_HT);
    return arf_model_time(model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &plan, NULL, tokens);
}

/* A part of a block takes as long as a whole one. */
static void test_stairs(void **state)
{
    (void)state;
    arf_model model;
    arf_error error = ARF_ERROR_INIT;
    if (arf_model_load(MODEL_FIXTURES "stairs.json", &model, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    assert_true(model.curve[ARF_ALLREDUCE][ARF_HT].stair_tokens == 512);
    assert_true(ht_truth(&model, 512) < ht_truth(&model, 513));
    assert_true(ht_truth(&model, 513) == ht_truth(&model, 1024));
    assert_true(ht_truth(&model, 1) == ht_truth(&model, 512));
}

static void test_separate_includes_its_follower(void **state)
{
    (void)state;
    arf_model model;
    arf_model_default(&model);
    arf_plan plan = model_plan(ARF_FINALIZE, ARF_SEPARATE), ll = model_plan(ARF_ALLREDUCE, ARF_LL);
    double alone = arf_model_time(&model, &model_shape, ARF_WARM, ARF_FINALIZE, &plan, NULL, 16);
    double follower = arf_model_time(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16);
    double both = arf_model_time(&model, &model_shape, ARF_WARM, ARF_FINALIZE, &plan, &ll, 16);
    assert_true(fabs(both - alone - follower) < 1e-12);
}

/* The search has something to find: some one-step change of a knob is faster than the fallback. */
static void test_fallback_is_good_but_not_best(void **state)
{
    (void)state;
    arf_model model;
    arf_model_default(&model);
    for (int protocol = ARF_LL; protocol <= ARF_HT; protocol++) {
        const arf_knob_table *table =
            arf_knobs(ARF_SET_ARFUSE, (arf_protocol)protocol, ARF_ALLREDUCE);
        arf_plan fallback = model_plan(ARF_ALLREDUCE, (arf_protocol)protocol);
        double own =
            arf_model_time(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &fallback, NULL, 64);
        double best = own;
        for (int i = 0; i < table->count; i++) {
            for (const int32_t *step = table->knob[i].ladder; step != NULL && *step >= 0; step++) {
                arf_plan plan = fallback;
                plan.tuning.value[i] = *step;
                best = fmin(best, arf_model_time(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE,
                                                 &plan, NULL, 64));
            }
        }
        assert_true(best < 0.999 * own && best > 0.8 * own);
    }
}

/* ---- noise and clock ----------------------------------------------------------------------------
 */

static void test_noise_is_a_function(void **state)
{
    (void)state;
    arf_model model;
    arf_model_default(&model);
    model.outlier_rate = 0.0;
    arf_plan ll = model_plan(ARF_ALLREDUCE, ARF_LL), bt = model_plan(ARF_ALLREDUCE, ARF_BT);
    double sum = 0.0, squares = 0.0;
    const int rounds = 4000;
    for (int round = 0; round < rounds; round++) {
        double us =
            arf_model_noisy(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 3, round);
        double again =
            arf_model_noisy(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 3, round);
        assert_true(us == again);
        double deviation =
            log(us / arf_model_time(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16));
        sum += deviation;
        squares += deviation * deviation;
    }
    assert_true(fabs(sum / rounds) < 0.001);
    assert_true(fabs(sqrt(squares / rounds) - 0.01) < 0.001);

    /* Each of rank, round, M, plan and seed changes it. */
    double base =
        arf_model_noisy(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 3, 0) /
        arf_model_time(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16);
    double others[] = {
        arf_model_noisy(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 4, 0) /
            arf_model_time(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16),
        arf_model_noisy(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 3, 1) /
            arf_model_time(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16),
        arf_model_noisy(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 17, 3, 0) /
            arf_model_time(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 17),
        arf_model_noisy(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &bt, NULL, 16, 3, 0) /
            arf_model_time(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &bt, NULL, 16),
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_true(fabs(others[i] - base) > 1e-9);
    model.seed++;
    assert_true(
        arf_model_noisy(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 3, 0) /
            arf_model_time(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16) !=
        base);
}

static void test_outliers_come_at_their_rate(void **state)
{
    (void)state;
    arf_model model;
    arf_model_default(&model);
    model.outlier_rate = 0.05;
    model.outlier_factor = 10.0;
    arf_plan ll = model_plan(ARF_ALLREDUCE, ARF_LL);
    double quiet = arf_model_time(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16);
    int outliers = 0;
    for (int round = 0; round < 2000; round++)
        outliers += arf_model_noisy(&model, &model_shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 0,
                                    round) > 5.0 * quiet;
    assert_in_range(outliers, 60, 140);
}

static void test_timing_moves_the_clock(void **state)
{
    (void)state;
    model_stand stand;
    model_set_up(&stand, "model:default,noise=0,outlier_rate=0");
    arf_launch launch = model_launch(&stand, ARF_LL, 16);
    double us[MODEL_RANKS], before = arf_model_device.now(stand.device);
    arf_error error;
    assert_int_equal(model_time(&stand, &launch, 0, us, &error), ARFUSE_OK);
    double after = arf_model_device.now(stand.device);
    /* 100 calls share the fixed cost of their graph. */
    double expected = default_truth(ARF_ALLREDUCE, ARF_LL, 16) + 6.0 / 100.0;
    for (int rank = 0; rank < MODEL_RANKS; rank++)
        assert_true(fabs(us[rank] - expected) < 1e-9);
    assert_true(fabs(after - before - 100.0 * expected * 1e-6) < 1e-5);
    /* Reading it moves it, so that waiting by reading it ends. */
    assert_true(arf_model_device.now(stand.device) > after);
    model_tear_down(&stand);
}

static void test_same_seed_same_times(void **state)
{
    (void)state;
    double us[3][MODEL_RANKS];
    static const char *const specs[] = {"model:default,seed=5", "model:default,seed=5",
                                        "model:default,seed=6"};
    for (int i = 0; i < 3; i++) {
        model_stand stand;
        model_set_up(&stand, specs[i]);
        arf_launch launch = model_launch(&stand, ARF_BT, 200);
        arf_error error;
        assert_int_equal(model_time(&stand, &launch, 4, us[i], &error), ARFUSE_OK);
        model_tear_down(&stand);
    }
    assert_memory_equal(us[0], us[1], sizeof us[0]);
    assert_memory_not_equal(us[0], us[2], sizeof us[0]);
}

static void test_device_key(void **state)
{
    (void)state;
    model_stand stand;
    model_set_up(&stand, "model:" MODEL_FIXTURES "crossing.json");
    arf_device_key key;
    arf_model_device.describe(stand.device, &key);
    assert_string_equal(key.name, "Crossing");
    assert_int_equal(key.sm_count, 132);
    assert_int_equal(key.link, ARF_LINK_MODEL);
    model_tear_down(&stand);
    model_set_up(&stand, "model:default");
    arf_model_device.describe(stand.device, &key);
    assert_int_equal(key.sm_count, 148);
    model_tear_down(&stand);
}

/* ---- files ------------------------------------------------------------------------------------
 */

static void test_file_changes_what_it_names(void **state)
{
    (void)state;
    arf_model model, standard;
    arf_error error = ARF_ERROR_INIT;
    arf_model_default(&standard);
    if (arf_model_load(MODEL_FIXTURES "crossing.json", &model, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    assert_true(model.seed == 11 && model.noise == 0.02);
    assert_true(model.curve[ARF_ALLREDUCE][ARF_LL].floor_us == 3.5);
    assert_true(model.curve[ARF_ALLREDUCE][ARF_LL].link_us_per_mib == 2.0);
    assert_true(model.curve[ARF_ALLREDUCE][ARF_BT].floor_us == 8.0);
    assert_true(model.curve[ARF_ALLREDUCE][ARF_HT].floor_us ==
                standard.curve[ARF_ALLREDUCE][ARF_HT].floor_us);
    int threads = arf_knob_index(arf_knobs(ARF_SET_ARFUSE, ARF_LL, ARF_ALLREDUCE), "threads");
    assert_true(model.curve[ARF_ALLREDUCE][ARF_LL].knob[threads].best == 256.0);
    assert_true(model.curve[ARF_ALLREDUCE][ARF_LL].knob[threads].cost == 0.2);

    assert_int_equal(
        arf_model_load(MODEL_FIXTURES "crossing.json,seed=3,noise=0.5", &model, &error), ARFUSE_OK);
    assert_true(model.seed == 3 && model.noise == 0.5);
}

static void expect_refused(const char *text, const char *part)
{
    char folder[SCRATCH_PATH], path[2 * SCRATCH_PATH];
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/model.json", folder);
    assert_int_equal(arf_write_file(path, text, strlen(text), NULL), ARFUSE_OK);
    arf_model model;
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = arf_model_load(path, &model, &error);
    scratch_remove(folder);
    assert_int_equal(status, ARFUSE_PROFILE);
    if (strstr(error.text, path) == NULL || strstr(error.text, part) == NULL)
        fail_msg("\"%s\" should name the file and %s", error.text, part);
}

#define HEAD "{\"format\": \"arfuse-model\", \"version\": 1, "
static void test_bad_files_are_refused(void **state)
{
    (void)state;
    expect_refused("", "");
    expect_refused("{}", "format");
    expect_refused("{\"format\": \"arfuse-profile\", \"version\": 1}", "arfuse-model");
    expect_refused("{\"format\": \"arfuse-model\", \"version\": 2}", "version");
    expect_refused(HEAD "\"nose\": 1}", "nose");
    expect_refused(HEAD "\"noise\": -1}", "noise");
    expect_refused(HEAD "\"noise\": \"1\"}", "noise");
    expect_refused(HEAD "\"curves\": {\"reduce\": {}}}", "reduce");
    expect_refused(HEAD "\"curves\": {\"allreduce\": {\"separate\": {}}}}", "separate");
    expect_refused(HEAD "\"curves\": {\"allreduce\": {\"ll\": {\"knobs\": {\"thread\": {}}}}}}",
                   "thread");
    expect_refused(HEAD "\"faults\": [{}]}", "kind");
    expect_refused(HEAD "\"faults\": [{\"kind\": \"bad\"}]}", "bad");
    expect_refused(HEAD "\"faults\": [{\"kind\": \"slow\", \"rank\": 72}]}", "rank");
    expect_refused(HEAD "\"faults\": [{\"kind\": \"slow\", \"protocol\": \"xx\"}]}", "xx");
}

static void test_bad_specs_are_refused(void **state)
{
    (void)state;
    static const char *const specs[] = {"",
                                        "default,",
                                        "default,seed",
                                        "default,seed=",
                                        "default,seed=-1",
                                        "default,seed=1x",
                                        "default,noise=2",
                                        "default,colour=3"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        arf_model model;
        arf_error error = ARF_ERROR_INIT;
        if (arf_model_load(specs[i], &model, &error) != ARFUSE_USAGE)
            fail_msg("\"%s\" was accepted", specs[i]);
        assert_int_equal(error.status, ARFUSE_USAGE);
        assert_true(error.text[0] != '\0');
    }
    arf_model model;
    arf_error error = ARF_ERROR_INIT;
    assert_int_not_equal(arf_model_load("/nonexistent/model.json", &model, &error), ARFUSE_OK);
    assert_non_null(strstr(error.text, "/nonexistent/model.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_protocol_has_its_range),
        cmocka_unit_test(test_truth_grows_with_tokens),
        cmocka_unit_test(test_stairs),
        cmocka_unit_test(test_separate_includes_its_follower),
        cmocka_unit_test(test_fallback_is_good_but_not_best),
        cmocka_unit_test(test_noise_is_a_function),
        cmocka_unit_test(test_outliers_come_at_their_rate),
        cmocka_unit_test(test_timing_moves_the_clock),
        cmocka_unit_test(test_same_seed_same_times),
        cmocka_unit_test(test_device_key),
        cmocka_unit_test(test_file_changes_what_it_names),
        cmocka_unit_test(test_bad_files_are_refused),
        cmocka_unit_test(test_bad_specs_are_refused),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
