/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host.h"

#include <string.h>

static const arf_shape *shape_of(const arf_host_call *call)
{
    return &call->self->space->base.spec.shape;
}

arf_host_slice arf_host_slice_of(int hidden_size, int slices, int index)
{
    int packs = hidden_size / ARF_PACK;
    int each = (packs + slices - 1) / slices;
    int first = index * each < packs ? index * each : packs;
    int count = packs - first < each ? packs - first : each;
    return (arf_host_slice){first * ARF_PACK, count * ARF_PACK};
}

void arf_host_contribute(const arf_host_call *call, int64_t token, int first, int count,
                         arf_bf16 *contribution)
{
    const arf_shape *shape = shape_of(call);
    const int64_t row = token * shape->hidden_size;
    if (call->pattern == ARF_ALLREDUCE) {
        arf_contribution_row(call->input + row + first, count, contribution);
        return;
    }
    arf_slots slots;
    arf_slots_of(call->operands, shape, call->launch->routed_scale, token, &slots);
    const arf_bf16 *shared =
        shape->shared_expert == ARF_ON ? (const arf_bf16 *)call->operands->shared + row : NULL;
    arf_finalize_row(&slots, shared, first, count, contribution);
}

arf_bf16 *arf_host_x(const arf_host_call *call, int64_t token)
{
    arf_bf16 *out = call->operands->residual_out;
    return out ? out + token * shape_of(call)->hidden_size : call->self->x;
}

const arf_bf16 *arf_host_residual(const arf_host_call *call, int64_t token)
{
    const arf_shape *shape = shape_of(call);
    if (shape->residual != ARF_ON)
        return NULL;
    return (const arf_bf16 *)call->operands->residual + token * shape->hidden_size;
}

void arf_host_finish(arf_host_call *call, int64_t token, const arf_bf16 *x)
{
    const arf_shape *shape = shape_of(call);
    const int hidden = shape->hidden_size;
    if (shape->rms_norm == ARF_ON) {
        float inv = arf_inverse_rms(arf_squares_row(x, hidden), hidden, call->launch->epsilon);
        arf_bf16 *norm = (arf_bf16 *)call->operands->norm_out + token * hidden;
        arf_normalise_row(x, inv, call->operands->gamma, call->launch->weight_bias, hidden, norm);
    }
    call->done = token + 1;
}
