/* SPDX-License-Identifier: Apache-2.0 */
/* The tree over the ranks of one pack whose contributions lie in this rank's memory, and the way of
 * the sum to all of them. */
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

/*
 * The subtree of ranks first .. first + span - 1, whose packs are `stride` bytes apart; everything
 * is there. `clean`: what no kernel of ours has sent may still hold -0.0, which counts as +0.0.
 */
template <int span, bool clean>
ARF_DEVICE void arf_sum_ranks(float (&sum)[8], const char *at, arf_word stride, int first)
{
    if constexpr (span > 8) {
        arf_sum_ranks<span / 2, clean>(sum, at, stride, first);
        if (first + span / 2 < ARF_R) {
            float right[8];
            arf_sum_ranks<span / 2, clean>(right, at, stride, first + span / 2);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[i] = arf_add(sum[i], right[i]);
        }
    } else {
        arf_pack pack[span];
#pragma unroll
        for (int i = 0; i < span; i++) {
            pack[i] = first + i < ARF_R ? arf_look(at + (arf_word)(first + i) * stride)
                                        : make_uint4(0, 0, 0, 0);
            if (clean)
                pack[i] = arf_sendable_pack(pack[i]);
        }
        arf_tree<span>(pack, sum);
    }
}

/* To every rank, beginning behind this one, so that the owners do not all write to the same rank at
 * the same time. */
ARF_DEVICE void arf_send_all(const arf_team_view &team, int rank, arf_word to, arf_pack v)
{
    int peer = rank;
#pragma unroll 8
    for (int i = 0; i < ARF_R; i++) {
        peer = peer + 1 == ARF_R ? 0 : peer + 1;
        arf_send(team.peer[peer] + to, v);
    }
}

#endif
