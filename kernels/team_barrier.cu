/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time stamps after a barrier of the whole team, so that what is timed starts at the same time on
 * all ranks. One block a local rank: all are co-resident, and each tells its peers before it waits.
 */
#include "wait.cuh"

extern "C" __global__ void ARF_RESIDENT(128)
    arf_team_barrier(const __grid_constant__ arf_call call,
                     const __grid_constant__ arf_team_view team,
                     const __grid_constant__ arf_operand_table operands)
{
    const int local = arf_local_rank(), rank = team.first_rank + local;
    arf_control *control = arf_control_of(team, rank);
    arf_word *stamp = (arf_word *)operands.of[local].contribution;

    arf_grid_wait();
    if (!(call.flags & ARF_STAMP_ONLY)) {
        const arf_word epoch = arf_look_word(&control->barrier.next);
        arf_block_barrier(); /* all have read it */
        if (threadIdx.x == 0)
            arf_send_word(&control->barrier.next, epoch + 1);
        const int peer = (int)threadIdx.x;
        if (peer < ARF_R) {
            arf_send_release(&arf_control_of(team, peer)->reached[rank], epoch + 1);
            arf_wait_counter(team, control, &control->reached[peer], epoch + 1,
                             ARF_CULPRIT(peer, ARF_STAGE_BARRIER, 0, epoch));
        }
        arf_block_barrier();
    }
    if (threadIdx.x == 0 && stamp)
        *stamp = arf_now();
}
