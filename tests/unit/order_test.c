/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces side by side: who breaks the ordering rule is named, on every rank, without a wait for
 * the limit; who keeps it never hears of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "device/host/host.h"
#include "support/processes_bootstrap.h"
#include "support/runtime_case.h"
#include "support/threads_bootstrap.h"

enum { RANKS = 2, HIDDEN = 64, CAPACITY = 8 };
static const arf_shape shape = {RANKS, HIDDEN, 0, ARF_ON, ARF_ON, ARF_ON};

typedef struct outcome {
    arfuse_status status;
    char text[1024];
} outcome;

static arfuse_status open_one(const arfuse_bootstrap *bootstrap, const char *label, int check_order,
                              arfuse_workspace **workspace, arf_error *error)
{
    arfuse_options options = case_options(&shape, CAPACITY);
    options.local_ranks = 1;
    options.routes[0] = ARFUSE_ROUTES_DEFAULT;
    options.label = label;
    options.check_order = check_order;
    options.wait_limit_seconds = check_order ? 300 : 1;
    return arfuse_workspace_create(bootstrap, &options, workspace, error);
}

/* ---- different orders ------------------------------------------------------------------------ */

typedef struct crossing {
    int check_order, swap; /* rank 1 calls the second one first */
    outcome first[RANKS], second[RANKS];
    double seconds[RANKS];
    bool poisoned[RANKS], stays_failed[RANKS];
    outcome setup[RANKS];
} crossing;

static void call_one(arfuse_workspace *workspace, arf_trial *trial, int64_t tokens, outcome *out)
{
    arf_error error = ARF_ERROR_INIT;
    out->status = case_run(workspace, trial, ARFUSE_ALLREDUCE, case_call_of(trial, tokens), &error);
    memcpy(out->text, error.text, sizeof out->text);
}

static void cross(const arfuse_bootstrap *bootstrap, void *context)
{
    crossing *c = context;
    const int rank = bootstrap->rank;
    arf_error error = ARF_ERROR_INIT;
    arfuse_workspace *workspace[2] = {NULL, NULL};
    arf_trial *trial = NULL;
    arfuse_status status = open_one(bootstrap, "target", c->check_order, &workspace[0], &error);
    if (status == ARFUSE_OK)
        status = open_one(bootstrap, "draft", c->check_order, &workspace[1], &error);
    if (status == ARFUSE_OK)
        status = arf_trial_create(workspace[0]->device, &shape, CAPACITY, ARF_TRIAL_RANDOM, 3,
                                  &trial, &error);
    c->setup[rank].status = status;
    memcpy(c->setup[rank].text, error.text, sizeof error.text);
    if (status != ARFUSE_OK)
        return;
    /* In order first, so that the places of the sequence are not the numbers of the calls. */
    outcome fine;
    for (int i = 0; i < 3; i++) {
        call_one(workspace[i % 2], trial, 3, &fine);
        if (fine.status != ARFUSE_OK)
            c->setup[rank] = fine;
    }
    const double start = arf_host_device.now(workspace[0]->device);
    const int swapped = rank == 1 && c->swap;
    call_one(workspace[swapped], trial, 3, &c->first[rank]);
    c->poisoned[rank] = ((uint16_t *)arf_trial_operands(trial)[0].norm_out)[0] == 0x7fff;
    call_one(workspace[!swapped], trial, 3, &c->second[rank]);
    c->seconds[rank] = arf_host_device.now(workspace[0]->device) - start;
    c->stays_failed[rank] = arfuse_workspace_status(workspace[0], NULL) != ARFUSE_OK &&
                            arfuse_workspace_status(workspace[1], NULL) != ARFUSE_OK;
    arf_trial_destroy(trial);
    arfuse_workspace_destroy(&workspace[0], NULL);
    arfuse_workspace_destroy(&workspace[1], NULL);
}

static void ranks_in_different_orders_are_named(void **state)
{
    (void)state;
    crossing c = {.check_order = 1, .swap = 1};
    threads_bootstrap_run(RANKS, cross, &c);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(c.setup[rank].status, ARFUSE_OK);
        assert_int_equal(c.first[rank].status, ARFUSE_DISAGREE);
        assert_int_equal(c.second[rank].status, ARFUSE_DISAGREE);
        assert_string_equal(c.first[rank].text, c.first[0].text);
        assert_true(c.stays_failed[rank]);
        assert_true(c.seconds[rank] < 60); /* of a limit of 300 */
        assert_true(c.poisoned[rank]);     /* nothing looks reduced */
    }
    /* Who comes later sees it. */
    assert_true(strstr(c.first[0].text, "rank 0 calls workspace 1 (target) and rank 1 workspace 2 "
                                        "(draft)") != NULL ||
                strstr(c.first[0].text, "rank 1 calls workspace 2 (draft) and rank 0 workspace 1 "
                                        "(target)") != NULL);
}

static void without_the_check_it_is_a_time_out(void **state)
{
    (void)state;
    crossing c = {.check_order = 0, .swap = 1};
    threads_bootstrap_run(RANKS, cross, &c);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(c.setup[rank].status, ARFUSE_OK);
    assert_true(c.first[0].status == ARFUSE_TIMEOUT || c.first[1].status == ARFUSE_TIMEOUT);
    assert_null(strstr(c.first[0].text, "draft"));
}

static void the_same_order_is_fine(void **state)
{
    (void)state;
    crossing c = {.check_order = 1, .swap = 0};
    threads_bootstrap_run(RANKS, cross, &c);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(c.setup[rank].status, ARFUSE_OK);
        assert_int_equal(c.first[rank].status, ARFUSE_OK);
        assert_int_equal(c.second[rank].status, ARFUSE_OK);
        assert_false(c.stays_failed[rank]);
    }
}

/* Between processes the pages travel as descriptors. */
static int cross_between_processes(const arfuse_bootstrap *bootstrap, void *context)
{
    crossing *c = context; /* shared memory */
    cross(bootstrap, c);
    return 0;
}

static void processes_are_watched_like_threads(void **state)
{
    (void)state;
    for (int swap = 0; swap < 2; swap++) {
        crossing *c = processes_share(sizeof *c);
        c->check_order = 1;
        c->swap = swap;
        processes all;
        int status[RANKS];
        processes_start(&all, RANKS, cross_between_processes, c);
        processes_wait(&all, status, 60);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(status[rank], 0);
            assert_int_equal(c->setup[rank].status, ARFUSE_OK);
            assert_int_equal(c->first[rank].status, swap ? ARFUSE_DISAGREE : ARFUSE_OK);
        }
        processes_unshare(c, sizeof *c);
    }
}

/* ---- at one time ----------------------------------------------------------------------------- */

typedef struct meeting {
    pthread_barrier_t barrier;
    outcome waiting, intruder, peer, setup[RANKS];
} meeting;

typedef struct caller {
    arfuse_workspace *workspace;
    arf_trial *trial;
    outcome *out;
} caller;

static void *call_on_a_thread(void *context)
{
    const caller *c = context;
    call_one(c->workspace, c->trial, 2, c->out);
    return NULL;
}

static bool waits(const arfuse_workspace *workspace)
{
    const arf_host_space *space = (const arf_host_space *)workspace->space;
    return atomic_load(&space->local[0].control->waiting.word) != 0;
}

static void overlap(const arfuse_bootstrap *bootstrap, void *context)
{
    meeting *m = context;
    const int rank = bootstrap->rank;
    arf_error error = ARF_ERROR_INIT;
    arfuse_workspace *a = NULL, *b = NULL;
    arf_trial *trial[2] = {NULL, NULL};
    arfuse_status status = open_one(bootstrap, "target", 1, &a, &error);
    if (status == ARFUSE_OK)
        status = open_one(bootstrap, "draft", 1, &b, &error);
    for (int i = 0; i < 2 && status == ARFUSE_OK; i++)
        status =
            arf_trial_create(a->device, &shape, CAPACITY, ARF_TRIAL_RANDOM, 3, &trial[i], &error);
    m->setup[rank].status = status;
    if (status != ARFUSE_OK)
        return;
    if (rank == 0) {
        pthread_t thread;
        caller c = {a, trial[0], &m->waiting};
        pthread_create(&thread, NULL, call_on_a_thread, &c);
        while (!waits(a)) /* until it is in its call, where it waits for rank 1 */
            usleep(1000);
        call_one(b, trial[1], 2, &m->intruder);
        pthread_join(thread, NULL);
        pthread_barrier_wait(&m->barrier);
    } else {
        pthread_barrier_wait(&m->barrier);
        call_one(a, trial[0], 2, &m->peer);
    }
    for (int i = 0; i < 2; i++)
        arf_trial_destroy(trial[i]);
    arfuse_workspace_destroy(&a, NULL);
    arfuse_workspace_destroy(&b, NULL);
}

static void calls_at_one_time_are_named(void **state)
{
    (void)state;
    meeting m = {0};
    pthread_barrier_init(&m.barrier, NULL, RANKS);
    threads_bootstrap_run(RANKS, overlap, &m);
    pthread_barrier_destroy(&m.barrier);
    assert_int_equal(m.setup[0].status, ARFUSE_OK);
    assert_int_equal(m.setup[1].status, ARFUSE_OK);
    const outcome *all[] = {&m.intruder, &m.waiting, &m.peer};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(all[i]->status, ARFUSE_IN_USE);
        assert_non_null(strstr(all[i]->text, "on rank 0 a call of workspace 2 (draft) began while "
                                             "one of workspace 1 (target) was running"));
    }
}

/* ---- a life ---------------------------------------------------------------------------------- */

/* Many calls, one rank late at random, empty and cut ones, workspaces that come and go. */
static void live(const arfuse_bootstrap *bootstrap, void *context)
{
    outcome *out = &((outcome *)context)[bootstrap->rank];
    arf_error error = ARF_ERROR_INIT;
    arfuse_workspace *first = NULL, *other[2] = {NULL, NULL};
    arf_trial *trial = NULL;
    uint64_t random = 7, late = 11 + (uint64_t)bootstrap->rank;
    out->status = open_one(bootstrap, "first", 1, &first, &error);
    if (out->status == ARFUSE_OK)
        out->status = arf_trial_create(first->device, &shape, 3 * CAPACITY, ARF_TRIAL_RANDOM, 3,
                                       &trial, &error);
    for (int i = 0; i < 300 && out->status == ARFUSE_OK; i++) {
        char label[16];
        random = random * 6364136223846793005u + 1442695040888963407u;
        late = late * 6364136223846793005u + 1442695040888963407u;
        arfuse_workspace **which = &other[random >> 33 & 1];
        if (random >> 34 & 1)
            which = &first;
        snprintf(label, sizeof label, "w%d", i);
        if (*which == NULL)
            out->status = open_one(bootstrap, label, 1, which, &error);
        if (out->status != ARFUSE_OK)
            break;
        if (late >> 40 & 1)
            usleep((unsigned)(late >> 33) % 1000);
        call_one(*which, trial, (int64_t)((random >> 36) % (3 * CAPACITY)), out);
        if (which != &first && (random >> 45) % 8 == 0)
            arfuse_workspace_destroy(which, NULL);
    }
    if (out->text[0] == '\0')
        memcpy(out->text, error.text, sizeof out->text);
    arf_trial_destroy(trial);
    for (int i = 0; i < 2; i++)
        arfuse_workspace_destroy(&other[i], NULL);
    arfuse_workspace_destroy(&first, NULL);
}

static void who_keeps_the_rule_never_hears_of_it(void **state)
{
    (void)state;
    outcome out[RANKS] = {{0}};
    threads_bootstrap_run(RANKS, live, out);
    for (int rank = 0; rank < RANKS; rank++)
        if (out[rank].status != ARFUSE_OK)
            fail_msg("rank %d: %d, %s", rank, out[rank].status, out[rank].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_in_different_orders_are_named),
        cmocka_unit_test(without_the_check_it_is_a_time_out),
        cmocka_unit_test(the_same_order_is_fine),
        cmocka_unit_test(processes_are_watched_like_threads),
        cmocka_unit_test(calls_at_one_time_are_named),
        cmocka_unit_test(who_keeps_the_rule_never_hears_of_it),
    };
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
