/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model's layers do to the cache between two calls: stream through memory
 * larger than the L2, then write the operands of the next call. Timing only
 * (policy `decode`). The operands keep their values: each pack is read and
 * written back by one thread. Volatile, or the compiler would leave both out.
 */
#include "arguments.h"

extern "C" __global__ void __launch_bounds__(ARF_MAX_THREADS, 1) arf_filler(arf_fill work)
{
    const arf_word first = (arf_word)blockIdx.x * blockDim.x + threadIdx.x;
    const arf_word step = (arf_word)gridDim.x * blockDim.x;
    const volatile arf_word *flood = (const volatile arf_word *)work.flood;
    arf_word seen = 0;
    for (arf_word i = first; i < 2 * work.flood_packs; i += step)
        seen ^= flood[i];
    for (int r = 0; r < work.ranges; r++) {
        volatile arf_word *at = (volatile arf_word *)work.range[r].at;
        for (arf_word i = first; i < 2 * work.range[r].packs; i += step)
            at[i] = at[i];
    }
    if (seen == ~0ull) /* never: the flood holds ones */
        *(volatile arf_word *)work.flood = seen;
}
