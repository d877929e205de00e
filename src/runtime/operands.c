/* SPDX-License-Identifier: Apache-2.0 */
/* What a call may pass: everything that would go wrong on the device is refused here. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
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
    if (call->site != ARFUSE_SITE_NONE && workspace->sites.count == 0)
        return arf_fail(error, ARFUSE_USAGE,
                        "call.site is %d, expected ARFUSE_SITE_NONE (-1): options.sites names none",
                        call->site);
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

enum { MOST_TENSORS = 9 };

/* What a call asks of a tensor that it looks at. */
typedef struct tensor {
    const char *name;
    size_t offset; /* of its address in arfuse_operands */
    int64_t bytes;
    uintptr_t unaligned; /* bits that an address must not have */
    bool needed;
    bool same[2]; /* an input: may be exactly the same as each of the outputs */
} tensor;

/* Every launch looks at the tensors of every rank it hosts, so what is the same for all ranks is
 * worked out once. Inputs come first, then one or two outputs. */
typedef struct demand {
    tensor of[MOST_TENSORS];
    int count, inputs;
} demand;

/* Where a rank's tensors are; one that is NULL is empty, so it overlaps nothing. */
typedef struct places {
    uintptr_t begin[MOST_TENSORS], end[MOST_TENSORS];
} places;

static tensor *ask(demand *call, const char *name, size_t offset, int64_t bytes, int alignment)
{
    tensor *t = &call->of[call->count];
    *t = (tensor){.name = name,
                  .offset = offset,
                  .bytes = bytes,
                  .unaligned = (uintptr_t)alignment - 1,
                  .needed = true};
    call->count += bytes > 0; /* else not looked at, and the next one takes its place */
    return t;
}
#define ASK(call, field, bytes, alignment) \
    ask(call, #field, offsetof(arfuse_operands, field), bytes, alignment)

static void make_demand(const arfuse_workspace *workspace, arf_pattern pattern, int64_t tokens,
                        bool sum_alone, const arfuse_operands *set, demand *call)
{
    const arf_shape *shape = &workspace->space->spec.shape;
    const bool norm = shape->rms_norm == ARF_ON && !sum_alone;
    const int64_t row = tokens > 0 ? (int64_t)shape->hidden_size * 2 : 0, rows = tokens * row;
    const int64_t slots = tokens * shape->top_k;
    const int weight = set->weights_type == ARFUSE_WEIGHTS_FP32 ? 4 : 2;
    call->count = 0;
    if (pattern == ARF_ALLREDUCE) {
        tensor *input = ASK(call, input, rows, TENSOR_ALIGNMENT);
        input->same[0] = sum_alone;
        input->same[1] = true;
    } else {
        ASK(call, routed, set->routed_rows * row, TENSOR_ALIGNMENT);
        ASK(call, weights, slots * weight, weight);
        ASK(call, indices, slots * 4, 4);
        ASK(call, shared, shape->shared_expert == ARF_ON ? rows : 0, TENSOR_ALIGNMENT);
    }
    tensor *residual =
        ASK(call, residual, shape->residual == ARF_ON && !sum_alone ? rows : 0, TENSOR_ALIGNMENT);
    residual->same[0] = true;
    ASK(call, gamma, norm ? row : 0, TENSOR_ALIGNMENT);
    call->inputs = call->count;
    /* Without the norm the sum is all that there is. */
    ASK(call, residual_out, rows, TENSOR_ALIGNMENT)->needed = !norm;
    ASK(call, norm_out, norm ? rows : 0, TENSOR_ALIGNMENT);
}

static bool overlap(const places *at, int a, int b)
{
    return (at->begin[a] < at->end[b]) & (at->begin[b] < at->end[a]);
}

/* `out` may be exactly the tensor `t`; nothing may overlap in part. */
static bool may_be_same(const demand *call, int out, int t)
{
    return t < call->inputs && call->of[t].same[out - call->inputs];
}

/* Finds the tensors of a rank. Nearly always nothing is wrong with them. */
static bool is_clean(const demand *call, const arfuse_operands *set, places *at)
{
    bool wrong = false;
    for (int i = 0; i < call->count; i++) {
        const tensor *t = &call->of[i];
        const void *data;
        memcpy(&data, (const char *)set + t->offset, sizeof data);
        const uintptr_t begin = (uintptr_t)data;
        at->begin[i] = begin;
        at->end[i] = begin != 0 ? begin + (uintptr_t)t->bytes : 0;
        wrong |= ((begin & t->unaligned) != 0) | ((begin == 0) & t->needed);
    }
    for (int out = call->inputs; out < call->count; out++) {
        const uintptr_t begin = at->begin[out], end = at->end[out];
        for (int i = 0; i < out; i++)
            if (begin < at->end[i] && at->begin[i] < end)
                wrong |= !may_be_same(call, out, i) || begin != at->begin[i];
    }
    return !wrong;
}

/* What is wrong with the tensors of a rank, in words. */
static arfuse_status name_fault(const demand *call, const places *at, int rank, arf_error *error)
{
    for (int i = 0; i < call->count; i++) {
        const tensor *t = &call->of[i];
        if (at->begin[i] == 0 && t->needed)
            return arf_fail(error, ARFUSE_USAGE, "rank %d: operands.%s is NULL", rank, t->name);
        if ((at->begin[i] & t->unaligned) != 0)
            return arf_fail(error, ARFUSE_USAGE,
                            "rank %d: operands.%s is %p, expected an address aligned to %d bytes",
                            rank, t->name, (void *)at->begin[i], (int)t->unaligned + 1);
    }
    for (int i = 0; i < call->count; i++)
        for (int out = i < call->inputs ? call->inputs : i + 1; out < call->count; out++) {
            const bool same = may_be_same(call, out, i);
            if (overlap(at, out, i) && !(same && at->begin[out] == at->begin[i]))
                return arf_fail(error, ARFUSE_USAGE, "rank %d: operands.%s overlaps operands.%s%s",
                                rank, call->of[out].name, call->of[i].name,
                                same ? " in part; it may be the same tensor or another one" : "");
        }
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
    demand call;
    for (int i = 0; i < workspace->team.local_ranks; i++) {
        const arfuse_operands *set = &workspace->operands[i], *before = i > 0 ? set - 1 : NULL;
        const int rank = workspace->team.first_rank + i;
        places at;
        ARF_TRY(check_numbers(set, rank, error));
        if (before == NULL || set->routed_rows != before->routed_rows ||
            set->weights_type != before->weights_type)
            make_demand(workspace, pattern, tokens, sum_alone, set, &call);
        if (!is_clean(&call, set, &at))
            ARF_TRY(name_fault(&call, &at, rank, error));
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
