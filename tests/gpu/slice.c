/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/slice.h"

#include <stdio.h>

#include "support/pairwise.h"

/* The space of issue "CUDA kernels", with M = 0 left to the host tests: it launches nothing. */
static const int hidden_sizes[] = {2880, 4096, 5120, 6144, 7168, 8192, 16384};
static const int rank_counts[] = {2, 4, 8, 16};
static const int token_counts[] = {1, 2, 3, 8, 17, 64, 257, 1024};
static const int top_ks[] = {1, 8, 10};
/* rms_norm, residual, shared_expert */
static const arf_switch switches[][3] = {{ARF_ON, ARF_ON, ARF_ON},
                                         {ARF_OFF, ARF_ON, ARF_ON},
                                         {ARF_ON, ARF_OFF, ARF_ON},
                                         {ARF_ON, ARF_ON, ARF_OFF},
                                         {ARF_OFF, ARF_OFF, ARF_OFF}};

enum form { LL_TWO_KERNELS, LL_ONE_KERNEL, BT, BT_ONE_KERNEL, UNFUSED, SEPARATE, HT, FORMS };
#define TUNINGS 8 /* 0: every knob at its fallback; the others drawn */

enum factor { HIDDEN, RANKS, TOP_K, SWITCHES, PATTERN, TOKENS, FORM, TUNING, KIND, GRAPH, FACTORS };

/* Values that a drawn tuning takes a knob's from; legality is the recipe's and the rules' business.
 */
static const struct {
    const char *knob;
    int values;
    int value[8];
} ladders[] = {
    {"elements_per_thread", 4, {1, 2, 4, 8}},
    {"threads", 4, {32, 128, 256, 512}},
    {"vectors_per_thread", 4, {1, 2, 4, 8}},
    {"prefetch_group", 3, {1, 4, 8}},
    {"early_shared", 2, {0, 1}},
    {"release_before_store", 2, {0, 1}},
    {"collect_cluster", 6, {1, 2, 3, 5, 8, 16}},
    {"collect_lanes", 4, {1, 2, 4, 8}},
    {"collect_threads", 4, {32, 96, 128, 256}},
    {"owner", 2, {0, 1}},
    {"reduction_threads", 4, {32, 64, 128, 512}},
    {"rms_threads", 4, {128, 256, 512, 1024}},
    {"rms_cluster", 5, {1, 2, 3, 6, 8}},
    {"enable_pdl", 2, {0, 1}},
};

static arf_shape shape_of(const pairwise_choice *choice)
{
    const arf_switch *on = switches[choice->level[SWITCHES]];
    return (arf_shape){.tp_size = rank_counts[choice->level[RANKS]],
                       .hidden_size = hidden_sizes[choice->level[HIDDEN]],
                       .top_k = top_ks[choice->level[TOP_K]],
                       .rms_norm = on[0],
                       .residual = on[1],
                       .shared_expert = on[2]};
}

static arf_plan plan_of(const pairwise_choice *choice, uint64_t seed)
{
    static const arf_protocol protocols[FORMS] = {ARF_LL,      ARF_LL,       ARF_BT, ARF_BT,
                                                  ARF_UNFUSED, ARF_SEPARATE, ARF_HT};
    arf_pattern pattern = (arf_pattern)choice->level[PATTERN];
    int form = choice->level[FORM], tuning = choice->level[TUNING];
    arf_plan plan = gpu_plan(protocols[form], pattern);
    if (form == SEPARATE && pattern == ARF_ALLREDUCE)
        plan = (arf_plan){.tuning_null = true}; /* cannot be: refused below */
    if (form == HT) {
        const arf_shape shape = shape_of(choice);
        if (!gpu_ht_plan(&shape, pattern, (int)(seed % 97) + tuning * 7, &plan))
            plan.tuning_null = true;
    }
    if (plan.tuning_null || form == HT)
        return plan;
    uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)(tuning * FORMS + form);
    gpu_random(&state);
    for (size_t i = 0; tuning > 0 && i < sizeof ladders / sizeof ladders[0]; i++)
        gpu_set(&plan, pattern, ladders[i].knob,
                ladders[i].value[gpu_pick(&state, ladders[i].values)]);
    if (form == LL_ONE_KERNEL || form == BT_ONE_KERNEL)
        gpu_set(&plan, pattern, "kernels", 1);
    return plan;
}

static bool can_be(const pairwise_choice *choice, void *context)
{
    const uint64_t seed = *(const uint64_t *)context;
    arf_shape shape = shape_of(choice);
    arf_pattern pattern = (arf_pattern)choice->level[PATTERN];
    arf_plan plan = plan_of(choice, seed);
    arf_recipe recipe;
    int64_t tokens = token_counts[choice->level[TOKENS]];
    /* Expected results are made on one core: a case must not take longer than seconds. */
    int64_t values =
        tokens * shape.hidden_size * shape.tp_size * (pattern == ARF_FINALIZE ? shape.top_k : 1);
    return values <= (int64_t)700 << 20 &&
           arf_recipe_make(&shape, shape.tp_size, pattern, &plan, &recipe, NULL) == ARFUSE_OK;
}

static void describe(slice_case *one, const pairwise_choice *choice)
{
    static const char *const kinds[ARF_TRIAL_KINDS] = {"random", "adversarial", "count-ranks"};
    char tuning[160];
    arf_tuning_text(arf_knobs(ARF_SET_ARFUSE, one->plan.protocol, one->pattern), &one->plan.tuning,
                    tuning, sizeof tuning);
    snprintf(one->text, sizeof one->text, "H %d R %d K %d%s%s%s M %d %s %s %s %s: %s",
             one->shape.hidden_size, one->shape.tp_size, one->shape.top_k,
             one->shape.rms_norm ? "" : " no norm", one->shape.residual ? "" : " no residual",
             one->shape.shared_expert ? "" : " no shared", (int)one->tokens,
             arf_pattern_name(one->pattern), arf_protocol_name(one->plan.protocol),
             kinds[one->kind], choice->level[GRAPH] ? "graph" : "eager", tuning);
}

static void add(slice_set *slice, const pairwise_choice *choice, uint64_t seed)
{
    slice_case *one = &slice->of[slice->cases++];
    *one = (slice_case){.shape = shape_of(choice),
                        .pattern = (arf_pattern)choice->level[PATTERN],
                        .tokens = token_counts[choice->level[TOKENS]],
                        .plan = plan_of(choice, seed),
                        .kind = (arf_trial_kind)choice->level[KIND],
                        .graph = choice->level[GRAPH] == 1,
                        .seed = seed * SLICE_MAX_CASES + (uint64_t)slice->cases};
    describe(one, choice);
}

void slice_make(uint64_t seed, slice_set *slice)
{
    static pairwise_choice choice[SLICE_MAX_CASES];
    const pairwise_space space = {
        FACTORS, {7, 4, 3, 5, ARF_PATTERNS, 8, FORMS, TUNINGS, ARF_TRIAL_KINDS, 2}, can_be, &seed};
    pairwise_cover cover = pairwise_make(&space, seed, choice, SLICE_MAX_CASES);
    *slice = (slice_set){.pairs = cover.pairs, .covered = cover.covered};
    for (int i = 0; i < cover.choices; i++)
        add(slice, &choice[i], seed);
}
