/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in place of kernels/primitives.cuh (same guard, included first): the
 * same names on the emulated machine, each with the same promise of order or a
 * stronger one. Above them, as much of CUDA's C++ as the kernels use.
 */
#ifndef ARF_KERNELS_PRIMITIVES_CUH
#define ARF_KERNELS_PRIMITIVES_CUH

#define __CUDACC__ 1
#include "arguments.h"
#include "machine.h"

/* ---- the language --------------------------------------------------------------------------- */

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* At block scope this means static as well, and `extern` may stand before it. */
#define __shared__ thread_local

#define threadIdx (emu_here->thread)
#define blockIdx (emu_here->block)
#define blockDim (emu_here->block_dim)
#define gridDim (emu_here->grid_dim)

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float __uint_as_float(unsigned bits)
{
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
static inline unsigned __float_as_uint(float value)
{
    unsigned bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

#define ARF_DEVICE static inline
#define ARF_RESIDENT(threads)

/* ---- arithmetic ----------------------------------------------------------------------------- */

/* A GPU's operations give one NaN. */
ARF_DEVICE float emu_number(float value)
{
    return value == value ? value : __uint_as_float(0x7fffffffu);
}
ARF_DEVICE float arf_add(float a, float b)
{
    return emu_number(a + b);
}
ARF_DEVICE float arf_mul(float a, float b)
{
    return emu_number(a * b);
}
ARF_DEVICE float arf_fma(float a, float b, float c)
{
    return emu_number(__builtin_fmaf(a, b, c));
}
ARF_DEVICE float arf_div(float a, float b)
{
    return emu_number(a / b);
}
ARF_DEVICE float arf_sqrt(float a)
{
    return emu_number(__builtin_sqrtf(a));
}
ARF_DEVICE float arf_low(unsigned word)
{
    return __uint_as_float(word << 16);
}
ARF_DEVICE float arf_high(unsigned word)
{
    return __uint_as_float(word & 0xffff0000u);
}
ARF_DEVICE unsigned emu_narrow_one(float value)
{
    const unsigned bits = __float_as_uint(value);
    return value == value ? (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16 : 0x7fffu;
}
ARF_DEVICE unsigned arf_narrow(float low, float high)
{
    return emu_narrow_one(high) << 16 | emu_narrow_one(low);
}
ARF_DEVICE unsigned arf_least_halves(unsigned a, unsigned b)
{
    const short al = (short)a, bl = (short)b, ah = (short)(a >> 16), bh = (short)(b >> 16);
    return (unsigned)(unsigned short)(ah < bh ? ah : bh) << 16 |
           (unsigned short)(al < bl ? al : bl);
}

/* ---- lanes, blocks, clusters, grids, time --------------------------------------------------- */

ARF_DEVICE float arf_lane_xor(float value, int mask)
{
    const unsigned *lane = emu_lanes(__float_as_uint(value));
    return __uint_as_float(lane[threadIdx.x % 32 ^ (unsigned)mask]);
}
ARF_DEVICE int arf_lane_value(int value, int lane)
{
    return (int)emu_lanes((unsigned)value)[lane % 32];
}
ARF_DEVICE float arf_lane_value(float value, int lane)
{
    return __uint_as_float(emu_lanes(__float_as_uint(value))[lane % 32]);
}
ARF_DEVICE unsigned arf_lane_least(unsigned value)
{
    const unsigned *lane = emu_lanes(value);
    unsigned least = value;
    for (int i = 0; i < 32; i++)
        least = lane[i] < least ? lane[i] : least;
    return least;
}
ARF_DEVICE int arf_lanes_where(bool condition)
{
    const unsigned *lane = emu_lanes(condition);
    int count = 0;
    for (int i = 0; i < 32; i++)
        count += lane[i] != 0;
    return count;
}
ARF_DEVICE void arf_warp_barrier(void)
{
    emu_warp_barrier();
}
ARF_DEVICE void arf_block_barrier(void)
{
    emu_block_barrier();
}
ARF_DEVICE bool arf_block_any(bool condition)
{
    return emu_block_any(condition) != 0;
}
ARF_DEVICE void arf_group_barrier(int name, int threads)
{
    emu_group_barrier(name, threads);
}
ARF_DEVICE bool arf_group_any(int name, int threads, bool condition)
{
    return emu_group_any(name, threads, condition) != 0;
}
ARF_DEVICE void arf_tell(unsigned *at, unsigned count)
{
    emu_tell(at, count);
}
ARF_DEVICE unsigned arf_heard(const unsigned *at)
{
    return emu_heard(at);
}

typedef arf_word arf_phase;
ARF_DEVICE void arf_phase_init(arf_phase *phase, int arrivals)
{
    emu_phase_init(phase, arrivals);
}
ARF_DEVICE void arf_phases_ready(void)
{
}
ARF_DEVICE void arf_phase_arrive(arf_phase *phase)
{
    emu_phase_arrive(phase, 0);
}
ARF_DEVICE void arf_phase_expect(arf_phase *phase, unsigned bytes)
{
    emu_phase_arrive(phase, bytes);
}
ARF_DEVICE void arf_phase_wait(arf_phase *phase, unsigned parity)
{
    emu_phase_wait(phase, parity);
}
ARF_DEVICE void arf_bulk_load(void *to, const void *from, unsigned bytes, arf_phase *phase)
{
    emu_bulk_load(to, from, bytes, phase);
}
ARF_DEVICE void arf_cluster_arrive(void)
{
    emu_cluster_arrive();
}
ARF_DEVICE void arf_cluster_wait(void)
{
    emu_cluster_wait();
}
ARF_DEVICE void arf_cluster_store(float *at, int block, float v)
{
    emu_cluster_store(at, block, v);
}
ARF_DEVICE void arf_grid_wait(void)
{
    emu_grid_wait();
}
ARF_DEVICE void arf_grid_trigger(void)
{
    emu_grid_trigger();
}
ARF_DEVICE arf_word arf_now(void)
{
    return emu_now();
}
ARF_DEVICE void arf_rest(unsigned nanoseconds)
{
    emu_rest(nanoseconds);
}

/* ---- global memory -------------------------------------------------------------------------- */

typedef uint4 arf_pack;

template <class Value>
ARF_DEVICE Value emu_loaded(const void *at)
{
    Value value;
    emu_load(at, &value, sizeof value);
    return value;
}
ARF_DEVICE arf_pack arf_load_once(const void *at)
{
    return emu_loaded<arf_pack>(at);
}
ARF_DEVICE uint2 arf_load_once8(const void *at)
{
    return emu_loaded<uint2>(at);
}
ARF_DEVICE unsigned arf_load_once4(const void *at)
{
    return emu_loaded<unsigned>(at);
}
ARF_DEVICE unsigned arf_load_once2(const void *at)
{
    return emu_loaded<unsigned short>(at);
}
ARF_DEVICE arf_pack arf_load_gpu(const void *at)
{
    return emu_loaded<arf_pack>(at);
}
ARF_DEVICE arf_pack arf_load_kept(const void *at)
{
    return emu_loaded<arf_pack>(at);
}
ARF_DEVICE unsigned arf_load_word(const void *at)
{
    return emu_loaded<unsigned>(at);
}
ARF_DEVICE unsigned arf_load_half(const void *at)
{
    return emu_loaded<unsigned short>(at);
}

ARF_DEVICE void arf_store(void *at, arf_pack v)
{
    emu_store(at, &v, sizeof v);
}
ARF_DEVICE void arf_store8(void *at, uint2 v)
{
    emu_store(at, &v, sizeof v);
}
ARF_DEVICE void arf_store4(void *at, unsigned v)
{
    emu_store(at, &v, sizeof v);
}
ARF_DEVICE void arf_store2(void *at, unsigned v)
{
    const unsigned short half = (unsigned short)v;
    emu_store(at, &half, sizeof half);
}

ARF_DEVICE void arf_send(void *at, arf_pack v)
{
    emu_send(at, &v, sizeof v);
}
ARF_DEVICE void arf_send8(void *at, uint2 v)
{
    emu_send(at, &v, sizeof v);
}
ARF_DEVICE void arf_send4(void *at, unsigned v)
{
    emu_send(at, &v, sizeof v);
}
ARF_DEVICE void arf_send2(void *at, unsigned v)
{
    const unsigned short half = (unsigned short)v;
    emu_send(at, &half, sizeof half);
}
ARF_DEVICE arf_pack arf_look(const void *at)
{
    arf_pack v;
    emu_look(at, &v, sizeof v);
    return v;
}
ARF_DEVICE arf_word arf_look_word(const arf_word *at)
{
    arf_word v;
    emu_look(at, &v, sizeof v);
    return v;
}
/* One value, which arrives whole. */
ARF_DEVICE void arf_send_word(arf_word *at, arf_word v)
{
    emu_store(at, &v, sizeof v);
}
ARF_DEVICE arf_word arf_look_acquire(const arf_word *at)
{
    return emu_look_acquire(at);
}
ARF_DEVICE void arf_send_release(arf_word *at, arf_word v)
{
    emu_send_release(at, v);
}
ARF_DEVICE arf_word arf_swap_if(arf_word *at, arf_word expected, arf_word wanted)
{
    return emu_swap_if(at, expected, wanted);
}
ARF_DEVICE unsigned arf_count(unsigned *at)
{
    return emu_count(at, 1);
}
ARF_DEVICE unsigned arf_count_relaxed(unsigned *at)
{
    return emu_count(at, 0);
}

#endif
