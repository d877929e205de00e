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

/* Bytes of each tensor of a rank that a call looks at; 0: it does not. */
typedef struct extents {
    uintptr_t input, routed, weights, indices, shared, residual, gamma, residual_out, norm_out;
    uintptr_t weight; /* of one of them */
    bool sum_alone;
} extents;

/*
 * The rules, once for looking (is_clean, on every launch) and once for naming what is wrong:
 * X(input, its alignment, may it be exactly residual_out, may it be exactly norm_out).
 */
#define INPUTS_OF_ALLREDUCE(X) X(input, TENSOR_ALIGNMENT, call->sum_alone, true)
#define INPUTS_OF_FINALIZE(X)                 \
    X(routed, TENSOR_ALIGNMENT, false, false) \
    X(weights, call->weight, false, false)    \
    X(indices, sizeof(int32_t), false, false) \
    X(shared, TENSOR_ALIGNMENT, false, false)
#define INPUTS_OF_BOTH(X)                      \
    X(residual, TENSOR_ALIGNMENT, true, false) \
    X(gamma, TENSOR_ALIGNMENT, false, false)

static extents measure(const arfuse_workspace *workspace, arf_pattern pattern, int64_t tokens,
                       bool sum_alone, const arfuse_operands *set)
{
    const arf_shape *shape = &workspace->space->spec.shape;
    const bool finalize = pattern == ARF_FINALIZE;
    const bool norm = shape->rms_norm == ARF_ON && !sum_alone;
    const uintptr_t row = tokens > 0 ? (uintptr_t)shape->hidden_size * 2 : 0;
    const uintptr_t rows = (uintptr_t)tokens * row;
    const uintptr_t slots = (uintptr_t)tokens * (uintptr_t)shape->top_k;
    const uintptr_t weight = set->weights_type == ARFUSE_WEIGHTS_FP32 ? 4 : 2;
    return (extents){
        .input = finalize ? 0 : rows,
        .routed = finalize ? (uintptr_t)set->routed_rows * row : 0,
        .weights = finalize ? slots * weight : 0,
        .indices = finalize ? slots * sizeof(int32_t) : 0,
        .shared = finalize && shape->shared_expert == ARF_ON ? rows : 0,
        .residual = shape->residual == ARF_ON && !sum_alone ? rows : 0,
        .gamma = norm ? row : 0,
        .residual_out = rows,
        .norm_out = norm ? rows : 0,
        .weight = weight,
        .sum_alone = sum_alone,
    };
}

/* One comparison, modulo 2^64: the distance lies in (-bytes of a, bytes of b). */
static bool overlap(uintptr_t a, uintptr_t a_bytes, uintptr_t b, uintptr_t b_bytes)
{
    return a + (a_bytes - 1) - b < a_bytes + b_bytes - 1;
}

/* Of an input at `at`, beside outputs of `rows` bytes at x and y. */
static inline bool is_fine(uintptr_t at, uintptr_t bytes, uintptr_t alignment, bool same_x,
                           bool same_y, uintptr_t x, uintptr_t y, uintptr_t rows)
{
    return (at & (alignment - 1)) == 0 && (at != 0 || bytes == 0) &&
           (!overlap(at, bytes, x, rows) || (same_x && at == x)) &&
           (!overlap(at, bytes, y, rows) || (same_y && at == y));
}

/*
 * Nearly always nothing is wrong with the tensors of a rank. False: look closer. What a call does
 * not look at is NULL here as a rule, far from every tensor; where it is not, that is found closer.
 */
static bool is_clean(const extents *call, arf_pattern pattern, const arfuse_operands *set)
{
    const uintptr_t rows = call->residual_out;
    const uintptr_t x = (uintptr_t)set->residual_out, y = (uintptr_t)set->norm_out;
#define IS_FINE(field, alignment, same_x, same_y) \
    is_fine((uintptr_t)set->field, call->field, alignment, same_x, same_y, x, y, rows) &&
    if (((x | y) & (TENSOR_ALIGNMENT - 1)) != 0 || (call->norm_out > 0 ? y : x) == 0 ||
        overlap(x, rows, y, rows) || !(INPUTS_OF_BOTH(IS_FINE) true))
        return false;
    return pattern == ARF_ALLREDUCE ? INPUTS_OF_ALLREDUCE(IS_FINE) true
                                    : INPUTS_OF_FINALIZE(IS_FINE) true;
#undef IS_FINE
}

typedef struct tensor {
    const char *name;
    uintptr_t at, bytes, alignment;
    bool optional;
    bool same[2]; /* an input: may be exactly the same as each of the outputs */
} tensor;

/* A rank's tensors that a call looks at: inputs, then residual_out and norm_out. */
enum { MOST_INPUTS = 6 };
typedef struct listing {
    tensor of[MOST_INPUTS + 2];
    int count, inputs;
} listing;

static void list(const extents *call, arf_pattern pattern, const arfuse_operands *set,
                 listing *tensors)
{
    *tensors = (listing){0};
#define LIST(field, aligned, same_x, same_y)                                  \
    if (call->field > 0)                                                      \
        tensors->of[tensors->count++] = (tensor){.name = #field,              \
                                                 .at = (uintptr_t)set->field, \
                                                 .bytes = call->field,        \
                                                 .alignment = aligned,        \
                                                 .same = {same_x, same_y}};
    if (pattern == ARF_ALLREDUCE) {
        INPUTS_OF_ALLREDUCE(LIST)
    } else {
        INPUTS_OF_FINALIZE(LIST)
    }
    INPUTS_OF_BOTH(LIST)
    tensors->inputs = tensors->count;
    LIST(residual_out, TENSOR_ALIGNMENT, false, false)
    /* Without the norm the sum is all that there is. */
    tensors->of[tensors->inputs].optional = call->norm_out > 0;
    LIST(norm_out, TENSOR_ALIGNMENT, false, false)
#undef LIST
}

static arfuse_status name_pair(const listing *tensors, int i, int out, int rank, arf_error *error)
{
    const tensor *t = &tensors->of[i], *o = &tensors->of[out];
    const bool same = i < tensors->inputs && t->same[out - tensors->inputs];
    if (t->at == 0 || o->at == 0 || (same && t->at == o->at) ||
        !overlap(t->at, t->bytes, o->at, o->bytes))
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_USAGE, "rank %d: operands.%s overlaps operands.%s%s", rank,
                    o->name, t->name,
                    same ? " in part; it may be the same tensor or another one" : "");
}

/* What is wrong with the tensors of a rank, in words. */
static arfuse_status name_fault(const listing *tensors, int rank, arf_error *error)
{
    for (int i = 0; i < tensors->count; i++) {
        const tensor *t = &tensors->of[i];
        if (t->at == 0 && !t->optional)
            return arf_fail(error, ARFUSE_USAGE, "rank %d: operands.%s is NULL", rank, t->name);
        if (t->at % t->alignment != 0)
            return arf_fail(error, ARFUSE_USAGE,
                            "rank %d: operands.%s is %p, expected an address aligned to %d bytes",
                            rank, t->name, (void *)t->at, (int)t->alignment);
    }
    for (int i = 0; i < tensors->count; i++)
        for (int out = i < tensors->inputs ? tensors->inputs : i + 1; out < tensors->count; out++)
            ARF_TRY(name_pair(tensors, i, out, rank, error));
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
    extents call;
    for (int i = 0; i < ranks; i++) {
        const arfuse_operands *set = &workspace->operands[i];
        if (i == 0 || set->routed_rows != set[-1].routed_rows ||
            set->weights_type != set[-1].weights_type) {
            ARF_TRY(check_numbers(set, first + i, error));
            call = measure(workspace, pattern, tokens, sum_alone, set);
        }
        if (tokens == 0 || is_clean(&call, pattern, set))
            continue;
        listing tensors;
        list(&call, pattern, set, &tensors);
        ARF_TRY(name_fault(&tensors, first + i, error));
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
