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

enum { INPUT, ROUTED, WEIGHTS, INDICES, SHARED, RESIDUAL, GAMMA, RESIDUAL_OUT, NORM_OUT, TENSORS };
enum { OUTPUTS = RESIDUAL_OUT }; /* from here on */
static const char *const name_of[TENSORS] = {"input",   "routed",       "weights",
                                             "indices", "shared",       "residual",
                                             "gamma",   "residual_out", "norm_out"};

/* What a call asks of each tensor. Every launch looks at those of every rank it hosts, so what is
 * the same for all ranks is worked out once, and only tensors that the call has are looked at. */
typedef struct demand {
    int64_t bytes[TENSORS];
    uintptr_t unaligned[TENSORS];  /* bits that an address must not have */
    int looked_at[TENSORS], count; /* those of bytes > 0, in order */
    bool sum_alone, norm_needed;
} demand;

/* Where a rank's tensors are; one that is NULL is empty, so it overlaps nothing. */
typedef struct places {
    uintptr_t begin[TENSORS], end[TENSORS];
} places;

static void make_demand(const arfuse_workspace *workspace, arf_pattern pattern, int64_t tokens,
                        bool sum_alone, const arfuse_operands *set, demand *call)
{
    const arf_shape *shape = &workspace->space->spec.shape;
    const bool finalize = pattern == ARF_FINALIZE;
    const bool norm = shape->rms_norm == ARF_ON && !sum_alone;
    const bool residual = shape->residual == ARF_ON && !sum_alone;
    const int64_t row = tokens > 0 ? (int64_t)shape->hidden_size * 2 : 0, rows = tokens * row;
    const int64_t slots = finalize ? tokens * shape->top_k : 0;
    const int weight = set->weights_type == ARFUSE_WEIGHTS_FP32 ? 4 : 2;
    *call = (demand){
        .bytes = {[INPUT] = finalize ? 0 : rows,
                  [ROUTED] = finalize ? set->routed_rows * row : 0,
                  [WEIGHTS] = slots * weight,
                  [INDICES] = slots * 4,
                  [SHARED] = finalize && shape->shared_expert == ARF_ON ? rows : 0,
                  [RESIDUAL] = residual ? rows : 0,
                  [GAMMA] = norm ? row : 0,
                  [RESIDUAL_OUT] = rows,
                  [NORM_OUT] = norm ? rows : 0},
        .sum_alone = sum_alone,
        .norm_needed = norm,
    };
    for (int t = 0; t < TENSORS; t++) {
        call->unaligned[t] = TENSOR_ALIGNMENT - 1;
        if (call->bytes[t] > 0)
            call->looked_at[call->count++] = t;
    }
    call->unaligned[INDICES] = 4 - 1;
    call->unaligned[WEIGHTS] = (uintptr_t)weight - 1;
}

static void look_at(const arfuse_operands *set, const demand *call, places *at)
{
    const void *const data[TENSORS] = {
        [INPUT] = set->input,       [ROUTED] = set->routed,
        [WEIGHTS] = set->weights,   [INDICES] = set->indices,
        [SHARED] = set->shared,     [RESIDUAL] = set->residual,
        [GAMMA] = set->gamma,       [RESIDUAL_OUT] = set->residual_out,
        [NORM_OUT] = set->norm_out,
    };
    for (int i = 0; i < call->count; i++) {
        const int t = call->looked_at[i];
        at->begin[t] = (uintptr_t)data[t];
        at->end[t] = data[t] != NULL ? (uintptr_t)data[t] + (uintptr_t)call->bytes[t] : 0;
    }
}

/* Without the norm the sum is all that there is. */
static bool is_needed(const demand *call, int t)
{
    return t != RESIDUAL_OUT || !call->norm_needed;
}

/* `out` may be exactly the same tensor as `t`; nothing may overlap in part. */
static bool may_be_same(const demand *call, int out, int t)
{
    return out == RESIDUAL_OUT ? t == RESIDUAL || (t == INPUT && call->sum_alone)
                               : out == NORM_OUT && t == INPUT;
}

static arfuse_status check_overlap(const demand *call, const places *at, int out, int t, int rank,
                                   arf_error *error)
{
    if (at->begin[out] >= at->end[t] || at->begin[t] >= at->end[out])
        return ARFUSE_OK;
    const bool same = may_be_same(call, out, t);
    if (same && at->begin[out] == at->begin[t])
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_USAGE, "rank %d: operands.%s overlaps operands.%s%s", rank,
                    name_of[out], name_of[t],
                    same ? " in part; it may be the same tensor or another one" : "");
}

static arfuse_status check_tensors(const demand *call, const places *at, int rank, arf_error *error)
{
    for (int i = 0; i < call->count; i++) {
        const int t = call->looked_at[i];
        if (at->begin[t] == 0 && is_needed(call, t))
            return arf_fail(error, ARFUSE_USAGE, "rank %d: operands.%s is NULL", rank, name_of[t]);
        if ((at->begin[t] & call->unaligned[t]) != 0)
            return arf_fail(error, ARFUSE_USAGE,
                            "rank %d: operands.%s is %p, expected an address aligned to %d bytes",
                            rank, name_of[t], (void *)at->begin[t], (int)call->unaligned[t] + 1);
    }
    for (int i = 0; i < call->count; i++)
        for (int j = i + 1; j < call->count; j++)
            if (call->looked_at[j] >= OUTPUTS)
                ARF_TRY(
                    check_overlap(call, at, call->looked_at[j], call->looked_at[i], rank, error));
    return ARFUSE_OK;
}

static arfuse_status check_numbers(const arfuse_operands *set, int rank, arf_error *error)
{
    if (set->weights_type != ARFUSE_WEIGHTS_BF16 && set->weights_type != ARFUSE_WEIGHTS_FP32)
        return arf_fail(error, ARFUSE_USAGE,
                        "rank %d: operands.weights_type is %d, expected ARFUSE_WEIGHTS_BF16 or "
                        "ARFUSE_WEIGHTS_FP32",
                        rank, (int)set->weights_type);
    if (set->routed_rows < 0 || set->routed_rows > INT32_MAX)
        return arf_fail(error, ARFUSE_USAGE,
                        "rank %d: operands.routed_rows is %" PRId64 ", expected 0 to %d", rank,
                        set->routed_rows, INT32_MAX);
    return ARFUSE_OK;
}

arfuse_status arf_check_operands(const arfuse_workspace *workspace, arf_pattern pattern,
                                 int64_t tokens, bool sum_alone, arf_error *error)
{
    demand call = {0};
    for (int i = 0; i < workspace->team.local_ranks; i++) {
        const arfuse_operands *set = &workspace->operands[i], *before = i > 0 ? set - 1 : NULL;
        const int rank = workspace->team.first_rank + i;
        places at;
        ARF_TRY(check_numbers(set, rank, error));
        if (before == NULL || set->routed_rows != before->routed_rows ||
            set->weights_type != before->weights_type)
            make_demand(workspace, pattern, tokens, sum_alone, set, &call);
        look_at(set, &call, &at);
        ARF_TRY(check_tensors(&call, &at, rank, error));
    }
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
