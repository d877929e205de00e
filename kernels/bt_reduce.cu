/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BT, second of three kernels: the owner sums what it owns, adds the residual and pushes the
 * pre-norm packs to every rank. A rank that owns nothing runs it all the same, and does nothing.
 */
#include "bt.cuh"
#include "gather.cuh"

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
         at += step) {
        const arf_word slot = at / ARF_BT_WIDTH;
        const int column = (int)(at % ARF_BT_WIDTH);
        const long long token = (long long)(ARF_SLICES ? slot : slot * ARF_R + (arf_word)rank);
        const int pack = ARF_SLICES ? rank * ARF_BT_WIDTH + column : column;
        arf_pack residual = make_uint4(0, 0, 0, 0);
        if (ARF_RESIDUAL)
            residual = arf_load_once((const arf_pack *)own.residual + token * ARF_PACKS + pack);

        float sum[8];
        char *from = team.peer[rank] + arf_bt_contribution(team, epoch, slot, column);
        failed =
            !arf_gather_ranks<arf_power(ARF_R)>(sum, from, ARF_BT_WIDTH * 16, 0, team, control,
                                                ARF_CULPRIT(0, ARF_STAGE_BT_REDUCE, token, epoch));
        if (failed)
            break;
        if (ARF_RESIDUAL)
            arf_add_pack(sum, residual);
        arf_send_all(team, rank, arf_bt_row(team, epoch, token, pack), arf_narrow_pack(sum));
    }
}
