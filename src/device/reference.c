/* SPDX-License-Identifier: Apache-2.0 */
#include "device/reference.h"

#include <stdlib.h>

static const arfuse_operands *operands_of(const arf_reference_call *call, int rank)
{
    /* An array of a caller's structs, which may be longer than ours. */
    const char *first = (const char *)call->operands;
    return (const arfuse_operands *)(first + (size_t)rank * call->operands->struct_size);
}

/* contribution = bf16(acc + shared), acc = fma(w * scale, routed, acc) with k ascending from 0. */
ARF_WITH_FMA
static void finalize_token(const arf_slots *slots, const arf_bf16 *shared, int hidden,
                           arf_bf16 *contribution)
{
    for (int h = 0; h < hidden; h++) {
        float acc = 0.0f;
        for (int k = 0; k < slots->count; k++)
            acc = fmaf(slots->weight[k], arf_bf16_to_float(slots->row[k][h]), acc);
        if (shared)
            acc += arf_bf16_to_float(shared[h]);
        contribution[h] = arf_contribution(arf_float_to_bf16(acc));
    }
}

static void contribute_token(const arf_reference_call *call, int rank, int64_t token,
                             arf_bf16 *contribution)
{
    const arfuse_operands *operands = operands_of(call, rank);
    const int hidden = call->shape.hidden_size;
    const int64_t start = token * hidden;
    if (call->pattern == ARF_FINALIZE) {
        const bool with_shared = call->shape.shared_expert == ARF_ON;
        arf_slots slots;
        arf_slots_of(operands, &call->shape, call->routed_scale, token, &slots);
        finalize_token(&slots, with_shared ? (const arf_bf16 *)operands->shared + start : NULL,
                       hidden, contribution);
        return;
    }
    for (int h = 0; h < hidden; h++)
        contribution[h] = arf_contribution(((const arf_bf16 *)operands->input)[start + h]);
}

/* x = bf16(tree_r(c_0 .. c_{R-1}) + residual); contribution is [tp_size, H]. */
static void reduce_token(const arf_reference_call *call, int64_t token,
                         const arf_bf16 *contribution, arf_bf16 *x)
{
    const arf_bf16 *residual = call->operands->residual;
    const int hidden = call->shape.hidden_size, ranks = call->shape.tp_size;
    for (int h = 0; h < hidden; h++) {
        float term[ARF_MAX_RANKS];
        for (int rank = 0; rank < ranks; rank++)
            term[rank] = arf_bf16_to_float(contribution[(int64_t)rank * hidden + h]);
        float sum = arf_tree_sum(term, ranks);
        if (call->shape.residual == ARF_ON)
            sum += arf_bf16_to_float(residual[token * hidden + h]);
        x[h] = arf_float_to_bf16(sum);
    }
}

/* inv = 1 / sqrt(sum_h(x^2) / H + eps): fma inside a pack, the tree over the packs. */
ARF_WITH_FMA
static float inverse_of_token(const arf_reference_call *call, const arf_bf16 *x)
{
    const int hidden = call->shape.hidden_size;
    float squares[ARF_MAX_HIDDEN / ARF_PACK];
    for (int pack = 0; pack < hidden / ARF_PACK; pack++)
        squares[pack] = arf_pack_squares(x + pack * ARF_PACK);
    return arf_inverse_rms(arf_tree_sum(squares, hidden / ARF_PACK), hidden, call->epsilon);
}

void arf_reference_contribution(const arf_reference_call *call, int rank, arf_bf16 *contribution)
{
    const arf_float_state caller = arf_float_pin();
    for (int64_t token = 0; token < call->tokens; token++)
        contribute_token(call, rank, token, contribution + token * call->shape.hidden_size);
    arf_float_restore(caller);
}

bool arf_reference(const arf_reference_call *call, arf_bf16 *residual_out, arf_bf16 *norm_out,
                   float *inv)
{
    const int hidden = call->shape.hidden_size, ranks = call->shape.tp_size;
    const arf_bf16 *gamma = call->operands->gamma;
    arf_bf16 *contribution = malloc((size_t)(ranks + 1) * (size_t)hidden * sizeof *contribution);
    if (!contribution)
        return false;
    arf_bf16 *x = contribution + (size_t)ranks * (size_t)hidden;

    const arf_float_state caller = arf_float_pin();
    for (int64_t token = 0; token < call->tokens; token++) {
        /* A token's operands are all read before its outputs are written: in place is fine. */
        for (int rank = 0; rank < ranks; rank++)
            contribute_token(call, rank, token, contribution + (int64_t)rank * hidden);
        reduce_token(call, token, contribution, x);
        if (residual_out)
            memcpy(residual_out + token * hidden, x, (size_t)hidden * sizeof *x);
        if (call->shape.rms_norm != ARF_ON)
            continue;
        const float token_inv = inverse_of_token(call, x);
        if (inv)
            inv[token] = token_inv;
        if (norm_out) {
            for (int h = 0; h < hidden; h++)
                norm_out[token * hidden + h] =
                    arf_normalised(x[h], token_inv, gamma[h], call->weight_bias);
        }
    }
    arf_float_restore(caller);
    free(contribution);
    return true;
}
