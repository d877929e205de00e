/* SPDX-License-Identifier: Apache-2.0 */
/* BT, third of three kernels: every rank normalises every row. */
#include "bt.cuh"
#include "row.cuh"

extern __shared__ arf_pack arf_stash[];

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

extern "C" __global__ void ARF_RESIDENT(1024)
    arf_bt_norm(const __grid_constant__ arf_call call, const __grid_constant__ arf_team_view team,
                const __grid_constant__ arf_operand_table operands)
{
    __shared__ arf_row_shared<1> shared;
    const int local = arf_local_rank(), rank = team.first_rank + local;
    const arf_operand_view &own = operands.of[local];
    arf_control *control = arf_control_of(team, rank);

    arf_row_call now = arf_row_start(shared, control, &control->bt);
    const arf_row_early early = arf_row_load_early<1>(call, own, false);
    arf_grid_wait();
    arf_trigger_next(call);
    arf_row_ready(now, &control->bt);
    const arf_bt_source source = {team, control, now.epoch, rank};
    arf_finish_rows(call, own, source, shared, now.dead, arf_stash, early);
    arf_row_end(now, &control->bt);
}
