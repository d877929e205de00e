/* SPDX-License-Identifier: Apache-2.0 */
/* A fragment: the 1, 2, 4 or 8 neighbouring bf16 values that one thread publishes. */
#ifndef ARF_KERNELS_FRAGMENT_CUH
#define ARF_KERNELS_FRAGMENT_CUH

#include "numerics.cuh"

template <int elements>
struct arf_fragment {
    static constexpr int words = elements < 2 ? 1 : elements / 2;
    unsigned word[words]; /* elements == 1: the low half alone counts */
};

template <int elements>
ARF_DEVICE arf_fragment<elements> arf_fragment_load(const void *at)
{
    arf_fragment<elements> f;
    if constexpr (elements == 8) {
        arf_pack v = arf_load_once(at);
        f.word[0] = v.x, f.word[1] = v.y, f.word[2] = v.z, f.word[3] = v.w;
    } else if constexpr (elements == 4) {
        uint2 v = arf_load_once8(at);
        f.word[0] = v.x, f.word[1] = v.y;
    } else if constexpr (elements == 2) {
        f.word[0] = arf_load_once4(at);
    } else {
        f.word[0] = arf_load_once2(at);
    }
    return f;
}

/* To a mailbox. */
template <int elements>
ARF_DEVICE void arf_fragment_send(void *at, const arf_fragment<elements> &f)
{
    if constexpr (elements == 8)
        arf_send(at, make_uint4(f.word[0], f.word[1], f.word[2], f.word[3]));
    else if constexpr (elements == 4)
        arf_send8(at, make_uint2(f.word[0], f.word[1]));
    else if constexpr (elements == 2)
        arf_send4(at, f.word[0]);
    else
        arf_send2(at, f.word[0]);
}

/* To plain memory of this GPU. */
template <int elements>
ARF_DEVICE void arf_fragment_store(void *at, const arf_fragment<elements> &f)
{
    if constexpr (elements == 8)
        arf_store(at, make_uint4(f.word[0], f.word[1], f.word[2], f.word[3]));
    else if constexpr (elements == 4)
        arf_store8(at, make_uint2(f.word[0], f.word[1]));
    else if constexpr (elements == 2)
        arf_store4(at, f.word[0]);
    else
        arf_store2(at, f.word[0]);
}

template <int elements>
ARF_DEVICE void arf_fragment_make_sendable(arf_fragment<elements> &f)
{
#pragma unroll
    for (int i = 0; i < f.words; i++)
        f.word[i] = arf_sendable(f.word[i]);
}

/* sum = fma(factor, fragment, sum), element by element. */
template <int elements>
ARF_DEVICE void arf_fragment_fma(float factor, const arf_fragment<elements> &f,
                                 float (&sum)[elements])
{
#pragma unroll
    for (int i = 0; i < elements; i++)
        sum[i] = arf_fma(factor, i % 2 ? arf_high(f.word[i / 2]) : arf_low(f.word[i / 2]), sum[i]);
}

template <int elements>
ARF_DEVICE void arf_fragment_add(const arf_fragment<elements> &f, float (&sum)[elements])
{
#pragma unroll
    for (int i = 0; i < elements; i++)
        sum[i] = arf_add(sum[i], i % 2 ? arf_high(f.word[i / 2]) : arf_low(f.word[i / 2]));
}

template <int elements>
ARF_DEVICE arf_fragment<elements> arf_fragment_narrow(const float (&sum)[elements])
{
    arf_fragment<elements> f;
#pragma unroll
    for (int i = 0; i < f.words; i++)
        f.word[i] = arf_narrow(sum[2 * i], elements > 1 ? sum[(2 * i + 1) % elements] : 0.0f);
    return f;
}

#endif
