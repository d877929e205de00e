/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only file with PTX and intrinsics. Every function says what it promises
 * about order; kernel bodies build on these promises alone, so that another
 * machine can stand behind the same names.
 *
 * asm that touches memory is volatile: the compiler keeps these statements in
 * program order among themselves. Those that other memory accesses must not cross have a
 * "memory" clobber as well and say so.
 */
#ifndef ARF_KERNELS_PRIMITIVES_CUH
#define ARF_KERNELS_PRIMITIVES_CUH

#include "arguments.h"

#define ARF_DEVICE static __device__ __forceinline__

/*
 * Stands behind __global__ void: threads of a multiprocessor that must be able to be resident, so
 * what registers a thread may have. Left to itself the compiler guesses, and spills for more.
 */
#define ARF_RESIDENT(threads)          \
    __launch_bounds__(ARF_MAX_THREADS, \
                      (threads) > ARF_MAX_THREADS ? (threads) / ARF_MAX_THREADS : 1)

/* ---- arithmetic: each one IEEE operation, rounded to nearest even, subnormals kept ---------- */

ARF_DEVICE float arf_add(float a, float b)
{
    return __fadd_rn(a, b);
}
ARF_DEVICE float arf_mul(float a, float b)
{
    return __fmul_rn(a, b);
}
ARF_DEVICE float arf_fma(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}
ARF_DEVICE float arf_div(float a, float b)
{
    return __fdiv_rn(a, b);
}
ARF_DEVICE float arf_sqrt(float a)
{
    return __fsqrt_rn(a);
}

/* Two bf16 values in a word, the lower index in the low half. */
ARF_DEVICE float arf_low(unsigned word)
{
    return __uint_as_float(word << 16);
}
ARF_DEVICE float arf_high(unsigned word)
{
    return __uint_as_float(word & 0xffff0000u);
}
/* Nearest even; every NaN becomes 0x7fff; subnormals are kept. */
ARF_DEVICE unsigned arf_narrow(float low, float high)
{
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

/* The smaller one in each half, as signed 16-bit integers. */
ARF_DEVICE unsigned arf_least_halves(unsigned a, unsigned b)
{
    unsigned least;
    asm("min.s16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
    return least;
}

/* ---- lanes of a warp: all 32 must call ------------------------------------------------------ */

ARF_DEVICE float arf_lane_xor(float value, int mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}
/* What lane `lane` has. No order of memory, nor do the next three promise one. */
ARF_DEVICE int arf_lane_value(int value, int lane)
{
    return __shfl_sync(0xffffffffu, value, lane);
}
ARF_DEVICE float arf_lane_value(float value, int lane)
{
    return __shfl_sync(0xffffffffu, value, lane);
}
ARF_DEVICE unsigned arf_lane_least(unsigned value)
{
    return __reduce_min_sync(0xffffffffu, value);
}
ARF_DEVICE int arf_lanes_where(bool condition)
{
    return __popc(__ballot_sync(0xffffffffu, condition));
}
/* Orders all memory accesses of the warp's lanes before and after, at block scope. */
ARF_DEVICE void arf_warp_barrier(void)
{
    __syncwarp();
}

/* ---- the block: all threads must call ------------------------------------------------------- */

/* Orders all memory accesses of the block's threads before and after, at block scope. */
ARF_DEVICE void arf_block_barrier(void)
{
    __syncthreads();
}
/* The same, and true for all when it is true for any. */
ARF_DEVICE bool arf_block_any(bool condition)
{
    return __syncthreads_or(condition) != 0;
}

/* ---- a group of whole warps of the block: all its threads must call ------------------------- */

/* `name` 1 to 15, one a group; `threads`: how many it has. Orders as arf_block_barrier does. */
ARF_DEVICE void arf_group_barrier(int name, int threads)
{
    asm volatile("barrier.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
/* The same, and true for all when it is true for any. */
ARF_DEVICE bool arf_group_any(int name, int threads, bool condition)
{
    unsigned any;
    asm volatile("{\n"
                 ".reg .pred mine, any;\n"
                 "setp.ne.u32 mine, %1, 0;\n"
                 "barrier.red.or.pred any, %2, %3, mine;\n"
                 "selp.u32 %0, 1, 0, any;\n"
                 "}"
                 : "=r"(any)
                 : "r"((unsigned)condition), "r"(name), "r"(threads)
                 : "memory");
    return any != 0;
}

/* ---- counts in shared memory, written by one thread each ------------------------------------ */

/* Release and acquire at block scope: who hears a count has seen what its writer did, or saw
 * through barriers, before it told; stores to peers are part of that, and so of a later release. */
ARF_DEVICE void arf_tell(unsigned *at, unsigned count)
{
    const unsigned there = (unsigned)__cvta_generic_to_shared(at);
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(there), "r"(count) : "memory");
}
ARF_DEVICE unsigned arf_heard(const unsigned *at)
{
    const unsigned there = (unsigned)__cvta_generic_to_shared(at);
    unsigned count;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(count) : "r"(there) : "memory");
    return count;
}

/* ---- phases: barriers in shared memory that threads and bulk copies complete ---------------- */

/* A phase is over when all its arrivals and all bytes expected in it are there; the next one then
 * begins by itself. Phases have parity 0, 1, 0 ... */
typedef arf_word arf_phase;

/* By one thread, then arf_phases_ready, then a barrier of the block. */
ARF_DEVICE void arf_phase_init(arf_phase *phase, int arrivals)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(phase);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
/* Bulk copies see what was initialised. */
ARF_DEVICE void arf_phases_ready(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/* Release at block scope. */
ARF_DEVICE void arf_phase_arrive(arf_phase *phase)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(phase);
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
/* The same, and the phase ends only when that many bytes have come as well. */
ARF_DEVICE void arf_phase_expect(arf_phase *phase, unsigned bytes)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(phase);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
}
/* Waits until the phase of this parity is over: at once when the one of the other parity is on,
 * so at first for parity 1. Acquire at block scope; the bytes that were expected are seen too. */
ARF_DEVICE void arf_phase_wait(arf_phase *phase, unsigned parity)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(phase);
    unsigned over;
    do
        asm volatile("{\n"
                     ".reg .pred over;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, over;\n"
                     "}"
                     : "=r"(over)
                     : "r"(at), "r"(parity)
                     : "memory");
    while (!over);
}
/*
 * Copies `bytes` (a multiple of 16; both addresses too) from global to shared memory by the copy
 * engine, and counts them in the phase, which expects them. Reads what was written before this grid
 * started or before the grid that arf_grid_wait waited for ended, nothing later: other writes of
 * this GPU or of peers would need a fence between the two ways to memory. What threads did with the
 * place before must be known to the caller by an arf_phase_wait.
 */
ARF_DEVICE void arf_bulk_load(void *to, const void *from, unsigned bytes, arf_phase *phase)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(phase);
    const unsigned there = (unsigned)__cvta_generic_to_shared(to);
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(there),
        "l"(from), "r"(bytes), "r"(at)
        : "memory");
}

/* ---- plain global memory -------------------------------------------------------------------- */

/* 16 bytes: eight bf16 values. */
typedef uint4 arf_pack;

/*
 * Bulk data, read once: not kept in the first-level cache. Weak: sees what was written before this
 * grid started, or before the grid that arf_grid_wait waited for ended.
 */
ARF_DEVICE arf_pack arf_load_once(const void *at)
{
    arf_pack v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}
/* 8, 4 and 2 bytes of the same. */
ARF_DEVICE uint2 arf_load_once8(const void *at)
{
    uint2 v;
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(at));
    return v;
}
ARF_DEVICE unsigned arf_load_once4(const void *at)
{
    unsigned v;
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(at));
    return v;
}
ARF_DEVICE unsigned arf_load_once2(const void *at)
{
    unsigned short v;
    asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(at));
    return v;
}

/* From the second-level cache or beyond, never from a first-level line that another block's write
 * left stale: for what is read before arf_grid_wait. No order with other accesses. */
ARF_DEVICE arf_pack arf_load_gpu(const void *at)
{
    arf_pack v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

/* Kept in the first-level cache: small things that every thread of a block reads, or every row.
 * After arf_grid_wait. */
ARF_DEVICE arf_pack arf_load_kept(const void *at)
{
    arf_pack v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}
ARF_DEVICE unsigned arf_load_word(const void *at)
{
    unsigned v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(at));
    return v;
}
ARF_DEVICE unsigned arf_load_half(const void *at)
{
    unsigned short v;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(at));
    return v;
}

/* Weak: others see it when this grid has ended. A thread's own later accesses see it at once. */
ARF_DEVICE void arf_store(void *at, arf_pack v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}
ARF_DEVICE void arf_store8(void *at, uint2 v)
{
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(v.x), "r"(v.y) : "memory");
}
ARF_DEVICE void arf_store4(void *at, unsigned v)
{
    asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}
ARF_DEVICE void arf_store2(void *at, unsigned v)
{
    asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "h"((unsigned short)v) : "memory");
}

/* ---- memory shared with peers: system scope ------------------------------------------------- */

/*
 * Relaxed at system scope: reaches the peer in bounded time, in no order with other accesses. Each
 * bf16 value arrives whole; the values of one access may arrive apart. Enough where the payload is
 * its own flag.
 */
ARF_DEVICE void arf_send(void *at, arf_pack v)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
ARF_DEVICE void arf_send8(void *at, uint2 v)
{
    asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(v.x), "r"(v.y)
                 : "memory");
}
ARF_DEVICE void arf_send4(void *at, unsigned v)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}
ARF_DEVICE void arf_send2(void *at, unsigned v)
{
    asm volatile("st.relaxed.sys.global.u16 [%0], %1;" ::"l"(at), "h"((unsigned short)v)
                 : "memory");
}

/* The receiving side of arf_send: always a fresh look, no order with other accesses. */
ARF_DEVICE arf_pack arf_look(const void *at)
{
    arf_pack v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}
ARF_DEVICE arf_word arf_look_word(const arf_word *at)
{
    arf_word v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at));
    return v;
}
ARF_DEVICE void arf_send_word(arf_word *at, arf_word v)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

/* Acquire: what the writer of the value did before its release is seen after this. */
ARF_DEVICE arf_word arf_look_acquire(const arf_word *at)
{
    arf_word v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
    return v;
}
/* Release: everything this thread did or has seen (through barriers too) comes before it. */
ARF_DEVICE void arf_send_release(arf_word *at, arf_word v)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

/* Compare-and-swap on a word that any rank may write; returns what stood there. Relaxed. */
ARF_DEVICE arf_word arf_swap_if(arf_word *at, arf_word expected, arf_word wanted)
{
    arf_word old;
    asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(at), "l"(expected), "l"(wanted)
                 : "memory");
    return old;
}

/*
 * Counts one up and returns the count before; release and acquire at system scope, so the block
 * that sees the last count has seen all that the others did before theirs, stores to peers
 * included.
 */
ARF_DEVICE unsigned arf_count(unsigned *at)
{
    unsigned old;
    asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(at) : "memory");
    return old;
}
/* The same without any order: counts who has passed, publishes nothing. */
ARF_DEVICE unsigned arf_count_relaxed(unsigned *at)
{
    unsigned old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(at) : "memory");
    return old;
}

/* ---- dependent launch ----------------------------------------------------------------------- */

/*
 * Returns when all grids that this one depends on have ended and all they wrote is visible; at once
 * when it was launched without dependence. No memory access moves across it.
 */
ARF_DEVICE void arf_grid_wait(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
/* Lets the next grid start once all blocks have called this or ended. Publishes nothing. */
ARF_DEVICE void arf_grid_trigger(void)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* ---- the cluster of blocks that share a row ------------------------------------------------- */

/* Arrive and wait, apart so that work fits between. Release and acquire at cluster scope: orders
 * shared-memory accesses of all the cluster's blocks. All threads call both, in turn. */
ARF_DEVICE void arf_cluster_arrive(void)
{
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
ARF_DEVICE void arf_cluster_wait(void)
{
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
/* Writes a word of the shared memory of another block of the cluster, at the place where `at` is in
 * this one. The block must be known to run and must not have ended. */
ARF_DEVICE void arf_cluster_store(float *at, int block, float v)
{
    unsigned here = (unsigned)__cvta_generic_to_shared(at), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(v) : "memory");
}

/* ---- time ----------------------------------------------------------------------------------- */

/* Nanoseconds; ticks once in 32 ns to 1 us, by GPU. */
ARF_DEVICE arf_word arf_now(void)
{
    arf_word v;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v)::"memory");
    return v;
}
ARF_DEVICE void arf_rest(unsigned nanoseconds)
{
    __nanosleep(nanoseconds);
}

#endif
