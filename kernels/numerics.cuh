/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the contract on packs: the same bits as the host's
 * numerics.c. Nothing here but pure functions of their arguments.
 */
#ifndef ARF_KERNELS_NUMERICS_CUH
#define ARF_KERNELS_NUMERICS_CUH

#include "primitives.cuh"

#define ARF_PACKS (ARF_H / 8) /* P: packs a token */
#define ARF_SENTINEL_PACK make_uint4(0x80008000u, 0x80008000u, 0x80008000u, 0x80008000u)
#define ARF_NAN_PACK make_uint4(0x7fff7fffu, 0x7fff7fffu, 0x7fff7fffu, 0x7fff7fffu)

/* The smallest power of two that is at least n. */
__device__ constexpr int arf_power(int n)
{
    int p = 1;
    while (p < n)
        p *= 2;
    return p;
}

/*
 * Both halves of a word at once. Adding 0x7fff to the 15 lower bits sets the top bit unless they
 * are all zero; no carry leaves a half.
 */
ARF_DEVICE unsigned arf_nonzero_halves(unsigned word)
{
    return (word & 0x7fff7fffu) + 0x7fff7fffu;
}
/* -0.0 becomes +0.0: what may be sent through a mailbox. A NaN needs no care here: every sum it
 * enters is written as 0x7fff. */
ARF_DEVICE unsigned arf_sendable(unsigned word)
{
    return word & (arf_nonzero_halves(word) | 0x7fff7fffu);
}
ARF_DEVICE arf_pack arf_sendable_pack(arf_pack v)
{
    return make_uint4(arf_sendable(v.x), arf_sendable(v.y), arf_sendable(v.z), arf_sendable(v.w));
}
/*
 * The sentinel is the smallest 16-bit integer, so a running minimum over any number of packs finds
 * it: `least` starts as the first word. Tested on bits, never as floats: -0.0 equals +0.0, and a
 * flushed subnormal looks like zero.
 */
ARF_DEVICE unsigned arf_least(unsigned least, arf_pack v)
{
    return arf_least_halves(arf_least_halves(least, arf_least_halves(v.x, v.y)),
                            arf_least_halves(v.z, v.w));
}
ARF_DEVICE bool arf_has_sentinel(unsigned least)
{
    return (least & 0xffffu) == 0x8000u || least >> 16 == 0x8000u;
}
ARF_DEVICE bool arf_arrived(arf_pack v)
{
    return !arf_has_sentinel(arf_least(v.x, v));
}

ARF_DEVICE void arf_widen(arf_pack v, float (&to)[8])
{
    to[0] = arf_low(v.x), to[1] = arf_high(v.x);
    to[2] = arf_low(v.y), to[3] = arf_high(v.y);
    to[4] = arf_low(v.z), to[5] = arf_high(v.z);
    to[6] = arf_low(v.w), to[7] = arf_high(v.w);
}
ARF_DEVICE arf_pack arf_narrow_pack(const float (&v)[8])
{
    return make_uint4(arf_narrow(v[0], v[1]), arf_narrow(v[2], v[3]), arf_narrow(v[4], v[5]),
                      arf_narrow(v[6], v[7]));
}

/* The sum of the ranks, to which the residual is added before it is rounded. */
ARF_DEVICE void arf_add_pack(float (&sum)[8], arf_pack v)
{
    float term[8];
    arf_widen(v, term);
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum[i] = arf_add(sum[i], term[i]);
}

/* Word 0..3 of a pack; `i` must be known to the compiler. */
ARF_DEVICE unsigned arf_pack_word(const arf_pack &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/*
 * The balanced tree over packs first .. first + span - 1 of `source`, span a power of two, padded
 * with +0.0 from `count` on. Padding is left out rather than added: that changes nothing but -0.0,
 * which a contribution never is and no sum of others becomes. Word by word, so that a word of all
 * packs is done with before the next one takes registers.
 */
template <int first, int span, int count>
ARF_DEVICE float2 arf_tree_word(const arf_pack *source, int i)
{
    if constexpr (span == 1) {
        const unsigned word = arf_pack_word(source[first], i);
        return make_float2(arf_low(word), arf_high(word));
    } else {
        float2 sum = arf_tree_word<first, span / 2, count>(source, i);
        if constexpr (first + span / 2 < count) {
            const float2 right = arf_tree_word<first + span / 2, span / 2, count>(source, i);
            sum = make_float2(arf_add(sum.x, right.x), arf_add(sum.y, right.y));
        }
        return sum;
    }
}
template <int span>
ARF_DEVICE void arf_tree(const arf_pack *source, float (&sum)[8])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 pair = arf_tree_word<0, span, span>(source, i);
        sum[2 * i] = pair.x, sum[2 * i + 1] = pair.y;
    }
}

/* One pack's sum of squares: fma in ascending element order from +0. */
ARF_DEVICE float arf_pack_squares(arf_pack v)
{
    float x[8], sum = 0.0f;
    arf_widen(v, x);
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum = arf_fma(x[i], x[i], sum);
    return sum;
}

/* Lane i holds term i of an aligned group of `span` lanes; each gets the group's tree. Addition
 * commutes, so both sides of every pair compute the same bits. */
template <int span>
ARF_DEVICE float arf_lane_tree(float sum)
{
#pragma unroll
    for (int mask = 1; mask < span; mask *= 2)
        sum = arf_add(sum, arf_lane_xor(sum, mask));
    return sum;
}

/* The tree over `count` terms in shared memory, by a whole warp, the same bits in all its lanes:
 * each lane adds up an aligned range, then lanes are combined. */
template <int count>
ARF_DEVICE float arf_warp_tree(const float *term, int lane)
{
    constexpr int padded = arf_power(count);
    constexpr int lanes = padded < 32 ? padded : 32, range = padded / lanes;
    const int start = lane % lanes * range;
    float sum[range];
#pragma unroll
    for (int i = 0; i < range; i++)
        sum[i] = start + i < count ? term[start + i] : 0.0f;
#pragma unroll
    for (int step = 1; step < range; step *= 2)
#pragma unroll
        for (int i = 0; i < range; i += 2 * step)
            sum[i] = arf_add(sum[i], sum[i + step]);
    return arf_lane_tree<lanes>(sum[0]);
}

/* 1 / sqrt(sum / H + eps), each step rounded: the hardware's reciprocal square root gives other
 * bits. */
ARF_DEVICE float arf_inverse_rms(float sum_of_squares, float epsilon)
{
    return arf_div(1.0f, arf_sqrt(arf_add(arf_div(sum_of_squares, (float)ARF_H), epsilon)));
}

/* bf16((x * inv) * (gamma + weight_bias)) */
ARF_DEVICE arf_pack arf_normalised(arf_pack x, float inv, arf_pack gamma, float weight_bias)
{
    float v[8], g[8];
    arf_widen(x, v);
    arf_widen(gamma, g);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = arf_mul(arf_mul(v[i], inv), arf_add(g[i], weight_bias));
    return arf_narrow_pack(v);
}

#endif
