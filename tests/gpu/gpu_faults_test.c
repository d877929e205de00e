/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that never publishes, a launch that fails half-way, and fifty workspaces
 * one after another. The last rank is taken out by compiling the first kernel of a
 * call for one local rank fewer; peers then wait for it alone. Where a call is one
 * kernel (HT), nothing of that rank runs, so its outputs stay as they were.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"

enum { HIDDEN = 4096, RANKS = 4, TOP_K = 8, TOKENS = 5, DEAD = RANKS - 1, ROUNDS = 50 };
#define WAIT_LIMIT_SECONDS 0.3
#define WRITTEN_NAN 0x7fff /* the NaN that kernels write; the trial's poison is another one */

static arf_shape shape(void)
{
    return (arf_shape){RANKS, HIDDEN, TOP_K, ARF_ON, ARF_ON, ARF_ON};
}

static arf_space_spec spec(void)
{
    return (arf_space_spec){
        .shape = shape(),
        .capacity =
            {[ARF_LL] = 8, [ARF_BT] = 8, [ARF_UNFUSED] = 8, [ARF_SEPARATE] = 8, [ARF_HT] = 8},
        .wait_limit_seconds = WAIT_LIMIT_SECONDS};
}

/* One workspace with a prepared call, and how it may be broken. */
typedef struct fault_scene {
    gpu_team gpu;
    arf_cuda_space *space;
    arf_trial *trial;
    arf_launch launch;
} fault_scene;

static void close_scene(fault_scene *at)
{
    arf_trial_destroy(at->trial);
    if (at->space != NULL)
        arf_cuda_space_destroy(&at->space->base);
    gpu_close(&at->gpu);
}

static arfuse_status open_scene(fault_scene *at, const arf_plan *plan, arf_pattern pattern,
                                arf_error *error)
{
    arf_space *space = NULL;
    arf_shape of = shape();
    arf_space_spec wanted = spec();
    memset(at, 0, sizeof *at);
    ARF_TRY(gpu_open(&at->gpu, RANKS, error));
    ARF_TRY(arf_cuda_space_create(&at->gpu.cuda->base, &wanted, &space, error));
    at->space = (arf_cuda_space *)space;
    ARF_TRY(
        arf_trial_create(&at->gpu.cuda->base, &of, TOKENS, ARF_TRIAL_RANDOM, 7, &at->trial, error));
    at->launch = arf_trial_launch(at->trial, pattern, TOKENS);
    return gpu_prepare(at->space, plan, &at->launch, error);
}

/* ---- a dead rank ----------------------------------------------------------------------------- */

/* The publishing kernel without the last local rank. */
static arfuse_status without_last_rank(fault_scene *at, arf_ready_step *step, arf_error *error)
{
    arf_step recipe = step->recipe;
    recipe.local_ranks = RANKS - 1;
    for (int i = 0; i < recipe.defines; i++)
        if (strncmp(recipe.define[i], "-DARF_LOCAL_RANKS=", 18) == 0)
            snprintf(recipe.define[i], sizeof recipe.define[i], "-DARF_LOCAL_RANKS=%d", RANKS - 1);
    ARF_TRY(arf_cuda_enter(at->gpu.cuda, error));
    arfuse_status status = arf_cuda_ready(at->space, &recipe, step, error);
    arf_cuda_leave(at->gpu.cuda);
    return status;
}

/* Enqueues, or replays a graph, and waits until the stream is empty. */
static arfuse_status run(fault_scene *at, CUgraphExec graph, double *seconds, arf_error *error)
{
    double start = gpu_seconds();
    if (graph != NULL)
        ARF_TRY(gpu_replay(at->space, graph, error));
    else
        ARF_TRY(arf_cuda_launch(&at->space->base, &at->launch, error));
    arf_error expiry = ARF_ERROR_INIT;
    arfuse_status status = gpu_finish(at->space, &expiry);
    *seconds = gpu_seconds() - start;
    if (status != ARFUSE_TIMEOUT)
        return arf_fail(error, ARFUSE_FAILURE, "the call ended with %d: %s", (int)status,
                        expiry.text);
    return ARFUSE_OK;
}

/* Both outputs of the first `ranks` ranks are NaN, and nothing was written for the others. */
static arfuse_status nan_until(fault_scene *at, int ranks, bool *yes, arf_error *error)
{
    static uint16_t rows[TOKENS * HIDDEN];
    const arfuse_operands *operands = arf_trial_operands(at->trial);
    *yes = true;
    for (int r = 0; r < RANKS; r++)
        for (int t = 0; t < 2; t++) {
            ARF_TRY(arf_cuda_device.download(
                &at->gpu.cuda->base, r, rows,
                t == 0 ? operands[r].residual_out : operands[r].norm_out, sizeof rows, error));
            for (int i = 0; i < TOKENS * HIDDEN; i++)
                *yes = *yes && (rows[i] == WRITTEN_NAN) == (r < ranks);
        }
    return ARFUSE_OK;
}

/* The call that misses a rank, then a call on the same workspace, by the same graph or whole: both
 * end, and all ranks that run a kernel which writes have NaN. */
static arfuse_status lose_rank(fault_scene *at, bool in_graph, const char *what, arf_error *error)
{
    const arf_ready_plan *plan = &at->space->plan[at->launch.plan];
    arf_ready_step *first = &at->space->plan[at->launch.plan].step[0], whole = *first;
    const int writers = plan->steps == 1 ? RANKS - 1 : RANKS;
    CUgraphExec graph = NULL;
    arfuse_culprit culprit = {.rank = -1};
    double waited, again;
    bool nan_first, nan_again;
    ARF_TRY(without_last_rank(at, first, error));
    if (in_graph)
        ARF_TRY(gpu_capture(at->space, &at->launch, &graph, error));
    ARF_TRY(arf_trial_poison(at->trial, error));
    ARF_TRY(run(at, graph, &waited, error));
    arfuse_status state = arf_cuda_state(&at->space->base, &culprit);
    ARF_TRY(nan_until(at, writers, &nan_first, error));
    *first = whole;
    ARF_TRY(arf_trial_poison(at->trial, error));
    ARF_TRY(run(at, graph, &again, error));
    ARF_TRY(nan_until(at, in_graph ? writers : RANKS, &nan_again, error));
    gpu_drop(at->space, graph);
    gpu_ok(state == ARFUSE_TIMEOUT && culprit.rank == DEAD && culprit.stage > 0 &&
               culprit.token < TOKENS && culprit.epoch == 0,
           "%s: status %d names rank %d, stage %d, token %d, epoch %d", what, (int)state,
           culprit.rank, culprit.stage, (int)culprit.token, (int)culprit.epoch);
    gpu_ok(waited >= 0.9 * WAIT_LIMIT_SECONDS && waited < WAIT_LIMIT_SECONDS + 1,
           "%s: waits end at the limit (%.3f s)", what, waited);
    gpu_ok(nan_first, "%s: both outputs are NaN on all ranks that run, %d", what, writers);
    gpu_ok(nan_again && again < 0.1, "%s: the next call is NaN at once (%.4f s)", what, again);
    return ARFUSE_OK;
}

static void test_dead_rank(arf_protocol protocol, arf_pattern pattern, bool in_graph)
{
    char what[96];
    fault_scene at;
    arf_error error = ARF_ERROR_INIT;
    arf_plan plan = gpu_plan(protocol, pattern);
    const arf_shape of = shape();
    if (protocol == ARF_HT)
        gpu_ht_plan(&of, pattern, 0, &plan); /* the shape has HT */
    snprintf(what, sizeof what, "%s %s %s", arf_protocol_name(protocol), arf_pattern_name(pattern),
             in_graph ? "replayed" : "eager");
    arfuse_status status = open_scene(&at, &plan, pattern, &error);
    if (status == ARFUSE_OK)
        status = lose_rank(&at, in_graph, what, &error);
    if (status != ARFUSE_OK)
        gpu_ok(false, "%s: %s", what, error.text);
    close_scene(&at);
}

/* ---- a launch that fails half-way --------------------------------------------------------------
 */

static void test_half_launch(void)
{
    fault_scene at;
    arf_error error = ARF_ERROR_INIT, second = ARF_ERROR_INIT;
    arfuse_culprit culprit = {.rank = -1};
    arf_plan plan = gpu_plan(ARF_LL, ARF_ALLREDUCE);
    arfuse_status status = open_scene(&at, &plan, ARF_ALLREDUCE, &error);
    if (status != ARFUSE_OK) {
        gpu_ok(false, "a launch that fails half-way: %s", error.text);
        close_scene(&at);
        return;
    }
    at.space->plan[at.launch.plan].step[1].recipe.threads = 4096; /* more than any GPU allows */
    status = arf_cuda_launch(&at.space->base, &at.launch, &error);
    gpu_ok(status == ARFUSE_FAILURE && strstr(error.text, "ll_collect, kernel 2") != NULL,
           "a launch that fails half-way says which kernel: %s", error.text);
    status = arf_cuda_state(&at.space->base, &culprit);
    gpu_ok(status == ARFUSE_TIMEOUT && culprit.stage == ARF_STAGE_LAUNCH,
           "peers are told as on expiry (stage %d)", culprit.stage);
    status = arf_cuda_launch(&at.space->base, &at.launch, &second);
    gpu_ok(status == ARFUSE_FAILED, "the workspace has failed: %s", second.text);
    close_scene(&at);
}

/* ---- many workspaces ---------------------------------------------------------------------------
 */

static arfuse_status one_round(size_t *free_bytes, int *compiled, arf_error *error)
{
    fault_scene at;
    size_t total;
    arf_plan plan = gpu_plan(ARF_BT, ARF_FINALIZE);
    arfuse_status status = open_scene(&at, &plan, ARF_FINALIZE, error);
    if (status == ARFUSE_OK)
        status = arf_cuda_launch(&at.space->base, &at.launch, error);
    if (status == ARFUSE_OK)
        status = gpu_finish(at.space, error);
    if (status == ARFUSE_OK)
        status = arf_trial_check(at.trial, ARF_FINALIZE, TOKENS, error);
    *compiled = at.gpu.cuda != NULL ? at.gpu.cuda->compiler.compiled : 0;
    arf_trial_destroy(at.trial);
    at.trial = NULL;
    if (at.space != NULL)
        arf_cuda_space_destroy(&at.space->base);
    at.space = NULL;
    if (status == ARFUSE_OK)
        status = arf_cuda_enter(at.gpu.cuda, error);
    if (status == ARFUSE_OK) {
        status = ARF_CU(&at.gpu.cuda->driver, error, cuMemGetInfo, free_bytes, &total);
        arf_cuda_leave(at.gpu.cuda);
    }
    close_scene(&at);
    return status;
}

static void test_many_workspaces(void)
{
    size_t first = 0, last = 0;
    int compiled = 0, later = 0;
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = ARFUSE_OK;
    /* The first round also makes what the driver keeps for the life of the context. */
    for (int i = 0; i < ROUNDS && status == ARFUSE_OK; i++) {
        status = one_round(i == 1 ? &first : &last, &compiled, &error);
        later += i > 0 ? compiled : 0;
    }
    gpu_ok(status == ARFUSE_OK, "%d workspaces one after another, each right%s%s", ROUNDS,
           status == ARFUSE_OK ? "" : ": ", error.text);
    gpu_ok(first == last && first > 0, "device memory is flat: %zu MiB free, then %zu", first >> 20,
           last >> 20);
    gpu_ok(later == 0, "later starts compile nothing (%d compiled)", later);
}

int main(void)
{
    gpu_team keep; /* the context must outlive the rounds, as an engine's does */
    arf_error error = ARF_ERROR_INIT;
    if (!gpu_present()) {
        gpu_skip("no NVIDIA device here");
        return gpu_done();
    }
    if (gpu_open(&keep, 1, &error) != ARFUSE_OK) {
        gpu_ok(false, "%s", error.text);
        return gpu_done();
    }
    static const arf_protocol protocols[] = {ARF_LL, ARF_BT, ARF_UNFUSED};
    for (int p = 0; p < 3; p++) {
        test_dead_rank(protocols[p], ARF_ALLREDUCE, false);
        test_dead_rank(protocols[p], ARF_ALLREDUCE, true);
    }
    test_dead_rank(ARF_BT, ARF_FINALIZE, false);
    test_dead_rank(ARF_HT, ARF_ALLREDUCE, false);
    test_dead_rank(ARF_HT, ARF_FINALIZE, true);
    test_half_launch();
    test_many_workspaces();
    gpu_close(&keep);
    return gpu_done();
}
