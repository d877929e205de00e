/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libarfuse on a GPU, by its public functions: default routes, any M (a call above
 * the capacity is cut), capture, deferred work, shadow checks, the ordering rule watched. Bits
 * against the reference throughout.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "runtime/workspace.h"

enum { HIDDEN = 6144, RANKS = 8, TOP_K = 8, CAPACITY = 300, MOST_TOKENS = 700 };

typedef struct runtime_scene {
    arfuse_workspace *workspace;
    arf_trial *trial;
    arf_cuda *cuda;
    CUstream stream;
} runtime_scene;

static void print_line(void *context, arfuse_log_level level, const char *line)
{
    (void)context, (void)level;
    gpu_note("%s", line);
}

/* `label`: the ordering rule is watched; NULL: it is not. */
static arfuse_status open_scene(runtime_scene *at, int shadow_every, const char *label,
                                arf_error *error)
{
    arfuse_options options = ARFUSE_OPTIONS_INIT;
    const arf_shape shape = {RANKS, HIDDEN, TOP_K, ARF_ON, ARF_ON, ARF_ON};
    options.hidden_size = HIDDEN;
    options.top_k = TOP_K;
    options.local_ranks = RANKS;
    options.capacity = CAPACITY;
    options.device = "cuda";
    options.cuda_ordinal = 0;
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_DEFAULT;
    options.wait_limit_seconds = 2;
    options.shadow_every = shadow_every;
    options.check_order = label != NULL;
    options.label = label;
    options.log = print_line;
    memset(at, 0, sizeof *at);
    ARF_TRY(arfuse_workspace_create(NULL, &options, &at->workspace, error));
    at->cuda = (arf_cuda *)at->workspace->device;
    ARF_TRY(arf_trial_create(at->workspace->device, &shape, MOST_TOKENS, ARF_TRIAL_ADVERSARIAL, 3,
                             &at->trial, error));
    ARF_TRY(arf_cuda_enter(at->cuda, error));
    arfuse_status status =
        ARF_CU(&at->cuda->driver, error, cuStreamCreate, &at->stream, CU_STREAM_NON_BLOCKING);
    arf_cuda_leave(at->cuda);
    return status;
}

static void close_scene(runtime_scene *at)
{
    arf_trial_destroy(at->trial);
    if (at->stream != NULL)
        at->cuda->driver.cuStreamDestroy(at->stream);
    arf_error error = ARF_ERROR_INIT;
    gpu_ok(arfuse_workspace_destroy(&at->workspace, &error) == ARFUSE_OK,
           "the workspace is destroyed %s", error.text);
}

static arfuse_call call_of(const runtime_scene *at, arf_pattern pattern, int64_t tokens)
{
    const arf_launch launch = arf_trial_launch(at->trial, pattern, tokens);
    arfuse_call call = ARFUSE_CALL_INIT;
    call.tokens = tokens;
    call.stream = (arfuse_stream)at->stream;
    call.epsilon = launch.epsilon;
    call.weight_bias = launch.weight_bias;
    call.routed_scale = launch.routed_scale;
    return call;
}

static arfuse_status operation(runtime_scene *at, arf_pattern pattern, int64_t tokens,
                               arf_error *error)
{
    const arfuse_call call = call_of(at, pattern, tokens);
    const arfuse_operands *operands = arf_trial_operands(at->trial);
    return pattern == ARF_ALLREDUCE ? arfuse_allreduce(at->workspace, &call, operands, error)
                                    : arfuse_finalize(at->workspace, &call, operands, error);
}

static arfuse_status finish_and_check(runtime_scene *at, arf_pattern pattern, int64_t tokens,
                                      arf_error *error)
{
    ARF_TRY(arf_cuda_synchronize(at->workspace->space, (arfuse_stream)at->stream, error));
    return arf_trial_check(at->trial, pattern, tokens, error);
}

static arfuse_status any_tokens(runtime_scene *at, arf_pattern pattern, arf_error *error)
{
    static const int64_t tokens[] = {0, 1, 3, 17, 64, 0, 257, CAPACITY, MOST_TOKENS, 2};
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        ARF_TRY(arf_trial_poison(at->trial, error));
        ARF_TRY(operation(at, pattern, tokens[i], error));
        ARF_TRY(finish_and_check(at, pattern, tokens[i], error));
    }
    return ARFUSE_OK;
}

/* Captures one operation on the scene's stream and replays it. */
static arfuse_status captured(runtime_scene *at, arf_pattern pattern, int64_t tokens,
                              arf_error *error)
{
    const arf_driver *driver = &at->cuda->driver;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    ARF_TRY(arf_trial_poison(at->trial, error));
    ARF_TRY(arf_cuda_enter(at->cuda, error));
    arfuse_status status =
        ARF_CU(driver, error, cuStreamBeginCapture, at->stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (status == ARFUSE_OK)
        status = operation(at, pattern, tokens, error);
    CUresult ended = driver->cuStreamEndCapture(at->stream, &graph);
    if (status == ARFUSE_OK)
        status = arf_driver_check(driver, ended, "cuStreamEndCapture", error);
    if (status == ARFUSE_OK)
        status = ARF_CU(driver, error, cuGraphInstantiateWithFlags, &executable, graph, 0);
    for (int i = 0; i < 5 && status == ARFUSE_OK; i++)
        status = ARF_CU(driver, error, cuGraphLaunch, executable, at->stream);
    if (status == ARFUSE_OK)
        status = finish_and_check(at, pattern, tokens, error);
    if (executable != NULL)
        driver->cuGraphExecDestroy(executable);
    if (graph != NULL)
        driver->cuGraphDestroy(graph);
    arf_cuda_leave(at->cuda);
    return status;
}

/* A graph, and then what was instantiated from it, keeps its workspace from being destroyed. */
static arfuse_status held(runtime_scene *at, arf_error *error)
{
    const arf_driver *driver = &at->cuda->driver;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    arf_error refused = ARF_ERROR_INIT;
    ARF_TRY(arf_trial_poison(at->trial, error));
    ARF_TRY(arf_cuda_enter(at->cuda, error));
    arfuse_status status =
        ARF_CU(driver, error, cuStreamBeginCapture, at->stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (int i = 0; i < 3 && status == ARFUSE_OK; i++)
        status = operation(at, ARF_ALLREDUCE, 9, error);
    CUresult ended = driver->cuStreamEndCapture(at->stream, &graph);
    if (status == ARFUSE_OK)
        status = arf_driver_check(driver, ended, "cuStreamEndCapture", error);
    if (status == ARFUSE_OK)
        status = ARF_CU(driver, error, cuGraphInstantiateWithFlags, &executable, graph, 0);
    if (graph != NULL)
        driver->cuGraphDestroy(graph);
    if (status == ARFUSE_OK && arfuse_workspace_destroy(&at->workspace, &refused) != ARFUSE_IN_USE)
        status = arf_fail(error, ARFUSE_FAILURE, "destroyed under a graph that uses it");
    if (status == ARFUSE_OK && strstr(refused.text, "1 captured graph of calls") == NULL)
        status = arf_fail(error, ARFUSE_FAILURE, "says %s", refused.text);
    if (status == ARFUSE_OK)
        status = ARF_CU(driver, error, cuGraphLaunch, executable, at->stream);
    if (status == ARFUSE_OK)
        status = finish_and_check(at, ARF_ALLREDUCE, 9, error);
    if (executable != NULL)
        driver->cuGraphExecDestroy(executable);
    if (status == ARFUSE_OK && arf_cuda_graphs(at->workspace->space) != 0)
        status = arf_fail(error, ARFUSE_FAILURE, "still held when its graph is gone");
    arf_cuda_leave(at->cuda);
    return status;
}

static arfuse_status deferred(runtime_scene *at, arf_error *error)
{
    const arfuse_operands *operands = arf_trial_operands(at->trial);
    arfuse_call call = call_of(at, ARF_FINALIZE, 5);
    arfuse_ticket ticket = ARFUSE_TICKET_INIT;
    ARF_TRY(arf_trial_poison(at->trial, error));
    ARF_TRY(arfuse_defer(at->workspace, ARFUSE_FINALIZE, &call, operands, "layer 0 moe", &ticket,
                         error));
    ARF_TRY(arfuse_consume(at->workspace, ticket, &call, operands, error));
    ARF_TRY(arfuse_end_step(at->workspace, error));
    return finish_and_check(at, ARF_FINALIZE, 5, error);
}

static void describe(const runtime_scene *at)
{
    for (int p = 0; p < ARF_PATTERNS; p++)
        for (int64_t tokens = 1; tokens <= 512; tokens *= 8) {
            char text[512];
            const arfuse_call call = call_of(at, (arf_pattern)p, tokens);
            if (arfuse_explain(at->workspace, (arfuse_pattern)p, &call, text, sizeof text) ==
                ARFUSE_OK)
                gpu_note("%s", text);
        }
}

static void run_all(int shadow_every, const char *what)
{
    runtime_scene at;
    char line[128];
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = open_scene(&at, shadow_every, NULL, &error);
    snprintf(line, sizeof line, "a workspace on the GPU%s", what);
    gpu_report(status, &error, line);
    if (status == ARFUSE_OK && shadow_every == 0)
        describe(&at);
    for (int p = 0; p < ARF_PATTERNS && status == ARFUSE_OK; p++) {
        status = any_tokens(&at, (arf_pattern)p, &error);
        snprintf(line, sizeof line, "%s of any M, cut above the capacity%s",
                 arf_pattern_name((arf_pattern)p), what);
        gpu_report(status, &error, line);
        for (int64_t tokens = 1; tokens <= 81 && status == ARFUSE_OK; tokens *= 9)
            status = captured(&at, (arf_pattern)p, tokens, &error);
        snprintf(line, sizeof line, "%s captured and replayed%s", arf_pattern_name((arf_pattern)p),
                 what);
        gpu_report(status, &error, line);
    }
    if (status == ARFUSE_OK)
        gpu_report(held(&at, &error), &error, "a graph holds its workspace");
    if (status == ARFUSE_OK)
        gpu_report(deferred(&at, &error), &error, "deferred work is consumed");
    close_scene(&at);
}

/* ---- the ordering rule ----------------------------------------------------------------------- */

/* Calls of two workspaces by turns on one stream, eager and captured: right, and nobody complains.
 */
static arfuse_status in_order(runtime_scene two[2], arf_error *error)
{
    for (int i = 0; i < 20; i++) {
        runtime_scene *at = &two[i % 2];
        const arf_pattern pattern = (arf_pattern)(i / 2 % ARF_PATTERNS);
        ARF_TRY(arf_trial_poison(at->trial, error));
        ARF_TRY(operation(at, pattern, 1 + 13 * i, error));
        ARF_TRY(finish_and_check(at, pattern, 1 + 13 * i, error));
        ARF_TRY(captured(at, pattern, 1 + 13 * i, error));
    }
    for (int w = 0; w < 2; w++)
        if (arfuse_workspace_status(two[w].workspace, NULL) != ARFUSE_OK)
            return arf_fail(error, ARFUSE_FAILURE, "calls one after another are found fault with");
    return ARFUSE_OK;
}

/* Calls of both at the same time, on two streams that nothing orders: both say so, and the next
 * call names both. Every wait still ends, so the rows of each are there or NaN. */
static arfuse_status out_of_order(runtime_scene two[2], arf_error *error)
{
    enum { MANY = 50 };
    arf_error refused = ARF_ERROR_INIT;
    CUstream own = two[1].stream;
    ARF_TRY(arfuse_workspace_use_stream(two[1].workspace, (arfuse_stream)own, error));
    for (int i = 0; i < MANY; i++)
        ARF_TRY(operation(&two[0], ARF_ALLREDUCE, CAPACITY, error));
    for (int i = 0; i < MANY; i++)
        if (operation(&two[1], ARF_ALLREDUCE, CAPACITY, &refused) != ARFUSE_OK)
            break; /* seen already */
    for (int w = 0; w < 2; w++) {
        const CUresult ended = two[w].cuda->driver.cuStreamSynchronize(two[w].stream);
        ARF_TRY(arf_driver_check(&two[w].cuda->driver, ended, "cuStreamSynchronize", error));
    }
    for (int w = 0; w < 2; w++) {
        arf_error_clear(&refused);
        const arfuse_status status = arfuse_workspace_status(two[w].workspace, NULL);
        if (status != ARFUSE_IN_USE)
            return arf_fail(error, ARFUSE_FAILURE, "workspace %d has status %d", w, (int)status);
        if (operation(&two[w], ARF_ALLREDUCE, 1, &refused) != ARFUSE_IN_USE ||
            strstr(refused.text, "alpha") == NULL || strstr(refused.text, "beta") == NULL)
            return arf_fail(error, ARFUSE_FAILURE, "the next call of %d says: %s", w, refused.text);
    }
    gpu_note("%s", refused.text);
    return ARFUSE_OK;
}

static void run_ordered(void)
{
    static const char *const label[2] = {"alpha", "beta"};
    runtime_scene two[2] = {{0}, {0}};
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = ARFUSE_OK;
    for (int w = 0; w < 2 && status == ARFUSE_OK; w++)
        status = open_scene(&two[w], 0, label[w], &error);
    gpu_report(status, &error, "two workspaces whose order is watched");
    if (status == ARFUSE_OK) {
        CUstream own = two[1].stream;
        two[1].stream = two[0].stream;
        status = in_order(two, &error);
        two[1].stream = own;
        gpu_report(status, &error, "calls of two workspaces by turns");
    }
    if (status == ARFUSE_OK)
        gpu_report(out_of_order(two, &error), &error, "overlapping calls name both workspaces");
    for (int w = 0; w < 2; w++)
        if (two[w].workspace != NULL)
            close_scene(&two[w]);
}

int main(void)
{
    if (!gpu_present()) {
        gpu_skip("no NVIDIA device here");
        return gpu_done();
    }
    run_all(0, "");
    run_all(2, ", every second call shadowed");
    run_ordered();
    return gpu_done();
}
