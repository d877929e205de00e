/* SPDX-License-Identifier: Apache-2.0 */
#include "device/trial.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/trial_data.h"
#include "device/trial_expected.h"

/* A NaN, but never the one that arfuse writes. */
#define POISON ((arf_bf16)0x7fc1)

/* Rows that go to or from the device at a time. */
#define CHUNK 64
/* Rows behind a call that must be left alone. Not all that are left: a tune confirms each of its
 * routes in a trial of 8192 tokens, whose outputs, of eight ranks, are gigabytes both ways. */
#define BEHIND 256

enum tensor {
    INPUT,
    ROUTED,
    WEIGHTS,
    INDICES,
    SHARED,
    RESIDUAL,
    GAMMA,
    RESIDUAL_OUT,
    NORM_OUT,
    TENSORS
};

struct arf_trial {
    arf_device *device;
    arf_trial_data data;
    int64_t tokens;
    int local_ranks;
    void *(*memory)[TENSORS];  /* [local_ranks], device memory as allocated; NULL: not there */
    arfuse_operands *operands; /* [local_ranks] */

    arf_bf16 *rows;  /* [CHUNK, H] on their way */
    arf_bf16 *norms; /* [CHUNK, H]: what follows from outputs on their way; from its use on */
    arf_any_order *any_order; /* [H] of one token; from its use on */

    /* What right calls leave: the first `ready` rows of [tokens, H] each. */
    struct expected {
        arf_bf16 *residual_out, *norm_out;
        int64_t ready;
    } expected[ARF_PATTERNS];
};

static size_t row_bytes(const arf_trial *trial)
{
    return (size_t)trial->data.shape.hidden_size * sizeof(arf_bf16);
}

static size_t weight_bytes(const arf_trial *trial)
{
    return trial->data.weights_type == ARFUSE_WEIGHTS_FP32 ? sizeof(float) : sizeof(arf_bf16);
}

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Bytes of each tensor; 0: the shape has none. */
static void tensor_sizes(const arf_trial *trial, size_t bytes[TENSORS])
{
    const arf_shape *shape = &trial->data.shape;
    const bool finalize = shape->top_k > 0;
    const size_t row = row_bytes(trial), all = (size_t)trial->tokens * row;
    const size_t slots = (size_t)trial->tokens * (size_t)shape->top_k;
    bytes[INPUT] = bytes[RESIDUAL_OUT] = all;
    bytes[ROUTED] = finalize ? ((size_t)trial->data.routed_rows + 1) * row : 0;
    bytes[WEIGHTS] = slots * weight_bytes(trial);
    bytes[INDICES] = slots * sizeof(int32_t);
    bytes[SHARED] = finalize && shape->shared_expert == ARF_ON ? all : 0;
    bytes[RESIDUAL] = shape->residual == ARF_ON ? all : 0;
    bytes[GAMMA] = shape->rms_norm == ARF_ON ? row : 0;
    bytes[NORM_OUT] = shape->rms_norm == ARF_ON ? all : 0;
}

static arfuse_status allocate(arf_trial *trial, arf_error *error)
{
    size_t bytes[TENSORS];
    tensor_sizes(trial, bytes);
    for (int local = 0; local < trial->local_ranks; local++) {
        void **memory = trial->memory[local];
        for (int t = 0; t < TENSORS; t++) {
            if (bytes[t] == 0)
                continue;
            memory[t] = trial->device->ops->allocate(trial->device, local, bytes[t]);
            if (!memory[t])
                return arf_fail(error, ARFUSE_FAILURE,
                                "rank %d: no memory for %zu bytes of trial operands (%" PRId64
                                " tokens, hidden size %d); use fewer tokens",
                                trial->device->team->first_rank + local, bytes[t], trial->tokens,
                                trial->data.shape.hidden_size);
        }
        arfuse_operands *operands = &trial->operands[local];
        *operands = (arfuse_operands)ARFUSE_OPERANDS_INIT;
        operands->input = memory[INPUT];
        if (memory[ROUTED]) { /* the row before row 0 is for whoever reads index -1 */
            operands->routed = (char *)memory[ROUTED] + row_bytes(trial);
            operands->routed_rows = trial->data.routed_rows;
        }
        operands->weights = memory[WEIGHTS];
        operands->weights_type = trial->data.weights_type;
        operands->indices = memory[INDICES];
        operands->shared = memory[SHARED];
        operands->residual = memory[RESIDUAL];
        operands->gamma = memory[GAMMA];
        operands->residual_out = memory[RESIDUAL_OUT];
        operands->norm_out = memory[NORM_OUT];
    }
    return ARFUSE_OK;
}

static void make_row(const arf_trial_data *data, enum tensor tensor, int rank, int64_t row,
                     arf_bf16 *to)
{
    switch (tensor) {
    case INPUT:
        arf_trial_input(data, rank, row, to);
        break;
    case ROUTED:
        arf_trial_routed(data, rank, row - 1, to); /* the first lies in front of row 0 */
        break;
    case SHARED:
        arf_trial_shared(data, rank, row, to);
        break;
    case RESIDUAL:
        arf_trial_residual(data, row, to);
        break;
    case GAMMA:
        arf_trial_gamma(data, to);
        break;
    default: /* an output */
        for (int h = 0; h < data->shape.hidden_size; h++)
            to[h] = POISON;
        break;
    }
}

static arfuse_status upload_rows(arf_trial *trial, int local, enum tensor tensor, int64_t count,
                                 arf_error *error)
{
    char *to = trial->memory[local][tensor];
    const int rank = trial->device->team->first_rank + local;
    const int hidden = trial->data.shape.hidden_size;
    for (int64_t row = 0; to && row < count; row += CHUNK) {
        const int64_t rows = minimum(CHUNK, count - row);
        for (int64_t i = 0; i < rows; i++)
            make_row(&trial->data, tensor, rank, row + i, trial->rows + i * hidden);
        ARF_TRY(trial->device->ops->upload(trial->device, local,
                                           to + (size_t)row * row_bytes(trial), trial->rows,
                                           (size_t)rows * row_bytes(trial), error));
    }
    return ARFUSE_OK;
}

static arfuse_status upload_slots(arf_trial *trial, int local, arf_error *error)
{
    const arf_device_ops *ops = trial->device->ops;
    const int rank = trial->device->team->first_rank + local;
    const size_t top_k = (size_t)trial->data.shape.top_k;
    const size_t slots = (size_t)trial->tokens * top_k, width = weight_bytes(trial);
    if (slots == 0)
        return ARFUSE_OK;
    int32_t *indices = malloc(slots * sizeof *indices);
    char *weights = malloc(slots * width);
    arfuse_status status = ARFUSE_OK;
    if (!indices || !weights) {
        status = arf_fail(error, ARFUSE_FAILURE, "no memory for %zu routing slots", slots);
        goto out;
    }
    for (int64_t token = 0; token < trial->tokens; token++) {
        const size_t first = (size_t)token * top_k;
        arf_trial_slots(&trial->data, rank, token, indices + first, weights + first * width);
    }
    ARF_TRY_GOTO(status,
                 ops->upload(trial->device, local, trial->memory[local][INDICES], indices,
                             slots * sizeof *indices, error),
                 out);
    ARF_TRY_GOTO(status,
                 ops->upload(trial->device, local, trial->memory[local][WEIGHTS], weights,
                             slots * width, error),
                 out);
out:
    free(indices);
    free(weights);
    return status;
}

static arfuse_status upload(arf_trial *trial, arf_error *error)
{
    for (int local = 0; local < trial->local_ranks; local++) {
        ARF_TRY(upload_rows(trial, local, INPUT, trial->tokens, error));
        ARF_TRY(upload_rows(trial, local, ROUTED, trial->data.routed_rows + 1, error));
        ARF_TRY(upload_rows(trial, local, SHARED, trial->tokens, error));
        ARF_TRY(upload_rows(trial, local, RESIDUAL, trial->tokens, error));
        ARF_TRY(upload_rows(trial, local, GAMMA, 1, error));
        ARF_TRY(upload_slots(trial, local, error));
    }
    return arf_trial_poison(trial, error);
}

static arfuse_status poison(arf_trial *trial, int64_t rows, arf_error *error)
{
    for (int local = 0; local < trial->local_ranks; local++) {
        ARF_TRY(upload_rows(trial, local, RESIDUAL_OUT, rows, error));
        ARF_TRY(upload_rows(trial, local, NORM_OUT, rows, error));
    }
    return ARFUSE_OK;
}

/* Of a call of so many tokens: its rows, and those behind it that must be left alone. */
static int64_t watched_rows(const arf_trial *trial, int64_t tokens)
{
    return minimum(trial->tokens, tokens + BEHIND);
}

arfuse_status arf_trial_poison(arf_trial *trial, arf_error *error)
{
    return poison(trial, trial->tokens, error);
}

arfuse_status arf_trial_poison_for(arf_trial *trial, int64_t tokens, arf_error *error)
{
    return poison(trial, watched_rows(trial, tokens), error);
}

arfuse_status arf_trial_create(arf_device *device, const arf_shape *shape, int64_t tokens,
                               arf_trial_kind kind, uint64_t seed, arf_trial **out,
                               arf_error *error)
{
    if (tokens < 1 || tokens > ARF_MAX_TOKENS)
        return arf_fail(error, ARFUSE_USAGE, "trial of %" PRId64 " tokens: expected 1 to %d",
                        tokens, ARF_MAX_TOKENS);
    arf_trial *trial = calloc(1, sizeof *trial);
    if (!trial)
        goto no_memory;
    const size_t ranks = (size_t)device->team->local_ranks;
    trial->device = device;
    trial->data = arf_trial_data_of(shape, tokens, kind, seed);
    trial->tokens = tokens;
    trial->local_ranks = device->team->local_ranks;
    trial->memory = calloc(ranks, sizeof *trial->memory);
    trial->operands = calloc(ranks, sizeof *trial->operands);
    trial->rows = malloc(CHUNK * row_bytes(trial));
    if (!trial->memory || !trial->operands || !trial->rows)
        goto no_memory;

    arfuse_status status = allocate(trial, error);
    if (status == ARFUSE_OK)
        status = upload(trial, error);
    if (status != ARFUSE_OK) {
        arf_trial_destroy(trial);
        return status;
    }
    *out = trial;
    return ARFUSE_OK;

no_memory:
    arf_trial_destroy(trial);
    return arf_fail(error, ARFUSE_FAILURE, "no memory for a trial of hidden size %d",
                    shape->hidden_size);
}

void arf_trial_destroy(arf_trial *trial)
{
    if (!trial)
        return;
    for (int local = 0; trial->memory && local < trial->local_ranks; local++)
        for (int t = 0; t < TENSORS; t++)
            if (trial->memory[local][t])
                trial->device->ops->release(trial->device, local, trial->memory[local][t]);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        free(trial->expected[pattern].residual_out);
        free(trial->expected[pattern].norm_out);
    }
    free(trial->rows);
    free(trial->norms);
    free(trial->any_order);
    free(trial->operands);
    free(trial->memory);
    free(trial);
}

const arfuse_operands *arf_trial_operands(const arf_trial *trial)
{
    return trial->operands;
}

arf_launch arf_trial_launch(const arf_trial *trial, arf_pattern pattern, int64_t tokens)
{
    return (arf_launch){
        .pattern = pattern,
        .plan = -1,
        .then = -1,
        .tokens = tokens,
        .operands = trial->operands,
        .epsilon = trial->data.epsilon,
        .weight_bias = trial->data.weight_bias,
        .routed_scale = trial->data.routed_scale,
    };
}

/* ---- check ------------------------------------------------------------------------------------
 */

static arfuse_status no_room(const arf_trial *trial, arf_error *error)
{
    return arf_fail(error, ARFUSE_FAILURE,
                    "no memory for the expected results of %" PRId64
                    " tokens, hidden size %d; use fewer tokens",
                    trial->tokens, trial->data.shape.hidden_size);
}

/* Computes expected rows up to `tokens` that are not there yet. */
static arfuse_status expect(arf_trial *trial, arf_pattern pattern, int64_t tokens, arf_error *error)
{
    struct expected *expected = &trial->expected[pattern];
    const bool norm = trial->data.shape.rms_norm == ARF_ON;
    const size_t bytes = (size_t)trial->tokens * row_bytes(trial);
    if (!expected->residual_out)
        expected->residual_out = malloc(bytes);
    if (norm && !expected->norm_out)
        expected->norm_out = malloc(bytes);

    const int64_t first = expected->ready, start = first * trial->data.shape.hidden_size;
    bool done = expected->residual_out && (!norm || expected->norm_out);
    if (done && tokens > first)
        done = arf_trial_expect(&trial->data, pattern, first, tokens - first,
                                expected->residual_out + start,
                                norm ? expected->norm_out + start : NULL);
    if (!done)
        return no_room(trial, error);
    if (tokens > first)
        expected->ready = tokens;
    return ARFUSE_OK;
}

/* Where outputs and expectation differ first, and how often. */
typedef struct difference {
    int64_t count, token;
    int element;
    arf_bf16 got, expected;
    double within; /* how far a sum in any order may be off; 0: bit for bit */
} difference;

static void note(difference *found, int64_t token, int element, arf_bf16 got, arf_bf16 expected,
                 double within)
{
    if (found->count++ == 0)
        *found = (difference){1, token, element, got, expected, within};
}

/* Rows from `token` on; `expected` NULL: poison. */
static void compare_rows(const arf_bf16 *got, const arf_bf16 *expected, int64_t rows, int hidden,
                         int64_t token, difference *found)
{
    if (expected && memcmp(got, expected, (size_t)(rows * hidden) * sizeof *got) == 0)
        return;
    for (int64_t i = 0; i < rows * hidden; i++) {
        const arf_bf16 right = expected ? expected[i] : POISON;
        if (got[i] != right)
            note(found, token + i / hidden, (int)(i % hidden), got[i], right, 0);
    }
}

/* x of the rows on their way, from `token` on. The ranks are summed, then the residual is added. */
static arfuse_status compare_sums(arf_trial *trial, arf_pattern pattern, int64_t rows,
                                  int64_t token, difference *found, arf_error *error)
{
    const arf_shape *shape = &trial->data.shape;
    const int hidden = shape->hidden_size;
    const int additions = shape->tp_size - (shape->residual == ARF_ON ? 0 : 1);
    if (!trial->any_order)
        trial->any_order = malloc((size_t)hidden * sizeof *trial->any_order);
    for (int64_t i = 0; i < rows; i++) {
        if (!trial->any_order ||
            !arf_trial_expect_any_order(&trial->data, pattern, token + i, trial->any_order))
            return no_room(trial, error);
        for (int h = 0; h < hidden; h++) {
            const arf_bf16 got = trial->rows[i * hidden + h];
            const arf_any_order *x = &trial->any_order[h];
            if (!arf_any_order_allows(x, additions, got))
                note(found, token + i, h, got, arf_float_to_bf16((float)x->sum),
                     arf_any_order_tolerance(x, additions));
        }
    }
    return ARFUSE_OK;
}

static arfuse_status download_rows(arf_trial *trial, int local, enum tensor tensor, int64_t row,
                                   int64_t rows, arf_error *error)
{
    const char *from = trial->memory[local][tensor];
    return trial->device->ops->download(trial->device, local, trial->rows,
                                        from + (size_t)row * row_bytes(trial),
                                        (size_t)rows * row_bytes(trial), error);
}

/* The norms of the residual_out that came, [rows, H]. Overwrites the rows on their way. */
static arfuse_status follow(arf_trial *trial, int local, int64_t row, int64_t rows,
                            arf_error *error)
{
    const int hidden = trial->data.shape.hidden_size;
    if (!trial->norms)
        trial->norms = malloc((CHUNK + 1) * row_bytes(trial));
    if (!trial->norms)
        return no_room(trial, error);
    arf_bf16 *gamma = trial->norms + CHUNK * hidden;
    arf_trial_gamma(&trial->data, gamma);
    ARF_TRY(download_rows(trial, local, RESIDUAL_OUT, row, rows, error));
    const arf_float_state caller = arf_float_pin();
    for (int64_t i = 0; i < rows; i++) {
        const arf_bf16 *x = trial->rows + i * hidden;
        const float inv = arf_inverse_rms(arf_squares_row(x, hidden), hidden, trial->data.epsilon);
        arf_normalise_row(x, inv, gamma, trial->data.weight_bias, hidden,
                          trial->norms + i * hidden);
    }
    arf_float_restore(caller);
    return ARFUSE_OK;
}

static arfuse_status wrong(const arf_trial *trial, arf_pattern pattern, int64_t tokens, int local,
                           const char *tensor, const difference *found, arf_error *error)
{
    char where[160], got[48] = "not written", within[48] = "";
    snprintf(where, sizeof where,
             "%s of %" PRId64 " tokens on %s data: rank %d, %s, token %" PRId64 ", element %d",
             arf_pattern_name(pattern), tokens, arf_trial_kind_name(trial->data.kind),
             trial->device->team->first_rank + local, tensor, found->token, found->element);
    if (found->got != POISON)
        snprintf(got, sizeof got, "%.9g (0x%04x)", (double)arf_bf16_to_float(found->got),
                 (unsigned)found->got);
    if (found->within > 0)
        snprintf(within, sizeof within, " within %.3g, in any order", found->within);
    if (found->token >= tokens)
        return arf_fail(error, ARFUSE_WRONG_RESULT,
                        "%s is %s, but the call ends before that token (%" PRId64
                        " elements were written behind it)",
                        where, got, found->count);
    return arf_fail(error, ARFUSE_WRONG_RESULT,
                    "%s is %s, expected %.9g (0x%04x)%s (%" PRId64
                    " elements of the tensor differ)",
                    where, got, (double)arf_bf16_to_float(found->expected),
                    (unsigned)found->expected, within, found->count);
}

static arfuse_status check_tensor(arf_trial *trial, arf_pattern pattern, int64_t tokens, int local,
                                  enum tensor tensor, bool fixed, arf_error *error)
{
    const int hidden = trial->data.shape.hidden_size;
    const arf_bf16 *kept = tensor == NORM_OUT ? trial->expected[pattern].norm_out
                                              : trial->expected[pattern].residual_out;
    difference found = {.count = 0};
    const int64_t watched = watched_rows(trial, tokens);
    for (int64_t row = 0, rows; row < watched; row += rows) {
        /* A chunk ends where the call's tokens end; poison follows. */
        const bool inside = row < tokens, follows = inside && !fixed && tensor == NORM_OUT;
        const arf_bf16 *expected = NULL;
        if (row == tokens && found.count > 0)
            break; /* what is wrong inside comes first, and alone */
        rows = minimum(CHUNK, (inside ? tokens : watched) - row);
        if (follows)
            ARF_TRY(follow(trial, local, row, rows, error));
        ARF_TRY(download_rows(trial, local, tensor, row, rows, error));
        if (inside && !fixed && !follows) {
            ARF_TRY(compare_sums(trial, pattern, rows, row, &found, error));
            continue;
        }
        if (inside)
            expected = fixed ? kept + row * hidden : trial->norms;
        compare_rows(trial->rows, expected, rows, hidden, row, &found);
    }
    if (found.count == 0)
        return ARFUSE_OK;
    return wrong(trial, pattern, tokens, local, tensor == NORM_OUT ? "norm_out" : "residual_out",
                 &found, error);
}

arfuse_status arf_trial_check_numerics(arf_trial *trial, arf_pattern pattern, int64_t tokens,
                                       arf_numerics numerics, arf_error *error)
{
    const bool fixed = numerics == ARF_FIXED;
    if (tokens < 0 || tokens > trial->tokens)
        return arf_fail(error, ARFUSE_USAGE, "check of %" PRId64 " tokens in a trial of %" PRId64,
                        tokens, trial->tokens);
    if (pattern == ARF_FINALIZE && trial->data.shape.top_k == 0)
        return arf_fail(error, ARFUSE_USAGE, "check of finalize in a trial with top_k 0");
    if (fixed)
        ARF_TRY(expect(trial, pattern, tokens, error));
    for (int local = 0; local < trial->local_ranks; local++) {
        /* residual_out first: a wrong sum makes the norm wrong, too. */
        ARF_TRY(check_tensor(trial, pattern, tokens, local, RESIDUAL_OUT, fixed, error));
        if (trial->memory[local][NORM_OUT])
            ARF_TRY(check_tensor(trial, pattern, tokens, local, NORM_OUT, fixed, error));
    }
    return ARFUSE_OK;
}

arfuse_status arf_trial_check(arf_trial *trial, arf_pattern pattern, int64_t tokens,
                              arf_error *error)
{
    return arf_trial_check_numerics(trial, pattern, tokens, ARF_FIXED, error);
}
