/* SPDX-License-Identifier: Apache-2.0 */
/* One call: a grid for each step of its plan. No allocation, no lock, no log. */
#include <stddef.h>

#include "device/cuda/cuda_device.h"

static const arf_cuda *device_of(const arf_cuda_space *space)
{
    return (const arf_cuda *)space->base.device;
}

/* ---- arguments ------------------------------------------------------------------------------ */

/* Field by field, as src/runtime/operands.c says. */
static void view_operands(const arf_cuda_space *space, const arf_launch *launch, int ranks,
                          arf_operand_table *table)
{
    static const arfuse_operands nothing; /* of a trial launch, which runs nothing, for all ranks */
    const arfuse_operands *from = launch->operands != NULL ? launch->operands : &nothing;
    for (int r = 0; r < ranks; r++) {
        arf_operand_view *view = &table->of[r];
        view->input = from->input;
        view->routed = from->routed;
        view->weights = from->weights;
        view->indices = from->indices;
        view->shared = from->shared;
        view->residual = from->residual;
        view->gamma = from->gamma;
        view->residual_out = from->residual_out;
        view->norm_out = from->norm_out;
        view->contribution = (void *)(uintptr_t)space->scratch[r];
        view->inverse_rms = space->inverse_rms[r];
        from = (const arfuse_operands *)(const void *)((const char *)from + from->struct_size);
    }
}

static void use_scratch(arf_operand_table *table, int ranks)
{
    for (int r = 0; r < ranks; r++)
        table->of[r].input = table->of[r].contribution;
}

/* ---- launching ------------------------------------------------------------------------------ */

CUresult arf_cuda_launch_step(const arf_cuda_space *space, const arf_ready_step *step,
                              arf_call *call, const arf_operand_table *table, bool plain,
                              CUstream stream)
{
    int64_t rows = arf_step_rows(&step->recipe, &space->base.spec.shape, call->tokens);
    if (rows > step->most_rows)
        rows = step->most_rows;
    const bool fills = rows > step->dependent_rows; /* more than half of this process's share */
    bool alone = plain || fills;
    unsigned attributes = step->attributes - (alone && step->recipe.dependent);
    if (fills && step->recipe.waits)
        call->flags |= ARF_TRIGGER_NEVER;
    call->shards = step->recipe.shards;
    call->reducers = step->recipe.reducers;
    CUlaunchConfig config = {.gridDimX = (unsigned)(rows * step->recipe.local_ranks),
                             .gridDimY = (unsigned)step->recipe.parts,
                             .gridDimZ = 1,
                             .blockDimX = (unsigned)step->recipe.threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = step->recipe.shared_bytes,
                             .hStream = stream,
                             .attrs = (CUlaunchAttribute *)(uintptr_t)step->attribute,
                             .numAttrs = attributes};
    void *parameters[] = {call, (void *)(uintptr_t)&space->view, (void *)(uintptr_t)table};
    return device_of(space)->driver.cuLaunchKernelEx(&config, step->function, parameters, NULL);
}

/*
 * The first steps of this call are on the stream and the rest will never come: peers would wait for
 * it. So the space has failed, and every reachable peer is told as if a wait had expired. In a
 * capture nothing has run, and nobody is told.
 */
static void tell_peers(arf_cuda_space *space, int64_t tokens, CUstream stream)
{
    const arf_driver *driver = &device_of(space)->driver;
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    space->broken = true;
    if (driver->cuStreamIsCapturing(stream, &capturing) != CUDA_SUCCESS ||
        capturing != CU_STREAM_CAPTURE_STATUS_NONE)
        return;
    arf_word word = ARF_CULPRIT(space->view.first_rank, ARF_STAGE_LAUNCH, tokens, 0);
    for (int r = 0; r < space->base.spec.shape.tp_size; r++)
        driver->cuMemcpyHtoD((CUdeviceptr)(uintptr_t)space->view.peer[r] +
                                 offsetof(arf_control, culprit),
                             &word, sizeof word);
    space->mirror[ARF_MIRROR_CULPRIT] = word;
}

/* `plain`: the first step does not overlap the kernel before it; inside the call steps do. */
static arfuse_status enqueue_plan(arf_cuda_space *space, const arf_ready_plan *plan, arf_call *call,
                                  arf_operand_table *table, int enqueued, bool plain,
                                  CUstream stream, arf_error *error)
{
    unsigned common = call->flags;
    if (plan->library) {
        arfuse_status status =
            arf_library_enqueue(space, plan, call, table, &enqueued, stream, error);
        if (status != ARFUSE_OK && enqueued > 0)
            tell_peers(space, call->tokens, stream);
        return status;
    }
    for (int i = 0; i < plan->steps; i++) {
        const arf_ready_step *step = &plan->step[i];
        if (step->recipe.from_scratch)
            use_scratch(table, step->recipe.local_ranks);
        call->flags = common | step->recipe.flags;
        CUresult result = arf_cuda_launch_step(space, step, call, table, plain && i == 0, stream);
        if (result == CUDA_SUCCESS)
            continue;
        if (enqueued + i > 0)
            tell_peers(space, call->tokens, stream);
        arfuse_status status =
            arf_driver_check(&device_of(space)->driver, result, "cuLaunchKernelEx", error);
        arf_error_prefix(error, "%s, kernel %d of the call", step->recipe.kernel, enqueued + i + 1);
        return status;
    }
    return ARFUSE_OK;
}

arfuse_status arf_cuda_enqueue(arf_cuda_space *space, const arf_launch *launch, CUstream stream,
                               arf_error *error)
{
    const arf_ready_plan *plan = &space->plan[launch->plan];
    int ranks = plan->step[plan->steps - 1].recipe.local_ranks;
    arf_operand_table table;
    view_operands(space, launch, ranks, &table);
    arf_call call = {.tokens = launch->tokens,
                     .epsilon = launch->epsilon,
                     .weight_bias = launch->weight_bias,
                     .routed_scale = launch->routed_scale};
    if (launch->operands != NULL && launch->operands->weights_type == ARFUSE_WEIGHTS_FP32)
        call.flags |= ARF_WEIGHTS_ARE_FP32;
    if (launch->early_shared)
        call.flags |= ARF_SHARED_EARLY;
    ARF_TRY(enqueue_plan(space, plan, &call, &table, 0, launch->plain, stream, error));
    if (launch->then < 0)
        return ARFUSE_OK;
    use_scratch(&table, ranks);
    return enqueue_plan(space, &space->plan[launch->then], &call, &table, plan->steps, false,
                        stream, error);
}

/* ---- the seam's functions -------------------------------------------------------------------- */

static arfuse_status check_plan(const arf_cuda_space *space, int id, arf_pattern pattern,
                                int64_t tokens, arf_error *error)
{
    if (id < 0 || id >= space->plans)
        return arf_fail(error, ARFUSE_USAGE, "plan %d: %d are prepared", id, space->plans);
    const arf_ready_plan *plan = &space->plan[id];
    int64_t capacity = space->base.spec.capacity[plan->plan.protocol];
    if (plan->pattern != pattern)
        return arf_fail(error, ARFUSE_USAGE, "plan %d was prepared for %s, not for %s", id,
                        arf_pattern_name(plan->pattern), arf_pattern_name(pattern));
    if (tokens < 0 || tokens > capacity)
        return arf_fail(error, ARFUSE_USAGE, "%lld tokens: %s has room for %lld", (long long)tokens,
                        arf_protocol_name(plan->plan.protocol), (long long)capacity);
    return ARFUSE_OK;
}

arfuse_status arf_cuda_check(const arf_cuda_space *space, const arf_launch *launch,
                             arf_error *error)
{
    ARF_TRY(arf_order_state(&space->seat, error));
    ARF_TRY(arf_busy_state(space->busy, space->busy_number, error));
    const char *ended = arf_library_end_text(space->library.watch);
    if (ended[0] != '\0')
        return arf_fail(error, ARFUSE_TIMEOUT, "%s; destroy this workspace and create a new one",
                        ended);
    if (space->broken)
        return arf_fail(error, ARFUSE_FAILED,
                        "an earlier launch of this workspace failed half-way; destroy it and "
                        "create a new one");
    ARF_TRY(check_plan(space, launch->plan, launch->pattern, launch->tokens, error));
    bool separate = space->plan[launch->plan].plan.protocol == ARF_SEPARATE;
    if (separate != (launch->then >= 0))
        return arf_fail(error, ARFUSE_USAGE,
                        separate ? "a separate finalize needs the allreduce plan behind it"
                                 : "only a separate finalize has a plan behind it");
    if (separate)
        return check_plan(space, launch->then, ARF_ALLREDUCE, launch->tokens, error);
    return ARFUSE_OK;
}

/* ---- the ordering rule, where it is watched ---------------------------------------------------
 */

static arfuse_status mark(const arf_cuda_space *space, bool enter, CUstream stream,
                          arf_error *error)
{
    arf_order_mark what = arf_busy_mark(space->busy, space->busy_number, enter);
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = (unsigned)space->order.recipe.threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};
    void *parameters[] = {&what};
    return ARF_CU(&device_of(space)->driver, error, cuLaunchKernelEx, &config,
                  space->order.function, parameters, NULL);
}

static arfuse_status enqueue_marked(arf_cuda_space *space, const arf_launch *launch,
                                    CUstream stream, arf_error *error)
{
    ARF_TRY(mark(space, true, stream, error));
    /* The first kernel starts behind the mark, not beside it. */
    arf_launch plain = *launch;
    plain.plain = true;
    arfuse_status status = arf_cuda_enqueue(space, &plain, stream, error);
    arfuse_status left = mark(space, false, stream, status == ARFUSE_OK ? error : NULL);
    if (status != ARFUSE_OK || left == ARFUSE_OK)
        return status;
    space->broken = true; /* the call is enqueued whole; nothing after it can be told apart */
    return left;
}

/* The order of replays is the GPU's to see: a call in a capture has no place in the host's. */
static arfuse_status enqueue_watched(arf_cuda_space *space, const arf_launch *launch,
                                     CUstream stream, arf_error *error)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    device_of(space)->driver.cuStreamIsCapturing(stream, &capturing);
    if (capturing != CU_STREAM_CAPTURE_STATUS_NONE)
        return enqueue_marked(space, launch, stream, error);
    ARF_TRY(arf_order_begin(&space->seat, error));
    arfuse_status status = enqueue_marked(space, launch, stream, error);
    arf_order_end(&space->seat);
    return status;
}

void arf_cuda_fail(arf_space *base)
{
    arf_cuda_space *space = (arf_cuda_space *)base;
    const arf_launch none = {.stream = (arfuse_stream)space->stream};
    arf_cuda_abandon(base, &none);
}

arfuse_status arf_cuda_launch(arf_space *base, const arf_launch *launch, arf_error *error)
{
    arf_cuda_space *space = (arf_cuda_space *)base;
    ARF_TRY(arf_cuda_check(space, launch, error));
    if (launch->tokens == 0)
        return ARFUSE_OK; /* no mailbox moves on any rank: that keeps them in step */
    /* A thread that launches nearly always has the context current already, and asking costs less
     * than pushing and popping. */
    const arf_cuda *device = device_of(space);
    CUcontext current = NULL;
    const bool entered =
        device->driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != device->context;
    if (entered)
        ARF_TRY(arf_cuda_enter(device, error));
    arfuse_status status = arf_cuda_hold(space, (CUstream)launch->stream, error);
    if (status == ARFUSE_OK)
        status = space->busy == NULL
                     ? arf_cuda_enqueue(space, launch, (CUstream)launch->stream, error)
                     : enqueue_watched(space, launch, (CUstream)launch->stream, error);
    if (entered)
        arf_cuda_leave(device);
    return status;
}

void arf_cuda_abandon(arf_space *base, const arf_launch *launch)
{
    arf_cuda_space *space = (arf_cuda_space *)base;
    space->broken = true;
    if (arf_cuda_enter(device_of(space), NULL) != ARFUSE_OK)
        return; /* a lost context: peers come to their limit */
    tell_peers(space, launch->tokens, (CUstream)launch->stream);
    arf_cuda_leave(device_of(space));
}

arfuse_status arf_cuda_synchronize(arf_space *base, arfuse_stream stream, arf_error *error)
{
    arf_cuda_space *space = (arf_cuda_space *)base;
    ARF_TRY(arf_cuda_enter(device_of(space), error));
    arfuse_status status =
        ARF_CU(&device_of(space)->driver, error, cuStreamSynchronize, (CUstream)stream);
    arf_cuda_leave(device_of(space));
    return status == ARFUSE_OK ? arf_cuda_expired(space, error) : status;
}

bool arf_cuda_capturing(const arf_space *base, arfuse_stream stream)
{
    const arf_cuda_space *space = (const arf_cuda_space *)base;
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (arf_cuda_enter(device_of(space), NULL) != ARFUSE_OK)
        return false;
    device_of(space)->driver.cuStreamIsCapturing((CUstream)stream, &capturing);
    arf_cuda_leave(device_of(space));
    return capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}
