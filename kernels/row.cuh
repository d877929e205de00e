/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finishing rows: pre-norm row in, residual_out and norm_out out. LL, BT and
 * unfused differ only in where a pack of the pre-norm row comes from.
 *
 * The blocks (., y = 0 .. parts - 1) of a cluster share one row. In every trip a
 * warp takes an aligned group of 32 / lanes packs, so that a group's sum of
 * squares is a node of the contract's tree; the nodes of all groups are written
 * to every block of the cluster, and every warp adds them up in the same order.
 */
#ifndef ARF_KERNELS_ROW_CUH
#define ARF_KERNELS_ROW_CUH

#include "wait.cuh"

/*
 * A source of pre-norm packs:
 *
 *   static constexpr int lanes       lanes of a warp that work on one pack; lane l of the warp has
 *                                    pack l % (32 / lanes) of its group
 *   static constexpr bool adds_residual   false: the sender did; `residual` is not loaded
 *   bool begin(long long token)      before the row's first pack; false: the row has failed
 *   bool take(arf_pack &x, bool wanted, long long token, int pack, const arf_pack &residual)
 *                                    all lanes of a warp call; where wanted, waits for the pack,
 *                                    re-arms its place, and x becomes bf16(sum + residual) in all
 *                                    its lanes. False: a
 *                                    wait failed, x is then anything.
 */

/* Shared by the blocks of the cluster: the groups' sums, two copies used in turn, so that one
 * barrier a row is enough; and whether any wait failed. */
template <int lanes>
struct arf_row_shared {
    static constexpr int groups = (ARF_PACKS + 32 / lanes - 1) / (32 / lanes);
    float sums[2][groups];
    float failed; /* 0, or anything else */
};

/* What every thread knows about its call. */
struct arf_row_call {
    arf_word epoch;
    bool dead;      /* the workspace had failed before */
    unsigned ended; /* thread 0: blocks of this rank that had started, this one included */
};

/* Where this thread stands in a row. */
template <int lanes>
struct arf_row_place {
    static constexpr int width = 32 / lanes; /* packs of a group */
    int lane, warp, part, parts, step;       /* step: groups from one trip to the next */
    bool stores;                             /* one of the pack's lanes writes */

    __device__ __forceinline__ arf_row_place()
    {
        lane = (int)(threadIdx.x % 32), warp = (int)(threadIdx.x / 32);
        part = (int)blockIdx.y, parts = (int)gridDim.y;
        step = (int)(blockDim.x / 32) * parts;
        stores = lane < width;
    }
    __device__ __forceinline__ int first_group() const
    {
        return part * (int)(blockDim.x / 32) + warp;
    }
    __device__ __forceinline__ int pack(int group) const
    {
        return group * width + lane % width;
    }
    /* This thread's slot of the dynamic shared memory in a trip; lanes of a pack share it. */
    __device__ __forceinline__ int slot(int trip) const
    {
        return (trip * (int)(blockDim.x / 32) + warp) * width + lane % width;
    }
};

/*
 * Before the grid-dependency wait, except in a kernel that is the first of its call. That one
 * triggers after its own wait, so when a later one starts, the grid that advanced the epoch before
 * has ended, and the next to advance it is the last of this call: all may read it.
 */
template <int lanes>
ARF_DEVICE arf_row_call arf_row_start(arf_row_shared<lanes> &shared, const arf_control *control,
                                      const arf_epoch *state)
{
    arf_row_call now = {arf_look_word(&state->next), arf_is_failed(control), 0};
    if (threadIdx.x == 0)
        shared.failed = 0.0f;
    if (ARF_NORM && gridDim.y > 1)
        arf_cluster_arrive();
    return now;
}
/* After that wait, by all threads. Then all of the block have read the epoch (the test needs its
 * value), which is counted; and blocks of a cluster may write into each other. */
ARF_DEVICE void arf_row_ready(arf_row_call &now, arf_epoch *state)
{
    if (arf_block_any(now.dead || now.epoch == ~0ull))
        now.dead = true;
    if (threadIdx.x == 0)
        now.ended = arf_count_relaxed(&state->ended) + 1;
    if (ARF_NORM && gridDim.y > 1)
        arf_cluster_wait();
}
/* At the end: the last block to have read the epoch advances it. The count was asked for long ago,
 * so looking at it now costs no time. */
ARF_DEVICE void arf_row_end(const arf_row_call &now, arf_epoch *state)
{
    if (threadIdx.x == 0 && now.ended == (unsigned)arf_row_step() * gridDim.y) {
        state->ended = 0;
        arf_send_word(&state->next, now.epoch + 1);
    }
}

/* What the first trips need besides the contributions; loaded before the grid-dependency wait.
 * More than one where a multiprocessor holds one block, so that registers are left. */
#define ARF_EARLY_TRIPS (ARF_MAX_THREADS == 512 ? 2 : 1)
struct arf_row_early {
    arf_pack residual; /* of the first trip of the first row */
    arf_pack gamma[ARF_EARLY_TRIPS];
};
template <int lanes>
ARF_DEVICE arf_row_early arf_row_load_early(const arf_call &call, const arf_operand_view &own,
                                            bool residual)
{
    /* Not from the first-level cache: the grid that wrote the residual may have ended only after
     * this block's multiprocessor cached older lines. */
    const arf_row_place<lanes> place;
    const long long token = arf_first_row();
    int group = place.first_group();
    arf_row_early early = {};
    if (token >= call.tokens)
        return early;
    if (ARF_RESIDUAL && residual && place.pack(group) < ARF_PACKS)
        early.residual =
            arf_load_gpu((const arf_pack *)own.residual + token * ARF_PACKS + place.pack(group));
#pragma unroll
    for (int trip = 0; trip < ARF_EARLY_TRIPS; trip++, group += place.step)
        if (ARF_NORM && place.stores && place.pack(group) < ARF_PACKS)
            early.gamma[trip] = arf_load_gpu((const arf_pack *)own.gamma + place.pack(group));
    return early;
}

/* Rows not finished: NaN in both outputs, so that a lost peer never yields what looks right. */
template <int lanes>
ARF_DEVICE void arf_row_fill_nan(const arf_operand_view &own, long long token,
                                 const arf_row_place<lanes> &place)
{
#pragma unroll 1
    for (int group = place.first_group(); place.pack(group) < ARF_PACKS; group += place.step) {
        const long long at = token * ARF_PACKS + place.pack(group);
        if (own.residual_out)
            arf_store((arf_pack *)own.residual_out + at, ARF_NAN_PACK);
        if (ARF_NORM)
            arf_store((arf_pack *)own.norm_out + at, ARF_NAN_PACK);
    }
}

/*
 * Finishes all rows of this block; `stash` is the dynamic shared memory (ARF_ROW_SHARED). All
 * threads of the cluster call, after arf_grid_wait and arf_row_ready.
 */
template <class Source>
ARF_DEVICE void arf_finish_rows(const arf_call &call, const arf_operand_view &own,
                                const Source &source, arf_row_shared<Source::lanes> &shared,
                                bool dead, arf_pack *stash, const arf_row_early &early)
{
    constexpr int lanes = Source::lanes;
    const arf_row_place<lanes> place;
    int turn = 0;
    for (long long token = arf_first_row(); token < call.tokens; token += arf_row_step()) {
        const bool is_first = token == arf_first_row();
        bool failed = dead || !source.begin(token);
        int trip = 0;
        for (int group = place.first_group(); group * place.width < ARF_PACKS;
             group += place.step, trip++) {
            const int pack = place.pack(group);
            const bool inside = pack < ARF_PACKS;
            const long long at = token * ARF_PACKS + pack;
            arf_pack residual = early.residual;
            if (ARF_RESIDUAL && Source::adds_residual && !(is_first && trip == 0) && inside)
                residual = arf_load_once((const arf_pack *)own.residual + at);
            arf_pack x = make_uint4(0, 0, 0, 0);
            if (!source.take(x, inside && !failed, token, pack, residual))
                failed = true;
            if (inside && place.stores && own.residual_out)
                arf_store((arf_pack *)own.residual_out + at, x);
            if (ARF_NORM) {
                if (place.stores)
                    stash[place.slot(trip)] = x;
                const float sum =
                    arf_lane_tree<arf_row_place<lanes>::width>(inside ? arf_pack_squares(x) : 0.0f);
                for (int part = place.lane; part < place.parts; part += 32)
                    if (place.parts > 1)
                        arf_cluster_store(&shared.sums[turn][group], part, sum);
                    else
                        shared.sums[turn][group] = sum;
            }
        }
        if (ARF_NORM == 0) {
            if (failed)
                arf_row_fill_nan<lanes>(own, token, place);
            continue;
        }

        if (place.parts > 1) {
            if (failed)
                for (int part = 0; part < place.parts; part++)
                    arf_cluster_store(&shared.failed, part, 1.0f);
            arf_cluster_arrive();
            arf_cluster_wait();
            failed = shared.failed != 0.0f;
        } else {
            failed = arf_block_any(failed);
        }
        if (failed) {
            /* The same in all threads of the cluster; later rows fail as well, since the sticky
             * word stays. */
            arf_row_fill_nan<lanes>(own, token, place);
            turn ^= 1;
            continue;
        }

        const float squares =
            arf_warp_tree<arf_row_shared<lanes>::groups>(shared.sums[turn], place.lane);
        const float inv = arf_inverse_rms(squares, call.epsilon);
        if (own.inverse_rms && place.part == 0 && threadIdx.x == 0)
            own.inverse_rms[token] = inv;
        trip = 0;
        if (place.stores)
            for (int group = place.first_group(); place.pack(group) < ARF_PACKS;
                 group += place.step, trip++) {
                const int pack = place.pack(group);
                arf_pack gamma = trip == 0 ? early.gamma[0] : early.gamma[ARF_EARLY_TRIPS - 1];
                if (trip >= ARF_EARLY_TRIPS)
                    gamma = arf_load_gpu((const arf_pack *)own.gamma + pack);
                arf_store((arf_pack *)own.norm_out + token * ARF_PACKS + pack,
                          arf_normalised(stash[place.slot(trip)], inv, gamma, call.weight_bias));
            }
        turn ^= 1;
    }
}

#endif
