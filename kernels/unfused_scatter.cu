/* SPDX-License-Identifier: Apache-2.0 */
/* Unfused, first step: every rank's input rows to the rows' owners. Waits for nobody. */
#include "contribute.cuh"
#include "unfused.cuh"

extern "C" __global__ void ARF_RESIDENT(1024)
    arf_unfused_scatter(const __grid_constant__ arf_call call,
                        const __grid_constant__ arf_team_view team,
                        const __grid_constant__ arf_operand_table operands)
{
    const int local = arf_local_rank(), rank = team.first_rank + local;
    const arf_operand_view &own = operands.of[local];
    arf_epoch *state = &arf_control_of(team, rank)->unfused;
    const arf_word total = (arf_word)call.tokens * ARF_PACKS;
    const arf_word step = (arf_word)arf_row_step() * blockDim.x;

    arf_grid_wait();
    arf_grid_trigger();
    const arf_word epoch = arf_look_word(&state->next);
    for (arf_word at = (arf_word)arf_first_row() * blockDim.x + threadIdx.x; at < total;
         at += step) {
        const long long token = (long long)(at / ARF_PACKS);
        const int pack = (int)(at % ARF_PACKS);
        const arf_word to =
            arf_unfused_contribution(team, (arf_word)(token / ARF_R), rank * ARF_PACKS + pack);
        const arf_pack v = arf_load_once((const arf_pack *)own.input + at);
        arf_send(team.peer[token % ARF_R] + to, arf_sendable_pack(v));
    }
    arf_step_done(team, rank, &state->step[0], ARF_COUNTERS(scattered), epoch + 1);
}
