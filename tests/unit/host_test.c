/* SPDX-License-Identifier: Apache-2.0 */
/* The host device in one process: local ranks are threads. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/device.h"
#include "device/reference.h"
#include "support/device_case.h"
#include "support/threads_bootstrap.h"

static bool long_run(void)
{
    const char *text = getenv("ARFUSE_TEST_LONG");
    return text && strcmp(text, "1") == 0;
}

static arf_team team; /* outlives the device */

static arf_device *open_host(int local_ranks)
{
    arf_device *device = NULL;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(case_host(NULL, local_ranks, &team, &device, &error), ARFUSE_OK);
    return device;
}

static void passes(arfuse_status status, const arf_error *error)
{
    if (status != ARFUSE_OK)
        fail_msg("%s", error->text);
}

static arf_shape shape_of(int ranks, int hidden, int top_k)
{
    return (arf_shape){ranks, hidden, top_k, ARF_ON, ARF_ON, ARF_ON};
}

/* A device with a space and trial data of so many tokens. */
typedef struct stand {
    arf_device *device;
    arf_shape shape;
    arf_space *space;
    arf_trial *trial;
} stand;

static stand open_stand(int ranks, int hidden, int top_k, int64_t tokens, arf_trial_kind kind,
                        uint64_t seed)
{
    stand s = {.device = open_host(ranks), .shape = shape_of(ranks, hidden, top_k)};
    arf_error error = ARF_ERROR_INIT;
    passes(case_space(s.device, &s.shape, tokens, 30, &s.space, &error), &error);
    passes(arf_trial_create(s.device, &s.shape, tokens, kind, seed, &s.trial, &error), &error);
    return s;
}

static void close_stand(stand *s)
{
    arf_trial_destroy(s->trial);
    s->device->ops->space_destroy(s->space);
    arf_device_close(s->device);
}

static void bits_equal_the_reference(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 4, 6, 8};
    static const int hidden[] = {8, 2880, 6144};
    uint64_t seed = 1;
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        arf_device *device = open_host(ranks[r]);
        for (size_t h = 0; h < sizeof hidden / sizeof *hidden; h++) {
            static const int top_k[] = {1, 3, 10};
            arf_shape shape = shape_of(ranks[r], hidden[h], top_k[(r + h) % 3]);
            /* Every pair of switches meets over the runs. */
            shape.rms_norm = (arf_switch)(case_random(&seed) % 4 != 0);
            shape.residual = (arf_switch)(case_random(&seed) % 3 != 0);
            shape.shared_expert = (arf_switch)(case_random(&seed) % 3 != 0);
            for (int kind = 0; kind < 2; kind++) {
                arf_error error = ARF_ERROR_INIT;
                passes(case_matrix(device, &shape, hidden[h] > 3000 ? 18 : 24, (arf_trial_kind)kind,
                                   seed++, &error),
                       &error);
            }
        }
        arf_device_close(device);
    }
}

static void every_switch_works_on_every_protocol(void **state)
{
    (void)state;
    arf_device *device = open_host(3);
    for (int bits = 0; bits < 8; bits++) {
        arf_shape shape = {3,
                           104,
                           4,
                           (arf_switch)(bits & 1),
                           (arf_switch)(bits >> 1 & 1),
                           (arf_switch)(bits >> 2 & 1)};
        for (int kind = 0; kind < 2; kind++) {
            arf_error error = ARF_ERROR_INIT;
            passes(case_matrix(device, &shape, 19, (arf_trial_kind)kind, (uint64_t)bits, &error),
                   &error);
        }
    }
    arf_device_close(device);
}

static void a_dense_model_has_no_finalize(void **state)
{
    (void)state;
    arf_device *device = open_host(2);
    arf_shape shape = shape_of(2, 64, 0);
    arf_error error = ARF_ERROR_INIT;
    passes(case_matrix(device, &shape, 17, ARF_TRIAL_RANDOM, 3, &error), &error);
    arf_device_close(device);
}

static void powers_of_two_add_up_to_255(void **state)
{
    (void)state;
    stand s = open_stand(8, 6144, 2, 4, ARF_TRIAL_COUNT_RANKS, 0);
    arf_error error = ARF_ERROR_INIT;
    for (int protocol = 0; protocol < ARF_SEPARATE; protocol++) {
        passes(case_call(s.space, s.trial, ARF_ALLREDUCE, (arf_protocol)protocol, 0, 4, &error),
               &error);
        for (int rank = 0; rank < 8; rank++) {
            const arf_bf16 *x = arf_trial_operands(s.trial)[rank].residual_out;
            for (int i = 0; i < 4 * 6144; i++)
                assert_true(arf_bf16_to_float(x[i]) == 255.0f);
        }
    }
    close_stand(&s);
}

static void calls_mix_freely_on_one_space(void **state)
{
    (void)state;
    arf_device *device = open_host(4);
    arf_shape shape = shape_of(4, 256, 3);
    arf_error error = ARF_ERROR_INIT;
    passes(case_mixed(device, &shape, 64, long_run() ? 10000 : 1500, 0, 7, &error), &error);
    arf_device_close(device);
}

/* Without norm and residual, and with each output left out, nothing may wait for a part that does
 * not run. */
static void plain_calls_keep_counters_in_step(void **state)
{
    (void)state;
    for (int bits = 0; bits < 4; bits++) {
        arf_device *device = open_host(3);
        arf_shape shape = {3, 64, 2, (arf_switch)(bits & 1), (arf_switch)(bits >> 1), ARF_OFF};
        arf_error error = ARF_ERROR_INIT;
        passes(case_mixed(device, &shape, 9, 300, 0, (uint64_t)bits, &error), &error);
        arf_device_close(device);
    }
}

/* ---- outputs in place or left out ----------------------------------------------------------- */

static void outputs_may_be_in_place_or_left_out(void **state)
{
    (void)state;
    enum { RANKS = 3, HIDDEN = 72, TOKENS = 11, VALUES = TOKENS * HIDDEN };
    stand s = open_stand(RANKS, HIDDEN, 2, TOKENS, ARF_TRIAL_ADVERSARIAL, 5);
    arf_error error = ARF_ERROR_INIT;
    static arf_bf16 x[VALUES], norm[VALUES], residual[RANKS][VALUES], input[RANKS][VALUES];
    for (int pattern = 0; pattern < 2; pattern++) {
        arf_launch launch = arf_trial_launch(s.trial, (arf_pattern)pattern, TOKENS);
        arf_reference_call call = {
            (arf_pattern)pattern, s.shape,        TOKENS, launch.epsilon, launch.weight_bias,
            launch.routed_scale,  launch.operands};
        assert_true(arf_reference(&call, x, norm, NULL));
        for (int protocol = 0; protocol < (pattern ? ARF_PROTOCOLS : ARF_SEPARATE); protocol++)
            for (int variant = 0; variant < CASE_VARIANTS; variant++) {
                arfuse_operands own[RANKS];
                for (int rank = 0; rank < RANKS; rank++) {
                    own[rank] = launch.operands[rank];
                    memcpy(residual[rank], own[rank].residual, sizeof residual[rank]);
                    memcpy(input[rank], own[rank].input, sizeof input[rank]);
                    own[rank].residual = own[rank].residual_out = residual[rank];
                    own[rank].input = own[rank].norm_out = input[rank];
                    if (variant % 2)
                        own[rank].residual_out = NULL;
                }
                arf_launch in_place = launch;
                in_place.operands = own;
                passes(case_prepare(s.space, (arf_protocol)protocol, variant, &in_place, &error),
                       &error);
                passes(s.device->ops->launch(s.space, &in_place, &error), &error);
                for (int rank = 0; rank < RANKS; rank++) {
                    assert_memory_equal(input[rank], norm, sizeof norm);
                    assert_memory_equal(residual[rank],
                                        variant % 2 ? launch.operands[rank].residual : x, sizeof x);
                }
            }
    }
    close_stand(&s);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void what_cannot_run_is_refused_by_name(void **state)
{
    (void)state;
    arf_device *device = open_host(2);
    arf_shape shape = shape_of(2, 64, 2);
    arf_error error = ARF_ERROR_INIT;
    arf_space_spec spec = {.shape = shape, .capacity = {[ARF_LL] = 4}, .wait_limit_seconds = 5};
    arf_space *space = NULL;
    passes(device->ops->space_create(device, &spec, &space, &error), &error);

    int id = -1, again = -1;
    arf_plan plan = case_plan(ARF_SET_HOST, &shape, ARF_ALLREDUCE, ARF_LL, 0);
    passes(device->ops->prepare(space, ARF_ALLREDUCE, &plan, &id, &error), &error);
    passes(device->ops->prepare(space, ARF_ALLREDUCE, &plan, &again, &error), &error);
    assert_int_equal(id, again);
    plan.transport = ARF_MULTICAST_STORE;
    assert_int_equal(device->ops->prepare(space, ARF_ALLREDUCE, &plan, &again, &error),
                     ARFUSE_NOT_SUPPORTED);
    assert_non_null(strstr(error.text, "unicast only"));
    arf_error_clear(&error);
    plan = case_plan(ARF_SET_HOST, &shape, ARF_ALLREDUCE, ARF_BT, 0);
    assert_int_equal(device->ops->prepare(space, ARF_ALLREDUCE, &plan, &again, &error),
                     ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "bt"));
    arf_error_clear(&error);

    arfuse_operands none[2] = {ARFUSE_OPERANDS_INIT, ARFUSE_OPERANDS_INIT};
    arf_launch launch = {.plan = id, .then = -1, .tokens = 5, .operands = none};
    assert_int_equal(device->ops->launch(space, &launch, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "5 tokens"));
    arf_error_clear(&error);
    launch.plan = 7;
    assert_int_equal(device->ops->launch(space, &launch, &error), ARFUSE_USAGE);
    arf_error_clear(&error);
    device->ops->space_destroy(space);

    spec.shape.tp_size = 3;
    assert_int_equal(device->ops->space_create(device, &spec, &space, &error), ARFUSE_USAGE);
    arf_error_clear(&error);
    spec.shape = shape;
    spec.shape.hidden_size = 60;
    assert_int_equal(device->ops->space_create(device, &spec, &space, &error), ARFUSE_USAGE);
    arf_error_clear(&error);
    spec.shape = shape;
    spec.wait_limit_seconds = -1;
    assert_int_equal(device->ops->space_create(device, &spec, &space, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "wait limit"));
    arf_error_clear(&error);
    spec.wait_limit_seconds = 5;
    spec.capacity[ARF_LL] = ARF_MAX_TOKENS;
    spec.shape.hidden_size = 65536; /* 768 GiB a rank: said, not died of */
    assert_int_equal(device->ops->space_create(device, &spec, &space, &error), ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "shared memory"));
    arf_error_clear(&error);
    assert_int_equal(device->ops->space_fits(device, &spec, &error), ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "shared memory"));
    arf_error_clear(&error);
    spec.capacity[ARF_LL] = 0;
    spec.capacity[ARF_SEPARATE] = ARF_MAX_TOKENS; /* no mailbox, 128 GiB of scratch */
    assert_int_equal(device->ops->space_fits(device, &spec, &error), ARFUSE_FAILURE);
    arf_error_clear(&error);
    spec.capacity[ARF_SEPARATE] = 4;
    passes(device->ops->space_fits(device, &spec, &error), &error);
    arf_device_close(device);

    arf_device_options options = {.spec = "nope"};
    arf_error_clear(&error);
    assert_int_equal(arf_device_open(&options, &team, &device, &error), ARFUSE_USAGE);
    assert_string_equal(error.text, "device \"nope\": expected auto, cuda, host, model:default or "
                                    "model:FILE");
}

static void the_device_says_what_it_is(void **state)
{
    (void)state;
    arf_device *device = open_host(1);
    arf_device_key key;
    device->ops->describe(device, &key);
    assert_string_equal(key.name, "host");
    assert_int_equal(key.link, ARF_LINK_SHM);
    assert_int_equal(key.sm_count, 0);
    arf_device_evidence evidence = {.driver = ""};
    device->ops->evidence(device, &evidence);
    assert_non_null(strstr(evidence.driver, "Linux"));
    assert_int_equal(strlen(evidence.source_digest), 16);
    assert_string_equal(evidence.library, "");
    assert_int_equal(arf_device_set(device), ARF_SET_HOST);
    double first = device->ops->now(device);
    assert_true(device->ops->now(device) >= first);
    arf_device_close(device);
}

/* ---- timing --------------------------------------------------------------------------------- */

static void calls_are_timed_under_both_policies(void **state)
{
    (void)state;
    stand s = open_stand(2, 512, 2, 8, ARF_TRIAL_RANDOM, 1);
    arf_error error = ARF_ERROR_INIT;
    for (int policy = 0; policy < ARF_POLICIES; policy++)
        for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
            arf_launch launch = arf_trial_launch(s.trial, (arf_pattern)pattern, 8);
            passes(case_prepare(s.space, ARF_BT, 0, &launch, &error), &error);
            arf_timing timing = {.calls = policy == ARF_WARM ? 50 : 2,
                                 .policy = (arf_policy)policy};
            double us[2] = {-1, -1};
            passes(s.device->ops->time(s.space, &launch, &timing, us, &error), &error);
            assert_true(us[0] > 0 && us[0] < 1e7);
            assert_true(us[1] > 0 && us[1] < 1e7);
            passes(arf_trial_check(s.trial, (arf_pattern)pattern, 8, &error), &error);
        }
    close_stand(&s);
}

/* Calls of both sizes and protocols in one timing: all of them ran, with the bits of their own. */
static void a_mixed_segment_is_timed(void **state)
{
    (void)state;
    stand s = open_stand(2, 512, 2, 8, ARF_TRIAL_RANDOM, 1);
    arf_error error = ARF_ERROR_INIT;
    for (int policy = 0; policy < ARF_POLICIES; policy++) {
        arf_launch launch[2] = {arf_trial_launch(s.trial, ARF_FINALIZE, 8),
                                arf_trial_launch(s.trial, ARF_FINALIZE, 1)};
        passes(case_prepare(s.space, ARF_BT, 0, &launch[0], &error), &error);
        passes(case_prepare(s.space, ARF_LL, 0, &launch[1], &error), &error);
        const arf_timing timing = {.calls = 3, .policy = (arf_policy)policy, .launches = 2};
        double us[2] = {-1, -1};
        passes(arf_trial_poison(s.trial, &error), &error);
        passes(s.device->ops->time(s.space, launch, &timing, us, &error), &error);
        assert_true(us[0] > 0 && us[0] < 1e7 && us[1] > 0 && us[1] < 1e7);
        /* Only the calls of 8 tokens write the rows behind the first. */
        passes(arf_trial_check(s.trial, ARF_FINALIZE, 8, &error), &error);
        launch[1].tokens = 9;
        assert_int_equal(s.device->ops->time(s.space, launch, &timing, us, &error), ARFUSE_USAGE);
        arf_error_clear(&error);
    }
    close_stand(&s);
}

/* A rank that comes late to a timing is waited for before the clock starts. */
typedef struct late_case {
    arfuse_status status[2];
    arf_error error[2];
    double us[2];
} late_case;

static void come_late_to_a_timing(const arfuse_bootstrap *bootstrap, void *context)
{
    late_case *c = context;
    const int rank = bootstrap->rank;
    arf_error *error = &c->error[rank];
    arf_team pair;
    arf_device *device = NULL;
    arf_space *space = NULL;
    arf_trial *trial = NULL;
    arf_shape shape = shape_of(2, 512, 2);
    arfuse_status status = case_host(bootstrap, 1, &pair, &device, error);
    if (status == ARFUSE_OK)
        status = case_space(device, &shape, 8, 30, &space, error);
    if (status == ARFUSE_OK)
        status = arf_trial_create(device, &shape, 8, ARF_TRIAL_RANDOM, 1, &trial, error);
    if (status == ARFUSE_OK) {
        arf_launch launch = arf_trial_launch(trial, ARF_ALLREDUCE, 1);
        arf_timing timing = {.calls = 1, .policy = ARF_WARM};
        status = case_prepare(space, ARF_LL, 0, &launch, error);
        if (rank == 1)
            usleep(600000);
        if (status == ARFUSE_OK)
            status = device->ops->time(space, &launch, &timing, &c->us[rank], error);
    }
    c->status[rank] = status;
    bootstrap->barrier(bootstrap->context);
    arf_trial_destroy(trial);
    if (space)
        device->ops->space_destroy(space);
    arf_device_close(device);
}

static void who_comes_late_is_in_no_time(void **state)
{
    (void)state;
    late_case c = {{ARFUSE_OK, ARFUSE_OK}, {ARF_ERROR_INIT, ARF_ERROR_INIT}, {-1, -1}};
    threads_bootstrap_run(2, come_late_to_a_timing, &c);
    for (int rank = 0; rank < 2; rank++) {
        passes(c.status[rank], &c.error[rank]);
        assert_true(c.us[rank] > 0 && c.us[rank] < 300000);
    }
}

/* ---- nothing is left behind ----------------------------------------------------------------- */

static int count_entries(const char *folder)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    int count = 0;
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

static int count_mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    char line[512];
    int count = 0;
    while (fgets(line, sizeof line, file))
        count += strstr(line, "arfuse-rank") != NULL;
    fclose(file);
    return count;
}

static void nothing_is_left_behind(void **state)
{
    (void)state;
    int descriptors = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    for (int i = 0; i < 20; i++) {
        arf_device *device = open_host(4);
        arf_shape shape = shape_of(4, 64, 2);
        arf_space *space = NULL;
        arf_error error = ARF_ERROR_INIT;
        passes(case_space(device, &shape, 8, 30, &space, &error), &error);
        assert_int_equal(count_entries("/proc/self/fd"), descriptors); /* not even while it lives */
        assert_int_equal(count_mappings(), 4);
        device->ops->space_destroy(space);
        arf_device_close(device);
    }
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
    assert_int_equal(count_entries("/proc/self/task"), threads);
    assert_int_equal(count_mappings(), 0);
}

/* Sets a limit lower, tries to make a space, sets it back. */
static arfuse_status create_under(int what, rlim_t limit, arf_error *error)
{
    struct rlimit before, low;
    arf_device *device = open_host(4);
    arf_shape shape = shape_of(4, 4096, 2);
    arf_space *space = NULL;
    assert_int_equal(getrlimit((__rlimit_resource_t)what, &before), 0);
    low = before;
    low.rlim_cur = limit;
    assert_int_equal(setrlimit((__rlimit_resource_t)what, &low), 0);
    arfuse_status status = case_space(device, &shape, 256, 30, &space, error);
    assert_int_equal(setrlimit((__rlimit_resource_t)what, &before), 0);
    if (status == ARFUSE_OK)
        device->ops->space_destroy(space);
    arf_device_close(device);
    return status;
}

static void a_failed_creation_leaves_nothing_behind(void **state)
{
    (void)state;
    int descriptors = count_entries("/proc/self/fd") - 3; /* less ., .. and the folder's own */
    arf_error error = ARF_ERROR_INIT;
    /* At the first region, between two, while passing them on. */
    for (int more = 0; more < 8; more++) {
        arf_error_clear(&error);
        arfuse_status status = create_under(RLIMIT_NOFILE, (rlim_t)(descriptors + more), &error);
        if (more < 4)
            assert_int_equal(status, ARFUSE_FAILURE);
        assert_int_equal(count_entries("/proc/self/fd") - 3, descriptors);
        assert_int_equal(count_mappings(), 0);
    }
    assert_non_null(strstr(error.text, "Too many open files"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they map terabytes */
    /* Room for the program as it is, and for one region of 75 MiB or so but not for four. */
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_int_equal(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    arf_error_clear(&error);
    rlim_t now = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(create_under(RLIMIT_AS, now + ((rlim_t)150 << 20), &error), ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "mapping"));
    assert_int_equal(count_entries("/proc/self/fd") - 3, descriptors);
    assert_int_equal(count_mappings(), 0);
#endif
    arf_error_clear(&error);
    passes(create_under(RLIMIT_NOFILE, (rlim_t)descriptors + 64, &error), &error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_says_what_it_is),
        cmocka_unit_test(bits_equal_the_reference),
        cmocka_unit_test(every_switch_works_on_every_protocol),
        cmocka_unit_test(a_dense_model_has_no_finalize),
        cmocka_unit_test(powers_of_two_add_up_to_255),
        cmocka_unit_test(calls_mix_freely_on_one_space),
        cmocka_unit_test(plain_calls_keep_counters_in_step),
        cmocka_unit_test(outputs_may_be_in_place_or_left_out),
        cmocka_unit_test(what_cannot_run_is_refused_by_name),
        cmocka_unit_test(calls_are_timed_under_both_policies),
        cmocka_unit_test(a_mixed_segment_is_timed),
        cmocka_unit_test(who_comes_late_is_in_no_time),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(a_failed_creation_leaves_nothing_behind),
    };
    return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
