/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ordering rule, watched by the GPU itself: stands before and behind a call, outside of
 * dependent launch, so in captured graphs too. Calls of two workspaces that overlap meet here. One
 * thread; compare-and-swap alone, so that nothing but the words is ordered by it.
 */
#include "primitives.cuh"

extern "C" __global__ void __launch_bounds__(ARF_MAX_THREADS, 1) arf_order(arf_order_mark mark)
{
    if (threadIdx.x != 0)
        return;
    if (!mark.enter) {
        arf_swap_if(mark.busy, mark.number, 0); /* an intruder leaves the other's word alone */
        return;
    }
    const arf_word holder = arf_swap_if(mark.busy, 0, mark.number);
    if (holder != 0)
        arf_swap_if(mark.broken, 0, holder << 32 | mark.number);
}
