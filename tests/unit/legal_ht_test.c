/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of HT's rules as test data: what can be built, its grids, each rule by name. Sources:
 * FlashInfer pull requests 4358 and 5178, SGLang 34134, TokenSpeed 1547; the counts are derived
 * from the checks those make.
 */
#include "rules/legal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rules/knobs.h"
#include "support/rules_case.h"

/* ---- HT: what can be built ---------------------------------------------------------------------
 */

static const struct {
    int hidden;
    const char *warps[4]; /* legal reduction_warps at 2, 4, 8, 16 ranks */
} reachability[] = {
    {16384, {"1,2,4,8", "1,2,4,8", "1,2,4,8", "1,2,4"}},
    {8192, {"1,2,4,8", "1,2,4,8", "1,2,4", "1,2"}},
    {7168, {"1,2", "1", "", ""}},
    {6144, {"1,2,4", "1,2", "1", ""}},
    {5120, {"1,2", "1", "", ""}},
    {4096, {"1,2,4,8", "1,2,4", "1,2", "1"}},
    {3584, {"1", "", "", ""}},
    {2880, {"", "", "", ""}},
};
static const int rank_counts[4] = {2, 4, 8, 16};

static void ht_is_reachable_where_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof reachability / sizeof *reachability; i++)
        for (int r = 0; r < 4; r++) {
            arf_problem problem =
                rules_problem(ARF_SET_FLASHINFER, reachability[i].hidden, rank_counts[r]);
            char legal[32] = "", reason[ARF_REASON_TEXT];
            for (int warps = 1; warps <= 8; warps *= 2) {
                arf_plan plan = arf_least_plan(ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_HT);
                rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "reduction_warps", warps);
                if (arf_legal(&problem, ARF_FINALIZE, &plan, reason))
                    snprintf(legal + strlen(legal), sizeof legal - strlen(legal), "%s%d",
                             legal[0] ? "," : "", warps);
            }
            assert_string_equal(legal, reachability[i].warps[r]);
            assert_int_equal(arf_reachable(&problem, ARF_ALLREDUCE, ARF_HT, reason),
                             legal[0] != '\0');
        }
}

static void the_tail_reaches_further_but_not_to_2880(void **state)
{
    (void)state;
    char reason[ARF_REASON_TEXT];
    static const int reached[] = {16384, 8192, 7168, 6144, 5120, 4096, 3584};
    for (size_t i = 0; i < sizeof reached / sizeof *reached; i++)
        for (int ranks = 1; ranks <= 16; ranks++) {
            arf_problem problem = rules_problem(ARF_SET_ARFUSE, reached[i], ranks);
            assert_true(arf_reachable(&problem, ARF_FINALIZE, ARF_HT, reason));
        }
    for (int ranks = 2; ranks <= 16; ranks *= 2) {
        arf_problem problem = rules_problem(ARF_SET_TOKENSPEED, 3584, ranks);
        assert_true(arf_reachable(&problem, ARF_FINALIZE, ARF_HT, reason));
        problem = rules_problem(ARF_SET_ARFUSE, 2880, ranks);
        assert_false(arf_reachable(&problem, ARF_FINALIZE, ARF_HT, reason));
        assert_string_equal(reason,
                            "consumer_threads 32: does not divide the 360 packs of a token");
        problem = rules_problem(ARF_SET_HOST, 2880, ranks); /* no warps there */
        assert_true(arf_reachable(&problem, ARF_FINALIZE, ARF_HT, reason));
    }
}

static const struct {
    int hidden;
    const char *shapes; /* consumer_threads x vectors : most token groups of whole warps */
} one_token[] = {
    {16384, "32x64:1 64x32:2 128x16:4 256x8:4 512x4:4"},
    {8192, "32x32:1 64x16:2 128x8:4 256x4:4 512x2:4"},
    {7168, "32x28:1 64x14:2 128x7:4 224x4:1 448x2:2 896x1:4"},
    {6144, "32x24:1 64x12:2 96x8:1 128x6:4 192x4:2 256x3:4 384x2:4 768x1:4"},
    {5120, "32x20:1 64x10:2 128x5:4 160x4:1 320x2:2 640x1:4"},
    {4096, "32x16:1 64x8:2 128x4:4 256x2:4 512x1:4"},
    {3584, "32x14:1 64x7:2 224x2:1 448x1:2"},
};

static void one_token_shapes_are_those_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof one_token / sizeof *one_token; i++) {
        arf_problem problem = rules_problem(ARF_SET_FLASHINFER, one_token[i].hidden, 2);
        char shapes[256] = "";
        for (int threads = 32; threads <= 928; threads += 32) {
            int packs = one_token[i].hidden / 8, most = 0;
            arf_plan plan = arf_least_plan(ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_HT);
            rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "consumer_threads", threads);
            rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "vectors_per_thread",
                      packs / threads);
            for (int groups = 1; packs % threads == 0 && groups <= 4; groups *= 2) {
                rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "rms_token_groups", groups);
                if (arf_legal(&problem, ARF_FINALIZE, &plan, NULL))
                    most = groups;
            }
            if (most)
                snprintf(shapes + strlen(shapes), sizeof shapes - strlen(shapes), "%s%dx%d:%d",
                         shapes[0] ? " " : "", threads, packs / threads, most);
        }
        assert_string_equal(shapes, one_token[i].shapes);
    }
}

static const struct {
    int hidden;
    int upstream[4],
        safe[4]; /* at 2, 4, 8, 16 ranks: upstream's checks; with the two added rules */
} counts[] = {
    {16384, {8276, 9280, 9984, 7770}, {5604, 6372, 6908, 5400}},
    {8192, {7144, 7992, 6444, 4438}, {6060, 6908, 5631, 3896}},
    {7168, {3142, 1623, 0, 0}, {2318, 1211, 0, 0}},
    {6144, {7599, 5394, 2763, 0}, {6003, 4330, 2231, 0}},
    {5120, {3182, 1647, 0, 0}, {2358, 1235, 0, 0}},
    {4096, {5892, 4938, 3500, 1788}, {4964, 4242, 3036, 1556}},
    {3584, {829, 0, 0, 0}, {534, 0, 0, 0}},
};

static void count_tuples(const arf_problem *problem, int *upstream, int *safe)
{
    const arf_knob_table *table = arf_knobs(problem->set, ARF_HT, ARF_FINALIZE);
    arf_plan plan = arf_least_plan(problem->set, ARF_FINALIZE, ARF_HT);
    int32_t *threads = &plan.tuning.value[arf_knob_index(table, "consumer_threads")];
    int32_t *vectors = &plan.tuning.value[arf_knob_index(table, "vectors_per_thread")];
    int32_t *stages = &plan.tuning.value[arf_knob_index(table, "stages")];
    int32_t *warps = &plan.tuning.value[arf_knob_index(table, "reduction_warps")];
    int32_t *groups = &plan.tuning.value[arf_knob_index(table, "rms_token_groups")];
    int32_t *rows = &plan.tuning.value[arf_knob_index(table, "rms_pipeline_stages")];
    int32_t *major = &plan.tuning.value[arf_knob_index(table, "rms_shard_major")];
    int packs = problem->shape.hidden_size / 8;
    *upstream = *safe = 0;
    for (*threads = 32; *threads <= 928; *threads += 32)
        for (*vectors = 1; *vectors <= 64; ++*vectors) {
            if (packs % (*threads * *vectors) != 0)
                continue; /* the rule on S, here to save time; tested below */
            for (*stages = 2; *stages <= 14; ++*stages)
                for (*warps = 1; *warps <= 8; *warps *= 2)
                    for (*groups = 1; *groups <= 4; *groups *= 2)
                        for (*rows = 1; *rows <= 3; ++*rows)
                            for (*major = 0; *major <= 1; ++*major) {
                                *upstream += arf_legal_upstream(problem, ARF_FINALIZE, &plan, NULL);
                                *safe += arf_legal(problem, ARF_FINALIZE, &plan, NULL);
                            }
        }
}

static void legal_tuples_are_as_many_as_the_table_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int r = 0; r < 4; r++) {
            arf_problem problem =
                rules_problem(ARF_SET_FLASHINFER, counts[i].hidden, rank_counts[r]);
            int upstream, safe;
            count_tuples(&problem, &upstream, &safe);
            if (upstream != counts[i].upstream[r] || safe != counts[i].safe[r])
                fail_msg("H=%d R=%d: %d / %d legal, the table says %d / %d", counts[i].hidden,
                         rank_counts[r], upstream, safe, counts[i].upstream[r], counts[i].safe[r]);
        }
}

static void stages_end_where_shared_memory_does(void **state)
{
    (void)state;
    static const struct {
        int hidden, most;
    } cases[] = {{16384, 7}, {8192, 14}, {7168, 16}, {6144, 18},
                 {5120, 22}, {4096, 28}, {3584, 32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arf_problem problem = rules_problem(ARF_SET_FLASHINFER, cases[i].hidden, 2);
        arf_plan plan = arf_least_plan(ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_HT);
        rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "vectors_per_thread",
                  cases[i].hidden / 256);
        rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "stages", cases[i].most);
        assert_true(arf_legal(&problem, ARF_FINALIZE, &plan, NULL));
        rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "stages", cases[i].most + 1);
        char begins[32];
        snprintf(begins, sizeof begins, "stages %d: ", cases[i].most + 1);
        rules_refused(&problem, ARF_FINALIZE, &plan, begins);
        assert_true(arf_legal_upstream(&problem, ARF_FINALIZE, &plan, NULL));
    }
}

/* ---- HT: grids --------------------------------------------------------------------------------
 */

static void grids_are_whole_groups_of_the_sms(void **state)
{
    (void)state;
    static const struct {
        int sms, ranks, blocks, groups;
    } cases[] = {{132, 2, 132, 66}, {132, 4, 132, 33}, {132, 8, 128, 16}, {132, 16, 128, 8},
                 {148, 2, 148, 74}, {148, 4, 148, 37}, {148, 8, 144, 18}, {148, 16, 144, 9},
                 {152, 2, 152, 76}, {152, 4, 152, 38}, {152, 8, 152, 19}, {152, 16, 144, 9}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arf_problem problem = rules_problem(ARF_SET_FLASHINFER, 8192, cases[i].ranks);
        problem.sm_count = cases[i].sms;
        assert_int_equal(arf_ht_blocks(cases[i].sms, cases[i].ranks), cases[i].blocks);
        assert_int_equal(cases[i].blocks / cases[i].ranks, cases[i].groups);
        arf_plan plan = arf_least_plan(ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_HT);
        rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "reduction_cta_groups", cases[i].groups);
        assert_true(arf_legal(&problem, ARF_FINALIZE, &plan, NULL));
        rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "reduction_cta_groups",
                  cases[i].groups + 1);
        rules_refused(&problem, ARF_FINALIZE, &plan, "reduction_cta_groups ");
        rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "reduction_cta_groups", 1);
        rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "persistent_ctas", 1023); /* capped */
        assert_true(arf_legal(&problem, ARF_FINALIZE, &plan, NULL));
        rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "persistent_ctas", cases[i].ranks + 1);
        rules_refused(&problem, ARF_FINALIZE, &plan, "persistent_ctas ");
    }
    arf_problem small = rules_problem(ARF_SET_FLASHINFER, 8192, 16);
    small.sm_count = 12;
    char reason[ARF_REASON_TEXT];
    assert_false(arf_reachable(&small, ARF_FINALIZE, ARF_HT, reason));
}

static void derived_knobs_are_what_the_build_would_take(void **state)
{
    (void)state;
    arf_problem problem = rules_problem(ARF_SET_FLASHINFER, 8192, 8);
    problem.sm_count = 148;
    arf_plan plan = arf_least_plan(ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_HT), asked = plan;
    arf_derive_knobs(&problem, ARF_FINALIZE, &plan);
    assert_int_equal(
        arf_knob_value(ARF_SET_FLASHINFER, ARF_HT, ARF_FINALIZE, &plan.tuning, "persistent_ctas"),
        144);
    assert_int_equal(arf_knob_value(ARF_SET_FLASHINFER, ARF_HT, ARF_FINALIZE, &plan.tuning,
                                    "reduction_cta_groups"),
                     18);
    assert_true(arf_legal(&problem, ARF_FINALIZE, &plan, NULL));
    rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &asked, "persistent_ctas", 64);
    arf_derive_knobs(&problem, ARF_FINALIZE, &asked);
    assert_int_equal(arf_knob_value(ARF_SET_FLASHINFER, ARF_HT, ARF_FINALIZE, &asked.tuning,
                                    "reduction_cta_groups"),
                     8);
    arf_plan ll = arf_least_plan(ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_LL), same = ll;
    arf_derive_knobs(&problem, ARF_FINALIZE, &ll);
    assert_true(arf_plan_equal(ARF_SET_FLASHINFER, ARF_FINALIZE, &ll, &same));
}

/* ---- HT: each rule by name ---------------------------------------------------------------------
 */

static void every_broken_ht_rule_is_named_with_its_numbers(void **state)
{
    (void)state;
    static const struct {
        arf_set set;
        int hidden, ranks;
        struct {
            const char *name;
            int32_t value;
        } knob[5];
        const char *reason;
    } cases[] = {
        {ARF_SET_FLASHINFER,
         6144,
         8,
         {{"reduction_warps", 2}},
         "reduction_warps 2: a shard of 96 packs is no multiple of 32 x 2"},
        {ARF_SET_FLASHINFER,
         6144,
         8,
         {{"reduction_warps", 3}},
         "reduction_warps 3: not one of 1, 2, 4, 8"},
        {ARF_SET_FLASHINFER,
         6144,
         8,
         {{"consumer_threads", 80}},
         "consumer_threads 80: not a multiple of 32"},
        {ARF_SET_FLASHINFER,
         8192,
         8,
         {{"consumer_threads", 960}},
         "consumer_threads 960: not from 32 to 928"},
        {ARF_SET_FLASHINFER,
         7168,
         2,
         {{"consumer_threads", 896}, {"reduction_warps", 4}},
         "consumer_threads 896: with 2 + 4 further warps the block has 1088 threads, more than "
         "1024"},
        {ARF_SET_FLASHINFER,
         6144,
         8,
         {{"consumer_threads", 512}},
         "consumer_threads 512: does not divide the 768 packs of a token"},
        {ARF_SET_FLASHINFER,
         6144,
         8,
         {{"consumer_threads", 256}, {"vectors_per_thread", 2}},
         "vectors_per_thread 2: 256 x 2 packs a stage do not divide the 768 packs of a token"},
        {ARF_SET_FLASHINFER, 6144, 8, {{"stages", 1}}, "stages 1: not from 2 to 64"},
        {ARF_SET_FLASHINFER,
         6144,
         8,
         {{"rms_token_groups", 3}},
         "rms_token_groups 3: not one of 1, 2, 4"},
        {ARF_SET_FLASHINFER,
         6144,
         8,
         {{"rms_pipeline_stages", 4}},
         "rms_pipeline_stages 4: not from 1 to 3"},
        {ARF_SET_FLASHINFER,
         6144,
         8,
         {{"consumer_threads", 384},
          {"vectors_per_thread", 2},
          {"stages", 5},
          {"rms_token_groups", 2},
          {"rms_pipeline_stages", 3}},
         "stages 5: 2 groups x 3 rows of 768 packs do not fit into 5 stages of 768"},
        {ARF_SET_FLASHINFER,
         8192,
         8,
         {{"consumer_threads", 512}, {"rms_shard_major", 1}},
         "rms_shard_major true: 8 shards do not fall whole to the warps of a norm group of 512 "
         "threads"},
        {ARF_SET_FLASHINFER,
         2880,
         16,
         {{"reduction_warps", 1}},
         "consumer_threads 32: does not divide the 360 packs of a token"},
        {ARF_SET_FLASHINFER,
         5120,
         8,
         {{"reduction_warps", 1}},
         "reduction_warps 1: a shard of 80 packs is no multiple of 32 x 1"},
        /* The two that nothing upstream refuses. */
        {ARF_SET_FLASHINFER,
         3584,
         2,
         {{"consumer_threads", 224}, {"vectors_per_thread", 2}, {"rms_token_groups", 2}},
         "rms_token_groups 2: a norm group of 112 threads is not whole warps"},
        {ARF_SET_FLASHINFER,
         8192,
         8,
         {{"consumer_threads", 512}, {"vectors_per_thread", 2}, {"stages", 15}},
         "stages 15: 15 stages of 16384 bytes need 246784 bytes of shared memory, a block has "
         "232448"},
        /* What TokenSpeed's tail asks in exchange. */
        {ARF_SET_TOKENSPEED,
         3584,
         8,
         {{"consumer_threads", 64}, {"vectors_per_thread", 7}},
         "vectors_per_thread 7: not one of 1, 2, 4, 8"},
        {ARF_SET_TOKENSPEED,
         3584,
         8,
         {{"reduction_warps", 2}},
         "reduction_warps 2: more than the 1 consumer warps"},
        /* arfuse: the shards are a knob. */
        {ARF_SET_ARFUSE, 256, 8, {{"shards", 33}}, "shards 33: more than the 32 packs of a token"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arf_problem problem = rules_problem(cases[i].set, cases[i].hidden, cases[i].ranks);
        arf_plan plan = arf_least_plan(cases[i].set, ARF_FINALIZE, ARF_HT);
        for (int k = 0; k < 5 && cases[i].knob[k].name; k++)
            rules_put(cases[i].set, ARF_FINALIZE, &plan, cases[i].knob[k].name,
                      cases[i].knob[k].value);
        char reason[ARF_REASON_TEXT] = "";
        assert_false(arf_legal(&problem, ARF_FINALIZE, &plan, reason));
        assert_string_equal(reason, cases[i].reason);
    }
}

/* 96x8, 32xN, 160x4, 224x2 and 224x4 with two groups: through every public check, and broken. */
static void half_warp_norm_groups_pass_upstream_only(void **state)
{
    (void)state;
    static const struct {
        int hidden, threads, vectors;
    } cases[] = {{6144, 96, 8}, {6144, 32, 24}, {5120, 160, 4}, {3584, 224, 2}, {7168, 224, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arf_problem problem = rules_problem(ARF_SET_SGLANG, cases[i].hidden, 2);
        arf_plan plan = arf_least_plan(ARF_SET_SGLANG, ARF_FINALIZE, ARF_HT);
        rules_put(ARF_SET_SGLANG, ARF_FINALIZE, &plan, "consumer_threads", cases[i].threads);
        rules_put(ARF_SET_SGLANG, ARF_FINALIZE, &plan, "vectors_per_thread", cases[i].vectors);
        rules_put(ARF_SET_SGLANG, ARF_FINALIZE, &plan, "rms_token_groups", 2);
        assert_true(arf_legal_upstream(&problem, ARF_FINALIZE, &plan, NULL));
        rules_refused(&problem, ARF_FINALIZE, &plan, "rms_token_groups 2: a norm group of ");
    }
}

static void the_tail_is_named_when_a_plan_needs_it(void **state)
{
    (void)state;
    arf_plan plan = arf_least_plan(ARF_SET_TOKENSPEED, ARF_FINALIZE, ARF_HT);
    arf_problem problem = rules_problem(ARF_SET_TOKENSPEED, 3584, 8);
    assert_true(arf_needs_tail(&problem, ARF_FINALIZE, &plan));
    problem.shape.tp_size = 2;
    assert_false(arf_needs_tail(&problem, ARF_FINALIZE, &plan));
    problem = rules_problem(ARF_SET_FLASHINFER, 3584, 8); /* illegal there, not "needs a tail" */
    plan = arf_least_plan(ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_HT);
    assert_false(arf_needs_tail(&problem, ARF_FINALIZE, &plan));
    problem = rules_problem(ARF_SET_ARFUSE, 5120, 8);
    plan = arf_least_plan(ARF_SET_ARFUSE, ARF_ALLREDUCE, ARF_HT);
    rules_put(ARF_SET_ARFUSE, ARF_ALLREDUCE, &plan, "shards", 8);
    assert_true(arf_needs_tail(&problem, ARF_ALLREDUCE, &plan));
    plan = arf_least_plan(ARF_SET_ARFUSE, ARF_ALLREDUCE, ARF_LL);
    assert_false(arf_needs_tail(&problem, ARF_ALLREDUCE, &plan));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ht_is_reachable_where_the_table_says),
        cmocka_unit_test(the_tail_reaches_further_but_not_to_2880),
        cmocka_unit_test(one_token_shapes_are_those_of_the_table),
        cmocka_unit_test(legal_tuples_are_as_many_as_the_table_counts),
        cmocka_unit_test(stages_end_where_shared_memory_does),
        cmocka_unit_test(grids_are_whole_groups_of_the_sms),
        cmocka_unit_test(derived_knobs_are_what_the_build_would_take),
        cmocka_unit_test(every_broken_ht_rule_is_named_with_its_numbers),
        cmocka_unit_test(half_warp_norm_groups_pass_upstream_only),
        cmocka_unit_test(the_tail_is_named_when_a_plan_needs_it),
    };
    return cmocka_run_group_tests_name("legal_ht", tests, NULL, NULL);
}
