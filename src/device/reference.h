/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference: what every protocol, tuning and device must give, bit for bit.
 * A plain single-process computation over the operands of all ranks in host memory.
 */
#ifndef ARF_DEVICE_REFERENCE_H
#define ARF_DEVICE_REFERENCE_H

#include "arfuse.h"
#include "device/numerics.h"

typedef struct arf_reference_call {
    arf_pattern pattern;
    arf_shape shape;
    int64_t tokens;
    float epsilon, weight_bias, routed_scale;
    const arfuse_operands *operands; /* [tp_size], host memory; the outputs are not used */
} arf_reference_call;

/* One rank's contribution, [tokens, H]. */
void arf_reference_contribution(const arf_reference_call *call, int rank, arf_bf16 *contribution);

/*
 * residual_out and norm_out, each [tokens, H] (norm_out NULL with rms_norm off), and inv [tokens]
 * (may be NULL). Needs tokens * H * tp_size * 2 bytes of its own; false when memory ran out.
 */
bool arf_reference(const arf_reference_call *call, arf_bf16 *residual_out, arf_bf16 *norm_out,
                   float *inv);

#endif
