/* SPDX-License-Identifier: Apache-2.0 */
/* BT, third of three kernels: every rank normalises every row. */
#include "bt_stages.cuh"
#include "row.cuh"

extern __shared__ arf_pack arf_stash[];

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
