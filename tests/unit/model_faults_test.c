/* SPDX-License-Identifier: Apache-2.0 */
/* Each fault that the model device plays, and what it checks of a launch. */
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

static arfuse_status verdict_of(const model_stand *stand, arf_protocol protocol, int64_t tokens,
                                arf_error *error)
{
    arf_launch launch = model_launch(stand, protocol, tokens);
    *error = (arf_error)ARF_ERROR_INIT;
    return arf_model_device.verdict(stand->space, &launch, error);
}

static void test_wrong_result(void **state)
{
    (void)state;
    model_stand stand;
    arf_error error;
    model_set_up(&stand, "model:" MODEL_FIXTURES "wrong.json");
    assert_int_equal(verdict_of(&stand, ARF_LL, 16, &error), ARFUSE_OK);
    assert_int_equal(verdict_of(&stand, ARF_BT, 16, &error), ARFUSE_WRONG_RESULT);
    assert_non_null(strstr(error.text, "rank 3"));
    assert_non_null(strstr(error.text, "16 tokens"));
    assert_int_equal(arf_model_device.state(stand.space, NULL), ARFUSE_OK);
    model_tear_down(&stand);
}

static void test_wrong_tuning_only(void **state)
{
    (void)state;
    model_stand stand;
    model_set_up(&stand, "model:" MODEL_FIXTURES "wrong-tuning.json");
    arf_plan plan = model_plan(ARF_ALLREDUCE, ARF_LL);
    int threads = arf_knob_index(arf_knobs(ARF_SET_ARFUSE, ARF_LL, ARF_ALLREDUCE), "threads");
    for (int turn = 0; turn < 2; turn++) {
        plan.tuning.value[threads] = turn == 0 ? 128 : 256;
        arf_launch launch = {.pattern = ARF_ALLREDUCE, .then = -1, .tokens = 4};
        arf_error error = ARF_ERROR_INIT;
        if (arf_model_device.prepare(stand.space, ARF_ALLREDUCE, &plan, &launch.plan, &error) !=
            ARFUSE_OK)
            fail_msg("%s", error.text);
        assert_int_equal(arf_model_device.verdict(stand.space, &launch, &error),
                         turn == 0 ? ARFUSE_OK : ARFUSE_WRONG_RESULT);
    }
    model_tear_down(&stand);
}

static void test_rank_that_never_arrives(void **state)
{
    (void)state;
    model_stand stand;
    arf_error error;
    double us[MODEL_RANKS];
    model_set_up(&stand, "model:" MODEL_FIXTURES "absent.json");
    arf_launch launch = model_launch(&stand, ARF_HT, 128);
    assert_int_equal(model_time(&stand, &launch, 0, us, &error), ARFUSE_OK);
    launch.tokens = 256;
    double before = arf_model_device.now(stand.device);
    assert_int_equal(model_time(&stand, &launch, 0, us, &error), ARFUSE_TIMEOUT);
    assert_non_null(strstr(error.text, "rank 5"));
    assert_true(arf_model_device.now(stand.device) - before >= 30.0); /* the wait limit passed */
    arfuse_culprit culprit = {.struct_size = sizeof culprit};
    assert_int_equal(arf_model_device.state(stand.space, &culprit), ARFUSE_TIMEOUT);
    assert_int_equal(culprit.rank, 5);
    /* The space stays failed; a new one works. */
    launch.tokens = 1;
    assert_int_equal(model_time(&stand, &launch, 0, us, &error), ARFUSE_FAILED);
    arf_model_device.space_destroy(stand.space);
    model_open_space(&stand, 8192);
    launch = model_launch(&stand, ARF_HT, 1);
    assert_int_equal(model_time(&stand, &launch, 0, us, &error), ARFUSE_OK);
    model_tear_down(&stand);
}

static void test_launch_that_is_refused(void **state)
{
    (void)state;
    model_stand stand;
    arf_error error;
    double us[MODEL_RANKS];
    model_set_up(&stand, "model:" MODEL_FIXTURES "launch.json");
    arf_launch bt = model_launch(&stand, ARF_BT, 256);
    assert_int_equal(model_time(&stand, &bt, 0, us, &error), ARFUSE_FAILURE);
    /* Refused everywhere: nothing was enqueued, and the space lives. */
    assert_int_equal(arf_model_device.state(stand.space, NULL), ARFUSE_OK);
    bt.tokens = 255;
    assert_int_equal(model_time(&stand, &bt, 0, us, &error), ARFUSE_OK);
    arf_launch ll = model_launch(&stand, ARF_LL, 8);
    assert_int_equal(model_time(&stand, &ll, 0, us, &error), ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "rank 2"));
    /* Refused on one rank: its peers were on their way. */
    assert_int_equal(arf_model_device.state(stand.space, NULL), ARFUSE_TIMEOUT);
    model_tear_down(&stand);
}

static void test_plan_that_does_not_compile(void **state)
{
    (void)state;
    model_stand stand;
    model_set_up(&stand, "model:" MODEL_FIXTURES "prepare.json");
    arf_plan bt = model_plan(ARF_ALLREDUCE, ARF_BT);
    int id = -1;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_model_device.prepare(stand.space, ARF_ALLREDUCE, &bt, &id, &error),
                     ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "rank 7"));
    assert_int_equal(id, -1);
    int first = model_prepared(&stand, ARF_ALLREDUCE, ARF_LL);
    assert_int_equal(model_prepared(&stand, ARF_ALLREDUCE, ARF_LL), first);
    assert_int_not_equal(model_prepared(&stand, ARF_ALLREDUCE, ARF_UNFUSED), first);
    model_tear_down(&stand);
}

static void test_timing_without_a_time(void **state)
{
    (void)state;
    model_stand stand;
    arf_error error;
    double us[MODEL_RANKS];
    model_set_up(&stand, "model:" MODEL_FIXTURES "timeless.json");
    arf_launch ll = model_launch(&stand, ARF_LL, 8), bt = model_launch(&stand, ARF_BT, 255);
    assert_int_equal(model_time(&stand, &ll, 0, us, &error), ARFUSE_OK);
    for (int rank = 0; rank < MODEL_RANKS; rank++)
        assert_true(rank == 3 ? isnan(us[rank]) : us[rank] > 0);
    assert_int_equal(model_time(&stand, &bt, 0, us, &error), ARFUSE_OK);
    assert_true(us[0] > 0 && us[3] > 0);
    bt.tokens = 256;
    assert_int_equal(model_time(&stand, &bt, 0, us, &error), ARFUSE_OK);
    assert_true(isnan(us[0]) && isnan(us[3]));
    model_tear_down(&stand);
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    model_stand stand;
    model_open(&stand, "model:" MODEL_FIXTURES "memory.json");
    arf_space_spec spec = model_spec(8192);
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_model_device.space_create(stand.device, &spec, &stand.space, &error),
                     ARFUSE_HARDWARE);
    assert_null(stand.space);
    assert_non_null(strstr(error.text, "rank 1"));
    assert_non_null(strstr(error.text, "8192"));
    spec.capacity[ARF_HT] = 4096;
    arf_error_clear(&error);
    assert_int_equal(arf_model_device.space_create(stand.device, &spec, &stand.space, &error),
                     ARFUSE_OK);
    model_tear_down(&stand);
}

static void test_slow_rank_and_clock_drop(void **state)
{
    (void)state;
    model_stand stand;
    arf_error error;
    double us[MODEL_RANKS];
    model_set_up(&stand,
                 "model:" MODEL_FIXTURES "slow-rank.json,noise=0,outlier_rate=0,graph_us=0");
    arf_launch launch = model_launch(&stand, ARF_LL, 16);
    assert_int_equal(model_time(&stand, &launch, 0, us, &error), ARFUSE_OK);
    assert_true(fabs(us[4] / us[3] - 10.0) < 1e-9);
    model_tear_down(&stand);

    model_set_up(&stand,
                 "model:" MODEL_FIXTURES "clock-drop.json,noise=0,outlier_rate=0,graph_us=0");
    launch = model_launch(&stand, ARF_LL, 16);
    assert_int_equal(model_time(&stand, &launch, 0, us, &error), ARFUSE_OK);
    double first = us[0], last = us[0];
    const arf_timing many = {.calls = 100000, .policy = ARF_WARM, .round = 1};
    while (arf_model_device.now(stand.device) < 61.0) {
        assert_int_equal(arf_model_device.time(stand.space, &launch, &many, us, &error), ARFUSE_OK);
        last = us[0];
    }
    assert_true(fabs(last / first - 1.25) < 1e-9);
    model_tear_down(&stand);
}

/* Seven calls of three launches: the first takes three turns, the others two. */
static void test_a_mixed_segment_is_the_sum_of_its_calls(void **state)
{
    (void)state;
    model_stand stand;
    arf_error error = ARF_ERROR_INIT;
    double us[MODEL_RANKS], alone[3];
    model_set_up(&stand, "model:default,noise=0,outlier_rate=0,graph_us=0");
    arf_launch launch[3] = {model_launch(&stand, ARF_LL, 1), model_launch(&stand, ARF_BT, 200),
                            model_launch(&stand, ARF_HT, 4000)};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(model_time(&stand, &launch[i], 0, us, &error), ARFUSE_OK);
        alone[i] = us[0];
    }
    const arf_timing timing = {.calls = 7, .policy = ARF_WARM, .launches = 3};
    const double before = arf_model_device.now(stand.device);
    assert_int_equal(arf_model_device.time(stand.space, launch, &timing, us, &error), ARFUSE_OK);
    const double all = 3 * alone[0] + 2 * alone[1] + 2 * alone[2];
    assert_true(fabs(us[0] * 7 / all - 1) < 1e-9);
    assert_true(fabs((arf_model_device.now(stand.device) - before) * 1e6 - all) < 3);
    launch[2].tokens = 8193;
    assert_int_equal(arf_model_device.time(stand.space, launch, &timing, us, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "8193"));
    model_tear_down(&stand);
}

static void test_launch_is_checked(void **state)
{
    (void)state;
    model_stand stand;
    model_set_up(&stand, "model:default");
    arf_error error = ARF_ERROR_INIT;
    arf_launch launch = model_launch(&stand, ARF_LL, 8193);
    assert_int_equal(arf_model_device.launch(stand.space, &launch, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "8192"));
    launch.tokens = 8192;
    launch.plan = 77;
    arf_error_clear(&error);
    assert_int_equal(arf_model_device.launch(stand.space, &launch, &error), ARFUSE_USAGE);
    launch = (arf_launch){.pattern = ARF_FINALIZE,
                          .plan = model_prepared(&stand, ARF_FINALIZE, ARF_SEPARATE),
                          .then = -1,
                          .tokens = 4};
    arf_error_clear(&error);
    assert_int_equal(arf_model_device.launch(stand.space, &launch, &error), ARFUSE_USAGE);
    launch.then = model_prepared(&stand, ARF_ALLREDUCE, ARF_BT);
    arf_error_clear(&error);
    assert_int_equal(arf_model_device.launch(stand.space, &launch, &error), ARFUSE_OK);
    launch.tokens = 0;
    assert_int_equal(arf_model_device.launch(stand.space, &launch, &error), ARFUSE_OK);
    assert_int_equal(arf_model_device.synchronize(stand.space, NULL, &error), ARFUSE_OK);
    model_tear_down(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_result),
        cmocka_unit_test(test_wrong_tuning_only),
        cmocka_unit_test(test_rank_that_never_arrives),
        cmocka_unit_test(test_launch_that_is_refused),
        cmocka_unit_test(test_plan_that_does_not_compile),
        cmocka_unit_test(test_timing_without_a_time),
        cmocka_unit_test(test_memory_runs_out),
        cmocka_unit_test(test_slow_rank_and_clock_drop),
        cmocka_unit_test(test_a_mixed_segment_is_the_sum_of_its_calls),
        cmocka_unit_test(test_launch_is_checked),
    };
    return cmocka_run_group_tests_name("model_faults", tests, NULL, NULL);
}
