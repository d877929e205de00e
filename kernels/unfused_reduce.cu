/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unfused, second step: owners sum their rows, add the residual (so that the sum stays in fp32 and
 * the bits are the contract's) and write the pre-norm row to every rank.
 */
#include "unfused.cuh"

extern "C" __global__ void ARF_RESIDENT(1024)
    arf_unfused_reduce(const __grid_constant__ arf_call call,
                       const __grid_constant__ arf_team_view team,
                       const __grid_constant__ arf_operand_table operands)
{
    const int local = arf_local_rank(), rank = team.first_rank + local;
    const arf_operand_view &own = operands.of[local];
    arf_control *control = arf_control_of(team, rank);
    const arf_word total =
        (arf_word)((call.tokens + ARF_R - 1 - rank) / ARF_R) * (arf_word)ARF_PACKS;
    const arf_word step = (arf_word)arf_row_step() * blockDim.x;

    arf_grid_wait();
    arf_trigger_next(call);
    const arf_word epoch = arf_look_word(&control->unfused.next);
    bool failed = arf_is_failed(control);
    for (int source = (int)threadIdx.x; source < ARF_R && !failed; source += (int)blockDim.x)
        failed = !arf_wait_counter(team, control, &control->scattered[source], epoch + 1,
                                   ARF_CULPRIT(source, ARF_STAGE_UNFUSED_REDUCE, 0, epoch));
    if (arf_block_any(failed))
        return;

    for (arf_word at = (arf_word)arf_first_row() * blockDim.x + threadIdx.x; at < total;
         at += step) {
        const arf_word slot = at / ARF_PACKS;
        const int pack = (int)(at % ARF_PACKS);
        const long long token = (long long)slot * ARF_R + rank;
        float sum[8];
        arf_sum_ranks<arf_power(ARF_R), false>(
            sum, team.peer[rank] + arf_unfused_contribution(team, slot, pack), ARF_H * 2, 0);
        if (ARF_RESIDUAL)
            arf_add_pack(
                sum, arf_load_once((const arf_pack *)own.residual + token * ARF_PACKS + pack));
        arf_send_all(team, rank, arf_unfused_row(team, token, pack), arf_narrow_pack(sum));
    }
    arf_step_done(team, rank, &control->unfused.step[1], ARF_COUNTERS(gathered), epoch + 1);
}
