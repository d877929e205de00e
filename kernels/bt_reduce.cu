/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BT, second of three kernels: the owner sums what it owns, adds the residual and pushes the
 * pre-norm packs to every rank. A rank that owns nothing runs it all the same, and does nothing.
 */
#include "bt_stages.cuh"

extern "C" __global__ void ARF_RESIDENT(ARF_R <= 8 ? 768 : 512)
    arf_bt_reduce(const __grid_constant__ arf_call call, const __grid_constant__ arf_team_view team,
                  const __grid_constant__ arf_operand_table operands)
{
    const int local = arf_local_rank(), rank = team.first_rank + local;
    const arf_operand_view &own = operands.of[local];
    arf_control *control = arf_control_of(team, rank);
    const arf_word total = arf_bt_owned(call.tokens, rank) * ARF_BT_WIDTH;
    const arf_word step = (arf_word)arf_row_step() * blockDim.x;

    /* Known before the grid-dependency wait, as in row.cuh. */
    const arf_word epoch = arf_look_word(&control->bt.next);
    bool failed = arf_is_failed(control); /* then all rows become NaN, and nothing is pushed */
    arf_grid_wait();
    arf_trigger_next(call);
    for (arf_word at = (arf_word)arf_first_row() * blockDim.x + threadIdx.x; at < total && !failed;
         at += step)
        failed = !arf_bt_reduce_pack(own, team, control, epoch, rank, at);
}
