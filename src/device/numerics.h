/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the contract (design section 3), spelled out once for host
 * protocols and reference: bf16 conversion, the fixed tree, the finalize chain,
 * the normalisation. Compiled with contraction off; every rounding is written.
 *
 * Two levels. The element functions here are what the formulas say, one line
 * each. The row functions below work on runs of whole packs at the speed of the
 * machine's vectors and give the same bits; host protocols use those.
 *
 * All of it needs the floating-point environment that arf_float_pin() sets.
 */
#ifndef ARF_DEVICE_NUMERICS_H
#define ARF_DEVICE_NUMERICS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "arfuse.h"
#include "rules/words.h"

#ifdef __FAST_MATH__
#error "the bits are part of the contract: arfuse cannot be built with -ffast-math"
#endif

/*
 * Baseline x86-64 has no fused multiply-add: there fmaf is a library call per element. Functions
 * marked so are compiled twice and chosen once when the program is loaded; both give the same bits.
 * By feature, not by processor: "arch=haswell" would choose the slow one on all others. Sanitizers
 * cannot instrument the resolver, which runs before they are set up.
 */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__FMA__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ARF_WITH_FMA __attribute__((target_clones("fma", "default")))
#else
#define ARF_WITH_FMA
#endif

/* Inlined even into a function compiled for another target, which `inline` alone does not do. */
#define ARF_INLINE static inline __attribute__((always_inline))

typedef uint16_t arf_bf16; /* the bits */

#define ARF_PACK 8                      /* bf16 values in 16 bytes */
#define ARF_SENTINEL ((arf_bf16)0x8000) /* -0.0: "not arrived" */
#define ARF_BF16_NAN ((arf_bf16)0x7fff) /* how every NaN is written */

ARF_INLINE float arf_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

ARF_INLINE uint32_t arf_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

ARF_INLINE float arf_bf16_to_float(arf_bf16 value)
{
    return arf_float_of_bits((uint32_t)value << 16);
}

/* Round to nearest even; NaN becomes ARF_BF16_NAN; subnormals are kept. Works on bits alone, so no
 * mode of the caller changes it. */
ARF_INLINE arf_bf16 arf_float_to_bf16(float value)
{
    uint32_t bits = arf_bits_of_float(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (arf_bf16)((bits & 0x7fffffffu) > 0x7f800000u ? ARF_BF16_NAN : rounded);
}

/* -0.0 becomes +0.0, any NaN becomes ARF_BF16_NAN: what a contribution may be. */
ARF_INLINE arf_bf16 arf_contribution(arf_bf16 value)
{
    arf_bf16 number = (arf_bf16)(value == ARF_SENTINEL ? 0 : value);
    return (arf_bf16)((value & 0x7fff) > 0x7f80 ? ARF_BF16_NAN : number);
}

/* The balanced binary tree over the index, neighbours first, padded with +0.0 to a power of two.
 * No terms: +0.0. One term: the term itself. */
float arf_tree_sum(const float *term, int count);

/* One pack's sum of squares: fma in ascending element order from +0. */
ARF_INLINE float arf_pack_squares(const arf_bf16 pack[ARF_PACK])
{
    float sum = 0.0f;
    for (int i = 0; i < ARF_PACK; i++) {
        float x = arf_bf16_to_float(pack[i]);
        sum = fmaf(x, x, sum);
    }
    return sum;
}

/* 1 / sqrt(sum / H + eps), each step rounded. A NaN is given as 0x7fffffff. */
float arf_inverse_rms(float sum_of_squares, int hidden_size, float epsilon);

/* One element of the normalised row. */
ARF_INLINE arf_bf16 arf_normalised(arf_bf16 x, float inv, arf_bf16 gamma, float weight_bias)
{
    float scaled = arf_bf16_to_float(x) * inv;
    return arf_float_to_bf16(scaled * (arf_bf16_to_float(gamma) + weight_bias));
}

/* ---- rows: `count` elements, a multiple of ARF_PACK ----------------------------------------- */

/* The slots of one token that are not dropped, in ascending k. */
typedef struct arf_slots {
    int count;
    float weight[ARF_MAX_TOP_K];        /* w * scale, rounded once */
    const arf_bf16 *row[ARF_MAX_TOP_K]; /* [H] each */
} arf_slots;

/* Looks up the slots of a token: reads weights and indices, never a dropped slot's row. */
void arf_slots_of(const arfuse_operands *operands, const arf_shape *shape, float routed_scale,
                  int64_t token, arf_slots *slots);

/* A run of the finalize contribution, from element `first` of the row. `shared` is the token's
 * whole shared row [H], or NULL. `contribution` gets the run, and must not overlap the inputs. */
void arf_finalize_row(const arf_slots *slots, const arf_bf16 *shared, int first, int count,
                      arf_bf16 *contribution);

/* A run of the allreduce contribution; may be in place. */
void arf_contribution_row(const arf_bf16 *input, int count, arf_bf16 *contribution);

/* x of one run: the tree over the ranks' contributions (from[rank] is that rank's run), plus the
 * residual run, or none when that is NULL. x may be the residual, or one of the contributions. */
void arf_reduce_row(const arf_bf16 *const *from, int ranks, const arf_bf16 *residual, int count,
                    arf_bf16 *x);

/* The sum of squares of a whole row: the tree over its packs. */
float arf_squares_row(const arf_bf16 *x, int hidden_size);

/* A run of norm; may be in place. */
void arf_normalise_row(const arf_bf16 *x, float inv, const arf_bf16 *gamma, float weight_bias,
                       int count, arf_bf16 *norm);

/* ---- environment ---------------------------------------------------------------------------- */

/*
 * Pins round-to-nearest and switches flush-to-zero and denormals-are-zero off for the calling
 * thread until arf_float_restore; engines sometimes run with them on. Also masks traps and gives
 * the caller its exception flags back.
 *
 * Put it around calls that work on memory, never around an expression: the compiler does not know
 * that arithmetic depends on it, and may move arithmetic on local values across.
 */
typedef struct arf_float_state {
    uint64_t saved;
    int rounding;
} arf_float_state;
arf_float_state arf_float_pin(void);
void arf_float_restore(arf_float_state state);

#endif
