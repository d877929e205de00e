/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HT: one persistent kernel. A block's warps have roles of their own, and pass
 * tokens on through shared memory and through marks in memory:
 *
 *   consumers   finalize a token's tiles out of a ring of stages, and send them to
 *               the token's owner; normalise rows that have arrived     (ht_norm.cuh)
 *   loader      fills the ring by bulk copies                      (ht_contribute.cuh)
 *   publisher   tells owners which tokens are all there            (ht_contribute.cuh)
 *   reducers    an owner's: sum a shard of a token that is there from all ranks, add the
 *               residual, send it to every rank, tell them             (ht_reduce.cuh)
 *
 * Nobody who publishes waits for a peer: consumers look, without waiting, whether a row has arrived
 * until the block's last contribution is out. So contributions always come; then reducers, who wait
 * for nothing else, always go on; then rows always come. All blocks are resident at once, so no
 * block that publishes is queued behind one that waits.
 *
 * MARKS. A word a (token, source) at the owner, and one a (token, shard) everywhere. Their writer
 * sets them to epoch + 1, so they only grow and no call has to clear them; a word that this call
 * does not use keeps what an earlier one left, which is less.
 *
 * BUFFERS are used again by every call, without generations. Why nobody can still be reading:
 *   a contribution  is written over by its source in a later call, thus after the source's grid of
 *                   the call that used it ended. That grid ended when it had all rows of its call,
 *                   each of them marked by the owner's reducers behind their last read of the
 *                   contributions to that shard.
 *   a row           is written over by its owner in a later call, after contributions to the token
 *                   of every rank. A reader sends its own in a grid that began when the grid that
 *                   read the row had ended.
 * Rows are read with the norm off as well, and by ranks that own no token; a call without tokens
 * launches nothing on any rank. Both patterns share buffers and epoch, and so do all tunings: the
 * order above is that of calls.
 */
#ifndef ARF_KERNELS_HT_CUH
#define ARF_KERNELS_HT_CUH

#include "wait.cuh"

/* A stage holds a tile: so many packs of one source row. A token is that many tiles. */
#define ARF_TILE (ARF_THREADS * ARF_VECTORS)
#define ARF_TILES (ARF_PACKS / ARF_TILE)
#define ARF_CONSUMER_WARPS (ARF_THREADS / 32)
static_assert(ARF_THREADS % 32 == 0 && ARF_CONSUMER_WARPS < 30, "consumers are whole warps");
static_assert(ARF_PACKS % ARF_TILE == 0, "tiles cover a token exactly");

/* What a stage holds, told by the loader. A tile of sums is complete after ARF_HT_LAST. */
#define ARF_HT_ROW 1 /* to be multiplied by the weight, or the input */
#define ARF_HT_SHARED_ROW 2
#define ARF_HT_LAST 4
struct arf_ht_note {
    float weight; /* routing weight times scale */
    int kind;
};

/* The dynamic shared memory, as ARF_HT_SHARED counts it. */
struct arf_ht_shared {
    arf_pack tile[ARF_STAGES][ARF_TILE];
    arf_phase full[ARF_STAGES];  /* the loader and its bytes have arrived */
    arf_phase empty[ARF_STAGES]; /* every consumer warp has read the tile */
    arf_ht_note note[ARF_STAGES];
    unsigned sent[32]; /* by consumer warp: tokens of this block whose packs it has sent */
    float sums[ARF_NORM_GROUPS][ARF_NORM_ROWS][ARF_PACKS / 32]; /* squares of 32 packs each */
};
static_assert(sizeof(arf_ht_shared) == ARF_HT_SHARED(ARF_H, ARF_THREADS, ARF_VECTORS, ARF_STAGES,
                                                     ARF_NORM_GROUPS, ARF_NORM_ROWS),
              "the host counts shared memory otherwise");

/* Where a warp stands in the ring: all warps take the same stages in the same order. */
struct arf_ht_ring {
    int stage;
    unsigned parity;

    __device__ __forceinline__ void next()
    {
        if (++stage == ARF_STAGES)
            stage = 0, parity ^= 1;
    }
};

/* Token m belongs to rank m mod R, in its slot m div R. */
ARF_DEVICE int arf_ht_owner(int token)
{
    return token % ARF_R;
}
/* Offsets in a segment. Of source 0's pack in the owner's slot; sources are ARF_H * 2 apart. */
ARF_DEVICE arf_word arf_ht_contribution(const arf_team_view &team, int token, int pack)
{
    return team.ht_contribution +
           ((arf_word)(token / ARF_R) * (ARF_R * ARF_PACKS) + (arf_word)pack) * 16;
}
ARF_DEVICE arf_word arf_ht_row(const arf_team_view &team, int token, int pack)
{
    return team.ht_row + ((arf_word)token * ARF_PACKS + (arf_word)pack) * 16;
}
/* Marks in the memory of `rank`. */
ARF_DEVICE arf_word *arf_ht_ready(const arf_team_view &team, int rank, int token, int source)
{
    return (arf_word *)(team.peer[rank] + team.ht_ready) +
           ((arf_word)(token / ARF_R) * ARF_R + (arf_word)source);
}
ARF_DEVICE arf_word *arf_ht_arrived(const arf_team_view &team, int rank, int token, int shard)
{
    constexpr int most = ARF_PACKS < ARF_MOST_SHARDS ? ARF_PACKS : ARF_MOST_SHARDS;
    return (arf_word *)(team.peer[rank] + team.ht_arrived) +
           ((arf_word)token * most + (arf_word)shard);
}

/* What every warp of a block knows. */
struct arf_ht_call {
    const arf_call &call;
    const arf_team_view &team;
    const arf_operand_view &own;
    arf_control *control;
    arf_word epoch;
    int tokens;        /* at most 2^20 */
    int block, blocks; /* of this rank: the block takes every (blocks)-th token */
    int rank;
    bool dead; /* the workspace had failed before: nothing is sent or awaited */
};

#endif
