/* SPDX-License-Identifier: Apache-2.0 */
/* The tree over the ranks of one pack whose contributions lie in a mailbox. */
#ifndef ARF_KERNELS_GATHER_CUH
#define ARF_KERNELS_GATHER_CUH

#include "wait.cuh"

/* Packs waited for at once: 4 registers each. More ranks are taken in aligned subtrees. */
#define ARF_AT_ONCE 8

/*
 * The subtree of ranks first .. first + span - 1 (+0.0 beyond R), waiting for what has not arrived;
 * `at` is where rank `first`'s pack lies, sources are `stride` bytes apart. Call after
 * arf_grid_wait and the trigger.
 *
 * Re-arms exactly what it consumed, in the call that consumed it. Why nobody can be writing there
 * already: a peer writes this generation again three calls later, thus after its last kernel of the
 * next call. That kernel needed this rank's data of the next call (every token needs every rank),
 * whose first kernel waited for this grid, re-arming included, to end.
 */
template <int span>
ARF_DEVICE bool arf_gather_ranks(float (&sum)[8], char *at, arf_word stride, int first,
                                 const arf_team_view &team, arf_control *own, arf_word culprit)
{
    if constexpr (span > ARF_AT_ONCE) {
        float right[8];
        if (!arf_gather_ranks<span / 2>(sum, at, stride, first, team, own, culprit))
            return false;
        if (first + span / 2 >= ARF_R)
            return true;
        if (!arf_gather_ranks<span / 2>(right, at + span / 2 * stride, stride, first + span / 2,
                                        team, own, culprit))
            return false;
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum[i] = arf_add(sum[i], right[i]);
        return true;
    } else {
        arf_pack pack[span];
#pragma unroll
        for (int i = 0; i < span; i++)
            pack[i] = make_uint4(0, 0, 0, 0); /* what ranks beyond R add */
        if (!arf_wait_packs<span>(pack, at, stride, first, team, own, culprit))
            return false;
#pragma unroll
        for (int i = 0; i < span; i++)
            if (first + i < ARF_R)
                arf_store(at + i * stride, ARF_SENTINEL_PACK);
        arf_tree<span>(pack, sum);
        return true;
    }
}

#endif
