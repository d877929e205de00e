/* SPDX-License-Identifier: Apache-2.0 */
/* What a call may pass: everything that would go wrong on the device is refused here. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/workspace.h"

/* The first structs of the library; a caller built against it passes these sizes or larger ones. */
#define OPERANDS_FIRST_SIZE sizeof(arfuse_operands)
#define CALL_FIRST_SIZE sizeof(arfuse_call)
#define TENSOR_ALIGNMENT 16 /* design section 3: one pack */

/* ---- the call -------------------------------------------------------------------------------- */

static arfuse_status check_choices(const arfuse_workspace *workspace, arf_pattern pattern,
                                   const arfuse_call *call, arf_error *error)
{
    const arf_routes *routes = arf_routes_of(workspace, pattern);
    int count = routes == NULL ? 0 : routes->count;
    if (call->site < ARFUSE_SITE_NONE || call->site >= workspace->sites.count)
        return arf_fail(error, ARFUSE_USAGE,
                        "call.site is %d, expected ARFUSE_SITE_NONE (-1) or an index below %d, the "
                        "sites of this workspace",
                        call->site, workspace->sites.count);
    if (call->route < ARFUSE_ROUTE_UNFUSED || call->route >= count)
        return arf_fail(error, ARFUSE_USAGE,
                        "call.route is %d, expected ARFUSE_ROUTE_AUTO (-1), ARFUSE_ROUTE_UNFUSED "
                        "(-2) or an index below %d, the routes of %s",
                        call->route, count, arf_pattern_name(pattern));
    if ((int)call->fallback < ARFUSE_FALLBACK_AUTO || call->fallback > ARFUSE_FALLBACK_ERROR)
        return arf_fail(error, ARFUSE_USAGE, "call.fallback is %d, expected 0 to %d",
                        (int)call->fallback, ARFUSE_FALLBACK_ERROR);
    if (workspace->has_stream && call->stream != workspace->stream)
        return arf_fail(error, ARFUSE_USAGE,
                        "call.stream is %p, but this workspace works on stream %p; order the two "
                        "and say so with arfuse_workspace_use_stream",
                        (void *)call->stream, (void *)workspace->stream);
    return ARFUSE_OK;
}

arfuse_status arf_check_call(const arfuse_workspace *workspace, arf_pattern pattern,
                             const arfuse_call *call, arf_error *error)
{
    if (call == NULL)
        return arf_fail(error, ARFUSE_USAGE, "call is NULL");
    if (call->struct_size < CALL_FIRST_SIZE)
        return arf_fail(error, ARFUSE_USAGE,
                        "call.struct_size is %zu, expected at least %zu; start from "
                        "ARFUSE_CALL_INIT",
                        call->struct_size, (size_t)CALL_FIRST_SIZE);
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
    return check_choices(workspace, pattern, call, error);
}

/* ---- taking ---------------------------------------------------------------------------------- */

static void take_producer(const arf_shape *shape, arf_pattern pattern, const arfuse_operands *from,
                          arfuse_operands *to)
{
    if (pattern == ARF_ALLREDUCE) {
        to->input = from->input;
        return;
    }
    to->routed = from->routed;
    to->routed_rows = from->routed_rows;
    to->weights = from->weights;
    to->weights_type = from->weights_type;
    to->indices = from->indices;
    to->shared = shape->shared_expert == ARF_ON ? from->shared : NULL;
}

static void take_consumer(const arf_shape *shape, const arfuse_operands *from, arfuse_operands *to)
{
    to->residual = shape->residual == ARF_ON ? from->residual : NULL;
    to->gamma = shape->rms_norm == ARF_ON ? from->gamma : NULL;
    to->norm_out = shape->rms_norm == ARF_ON ? from->norm_out : NULL;
    to->residual_out = from->residual_out;
}

arfuse_status arf_take_operands(const arfuse_workspace *workspace, arf_pattern pattern,
                                arf_half half, const arfuse_operands *from, arfuse_operands *to,
                                arf_error *error)
{
    if (from == NULL)
        return arf_fail(error, ARFUSE_USAGE, "operands is NULL");
    if (from->struct_size < OPERANDS_FIRST_SIZE)
        return arf_fail(error, ARFUSE_USAGE,
                        "operands.struct_size is %zu, expected at least %zu; start from "
                        "ARFUSE_OPERANDS_INIT",
                        from->struct_size, (size_t)OPERANDS_FIRST_SIZE);
    const size_t step = from->struct_size;
    for (int i = 0; i < workspace->team.local_ranks; i++) {
        const arfuse_operands *set = (const void *)((const char *)from + (size_t)i * step);
        if (set->struct_size != step)
            return arf_fail(error, ARFUSE_USAGE,
                            "operands[%d].struct_size is %zu, that of operands[0] %zu; pass one "
                            "element for each of %d local ranks",
                            i, set->struct_size, step, workspace->team.local_ranks);
        if (half & ARF_PRODUCER) {
            to[i] = (arfuse_operands)ARFUSE_OPERANDS_INIT;
            take_producer(&workspace->space->spec.shape, pattern, set, &to[i]);
        }
        if (half & ARF_CONSUMER)
            take_consumer(&workspace->space->spec.shape, set, &to[i]);
    }
    return ARFUSE_OK;
}

/* ---- checking -------------------------------------------------------------------------------- */

typedef struct tensor {
    const char *name;
    const void *data;
    int64_t bytes; /* 0: not looked at */
    int alignment;
    bool needed;
} tensor;

static arfuse_status check_tensor(const tensor *given, int rank, arf_error *error)
{
    if (given->bytes == 0)
        return ARFUSE_OK;
    if (given->data == NULL && given->needed)
        return arf_fail(error, ARFUSE_USAGE, "rank %d: operands.%s is NULL", rank, given->name);
    if ((uintptr_t)given->data % (uintptr_t)given->alignment != 0)
        return arf_fail(error, ARFUSE_USAGE,
                        "rank %d: operands.%s is %p, expected an address aligned to %d bytes", rank,
                        given->name, given->data, given->alignment);
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

static arfuse_status check_set(const arfuse_workspace *workspace, arf_pattern pattern,
                               int64_t tokens, bool sum_alone, const arfuse_operands *set, int rank,
                               arf_error *error)
{
    const arf_shape *shape = &workspace->space->spec.shape;
    const bool finalize = pattern == ARF_FINALIZE;
    const bool norm = shape->rms_norm == ARF_ON && !sum_alone;
    const bool residual = shape->residual == ARF_ON && !sum_alone;
    const int64_t row = (int64_t)shape->hidden_size * 2, rows = tokens * row;
    const int64_t slots = tokens * shape->top_k;
    const int weight = set->weights_type == ARFUSE_WEIGHTS_FP32 ? 4 : 2;

    if (set->weights_type != ARFUSE_WEIGHTS_BF16 && set->weights_type != ARFUSE_WEIGHTS_FP32)
        return arf_fail(error, ARFUSE_USAGE,
                        "rank %d: operands.weights_type is %d, expected ARFUSE_WEIGHTS_BF16 or "
                        "ARFUSE_WEIGHTS_FP32",
                        rank, (int)set->weights_type);
    if (set->routed_rows < 0 || set->routed_rows > INT32_MAX)
        return arf_fail(error, ARFUSE_USAGE,
                        "rank %d: operands.routed_rows is %" PRId64 ", expected 0 to %d", rank,
                        set->routed_rows, INT32_MAX);

    enum { INPUT, ROUTED, WEIGHTS, INDICES, SHARED, RESIDUAL, GAMMA, INPUTS };
    const tensor input[INPUTS] = {
        [INPUT] = {"input", set->input, finalize ? 0 : rows, TENSOR_ALIGNMENT, true},
        [ROUTED] = {"routed", set->routed, finalize && tokens > 0 ? set->routed_rows * row : 0,
                    TENSOR_ALIGNMENT, true},
        [WEIGHTS] = {"weights", set->weights, finalize ? slots * weight : 0, weight, true},
        [INDICES] = {"indices", set->indices, finalize ? slots * 4 : 0, 4, true},
        [SHARED] = {"shared", set->shared, finalize && shape->shared_expert == ARF_ON ? rows : 0,
                    TENSOR_ALIGNMENT, true},
        [RESIDUAL] = {"residual", set->residual, residual ? rows : 0, TENSOR_ALIGNMENT, true},
        [GAMMA] = {"gamma", set->gamma, norm && tokens > 0 ? row : 0, TENSOR_ALIGNMENT, true},
    };
    const tensor residual_out = {"residual_out", set->residual_out, rows, TENSOR_ALIGNMENT, !norm};
    const tensor norm_out = {"norm_out", set->norm_out, norm ? rows : 0, TENSOR_ALIGNMENT, true};

    for (int i = 0; i < INPUTS; i++)
        ARF_TRY(check_tensor(&input[i], rank, error));
    ARF_TRY(check_tensor(&residual_out, rank, error));
    ARF_TRY(check_tensor(&norm_out, rank, error));
    for (int i = 0; i < INPUTS; i++) {
        bool same = i == RESIDUAL || (sum_alone && i == INPUT);
        ARF_TRY(check_output(&residual_out, &input[i], same, rank, error));
        ARF_TRY(check_output(&norm_out, &input[i], i == INPUT, rank, error));
    }
    return check_output(&residual_out, &norm_out, false, rank, error);
}

arfuse_status arf_check_operands(const arfuse_workspace *workspace, arf_pattern pattern,
                                 int64_t tokens, bool sum_alone, arf_error *error)
{
    for (int i = 0; i < workspace->team.local_ranks; i++)
        ARF_TRY(check_set(workspace, pattern, tokens, sum_alone, &workspace->operands[i],
                          workspace->team.first_rank + i, error));
    return ARFUSE_OK;
}

/* ---- moving on ------------------------------------------------------------------------------- */

void arf_advance_operands(arfuse_workspace *workspace, int64_t tokens, bool sum_alone)
{
    const arf_shape *shape = &workspace->space->spec.shape;
    const size_t rows = (size_t)tokens * (size_t)shape->hidden_size * 2;
    const size_t slots = (size_t)tokens * (size_t)shape->top_k;
    for (int i = 0; i < workspace->team.local_ranks; i++) {
        arfuse_operands *o = &workspace->operands[i];
        const size_t weights = slots * (o->weights_type == ARFUSE_WEIGHTS_FP32 ? 4 : 2);
        /* A NULL operand stays NULL: adding to it would make it look given. */
#define MOVE(field, bytes) \
    o->field = o->field == NULL ? NULL : (void *)((uintptr_t)o->field + (bytes))
        MOVE(input, rows);
        MOVE(weights, weights);
        MOVE(indices, slots * 4);
        MOVE(shared, rows);
        MOVE(residual_out, rows);
        MOVE(residual, sum_alone ? 0 : rows);
        MOVE(norm_out, sum_alone ? 0 : rows);
#undef MOVE
    }
}
