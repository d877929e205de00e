/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HT, the way back: consumers are cut into groups of whole warps; each group has
 * rows of its own and takes ARF_NORM_ROWS of them at a time, so that many loads
 * are in flight and one barrier serves several rows. A warp always has 32
 * neighbouring packs, so its sum of squares is a node of the contract's tree.
 */
#ifndef ARF_KERNELS_HT_NORM_CUH
#define ARF_KERNELS_HT_NORM_CUH

#include "ht.cuh"

#define ARF_GROUP_THREADS (ARF_THREADS / ARF_NORM_GROUPS)
#define ARF_GROUP_PACKS (ARF_PACKS / ARF_GROUP_THREADS) /* of a row, a thread */
static_assert(ARF_GROUP_THREADS % 32 == 0, "a barrier counts whole warps");

/* Rows stay in registers between their sum and their norm where there are enough; a large block has
 * 96 a thread. Others are read again, from the second-level cache. */
#define ARF_ROWS_HELD (ARF_NORM_ROWS * ARF_GROUP_PACKS <= (ARF_MAX_THREADS > 512 ? 6 : 24))
static constexpr int arf_row_unrolled = ARF_ROWS_HELD ? ARF_GROUP_PACKS : 4;

/* A group and where it stands in its rows. */
struct arf_ht_group {
    int index, thread; /* of the block's groups; of the group's threads */
    int row, step; /* the first of ARF_NORM_ROWS, `step` apart; those beyond the call are none */

    __device__ __forceinline__ explicit arf_ht_group(const arf_ht_call &here)
    {
        index = (int)threadIdx.x / ARF_GROUP_THREADS, thread = (int)threadIdx.x % ARF_GROUP_THREADS;
        row = here.block + index * here.blocks;
        step = here.blocks * ARF_NORM_GROUPS;
    }
    __device__ __forceinline__ int token(int j) const
    {
        return row + j * step;
    }
    __device__ __forceinline__ int pack(int i) const
    {
        return i * ARF_GROUP_THREADS + thread;
    }
    __device__ __forceinline__ void next()
    {
        row += ARF_NORM_ROWS * step;
    }
    __device__ __forceinline__ bool any(bool condition) const
    {
        return arf_group_any(1 + index, ARF_GROUP_THREADS, condition);
    }
};

/*
 * Whether all shards of the group's rows are there, the same in all its threads, which then see the
 * rows. Its first warp looks, a lane a shard. `wait`: false only when a wait has failed.
 */
ARF_DEVICE bool arf_ht_rows_there(const arf_ht_call &here, const arf_ht_group &group, bool wait)
{
    const int shards = here.call.shards;
    bool there = true;
    if (group.thread < 32)
        for (int n = group.thread; n < ARF_NORM_ROWS * shards && there; n += 32) {
            const int token = group.token(n / shards);
            if (token >= here.tokens)
                break;
            const arf_word *mark = arf_ht_arrived(here.team, here.rank, token, n % shards);
            const arf_word culprit =
                ARF_CULPRIT(arf_ht_owner(token), ARF_STAGE_HT_NORM, token, here.epoch);
            there = wait ? arf_wait_mark(here.team, here.control, mark, here.epoch + 1, culprit)
                         : arf_look_acquire(mark) >= here.epoch + 1;
        }
    return !group.any(!there);
}

/* Rows not finished: NaN in both outputs, so that a lost peer never yields what looks right. */
ARF_DEVICE void arf_ht_fill_nan(const arf_ht_call &here, const arf_ht_group &group)
{
#pragma unroll 1
    for (int j = 0; j < ARF_NORM_ROWS && group.token(j) < here.tokens; j++)
#pragma unroll 1
        for (int i = 0; i < ARF_GROUP_PACKS; i++) {
            const long long at = (long long)group.token(j) * ARF_PACKS + group.pack(i);
            if (here.own.residual_out)
                arf_store((arf_pack *)here.own.residual_out + at, ARF_NAN_PACK);
            if (ARF_NORM)
                arf_store((arf_pack *)here.own.norm_out + at, ARF_NAN_PACK);
        }
}

ARF_DEVICE arf_pack arf_ht_look(const arf_ht_call &here, const arf_ht_group &group, int j, int i)
{
    return arf_look(here.team.peer[here.rank] +
                    arf_ht_row(here.team, group.token(j), group.pack(i)));
}

/* All threads of the group, when its rows are there. */
ARF_DEVICE void arf_ht_finish(const arf_ht_call &here, arf_ht_shared &shared,
                              const arf_ht_group &group)
{
    constexpr bool held = ARF_ROWS_HELD;
    const int lane = group.thread % 32;
    arf_pack x[held ? ARF_NORM_ROWS : 1][held ? ARF_GROUP_PACKS : 1];
    if (held)
#pragma unroll
        for (int j = 0; j < ARF_NORM_ROWS; j++)
#pragma unroll
            for (int i = 0; i < ARF_GROUP_PACKS; i++)
                if (group.token(j) < here.tokens)
                    x[held ? j : 0][held ? i : 0] = arf_ht_look(here, group, j, i);
#pragma unroll
    for (int j = 0; j < ARF_NORM_ROWS; j++) {
        if (group.token(j) >= here.tokens)
            continue;
#pragma unroll arf_row_unrolled
        for (int i = 0; i < ARF_GROUP_PACKS; i++) {
            const arf_pack v =
                held ? x[held ? j : 0][held ? i : 0] : arf_ht_look(here, group, j, i);
            if (here.own.residual_out)
                arf_store((arf_pack *)here.own.residual_out +
                              (long long)group.token(j) * ARF_PACKS + group.pack(i),
                          v);
            if (ARF_NORM) {
                const float sum = arf_lane_tree<32>(arf_pack_squares(v));
                if (lane == 0)
                    shared.sums[group.index][j][group.pack(i) / 32] = sum;
            }
        }
    }
    if (ARF_NORM == 0)
        return;
    /* The sums of the next rows are written behind the group's next vote, thus when all of its
     * threads are done with these. */
    arf_group_barrier(1 + group.index, ARF_GROUP_THREADS);
    float inv[ARF_NORM_ROWS];
#pragma unroll
    for (int j = 0; j < ARF_NORM_ROWS; j++) {
        inv[j] = arf_inverse_rms(arf_warp_tree<ARF_PACKS / 32>(shared.sums[group.index][j], lane),
                                 here.call.epsilon);
        if (here.own.inverse_rms && group.thread == 0 && group.token(j) < here.tokens)
            here.own.inverse_rms[group.token(j)] = inv[j];
    }
    /* A gamma serves all rows. */
#pragma unroll arf_row_unrolled
    for (int i = 0; i < ARF_GROUP_PACKS; i++) {
        const arf_pack gamma = arf_load_kept((const arf_pack *)here.own.gamma + group.pack(i));
#pragma unroll
        for (int j = 0; j < ARF_NORM_ROWS; j++) {
            if (group.token(j) >= here.tokens)
                continue;
            const arf_pack v =
                held ? x[held ? j : 0][held ? i : 0] : arf_ht_look(here, group, j, i);
            arf_store((arf_pack *)here.own.norm_out + (long long)group.token(j) * ARF_PACKS +
                          group.pack(i),
                      arf_normalised(v, inv[j], gamma, here.call.weight_bias));
        }
    }
}

#endif
