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

arfuse_status arf_check_stream(const arfuse_workspace *workspace, const char *name,
                               arfuse_stream stream, arf_error *error)
{
    if (stream == NULL || workspace->device->ops->capturing != NULL)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_USAGE, "%s is %p, expected NULL: device %s has no streams", name,
                    (void *)stream, workspace->device->ops->name);
}

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
    ARF_TRY(arf_check_stream(workspace, "call.stream", call->stream, error));
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

/* Asked once a call: the compiler cannot know that what is written changes no shape. */
typedef struct has {
    bool shared, residual, norm;
} has;

/* Field by field, here and where kernels get them: a struct of this size that is cleared first is
 * cleared by a string instruction, which takes longer than all the rest of it. */
static void take_producer(has shape, arf_pattern pattern, const arfuse_operands *from,
                          arfuse_operands *to)
{
    const bool finalize = pattern == ARF_FINALIZE;
    to->struct_size = sizeof *to;
    to->input = finalize ? NULL : from->input;
    to->routed = finalize ? from->routed : NULL;
    to->routed_rows = finalize ? from->routed_rows : 0;
    to->weights = finalize ? from->weights : NULL;
    to->weights_type = finalize ? from->weights_type : ARFUSE_WEIGHTS_BF16;
    to->indices = finalize ? from->indices : NULL;
    to->shared = finalize && shape.shared ? from->shared : NULL;
    to->residual = to->gamma = NULL;
    to->residual_out = to->norm_out = NULL;
}

static void take_consumer(has shape, const arfuse_operands *from, arfuse_operands *to)
{
    to->residual = shape.residual ? from->residual : NULL;
    to->gamma = shape.norm ? from->gamma : NULL;
    to->norm_out = shape.norm ? from->norm_out : NULL;
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
    const arf_shape *of = &workspace->space->spec.shape;
    const has shape = {of->shared_expert == ARF_ON, of->residual == ARF_ON, of->rms_norm == ARF_ON};
    const size_t step = from->struct_size;
    const int ranks = workspace->team.local_ranks;
    const arfuse_operands *set = from;
    for (int i = 0; i < ranks; i++) {
        if (set->struct_size != step)
            return arf_fail(error, ARFUSE_USAGE,
                            "operands[%d].struct_size is %zu, that of operands[0] %zu; pass one "
                            "element for each of %d local ranks",
                            i, set->struct_size, step, ranks);
        if (half & ARF_PRODUCER)
            take_producer(shape, pattern, set, &to[i]);
        if (half & ARF_CONSUMER)
            take_consumer(shape, set, &to[i]);
        set = (const void *)((const char *)set + step);
    }
    return ARFUSE_OK;
}

/* ---- checking -------------------------------------------------------------------------------- */

enum { MOST_TENSORS = 9 };

/* What a call asks of a tensor that it looks at. */
typedef struct tensor {
    const char *name;
    size_t offset;       /* of its address in arfuse_operands */
    uintptr_t bytes;     /* 1 or more */
    uintptr_t unaligned; /* bits that an address must not have */
    uintptr_t least;     /* address: 1 where it is needed, and NULL is below */
    bool same[2];        /* an input: may be exactly the same as each of the outputs */
} tensor;

/* Every launch looks at the tensors of every rank it hosts, so what is the same for all ranks is
 * worked out once. Inputs come first, then residual_out and, where there is a norm, norm_out. */
typedef struct demand {
    tensor of[MOST_TENSORS];
    int count, inputs;
} demand;

static tensor *ask(demand *call, const char *name, size_t offset, int64_t bytes, int alignment)
{
    tensor *t = &call->of[call->count];
    *t = (tensor){.name = name,
                  .offset = offset,
                  .bytes = (uintptr_t)bytes,
                  .unaligned = (uintptr_t)alignment - 1,
                  .least = 1};
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
    ASK(call, residual_out, rows, TENSOR_ALIGNMENT)->least = !norm;
    ASK(call, norm_out, norm ? rows : 0, TENSOR_ALIGNMENT);
}

static uintptr_t address_of(const arfuse_operands *set, const tensor *t)
{
    const void *data;
    memcpy(&data, (const char *)set + t->offset, sizeof data);
    return (uintptr_t)data;
}

/* One comparison, modulo 2^64: the distance lies in (-bytes of a, bytes of b). */
static bool overlap(uintptr_t a, uintptr_t a_bytes, uintptr_t b, uintptr_t b_bytes)
{
    return a + (a_bytes - 1) - b < a_bytes + b_bytes - 1;
}

/* Nearly always nothing is wrong with the tensors of a rank. False: look closer. NULL is far from
 * every tensor, or is taken for a neighbour here and looked at again. */
static bool is_clean(const demand *call, const arfuse_operands *set)
{
    const tensor *out = &call->of[call->inputs];
    const bool norm = call->count - call->inputs == 2;
    const uintptr_t rows = out[0].bytes;
    const uintptr_t x = address_of(set, &out[0]), y = norm ? address_of(set, &out[1]) : 0;
    if (((x | y) & out[0].unaligned) != 0 || x < out[0].least || (norm && y < out[1].least) ||
        overlap(x, rows, y, rows))
        return false;
    for (const tensor *t = call->of; t < out; t++) {
        const uintptr_t at = address_of(set, t);
        if ((at & t->unaligned) != 0 || at < t->least ||
            (overlap(at, t->bytes, x, rows) && !(t->same[0] && at == x)) ||
            (overlap(at, t->bytes, y, rows) && !(t->same[1] && at == y)))
            return false;
    }
    return true;
}

/* `out` may be exactly the tensor `t`; nothing may overlap in part. */
static bool may_be_same(const demand *call, int out, int t)
{
    return t < call->inputs && call->of[t].same[out - call->inputs];
}

/* What is wrong with the tensors of a rank, in words. */
static arfuse_status name_fault(const demand *call, const arfuse_operands *set, int rank,
                                arf_error *error)
{
    uintptr_t at[MOST_TENSORS];
    for (int i = 0; i < call->count; i++) {
        const tensor *t = &call->of[i];
        at[i] = address_of(set, t);
        if (at[i] < t->least)
            return arf_fail(error, ARFUSE_USAGE, "rank %d: operands.%s is NULL", rank, t->name);
        if ((at[i] & t->unaligned) != 0)
            return arf_fail(error, ARFUSE_USAGE,
                            "rank %d: operands.%s is %p, expected an address aligned to %d bytes",
                            rank, t->name, (void *)at[i], (int)t->unaligned + 1);
    }
    for (int i = 0; i < call->count; i++)
        for (int out = i < call->inputs ? call->inputs : i + 1; out < call->count; out++) {
            const bool same = may_be_same(call, out, i);
            if (at[i] != 0 && at[out] != 0 && !(same && at[i] == at[out]) &&
                overlap(at[i], call->of[i].bytes, at[out], call->of[out].bytes))
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
    const int ranks = workspace->team.local_ranks, first = workspace->team.first_rank;
    demand call;
    for (int i = 0; i < ranks; i++) {
        const arfuse_operands *set = &workspace->operands[i];
        if (i == 0 || set->routed_rows != set[-1].routed_rows ||
            set->weights_type != set[-1].weights_type) {
            ARF_TRY(check_numbers(set, first + i, error));
            make_demand(workspace, pattern, tokens, sum_alone, set, &call);
        }
        if (call.count > 0 && !is_clean(&call, set))
            ARF_TRY(name_fault(&call, set, first + i, error));
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
