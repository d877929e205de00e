/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This rank's contribution to one fragment of a token: its input (allreduce), or
 * the weighted gather of expert rows plus the shared expert (finalize).
 */
#ifndef ARF_KERNELS_CONTRIBUTE_CUH
#define ARF_KERNELS_CONTRIBUTE_CUH

#include "fragment.cuh"

/* Offset of an element of a [M,H] tensor, in bytes. */
ARF_DEVICE long long arf_element_offset(long long token, int element)
{
    return (token * ARF_H + element) * 2;
}

template <int elements>
ARF_DEVICE arf_fragment<elements> arf_load_shared(const arf_operand_view &own, long long token,
                                                  int element)
{
    return arf_fragment_load<elements>((const char *)own.shared +
                                       arf_element_offset(token, element));
}

#if ARF_K > 0
/* Beyond 16 rows a thread would hold more values than registers. */
static constexpr int arf_rows_wanted = ARF_PREFETCH < ARF_K ? ARF_PREFETCH : ARF_K;
static constexpr int arf_rows_at_once = arf_rows_wanted < 16 ? arf_rows_wanted : 16;

/*
 * acc = fma(w[k] * scale, routed[idx[k]], acc) with k ascending, then + shared, then bf16. `group`
 * rows are in flight at once. A dropped slot (-1) is skipped whole: its row is not read and adds
 * nothing, not even zero times infinity.
 */
template <int elements, int group>
ARF_DEVICE arf_fragment<elements> arf_gather(const arf_call &call, const arf_operand_view &own,
                                             long long token, int element,
                                             const arf_fragment<elements> &shared)
{
    float sum[elements] = {};
    const long long first = token * ARF_K;
    const char *column = (const char *)own.routed + element * 2;
#pragma unroll
    for (int start = 0; start < ARF_K; start += group) {
        int row[group];
        float weight[group];
        arf_fragment<elements> values[group];
#pragma unroll
        for (int k = 0; k < group; k++)
            row[k] = start + k < ARF_K ? (int)arf_load_word(own.indices + first + start + k) : -1;
#pragma unroll
        for (int k = 0; k < group; k++)
            if (row[k] >= 0)
                values[k] = arf_fragment_load<elements>(column + (long long)row[k] * (ARF_H * 2));
        if (call.flags & ARF_WEIGHTS_ARE_FP32) {
#pragma unroll
            for (int k = 0; k < group; k++)
                if (start + k < ARF_K)
                    weight[k] = __uint_as_float(
                        arf_load_word((const float *)own.weights + first + start + k));
        } else {
#pragma unroll
            for (int k = 0; k < group; k++)
                if (start + k < ARF_K)
                    weight[k] = arf_low(
                        arf_load_half((const unsigned short *)own.weights + first + start + k));
        }
#pragma unroll
        for (int k = 0; k < group; k++)
            if (row[k] >= 0)
                arf_fragment_fma<elements>(arf_mul(weight[k], call.routed_scale), values[k], sum);
    }
    if (ARF_SHARED)
        arf_fragment_add<elements>(shared, sum);
    return arf_fragment_narrow<elements>(sum);
}
#endif

/*
 * The contribution, ready to send. `early` is the shared expert's fragment if `is_early`: then it
 * was loaded before the grid-dependency wait. Call after that wait.
 */
template <int elements>
ARF_DEVICE arf_fragment<elements>
arf_contribution(const arf_call &call, const arf_operand_view &own, long long token, int element,
                 const arf_fragment<elements> &early, bool is_early)
{
    arf_fragment<elements> f;
#if ARF_FINALIZE && ARF_K > 0
    arf_fragment<elements> shared = early;
    if (ARF_SHARED && !is_early)
        shared = arf_load_shared<elements>(own, token, element);
    f = arf_gather<elements, arf_rows_at_once>(call, own, token, element, shared);
#else
    (void)call, (void)early, (void)is_early;
    f = arf_fragment_load<elements>((const char *)own.input + arf_element_offset(token, element));
#endif
    arf_fragment_make_sendable(f);
    return f;
}

#endif
