/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BT in one kernel, for few tokens. Every block does its part of each stage for all its rows before
 * it goes on: contributions wait for nobody, reducing waits for contributions, rows wait for what
 * was reduced. The grid is co-resident, so no block that a stage needs is queued behind one that
 * waits.
 */
#include "bt_stages.cuh"
#include "contribute.cuh"
#include "row.cuh"

extern __shared__ arf_pack arf_stash[];

extern "C" __global__ void ARF_RESIDENT(ARF_FINALIZE ? 512 : 640)
    arf_bt_single(const __grid_constant__ arf_call call, const __grid_constant__ arf_team_view team,
                  const __grid_constant__ arf_operand_table operands)
{
    __shared__ arf_row_shared<1> shared;
    const int local = arf_local_rank(), rank = team.first_rank + local;
    const arf_operand_view &own = operands.of[local];
    arf_control *control = arf_control_of(team, rank);

    /* Nothing before this kernel is known to have ended yet: all reading waits. */
    arf_grid_wait();
    arf_trigger_next(call);
    arf_row_call now = arf_row_start(shared, control, &control->bt);
    for (long long token = arf_first_row(); token < call.tokens; token += arf_row_step())
        for (int pack = (int)(blockIdx.y * blockDim.x + threadIdx.x); pack < ARF_PACKS;
             pack += (int)(gridDim.y * blockDim.x)) {
            const arf_fragment<8> f = arf_contribution<8>(call, own, token, pack * 8, {}, false);
            const arf_word at = arf_bt_contribution(team, now.epoch, arf_bt_slot(token),
                                                    rank * ARF_BT_WIDTH + pack % ARF_BT_WIDTH);
            arf_fragment_send(team.peer[arf_bt_owner(token, pack)] + at, f);
        }
    const arf_row_early early = arf_row_load_early<1>(call, own, false);
    arf_row_ready(now, &control->bt);

    /* A warp takes 32 packs, and the next 32 go to a warp of another block: all multiprocessors
     * reduce, however few packs there are. */
    const arf_word blocks = (arf_word)arf_row_step() * gridDim.y;
    const arf_word block = (arf_word)arf_first_row() * gridDim.y + blockIdx.y;
    const arf_word total = arf_bt_owned(call.tokens, rank) * ARF_BT_WIDTH;
    const arf_word warp = threadIdx.x / 32, step = blocks * blockDim.x;
    bool failed = now.dead; /* of this thread alone; its row then fails for the whole cluster */
    for (arf_word at = (warp * blocks + block) * 32 + threadIdx.x % 32; at < total && !failed;
         at += step)
        failed = !arf_bt_reduce_pack(own, team, control, now.epoch, rank, at);

    const arf_bt_source source = {team, control, now.epoch, rank};
    arf_finish_rows(call, own, source, shared, failed, arf_stash, early);
    arf_row_end(now, &control->bt);
}
