/* SPDX-License-Identifier: Apache-2.0 */
/* A host team that loses a rank: nobody hangs, nothing wrong looks right, the rank is named. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/device.h"
#include "device/host/wait.h"
#include "device/reference.h"
#include "support/device_case.h"
#include "support/processes_bootstrap.h"
#include "support/threads_bootstrap.h"

enum { HIDDEN = 128, TOKENS = 7 };

static bool long_run(void)
{
    const char *text = getenv("ARFUSE_TEST_LONG");
    return text && strcmp(text, "1") == 0;
}

static bool all_nan(const arf_bf16 *row, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (row[i] != ARF_BF16_NAN)
            return false;
    return true;
}

/* ---- a rank that never comes ----------------------------------------------------------------- */

typedef struct absence {
    arf_protocol protocol;
    arf_pattern pattern;
    int variant;
    double limit;
    /* What each rank saw; a thread of a bootstrap must not assert. */
    struct seen {
        char step[32]; /* the first that went wrong */
        arf_error error;
        arfuse_status launched, again, state;
        arfuse_culprit culprit;
        double waited, waited_again;
        bool nan, nan_again;
    } seen[3];
} absence;

/* Only the caller's rank, 1, stays away from the second call. */
static void stay_away(const arfuse_bootstrap *bootstrap, void *context)
{
    absence *a = context;
    struct seen *s = &a->seen[bootstrap->rank];
    arf_team team;
    arf_device *device = NULL;
    arf_space *space = NULL;
    arf_trial *trial = NULL;
    arf_shape shape = {3, HIDDEN, 2, ARF_ON, ARF_ON, ARF_ON};
#define STEP(expression)                                             \
    do {                                                             \
        if ((expression) != ARFUSE_OK && s->step[0] == '\0')         \
            snprintf(s->step, sizeof s->step, "%.31s", #expression); \
    } while (0)
    STEP(case_host(bootstrap, 1, &team, &device, &s->error));
    STEP(case_space(device, &shape, TOKENS, a->limit, &space, &s->error));
    STEP(arf_trial_create(device, &shape, TOKENS, ARF_TRIAL_RANDOM, 1, &trial, &s->error));
    STEP(case_call(space, trial, a->pattern, a->protocol, a->variant, TOKENS, &s->error));

    arf_launch launch = arf_trial_launch(trial, a->pattern, TOKENS);
    STEP(case_prepare(space, a->protocol, a->variant, &launch, &s->error));
    const arf_bf16 *x = launch.operands->residual_out, *norm = launch.operands->norm_out;
    double start = device->ops->now(device);
    if (bootstrap->rank != 1)
        s->launched = device->ops->launch(space, &launch, &s->error);
    s->waited = device->ops->now(device) - start;
    s->nan = all_nan(x, TOKENS * HIDDEN) && all_nan(norm, TOKENS * HIDDEN);

    bootstrap->barrier(bootstrap->context);
    STEP(arf_trial_poison(trial, NULL));
    start = device->ops->now(device);
    s->again = device->ops->launch(space, &launch, NULL);
    s->waited_again = device->ops->now(device) - start;
    s->nan_again = all_nan(x, TOKENS * HIDDEN) && all_nan(norm, TOKENS * HIDDEN);
    s->state = device->ops->state(space, &s->culprit);

    /* Recovery: destroy and create. */
    device->ops->space_destroy(space);
    STEP(case_space(device, &shape, TOKENS, 20, &space, NULL));
    STEP(case_call(space, trial, a->pattern, a->protocol, a->variant, TOKENS, NULL));
    arf_trial_destroy(trial);
    device->ops->space_destroy(space);
    arf_device_close(device);
}

static void a_rank_that_never_comes_is_named(void **state)
{
    (void)state;
    static const arf_host_stage stage[] = {
        [ARF_LL] = ARF_HOST_LL_CONTRIBUTION,       [ARF_BT] = ARF_HOST_BT_CONTRIBUTION,
        [ARF_HT] = ARF_HOST_HT_CONTRIBUTION,       [ARF_UNFUSED] = ARF_HOST_UNFUSED_CONTRIBUTION,
        [ARF_SEPARATE] = ARF_HOST_LL_CONTRIBUTION,
    };
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++) {
        absence a = {.protocol = (arf_protocol)protocol, .pattern = ARF_FINALIZE, .limit = 1};
        threads_bootstrap_run(3, stay_away, &a);
        for (int rank = 0; rank < 3; rank++) {
            const struct seen *s = &a.seen[rank];
            if (s->step[0])
                fail_msg("%s, rank %d: %s: %s", arf_protocol_name((arf_protocol)protocol), rank,
                         s->step, s->error.text);
            if (rank != 1) {
                assert_int_equal(s->launched, ARFUSE_TIMEOUT);
                assert_true(s->waited >= 0.99 && s->waited < 5);
                assert_true(s->nan);
                assert_non_null(strstr(s->error.text, "rank 1 did not arrive within 1 s"));
            }
            assert_int_equal(s->again, ARFUSE_TIMEOUT); /* rank 1, too */
            assert_true(s->waited_again < 0.2);
            assert_true(s->nan_again);
            assert_int_equal(s->state, ARFUSE_TIMEOUT);
            assert_int_equal(s->culprit.rank, 1);
            assert_int_equal(s->culprit.stage, stage[protocol]);
            assert_in_range(s->culprit.token, 0, 2); /* whichever owner gave up first */
            assert_int_equal(s->culprit.token, a.seen[0].culprit.token);
            assert_int_equal(s->culprit.epoch, 1);
        }
    }
}

/* The owner of the first tokens arrives late, within the limit but long after the others: a wait
 * for it must not have blamed it. */
static void come_late(const arfuse_bootstrap *bootstrap, void *context)
{
    absence *a = context;
    struct seen *s = &a->seen[bootstrap->rank];
    arf_team team;
    arf_device *device = NULL;
    arf_space *space = NULL;
    arf_trial *trial = NULL;
    arf_shape shape = {3, HIDDEN, 2, ARF_ON, ARF_ON, ARF_ON};
    STEP(case_host(bootstrap, 1, &team, &device, &s->error));
    STEP(case_space(device, &shape, TOKENS, a->limit, &space, &s->error));
    STEP(arf_trial_create(device, &shape, TOKENS, ARF_TRIAL_RANDOM, 1, &trial, &s->error));
    for (int call = 0; call < 3; call++) {
        if (bootstrap->rank == call)
            usleep(60000);
        STEP(case_call(space, trial, a->pattern, a->protocol, a->variant, TOKENS, &s->error));
    }
    arf_trial_destroy(trial);
    device->ops->space_destroy(space);
    arf_device_close(device);
}

static void a_late_rank_is_waited_for(void **state)
{
    (void)state;
    for (int protocol = 0; protocol < ARF_SEPARATE; protocol++)
        for (int unlimited = 0; unlimited < 2; unlimited++) {
            absence a = {.protocol = (arf_protocol)protocol, .limit = unlimited ? 0 : 20};
            threads_bootstrap_run(3, come_late, &a);
            for (int rank = 0; rank < 3; rank++)
                if (a.seen[rank].step[0])
                    fail_msg("rank %d: %s: %s", rank, a.seen[rank].step, a.seen[rank].error.text);
        }
}

/* ---- ranks that want different things -------------------------------------------------------- */

static void want_more(const arfuse_bootstrap *bootstrap, void *context)
{
    absence *a = context;
    struct seen *s = &a->seen[bootstrap->rank];
    arf_team team;
    arf_device *device = NULL;
    arf_space *space = NULL;
    arf_shape shape = {3, HIDDEN, 2, ARF_ON, ARF_ON, ARF_ON};
    STEP(case_host(bootstrap, 1, &team, &device, &s->error));
    s->launched = case_space(device, &shape, bootstrap->rank == 2 ? 8 : 7, 5, &space, &s->error);
    s->nan = space == NULL;
    arf_device_close(device);
}

static void a_disagreement_is_refused_by_all(void **state)
{
    (void)state;
    absence a = {.limit = 5};
    threads_bootstrap_run(3, want_more, &a);
    for (int rank = 0; rank < 3; rank++) {
        assert_string_equal(a.seen[rank].step, "");
        assert_int_equal(a.seen[rank].launched, ARFUSE_DISAGREE);
        assert_true(a.seen[rank].nan);
        assert_non_null(strstr(a.seen[rank].error.text, "shape and capacity: the ranks disagree"));
        assert_non_null(strstr(a.seen[rank].error.text, "on rank 2"));
    }
}

/* ---- kill -9 --------------------------------------------------------------------------------- */

typedef struct killing {
    _Atomic int64_t calls[4]; /* how far each has come */
    char words[4][256];       /* what was wrong */
} killing;

enum { KILLED_TIMEOUT = 6, KILLED_WRONG = 1 };

/* Calls until one fails; then every row must hold either its bits or NaN alone. */
static int call_until_failure(const arfuse_bootstrap *bootstrap, void *context)
{
    killing *k = context;
    const int rank = bootstrap->rank;
    char *words = k->words[rank];
    arf_error error = ARF_ERROR_INIT;
    arf_team team;
    arf_device *device = NULL;
    arf_space *space = NULL;
    arf_trial *trial = NULL;
    arf_shape shape = {4, HIDDEN, 2, ARF_ON, ARF_ON, ARF_ON};
    static arf_bf16 x[2][TOKENS * HIDDEN], norm[2][TOKENS * HIDDEN];
    if (case_host(bootstrap, 1, &team, &device, &error) != ARFUSE_OK ||
        case_space(device, &shape, TOKENS, 1, &space, &error) != ARFUSE_OK ||
        arf_trial_create(device, &shape, TOKENS, ARF_TRIAL_RANDOM, 3, &trial, &error)) {
        snprintf(words, sizeof k->words[0], "%.250s", error.text);
        return KILLED_WRONG;
    }
    /* Every rank's operands are needed for what should come out: a team of one makes them. */
    arf_team whole;
    arf_device *all = NULL;
    arf_trial *everyone = NULL;
    if (case_host(NULL, 4, &whole, &all, &error) ||
        arf_trial_create(all, &shape, TOKENS, ARF_TRIAL_RANDOM, 3, &everyone, &error))
        return KILLED_WRONG;
    for (int pattern = 0; pattern < 2; pattern++) {
        arf_launch launch = arf_trial_launch(everyone, (arf_pattern)pattern, TOKENS);
        arf_reference_call call = {
            (arf_pattern)pattern, shape,          TOKENS, launch.epsilon, launch.weight_bias,
            launch.routed_scale,  launch.operands};
        if (!arf_reference(&call, x[pattern], norm[pattern], NULL))
            return KILLED_WRONG;
    }

    uint64_t seed = 11;
    for (;;) {
        int pattern = (int)(case_random(&seed) % 2);
        arf_protocol protocol = (arf_protocol)(case_random(&seed) % ARF_SEPARATE);
        arf_launch launch = arf_trial_launch(trial, (arf_pattern)pattern, TOKENS);
        if (case_prepare(space, protocol, (int)(case_random(&seed) % CASE_VARIANTS), &launch,
                         &error) != ARFUSE_OK)
            return KILLED_WRONG;
        arf_trial_poison(trial, NULL);
        arfuse_status status = device->ops->launch(space, &launch, &error);
        for (int token = 0; token < TOKENS; token++) {
            const int64_t at = token * HIDDEN;
            const size_t bytes = HIDDEN * sizeof(arf_bf16);
            const arf_bf16 *got_x = launch.operands->residual_out;
            const arf_bf16 *got_norm = launch.operands->norm_out;
            bool right = memcmp(got_x + at, x[pattern] + at, bytes) == 0 &&
                         memcmp(got_norm + at, norm[pattern] + at, bytes) == 0;
            bool nan = all_nan(got_x + at, HIDDEN) && all_nan(got_norm + at, HIDDEN);
            if (!right && (!nan || status == ARFUSE_OK)) {
                snprintf(words, sizeof k->words[0],
                         "call %lld, %s, token %d: neither right nor NaN",
                         (long long)k->calls[rank], arf_protocol_name(protocol), token);
                return KILLED_WRONG;
            }
        }
        if (status == ARFUSE_TIMEOUT) {
            snprintf(words, sizeof k->words[0], "%.250s", error.text);
            return KILLED_TIMEOUT;
        }
        if (status != ARFUSE_OK)
            return KILLED_WRONG;
        k->calls[rank]++;
    }
}

static void a_killed_rank_ends_the_others_by_name(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < (long_run() ? 20 : 4); round++) {
        killing *k = processes_share(sizeof *k);
        processes all;
        processes_start(&all, 4, call_until_failure, k);
        const int victim = (int)(case_random(&seed) % 4);
        while (k->calls[victim] < 20 && k->words[victim][0] == '\0')
            usleep(1000);
        usleep((unsigned)(case_random(&seed) % 30000));
        kill(all.pid[victim], SIGKILL);
        int status[4] = {0};
        processes_wait(&all, status, 20);
        char name[32];
        snprintf(name, sizeof name, "rank %d did not arrive", victim);
        for (int rank = 0; rank < 4; rank++) {
            if (rank == victim) {
                assert_true(WIFSIGNALED(status[rank]) && WTERMSIG(status[rank]) == SIGKILL);
                continue;
            }
            if (!WIFEXITED(status[rank]) || WEXITSTATUS(status[rank]) != KILLED_TIMEOUT)
                fail_msg("rank %d of round %d: wait status %#x: %s", rank, round, status[rank],
                         k->words[rank]);
            if (strstr(k->words[rank], name) == NULL)
                fail_msg("rank %d of round %d: expected \"%s\": %s", rank, round, name,
                         k->words[rank]);
        }
        processes_unshare(k, sizeof *k);
    }
}

/* A rank that stops for less than the limit costs time and nothing else. */
static int call_many_times(const arfuse_bootstrap *bootstrap, void *context)
{
    killing *k = context;
    arf_error error = ARF_ERROR_INIT;
    arf_team team;
    arf_device *device = NULL;
    arf_space *space = NULL;
    arf_trial *trial = NULL;
    arf_shape shape = {3, HIDDEN, 2, ARF_ON, ARF_ON, ARF_ON};
    arfuse_status status = case_host(bootstrap, 1, &team, &device, &error);
    if (status == ARFUSE_OK)
        status = case_space(device, &shape, TOKENS, 20, &space, &error);
    if (status == ARFUSE_OK)
        status = arf_trial_create(device, &shape, TOKENS, ARF_TRIAL_RANDOM, 3, &trial, &error);
    for (int call = 0; call < 3000 && status == ARFUSE_OK; call++) {
        status = case_call(space, trial, ARF_FINALIZE, (arf_protocol)(call % ARF_PROTOCOLS),
                           call % CASE_VARIANTS, TOKENS, &error);
        k->calls[bootstrap->rank]++;
    }
    snprintf(k->words[bootstrap->rank], sizeof k->words[0], "%.250s", error.text);
    return (int)status;
}

static void a_stopped_rank_is_waited_for(void **state)
{
    (void)state;
    killing *k = processes_share(sizeof *k);
    processes all;
    processes_start(&all, 3, call_many_times, k);
    while (k->calls[1] < 100 && k->words[1][0] == '\0')
        usleep(1000);
    pid_t stopped = all.pid[1];
    kill(stopped, SIGSTOP);
    usleep(500000);
    kill(stopped, SIGCONT);
    int status[3] = {0};
    processes_wait(&all, status, 60);
    for (int rank = 0; rank < 3; rank++)
        if (status[rank] != 0)
            fail_msg("rank %d: wait status %#x: %s", rank, status[rank], k->words[rank]);
    processes_unshare(k, sizeof *k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_never_comes_is_named),
        cmocka_unit_test(a_late_rank_is_waited_for),
        cmocka_unit_test(a_disagreement_is_refused_by_all),
        cmocka_unit_test(a_killed_rank_ends_the_others_by_name),
        cmocka_unit_test(a_stopped_rank_is_waited_for),
    };
    return cmocka_run_group_tests_name("host_failure", tests, NULL, NULL);
}
