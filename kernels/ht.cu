/* SPDX-License-Identifier: Apache-2.0 */
/* HT: all of a call in one kernel. See ht.cuh. */
#include "ht.cuh"
#include "ht_contribute.cuh"
#include "ht_norm.cuh"
#include "ht_reduce.cuh"
#include "row.cuh"

extern __shared__ arf_pack arf_stash[];

/* Contributions first; rows that happen to be there are finished in between, the others after the
 * last contribution of this block is out. */
ARF_DEVICE void arf_ht_consume(const arf_ht_call &here, arf_ht_shared &shared)
{
    arf_ht_ring ring = {0, 0};
    arf_ht_group group(here);
    unsigned sent = 0;
    bool failed = here.dead; /* once it is, so are all later rows: the sticky word stays */
    int token = here.dead ? here.tokens : here.block;
    while (token < here.tokens || group.row < here.tokens) {
        const bool may_wait = token >= here.tokens;
        if (!may_wait) {
            arf_ht_contribute(here, shared, ring, token, ++sent);
            token += here.blocks;
        }
        if (group.row >= here.tokens)
            continue;
        if (!failed && arf_ht_rows_there(here, group, may_wait)) {
            arf_ht_finish(here, shared, group);
        } else if (may_wait) {
            failed = true;
            arf_ht_fill_nan(here, group);
        } else {
            continue; /* they will be looked at again */
        }
        group.next();
    }
}

extern "C" __global__ void ARF_RESIDENT(1)
    arf_ht(const __grid_constant__ arf_call call, const __grid_constant__ arf_team_view team,
           const __grid_constant__ arf_operand_table operands)
{
    arf_ht_shared &shared = *(arf_ht_shared *)arf_stash;
    const int local = arf_local_rank(), rank = team.first_rank + local;
    const int role = (int)threadIdx.x / 32 - ARF_CONSUMER_WARPS;
    arf_control *control = arf_control_of(team, rank);

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < ARF_STAGES; stage++) {
            arf_phase_init(&shared.full[stage], 1);
            arf_phase_init(&shared.empty[stage], ARF_CONSUMER_WARPS);
        }
        arf_phases_ready();
    }
    if (threadIdx.x < 32)
        shared.sent[threadIdx.x] = 0;
    /* Nothing before this kernel is known to have ended yet: all reading waits. */
    arf_grid_wait();
    arf_trigger_next(call);
    arf_row_call now = {arf_look_word(&control->ht.next), arf_is_failed(control), 0};
    arf_row_ready(now, &control->ht); /* the block's barrier: shared memory is ready as well */

    /* Every role ends by itself, whatever fails: those that wait for peers give up together, and
     * the others wait for this block's warps alone. */
    const arf_ht_call here = {call,
                              team,
                              operands.of[local],
                              control,
                              now.epoch,
                              (int)call.tokens,
                              (int)arf_first_row(),
                              (int)arf_row_step(),
                              rank,
                              now.dead};
    if (role < 0)
        arf_ht_consume(here, shared);
    else if (now.dead)
        return; /* not a consumer, so thread 0, which ends the call, is not among them */
    else if (role == 0)
        arf_ht_load(here, shared);
    else if (role == 1)
        arf_ht_publish(here, shared);
    else
        arf_ht_reduce(here, role - 2, (int)blockDim.x / 32 - ARF_CONSUMER_WARPS - 2);
    arf_row_end(now, &control->ht);
}
