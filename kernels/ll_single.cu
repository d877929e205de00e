/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LL in one kernel: every block publishes its part of all its rows before it
 * waits for any. The grid is co-resident, so no block that publishes is queued
 * behind one that waits.
 */
#include "ll.cuh"

extern __shared__ arf_pack arf_stash[];

extern "C" __global__ void __launch_bounds__(ARF_MAX_THREADS)
    arf_ll_single(const __grid_constant__ arf_call call, const __grid_constant__ arf_team_view team,
                  const __grid_constant__ arf_operand_table operands)
{
    __shared__ arf_row_shared<ARF_RANK_LANES> shared;
    const int local = arf_local_rank(), rank = team.first_rank + local;
    const arf_operand_view &own = operands.of[local];
    arf_control *control = arf_control_of(team, rank);
    arf_epoch *state = &control->ll;

    arf_row_start(shared);
    /* Nothing before this kernel is known to have ended yet: residual and gamma, too, wait. */
    arf_grid_wait();
    arf_grid_trigger();
    const arf_word epoch = arf_look_word(&state->next);
    const bool dead = arf_is_failed(control);
    const arf_row_early early = arf_row_load_early<ARF_RANK_LANES>(call, own, true);
    for (long long token = arf_first_row(); token < call.tokens; token += arf_row_step())
        for (int pack = (int)(blockIdx.y * blockDim.x + threadIdx.x); pack < ARF_PACKS;
             pack += (int)(gridDim.y * blockDim.x)) {
            const arf_fragment<8> f = arf_contribution<8>(call, own, token, pack * 8, {}, false);
            arf_ll_send<8>(team, epoch, rank, token, pack * 8, f);
        }

    /* The last block to have read `next` advances it; who waits for peers has time for that. */
    arf_block_barrier();
    if (threadIdx.x == 0) {
        const unsigned blocks = (unsigned)arf_row_step() * gridDim.y;
        if (arf_count_relaxed(&state->ticket[0]) + 1 == blocks) {
            state->ticket[0] = 0;
            arf_send_word(&state->next, epoch + 1);
        }
    }
    arf_ll_source source = {team, control, epoch, rank, dead};
    arf_row_ready();
    arf_finish_rows(call, own, source, shared, arf_stash, early);
}
