/* SPDX-License-Identifier: Apache-2.0 */
/* LL, first of two kernels: contributions into all mailboxes. Waits for nobody. */
#include "ll.cuh"

extern "C" __global__ void ARF_RESIDENT(ARF_FINALIZE ? 512 : 1024)
    arf_ll_publish(const __grid_constant__ arf_call call,
                   const __grid_constant__ arf_team_view team,
                   const __grid_constant__ arf_operand_table operands)
{
    const int local = arf_local_rank(), rank = team.first_rank + local;
    const arf_operand_view &own = operands.of[local];
    const arf_epoch *state = &arf_control_of(team, rank)->ll;
    const int element = (int)(blockIdx.y * blockDim.x + threadIdx.x) * ARF_ELEMENTS;
    const bool inside = element < ARF_H;
    long long token = arf_first_row();

    arf_fragment<ARF_ELEMENTS> early = {};
    const bool is_early = ARF_FINALIZE && ARF_SHARED && (call.flags & ARF_SHARED_EARLY);
    if (is_early && inside && token < call.tokens)
        early = arf_load_shared<ARF_ELEMENTS>(own, token, element);

    /* The collect grid that re-armed this generation, and advanced `next`, has ended. */
    arf_grid_wait();
    if (call.flags & ARF_TRIGGER_EARLY)
        arf_grid_trigger();
    const arf_word epoch = arf_look_word(&state->next);
    if (inside)
        for (bool first = true; token < call.tokens; token += arf_row_step(), first = false) {
            const arf_fragment<ARF_ELEMENTS> f =
                arf_contribution<ARF_ELEMENTS>(call, own, token, element, early, is_early && first);
            arf_ll_send<ARF_ELEMENTS>(team, epoch, rank, token, element, f);
        }
    arf_grid_trigger();
}
