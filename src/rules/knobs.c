/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The knob tables. Ranges are what the file format accepts; what a shape allows
 * is legal.c's business. Fallbacks of the GPU sets are the published values for
 * H=8192, 8 ranks (FlashInfer pull request 4358); those of the host set are
 * plain guesses that matter only until it is tuned.
 */
#include "rules/knobs.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define NUMBER(name, low, high, fallback, published, ladder, help)                  \
    {                                                                               \
        name, ARF_KNOB_INTEGER, low, high, fallback, false, help, published, ladder \
    }
#define DERIVED(name, low, high, published, help)                                     \
    {                                                                                 \
        name, ARF_KNOB_INTEGER, low, high, ARF_KNOB_NULL, true, help, published, NULL \
    }
#define SWITCH(name, fallback, published, ladder, help)                        \
    {                                                                          \
        name, ARF_KNOB_BOOLEAN, 0, 1, fallback, false, help, published, ladder \
    }

#define STEPS(...)      \
    (const int32_t[])   \
    {                   \
        __VA_ARGS__, -1 \
    }
#define BOTH STEPS(0, 1)

/* ---- knobs that several tables share ------------------------------------------------------- */

#define ELEMENTS(fallback, published)                                           \
    NUMBER("elements_per_thread", 1, 8, fallback, published, STEPS(1, 2, 4, 8), \
           "bf16 values a publishing thread handles; with threads it sets the blocks a token")
#define THREADS(fallback, published)                                           \
    NUMBER("threads", 32, 1024, fallback, published, STEPS(64, 128, 256, 512), \
           "threads of a publishing block, whole warps")
#define PREFETCH(fallback)                                                             \
    NUMBER("prefetch_group", 1, 64, fallback, "prefetch_group", STEPS(1, 2, 4, 8, 16), \
           "expert rows gathered at once; 1 is unstaged, above top_k only wastes registers")
#define EARLY_SHARED                                                                        \
    SWITCH("early_shared", 0, "load_shared_expert_before_pdl", NULL,                        \
           "read the shared-expert row before the grid-dependency wait: right only if its " \
           "producer had finished before the preceding kernel triggered")
#define RELEASE_EARLY(published)                                                                 \
    SWITCH(                                                                                      \
        "release_before_store", 0, published, BOTH,                                              \
        "trigger the dependent launch before anything is gathered or stored: the next kernel's " \
        "start is hidden, but its blocks take their room earlier")
#define COLLECT                                                                             \
    NUMBER("collect_cluster", 1, 16, 8, "collective.cluster_size",                          \
           STEPS(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16), "blocks that collect one token"), \
        NUMBER("collect_lanes", 1, 8, 1, "collective.rank_lanes", STEPS(1, 2, 4, 8),        \
               "threads that share one pack, each summing a range of ranks"),               \
        NUMBER("collect_threads", 32, 1024, 128, "collective.threads",                      \
               STEPS(32, 64, 96, 128, 160, 192, 256, 384, 512, 1024),                       \
               "threads of a collecting block, whole warps")
#define REDUCE_AND_NORM(reduction)                                                   \
    NUMBER("reduction_threads", 32, 1024, reduction, "collective.reduction_threads", \
           STEPS(32, 64, 128, 192, 256, 320, 384, 512),                              \
           "threads of an owner's reducing block: few for few tokens"),              \
        NUMBER("rms_threads", 32, 1024, 1024, "collective.rms_threads",              \
               STEPS(128, 256, 448, 512, 768, 1024), "threads of the normalising block")
#define PDL(published) \
    SWITCH("enable_pdl", 1, published, BOTH, "programmatic dependent launch between the kernels")
#define OWNER                            \
    NUMBER("owner", 0, 1, 0, NULL, BOTH, \
           "0: token m belongs whole to rank m mod R; 1: every rank owns a slice of every token")
#define KERNELS                                   \
    NUMBER("kernels", 1, 2, 2, NULL, STEPS(1, 2), \
           "2: publish, then collect; 1: one kernel that publishes all before it waits")
#define BT_KERNELS                                                                       \
    NUMBER("rms_cluster", 1, 16, 1, NULL, STEPS(1, 2, 3, 4, 5, 6, 7, 8),                 \
           "blocks that normalise one token; of one kernel also those that publish it"), \
        NUMBER("kernels", 1, 3, 3, NULL, STEPS(1, 3),                                    \
               "3: publish, reduce, normalise; 1: one kernel of blocks of rms_threads")
#define HT_SPLIT                                                                             \
    NUMBER("consumer_threads", 32, 928, 512, "consumer_threads",                             \
           STEPS(32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896),    \
           "threads that finalize and normalise; with vectors_per_thread one stage's tile"), \
        NUMBER("vectors_per_thread", 1, 64, 2, "vectors_per_thread",                         \
               STEPS(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16), "packs a consumer thread holds")
#define HT_PIPELINE(stages, warps)                                                    \
    NUMBER("stages", 2, 64, stages, "stages", STEPS(2, 3, 4, 5, 6, 7, 8, 10, 12, 14), \
           "depth of the ring of loads in shared memory"),                            \
        NUMBER("reduction_warps", 1, 8, warps, "reduction_warps", STEPS(1, 2, 4, 8),  \
               "warps that reduce arrived shards")
#define HT_NORM(rows)                                                                    \
    NUMBER("rms_token_groups", 1, 4, 2, "rms_token_groups", STEPS(1, 2, 4),              \
           "tokens a block normalises at once"),                                         \
        NUMBER("rms_pipeline_stages", 1, 3, rows, "rms_pipeline_stages", STEPS(1, 2, 3), \
               "rows before the norm in flight per token group")

/* ---- arfuse: the CUDA kernels in kernels/ ---------------------------------------------------- */

static const arf_knob arfuse_ll_allreduce[] = {ELEMENTS(8, "publish_elements_per_thread"),
                                               THREADS(128, "publish_threads"),
                                               RELEASE_EARLY("publish_release_before_store"),
                                               COLLECT,
                                               KERNELS,
                                               PDL("collective.enable_pdl")};
static const arf_knob arfuse_ll_finalize[] = {ELEMENTS(4, "elements_per_thread"),
                                              THREADS(128, "threads"),
                                              PREFETCH(10),
                                              EARLY_SHARED,
                                              RELEASE_EARLY(NULL),
                                              COLLECT,
                                              KERNELS,
                                              PDL("collective.enable_pdl")};

#define PUBLISH_VECTORS                                                                     \
    NUMBER("vectors_per_thread", 1, 64, 1, "publish_vectors_per_thread", STEPS(1, 2, 4, 8), \
           "packs a publishing thread handles")
static const arf_knob arfuse_bt_allreduce[] = {THREADS(128, "publish_threads"),
                                               PUBLISH_VECTORS,
                                               RELEASE_EARLY(NULL),
                                               OWNER,
                                               REDUCE_AND_NORM(32),
                                               BT_KERNELS,
                                               PDL("collective.enable_pdl")};
static const arf_knob arfuse_bt_finalize[] = {ELEMENTS(8, "elements_per_thread"),
                                              THREADS(128, "threads"),
                                              PREFETCH(1),
                                              EARLY_SHARED,
                                              RELEASE_EARLY(NULL),
                                              OWNER,
                                              REDUCE_AND_NORM(128),
                                              BT_KERNELS,
                                              PDL("collective.enable_pdl")};

/*
 * Where arfuse's HT takes a published knob in its own sense:
 *   shards, reduction_warps  a warp reduces a whole shard by itself, and shards are dealt out to
 * all reducing warps one by one; so neither need divide anything rms_pipeline_stages      rows that
 * a norm group has in registers at once, not in the ring persistent_ctas,         any number of
 * blocks works; that they be whole groups of `shards` reduction_cta_groups     blocks is a rule of
 * the published design, kept so that numbers compare rms_shard_major          not there: a group
 * takes a row when all its shards have arrived 0 stands for "all" here, so that a measured profile
 * says nothing that the device decides.
 */
#define HT_SHARDS                                           \
    NUMBER("shards", 1, 64, 8, NULL, STEPS(1, 2, 4, 8, 16), \
           "slices a token is reduced in, one warp each; independent of the ranks")
#define HT_GRID                                                                    \
    NUMBER("persistent_ctas", 0, 1024, 0, "persistent_ctas", NULL,                 \
           "blocks of the persistent kernel; 0: as many as are resident at once"), \
        NUMBER("reduction_cta_groups", 0, 1024, 0, "reduction_cta_groups", NULL,   \
               "groups of `shards` blocks that reduce; 0: all")
static const arf_knob arfuse_ht_allreduce[] = {HT_SPLIT,   HT_PIPELINE(2, 2), HT_SHARDS,
                                               HT_NORM(1), HT_GRID,           PDL("enable_pdl")};
static const arf_knob arfuse_ht_finalize[] = {HT_SPLIT,   HT_PIPELINE(6, 1), HT_SHARDS,
                                              HT_NORM(2), HT_GRID,           PDL("enable_pdl")};

#define UNFUSED_THREADS                                                    \
    NUMBER("rms_threads", 32, 1024, 256, NULL, STEPS(128, 256, 512, 1024), \
           "threads of the block that adds the residual and normalises one token")
static const arf_knob arfuse_unfused_allreduce[] = {UNFUSED_THREADS};
static const arf_knob arfuse_unfused_finalize[] = {THREADS(256, NULL), UNFUSED_THREADS};
static const arf_knob arfuse_separate_finalize[] = {ELEMENTS(8, NULL), THREADS(128, NULL),
                                                    PREFETCH(8), RELEASE_EARLY(NULL)};

/* ---- arfuse-host: the protocols in C over shared memory -------------------------------------- */

#define YIELD_AFTER                                                                \
    NUMBER("yield_after", 0, 1000000, 64, NULL, STEPS(0, 16, 64, 256, 1024, 4096), \
           "polls that found nothing before the waiting rank yields its core")
#define PACK_STEP                                                  \
    NUMBER("pack_step", 1, 8192, 32, NULL, STEPS(8, 32, 128, 512), \
           "packs of one source handled before the next source's turn")
#define GROUP_TOKENS                                                    \
    NUMBER("group_tokens", 1, 1024, 4, NULL, STEPS(1, 2, 4, 8, 16, 32), \
           "tokens that are published before their ready counter is raised once")
#define HOST_SHARDS                                     \
    NUMBER("shards", 1, 64, 4, NULL, STEPS(1, 2, 4, 8), \
           "slices a token is reduced in, so that reducing one overlaps with arrival of the next")
static const arf_knob host_ll[] = {PACK_STEP, YIELD_AFTER};
static const arf_knob host_bt[] = {PACK_STEP, OWNER, YIELD_AFTER};
static const arf_knob host_ht[] = {GROUP_TOKENS, HOST_SHARDS, YIELD_AFTER};
static const arf_knob host_unfused[] = {YIELD_AFTER};
static const arf_knob host_separate[] = {NUMBER("row_block", 8, 65536, 2048, NULL,
                                                STEPS(256, 512, 1024, 2048, 4096, 8192),
                                                "values of a token finalized per pass over its "
                                                "expert rows")};

/* ---- the public sets: FlashInfer's kernels, and what SGLang and TokenSpeed make of them -------
 */

static const arf_knob public_ll_allreduce[] = {
    ELEMENTS(8, "publish_elements_per_thread"), THREADS(128, "publish_threads"),
    RELEASE_EARLY("publish_release_before_store"), COLLECT, PDL("collective.enable_pdl")};
static const arf_knob public_ll_finalize[] = {ELEMENTS(4, "elements_per_thread"),
                                              THREADS(128, "threads"),
                                              PREFETCH(10),
                                              EARLY_SHARED,
                                              COLLECT,
                                              PDL("collective.enable_pdl")};
static const arf_knob public_bt_allreduce[] = {THREADS(128, "publish_threads"), PUBLISH_VECTORS,
                                               REDUCE_AND_NORM(32), PDL("collective.enable_pdl")};
static const arf_knob public_bt_finalize[] = {ELEMENTS(8, "elements_per_thread"),
                                              THREADS(128, "threads"),
                                              PREFETCH(1),
                                              EARLY_SHARED,
                                              REDUCE_AND_NORM(128),
                                              PDL("collective.enable_pdl")};
#define PUBLIC_HT(stages, warps, rows)                                                          \
    DERIVED("persistent_ctas", 1, 1024, "persistent_ctas",                                      \
            "blocks of the persistent kernel; null: the SMs, rounded down to a multiple of R"), \
        HT_SPLIT, HT_PIPELINE(stages, warps),                                                   \
        DERIVED("reduction_cta_groups", 1, 1024, "reduction_cta_groups",                        \
                "groups of R blocks that reduce; null: all"),                                   \
        HT_NORM(rows),                                                                          \
        SWITCH("rms_shard_major", 0, "rms_shard_major", BOTH,                                   \
               "each norm warp takes whole reduction shards and starts when they arrive"),      \
        PDL("enable_pdl")
static const arf_knob public_ht_allreduce[] = {PUBLIC_HT(2, 2, 1)};
static const arf_knob public_ht_finalize[] = {PUBLIC_HT(6, 1, 2)};

/* ---- tables ---------------------------------------------------------------------------------- */

/* Raise a version when a knob of that protocol changes meaning, appears or goes. */
#define TABLE_OF(version, knobs)                                      \
    {                                                                 \
        (int)(sizeof(knobs) / sizeof(knobs)[0]), knobs, version, true \
    }
#define TABLE(knobs) TABLE_OF(1, knobs)
#define PUBLIC_TABLES                                                       \
    {                                                                       \
        [ARF_LL] = {TABLE(public_ll_allreduce), TABLE(public_ll_finalize)}, \
        [ARF_BT] = {TABLE(public_bt_allreduce), TABLE(public_bt_finalize)}, \
        [ARF_HT] = {TABLE(public_ht_allreduce), TABLE(public_ht_finalize)}, \
    }

static const arf_knob_table tables[ARF_SETS][ARF_PROTOCOLS][ARF_PATTERNS] =
    {
        [ARF_SET_ARFUSE] =
            {
                [ARF_LL] = {TABLE_OF(2, arfuse_ll_allreduce), TABLE_OF(2, arfuse_ll_finalize)},
                [ARF_BT] = {TABLE_OF(2, arfuse_bt_allreduce), TABLE_OF(2, arfuse_bt_finalize)},
                [ARF_HT] = {TABLE(arfuse_ht_allreduce), TABLE(arfuse_ht_finalize)},
                [ARF_UNFUSED] = {TABLE(arfuse_unfused_allreduce), TABLE(arfuse_unfused_finalize)},
                [ARF_SEPARATE] = {[ARF_FINALIZE] = TABLE_OF(2, arfuse_separate_finalize)},
            },
        [ARF_SET_HOST] =
            {
                [ARF_LL] = {TABLE(host_ll), TABLE(host_ll)},
                [ARF_BT] = {TABLE(host_bt), TABLE(host_bt)},
                [ARF_HT] = {TABLE(host_ht), TABLE(host_ht)},
                [ARF_UNFUSED] = {TABLE(host_unfused), TABLE(host_unfused)},
                [ARF_SEPARATE] = {[ARF_FINALIZE] = TABLE(host_separate)},
            },
        [ARF_SET_FLASHINFER] = PUBLIC_TABLES,
        [ARF_SET_SGLANG] = PUBLIC_TABLES,
        [ARF_SET_TOKENSPEED] = PUBLIC_TABLES,
};

const arf_knob_table *arf_knobs(arf_set set, arf_protocol protocol, arf_pattern pattern)
{
    assert(set < ARF_SETS && protocol < ARF_PROTOCOLS && pattern < ARF_PATTERNS);
    return &tables[set][protocol][pattern];
}

int arf_protocol_version(arf_set set, arf_protocol protocol)
{
    /* Every protocol has at least the finalize pattern; separate has no other. */
    return arf_knobs(set, protocol, ARF_FINALIZE)->version;
}

int arf_knob_index(const arf_knob_table *table, const char *name)
{
    for (int i = 0; i < table->count; i++)
        if (strcmp(table->knob[i].name, name) == 0)
            return i;
    return -1;
}

int32_t arf_knob_value(arf_set set, arf_protocol protocol, arf_pattern pattern,
                       const arf_tuning *tuning, const char *name)
{
    int index = arf_knob_index(arf_knobs(set, protocol, pattern), name);
    assert(index >= 0);
    return tuning->value[index];
}

arf_tuning arf_tuning_fallback(const arf_knob_table *table)
{
    arf_tuning tuning = {{0}};
    for (int i = 0; i < table->count; i++)
        tuning.value[i] = table->knob[i].fallback;
    return tuning;
}

bool arf_knob_read(const arf_knob_table *table, const arf_tuning *tuning, int knob)
{
    static const char *const others[] = {"elements_per_thread",  "threads",
                                         "release_before_store", "early_shared",
                                         "vectors_per_thread",   "reduction_threads"};
    const int kernels = arf_knob_index(table, "kernels");
    if (kernels < 0 || tuning->value[kernels] != 1)
        return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], table->knob[knob].name) == 0)
            return false;
    return true;
}

void arf_tuning_settle(const arf_knob_table *table, arf_tuning *tuning)
{
    for (int i = 0; i < table->count; i++)
        if (!arf_knob_read(table, tuning, i))
            tuning->value[i] = table->knob[i].fallback;
}

void arf_tuning_text(const arf_knob_table *table, const arf_tuning *tuning, char *text, int size)
{
    int used = 0;
    if (size > 0)
        text[0] = '\0';
    for (int i = 0; i < table->count && used < size; i++) {
        const arf_knob *knob = &table->knob[i];
        const char *gap = i == 0 ? "" : " ";
        int32_t value = tuning->value[i];
        if (value == ARF_KNOB_NULL)
            used += snprintf(text + used, (size_t)(size - used), "%s%s=null", gap, knob->name);
        else if (knob->kind == ARF_KNOB_BOOLEAN)
            used += snprintf(text + used, (size_t)(size - used), "%s%s=%s", gap, knob->name,
                             value ? "true" : "false");
        else
            used += snprintf(text + used, (size_t)(size - used), "%s%s=%d", gap, knob->name, value);
    }
}

void arf_plan_cell(arf_set set, arf_pattern pattern, const arf_plan *plan, char *text, int size)
{
    const arf_knob_table *table = arf_knobs(set, plan->protocol, pattern);
    int used = snprintf(text, (size_t)size, "%s %s %s", arf_protocol_name(plan->protocol),
                        arf_transport_name(plan->transport), arf_numerics_name(plan->numerics));
    if (plan->tuning_null || table->count == 0 || used + 1 >= size)
        return;
    text[used++] = ' ';
    arf_tuning_text(table, &plan->tuning, text + used, size - used);
}
