/* SPDX-License-Identifier: Apache-2.0 */
#include "device/trial_expected.h"

#include <stdlib.h>

#include "device/reference.h"

/* Operands of one token of every rank. */
typedef struct token_operands {
    arfuse_operands operands[ARF_MAX_RANKS];
    arf_bf16 *residual, *gamma; /* [H] */
    arf_bf16 *input, *shared;   /* [R, H] */
    arf_bf16 *routed;           /* [R, K, H]: slot k's own copy of the row that it names */
    int32_t *indices;           /* [R, K] */
    float *weights;             /* [R, K], room for either type */
} token_operands;

static void release(token_operands *token)
{
    if (!token)
        return;
    free(token->residual);
    free(token->gamma);
    free(token->input);
    free(token->shared);
    free(token->routed);
    free(token->indices);
    free(token->weights);
    free(token);
}

static token_operands *make(const arf_trial_data *data)
{
    const size_t row = (size_t)data->shape.hidden_size * sizeof(arf_bf16);
    const size_t ranks = (size_t)data->shape.tp_size;
    const size_t slots = ranks * (size_t)(data->shape.top_k > 0 ? data->shape.top_k : 1);
    token_operands *token = calloc(1, sizeof *token);
    if (!token)
        return NULL;
    token->residual = malloc(row);
    token->gamma = malloc(row);
    token->input = malloc(ranks * row);
    token->shared = malloc(ranks * row);
    token->routed = malloc(slots * row);
    token->indices = malloc(slots * sizeof *token->indices);
    token->weights = malloc(slots * sizeof *token->weights);
    if (!token->residual || !token->gamma || !token->input || !token->shared || !token->routed ||
        !token->indices || !token->weights) {
        release(token);
        return NULL;
    }
    for (size_t rank = 0; rank < ranks; rank++) {
        const size_t slot = rank * (size_t)data->shape.top_k;
        const size_t hidden = (size_t)data->shape.hidden_size;
        arfuse_operands *operands = &token->operands[rank];
        *operands = (arfuse_operands)ARFUSE_OPERANDS_INIT;
        operands->input = token->input + rank * hidden;
        operands->shared = token->shared + rank * hidden;
        operands->routed = token->routed + slot * hidden;
        operands->routed_rows = data->shape.top_k;
        operands->indices = token->indices + slot;
        operands->weights = token->weights + slot;
        operands->weights_type = data->weights_type;
        operands->residual = token->residual;
        operands->gamma = token->gamma;
    }
    arf_trial_gamma(data, token->gamma);
    return token;
}

static void fill(token_operands *token, const arf_trial_data *data, arf_pattern pattern,
                 int64_t number)
{
    const int hidden = data->shape.hidden_size, top_k = data->shape.top_k;
    arf_trial_residual(data, number, token->residual);
    for (int rank = 0; rank < data->shape.tp_size; rank++) {
        if (pattern == ARF_ALLREDUCE) {
            arf_trial_input(data, rank, number, token->input + (int64_t)rank * hidden);
            continue;
        }
        arf_trial_shared(data, rank, number, token->shared + (int64_t)rank * hidden);
        int32_t *indices = token->indices + rank * top_k;
        arf_trial_slots(data, rank, number, indices, token->weights + rank * top_k);
        for (int k = 0; k < top_k; k++) {
            if (indices[k] < 0)
                continue;
            arf_trial_routed(data, rank, indices[k],
                             token->routed + ((int64_t)rank * top_k + k) * hidden);
            indices[k] = k;
        }
    }
}

static arf_reference_call call_of(const arf_trial_data *data, arf_pattern pattern,
                                  const token_operands *token)
{
    return (arf_reference_call){
        .pattern = pattern,
        .shape = data->shape,
        .tokens = 1,
        .epsilon = data->epsilon,
        .weight_bias = data->weight_bias,
        .routed_scale = data->routed_scale,
        .operands = token->operands,
    };
}

bool arf_trial_expect(const arf_trial_data *data, arf_pattern pattern, int64_t first, int64_t count,
                      arf_bf16 *residual_out, arf_bf16 *norm_out)
{
    const int hidden = data->shape.hidden_size;
    token_operands *token = make(data);
    if (!token)
        return false;
    const arf_reference_call call = call_of(data, pattern, token);
    bool done = true;
    for (int64_t i = 0; done && i < count; i++) {
        fill(token, data, pattern, first + i);
        done = arf_reference(&call, residual_out + i * hidden,
                             norm_out ? norm_out + i * hidden : NULL, NULL);
    }
    release(token);
    return done;
}

bool arf_trial_expect_any_order(const arf_trial_data *data, arf_pattern pattern, int64_t number,
                                arf_any_order *x)
{
    const int hidden = data->shape.hidden_size;
    arf_bf16 *row = malloc((size_t)hidden * sizeof *row);
    token_operands *token = make(data);
    if (!row || !token) {
        release(token);
        free(row);
        return false;
    }
    fill(token, data, pattern, number);
    const arf_reference_call call = call_of(data, pattern, token);
    for (int h = 0; h < hidden; h++)
        x[h] = (arf_any_order){.sum = 0};
    for (int rank = 0; rank <= data->shape.tp_size; rank++) {
        const bool residual = rank == data->shape.tp_size;
        if (residual && data->shape.residual != ARF_ON)
            break;
        if (!residual)
            arf_reference_contribution(&call, rank, row);
        for (int h = 0; h < hidden; h++)
            arf_any_order_add(&x[h], residual ? token->residual[h] : row[h]);
    }
    release(token);
    free(row);
    return true;
}
