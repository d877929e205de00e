/* SPDX-License-Identifier: Apache-2.0 */
/* What BT's second and third stage do with one pack, in kernels of their own or in one. */
#ifndef ARF_KERNELS_BT_STAGES_CUH
#define ARF_KERNELS_BT_STAGES_CUH

#include "bt.cuh"
#include "gather.cuh"

/*
 * Pack `at` of those that this rank owns, counted slot by slot: waits for all contributions, sums
 * them, adds the residual and pushes the pre-norm pack to every rank. False: the wait failed, and
 * nothing is pushed.
 */
ARF_DEVICE bool arf_bt_reduce_pack(const arf_operand_view &own, const arf_team_view &team,
                                   arf_control *control, arf_word epoch, int rank, arf_word at)
{
    const arf_word slot = at / ARF_BT_WIDTH;
    const int column = (int)(at % ARF_BT_WIDTH);
    const long long token = (long long)(ARF_SLICES ? slot : slot * ARF_R + (arf_word)rank);
    const int pack = ARF_SLICES ? rank * ARF_BT_WIDTH + column : column;
    arf_pack residual = make_uint4(0, 0, 0, 0);
    if (ARF_RESIDUAL)
        residual = arf_load_once((const arf_pack *)own.residual + token * ARF_PACKS + pack);

    float sum[8];
    char *from = team.peer[rank] + arf_bt_contribution(team, epoch, slot, column);
    if (!arf_gather_ranks<arf_power(ARF_R)>(sum, from, ARF_BT_WIDTH * 16, 0, team, control,
                                            ARF_CULPRIT(0, ARF_STAGE_BT_REDUCE, token, epoch)))
        return false;
    if (ARF_RESIDUAL)
        arf_add_pack(sum, residual);
    arf_send_all(team, rank, arf_bt_row(team, epoch, token, pack), arf_narrow_pack(sum));
    return true;
}

/* Pre-norm packs as their owners push them (row.cuh). */
struct arf_bt_source {
    static constexpr int lanes = 1;
    static constexpr bool adds_residual = false; /* the owner did */

    const arf_team_view &team;
    arf_control *control;
    arf_word epoch;
    int rank;

    __device__ __forceinline__ bool begin(long long) const
    {
        return true;
    }
    __device__ __forceinline__ bool take(arf_pack &x, bool wanted, long long token, int pack,
                                         const arf_pack &) const
    {
        if (!wanted)
            return true;
        arf_pack row[1];
        char *at = team.peer[rank] + arf_bt_row(team, epoch, token, pack);
        const int owner = arf_bt_owner(token, pack);
        if (!arf_wait_packs<1>(row, at, 0, 0, team, control,
                               ARF_CULPRIT(owner, ARF_STAGE_BT_NORM, token, epoch)))
            return false;
        /* Re-armed as in gather.cuh: the owner writes this generation again only after data of this
         * rank's next call, whose first kernel waits for this grid. */
        arf_store(at, ARF_SENTINEL_PACK);
        x = row[0];
        return true;
    }
};

#endif
