/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host protocols with every rank a thread, and a seeded decision before every access to shared
 * memory which rank goes on. Ranks are processes of their own as far as the device can tell:
 * nothing joins them between calls, so they drift as far apart as the protocols let them.
 *
 * Two ways of coming between. Turns: one thread runs at a time and hands over at points that the
 * seed chooses, so a seed is one interleaving and a failure repeats. Yields: all run, each stops
 * for a moment at points that the seed chooses; not repeatable, but ThreadSanitizer sees the
 * accesses unordered by anything but the protocols (under turns the handing over would order them).
 *
 * ARFUSE_TEST_SEED=n runs one seed; ARFUSE_TEST_SEEDS=n that many (default 40; 3000 in the long
 * run).
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/host/turn.h"
#include "support/device_case.h"
#include "support/threads_bootstrap.h"

enum { MOST_RANKS = 4, CAPACITY = 7, TRIALS = 3, CALLS = 40 };

#ifdef __SANITIZE_THREAD__
enum { TURNS = 0 };
#else
enum { TURNS = 1 };
#endif

static _Thread_local int me = -1; /* rank, while it takes part */
static _Thread_local uint64_t own_state;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t turn[MOST_RANKS];
    int ranks, here, current;
    bool active[MOST_RANKS];
    unsigned weight[MOST_RANKS]; /* how readily a rank gets the next turn */
    unsigned keep;               /* of 16: how readily the running one keeps it */
    uint64_t state;
    int64_t turns;
} baton = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- who goes on ------------------------------------------------------------------------------
 */

static int choose(bool other)
{
    unsigned sum = 0;
    for (int i = 0; i < baton.ranks; i++)
        sum += baton.active[i] && !(other && i == me) ? baton.weight[i] : 0;
    if (sum == 0)
        return me;
    unsigned at = (unsigned)(case_random(&baton.state) % sum);
    for (int i = 0; i < baton.ranks; i++) {
        unsigned weight = baton.active[i] && !(other && i == me) ? baton.weight[i] : 0;
        if (at < weight)
            return i;
        at -= weight;
    }
    return me;
}

/* With the lock held. */
static void hand_to(int next)
{
    baton.current = next;
    pthread_cond_signal(&baton.turn[next]);
}
static void wait_for_turn(void)
{
    while (baton.current != me)
        pthread_cond_wait(&baton.turn[me], &baton.lock);
}

void arf_host_turn(int polling)
{
    if (me < 0)
        return;
    if (!TURNS) {
        switch (case_random(&own_state) % 16) {
        case 0:
            usleep((useconds_t)(case_random(&own_state) % 50));
            break;
        case 1:
        case 2:
            sched_yield();
            break;
        }
        return;
    }
    /* Only the running rank comes here, so the sequence needs no lock. */
    baton.turns++;
    if (!polling && case_random(&baton.state) % 16 < baton.keep)
        return;
    int next = choose(polling != 0);
    if (next == me)
        return;
    pthread_mutex_lock(&baton.lock);
    hand_to(next);
    wait_for_turn();
    pthread_mutex_unlock(&baton.lock);
}

static void join_in(int rank, uint64_t seed)
{
    own_state = seed * 64 + (uint64_t)rank;
    pthread_mutex_lock(&baton.lock);
    me = rank;
    baton.active[rank] = true;
    if (++baton.here == baton.ranks) /* nobody starts before all are here */
        hand_to(0);
    if (TURNS)
        wait_for_turn();
    pthread_mutex_unlock(&baton.lock);
}

static void leave(void)
{
    pthread_mutex_lock(&baton.lock);
    baton.active[me] = false;
    if (TURNS)
        hand_to(choose(true));
    me = -1;
    pthread_mutex_unlock(&baton.lock);
}

/* ---- one seed ----------------------------------------------------------------------------------
 */

typedef struct run {
    uint64_t seed;
    arf_shape shape;
    char failed[MOST_RANKS][256];
} run;

static arfuse_status call_at_random(arf_space *space, arf_trial *const *trial, uint64_t *state,
                                    arf_error *error)
{
    arf_pattern pattern = (arf_pattern)(case_random(state) % 2);
    uint64_t protocols = pattern == ARF_FINALIZE ? ARF_PROTOCOLS : ARF_SEPARATE;
    arf_protocol protocol = (arf_protocol)(case_random(state) % protocols);
    int variant = (int)(case_random(state) % CASE_VARIANTS);
    int64_t tokens = (int64_t)(case_random(state) % (CAPACITY + 1));
    /* Other data in each call, or one could pass for another. */
    return case_call(space, trial[case_random(state) % TRIALS], pattern, protocol, variant, tokens,
                     error);
}

static arfuse_status calls(arf_device *device, run *r, int rank, arf_error *error)
{
    arf_space *space = NULL;
    arf_trial *trial[TRIALS] = {NULL};
    uint64_t state = r->seed;
    arfuse_status status = case_space(device, &r->shape, CAPACITY, 60, &space, error);
    for (int i = 0; i < TRIALS && status == ARFUSE_OK; i++)
        status = arf_trial_create(device, &r->shape, CAPACITY, ARF_TRIAL_RANDOM, r->seed * 8 + i,
                                  &trial[i], error);
    if (status == ARFUSE_OK) {
        join_in(rank, r->seed);
        for (int i = 0; i < CALLS && status == ARFUSE_OK; i++)
            status = call_at_random(space, trial, &state, error);
        leave();
    }
    for (int i = 0; i < TRIALS; i++)
        arf_trial_destroy(trial[i]);
    if (space)
        device->ops->space_destroy(space);
    return status;
}

static void process(const arfuse_bootstrap *bootstrap, void *context)
{
    run *r = context;
    arf_team team;
    arf_device *device = NULL;
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = case_host(bootstrap, 1, &team, &device, &error);
    if (status == ARFUSE_OK)
        status = calls(device, r, bootstrap->rank, &error);
    if (status != ARFUSE_OK)
        snprintf(r->failed[bootstrap->rank], sizeof r->failed[0], "%.250s", error.text);
    arf_device_close(device);
}

static bool passes(uint64_t seed)
{
    uint64_t state = ~seed;
    run r = {.seed = seed};
    int ranks = 2 + (int)(case_random(&state) % (MOST_RANKS - 1));
    r.shape = (arf_shape){ranks,  8 * (1 + (int)(case_random(&state) % 4)), 2, ARF_ON,
                          ARF_ON, (arf_switch)(case_random(&state) % 2)};
    baton.ranks = ranks;
    baton.here = 0;
    baton.current = -1;
    baton.state = seed;
    baton.keep = (unsigned)(case_random(&state) % 16);
    for (int i = 0; i < ranks; i++) { /* some ranks crawl, some run ahead */
        static const unsigned weights[] = {1, 4, 16, 64};
        baton.weight[i] = weights[case_random(&state) % 4];
    }
    threads_bootstrap_run(ranks, process, &r);
    bool right = true;
    for (int i = 0; i < ranks; i++)
        if (r.failed[i][0] != '\0') {
            right = false;
            print_error("# ARFUSE_TEST_SEED=%llu, %d ranks, H %d: rank %d: %s\n",
                        (unsigned long long)seed, ranks, r.shape.hidden_size, i, r.failed[i]);
        }
    return right;
}

static void bits_hold_however_ranks_interleave(void **state)
{
    (void)state;
    const char *one = getenv("ARFUSE_TEST_SEED"), *many = getenv("ARFUSE_TEST_SEEDS"),
               *longer = getenv("ARFUSE_TEST_LONG");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    uint64_t count = one ? 1 : many ? strtoull(many, NULL, 10) : longer ? 3000 : 40;
    uint64_t failures = 0;
    for (uint64_t seed = first; seed < first + count && failures < 3; seed++)
        failures += !passes(seed);
    print_message("# seen: %llu seeds, %lld turns\n", (unsigned long long)count,
                  (long long)baton.turns);
    assert_int_equal(failures, 0);
}

int main(void)
{
    for (int i = 0; i < MOST_RANKS; i++)
        pthread_cond_init(&baton.turn[i], NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_hold_however_ranks_interleave)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
