/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unfused by a library, last step: residual_out and norm of every row at `contribution`. ARF_SUMMED 0:
 * these are pre-norm rows; 1: sums of the library, to which the residual is added here.
 */
#include "row.cuh"

extern __shared__ arf_pack arf_stash[];

struct arf_library_source {
    static constexpr int lanes = 1;
    static constexpr bool adds_residual = ARF_SUMMED != 0;

    const arf_pack *row;

    __device__ __forceinline__ bool begin(long long) const
    {
        return true;
    }
    __device__ __forceinline__ bool take(arf_pack &x, bool wanted, long long token, int pack,
                                         const arf_pack &residual) const
    {
        if (!wanted)
            return true;
        const arf_pack loaded = arf_load_gpu(row + token * ARF_PACKS + pack);
        float sum[8];
        arf_widen(loaded, sum);
        if (ARF_SUMMED && ARF_RESIDUAL)
            arf_add_pack(sum, residual);
        x = ARF_SUMMED ? arf_narrow_pack(sum) : loaded;
        return true;
    }
};

extern "C" __global__ void ARF_RESIDENT(1024)
    arf_library_norm(const __grid_constant__ arf_call call,
                     const __grid_constant__ arf_team_view team,
                     const __grid_constant__ arf_operand_table operands)
{
    __shared__ arf_row_shared<1> shared;
    const int local = arf_local_rank();
    const arf_operand_view &own = operands.of[local];
    arf_control *control = arf_control_of(team, team.first_rank + local);

    arf_row_call now = arf_row_start(shared, control, &control->unfused);
    const arf_row_early early = arf_row_load_early<1>(call, own, ARF_SUMMED != 0);
    arf_grid_wait();
    arf_row_ready(now, &control->unfused);
    if (arf_is_first_thread()) /* the library's collectives have ended */
        arf_send_word(team.mirror + ARF_MIRROR_ENDED, control->library_calls);
    const arf_library_source source = {(const arf_pack *)own.contribution};
    arf_finish_rows(call, own, source, shared, now.dead, arf_stash, early);
    arf_row_end(now, &control->unfused);
}
