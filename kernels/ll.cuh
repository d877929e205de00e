/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LL: every rank pushes its whole contribution into the mailbox of every rank;
 * each sums all R. The payload is its own flag.
 */
#ifndef ARF_KERNELS_LL_CUH
#define ARF_KERNELS_LL_CUH

#include "contribute.cuh"
#include "gather.cuh"
#include "row.cuh"

/* Byte offset in a segment of source 0's row of a token; sources are ARF_H * 2 bytes apart. */
ARF_DEVICE arf_word arf_ll_row(const arf_team_view &team, arf_word epoch, long long token)
{
    const arf_word generation = epoch % ARF_MAILBOX_GENERATIONS;
    return team.ll + (generation * (arf_word)team.ll_capacity + (arf_word)token) *
                         ((arf_word)ARF_R * ARF_H * 2);
}

/* Sends a fragment of `token` to every rank, starting behind this one, so that the ranks do not all
 * write to the same peer at the same time. */
template <int elements>
ARF_DEVICE void arf_ll_send(const arf_team_view &team, arf_word epoch, int rank, long long token,
                            int element, const arf_fragment<elements> &f)
{
    const arf_word at =
        arf_ll_row(team, epoch, token) + ((arf_word)rank * ARF_H + (arf_word)element) * 2;
    int to = rank;
#pragma unroll 8
    for (int i = 0; i < ARF_R; i++) {
        to = to + 1 == ARF_R ? 0 : to + 1;
        arf_fragment_send(team.peer[to] + at, f);
    }
}

/* Pre-norm packs summed from the own mailbox. Lane group q of a pack has the aligned range of ranks
 * that its subtree needs. */
struct arf_ll_source {
    static constexpr int lanes = ARF_RANK_LANES;
    static constexpr bool adds_residual = true;
    static constexpr int span = arf_power(ARF_R) / lanes;
    static_assert(span >= 1, "more lanes than ranks");

    const arf_team_view &team;
    arf_control *control;
    arf_word epoch;
    int rank;

    __device__ __forceinline__ bool begin(long long) const
    {
        return true;
    }
    __device__ __forceinline__ bool take(arf_pack &x, bool wanted, long long token, int pack,
                                         const arf_pack &residual) const
    {
        const int first = (int)(threadIdx.x % 32) / (32 / lanes) * span;
        bool arrived = true;
        float sum[8] = {};
        if (wanted && first < ARF_R) {
            char *at = team.peer[rank] + arf_ll_row(team, epoch, token) +
                       ((arf_word)first * ARF_PACKS + (arf_word)pack) * 16;
            arrived = arf_gather_ranks<span>(sum, at, ARF_H * 2, first, team, control,
                                             ARF_CULPRIT(0, ARF_STAGE_LL_COLLECT, token, epoch));
        }
        if constexpr (lanes > 1) {
            /* A lane that gave up makes the pack NaN: without the norm no barrier comes before the
             * lane that stores it, which may have all of its own ranks. */
            if (!wanted || !arrived)
#pragma unroll
                for (int i = 0; i < 8; i++)
                    sum[i] = arf_low(0x7fffu);
#pragma unroll
            for (int mask = 32 / lanes; mask < 32; mask *= 2)
#pragma unroll
                for (int i = 0; i < 8; i++)
                    sum[i] = arf_add(sum[i], arf_lane_xor(sum[i], mask));
        }
        if (ARF_RESIDUAL)
            arf_add_pack(sum, residual);
        x = arf_narrow_pack(sum);
        return arrived;
    }
};

#endif
