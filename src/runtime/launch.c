/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launch path: no allocation, no lock, no log, no environment. A call enqueues the whole
 * operation or returns an error with nothing enqueued.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/workspace.h"

#define OPERANDS_FIRST_SIZE sizeof(arfuse_operands)
#define CALL_FIRST_SIZE sizeof(arfuse_call)
#define TENSOR_ALIGNMENT 16 /* design section 3: one pack */

arf_service arf_serve(const arfuse_workspace *workspace, arf_pattern pattern, int64_t tokens)
{
    arf_service service = {.route = -1, .plan = workspace->plans[pattern].unfused, .then = -1};
    const arf_profile *profile = workspace->choice.profile;
    /* 0 tokens keep the ranks in step by the route of 1 token. */
    int64_t asked = tokens > 0 ? tokens : 1;
    if (profile == NULL || asked > workspace->options.capacity)
        return service;
    service.route = arf_route_of(&profile->routes[pattern], asked);
    if (service.route < 0)
        return service;
    const arf_plan *plan = &profile->routes[pattern].route[service.route].plan;
    service.plan = workspace->plans[pattern].plan[service.route];
    service.fused = plan->protocol != ARF_UNFUSED;
    if (plan->protocol == ARF_SEPARATE) {
        int then = arf_route_of(&profile->routes[ARF_ALLREDUCE], asked);
        const arf_pattern_plans *plans = &workspace->plans[ARF_ALLREDUCE];
        service.then = then < 0 ? plans->unfused : plans->plan[then];
    }
    return service;
}

/* ---- what a call may pass ------------------------------------------------------------------ */

typedef struct tensor {
    const char *name;
    const void *data;
    int64_t bytes;
} tensor;

static arfuse_status check_tensor(const tensor *given, bool needed, int rank, int alignment,
                                  arf_error *error)
{
    if (given->data == NULL && needed && given->bytes > 0)
        return arf_fail(error, ARFUSE_USAGE, "rank %d: operands.%s is NULL", rank, given->name);
    if ((uintptr_t)given->data % (uintptr_t)alignment != 0)
        return arf_fail(error, ARFUSE_USAGE,
                        "rank %d: operands.%s is %p, expected an address aligned to %d bytes", rank,
                        given->name, given->data, alignment);
    return ARFUSE_OK;
}

static bool overlap(const tensor *a, const tensor *b)
{
    uintptr_t from_a = (uintptr_t)a->data, from_b = (uintptr_t)b->data;
    return a->data != NULL && b->data != NULL && from_a < from_b + (uintptr_t)b->bytes &&
           from_b < from_a + (uintptr_t)a->bytes;
}

/* `same` may be exactly the same tensor; nothing may overlap in part. */
static arfuse_status check_output(const tensor *output, const tensor *input, bool same, int rank,
                                  arf_error *error)
{
    if (!overlap(output, input) || (same && output->data == input->data))
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_USAGE, "rank %d: operands.%s overlaps operands.%s%s", rank,
                    output->name, input->name,
                    same ? " in part; it may be the same tensor or another one" : "");
}

static arfuse_status check_operands(const arfuse_workspace *workspace, arf_pattern pattern,
                                    int64_t tokens, const arfuse_operands *operands, int rank,
                                    arf_error *error)
{
    const arf_shape *shape = &workspace->space->spec.shape;
    bool finalize = pattern == ARF_FINALIZE, norm = shape->rms_norm == ARF_ON;
    int64_t row = (int64_t)shape->hidden_size * 2, rows = tokens * row;
    int64_t slots = tokens * shape->top_k;
    int64_t weight = operands->weights_type == ARFUSE_WEIGHTS_FP32 ? 4 : 2;

    enum { INPUT, ROUTED, WEIGHTS, INDICES, SHARED, RESIDUAL, GAMMA, INPUTS };
    const tensor input[INPUTS] = {
        [INPUT] = {"input", finalize ? NULL : operands->input, rows},
        [ROUTED] = {"routed", finalize ? operands->routed : NULL, operands->routed_rows * row},
        [WEIGHTS] = {"weights", finalize ? operands->weights : NULL, slots * weight},
        [INDICES] = {"indices", finalize ? operands->indices : NULL, slots * 4},
        [SHARED] = {"shared", finalize ? operands->shared : NULL, rows},
        [RESIDUAL] = {"residual", operands->residual, rows},
        [GAMMA] = {"gamma", operands->gamma, norm ? row : 0},
    };
    const bool needed[INPUTS] = {
        [INPUT] = !finalize,
        [ROUTED] = finalize,
        [WEIGHTS] = finalize,
        [INDICES] = finalize,
        [SHARED] = finalize && shape->shared_expert == ARF_ON,
        [RESIDUAL] = shape->residual == ARF_ON,
        [GAMMA] = norm,
    };
    const tensor residual_out = {"residual_out", operands->residual_out, rows};
    const tensor norm_out = {"norm_out", norm ? operands->norm_out : NULL, rows};

    if (finalize && operands->routed_rows < 0)
        return arf_fail(error, ARFUSE_USAGE,
                        "rank %d: operands.routed_rows is %" PRId64 ", expected 0 or more", rank,
                        operands->routed_rows);
    for (int i = 0; i < INPUTS; i++) {
        int alignment = i == WEIGHTS ? (int)weight : i == INDICES ? 4 : TENSOR_ALIGNMENT;
        ARF_TRY(check_tensor(&input[i], needed[i], rank, alignment, error));
    }
    ARF_TRY(check_tensor(&residual_out, !norm, rank, TENSOR_ALIGNMENT, error));
    ARF_TRY(check_tensor(&norm_out, norm, rank, TENSOR_ALIGNMENT, error));
    for (int i = 0; i < INPUTS; i++) {
        ARF_TRY(check_output(&residual_out, &input[i], i == RESIDUAL, rank, error));
        ARF_TRY(check_output(&norm_out, &input[i], i == INPUT, rank, error));
    }
    return check_output(&residual_out, &norm_out, false, rank, error);
}

static arfuse_status check_call(const arfuse_workspace *workspace, arf_pattern pattern,
                                const arfuse_call *call, const arfuse_operands *operands,
                                arf_error *error)
{
    if (call == NULL || operands == NULL)
        return arf_fail(error, ARFUSE_USAGE, "%s is NULL", call == NULL ? "call" : "operands");
    if (call->struct_size < CALL_FIRST_SIZE)
        return arf_fail(error, ARFUSE_USAGE,
                        "call.struct_size is %zu, expected at least %zu; start from "
                        "ARFUSE_CALL_INIT",
                        call->struct_size, (size_t)CALL_FIRST_SIZE);
    if (operands->struct_size < OPERANDS_FIRST_SIZE)
        return arf_fail(error, ARFUSE_USAGE,
                        "operands.struct_size is %zu, expected at least %zu; start from "
                        "ARFUSE_OPERANDS_INIT",
                        operands->struct_size, (size_t)OPERANDS_FIRST_SIZE);
    if (call->tokens < 0 || call->tokens > ARF_MAX_TOKENS)
        return arf_fail(error, ARFUSE_USAGE, "call.tokens is %" PRId64 ", expected 0 to %d",
                        call->tokens, ARF_MAX_TOKENS);
    if (!(call->epsilon >= 0) || !isfinite(call->epsilon) || !isfinite(call->weight_bias) ||
        !isfinite(call->routed_scale))
        return arf_fail(error, ARFUSE_USAGE,
                        "call: epsilon %g, weight_bias %g, routed_scale %g: expected finite numbers"
                        " and epsilon >= 0",
                        (double)call->epsilon, (double)call->weight_bias,
                        (double)call->routed_scale);
    if (pattern == ARF_FINALIZE && workspace->options.top_k == 0)
        return arf_fail(error, ARFUSE_USAGE,
                        "finalize on a workspace of top_k 0; set options.top_k at creation");
    return ARFUSE_OK;
}

/* ---- launching ----------------------------------------------------------------------------- */

/* Moves every operand set of this process on by `tokens` rows. */
static void advance(arfuse_workspace *workspace, int64_t tokens)
{
    const arf_shape *shape = &workspace->space->spec.shape;
    size_t rows = (size_t)tokens * (size_t)shape->hidden_size * 2;
    size_t slots = (size_t)tokens * (size_t)shape->top_k;
    for (int i = 0; i < workspace->team.local_ranks; i++) {
        arfuse_operands *o = &workspace->operands[i];
        size_t weights = slots * (o->weights_type == ARFUSE_WEIGHTS_FP32 ? 4 : 2);
        /* A NULL operand stays NULL: adding to it would make it look given. */
#define MOVE(field, bytes) \
    o->field = o->field == NULL ? NULL : (void *)((uintptr_t)o->field + (bytes))
        MOVE(input, rows);
        MOVE(weights, weights);
        MOVE(indices, slots * 4);
        MOVE(shared, rows);
        MOVE(residual, rows);
        MOVE(residual_out, rows);
        MOVE(norm_out, rows);
#undef MOVE
    }
}

static arfuse_status run(arfuse_workspace *workspace, arf_pattern pattern, const arfuse_call *call,
                         const arfuse_operands *operands, arf_error *error)
{
    arf_error_clear(error);
    if (workspace == NULL)
        return arf_fail(error, ARFUSE_USAGE, "workspace is NULL");
    ARF_TRY(check_call(workspace, pattern, call, operands, error));
    for (int i = 0; i < workspace->team.local_ranks; i++) {
        const arfuse_operands *set =
            (const void *)((const char *)operands + (size_t)i * operands->struct_size);
        memcpy(&workspace->operands[i], set, sizeof *set);
        workspace->operands[i].struct_size = sizeof(arfuse_operands);
        ARF_TRY(check_operands(workspace, pattern, call->tokens, set,
                               workspace->team.first_rank + i, error));
    }
    arf_service service = arf_serve(workspace, pattern, call->tokens);
    if (!service.fused && workspace->options.fallback == ARFUSE_FALLBACK_ERROR)
        return arf_fail(error, ARFUSE_NOT_SERVED,
                        "%s of %" PRId64 " tokens has no fused route, and options.fallback asks for"
                        " an error",
                        arf_pattern_name(pattern), call->tokens);
    arf_launch launch = {
        .pattern = pattern,
        .plan = service.plan,
        .then = service.then,
        .operands = workspace->operands,
        .epsilon = call->epsilon,
        .weight_bias = call->weight_bias,
        .routed_scale = call->routed_scale,
        .stream = call->stream,
    };
    int64_t left = call->tokens;
    do {
        launch.tokens = left < workspace->chunk ? left : workspace->chunk;
        ARF_TRY(workspace->device->ops->launch(workspace->space, &launch, error));
        advance(workspace, launch.tokens);
        left -= launch.tokens;
    } while (left > 0);
    return ARFUSE_OK;
}

arfuse_status arfuse_allreduce(arfuse_workspace *workspace, const arfuse_call *call,
                               const arfuse_operands *operands, arfuse_error *error)
{
    return run(workspace, ARF_ALLREDUCE, call, operands, error);
}

arfuse_status arfuse_finalize(arfuse_workspace *workspace, const arfuse_call *call,
                              const arfuse_operands *operands, arfuse_error *error)
{
    return run(workspace, ARF_FINALIZE, call, operands, error);
}
