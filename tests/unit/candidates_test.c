/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/candidates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rules/knobs.h"

static const int hidden_sizes[] = {8, 2880, 3584, 4096, 5120, 6144, 7168, 8192, 16384};
static const int sm_counts[] = {0, 132, 148, 152};

static arf_problem problem_of(arf_set set, int hidden, int ranks, int top_k)
{
    return (arf_problem){.set = set, .shape = {ranks, hidden, top_k, ARF_ON, ARF_ON, ARF_ON}};
}

static void check_routes(const arf_problem *problem, arf_pattern pattern, int64_t capacity)
{
    arf_routes routes;
    char reason[ARF_REASON_TEXT];
    arf_default_routes(problem, pattern, capacity, &routes);
    bool ll = arf_reachable(problem, pattern, ARF_LL, NULL);
    assert_true((routes.count > 0) == ll);
    int64_t before = 0;
    for (int i = 0; i < routes.count; i++) {
        const arf_route *route = &routes.route[i];
        assert_true(route->max_tokens > before);
        before = route->max_tokens;
        if (!arf_legal(problem, pattern, &route->plan, reason))
            fail_msg("%s, H=%d R=%d K=%d, %d SMs: default %s is illegal: %s",
                     arf_set_name(problem->set), problem->shape.hidden_size, problem->shape.tp_size,
                     problem->shape.top_k, problem->sm_count,
                     arf_protocol_name(route->plan.protocol), reason);
    }
    if (!ll)
        return;
    assert_int_equal(before, capacity < 8192 ? capacity : 8192);
    arf_protocol last = routes.route[routes.count - 1].plan.protocol;
    if (capacity > 1024)
        assert_int_equal(last, arf_reachable(problem, pattern, ARF_HT, NULL) ? ARF_HT : ARF_BT);
}

static void every_default_plan_is_legal(void **state)
{
    (void)state;
    for (int set = 0; set < ARF_SETS; set++)
        for (size_t h = 0; h < sizeof hidden_sizes / sizeof *hidden_sizes; h++)
            for (int ranks = 1; ranks <= 16; ranks++)
                for (int top_k = 0; top_k <= 64; top_k += top_k < 4 ? 1 : 6)
                    for (size_t s = 0; s < sizeof sm_counts / sizeof *sm_counts; s++) {
                        arf_problem problem =
                            problem_of((arf_set)set, hidden_sizes[h], ranks, top_k);
                        problem.sm_count = sm_counts[s];
                        check_routes(&problem, ARF_ALLREDUCE, 1 << 20);
                        check_routes(&problem, ARF_FINALIZE, 1 << 20);
                    }
    for (int64_t capacity = 1; capacity < 2100; capacity += 13) {
        arf_problem problem = problem_of(ARF_SET_ARFUSE, 6144, 8, 10);
        check_routes(&problem, ARF_FINALIZE, capacity);
    }
}

static void default_routes_are_the_stated_rule(void **state)
{
    (void)state;
    arf_problem problem = problem_of(ARF_SET_ARFUSE, 6144, 8, 10);
    arf_routes routes;
    arf_default_routes(&problem, ARF_FINALIZE, 100000, &routes);
    static const struct {
        arf_protocol protocol;
        int64_t bound;
    } rule[] = {{ARF_LL, 4}, {ARF_LL, 16}, {ARF_BT, 1024}, {ARF_HT, 8192}};
    assert_int_equal(routes.count, 4);
    assert_int_equal(routes.min_tokens, 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(routes.route[i].plan.protocol, rule[i].protocol);
        assert_int_equal(routes.route[i].max_tokens, rule[i].bound);
    }
    /* The capacity ends them; a protocol that would serve nothing is left out. */
    arf_default_routes(&problem, ARF_FINALIZE, 16, &routes);
    assert_int_equal(routes.count, 2);
    arf_default_routes(&problem, ARF_FINALIZE, 4, &routes);
    assert_int_equal(routes.count, 1);
    arf_default_routes(&problem, ARF_FINALIZE, 0, &routes);
    assert_int_equal(routes.count, 0);
    /* Without HT, BT takes its range. */
    problem.shape.hidden_size = 2880;
    arf_default_routes(&problem, ARF_FINALIZE, 100000, &routes);
    assert_int_equal(routes.count, 3);
    assert_int_equal(routes.route[2].plan.protocol, ARF_BT);
    assert_int_equal(routes.route[2].max_tokens, 8192);
    /* ... whether the shape or the device lacks it. */
    problem.shape.hidden_size = 6144;
    problem.lacks = 1u << ARF_HT;
    arf_default_routes(&problem, ARF_FINALIZE, 100000, &routes);
    assert_int_equal(routes.count, 3);
    assert_int_equal(routes.route[2].plan.protocol, ARF_BT);
    assert_int_equal(routes.route[2].max_tokens, 8192);
    problem.lacks = 0;
    /* A dense model finalizes nothing. */
    problem.shape.top_k = 0;
    arf_default_routes(&problem, ARF_FINALIZE, 100000, &routes);
    assert_int_equal(routes.count, 0);
    /* One rank alone, and the host, have routes like any other. */
    problem = problem_of(ARF_SET_HOST, 6144, 1, 10);
    arf_default_routes(&problem, ARF_ALLREDUCE, 256, &routes);
    assert_int_equal(routes.count, 2);
    assert_int_equal(routes.route[0].max_tokens, 64);
    assert_int_equal(routes.route[1].max_tokens, 256);
}

static void seeds_are_legal_distinct_and_there_when_reachable(void **state)
{
    (void)state;
    static arf_plans seeds;
    static const int more[] = {64, 256, 1024, 1536, 2048, 32768, 65536};
    char reason[ARF_REASON_TEXT];
    for (int set = 0; set < ARF_SETS; set++)
        for (size_t h = 0; h < 9 + sizeof more / sizeof *more; h++)
            for (int ranks = 1; ranks <= 16; ranks += ranks < 4 ? 1 : 2)
                for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
                    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
                        arf_problem problem = problem_of(
                            (arf_set)set, h < 9 ? hidden_sizes[h] : more[h - 9], ranks, 8);
                        problem.sm_count = 148;
                        arf_seeds(&problem, (arf_pattern)pattern, (arf_protocol)protocol, &seeds);
                        bool reachable = arf_reachable(&problem, (arf_pattern)pattern,
                                                       (arf_protocol)protocol, reason);
                        if ((seeds.count > 0) != reachable)
                            fail_msg("%s %s H=%d R=%d: %d seeds, %s", arf_set_name(problem.set),
                                     arf_protocol_name((arf_protocol)protocol),
                                     problem.shape.hidden_size, ranks, seeds.count,
                                     reachable ? "reachable" : reason);
                        assert_true(seeds.count < ARF_MAX_CANDIDATES); /* nothing fell off */
                        for (int i = 0; i < seeds.count; i++) {
                            assert_true(
                                arf_legal(&problem, (arf_pattern)pattern, &seeds.plan[i], reason));
                            for (int j = 0; j < i; j++)
                                assert_false(arf_plan_equal(problem.set, (arf_pattern)pattern,
                                                            &seeds.plan[i], &seeds.plan[j]));
                        }
                    }
}

static bool seeded(const arf_problem *problem, arf_pattern pattern, arf_protocol protocol,
                   const char *text)
{
    static arf_plans seeds;
    arf_seeds(problem, pattern, protocol, &seeds);
    for (int i = 0; i < seeds.count; i++) {
        char tuning[512];
        arf_tuning_text(arf_knobs(problem->set, protocol, pattern), &seeds.plan[i].tuning, tuning,
                        sizeof tuning);
        if (strcmp(tuning, text) == 0)
            return true;
    }
    return false;
}

/* Winners of published sweeps are among the seeds of their shapes. */
static void seeds_hold_the_published_winners(void **state)
{
    (void)state;
    arf_problem problem = problem_of(ARF_SET_FLASHINFER, 6144, 8, 8);
    assert_true(seeded(&problem, ARF_FINALIZE, ARF_LL,
                       "elements_per_thread=4 threads=128 prefetch_group=8 early_shared=false "
                       "collect_cluster=6 collect_lanes=1 collect_threads=128 enable_pdl=true"));
    assert_true(seeded(&problem, ARF_ALLREDUCE, ARF_BT,
                       "threads=128 vectors_per_thread=1 reduction_threads=320 rms_threads=1024 "
                       "enable_pdl=true"));
    assert_true(seeded(&problem, ARF_FINALIZE, ARF_HT,
                       "persistent_ctas=null consumer_threads=192 vectors_per_thread=4 stages=6 "
                       "reduction_warps=1 reduction_cta_groups=null rms_token_groups=2 "
                       "rms_pipeline_stages=2 rms_shard_major=false enable_pdl=true"));
    problem = problem_of(ARF_SET_TOKENSPEED, 3584, 8, 16);
    assert_true(seeded(&problem, ARF_FINALIZE, ARF_HT,
                       "persistent_ctas=null consumer_threads=448 vectors_per_thread=1 stages=7 "
                       "reduction_warps=2 reduction_cta_groups=null rms_token_groups=2 "
                       "rms_pipeline_stages=3 rms_shard_major=false enable_pdl=true"));
    problem = problem_of(ARF_SET_FLASHINFER, 8192, 16, 10);
    assert_true(seeded(&problem, ARF_FINALIZE, ARF_LL,
                       "elements_per_thread=4 threads=128 prefetch_group=10 early_shared=false "
                       "collect_cluster=16 collect_lanes=2 collect_threads=128 enable_pdl=true"));
}

static int32_t knob_of(const arf_plan *plan, arf_pattern pattern, const char *name)
{
    return plan->tuning
        .value[arf_knob_index(arf_knobs(ARF_SET_ARFUSE, plan->protocol, pattern), name)];
}

static bool is_seed(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan)
{
    static arf_plans seeds;
    bool found = false;
    arf_seeds(problem, pattern, plan->protocol, &seeds);
    for (int i = 0; i < seeds.count; i++)
        found |= arf_plan_equal(problem->set, pattern, &seeds.plan[i], plan);
    return found;
}

/* What one H200 was timed with at H=6144 and 8 ranks (kernels/README.md, "Speed"), and the rule
 * that carries it to other shapes. */
static void many_tokens_have_tunings_of_their_own(void **state)
{
    (void)state;
    static const struct {
        int hidden, threads;
    } rule[] = {{6144, 384}, {8192, 512}, {7168, 448}, {2880, 192}, {16384, 512}};
    for (size_t i = 0; i < sizeof rule / sizeof *rule; i++) {
        arf_problem problem = problem_of(ARF_SET_ARFUSE, rule[i].hidden, 8, 10);
        arf_routes routes;
        arf_default_routes(&problem, ARF_ALLREDUCE, 1024, &routes);
        assert_int_equal(routes.count, 3);
        const arf_route ll = routes.route[1], bt = routes.route[2];
        assert_int_equal(routes.route[0].max_tokens, 7);
        assert_int_equal(ll.max_tokens, 16);
        assert_int_equal(ll.plan.protocol, ARF_LL);
        assert_int_equal(knob_of(&ll.plan, ARF_ALLREDUCE, "kernels"), 1);
        assert_int_equal(knob_of(&ll.plan, ARF_ALLREDUCE, "collect_cluster"), 1);
        assert_int_equal(knob_of(&ll.plan, ARF_ALLREDUCE, "collect_threads"), rule[i].threads);
        assert_int_equal(bt.plan.protocol, ARF_BT);
        assert_int_equal(knob_of(&bt.plan, ARF_ALLREDUCE, "rms_threads"), rule[i].threads);
        assert_int_equal(knob_of(&bt.plan, ARF_ALLREDUCE, "vectors_per_thread"), 1);
        assert_int_equal(knob_of(&bt.plan, ARF_ALLREDUCE, "owner"), rule[i].hidden % 64 == 0);
        /* Finalize: BT's norm is the same kernel; LL's second kernel starts later then. */
        arf_default_routes(&problem, ARF_FINALIZE, 1024, &routes);
        assert_int_equal(routes.count, 3);
        const arf_plan *few = &routes.route[0].plan, *many = &routes.route[1].plan;
        assert_int_equal(routes.route[0].max_tokens, 4);
        assert_int_equal(knob_of(few, ARF_FINALIZE, "kernels"), 2);
        assert_int_equal(knob_of(few, ARF_FINALIZE, "release_before_store"), 1);
        assert_int_equal(routes.route[1].max_tokens, 16);
        assert_int_equal(knob_of(many, ARF_FINALIZE, "kernels"), 2);
        assert_int_equal(knob_of(many, ARF_FINALIZE, "release_before_store"), 0);
        assert_int_equal(knob_of(many, ARF_FINALIZE, "collect_cluster"),
                         knob_of(few, ARF_FINALIZE, "collect_cluster"));
        assert_int_equal(knob_of(&routes.route[2].plan, ARF_FINALIZE, "rms_threads"),
                         rule[i].threads);
        /* The tuner races them. */
        assert_true(is_seed(&problem, ARF_ALLREDUCE, &ll.plan));
        assert_true(is_seed(&problem, ARF_ALLREDUCE, &bt.plan));
        assert_true(is_seed(&problem, ARF_FINALIZE, many));
        assert_true(is_seed(&problem, ARF_FINALIZE, &routes.route[2].plan));
    }
}

static const char *first_seed(int hidden, arf_protocol protocol, arf_pattern pattern)
{
    static char text[400];
    static arf_plans seeds;
    arf_problem problem = problem_of(ARF_SET_ARFUSE, hidden, 8, 10);
    arf_seeds(&problem, pattern, protocol, &seeds);
    assert_true(seeds.count > 0);
    arf_tuning_text(arf_knobs(ARF_SET_ARFUSE, protocol, pattern), &seeds.plan[0].tuning, text,
                    sizeof text);
    return text;
}

/* The fastest of that H200 for the tokens that a protocol serves by default (seeds.c), and the rule
 * that carries it to other shapes. */
static void what_was_measured_stands_first(void **state)
{
    (void)state;
    static const struct {
        int hidden;
        arf_protocol protocol;
        arf_pattern pattern;
        const char *begins;
    } first[] = {
        {6144, ARF_LL, ARF_ALLREDUCE,
         "elements_per_thread=8 threads=128 release_before_store=false collect_cluster=6 "
         "collect_lanes=1 collect_threads=128 kernels=1"},
        {6144, ARF_LL, ARF_FINALIZE,
         "elements_per_thread=4 threads=128 prefetch_group=10 early_shared=false "
         "release_before_store=true collect_cluster=6 collect_lanes=1 collect_threads=128 "
         "kernels=2"},
        {6144, ARF_BT, ARF_ALLREDUCE,
         "threads=128 vectors_per_thread=1 release_before_store=false owner=1 "
         "reduction_threads=32 rms_threads=384 rms_cluster=1 kernels=1"},
        {6144, ARF_HT, ARF_ALLREDUCE,
         "consumer_threads=384 vectors_per_thread=2 stages=4 reduction_warps=4 shards=8 "
         "rms_token_groups=2 rms_pipeline_stages=1"},
        {6144, ARF_HT, ARF_FINALIZE,
         "consumer_threads=192 vectors_per_thread=4 stages=3 reduction_warps=1 shards=8 "
         "rms_token_groups=1 rms_pipeline_stages=1"},
        {7168, ARF_HT, ARF_ALLREDUCE, "consumer_threads=448 vectors_per_thread=2 stages=4"},
        {7168, ARF_HT, ARF_FINALIZE, "consumer_threads=224 vectors_per_thread=4 stages=3"},
        {8192, ARF_HT, ARF_ALLREDUCE, "consumer_threads=256 vectors_per_thread=4 stages=4"},
        {8192, ARF_HT, ARF_FINALIZE, "consumer_threads=256 vectors_per_thread=4 stages=3"},
        /* 2872 / 8 packs do not cut into 8 slices */
        {2872, ARF_BT, ARF_ALLREDUCE,
         "threads=128 vectors_per_thread=1 release_before_store=false owner=0"},
        {6144, ARF_UNFUSED, ARF_ALLREDUCE, "rms_threads=256"},
    };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        const char *text = first_seed(first[i].hidden, first[i].protocol, first[i].pattern);
        if (strncmp(text, first[i].begins, strlen(first[i].begins)) != 0)
            fail_msg("H=%d %s: %s", first[i].hidden, arf_protocol_name(first[i].protocol), text);
    }
}

static void neighbours_differ_in_one_step(void **state)
{
    (void)state;
    static arf_plans seeds, neighbours;
    for (int set = 0; set < ARF_SETS; set++)
        for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
            for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
                arf_problem problem = problem_of((arf_set)set, 6144, 8, 10);
                const arf_knob_table *table =
                    arf_knobs(problem.set, (arf_protocol)protocol, (arf_pattern)pattern);
                arf_seeds(&problem, (arf_pattern)pattern, (arf_protocol)protocol, &seeds);
                for (int i = 0; i < seeds.count; i++) {
                    arf_neighbours(&problem, (arf_pattern)pattern, &seeds.plan[i], &neighbours);
                    assert_true(neighbours.count > 0);
                    assert_true(neighbours.count < 3 * ARF_MAX_KNOBS);
                    for (int n = 0; n < neighbours.count; n++) {
                        const arf_plan *plan = &neighbours.plan[n];
                        assert_true(arf_legal(&problem, (arf_pattern)pattern, plan, NULL));
                        int changed = 0, tile = 0;
                        for (int k = 0; k < table->count; k++)
                            if (plan->tuning.value[k] != seeds.plan[i].tuning.value[k]) {
                                changed++;
                                tile += strcmp(table->knob[k].name, "consumer_threads") == 0 ||
                                        strcmp(table->knob[k].name, "vectors_per_thread") == 0;
                            }
                        assert_true(changed == 1 || (changed == 2 && tile == 2));
                    }
                }
            }
}

static void neighbours_know_the_top_k(void **state)
{
    (void)state;
    static arf_plans neighbours;
    arf_problem problem = problem_of(ARF_SET_ARFUSE, 6144, 8, 10);
    arf_plan plan = arf_least_plan(ARF_SET_ARFUSE, ARF_FINALIZE, ARF_LL);
    int prefetch =
        arf_knob_index(arf_knobs(ARF_SET_ARFUSE, ARF_LL, ARF_FINALIZE), "prefetch_group");
    plan.tuning.value[prefetch] = 8;
    bool four = false, ten = false, sixteen = false;
    arf_neighbours(&problem, ARF_FINALIZE, &plan, &neighbours);
    for (int i = 0; i < neighbours.count; i++) {
        four |= neighbours.plan[i].tuning.value[prefetch] == 4;
        ten |= neighbours.plan[i].tuning.value[prefetch] == 10;
        sixteen |= neighbours.plan[i].tuning.value[prefetch] == 16;
    }
    assert_true(four && ten && !sixteen);
}

static void sweeps_are_bounded(void **state)
{
    (void)state;
    arf_problem problem = problem_of(ARF_SET_ARFUSE, 6144, 8, 10);
    assert_int_equal(arf_sweep_limit(&problem, ARF_FINALIZE, ARF_LL), 64);
    assert_int_equal(arf_sweep_limit(&problem, ARF_FINALIZE, ARF_BT), 2048);
    assert_int_equal(arf_sweep_limit(&problem, ARF_FINALIZE, ARF_HT), ARF_MAX_TOKENS);
    problem.shape.hidden_size = 2880;
    assert_int_equal(arf_sweep_limit(&problem, ARF_FINALIZE, ARF_BT), ARF_MAX_TOKENS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_plan_is_legal),
        cmocka_unit_test(default_routes_are_the_stated_rule),
        cmocka_unit_test(seeds_are_legal_distinct_and_there_when_reachable),
        cmocka_unit_test(seeds_hold_the_published_winners),
        cmocka_unit_test(many_tokens_have_tunings_of_their_own),
        cmocka_unit_test(what_was_measured_stands_first),
        cmocka_unit_test(neighbours_differ_in_one_step),
        cmocka_unit_test(neighbours_know_the_top_k),
        cmocka_unit_test(sweeps_are_bounded),
    };
    return cmocka_run_group_tests_name("candidates", tests, NULL, NULL);
}
