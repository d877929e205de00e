/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plans worth timing first. Each list is ordered by how well its values did
 * in published sweeps; every combination that is not legal for the shape falls
 * out in arf_plans_add, so the lists need no cases for odd shapes.
 *
 * What stands first was measured where a comment says so, which is: one H200,
 * 8 local ranks of one process, H=6144, K=10, both patterns, policy warm, by
 * arfuse-tune on 1 December 2026.
 */
#include "rules/seeds.h"

#include "rules/knobs.h"

#define LENGTH(array) ((int)(sizeof(array) / sizeof(array)[0]))

void arf_plans_add(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
                   arf_plans *plans)
{
    if (plans->count >= ARF_MAX_CANDIDATES || !arf_legal(problem, pattern, plan, NULL))
        return;
    for (int i = 0; i < plans->count; i++)
        if (arf_plan_equal(problem->set, pattern, &plans->plan[i], plan))
            return;
    plans->plan[plans->count++] = *plan;
}

/* The list under construction, and the plan that is being varied. */
typedef struct seeding {
    const arf_problem *problem;
    arf_pattern pattern;
    arf_plan plan;
    arf_plans *seeds;
    int packs;
} seeding;

static int knob_of(const seeding *at, const char *name)
{
    return arf_knob_index(arf_knobs(at->problem->set, at->plan.protocol, at->pattern), name);
}

/* 0 where the set's table lacks the knob. */
static int32_t of(const seeding *at, const arf_plan *plan, const char *name)
{
    const int index = knob_of(at, name);
    return index >= 0 ? plan->tuning.value[index] : 0;
}

/* Knobs that the set's table lacks are left out. */
static void set(seeding *at, const char *name, int32_t value)
{
    const int index = knob_of(at, name);
    if (index >= 0)
        at->plan.tuning.value[index] = value;
}

static void add(seeding *at)
{
    arf_plans_add(at->problem, at->pattern, &at->plan, at->seeds);
}

/* Whole warps that cover `count` threads, at most `most` threads. */
static int32_t warps_for(int count, int most)
{
    int threads = (count + 31) / 32 * 32;
    return threads < most ? threads : most;
}

/* Prefetching all K rows is what presets for H=5120 and 6144 do, none those for H=8192. */
static void prefetch(seeding *at, bool all)
{
    int top_k = at->problem->shape.top_k;
    set(at, "prefetch_group", all && top_k > 0 ? top_k : 1);
}

/* Published: finalize 128, allreduce 32 for few tokens and 320 for many, TokenSpeed 224. */
static const int bt_reductions[ARF_PATTERNS][5] = {
    [ARF_ALLREDUCE] = {320, 32, 128, 224, 384}, [ARF_FINALIZE] = {128, 32, 320, 224, 384}};

/*
 * Calls of many tokens want blocks that leave room for others on a multiprocessor. Measured,
 * allreduce, us: LL in one kernel with a row in one block of 384 threads 6.7 instead of 7.9 at 8
 * tokens and 9.6 instead of 13.7 at 16; BT by slices with 384 norm threads and 128 reducing
 * ones 9.5 instead of 11.3 at 32, 16.8 instead of 20.6 at 64, 539 instead of 661 at 2048. BT
 * finalize with 384 norm threads: 18.0 instead of 19.9 at 32, 993 instead of 1120 at 2048. The rule
 * for other shapes, which held at H=5120, 7168 and 8192: 384 is half the packs of that row, two a
 * thread; 512 at most, since LL's single kernel takes 80 registers a thread.
 *
 * LL finalize: blocks that wait must not take room from those that gather (seed_ll).
 */
static void want_many(seeding *at)
{
    const int32_t threads = warps_for((at->packs + 1) / 2, 512);
    set(at, "release_before_store", 0);
    if (at->plan.protocol == ARF_LL && at->pattern == ARF_FINALIZE) {
        set(at, "kernels", 2);
    } else if (at->plan.protocol == ARF_LL) {
        set(at, "kernels", 1);
        set(at, "collect_threads", threads);
        set(at, "collect_lanes", 1);
        set(at, "collect_cluster", 1);
    } else {
        const bool gathers = at->pattern == ARF_FINALIZE;
        const bool divides = at->packs % at->problem->shape.tp_size == 0;
        set(at, "kernels", 3);
        set(at, "rms_cluster", 1);
        set(at, "owner", !gathers && divides);
        set(at, "threads", gathers ? 128 : 256);
        set(at, "reduction_threads", 128);
        set(at, "rms_threads", threads);
    }
}

/* Last, since neighbours are tried in the order of seeds, up to a limit. */
static void seed_many(seeding *at)
{
    if (at->problem->set != ARF_SET_ARFUSE || at->seeds->count == 0)
        return;
    at->plan = at->seeds->plan[0];
    want_many(at);
    add(at);
}

/* ---- LL -------------------------------------------------------------------------------------- */

typedef struct publish {
    int elements, threads;
} publish;

/* Finalize presets: 4 x 128 everywhere. Allreduce: 8 x 128 (FlashInfer), 4 x 128 (SGLang). The
 * others vary the blocks a token, which at few tokens are the only parallelism. */
static const publish ll_publish[ARF_PATTERNS][6] = {
    [ARF_ALLREDUCE] = {{8, 128}, {4, 128}, {8, 64}, {1, 128}, {2, 128}, {4, 256}},
    [ARF_FINALIZE] = {{4, 128}, {8, 128}, {1, 128}, {2, 128}, {4, 64}, {2, 256}}};

static void collect(seeding *at, int threads, int lanes, int more)
{
    int packs = threads / lanes; /* of a block, a trip */
    int cluster = (at->packs + packs - 1) / packs + more;
    set(at, "collect_threads", threads);
    set(at, "collect_lanes", lanes);
    set(at, "collect_cluster", cluster < 1 ? 1 : cluster > 16 ? 16 : cluster);
}

/* `most`: of the shapes of collecting blocks. */
static void seed_ll_kernels(seeding *at, int kernels, int most)
{
    /* One exact trip of 128 threads, one lane is the best published shape; then a block more or
     * less (8 beats 6 at H=6144 with the norm off), more threads, lanes as at 16 ranks. */
    const struct {
        int threads, lanes, more;
    } shapes[] = {{128, 1, 0}, {128, 1, 1}, {128, 1, -1}, {256, 1, 0}, {64, 1, 0},
                  {128, 2, 0}, {256, 2, 0}, {128, 1, 2},  {160, 4, 0}, {512, 1, 0}};
    const publish *publishes = ll_publish[at->pattern];
    set(at, "kernels", kernels);
    prefetch(at, true);
    for (int shape = 0; shape < LENGTH(shapes) && shape < most; shape++)
        for (int p = 0; p < LENGTH(ll_publish[0]); p++) {
            if (shape > 0 && p > 1)
                break; /* the two axes hardly touch: vary one at a time */
            if (kernels == 1 && p > 0)
                break;
            set(at, "elements_per_thread", publishes[p].elements);
            set(at, "threads",
                warps_for(at->packs * 8 / publishes[p].elements, publishes[p].threads));
            collect(at, warps_for(at->packs * shapes[shape].lanes, shapes[shape].threads),
                    shapes[shape].lanes, shapes[shape].more);
            add(at);
        }
}

/*
 * Allreduce: one kernel first. Measured, us, 3.7 instead of 4.3 at 1 token, 4.0 instead of 4.6 at
 * 2, 5.1 instead of 5.3 at 4, 6.1 instead of 6.6 at 6.
 *
 * Finalize: two kernels, the second of which starts before the first gathers. K=10, us, so, with
 * one kernel, and with two in a row: 4.50, 4.43 and 5.20 at 1 token, 4.79, 4.93 and 5.42 at
 * 2, 5.73, 6.13 and 6.19 at 4; 8.56, 7.42 and 7.32 at 6.
 */
static void seed_ll(seeding *at)
{
    const bool gathers = at->pattern == ARF_FINALIZE;
    for (int all = 0; all <= 1; all++)
        for (int form = 0; form < 2; form++) {
            const int kernels = gathers ? 2 - form : 1 + form;
            set(at, "release_before_store", gathers && kernels == 2);
            seed_ll_kernels(at, kernels, all ? INT32_MAX : 1);
        }
    arf_plan two = at->seeds->count > 0 ? at->seeds->plan[0] : at->plan;
    for (int i = at->seeds->count - 1; i >= 0; i--) /* what follows publishes by itself */
        if (of(at, &at->seeds->plan[i], "kernels") == 2)
            two = at->seeds->plan[i];
    at->plan = two;
    set(at, "release_before_store", !of(at, &two, "release_before_store"));
    add(at);
    at->plan = two;
    prefetch(at, false);
    add(at);
    at->plan = two;
    set(at, "enable_pdl", 0);
    add(at);
    seed_many(at);
}

/* ---- BT -------------------------------------------------------------------------------------- */

/*
 * One kernel: rows in 1 to 8 blocks, a pack or two a thread, whole tokens or slices. Measured, us,
 * slices, blocks of 384 threads, one and two a row, beside the best of three kernels:
 * allreduce 5.0, 4.6 and 4.8 at 1 token, 5.4, 5.0 and 5.2 at 4, 5.5, 5.3 and 5.6 at 8, 5.7, 6.9
 * and 6.0 at 10, 8.9, 9.6 and 9.1 at 24; finalize (K=10) 7.4, 6.3 and 6.4 at 4, 7.7, 6.8 and 7.1 at
 * 8, 7.9, 9.5 and 7.7 at 10, 13.4, 13.5 and 12.1 at 24.
 */
static void seed_bt_single(seeding *at)
{
    const struct {
        int parts, blocks; /* a block's threads are the packs over `parts` */
    } shapes[] = {{2, 1}, {2, 2}, {3, 1}, {3, 3}, {6, 6}, {8, 8}};
    arf_plan three = at->plan;
    set(at, "kernels", 1);
    prefetch(at, true);
    for (int owner = 1; owner >= 0; owner--)
        for (int shape = 0; shape < LENGTH(shapes); shape++) {
            set(at, "owner", owner);
            set(at, "rms_threads",
                warps_for((at->packs + shapes[shape].parts - 1) / shapes[shape].parts, 512));
            set(at, "rms_cluster", shapes[shape].blocks);
            add(at);
        }
    at->plan = three;
}

/* Slices, so that every rank owns a part of few tokens. Measured, allreduce, us: 5.0 instead of 6.2
 * at 1 token, 5.7 instead of 6.7 at 8, 7.1 instead of 8.0 at 16, 11.3 instead of 11.7 at 32.
 * Finalize, publishing released early: 6.6 instead of 7.0 at 6 tokens, 7.1 instead of 7.4 at 8, and
 * with 128 reducing and half as many norm threads 7.7 instead of 8.1 at 10. */
static void seed_bt_slices(seeding *at, int norm_threads)
{
    set(at, "owner", 1);
    set(at, "elements_per_thread", 8);
    set(at, "vectors_per_thread", 1);
    set(at, "threads", at->pattern == ARF_ALLREDUCE ? 256 : 128);
    prefetch(at, true);
    /* Norm threads for 1, 2 and 3 packs: for few tokens, more, and at H=6144 from 64 on (7 % faster
     * than 2 from 256 on, allreduce; 4 % finalize). */
    for (int release = 1; release >= 0; release--)
        for (int packs = 1; packs <= 3; packs++) {
            set(at, "release_before_store", release);
            set(at, "reduction_threads", packs == 1 ? 32 : 128);
            set(at, "rms_threads",
                packs == 1 ? norm_threads : warps_for((at->packs + packs - 1) / packs, 1024));
            add(at);
        }
}

static void seed_bt(seeding *at)
{
    /* FlashInfer's PRESET_1 and PRESET_0 for finalize; 128 x 1 for allreduce, TokenSpeed 256 x 1.
     */
    static const publish publishes[ARF_PATTERNS][3] = {
        [ARF_ALLREDUCE] = {{8, 128}, {8, 256}, {8, 64}},
        [ARF_FINALIZE] = {{8, 128}, {2, 256}, {4, 128}}};
    /* 1024 in every FlashInfer preset; rows up to H=3584, where TokenSpeed takes 448, their packs
     * exactly. */
    const int norms[] = {at->packs > 448 ? 1024 : warps_for(at->packs, 1024),
                         warps_for(at->packs, 1024), warps_for((at->packs + 1) / 2, 1024)};
    if (at->problem->set == ARF_SET_ARFUSE) {
        if (at->pattern == ARF_ALLREDUCE)
            seed_bt_single(at);
        seed_bt_slices(at, norms[1]);
        if (at->pattern == ARF_FINALIZE)
            seed_bt_single(at);
    }
    for (int norm = 0; norm < LENGTH(norms); norm++)
        for (int owner = 0; owner <= 1; owner++)
            for (int reduction = 0; reduction < LENGTH(bt_reductions[0]); reduction++)
                for (int p = 0; p < LENGTH(publishes[0]); p++)
                    for (int all = 1; all >= 0; all--) {
                        /* Neither norm nor reducing depends on the rest. */
                        if ((norm > 0) + (reduction > 0) + (p > 0) + !all > 1)
                            continue;
                        set(at, "rms_threads", norms[norm]);
                        set(at, "owner", owner);
                        set(at, "reduction_threads",
                            warps_for(at->packs, bt_reductions[at->pattern][reduction]));
                        set(at, "elements_per_thread", publishes[at->pattern][p].elements);
                        set(at, "vectors_per_thread", 1);
                        set(at, "threads", publishes[at->pattern][p].threads);
                        prefetch(at, all);
                        add(at);
                    }
    seed_many(at);
}

/* ---- HT -------------------------------------------------------------------------------------- */

/* Winners of published sweeps: H=8192, 6144, 5120 and 7168 by FlashInfer, 3584 by TokenSpeed. */
static const struct {
    int packs, threads[ARF_PATTERNS];
} winners[] = {
    {1024, {512, 512}}, {768, {192, 192}}, {640, {128, 128}}, {896, {128, 448}}, {448, {448, 448}}};

static void seed_ht_pipeline(seeding *at)
{
    /*
     * Published pipelines: finalize 6 stages, 1 warp, 2 rows; 7, 2, 3 at 16 ranks. Allreduce 2
     * stages, 2 warps (H=8192) or 1, 1 row. {2, 1, 1, 1} is also for rows too large for the others.
     *
     * Measured, H=6144, 8 shards, times over the best HT at M tokens; threads x vectors; stages,
     * warps, groups, rows (the samples beside the profile in profiles/nvidia-h200-shared-gpu):
     *
     *                         M      1    16    64   512  2048  8192
     *   allreduce 384 x 2  4 4 2 1 1.040 1.012 1.000 1.008 1.000 1.000
     *             384 x 2  2 4 2 1 1.041 1.011 1.025 1.000 1.002 1.003
     *             192 x 4  2 2 1 1 1.000 1.000 1.006 1.003 1.045 1.036
     *   finalize  192 x 4  3 1 1 1 1.000 1.000 1.007 1.000 1.000 1.004
     *             192 x 4  3 2 1 1 1.031 1.000 1.000 1.018 1.006 1.004
     *             192 x 4  2 1 1 1 1.000 1.043 1.017 1.063 1.055 1.055
     *
     * At H=5120 and 7168 the same ones lead; at 8192 allreduce by 256 x 4, 4 4 2 1 (512 x 2 takes
     * 3 to 6 % more from 1024 tokens on) and finalize by 6 1 2 1 from 256 tokens on.
     */
    static const struct {
        int stages, warps, groups, rows;
    } pipelines[ARF_PATTERNS][7] = {[ARF_ALLREDUCE] = {{4, 4, 2, 1},
                                                       {2, 4, 2, 1},
                                                       {2, 2, 1, 1},
                                                       {2, 1, 1, 1},
                                                       {2, 2, 2, 1},
                                                       {2, 1, 2, 1},
                                                       {4, 2, 2, 1}},
                                    [ARF_FINALIZE] = {{3, 1, 1, 1},
                                                      {3, 2, 1, 1},
                                                      {6, 1, 2, 1},
                                                      {2, 1, 1, 1},
                                                      {6, 1, 2, 2},
                                                      {7, 2, 2, 3},
                                                      {6, 2, 2, 2}}};
    const int shards[] = {8, 4, at->problem->shape.tp_size, 1};
    for (int p = 0; p < LENGTH(pipelines[0]); p++)
        for (int s = 0; s < LENGTH(shards); s++) {
            set(at, "stages", pipelines[at->pattern][p].stages);
            set(at, "reduction_warps", pipelines[at->pattern][p].warps);
            set(at, "rms_token_groups", pipelines[at->pattern][p].groups);
            set(at, "rms_pipeline_stages", pipelines[at->pattern][p].rows);
            set(at, "shards", shards[s]);
            add(at);
        }
}

static void seed_ht_tile(seeding *at, int packs, int threads)
{
    if (threads < 32 || packs % threads != 0)
        return;
    set(at, "consumer_threads", threads);
    set(at, "vectors_per_thread", packs / threads);
    seed_ht_pipeline(at);
}

static void seed_ht(seeding *at)
{
    /* The fastest tiles of seed_ht_pipeline's shapes: two packs a thread for allreduce, four where
     * that would be more than 448 threads, and for finalize; then the winners. */
    if (at->pattern == ARF_ALLREDUCE && at->packs <= 2 * 448 && at->packs / 2 % 32 == 0)
        seed_ht_tile(at, at->packs, at->packs / 2);
    if (at->packs % 4 == 0 && at->packs / 4 % 32 == 0)
        seed_ht_tile(at, at->packs, at->packs / 4);
    for (int i = 0; i < LENGTH(winners); i++)
        if (winners[i].packs == at->packs)
            seed_ht_tile(at, at->packs, winners[i].threads[at->pattern]);
    /* One token a stage with 128 to 512 threads and 2 to 8 vectors covers every other winner. */
    for (int threads = 512; threads >= 128; threads -= 32)
        if (at->packs / threads >= 2 && at->packs / threads <= 8)
            seed_ht_tile(at, at->packs, threads);
    if (at->seeds->count > 0)
        return;
    /* Small tokens, then tokens that need several passes. */
    for (int passes = 1; passes <= 64 && at->seeds->count == 0; passes *= 2)
        for (int threads = 512; threads >= 32; threads -= 32)
            if (at->packs % passes == 0)
                seed_ht_tile(at, at->packs / passes, threads);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void seed_unfused(seeding *at)
{
    /* Measured, allreduce, us, with 256, 512 and 128 threads: 18.1, 17.1 and 20.2 at 1 token, 129,
     * 141 and 124 at 512, 1711, 1933 and 1619 at 8192. */
    static const int threads[] = {256, 512, 128, 1024};
    for (int t = 0; t < LENGTH(threads); t++) {
        set(at, "rms_threads", threads[t]);
        add(at);
    }
}

static void seed_separate(seeding *at)
{
    /* Finalizes as BT's publishing kernel does, with nobody to send to: its presets, then other
     * blocks of whole packs. Measured, {8, 128}, K=10, us, released early and not: 5.2 and 5.7 at 1
     * token, 7.2 and 7.8 at 4, 9.0 and 9.0 at 8, 14.6 and 15.0 at 24. */
    static const publish publishes[] = {{8, 128}, {4, 128}, {2, 256}, {8, 256}, {8, 64}};
    for (int release = 1; release >= 0; release--)
        for (int p = 0; p < LENGTH(publishes); p++)
            for (int all = 1; all >= 0; all--) {
                if (!release && !all)
                    continue;
                set(at, "release_before_store", release);
                set(at, "elements_per_thread", publishes[p].elements);
                set(at, "threads", publishes[p].threads);
                prefetch(at, all);
                add(at);
            }
}

/* The host's knobs are few: the defaults, then each ladder alone. */
static void seed_host(seeding *at)
{
    const arf_knob_table *table = arf_knobs(at->problem->set, at->plan.protocol, at->pattern);
    arf_plan first = at->plan;
    add(at);
    set(at, "shards", 1); /* a token may have fewer packs than the default cuts it into */
    add(at);
    if (at->seeds->count > 0)
        first = at->seeds->plan[0];
    for (int i = 0; i < table->count; i++)
        for (int step = 0; table->knob[i].ladder && table->knob[i].ladder[step] != -1; step++) {
            at->plan = first;
            at->plan.tuning.value[i] = table->knob[i].ladder[step];
            add(at);
        }
}

void arf_seeds(const arf_problem *problem, arf_pattern pattern, arf_protocol protocol,
               arf_plans *seeds)
{
    seeds->count = 0;
    if (!arf_reachable(problem, pattern, protocol, NULL))
        return;
    seeding at = {problem, pattern, arf_least_plan(problem->set, pattern, protocol), seeds,
                  problem->shape.hidden_size / 8};
    /* The least plan carries the set's transport and numerics; its knobs are not a good guess. */
    at.plan.tuning = arf_tuning_fallback(arf_knobs(problem->set, protocol, pattern));
    if (problem->set == ARF_SET_HOST) {
        seed_host(&at);
        return;
    }
    switch (protocol) {
    case ARF_LL:
        seed_ll(&at);
        return;
    case ARF_BT:
        seed_bt(&at);
        return;
    case ARF_HT:
        seed_ht(&at);
        return;
    case ARF_UNFUSED:
        seed_unfused(&at);
        return;
    default:
        seed_separate(&at);
        return;
    }
}

bool arf_first_seed(const arf_problem *problem, arf_pattern pattern, arf_protocol protocol,
                    arf_plan *plan)
{
    arf_plans seeds;
    arf_seeds(problem, pattern, protocol, &seeds);
    if (seeds.count > 0)
        *plan = seeds.plan[0];
    return seeds.count > 0;
}

/* Where what want_many gives begins to win there. */
int64_t arf_many_from(arf_pattern pattern, arf_protocol protocol)
{
    if (protocol == ARF_BT)
        return pattern == ARF_ALLREDUCE ? 17 : 12;
    return pattern == ARF_ALLREDUCE ? 8 : 5;
}

bool arf_many_seed(const arf_problem *problem, arf_pattern pattern, arf_protocol protocol,
                   arf_plan *plan)
{
    arf_plans seeds;
    arf_plan few;
    if (problem->set != ARF_SET_ARFUSE || (protocol != ARF_LL && protocol != ARF_BT) ||
        !arf_first_seed(problem, pattern, protocol, &few))
        return false;
    seeds.count = 0;
    seeding at = {problem, pattern, few, &seeds, problem->shape.hidden_size / 8};
    want_many(&at);
    add(&at);
    if (seeds.count == 0 || arf_plan_equal(problem->set, pattern, &few, &seeds.plan[0]))
        return false;
    *plan = seeds.plan[0];
    return true;
}
