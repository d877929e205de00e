/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HT's rules. One persistent kernel a GPU; a block has a loader warp, consumer
 * warps (finalize and norm), a publisher warp and reduction warps; the blocks
 * of a group each reduce one shard of a token.
 *
 * Public sets cut a token into R shards, arfuse into as many as its knob says.
 */
#include <stdint.h>

#include "rules/check.h"
#include "rules/knobs.h"

/* Barriers, partial sums and token numbers beside the ring of stages. The public kernels do not
 * print theirs; published stage limits leave between 3 and 7 KiB, so 1 KiB refuses none of them. */
#define ARF_HT_SMALL_BYTES 1024

typedef struct layout {
    int packs, shards;
    int threads, vectors, stages, warps, groups, rows;
} layout;

/* What arfuse's kernel has beside the ring: two barriers and a note a stage, a count a warp, and a
 * sum for 32 packs of every row in hand (ARF_HT_SHARED in kernels/arguments.h is the same sum). */
static int64_t small_bytes(const arf_check *check, const layout *ht)
{
    if (check->problem->set != ARF_SET_ARFUSE)
        return ARF_HT_SMALL_BYTES;
    int64_t bytes = 24LL * ht->stages + 4 * 32 + 4LL * ht->groups * ht->rows * (ht->packs / 32);
    return (bytes + 15) / 16 * 16;
}

int arf_ht_blocks(int sm_count, int shards)
{
    return sm_count / shards * shards;
}

/* As many blocks run as the SMs allow, or fewer if asked. */
static bool check_grid(const arf_check *check, const layout *ht)
{
    int sms = check->problem->sm_count;
    if (sms == 0) /* unknown */
        return true;
    int most = arf_ht_blocks(sms, ht->shards);
    if (most == 0)
        return arf_refuse(check, "shards %d: more than the %d SMs, one block of each", ht->shards,
                          sms);
    int32_t asked = arf_check_knob(check, "persistent_ctas", 0);
    int active = asked == 0 || asked == ARF_KNOB_NULL || asked > most ? most : asked;
    if (active % ht->shards != 0)
        return arf_refuse(check, "persistent_ctas %d: no multiple of the %d blocks of a group",
                          asked, ht->shards);
    int32_t groups = arf_check_knob(check, "reduction_cta_groups", 0);
    if (groups != ARF_KNOB_NULL && (int64_t)groups * ht->shards > active)
        return arf_refuse(check,
                          "reduction_cta_groups %d: %d x %d blocks are more than the %d that"
                          " run",
                          groups, groups, ht->shards, active);
    return true;
}

static bool check_block(const arf_check *check, const layout *ht)
{
    static const int32_t warps[] = {1, 2, 4, 8, 0};
    static const int32_t groups[] = {1, 2, 4, 0};
    if (ht->threads % 32 != 0)
        return arf_refuse(check, "consumer_threads %d: not a multiple of 32", ht->threads);
    if (!arf_check_among(check, "reduction_warps", warps) ||
        !arf_check_among(check, "rms_token_groups", groups))
        return false;
    int block = ht->threads + 32 * (2 + ht->warps);
    if (block > 1024)
        return arf_refuse(check,
                          "consumer_threads %d: with 2 + %d further warps the block has %d "
                          "threads, more than 1024",
                          ht->threads, ht->warps, block);
    if (ht->threads % ht->groups != 0)
        return arf_refuse(check, "rms_token_groups %d: does not divide %d consumer threads",
                          ht->groups, ht->threads);
    return true;
}

static bool check_tile(const arf_check *check, const layout *ht)
{
    if (ht->packs % ht->threads != 0)
        return arf_refuse(check, "consumer_threads %d: does not divide the %d packs of a token",
                          ht->threads, ht->packs);
    if (ht->packs % (ht->threads * ht->vectors) != 0)
        return arf_refuse(check,
                          "vectors_per_thread %d: %d x %d packs a stage do not divide the "
                          "%d packs of a token",
                          ht->vectors, ht->threads, ht->vectors, ht->packs);
    /* groups divides threads and threads divides packs, so a group's threads divide packs too. */
    int64_t ring = (int64_t)ht->threads * ht->vectors * ht->stages;
    int64_t rows = (int64_t)ht->groups * ht->rows * ht->packs;
    if (ht->rows > 1 && rows > ring)
        return arf_refuse(check,
                          "stages %d: %d groups x %d rows of %d packs do not fit into %d "
                          "stages of %d",
                          ht->stages, ht->groups, ht->rows, ht->packs, ht->stages,
                          ht->threads * ht->vectors);
    return true;
}

static bool check_shards(const arf_check *check, const layout *ht)
{
    if (ht->shards > ht->packs)
        return arf_refuse(check, "shards %d: more than the %d packs of a token", ht->shards,
                          ht->packs);
    bool equal = check->can.shards_by_ranks || !check->can.predicated_tail;
    if (equal && ht->packs % ht->shards != 0)
        return arf_refuse(check, "hidden_size %d: its %d packs do not cut into %d equal shards",
                          ht->packs * 8, ht->packs, ht->shards);
    if (!check->can.predicated_tail && ht->packs / ht->shards % (32 * ht->warps) != 0)
        return arf_refuse(check,
                          "reduction_warps %d: a shard of %d packs is no multiple of "
                          "32 x %d",
                          ht->warps, ht->packs / ht->shards, ht->warps);
    return true;
}

/* What TokenSpeed's kernel asks in exchange for its predicated tail (pull request 1547). */
static bool check_tokenspeed(const arf_check *check, const layout *ht)
{
    static const int32_t vectors[] = {1, 2, 4, 8, 0};
    if (ht->warps > ht->threads / 32)
        return arf_refuse(check, "reduction_warps %d: more than the %d consumer warps", ht->warps,
                          ht->threads / 32);
    return arf_check_among(check, "vectors_per_thread", vectors);
}

/* Each norm warp takes whole shards: as many packs by its lanes as by its shards, which is so when
 * the group is whole warps. */
static bool check_shard_major(const arf_check *check, const layout *ht)
{
    if (arf_check_knob(check, "rms_shard_major", 0) == 0)
        return true;
    int group = ht->threads / ht->groups, warps = group / 32;
    if (group % 32 != 0 || ht->shards % warps != 0)
        return arf_refuse(check,
                          "rms_shard_major true: %d shards do not fall whole to the warps of a "
                          "norm group of %d threads",
                          ht->shards, group);
    return true;
}

/* Nothing upstream refuses these two, and the kernel breaks all the same. */
static bool check_unchecked(const arf_check *check, const layout *ht)
{
    /* The named barrier of a norm group counts threads; half a warp would wait for itself. */
    int group = ht->threads / ht->groups;
    if (group % 32 != 0)
        return arf_refuse(check,
                          "rms_token_groups %d: a norm group of %d threads is not whole "
                          "warps",
                          ht->groups, group);
    int room = check->problem->shared_bytes ? check->problem->shared_bytes : ARF_SHARED_BYTES;
    int64_t stage = 16LL * ht->threads * ht->vectors;
    int64_t bytes = stage * ht->stages + small_bytes(check, ht);
    if (bytes > room)
        return arf_refuse(check,
                          "stages %d: %d stages of %lld bytes need %lld bytes of shared "
                          "memory, a block has %d",
                          ht->stages, ht->stages, (long long)stage, (long long)bytes, room);
    return true;
}

bool arf_check_ht(const arf_check *check)
{
    const arf_shape *shape = &check->problem->shape;
    layout ht = {
        .packs = shape->hidden_size / 8,
        .shards = arf_check_knob(check, "shards", shape->tp_size),
        .threads = arf_check_knob(check, "consumer_threads", 0),
        .vectors = arf_check_knob(check, "vectors_per_thread", 0),
        .stages = arf_check_knob(check, "stages", 0),
        .warps = arf_check_knob(check, "reduction_warps", 0),
        .groups = arf_check_knob(check, "rms_token_groups", 0),
        .rows = arf_check_knob(check, "rms_pipeline_stages", 0),
    };
    return check_block(check, &ht) && check_tile(check, &ht) && check_shards(check, &ht) &&
           (check->problem->set != ARF_SET_TOKENSPEED || check_tokenspeed(check, &ht)) &&
           check_shard_major(check, &ht) && check_grid(check, &ht) &&
           (check->upstream_only || check_unchecked(check, &ht));
}

void arf_derive_knobs(const arf_problem *problem, arf_pattern pattern, arf_plan *plan)
{
    const arf_knob_table *table = arf_knobs(problem->set, plan->protocol, pattern);
    int blocks = arf_knob_index(table, "persistent_ctas");
    int groups = arf_knob_index(table, "reduction_cta_groups");
    if (blocks < 0 || groups < 0 || plan->tuning_null)
        return;
    int32_t *value = plan->tuning.value;
    int ranks = problem->shape.tp_size; /* only sets whose shards are the ranks leave a null */
    int most = arf_ht_blocks(problem->sm_count, ranks);
    if (value[blocks] == ARF_KNOB_NULL || value[blocks] > most)
        value[blocks] = most;
    if (value[groups] == ARF_KNOB_NULL)
        value[groups] = value[blocks] / ranks;
}
