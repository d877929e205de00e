/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the contract (design section 3), spelled out once for host
 * protocols and reference: bf16 conversion, the fixed tree, the finalize chain,
 * the normalisation. Compiled with contraction off; every rounding is written.
 */
#ifndef ARF_DEVICE_NUMERICS_H
#define ARF_DEVICE_NUMERICS_H

#include <stdint.h>

#include "rules/words.h"

typedef uint16_t arf_bf16; /* the bits */

#define ARF_PACK 8                        /* bf16 values in 16 bytes */
#define ARF_SENTINEL ((arf_bf16)0x8000)   /* -0.0: "not arrived" */
#define ARF_BF16_NAN ((arf_bf16)0x7fff)   /* how every NaN is written */

float arf_bf16_to_float(arf_bf16 value);
/* Round to nearest even; NaN becomes ARF_BF16_NAN; subnormals are kept. */
arf_bf16 arf_float_to_bf16(float value);
/* -0.0 becomes +0.0, any NaN becomes ARF_BF16_NAN: what a contribution may be. */
arf_bf16 arf_contribution(arf_bf16 value);

/* The balanced binary tree over the index, neighbours first, padded with +0.0 to a power of two. */
float arf_tree_sum(const float *term, int count);

/* One pack's sum of squares: fma in ascending element order from +0. */
float arf_pack_squares(const arf_bf16 pack[ARF_PACK]);

/* 1 / sqrt(sum / H + eps), each step rounded. */
float arf_inverse_rms(float sum_of_squares, int hidden_size, float epsilon);

/*
 * Pins round-to-nearest and switches flush-to-zero and denormals-are-zero off for the calling thread
 * until arf_float_restore; engines sometimes run with them on.
 */
typedef struct arf_float_state {
    uint64_t saved;
    int rounding;
} arf_float_state;
arf_float_state arf_float_pin(void);
void arf_float_restore(arf_float_state state);

#endif
