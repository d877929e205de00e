/* SPDX-License-Identifier: Apache-2.0 */
/* LL, second of two kernels: sum of all ranks, residual, norm. */
#include "ll.cuh"

extern __shared__ arf_pack arf_stash[];

extern "C" __global__ void ARF_RESIDENT(ARF_R <= 8 ? 768 : 512)
    arf_ll_collect(const __grid_constant__ arf_call call,
                   const __grid_constant__ arf_team_view team,
                   const __grid_constant__ arf_operand_table operands)
{
    __shared__ arf_row_shared<ARF_RANK_LANES> shared;
    const int local = arf_local_rank(), rank = team.first_rank + local;
    const arf_operand_view &own = operands.of[local];
    arf_control *control = arf_control_of(team, rank);

    arf_row_call now = arf_row_start(shared, control, &control->ll);
    /* Publish triggered after its own wait, so all that came before it has ended: residual and
     * gamma are complete. */
    const arf_row_early early = arf_row_load_early<ARF_RANK_LANES>(call, own, true);
    arf_grid_wait();
    arf_trigger_next(call);
    arf_row_ready(now, &control->ll);
    const arf_ll_source source = {team, control, now.epoch, rank};
    arf_finish_rows(call, own, source, shared, now.dead, arf_stash, early);
    arf_row_end(now, &control->ll);
}
