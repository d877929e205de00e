/* SPDX-License-Identifier: Apache-2.0 */
/* What one turns on to look: the shadow check, and ranks that compare their calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/runtime_case.h"
#include "support/threads_bootstrap.h"

enum { RANKS = 3, HIDDEN = 64, TOP_K = 2, CAPACITY = 40, MOST = 90 };
static const arf_shape shape = {RANKS, HIDDEN, TOP_K, ARF_ON, ARF_ON, ARF_ON};
static const char *const sites[] = {"attn_out", "moe_out"};

static void passes(arfuse_status status, const arf_error *error)
{
    if (status != ARFUSE_OK)
        fail_msg("status %d: %s", status, error->text);
}

/* ---- shadow ---------------------------------------------------------------------------------- */

/* The host device, with one wrong bit in what a fused launch gives. */
static struct {
    int launches;
    bool in_norm;
    int rank, token, element; /* rank -1: none */
} planted;

static arfuse_status launch_and_spoil(arf_space *space, const arf_launch *launch, arf_error *error)
{
    planted.launches++;
    ARF_TRY(arf_host_device.launch(space, launch, error));
    /* Odd launches are the shadow's. */
    if (planted.rank < 0 || planted.launches % 2 == 1 || planted.token >= launch->tokens)
        return ARFUSE_OK;
    const arfuse_operands *o = &launch->operands[planted.rank];
    uint16_t *out = planted.in_norm ? o->norm_out : o->residual_out;
    out[planted.token * HIDDEN + planted.element] ^= 1;
    return ARFUSE_OK;
}

static void a_shadow_check_finds_a_wrong_bit(void **state)
{
    (void)state;
    arf_device_ops spoiling = arf_host_device;
    spoiling.launch = launch_and_spoil;
    arfuse_options options = case_options(&shape, CAPACITY);
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_DEFAULT;
    options.sites = sites;
    options.site_count = 2;
    options.shadow_every = 3;
    arf_error error = ARF_ERROR_INIT;
    arfuse_workspace *workspace = NULL;
    arf_trial *trial = NULL;
    passes(arfuse_workspace_create(NULL, &options, &workspace, &error), &error);
    passes(arf_trial_create(workspace->device, &shape, MOST, ARF_TRIAL_RANDOM, 3, &trial, &error),
           &error);
    workspace->device->ops = &spoiling;
    planted.launches = 0;
    planted.rank = -1;

    /* Every third call is run twice, piece by piece. */
    static const int64_t tokens[] = {5, 6, 7, 1, 1, 90, 0, 0, 0};
    for (int i = 0; i < 9; i++) {
        arfuse_call call = case_call_of(trial, tokens[i]);
        call.site = 1;
        passes(case_run(workspace, trial, (arfuse_pattern)(i % 2), call, &error), &error);
    }
    assert_int_equal(planted.launches, 9 + 1 + 2 + 3 + 1);
    arfuse_counters counters = ARFUSE_COUNTERS_INIT;
    assert_int_equal(arfuse_site_counters(workspace, 1, &counters), ARFUSE_OK);
    assert_int_equal(counters.shadowed, 3);
    assert_int_equal(counters.calls, 9);

    /* The outputs may be the inputs: the shadow has read them before. */
    arfuse_operands own[RANKS];
    memcpy(own, arf_trial_operands(trial), sizeof own);
    arfuse_call call = case_call_of(trial, 5);
    for (int i = 0; i < 2; i++)
        passes(arfuse_allreduce(workspace, &call, own, &error), &error);
    for (int r = 0; r < RANKS; r++) {
        memcpy(own[r].residual_out, own[r].residual, 5 * HIDDEN * 2);
        memcpy(own[r].norm_out, own[r].input, 5 * HIDDEN * 2);
        own[r].residual = own[r].residual_out;
        own[r].input = own[r].norm_out;
    }
    passes(arfuse_allreduce(workspace, &call, own, &error), &error);
    passes(arf_trial_check(trial, ARF_ALLREDUCE, 5, &error), &error);

    /* One bit of one rank. */
    call.site = 1;
    for (int norm = 0; norm < 2; norm++) {
        planted.rank = 2;
        planted.in_norm = norm;
        planted.token = 4;
        planted.element = 33;
        planted.launches = 1;
        for (int i = 0; i < 2; i++)
            passes(arfuse_allreduce(workspace, &call, arf_trial_operands(trial), &error), &error);
        planted.launches = 0;
        assert_int_equal(arfuse_allreduce(workspace, &call, arf_trial_operands(trial), &error),
                         ARFUSE_WRONG_RESULT);
        assert_non_null(strstr(error.text, "shadow check at site moe_out, call "));
        assert_non_null(strstr(error.text, norm ? "rank 2 has norm_out[4,33] = 0x"
                                                : "rank 2 has residual_out[4,33] = 0x"));
        arf_error_clear(&error);
    }
    /* In a long call, by its token there: the second piece's token 4 is 44. */
    planted.token = 4;
    planted.element = 0;
    workspace->shadow.until = 1;
    planted.launches = 0;
    call.tokens = 90;
    planted.rank = 1;
    planted.in_norm = false;
    assert_int_equal(arfuse_allreduce(workspace, &call, arf_trial_operands(trial), &error),
                     ARFUSE_WRONG_RESULT);
    assert_non_null(strstr(error.text, "rank 1 has residual_out[4,0]"));
    assert_int_equal(arfuse_workspace_status(workspace, NULL), ARFUSE_OK);
    workspace->device->ops = &arf_host_device;
    arf_trial_destroy(trial);
    passes(arfuse_workspace_destroy(&workspace, &error), &error);
}

/* ---- checked mode ---------------------------------------------------------------------------- */

/* What one rank does otherwise than the others. */
typedef enum difference {
    NOTHING,
    TOKENS,
    PATTERN,
    SITE,
    SITE_OFF,
    EPSILON,
    SCALE,
    ROUTE,
    RESIDUAL,
    GAMMA,
    ONE_CALL_MORE,
    BAD_POINTER,
    BAD_INDEX,
    INDEX_TOO_LARGE,
    DIFFERENCES
} difference;

typedef struct checked_case {
    difference what;
    int who;
    arfuse_status status[RANKS];
    arf_error error[RANKS];
    bool right_after[RANKS];
} checked_case;

static void run_checked(const arfuse_bootstrap *bootstrap, void *context)
{
    checked_case *c = context;
    const int rank = bootstrap->rank;
    const difference what = rank == c->who ? c->what : NOTHING;
    arf_error *error = &c->error[rank];
    arfuse_workspace *workspace = NULL;
    arf_trial *trial = NULL;
    *error = (arf_error)ARF_ERROR_INIT;
    arfuse_options options = case_options(&shape, CAPACITY);
    options.local_ranks = 1;
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_DEFAULT;
    options.sites = sites;
    options.site_count = 2;
    options.checked = 1;
    c->status[rank] = arfuse_workspace_create(bootstrap, &options, &workspace, error);
    if (c->status[rank] != ARFUSE_OK)
        return;
    c->status[rank] =
        arf_trial_create(workspace->device, &shape, 9, ARF_TRIAL_RANDOM, 3, &trial, error);

    arfuse_operands operands = arf_trial_operands(trial)[0];
    arfuse_call call = case_call_of(trial, 7);
    uint16_t *residual = (uint16_t *)(uintptr_t)operands.residual;
    uint16_t *gamma = (uint16_t *)(uintptr_t)operands.gamma;
    call.site = what == SITE;
    call.tokens = what == TOKENS ? 6 : 7;
    call.epsilon += what == EPSILON ? 1 : 0;
    call.routed_scale += what == SCALE ? 1 : 0;
    call.route = what == ROUTE ? 0 : ARFUSE_ROUTE_AUTO;
    residual[6 * HIDDEN + 63] ^= what == RESIDUAL;
    gamma[5] ^= what == GAMMA;
    if (what == SITE_OFF)
        arfuse_site_switch(workspace, 0, 0, NULL);
    if (what == ONE_CALL_MORE)
        workspace->calls++;
    if (what == BAD_POINTER)
        operands.norm_out = NULL;
    int32_t *index = (int32_t *)(uintptr_t)operands.indices + 6 * shape.top_k + 1, kept = *index;
    if (what == BAD_INDEX)
        *index = -2;
    if (what == INDEX_TOO_LARGE)
        *index = (int32_t)operands.routed_rows;
    c->status[rank] =
        (what == PATTERN ? arfuse_allreduce : arfuse_finalize)(workspace, &call, &operands, error);
    /* Nothing was enqueued, so the ranks are in step for the next call. */
    residual[6 * HIDDEN + 63] ^= what == RESIDUAL;
    gamma[5] ^= what == GAMMA;
    *index = kept;
    if (what == SITE_OFF)
        arfuse_site_switch(workspace, 0, 1, NULL);
    if (what == ONE_CALL_MORE)
        workspace->calls--;
    arf_error second = ARF_ERROR_INIT;
    c->right_after[rank] =
        case_run(workspace, trial, ARFUSE_FINALIZE, case_call_of(trial, 9), &second) == ARFUSE_OK;
    arf_trial_destroy(trial);
    arfuse_workspace_destroy(&workspace, NULL);
}

static void ranks_that_differ_are_named(void **state)
{
    (void)state;
    static const char *const part[DIFFERENCES] = {
        [TOKENS] = "checked mode, call 0: tokens is 7 on ranks 0,2 and 6 on rank 1; it must be",
        [PATTERN] = "the pattern (0 allreduce, 1 finalize) is 1 on ranks 0,2 and 0 on rank 1",
        [SITE] = "site is 0 on ranks 0,2 and 1 on rank 1",
        [SITE_OFF] = "whether the site is on is 1 on ranks 0,2 and 0 on rank 1",
        [EPSILON] = "epsilon is 00000000",
        [SCALE] = "routed_scale is 00000000",
        [ROUTE] = "route is -1 on ranks 0,2 and 0 on rank 1",
        [RESIDUAL] = "residual's digest is ",
        [GAMMA] = "gamma's digest is ",
        [ONE_CALL_MORE] = "checked mode: the number of the call is 0 on ranks 0,2 and 1 on rank 1",
        [BAD_POINTER] = "rank 1: rank 1: operands.norm_out is NULL",
        [BAD_INDEX] =
            "rank 1: operands.indices of token 6, slot 1, is -2, expected -1 (dropped) or",
        [INDEX_TOO_LARGE] = "rank 1: operands.indices of token 6, slot 1, is ",
    };
    for (int what = NOTHING; what < DIFFERENCES; what++) {
        checked_case c = {.what = (difference)what, .who = 1};
        threads_bootstrap_run(RANKS, run_checked, &c);
        for (int rank = 0; rank < RANKS; rank++) {
            const arfuse_status expected = what == NOTHING       ? ARFUSE_OK
                                           : what >= BAD_POINTER ? ARFUSE_USAGE
                                                                 : ARFUSE_DISAGREE;
            if (c.status[rank] != expected)
                fail_msg("%d on rank %d: %d, %s", what, rank, c.status[rank], c.error[rank].text);
            assert_string_equal(c.error[rank].text, c.error[0].text);
            assert_true(c.right_after[rank]);
        }
        if (part[what] != NULL && strstr(c.error[0].text, part[what]) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", c.error[0].text, part[what]);
    }
}

static void local_ranks_are_compared_too(void **state)
{
    (void)state;
    arfuse_options options = case_options(&shape, CAPACITY);
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_DEFAULT;
    options.checked = 1;
    arf_error error = ARF_ERROR_INIT;
    arfuse_workspace *workspace = NULL;
    arf_trial *trial = NULL;
    passes(arfuse_workspace_create(NULL, &options, &workspace, &error), &error);
    passes(arf_trial_create(workspace->device, &shape, 9, ARF_TRIAL_RANDOM, 3, &trial, &error),
           &error);
    arfuse_call call = case_call_of(trial, 9);
    passes(case_run(workspace, trial, ARFUSE_FINALIZE, call, &error), &error);
    uint16_t *gamma = (uint16_t *)(uintptr_t)arf_trial_operands(trial)[2].gamma;
    gamma[0] ^= 1;
    assert_int_equal(arfuse_finalize(workspace, &call, arf_trial_operands(trial), &error),
                     ARFUSE_DISAGREE);
    assert_string_equal(error.text, "operands.gamma has other bits on rank 2 than on rank 0; it "
                                    "must be bit-equal on all ranks");
    gamma[0] ^= 1;
    arf_error_clear(&error);
    passes(case_run(workspace, trial, ARFUSE_FINALIZE, call, &error), &error);
    /* A deferred value goes the same way; a bad ticket is voted on. */
    arfuse_ticket ticket;
    passes(arfuse_defer(workspace, ARFUSE_FINALIZE, &call, arf_trial_operands(trial), "x", &ticket,
                        &error),
           &error);
    passes(arfuse_consume(workspace, ticket, &call, arf_trial_operands(trial), &error), &error);
    assert_int_equal(arfuse_consume(workspace, ticket, &call, arf_trial_operands(trial), &error),
                     ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "was consumed"));
    arf_trial_destroy(trial);
    passes(arfuse_workspace_destroy(&workspace, &error), &error);
}

/* Rank 1 calls the second workspace where the others call the first; one bootstrap serves both. */
static void cross(const arfuse_bootstrap *bootstrap, void *context)
{
    checked_case *c = context;
    const int rank = bootstrap->rank;
    static const char *const label[] = {"target", "draft"};
    arfuse_workspace *workspace[2] = {NULL, NULL};
    arf_trial *trial = NULL;
    arf_error *error = &c->error[rank];
    *error = (arf_error)ARF_ERROR_INIT;
    arfuse_options options = case_options(&shape, CAPACITY);
    options.local_ranks = 1;
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_DEFAULT;
    options.checked = 1;
    c->status[rank] = ARFUSE_OK;
    for (int i = 0; i < 2 && c->status[rank] == ARFUSE_OK; i++) {
        options.label = label[i];
        c->status[rank] = arfuse_workspace_create(bootstrap, &options, &workspace[i], error);
    }
    if (c->status[rank] == ARFUSE_OK)
        c->status[rank] =
            arf_trial_create(workspace[0]->device, &shape, 9, ARF_TRIAL_RANDOM, 3, &trial, error);
    if (c->status[rank] != ARFUSE_OK)
        return;
    const arfuse_call call = case_call_of(trial, 7);
    c->status[rank] =
        arfuse_allreduce(workspace[rank == 1], &call, arf_trial_operands(trial), error);
    /* Nothing was enqueued: the ranks are in step, and both workspaces live. */
    arf_error later = ARF_ERROR_INIT;
    c->right_after[rank] = true;
    for (int i = 0; i < 2; i++)
        c->right_after[rank] &=
            case_run(workspace[i], trial, ARFUSE_ALLREDUCE, call, &later) == ARFUSE_OK;
    arf_trial_destroy(trial);
    arfuse_workspace_destroy(&workspace[1], NULL);
    arfuse_workspace_destroy(&workspace[0], NULL);
}

static void calls_of_two_workspaces_are_told_apart(void **state)
{
    (void)state;
    checked_case c = {.who = 1};
    threads_bootstrap_run(RANKS, cross, &c);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(c.status[rank], ARFUSE_DISAGREE);
        assert_non_null(strstr(c.error[rank].text, "checked mode: rank 0 is in a call of workspace "
                                                   "target and rank 1 in one of draft"));
        assert_true(c.right_after[rank]);
    }
}

/* ---- a call that is given up ----------------------------------------------------------------- */

/* The host device, whose second launch fails on rank 1 with nothing enqueued. */
static arfuse_status launch_but_second(arf_space *space, const arf_launch *launch, arf_error *error)
{
    static int launches; /* rank 1 alone comes here */
    if (++launches == 2)
        return arf_fail(error, ARFUSE_FAILURE, "planted");
    return arf_host_device.launch(space, launch, error);
}

typedef struct given_up {
    arfuse_status call[2], status[2], later[2];
    arfuse_culprit culprit[2];
    double seconds[2];
    bool poisoned[2];
    char text[2][1024];
} given_up;

static void give_up(const arfuse_bootstrap *bootstrap, void *context)
{
    given_up *all = context;
    const int rank = bootstrap->rank;
    static const arf_shape pair = {2, HIDDEN, 0, ARF_ON, ARF_ON, ARF_ON};
    arf_device_ops failing = arf_host_device;
    failing.launch = launch_but_second;
    arfuse_options options = case_options(&pair, CAPACITY);
    options.local_ranks = 1;
    options.routes[0] = ARFUSE_ROUTES_DEFAULT;
    options.wait_limit_seconds = 300;
    arf_error error = ARF_ERROR_INIT;
    arfuse_workspace *workspace = NULL;
    arf_trial *trial = NULL;
    all->call[rank] = arfuse_workspace_create(bootstrap, &options, &workspace, &error);
    if (all->call[rank] != ARFUSE_OK)
        return;
    if (arf_trial_create(workspace->device, &pair, MOST, ARF_TRIAL_RANDOM, 3, &trial, &error) ==
        ARFUSE_OK) {
        if (rank == 1)
            workspace->device->ops = &failing;
        const double start = arf_host_device.now(workspace->device);
        memset(arf_trial_operands(trial)[0].norm_out, 0, MOST * HIDDEN * 2);
        arfuse_call call = case_call_of(trial, MOST); /* in pieces of the capacity */
        all->call[rank] = arfuse_allreduce(workspace, &call, arf_trial_operands(trial), &error);
        all->seconds[rank] = arf_host_device.now(workspace->device) - start;
        memcpy(all->text[rank], error.text, sizeof error.text);
        all->culprit[rank].struct_size = sizeof(arfuse_culprit);
        all->status[rank] = arfuse_workspace_status(workspace, &all->culprit[rank]);
        const uint16_t *norm = arf_trial_operands(trial)[0].norm_out;
        all->poisoned[rank] =
            norm[CAPACITY * HIDDEN] == 0x7fff && norm[MOST * HIDDEN - 1] == 0x7fff;
        call.tokens = 1;
        all->later[rank] = arfuse_allreduce(workspace, &call, arf_trial_operands(trial), &error);
        workspace->device->ops = &arf_host_device;
        arf_trial_destroy(trial);
    }
    arfuse_workspace_destroy(&workspace, NULL);
}

static void peers_hear_of_a_call_that_is_given_up(void **state)
{
    (void)state;
    given_up all = {0};
    threads_bootstrap_run(2, give_up, &all);
    assert_int_equal(all.call[1], ARFUSE_FAILURE);
    assert_string_equal(all.text[1], "planted");
    /* Rank 0 does not wait for its limit, is told who, and finds no row that looks reduced. */
    assert_int_equal(all.call[0], ARFUSE_TIMEOUT);
    assert_non_null(strstr(all.text[0], "rank 1 gave a call up half way"));
    assert_true(all.seconds[0] < 60);
    for (int rank = 0; rank < 2; rank++) {
        assert_true(all.poisoned[rank]);
        assert_int_equal(all.status[rank], ARFUSE_TIMEOUT);
        assert_int_equal(all.culprit[rank].rank, 1);
        assert_int_not_equal(all.later[rank], ARFUSE_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shadow_check_finds_a_wrong_bit),
        cmocka_unit_test(ranks_that_differ_are_named),
        cmocka_unit_test(local_ranks_are_compared_too),
        cmocka_unit_test(calls_of_two_workspaces_are_told_apart),
        cmocka_unit_test(peers_hear_of_a_call_that_is_given_up),
    };
    return cmocka_run_group_tests_name("runtime_checks", tests, NULL, NULL);
}
