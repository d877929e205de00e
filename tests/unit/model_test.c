/* SPDX-License-Identifier: Apache-2.0 */
/* The model device: its truth, its noise, its clock, its files, and each of its faults. */
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
#include "device/device.h"
#include "device/model/truth.h"
#include "rules/knobs.h"
#include "support/scratch.h"

#define RANKS 8
#define FIXTURES "tests/fixtures/model/"

static const arf_shape shape = {RANKS, 8192, 10, ARF_ON, ARF_ON, ARF_ON};

/* One process that hosts all ranks: no exchange with others is needed. */
typedef struct test_stand {
    arf_team team;
    arf_device *device;
    arf_space *space;
} test_stand;

static arf_space_spec spec_for(int64_t capacity)
{
    arf_space_spec spec = {.shape = shape, .wait_limit_seconds = 30.0};
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
        spec.capacity[protocol] = capacity;
    return spec;
}

static void open_device(test_stand *stand, const char *spec)
{
    arfuse_bootstrap bootstrap = ARFUSE_BOOTSTRAP_INIT;
    arf_error error = ARF_ERROR_INIT;
    memset(stand, 0, sizeof *stand);
    assert_int_equal(arf_team_create(&bootstrap, RANKS, &stand->team, &error), ARFUSE_OK);
    arf_device_options options = {.spec = spec, .cuda_ordinal = -1};
    if (arf_model_device.open(&options, &stand->team, &stand->device, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
}

static void open_space(test_stand *stand, int64_t capacity)
{
    arf_space_spec spec = spec_for(capacity);
    arf_error error = ARF_ERROR_INIT;
    if (arf_model_device.space_create(stand->device, &spec, &stand->space, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
}

static void set_up(test_stand *stand, const char *spec)
{
    open_device(stand, spec);
    open_space(stand, 8192);
}

static void tear_down(test_stand *stand)
{
    if (stand->space != NULL)
        arf_model_device.space_destroy(stand->space);
    arf_model_device.close(stand->device);
}

static arf_plan plan_of(arf_pattern pattern, arf_protocol protocol)
{
    arf_plan plan = {.protocol = protocol};
    plan.tuning = arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, protocol, pattern));
    return plan;
}

static int prepared(const test_stand *stand, arf_pattern pattern, arf_protocol protocol)
{
    arf_plan plan = plan_of(pattern, protocol);
    int id = -1;
    arf_error error = ARF_ERROR_INIT;
    if (arf_model_device.prepare(stand->space, pattern, &plan, &id, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return id;
}

static arf_launch launch_of(const test_stand *stand, arf_protocol protocol, int64_t tokens)
{
    return (arf_launch){.pattern = ARF_ALLREDUCE,
                        .plan = prepared(stand, ARF_ALLREDUCE, protocol),
                        .then = -1,
                        .tokens = tokens};
}

static arfuse_status time_it(const test_stand *stand, const arf_launch *launch, int64_t round,
                             double us[RANKS], arf_error *error)
{
    arf_timing timing = {.calls = 100, .policy = ARF_WARM, .round = round};
    *error = (arf_error)ARF_ERROR_INIT;
    return arf_model_device.time(stand->space, launch, &timing, us, error);
}

/* ---- truth ------------------------------------------------------------------------------------
 */

static double default_truth(arf_pattern pattern, arf_protocol protocol, int64_t tokens)
{
    arf_model model;
    arf_model_default(&model);
    arf_plan plan = plan_of(pattern, protocol), then = plan_of(ARF_ALLREDUCE, ARF_LL);
    return arf_model_time(&model, &shape, ARF_WARM, pattern, &plan, &then, tokens);
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

static void test_separate_includes_its_follower(void **state)
{
    (void)state;
    arf_model model;
    arf_model_default(&model);
    arf_plan plan = plan_of(ARF_FINALIZE, ARF_SEPARATE), ll = plan_of(ARF_ALLREDUCE, ARF_LL);
    double alone = arf_model_time(&model, &shape, ARF_WARM, ARF_FINALIZE, &plan, NULL, 16);
    double follower = arf_model_time(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16);
    double both = arf_model_time(&model, &shape, ARF_WARM, ARF_FINALIZE, &plan, &ll, 16);
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
        arf_plan fallback = plan_of(ARF_ALLREDUCE, (arf_protocol)protocol);
        double own = arf_model_time(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &fallback, NULL, 64);
        double best = own;
        for (int i = 0; i < table->count; i++) {
            for (const int32_t *step = table->knob[i].ladder; step != NULL && *step >= 0; step++) {
                arf_plan plan = fallback;
                plan.tuning.value[i] = *step;
                best = fmin(
                    best, arf_model_time(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &plan, NULL, 64));
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
    arf_plan ll = plan_of(ARF_ALLREDUCE, ARF_LL), bt = plan_of(ARF_ALLREDUCE, ARF_BT);
    double sum = 0.0, squares = 0.0;
    const int rounds = 4000;
    for (int round = 0; round < rounds; round++) {
        double us =
            arf_model_noisy(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 3, round);
        double again =
            arf_model_noisy(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 3, round);
        assert_true(us == again);
        double deviation =
            log(us / arf_model_time(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16));
        sum += deviation;
        squares += deviation * deviation;
    }
    assert_true(fabs(sum / rounds) < 0.001);
    assert_true(fabs(sqrt(squares / rounds) - 0.01) < 0.001);

    /* Each of rank, round, M, plan and seed changes it. */
    double base = arf_model_noisy(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 3, 0) /
                  arf_model_time(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16);
    double others[] = {
        arf_model_noisy(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 4, 0) /
            arf_model_time(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16),
        arf_model_noisy(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 3, 1) /
            arf_model_time(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16),
        arf_model_noisy(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 17, 3, 0) /
            arf_model_time(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 17),
        arf_model_noisy(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &bt, NULL, 16, 3, 0) /
            arf_model_time(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &bt, NULL, 16),
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_true(fabs(others[i] - base) > 1e-9);
    model.seed++;
    assert_true(arf_model_noisy(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 3, 0) /
                    arf_model_time(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16) !=
                base);
}

static void test_outliers_come_at_their_rate(void **state)
{
    (void)state;
    arf_model model;
    arf_model_default(&model);
    model.outlier_rate = 0.05;
    model.outlier_factor = 10.0;
    arf_plan ll = plan_of(ARF_ALLREDUCE, ARF_LL);
    double quiet = arf_model_time(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16);
    int outliers = 0;
    for (int round = 0; round < 2000; round++)
        outliers += arf_model_noisy(&model, &shape, ARF_WARM, ARF_ALLREDUCE, &ll, NULL, 16, 0,
                                    round) > 5.0 * quiet;
    assert_in_range(outliers, 60, 140);
}

static void test_timing_moves_the_clock(void **state)
{
    (void)state;
    test_stand stand;
    set_up(&stand, "model:default,noise=0,outlier_rate=0");
    arf_launch launch = launch_of(&stand, ARF_LL, 16);
    double us[RANKS], before = arf_model_device.now(stand.device);
    arf_error error;
    assert_int_equal(time_it(&stand, &launch, 0, us, &error), ARFUSE_OK);
    double after = arf_model_device.now(stand.device);
    /* 100 calls share the fixed cost of their graph. */
    double expected = default_truth(ARF_ALLREDUCE, ARF_LL, 16) + 6.0 / 100.0;
    for (int rank = 0; rank < RANKS; rank++)
        assert_true(fabs(us[rank] - expected) < 1e-9);
    assert_true(fabs(after - before - 100.0 * expected * 1e-6) < 1e-5);
    /* Reading it moves it, so that waiting by reading it ends. */
    assert_true(arf_model_device.now(stand.device) > after);
    tear_down(&stand);
}

static void test_same_seed_same_times(void **state)
{
    (void)state;
    double us[3][RANKS];
    static const char *const specs[] = {"model:default,seed=5", "model:default,seed=5",
                                        "model:default,seed=6"};
    for (int i = 0; i < 3; i++) {
        test_stand stand;
        set_up(&stand, specs[i]);
        arf_launch launch = launch_of(&stand, ARF_BT, 200);
        arf_error error;
        assert_int_equal(time_it(&stand, &launch, 4, us[i], &error), ARFUSE_OK);
        tear_down(&stand);
    }
    assert_memory_equal(us[0], us[1], sizeof us[0]);
    assert_memory_not_equal(us[0], us[2], sizeof us[0]);
}

static void test_device_key(void **state)
{
    (void)state;
    test_stand stand;
    set_up(&stand, "model:" FIXTURES "crossing.json");
    arf_device_key key;
    arf_model_device.describe(stand.device, &key);
    assert_string_equal(key.name, "Crossing");
    assert_int_equal(key.sm_count, 132);
    assert_int_equal(key.link, ARF_LINK_MODEL);
    tear_down(&stand);
    set_up(&stand, "model:default");
    arf_model_device.describe(stand.device, &key);
    assert_int_equal(key.sm_count, 148);
    tear_down(&stand);
}

/* ---- files ------------------------------------------------------------------------------------
 */

static void test_file_changes_what_it_names(void **state)
{
    (void)state;
    arf_model model, standard;
    arf_error error = ARF_ERROR_INIT;
    arf_model_default(&standard);
    if (arf_model_load(FIXTURES "crossing.json", &model, &error) != ARFUSE_OK)
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

    assert_int_equal(arf_model_load(FIXTURES "crossing.json,seed=3,noise=0.5", &model, &error),
                     ARFUSE_OK);
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

/* ---- faults -----------------------------------------------------------------------------------
 */

static arfuse_status verdict_of(const test_stand *stand, arf_protocol protocol, int64_t tokens,
                                arf_error *error)
{
    arf_launch launch = launch_of(stand, protocol, tokens);
    *error = (arf_error)ARF_ERROR_INIT;
    return arf_model_device.verdict(stand->space, &launch, error);
}

static void test_wrong_result(void **state)
{
    (void)state;
    test_stand stand;
    arf_error error;
    set_up(&stand, "model:" FIXTURES "wrong.json");
    assert_int_equal(verdict_of(&stand, ARF_LL, 16, &error), ARFUSE_OK);
    assert_int_equal(verdict_of(&stand, ARF_BT, 16, &error), ARFUSE_WRONG_RESULT);
    assert_non_null(strstr(error.text, "rank 3"));
    assert_non_null(strstr(error.text, "16 tokens"));
    assert_int_equal(arf_model_device.state(stand.space, NULL), ARFUSE_OK);
    tear_down(&stand);
}

static void test_wrong_tuning_only(void **state)
{
    (void)state;
    test_stand stand;
    set_up(&stand, "model:" FIXTURES "wrong-tuning.json");
    arf_plan plan = plan_of(ARF_ALLREDUCE, ARF_LL);
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
    tear_down(&stand);
}

static void test_rank_that_never_arrives(void **state)
{
    (void)state;
    test_stand stand;
    arf_error error;
    double us[RANKS];
    set_up(&stand, "model:" FIXTURES "absent.json");
    arf_launch launch = launch_of(&stand, ARF_HT, 128);
    assert_int_equal(time_it(&stand, &launch, 0, us, &error), ARFUSE_OK);
    launch.tokens = 256;
    double before = arf_model_device.now(stand.device);
    assert_int_equal(time_it(&stand, &launch, 0, us, &error), ARFUSE_TIMEOUT);
    assert_non_null(strstr(error.text, "rank 5"));
    assert_true(arf_model_device.now(stand.device) - before >= 30.0); /* the wait limit passed */
    arfuse_culprit culprit = {.struct_size = sizeof culprit};
    assert_int_equal(arf_model_device.state(stand.space, &culprit), ARFUSE_TIMEOUT);
    assert_int_equal(culprit.rank, 5);
    /* The space stays failed; a new one works. */
    launch.tokens = 1;
    assert_int_equal(time_it(&stand, &launch, 0, us, &error), ARFUSE_FAILED);
    arf_model_device.space_destroy(stand.space);
    open_space(&stand, 8192);
    launch = launch_of(&stand, ARF_HT, 1);
    assert_int_equal(time_it(&stand, &launch, 0, us, &error), ARFUSE_OK);
    tear_down(&stand);
}

static void test_launch_that_is_refused(void **state)
{
    (void)state;
    test_stand stand;
    arf_error error;
    double us[RANKS];
    set_up(&stand, "model:" FIXTURES "launch.json");
    arf_launch bt = launch_of(&stand, ARF_BT, 256);
    assert_int_equal(time_it(&stand, &bt, 0, us, &error), ARFUSE_FAILURE);
    /* Refused everywhere: nothing was enqueued, and the space lives. */
    assert_int_equal(arf_model_device.state(stand.space, NULL), ARFUSE_OK);
    bt.tokens = 255;
    assert_int_equal(time_it(&stand, &bt, 0, us, &error), ARFUSE_OK);
    arf_launch ll = launch_of(&stand, ARF_LL, 8);
    assert_int_equal(time_it(&stand, &ll, 0, us, &error), ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "rank 2"));
    /* Refused on one rank: its peers were on their way. */
    assert_int_equal(arf_model_device.state(stand.space, NULL), ARFUSE_TIMEOUT);
    tear_down(&stand);
}

static void test_plan_that_does_not_compile(void **state)
{
    (void)state;
    test_stand stand;
    set_up(&stand, "model:" FIXTURES "prepare.json");
    arf_plan bt = plan_of(ARF_ALLREDUCE, ARF_BT);
    int id = -1;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_model_device.prepare(stand.space, ARF_ALLREDUCE, &bt, &id, &error),
                     ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "rank 7"));
    assert_int_equal(id, -1);
    int first = prepared(&stand, ARF_ALLREDUCE, ARF_LL);
    assert_int_equal(prepared(&stand, ARF_ALLREDUCE, ARF_LL), first);
    assert_int_not_equal(prepared(&stand, ARF_ALLREDUCE, ARF_UNFUSED), first);
    tear_down(&stand);
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    test_stand stand;
    open_device(&stand, "model:" FIXTURES "memory.json");
    arf_space_spec spec = spec_for(8192);
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
    tear_down(&stand);
}

static void test_slow_rank_and_clock_drop(void **state)
{
    (void)state;
    test_stand stand;
    arf_error error;
    double us[RANKS];
    set_up(&stand, "model:" FIXTURES "slow-rank.json,noise=0,outlier_rate=0,graph_us=0");
    arf_launch launch = launch_of(&stand, ARF_LL, 16);
    assert_int_equal(time_it(&stand, &launch, 0, us, &error), ARFUSE_OK);
    assert_true(fabs(us[4] / us[3] - 10.0) < 1e-9);
    tear_down(&stand);

    set_up(&stand, "model:" FIXTURES "clock-drop.json,noise=0,outlier_rate=0,graph_us=0");
    launch = launch_of(&stand, ARF_LL, 16);
    assert_int_equal(time_it(&stand, &launch, 0, us, &error), ARFUSE_OK);
    double first = us[0], last = us[0];
    const arf_timing many = {.calls = 100000, .policy = ARF_WARM, .round = 1};
    while (arf_model_device.now(stand.device) < 61.0) {
        assert_int_equal(arf_model_device.time(stand.space, &launch, &many, us, &error), ARFUSE_OK);
        last = us[0];
    }
    assert_true(fabs(last / first - 1.25) < 1e-9);
    tear_down(&stand);
}

/* Seven calls of three launches: the first takes three turns, the others two. */
static void test_a_mixed_segment_is_the_sum_of_its_calls(void **state)
{
    (void)state;
    test_stand stand;
    arf_error error = ARF_ERROR_INIT;
    double us[RANKS], alone[3];
    set_up(&stand, "model:default,noise=0,outlier_rate=0,graph_us=0");
    arf_launch launch[3] = {launch_of(&stand, ARF_LL, 1), launch_of(&stand, ARF_BT, 200),
                            launch_of(&stand, ARF_HT, 4000)};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(time_it(&stand, &launch[i], 0, us, &error), ARFUSE_OK);
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
    tear_down(&stand);
}

static void test_launch_is_checked(void **state)
{
    (void)state;
    test_stand stand;
    set_up(&stand, "model:default");
    arf_error error = ARF_ERROR_INIT;
    arf_launch launch = launch_of(&stand, ARF_LL, 8193);
    assert_int_equal(arf_model_device.launch(stand.space, &launch, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "8192"));
    launch.tokens = 8192;
    launch.plan = 77;
    arf_error_clear(&error);
    assert_int_equal(arf_model_device.launch(stand.space, &launch, &error), ARFUSE_USAGE);
    launch = (arf_launch){.pattern = ARF_FINALIZE,
                          .plan = prepared(&stand, ARF_FINALIZE, ARF_SEPARATE),
                          .then = -1,
                          .tokens = 4};
    arf_error_clear(&error);
    assert_int_equal(arf_model_device.launch(stand.space, &launch, &error), ARFUSE_USAGE);
    launch.then = prepared(&stand, ARF_ALLREDUCE, ARF_BT);
    arf_error_clear(&error);
    assert_int_equal(arf_model_device.launch(stand.space, &launch, &error), ARFUSE_OK);
    launch.tokens = 0;
    assert_int_equal(arf_model_device.launch(stand.space, &launch, &error), ARFUSE_OK);
    assert_int_equal(arf_model_device.synchronize(stand.space, NULL, &error), ARFUSE_OK);
    tear_down(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_protocol_has_its_range),
        cmocka_unit_test(test_truth_grows_with_tokens),
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
        cmocka_unit_test(test_wrong_result),
        cmocka_unit_test(test_wrong_tuning_only),
        cmocka_unit_test(test_rank_that_never_arrives),
        cmocka_unit_test(test_launch_that_is_refused),
        cmocka_unit_test(test_plan_that_does_not_compile),
        cmocka_unit_test(test_memory_runs_out),
        cmocka_unit_test(test_slow_rank_and_clock_drop),
        cmocka_unit_test(test_a_mixed_segment_is_the_sum_of_its_calls),
        cmocka_unit_test(test_launch_is_checked),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
