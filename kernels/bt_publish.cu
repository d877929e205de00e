/* SPDX-License-Identifier: Apache-2.0 */
/* BT, first of three kernels: contributions to their owners. Waits for nobody. */
#include "bt.cuh"
#include "contribute.cuh"

extern "C" __global__ void ARF_RESIDENT(ARF_FINALIZE ? 512 : 1024)
    arf_bt_publish(const __grid_constant__ arf_call call,
                   const __grid_constant__ arf_team_view team,
                   const __grid_constant__ arf_operand_table operands)
{
    /* Loads in flight; a grid sized for more packs a thread comes round again. */
    constexpr int vectors = ARF_FINALIZE ? 1 : ARF_VECTORS < 8 ? ARF_VECTORS : 8;
    constexpr int pieces = ARF_H / ARF_ELEMENTS; /* fragments of a token */
    const int local = arf_local_rank(), rank = team.first_rank + local;
    const arf_operand_view &own = operands.of[local];
    const arf_epoch *state = &arf_control_of(team, rank)->bt;
    const arf_word total = (arf_word)call.tokens * pieces;
    const arf_word step = (arf_word)arf_row_step() * blockDim.x * vectors;
    arf_word first = (arf_word)arf_first_row() * blockDim.x * vectors + threadIdx.x;

    arf_fragment<ARF_ELEMENTS> early = {};
    bool is_early = ARF_FINALIZE && ARF_SHARED && (call.flags & ARF_SHARED_EARLY) && first < total;
    if (is_early)
        early = arf_load_shared<ARF_ELEMENTS>(own, (long long)(first / pieces),
                                              (int)(first % pieces) * ARF_ELEMENTS);

    arf_grid_wait();
    if (call.flags & ARF_TRIGGER_EARLY)
        arf_grid_trigger();
    const arf_word epoch = arf_look_word(&state->next);
    for (; first < total; first += step) {
        arf_fragment<ARF_ELEMENTS> f[vectors];
#pragma unroll
        for (int i = 0; i < vectors; i++) {
            const arf_word piece = first + (arf_word)i * blockDim.x;
            if (piece < total)
                f[i] = arf_contribution<ARF_ELEMENTS>(call, own, (long long)(piece / pieces),
                                                      (int)(piece % pieces) * ARF_ELEMENTS, early,
                                                      is_early);
        }
        is_early = false;
#pragma unroll
        for (int i = 0; i < vectors; i++) {
            const arf_word piece = first + (arf_word)i * blockDim.x;
            if (piece >= total)
                continue;
            const long long token = (long long)(piece / pieces);
            const int element = (int)(piece % pieces) * ARF_ELEMENTS, pack = element / 8;
            const int owner = arf_bt_owner(token, pack);
            const arf_word at = arf_bt_contribution(team, epoch, arf_bt_slot(token),
                                                    rank * ARF_BT_WIDTH + pack % ARF_BT_WIDTH) +
                                (arf_word)(element % 8) * 2;
            arf_fragment_send(team.peer[owner] + at, f[i]);
        }
    }
    arf_grid_trigger();
}
