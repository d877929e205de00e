/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls without end: shapes, switches, patterns, protocols, tunings, token counts and data at
 * random on the host device, each result compared with the reference bit for bit. Four ranks that
 * the device takes for processes of their own: nothing joins them between calls.
 *
 * ARFUSE_SOAK_SECONDS: how long (2; 20 in the long run). ARFUSE_TEST_SEED: of everything.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "support/device_case.h"
#include "support/threads_bootstrap.h"

enum { RANKS = 4, TRIALS = 3, CALLS = 200, MOST_VALUES = 1 << 18 };

typedef struct soak {
    uint64_t seed;
    double end;
    atomic_long calls, shapes, by_protocol[ARF_PROTOCOLS];
    atomic_bool failed;
    char message[RANKS][400];
} soak;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t below(uint64_t *state, uint64_t limit)
{
    return case_random(state) % limit;
}

static arf_shape shape_of(uint64_t *state)
{
    static const int hidden[] = {8, 24, 64, 104, 256, 1000, 2880, 4096};
    return (arf_shape){.tp_size = RANKS,
                       .hidden_size = hidden[below(state, sizeof hidden / sizeof *hidden)],
                       .top_k = (int)below(state, 11),
                       .rms_norm = (arf_switch)(below(state, 4) != 0),
                       .residual = (arf_switch)(below(state, 4) != 0),
                       .shared_expert = (arf_switch)below(state, 2)};
}

static arfuse_status one_call(soak *s, arf_space *space, arf_trial *const *trial, int64_t capacity,
                              uint64_t *state, arf_error *error)
{
    const bool has_finalize = space->spec.shape.top_k > 0;
    arf_pattern pattern = has_finalize ? (arf_pattern)below(state, 2) : ARF_ALLREDUCE;
    uint64_t protocols = pattern == ARF_FINALIZE ? ARF_PROTOCOLS : ARF_SEPARATE;
    arf_protocol protocol = (arf_protocol)below(state, protocols);
    int variant = (int)below(state, CASE_VARIANTS);
    /* Small calls meet their neighbours most. */
    uint64_t most = below(state, 2) ? (uint64_t)capacity : capacity < 4 ? (uint64_t)capacity : 4;
    int64_t tokens = (int64_t)below(state, most + 1);
    atomic_fetch_add(&s->by_protocol[protocol], 1);
    return case_call(space, trial[below(state, TRIALS)], pattern, protocol, variant, tokens, error);
}

/* One shape on a space of its own. */
static arfuse_status one_shape(soak *s, arf_device *device, uint64_t *state, arf_error *error)
{
    arf_shape shape = shape_of(state);
    int64_t capacity = 1 + (int64_t)below(state, (uint64_t)(MOST_VALUES / shape.hidden_size));
    capacity = capacity < 300 ? capacity : 300;
    arf_space *space = NULL;
    arf_trial *trial[TRIALS] = {NULL};
    arfuse_status status = case_space(device, &shape, capacity, 60, &space, error);
    for (int i = 0; i < TRIALS && status == ARFUSE_OK; i++)
        status = arf_trial_create(device, &shape, capacity, (arf_trial_kind)(i % 2),
                                  case_random(state), &trial[i], error);
    for (int i = 0; i < CALLS && status == ARFUSE_OK; i++) {
        status = one_call(s, space, trial, capacity, state, error);
        atomic_fetch_add(&s->calls, 1);
    }
    if (status != ARFUSE_OK)
        arf_error_prefix(error, "H %d K %d norm %d residual %d shared %d", shape.hidden_size,
                         shape.top_k, shape.rms_norm, shape.residual, shape.shared_expert);
    for (int i = 0; i < TRIALS; i++)
        arf_trial_destroy(trial[i]);
    if (space)
        device->ops->space_destroy(space);
    return status;
}

static void process(const arfuse_bootstrap *bootstrap, void *context)
{
    soak *s = context;
    arf_team team;
    arf_device *device = NULL;
    arf_error error = ARF_ERROR_INIT;
    uint64_t state = s->seed; /* equal on all ranks */
    arfuse_status status = case_host(bootstrap, 1, &team, &device, &error);
    while (status == ARFUSE_OK) {
        bool more[RANKS], mine = now() < s->end && !atomic_load(&s->failed);
        status = arf_team_allgather(&team, &mine, more, sizeof mine, &error);
        if (status != ARFUSE_OK || !more[0]) /* rank 0's clock is everyone's */
            break;
        status = one_shape(s, device, &state, &error);
        if (bootstrap->rank == 0)
            atomic_fetch_add(&s->shapes, 1);
    }
    if (status != ARFUSE_OK) {
        snprintf(s->message[bootstrap->rank], sizeof s->message[0], "%.390s", error.text);
        atomic_store(&s->failed, true);
    }
    arf_device_close(device);
}

static void bits_hold_for_as_long_as_asked(void **unused)
{
    (void)unused;
    const char *seconds = getenv("ARFUSE_SOAK_SECONDS"), *seed = getenv("ARFUSE_TEST_SEED");
    soak s = {.seed = seed ? strtoull(seed, NULL, 10) : 1};
    double length = seconds ? atof(seconds) : getenv("ARFUSE_TEST_LONG") ? 20 : 2;
    s.end = now() + length;
    threads_bootstrap_run(RANKS, process, &s);
    print_message(
        "# seen: %g s, seed %llu: %ld shapes, %ld calls of a rank (ll %ld, bt %ld, ht %ld, "
        "unfused %ld, separate %ld)\n",
        length, (unsigned long long)s.seed, s.shapes, s.calls, s.by_protocol[ARF_LL],
        s.by_protocol[ARF_BT], s.by_protocol[ARF_HT], s.by_protocol[ARF_UNFUSED],
        s.by_protocol[ARF_SEPARATE]);
    for (int i = 0; i < RANKS; i++)
        if (s.message[i][0] != '\0')
            print_error("# rank %d: %s\n", i, s.message[i]);
    assert_false(s.failed);
    assert_true(s.calls > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_hold_for_as_long_as_asked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
