/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a call takes: N calls in one graph between two stamps of the global
 * timer, the first taken behind a barrier of the whole team.
 *
 *   warm     barrier, calls, stamp: operands stay in the cache from call to call
 *   decode   barrier, (filler, call) times N, stamp; less the same graph without the
 *            calls. The filler evicts the cache and writes the operands again, as the
 *            layers of a model do between two calls.
 */
#include "base/hash.h"
#include "device/cuda/cuda_device.h"

/* Streaming through this many times the L2 leaves nothing of the operands there. */
#define FILLER_L2_SIZES 2
#define FILLER_THREADS 512
#define FILLER_BLOCKS_PER_SM 2

/* Inputs that a model has just written when the call begins; outputs are the call's own. */
#define OPERANDS_WRITTEN 6

/* What the timed graphs need beside the calls. */
typedef struct timing_graph {
    arf_cuda_space *space;
    const arf_launch *launch;
    const arf_timing *timing;
    CUdeviceptr flood; /* decode: memory larger than the L2 */
    uint64_t flood_packs;
    CUdeviceptr ranges; /* decode: arf_fill_range [count] */
    int count;
} timing_graph;

static arf_cuda *device_of(const arf_cuda_space *space)
{
    return (arf_cuda *)space->base.device;
}

static const arf_driver *driver_of(const arf_cuda_space *space)
{
    return &device_of(space)->driver;
}

/* ---- the kernels around the calls ------------------------------------------------------------ */

static arfuse_status ready_plain(arf_cuda_space *space, const char *kernel, int threads,
                                 arf_ready_step *ready, arf_error *error)
{
    arf_step step;
    if (ready->function != NULL)
        return ARFUSE_OK;
    arf_recipe_plain(&space->base.spec.shape, space->base.device->team->local_ranks, kernel,
                     threads, &step);
    return arf_cuda_ready(space, &step, ready, error);
}

static arfuse_status stamp(const timing_graph *graph, int which, unsigned flags, arf_error *error)
{
    arf_cuda_space *space = graph->space;
    int ranks = space->barrier.recipe.local_ranks;
    arf_operand_table table;
    for (int r = 0; r < ranks; r++)
        table.of[r] = (arf_operand_view){
            .contribution = (void *)(uintptr_t)(space->stamps +
                                                (size_t)(which * ranks + r) * sizeof(arf_word))};
    if (device_of(space)->way == ARF_WAY_NONE && !(flags & ARF_STAMP_ONLY)) {
        ARF_TRY(arf_library_barrier(space, space->stream, error));
        flags |= ARF_STAMP_ONLY;
    }
    arf_call call = {.tokens = 1, .flags = flags};
    CUlaunchConfig config = {.gridDimX = (unsigned)ranks,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = (unsigned)space->barrier.recipe.threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = space->stream};
    void *parameters[] = {&call, &space->view, &table};
    return ARF_CU(driver_of(space), error, cuLaunchKernelEx, &config, space->barrier.function,
                  parameters, NULL);
}

static arfuse_status fill(const timing_graph *graph, arf_error *error)
{
    arf_cuda_space *space = graph->space;
    arf_fill work = {.flood = (void *)(uintptr_t)graph->flood,
                     .flood_packs = graph->flood_packs,
                     .range = (const arf_fill_range *)(uintptr_t)graph->ranges,
                     .ranges = graph->count};
    CUlaunchConfig config = {.gridDimX =
                                 (unsigned)(FILLER_BLOCKS_PER_SM * device_of(space)->sm_count),
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = FILLER_THREADS,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = space->stream};
    void *parameters[] = {&work};
    return ARF_CU(driver_of(space), error, cuLaunchKernelEx, &config, space->filler.function,
                  parameters, NULL);
}

/* ---- graphs --------------------------------------------------------------------------------- */

static arfuse_status record(const timing_graph *graph, bool with_calls, arf_error *error)
{
    ARF_TRY(stamp(graph, 0, 0, error));
    for (int i = 0; i < graph->timing->calls; i++) {
        const arf_launch *launch = arf_timing_launch(graph->timing, graph->launch, i);
        if (graph->flood != 0)
            ARF_TRY(fill(graph, error));
        if (with_calls)
            ARF_TRY(arf_cuda_enqueue(graph->space, launch, graph->space->stream, error));
    }
    return stamp(graph, 1, ARF_STAMP_ONLY, error);
}

static arfuse_status instantiate(const timing_graph *graph, bool with_calls,
                                 CUgraphExec *executable, arf_error *error)
{
    const arf_driver *driver = driver_of(graph->space);
    CUgraph captured = NULL;
    ARF_TRY(ARF_CU(driver, error, cuStreamBeginCapture, graph->space->stream,
                   CU_STREAM_CAPTURE_MODE_RELAXED));
    arfuse_status status = record(graph, with_calls, error);
    CUresult ended = driver->cuStreamEndCapture(graph->space->stream, &captured);
    if (status == ARFUSE_OK)
        status = arf_driver_check(driver, ended, "cuStreamEndCapture", error);
    if (status == ARFUSE_OK)
        status = ARF_CU(driver, error, cuGraphInstantiateWithFlags, executable, captured, 0);
    if (captured != NULL)
        driver->cuGraphDestroy(captured);
    return status;
}

/*
 * Runs the graph twice and reads the second run: the first brings clocks and caches up, and while
 * it runs the second is handed over, so that no launch is part of the time.
 */
static arfuse_status run(const timing_graph *graph, CUgraphExec executable, double *ns,
                         arf_error *error)
{
    arf_cuda_space *space = graph->space;
    const arf_driver *driver = driver_of(space);
    arf_word stamps[ARF_STAMPS * ARF_VIEW_LOCAL_RANKS];
    int ranks = space->base.device->team->local_ranks;
    for (int i = 0; i < 2; i++)
        ARF_TRY(ARF_CU(driver, error, cuGraphLaunch, executable, space->stream));
    ARF_TRY(ARF_CU(driver, error, cuStreamSynchronize, space->stream));
    ARF_TRY(arf_cuda_expired(space, error));
    ARF_TRY(ARF_CU(driver, error, cuMemcpyDtoH, stamps, space->stamps,
                   ARF_STAMPS * (size_t)ranks * sizeof stamps[0]));
    for (int r = 0; r < ranks; r++)
        ns[r] = (double)(long long)(stamps[ranks + r] - stamps[r]);
    return ARFUSE_OK;
}

/* All that record reads but the space itself. A tensor may be written over between two timings: the
 * graph holds where it is, not what. */
static uint64_t digest_of(const timing_graph *graph)
{
    const arf_cuda_space *space = graph->space;
    uint64_t hash = arf_hash_number(ARF_HASH_INIT, graph->timing->calls);
    for (int i = 0; i < arf_timing_launches(graph->timing); i++) {
        const arf_launch *launch = &graph->launch[i];
        const float scales[] = {launch->epsilon, launch->weight_bias, launch->routed_scale};
        const int64_t numbers[] = {launch->pattern, launch->plan,  launch->then,
                                   launch->tokens,  launch->plain, launch->early_shared};
        hash = arf_hash(hash, numbers, sizeof numbers);
        hash = arf_hash(hash, scales, sizeof scales);
        const size_t bytes =
            launch->operands->struct_size * (size_t)space->base.device->team->local_ranks;
        hash = arf_hash(hash, launch->operands, bytes);
    }
    return hash;
}

static arfuse_status time_graph(const timing_graph *graph, bool with_calls, double *ns,
                                arf_error *error)
{
    const arf_driver *driver = driver_of(graph->space);
    /* A filler's memory lasts as long as one timing. */
    const bool kept = graph->flood == 0;
    const uint64_t digest = kept ? digest_of(graph) : 0;
    CUgraphExec executable = kept ? arf_timed_find(&graph->space->timed, digest) : NULL;
    if (executable == NULL) {
        ARF_TRY(instantiate(graph, with_calls, &executable, error));
        if (kept)
            arf_timed_keep(&graph->space->timed, driver, digest, executable);
    }
    arfuse_status status = run(graph, executable, ns, error);
    if (!kept)
        driver->cuGraphExecDestroy(executable);
    return status;
}

/* ---- policies -------------------------------------------------------------------------------- */

/* Whole packs of a tensor, shrunk to 16-byte bounds. */
static int add_range(arf_fill_range *range, int count, const void *tensor, uint64_t bytes)
{
    uintptr_t begin = ((uintptr_t)tensor + 15) & ~(uintptr_t)15;
    uintptr_t end = ((uintptr_t)tensor + bytes) & ~(uintptr_t)15;
    if (tensor == NULL || end <= begin)
        return count;
    range[count] = (arf_fill_range){(void *)begin, (end - begin) / 16};
    return count + 1;
}

static int written_operands(const arf_shape *shape, const arf_launch *launch,
                            const arfuse_operands *from, arf_fill_range *range)
{
    uint64_t row = (uint64_t)shape->hidden_size * 2, tokens = (uint64_t)launch->tokens;
    uint64_t slots = tokens * (uint64_t)shape->top_k;
    int count = add_range(range, 0, from->residual, tokens * row);
    if (launch->pattern == ARF_ALLREDUCE)
        return add_range(range, count, from->input, tokens * row);
    count = add_range(range, count, from->shared, tokens * row);
    count = add_range(range, count, from->routed, (uint64_t)from->routed_rows * row);
    count = add_range(range, count, from->indices, slots * sizeof(int32_t));
    return add_range(range, count, from->weights,
                     slots * (from->weights_type == ARFUSE_WEIGHTS_FP32 ? 4 : 2));
}

/* One filler serves all calls of a mixed segment: it writes what the largest of them reads. */
static const arf_launch *largest(const timing_graph *graph)
{
    const arf_launch *most = graph->launch;
    for (int i = 1; i < arf_timing_launches(graph->timing); i++)
        if (graph->launch[i].tokens > most->tokens)
            most = &graph->launch[i];
    return most;
}

static arfuse_status make_filler(timing_graph *graph, arf_error *error)
{
    arf_cuda_space *space = graph->space;
    const arf_driver *driver = driver_of(space);
    arf_fill_range range[OPERANDS_WRITTEN * ARF_VIEW_LOCAL_RANKS];
    int ranks = space->base.device->team->local_ranks;
    const arf_launch *launch = largest(graph);
    const arfuse_operands *from = launch->operands;
    for (int r = 0; r < ranks; r++) {
        graph->count +=
            written_operands(&space->base.spec.shape, launch, from, range + graph->count);
        from = (const arfuse_operands *)(const void *)((const char *)from + from->struct_size);
    }
    uint64_t bytes = FILLER_L2_SIZES * device_of(space)->l2_bytes;
    graph->flood_packs = bytes / 16;
    ARF_TRY(ready_plain(space, "filler", FILLER_THREADS, &space->filler, error));
    ARF_TRY(ARF_CU(driver, error, cuMemAlloc, &graph->flood, bytes));
    ARF_TRY(ARF_CU(driver, error, cuMemsetD8, graph->flood, 1, bytes));
    ARF_TRY(ARF_CU(driver, error, cuMemAlloc, &graph->ranges,
                   ((size_t)graph->count + 1) * sizeof range[0]));
    return ARF_CU(driver, error, cuMemcpyHtoD, graph->ranges, range,
                  (size_t)graph->count * sizeof range[0]);
}

static arfuse_status time_decode(timing_graph *graph, double *ns, arf_error *error)
{
    const arf_driver *driver = driver_of(graph->space);
    int ranks = graph->space->base.device->team->local_ranks;
    double without[ARF_VIEW_LOCAL_RANKS];
    arfuse_status status = make_filler(graph, error);
    if (status == ARFUSE_OK)
        status = time_graph(graph, false, without, error);
    if (status == ARFUSE_OK)
        status = time_graph(graph, true, ns, error);
    for (int r = 0; status == ARFUSE_OK && r < ranks; r++)
        ns[r] -= without[r];
    if (graph->flood != 0)
        driver->cuMemFree(graph->flood);
    if (graph->ranges != 0)
        driver->cuMemFree(graph->ranges);
    return status;
}

static arfuse_status time_here(arf_cuda_space *space, const arf_launch *launch,
                               const arf_timing *timing, double *us, arf_error *error)
{
    timing_graph graph = {.space = space, .launch = launch, .timing = timing};
    int ranks = space->base.device->team->local_ranks;
    int threads = (space->base.spec.shape.tp_size + 31) / 32 * 32;
    ARF_TRY(ready_plain(space, "team_barrier", threads, &space->barrier, error));
    arfuse_status status = timing->policy == ARF_DECODE ? time_decode(&graph, us, error)
                                                        : time_graph(&graph, true, us, error);
    for (int r = 0; status == ARFUSE_OK && r < ranks; r++)
        us[r] = us[r] / 1000.0 / timing->calls;
    return status;
}

arfuse_status arf_cuda_time(arf_space *base, const arf_launch *launch, const arf_timing *timing,
                            double *us, arf_error *error)
{
    arf_cuda_space *space = (arf_cuda_space *)base;
    for (int i = 0; i < arf_timing_launches(timing); i++)
        ARF_TRY(arf_cuda_check(space, &launch[i], error));
    if (device_of(space)->timing[0] != '\0') /* equal on all ranks */
        return arf_fail(error, ARFUSE_HARDWARE, "times are refused: %s", device_of(space)->timing);
    for (int i = 0; i < arf_timing_launches(timing); i++)
        if (timing->calls < 1 || launch[i].tokens < 1)
            return arf_fail(error, ARFUSE_USAGE,
                            "timing %d calls of %lld tokens: at least one of each", timing->calls,
                            (long long)launch[i].tokens);
    ARF_TRY(arf_cuda_enter(device_of(space), error));
    arfuse_status status = time_here(space, launch, timing, us, error);
    arf_cuda_leave(device_of(space));
    return status;
}
