/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LL in one kernel: every block publishes its part of all its rows before it
 * waits for any. The grid is co-resident, so no block that publishes is queued
 * behind one that waits.
 */
#include "ll.cuh"

extern __shared__ arf_pack arf_stash[];

extern "C" __global__ void ARF_RESIDENT(ARF_FINALIZE ? 512 : 640)
    arf_ll_single(const __grid_constant__ arf_call call, const __grid_constant__ arf_team_view team,
                  const __grid_constant__ arf_operand_table operands)
{
    __shared__ arf_row_shared<ARF_RANK_LANES> shared;
    const int local = arf_local_rank(), rank = team.first_rank + local;
    const arf_operand_view &own = operands.of[local];
    arf_control *control = arf_control_of(team, rank);

    /* Nothing before this kernel is known to have ended yet: all reading waits. */
    arf_grid_wait();
    arf_trigger_next(call);
    arf_row_call now = arf_row_start(shared, control, &control->ll);
    for (long long token = arf_first_row(); token < call.tokens; token += arf_row_step())
        for (int pack = (int)(blockIdx.y * blockDim.x + threadIdx.x); pack < ARF_PACKS;
             pack += (int)(gridDim.y * blockDim.x)) {
            const arf_fragment<8> f = arf_contribution<8>(call, own, token, pack * 8, {}, false);
            arf_ll_send<8>(team, now.epoch, rank, token, pack * 8, f);
        }
    const arf_row_early early = arf_row_load_early<ARF_RANK_LANES>(call, own, true);
    arf_row_ready(now, &control->ll);
    const arf_ll_source source = {team, control, now.epoch, rank};
    arf_finish_rows(call, own, source, shared, now.dead, arf_stash, early);
    arf_row_end(now, &control->ll);
}
