/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unfused chain: a plain all-reduce through counters, then the norm. Each
 * step is a whole kernel whose last block tells all ranks, with one word a rank,
 * that everything of the step is there. Counters only grow (calls so far), so
 * nothing is re-armed and one generation is enough: a rank scatters call N + 1
 * after its norm of call N, which needed every owner to have read call N; an
 * owner writes rows of call N + 1 only after every rank scattered N + 1, and so
 * has finished its norm of N.
 */
#ifndef ARF_KERNELS_UNFUSED_CUH
#define ARF_KERNELS_UNFUSED_CUH

#include "gather.cuh"

/* Byte offset in the owner's segment of source 0's pack; sources are ARF_H * 2 bytes apart. */
ARF_DEVICE arf_word arf_unfused_contribution(const arf_team_view &team, arf_word slot, int pack)
{
    return team.unfused_contribution + (slot * (arf_word)(ARF_R * ARF_PACKS) + (arf_word)pack) * 16;
}
ARF_DEVICE arf_word arf_unfused_row(const arf_team_view &team, long long token, int pack)
{
    return team.unfused_row + ((arf_word)token * ARF_PACKS + (arf_word)pack) * 16;
}

/* Byte offset of a counter array in the control block; NVRTC has no offsetof without headers. */
#define ARF_COUNTERS(member) ((arf_word) & ((arf_control *)0)->member)

/*
 * At the end of a step, all threads of every block: the last block of this rank's part of the grid
 * sets entry `rank` of the counters at `counters` (an offset in arf_control) of every rank.
 */
ARF_DEVICE void arf_step_done(const arf_team_view &team, int rank, unsigned *ticket,
                              arf_word counters, arf_word value)
{
    arf_block_barrier();
    if (threadIdx.x != 0)
        return;
    const unsigned blocks = (unsigned)arf_row_step() * gridDim.y;
    if (arf_count(ticket) + 1 != blocks)
        return;
    *ticket = 0;
#pragma unroll 1
    for (int peer = 0; peer < ARF_R; peer++)
        arf_send_release((arf_word *)(team.peer[peer] + counters) + rank, value);
}

#endif
