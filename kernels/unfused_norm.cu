/* SPDX-License-Identifier: Apache-2.0 */
/* Unfused, last step: residual_out and norm of every row. */
#include "row.cuh"
#include "unfused.cuh"

extern __shared__ arf_pack arf_stash[];

struct arf_unfused_source {
    static constexpr int lanes = 1;
    static constexpr bool adds_residual = false; /* the owner did */

    const arf_team_view &team;
    arf_control *control;
    arf_word epoch;
    int rank;

    __device__ __forceinline__ bool begin(long long token) const
    {
        const int owner = (int)(token % ARF_R);
        return arf_wait_counter(team, control, &control->gathered[owner], epoch + 1,
                                ARF_CULPRIT(owner, ARF_STAGE_UNFUSED_NORM, 0, epoch));
    }
    __device__ __forceinline__ bool take(arf_pack &x, bool wanted, long long token, int pack,
                                         const arf_pack &) const
    {
        if (wanted)
            x = arf_look(team.peer[rank] + arf_unfused_row(team, token, pack));
        return true;
    }
};

extern "C" __global__ void ARF_RESIDENT(1024)
    arf_unfused_norm(const __grid_constant__ arf_call call,
                     const __grid_constant__ arf_team_view team,
                     const __grid_constant__ arf_operand_table operands)
{
    __shared__ arf_row_shared<1> shared;
    const int local = arf_local_rank(), rank = team.first_rank + local;
    const arf_operand_view &own = operands.of[local];
    arf_control *control = arf_control_of(team, rank);

    arf_row_call now = arf_row_start(shared, control, &control->unfused);
    const arf_row_early early = arf_row_load_early<1>(call, own, false);
    arf_grid_wait();
    arf_trigger_next(call);
    arf_row_ready(now, &control->unfused);
    const arf_unfused_source source = {team, control, now.epoch, rank};
    arf_finish_rows(call, own, source, shared, now.dead, arf_stash, early);
    arf_row_end(now, &control->unfused);
}
