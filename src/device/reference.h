/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference: what every protocol, tuning and device must give, bit for bit.
 * A plain single-process computation over the operands of all ranks in host memory,
 * element by element as the formulas of design section 3 stand. It shares the
 * element functions and the slot lookup of device/numerics.h with the protocols, not the row
 * functions.
 *
 * Both functions pin the floating-point environment themselves.
 */
#ifndef ARF_DEVICE_REFERENCE_H
#define ARF_DEVICE_REFERENCE_H

#include "arfuse.h"
#include "device/numerics.h"

typedef struct arf_reference_call {
    arf_pattern pattern;
    arf_shape shape; /* a switch counts as on only when it is ARF_ON */
    int64_t tokens;
    float epsilon, weight_bias, routed_scale;
    /* [tp_size], struct_size apart, in host memory. Of residual and gamma, which are equal on all
     * ranks, rank 0's are read; the outputs are not used. */
    const arfuse_operands *operands;
} arf_reference_call;

/* One rank's contribution, [tokens, H]. */
void arf_reference_contribution(const arf_reference_call *call, int rank, arf_bf16 *contribution);

/*
 * residual_out and norm_out, each [tokens, H], and inv [tokens]; any of them may be NULL, and
 * norm_out and inv are left alone with rms_norm off. residual_out may be the residual, and norm_out
 * an input. Needs (tp_size + 1) * H * 2 bytes of its own; false when memory ran out.
 */
bool arf_reference(const arf_reference_call *call, arf_bf16 *residual_out, arf_bf16 *norm_out,
                   float *inv);

#endif
