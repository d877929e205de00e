/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/recipe.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/arguments.h"
#include "rules/legal.h"

#define PACK_VALUES 8

/* Threads of the kernels of `unfused` that have no knob: enough to fill a block, few enough that
 * small calls still spread over the GPU. */
#define PLAIN_THREADS 256

/* What a recipe is made from. */
typedef struct plan_request {
    const arf_shape *shape;
    int local_ranks;
    arf_pattern pattern;
    const arf_plan *plan;
    const arf_knob_table *table;
} plan_request;

/* A knob that the plan's form does not read is as good as absent. */
static int knob(const plan_request *request, const char *name, int absent)
{
    const arf_tuning *tuning = &request->plan->tuning;
    int index = arf_knob_index(request->table, name);
    return index < 0 || !arf_knob_read(request->table, tuning, index) ? absent
                                                                      : tuning->value[index];
}

static void define(arf_step *step, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void define(arf_step *step, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(step->define[step->defines++], ARF_DEFINE_TEXT, format, arguments);
    va_end(arguments);
}

/* The launch bound: one compilation serves every smaller block. */
static int bound_of(int threads)
{
    int bound = 128;
    while (bound < threads)
        bound *= 2;
    return bound;
}

static void start(const arf_shape *shape, int local_ranks, const char *kernel, int threads,
                  int bound, arf_step *step)
{
    *step = (arf_step){.kernel = kernel,
                       .local_ranks = local_ranks,
                       .threads = threads,
                       .cluster = 1,
                       .parts = 1,
                       .rule = ARF_GRID_ROWS};
    define(step, "-DARF_H=%d", shape->hidden_size);
    define(step, "-DARF_R=%d", shape->tp_size);
    define(step, "-DARF_LOCAL_RANKS=%d", local_ranks);
    define(step, "-DARF_K=%d", shape->top_k);
    define(step, "-DARF_NORM=%d", shape->rms_norm == ARF_ON);
    define(step, "-DARF_RESIDUAL=%d", shape->residual == ARF_ON);
    define(step, "-DARF_SHARED=%d", shape->shared_expert == ARF_ON);
    define(step, "-DARF_MAX_THREADS=%d", bound);
}

void arf_recipe_plain(const arf_shape *shape, int local_ranks, const char *kernel, int threads,
                      arf_step *step)
{
    start(shape, local_ranks, kernel, threads, bound_of(threads), step);
}

static arf_step *add(const plan_request *request, arf_recipe *recipe, const char *kernel,
                     int threads)
{
    arf_step *step = &recipe->step[recipe->steps++];
    arf_recipe_plain(request->shape, request->local_ranks, kernel, threads, step);
    step->dependent = knob(request, "enable_pdl", 1) != 0;
    return step;
}

/* Blocks that one token takes when a thread has `values` values. */
static int parts_of(const plan_request *request, const arf_step *step, int values)
{
    return arf_publish_blocks(request->shape->hidden_size, values, step->threads);
}

static void finish_rows(const plan_request *request, arf_step *step, int cluster, int lanes)
{
    step->cluster = step->parts = cluster;
    step->shared_bytes = ARF_ROW_SHARED(request->shape->hidden_size, cluster, step->threads, lanes);
}

/* Macros and flags of a kernel that may gather expert rows. */
static void gather(const plan_request *request, arf_step *step)
{
    bool finalize = request->pattern == ARF_FINALIZE;
    define(step, "-DARF_FINALIZE=%d", finalize);
    if (!finalize)
        return;
    int ahead = knob(request, "prefetch_group", request->shape->top_k);
    define(step, "-DARF_PREFETCH=%d",
           ahead < request->shape->top_k ? ahead : request->shape->top_k);
    if (knob(request, "early_shared", 0))
        step->flags |= ARF_SHARED_EARLY;
}

/* Of a kernel that publishes and waits for nobody. */
static void release(const plan_request *request, arf_step *step)
{
    if (knob(request, "release_before_store", 0))
        step->flags |= ARF_TRIGGER_EARLY;
}

static void make_ll(const plan_request *request, arf_recipe *recipe)
{
    int collect_threads = knob(request, "collect_threads", 128);
    int cluster = knob(request, "collect_cluster", 1);
    int lanes = knob(request, "collect_lanes", 1);
    if (knob(request, "kernels", 2) == 1) {
        arf_step *single = add(request, recipe, "ll_single", collect_threads);
        gather(request, single);
        define(single, "-DARF_RANK_LANES=%d", lanes);
        finish_rows(request, single, cluster, lanes);
        single->waits = single->resident = true;
        return;
    }
    arf_step *publish = add(request, recipe, "ll_publish", knob(request, "threads", 128));
    int elements = knob(request, "elements_per_thread", PACK_VALUES);
    gather(request, publish);
    define(publish, "-DARF_ELEMENTS=%d", elements);
    publish->parts = parts_of(request, publish, elements);
    release(request, publish);
    arf_step *collect = add(request, recipe, "ll_collect", collect_threads);
    define(collect, "-DARF_RANK_LANES=%d", lanes);
    finish_rows(request, collect, cluster, lanes);
    collect->waits = true;
}

static void make_bt(const plan_request *request, arf_recipe *recipe)
{
    bool slices = knob(request, "owner", 0) == 1;
    int elements = knob(request, "elements_per_thread", PACK_VALUES);
    int vectors = knob(request, "vectors_per_thread", 1);
    int norm_threads = knob(request, "rms_threads", 1024),
        cluster = knob(request, "rms_cluster", 1);
    if (knob(request, "kernels", 3) == 1) {
        arf_step *single = add(request, recipe, "bt_single", norm_threads);
        gather(request, single);
        define(single, "-DARF_SLICES=%d", slices);
        finish_rows(request, single, cluster, 1);
        single->waits = single->resident = true;
        return;
    }
    arf_step *publish = add(request, recipe, "bt_publish", knob(request, "threads", 128));
    gather(request, publish);
    define(publish, "-DARF_SLICES=%d", slices);
    define(publish, "-DARF_ELEMENTS=%d", elements);
    define(publish, "-DARF_VECTORS=%d", vectors);
    publish->rule = ARF_GRID_VALUES;
    publish->values = publish->threads * elements * vectors;
    release(request, publish);
    arf_step *reduce = add(request, recipe, "bt_reduce", knob(request, "reduction_threads", 128));
    define(reduce, "-DARF_SLICES=%d", slices);
    reduce->rule = ARF_GRID_OWNED;
    reduce->slices = slices;
    reduce->waits = true;
    arf_step *norm = add(request, recipe, "bt_norm", norm_threads);
    define(norm, "-DARF_SLICES=%d", slices); /* who is missing depends on it */
    finish_rows(request, norm, cluster, 1);
    norm->waits = true;
}

static void make_ht(const plan_request *request, arf_recipe *recipe)
{
    const int hidden = request->shape->hidden_size;
    const int threads = knob(request, "consumer_threads", 32);
    const int vectors = knob(request, "vectors_per_thread", 1);
    const int stages = knob(request, "stages", 2), warps = knob(request, "reduction_warps", 1);
    const int groups = knob(request, "rms_token_groups", 1);
    const int rows = knob(request, "rms_pipeline_stages", 1);
    arf_step *step = &recipe->step[recipe->steps++];
    /* The roles are compiled for their threads, so the bound is theirs and no register is lost. */
    int block = threads + 32 * (2 + warps);
    start(request->shape, request->local_ranks, "ht", block, block, step);
    step->dependent = knob(request, "enable_pdl", 1) != 0;
    define(step, "-DARF_FINALIZE=%d", request->pattern == ARF_FINALIZE);
    define(step, "-DARF_THREADS=%d", threads);
    define(step, "-DARF_VECTORS=%d", vectors);
    define(step, "-DARF_STAGES=%d", stages);
    define(step, "-DARF_NORM_GROUPS=%d", groups);
    define(step, "-DARF_NORM_ROWS=%d", rows);
    step->shared_bytes = ARF_HT_SHARED(hidden, threads, vectors, stages, groups, rows);
    step->rule = ARF_GRID_PERSISTENT;
    step->waits = step->resident = true;
    step->blocks = knob(request, "persistent_ctas", 0);
    step->reducing_warps = warps;
    step->shards = knob(request, "shards", 1);
    step->reducers = knob(request, "reduction_cta_groups", 0) * step->shards;
}

static void make_finalize(const plan_request *request, arf_recipe *recipe)
{
    arf_step *finalize = add(request, recipe, "finalize", knob(request, "threads", PLAIN_THREADS));
    int elements = knob(request, "elements_per_thread", PACK_VALUES);
    gather(request, finalize);
    define(finalize, "-DARF_ELEMENTS=%d", elements);
    finalize->parts = parts_of(request, finalize, elements);
    release(request, finalize);
}

static void make_unfused(const plan_request *request, arf_recipe *recipe)
{
    int first = 0;
    if (request->pattern == ARF_FINALIZE) {
        make_finalize(request, recipe);
        first = recipe->steps;
    }
    arf_step *scatter = add(request, recipe, "unfused_scatter", PLAIN_THREADS);
    scatter->rule = ARF_GRID_VALUES;
    scatter->values = scatter->threads * PACK_VALUES;
    arf_step *reduce = add(request, recipe, "unfused_reduce", PLAIN_THREADS);
    reduce->rule = ARF_GRID_OWNED;
    arf_step *norm = add(request, recipe, "unfused_norm", knob(request, "rms_threads", 512));
    finish_rows(request, norm, 1, 1);
    reduce->waits = norm->waits = true;
    for (int i = first; i < recipe->steps; i++)
        recipe->step[i].from_scratch = first > 0;
}

static bool one_of(int value, const int *allowed, int count)
{
    for (int i = 0; i < count; i++)
        if (allowed[i] == value)
            return true;
    return false;
}

/* What the kernels take, of what the knob tables' ranges allow. */
static arfuse_status check_knobs(const plan_request *request, arf_error *error)
{
    static const int powers[] = {1, 2, 4, 8};
    static const char *const powers_of_two[] = {"elements_per_thread", "vectors_per_thread",
                                                "collect_lanes"};
    static const char *const whole_warps[] = {"threads", "collect_threads", "reduction_threads",
                                              "rms_threads"};
    if (request->plan->protocol == ARF_HT)
        return ARFUSE_OK; /* takes all that is legal */
    for (size_t i = 0; i < sizeof powers_of_two / sizeof powers_of_two[0]; i++) {
        int value = knob(request, powers_of_two[i], 1);
        if (!one_of(value, powers, 4))
            return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                            "%s %d: the CUDA kernels take 1, 2, 4 or 8", powers_of_two[i], value);
    }
    for (size_t i = 0; i < sizeof whole_warps / sizeof whole_warps[0]; i++) {
        int value = knob(request, whole_warps[i], 32);
        if (value < 32 || value > 1024 || value % 32 != 0)
            return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                            "%s %d: the CUDA kernels take whole warps, 32 to 1024", whole_warps[i],
                            value);
    }
    int lanes = knob(request, "collect_lanes", 1);
    if (lanes > request->shape->tp_size)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "collect_lanes %d: more than the %d ranks",
                        lanes, request->shape->tp_size);
    static const char *const clusters[] = {"collect_cluster", "rms_cluster"};
    for (size_t i = 0; i < sizeof clusters / sizeof clusters[0]; i++) {
        int cluster = knob(request, clusters[i], 1);
        if (cluster < 1 || cluster > 16)
            return arf_fail(error, ARFUSE_NOT_SUPPORTED, "%s %d: a cluster has 1 to 16 blocks",
                            clusters[i], cluster);
    }
    int packs = request->shape->hidden_size / PACK_VALUES;
    if (knob(request, "owner", 0) == 1 && packs % request->shape->tp_size != 0)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                        "owner 1: %d packs do not divide into %d equal slices", packs,
                        request->shape->tp_size);
    return ARFUSE_OK;
}

arfuse_status arf_recipe_make(const arf_shape *shape, int local_ranks, arf_pattern pattern,
                              const arf_plan *plan, arf_recipe *recipe, arf_error *error)
{
    const char *name = arf_protocol_name(plan->protocol);
    plan_request request = {shape, local_ranks, pattern, plan,
                            arf_knobs(ARF_SET_ARFUSE, plan->protocol, pattern)};
    *recipe = (arf_recipe){0};
    if (!request.table->supported)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "the cuda device has no %s kernel for %s",
                        name, arf_pattern_name(pattern));
    if (plan->transport != ARF_UNICAST || plan->numerics != ARF_FIXED)
        return arf_fail(
            error, ARFUSE_NOT_SUPPORTED,
            "the cuda device runs %s by unicast with fixed numerics only, not %s and %s", name,
            arf_transport_name(plan->transport), arf_numerics_name(plan->numerics));
    if (plan->tuning_null)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "%s: the plan does not say its tuning", name);
    if (pattern == ARF_FINALIZE && shape->top_k < 1)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "finalize needs a shape with top_k");
    ARF_TRY(check_knobs(&request, error));
    switch (plan->protocol) {
    case ARF_LL:
        make_ll(&request, recipe);
        return ARFUSE_OK;
    case ARF_BT:
        make_bt(&request, recipe);
        return ARFUSE_OK;
    case ARF_HT:
        make_ht(&request, recipe);
        return ARFUSE_OK;
    case ARF_UNFUSED:
        make_unfused(&request, recipe);
        return ARFUSE_OK;
    default:
        make_finalize(&request, recipe);
        return ARFUSE_OK;
    }
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int64_t arf_step_rows(const arf_step *step, const arf_shape *shape, int64_t tokens)
{
    int64_t packs = shape->hidden_size / PACK_VALUES;
    switch (step->rule) {
    case ARF_GRID_VALUES:
        return ceil_div(tokens * shape->hidden_size, step->values);
    case ARF_GRID_OWNED: {
        int64_t owned = step->slices ? tokens * (packs / shape->tp_size)
                                     : ceil_div(tokens, shape->tp_size) * packs;
        int64_t blocks = ceil_div(owned, step->threads);
        return blocks > 0 ? blocks : 1;
    }
    case ARF_GRID_PERSISTENT: {
        /* A block takes a token at a time; of reducers, a warp a shard. */
        int64_t shards = ceil_div(tokens, shape->tp_size) * step->shards;
        int64_t useful = ceil_div(shards, step->reducing_warps);
        if (useful < tokens)
            useful = tokens;
        return step->blocks > 0 && step->blocks < useful ? step->blocks : useful;
    }
    default:
        return tokens;
    }
}
