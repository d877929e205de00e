/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unfused by a library, between its two collectives: the contributions to this rank's shard of
 * c = ceil(M / R) tokens, [source][c][P] at `input`, summed by the contract's tree; with the
 * residual they become pre-norm rows at their place among all rows, [R c][P] at `contribution`.
 */
#include "contribute.cuh"
#include "unfused.cuh"

extern "C" __global__ void ARF_RESIDENT(1024)
    arf_library_reduce(const __grid_constant__ arf_call call,
                       const __grid_constant__ arf_team_view team,
                       const __grid_constant__ arf_operand_table operands)
{
    const int rank = team.first_rank + arf_local_rank();
    const arf_operand_view &own = operands.of[arf_local_rank()];
    const long long shard = (call.tokens + ARF_R - 1) / ARF_R, first = shard * rank;
    const long long left = call.tokens - first, owned = left < shard ? left : shard;
    const long long total = owned * ARF_PACKS;
    const long long step = arf_row_step() * (long long)blockDim.x;

    arf_grid_wait();
    for (long long at = arf_first_row() * (long long)blockDim.x + threadIdx.x; at < total;
         at += step) {
        float sum[8];
        arf_sum_ranks<arf_power(ARF_R), true>(sum, (const char *)own.input + at * 16,
                                              (arf_word)shard * (ARF_H * 2), 0);
        if (ARF_RESIDUAL) {
            float r[8];
            arf_widen(arf_load_once((const arf_pack *)own.residual + first * ARF_PACKS + at), r);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[i] = arf_add(sum[i], r[i]);
        }
        arf_store((arf_pack *)own.contribution + first * ARF_PACKS + at, arf_narrow_pack(sum));
    }
}
