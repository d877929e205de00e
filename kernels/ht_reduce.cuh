/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HT, at the owner: shards of its tokens, dealt out to the reducing warps of all
 * blocks one by one, so that neither grid nor shards need to divide anything. The
 * end of a shard is predicated: it may have any number of packs.
 */
#ifndef ARF_KERNELS_HT_REDUCE_CUH
#define ARF_KERNELS_HT_REDUCE_CUH

#include "gather.cuh"
#include "ht.cuh"

ARF_DEVICE int arf_ht_shard_begin(int shard, int shards)
{
    return ARF_PACKS * shard / shards;
}

/* All lanes: waits for every rank's contribution to the token. */
ARF_DEVICE bool arf_ht_await_ranks(const arf_ht_call &here, int token)
{
    bool there = true;
    for (int source = (int)threadIdx.x % 32; source < ARF_R && there; source += 32)
        there = arf_wait_mark(here.team, here.control,
                              arf_ht_ready(here.team, here.rank, token, source), here.epoch + 1,
                              ARF_CULPRIT(source, ARF_STAGE_HT_REDUCE, token, here.epoch));
    if (arf_lanes_where(there) != 32)
        return false;
    arf_warp_barrier(); /* what one lane acquired, all lanes see */
    return true;
}

/* One pack of the pre-norm row, to every rank. */
ARF_DEVICE void arf_ht_reduce_pack(const arf_ht_call &here, int token, int pack)
{
    arf_pack residual = make_uint4(0, 0, 0, 0);
    if (ARF_RESIDUAL)
        residual = arf_load_once((const arf_pack *)here.own.residual +
                                 (long long)token * ARF_PACKS + pack);
    float sum[8];
    arf_sum_ranks<arf_power(ARF_R), false>(
        sum, here.team.peer[here.rank] + arf_ht_contribution(here.team, token, pack), ARF_H * 2, 0);
    if (ARF_RESIDUAL)
        arf_add_pack(sum, residual);
    arf_send_all(here.team, here.rank, arf_ht_row(here.team, token, pack), arf_narrow_pack(sum));
}

/* By reducing warp `warp` of `warps` of this block. Ends at the first wait that fails: then the
 * sticky word is set on every rank, and rows that miss a shard become NaN. */
ARF_DEVICE void arf_ht_reduce(const arf_ht_call &here, int warp, int warps)
{
    const int lane = (int)threadIdx.x % 32, shards = here.call.shards;
    int blocks = here.blocks;
    if (here.call.reducers > 0 && here.call.reducers < blocks)
        blocks = here.call.reducers;
    const int owned = (here.tokens + ARF_R - 1 - here.rank) / ARF_R;
    if (here.block >= blocks)
        return;
    /* At most 2^20 tokens of ARF_MOST_SHARDS. */
    for (int unit = warp * blocks + here.block; unit < owned * shards; unit += warps * blocks) {
        const int token = unit / shards * ARF_R + here.rank;
        const int shard = unit % shards, end = arf_ht_shard_begin(shard + 1, shards);
        if (!arf_ht_await_ranks(here, token))
            return;
        for (int pack = arf_ht_shard_begin(shard, shards) + lane; pack < end; pack += 32)
            arf_ht_reduce_pack(here, token, pack);
        arf_warp_barrier(); /* all lanes' packs, and their reading, before each lane's release */
        for (int reader = lane; reader < ARF_R; reader += 32)
            arf_send_release(arf_ht_arrived(here.team, reader, token, shard), here.epoch + 1);
    }
}

#endif
