/* SPDX-License-Identifier: Apache-2.0 */
/* The MoE finalize alone: contributions into plain memory, for what runs the reduction apart. */
#undef ARF_FINALIZE
#define ARF_FINALIZE 1 /* whatever the route behind it is */
#include "contribute.cuh"
#include "wait.cuh"

extern "C" __global__ void ARF_RESIDENT(512)
    arf_finalize(const __grid_constant__ arf_call call, const __grid_constant__ arf_team_view team,
                 const __grid_constant__ arf_operand_table operands)
{
    const arf_operand_view &own = operands.of[arf_local_rank()];
    const int element = (int)(blockIdx.y * blockDim.x + threadIdx.x) * ARF_ELEMENTS;
    long long token = arf_first_row();
    (void)team;

    arf_fragment<ARF_ELEMENTS> early = {};
    const bool is_early = ARF_SHARED && (call.flags & ARF_SHARED_EARLY);
    if (is_early && element < ARF_H && token < call.tokens)
        early = arf_load_shared<ARF_ELEMENTS>(own, token, element);
    arf_grid_wait();
    if (call.flags & ARF_TRIGGER_EARLY)
        arf_grid_trigger();
    if (element < ARF_H)
        for (bool first = true; token < call.tokens; token += arf_row_step(), first = false)
            arf_fragment_store((char *)own.contribution + arf_element_offset(token, element),
                               arf_contribution<ARF_ELEMENTS>(call, own, token, element, early,
                                                              is_early && first));
    arf_grid_trigger();
}
