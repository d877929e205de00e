/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/retarget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rules/candidates.h"
#include "rules/knobs.h"
#include "support/published.h"

static arf_routes target[ARF_PATTERNS];
static char notes[ARF_RETARGET_NOTES];

static arfuse_status retarget(const published *from, int hidden, int ranks, int top_k,
                              arf_retarget_rule rule, arf_error *error)
{
    arf_problem to = from->problem;
    to.shape.hidden_size = hidden;
    to.shape.tp_size = ranks;
    to.shape.top_k = top_k;
    arf_error ignored = ARF_ERROR_INIT;
    arfuse_status status = arf_retarget(&from->problem, from->routes, &to, rule, ARF_OPEN_BOUND,
                                        target, notes, error ? error : &ignored);
    if (status != ARFUSE_OK)
        return status;
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        int64_t before = 0;
        for (int i = 0; i < target[pattern].count; i++) {
            const arf_route *route = &target[pattern].route[i];
            assert_true(route->max_tokens > before);
            before = route->max_tokens;
            assert_true(arf_legal(&to, (arf_pattern)pattern, &route->plan, NULL));
        }
    }
    return status;
}

static void same_routes(arf_set set, const arf_routes want[ARF_PATTERNS])
{
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        assert_int_equal(target[pattern].count, want[pattern].count);
        for (int i = 0; i < want[pattern].count; i++) {
            assert_int_equal(target[pattern].route[i].max_tokens,
                             want[pattern].route[i].max_tokens);
            assert_true(arf_plan_equal(set, (arf_pattern)pattern, &target[pattern].route[i].plan,
                                       &want[pattern].route[i].plan));
        }
    }
}

/* "ll 23, bt 48, ht -" : protocols and bounds, "-" for an open one. */
static void assert_bounds(arf_pattern pattern, const char *want)
{
    char text[256] = "";
    for (int i = 0; i < target[pattern].count; i++) {
        const arf_route *route = &target[pattern].route[i];
        char bound[24] = "-";
        if (route->max_tokens != ARF_OPEN_BOUND)
            snprintf(bound, sizeof bound, "%lld", (long long)route->max_tokens);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s %s", i ? ", " : "",
                 arf_protocol_name(route->plan.protocol), bound);
    }
    assert_string_equal(text, want);
}

static const arf_plan *last_plan(arf_pattern pattern)
{
    return &target[pattern].route[target[pattern].count - 1].plan;
}

static int value(const published *from, arf_pattern pattern, const arf_plan *plan, const char *name)
{
    return arf_knob_value(from->problem.set, plan->protocol, pattern, &plan->tuning, name);
}

static bool known(const published *one)
{
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        for (int i = 0; i < one->routes[pattern].count; i++)
            if (one->routes[pattern].route[i].plan.tuning_null)
                return false;
    return true;
}

static void the_same_shape_changes_nothing(void **state)
{
    (void)state;
    const published *list;
    int count = published_configurations(&list), compared = 0;
    for (int i = 0; i < count; i++)
        for (int rule = 0; rule < ARF_RETARGET_RULES; rule++) {
            const arf_shape *shape = &list[i].problem.shape;
            if (!known(&list[i]))
                continue;
            bool whole = list[i].routes[ARF_ALLREDUCE].count > 0;
            arfuse_status status = retarget(&list[i], shape->hidden_size, shape->tp_size,
                                            shape->top_k, (arf_retarget_rule)rule, NULL);
            assert_int_equal(status, whole ? ARFUSE_OK : ARFUSE_PROFILE);
            if (!whole)
                continue;
            same_routes(list[i].problem.set, list[i].routes);
            assert_string_equal(notes, "");
            compared++;
        }
    assert_int_equal(compared, 3 * 43);
}

static void unknown_tunings_are_seeded_or_refused(void **state)
{
    (void)state;
    arf_error error = ARF_ERROR_INIT;
    const published *from = published_find("fusion-ll-bt-ht", 3584, 8, 16);
    assert_int_equal(retarget(from, 3584, 8, 16, ARF_RETARGET_SCALED, NULL), ARFUSE_OK);
    assert_false(last_plan(ARF_FINALIZE)->tuning_null);
    assert_int_equal(value(from, ARF_FINALIZE, last_plan(ARF_FINALIZE), "consumer_threads"), 448);
    assert_non_null(strstr(notes, "finalize: ht tuned anew, not carried over: its launch "
                                  "parameters are not known"));
    assert_int_equal(retarget(from, 3584, 8, 16, ARF_RETARGET_V1, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text, "allreduce: rule v1 gives up without ht: its launch parameters "
                                    "are not known");
    /* Without the tail nothing can stand in, and the source has nothing else. */
    arf_error_clear(&error);
    from = published_find("ht-only", 3584, 8, 16);
    assert_int_equal(retarget(from, 3584, 8, 16, ARF_RETARGET_SCALED, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "nothing of the source can run for the target shape"));
    assert_non_null(strstr(error.text, "a shard of 56 packs is no multiple of 32 x 1"));
}

/* SGLang's own retargeted profiles, called inherited in its pull request 34134, from FlashInfer's
 * profile of H=8192: knob by knob and bound by bound. */
static void v1_reproduces_the_inherited_profiles(void **state)
{
    (void)state;
    const published *from = published_find("default", 8192, 8, 10);
    for (int ranks = 4; ranks <= 8; ranks += 4)
        for (int rule = ARF_RETARGET_V1; rule <= ARF_RETARGET_V2; rule++) {
            const published *want = published_find("inherited", 6144, ranks, 8);
            assert_int_equal(retarget(from, 6144, ranks, 8, (arf_retarget_rule)rule, NULL),
                             ARFUSE_OK);
            same_routes(from->problem.set, want->routes);
        }
}

static void splits_and_ht_are_as_listed(void **state)
{
    (void)state;
    static const struct {
        int hidden, ranks;
        int threads, vectors; /* 0: no HT */
    } cases[] = {{8192, 8, 512, 2}, {6144, 8, 384, 2},  {5120, 8, 0, 0},  {5120, 4, 320, 2},
                 {4096, 8, 256, 2}, {16384, 8, 512, 4}, {2880, 8, 0, 0},  {2880, 2, 0, 0},
                 {7168, 4, 448, 2}, {7168, 8, 0, 0},    {6144, 16, 0, 0}, {4096, 16, 256, 2},
                 {3584, 8, 0, 0},   {16384, 2, 512, 4}};
    const published *from = published_find("default", 8192, 8, 10);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int rule = 0; rule < ARF_RETARGET_RULES; rule++) {
            bool ht = cases[i].threads != 0;
            arfuse_status status =
                retarget(from, cases[i].hidden, cases[i].ranks, 10, (arf_retarget_rule)rule, NULL);
            if (rule == ARF_RETARGET_V1 && !ht) {
                assert_int_equal(status, ARFUSE_PROFILE);
                continue;
            }
            assert_int_equal(status, ARFUSE_OK);
            for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
                const arf_plan *last = last_plan((arf_pattern)pattern);
                assert_int_equal(last->protocol, ht ? ARF_HT : ARF_BT);
                if (!ht)
                    continue;
                assert_int_equal(value(from, (arf_pattern)pattern, last, "consumer_threads"),
                                 cases[i].threads);
                assert_int_equal(value(from, (arf_pattern)pattern, last, "vectors_per_thread"),
                                 cases[i].vectors);
            }
        }
}

/* The published outcome without HT: first two or three bounds, the last BT preset unbounded. */
static void without_ht_the_last_bt_takes_its_range(void **state)
{
    (void)state;
    arf_error error = ARF_ERROR_INIT;
    const published *from = published_find("default", 8192, 8, 10);
    assert_int_equal(retarget(from, 2880, 8, 10, ARF_RETARGET_V2, NULL), ARFUSE_OK);
    assert_bounds(ARF_FINALIZE, "ll 23, bt 48, bt -");
    assert_bounds(ARF_ALLREDUCE, "ll 15, bt 256, bt -");
    assert_string_equal(notes,
                        "allreduce: ht dropped: no multiple of 32 threads divides the 360 packs of "
                        "a token\nfinalize: ht dropped: no multiple of 32 threads divides the 360 "
                        "packs of a token");
    assert_int_equal(value(from, ARF_FINALIZE, last_plan(ARF_FINALIZE), "elements_per_thread"), 8);

    const published *sixteen = published_find("default", 8192, 16, 10);
    assert_int_equal(retarget(sixteen, 2880, 16, 10, ARF_RETARGET_V2, NULL), ARFUSE_OK);
    assert_bounds(ARF_FINALIZE, "ll 7, bt 52, bt -");
    assert_bounds(ARF_ALLREDUCE, "ll 5, bt 512, bt -");

    assert_int_equal(retarget(from, 2880, 8, 10, ARF_RETARGET_V1, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text, "allreduce: rule v1 gives up without ht: no multiple of 32 "
                                    "threads divides the 360 packs of a token");
}

static void unsafe_tunings_are_refused_by_name(void **state)
{
    (void)state;
    arf_error error = ARF_ERROR_INIT;
    const published *from = published_find("default", 8192, 8, 10);
    assert_int_equal(retarget(from, 3584, 2, 10, ARF_RETARGET_V1, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text,
                        "allreduce: rule v1 gives up without ht: rms_token_groups 2: a norm group "
                        "of 112 threads is not whole warps");
    assert_int_equal(retarget(from, 3584, 2, 10, ARF_RETARGET_V2, NULL), ARFUSE_OK);
    assert_int_equal(last_plan(ARF_ALLREDUCE)->protocol, ARF_BT);
    assert_non_null(strstr(notes, "finalize: ht dropped: rms_token_groups 2: a norm group of 112 "
                                  "threads is not whole warps"));
    /* Ours finds the safe one-token shape, and says so. */
    assert_int_equal(retarget(from, 3584, 2, 10, ARF_RETARGET_SCALED, NULL), ARFUSE_OK);
    assert_int_equal(last_plan(ARF_FINALIZE)->protocol, ARF_HT);
    assert_int_equal(value(from, ARF_FINALIZE, last_plan(ARF_FINALIZE), "consumer_threads"), 448);
    assert_non_null(strstr(notes, "finalize: ht tuned anew, not carried over: rms_token_groups 2: "
                                  "a norm group of 112 threads is not whole warps"));
}

static void v2_starts_from_the_presets_of_sixteen_ranks(void **state)
{
    (void)state;
    const published *from = published_find("default", 8192, 8, 10);
    const published *want = published_find("default", 8192, 16, 10);
    assert_int_equal(retarget(from, 8192, 16, 10, ARF_RETARGET_V2, NULL), ARFUSE_OK);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        assert_true(
            arf_plan_equal(from->problem.set, (arf_pattern)pattern, last_plan((arf_pattern)pattern),
                           &want->routes[pattern].route[want->routes[pattern].count - 1].plan));
    /* H=4096 at 16 ranks: shards of 32 packs leave one warp, shard-major still falls whole. */
    assert_int_equal(retarget(from, 4096, 16, 10, ARF_RETARGET_V2, NULL), ARFUSE_OK);
    const arf_plan *ht = last_plan(ARF_FINALIZE);
    assert_int_equal(value(from, ARF_FINALIZE, ht, "reduction_warps"), 1);
    assert_int_equal(value(from, ARF_FINALIZE, ht, "rms_shard_major"), 1);
    /* Back at 8 ranks the 8 warps of H=8192 have a shard each; H=6144 has 6, so it is given up. */
    assert_int_equal(retarget(want, 6144, 8, 10, ARF_RETARGET_V2, NULL), ARFUSE_OK);
    assert_int_equal(value(want, ARF_FINALIZE, last_plan(ARF_FINALIZE), "rms_shard_major"), 0);
}

static void bounds_scale_with_the_bytes(void **state)
{
    (void)state;
    const arf_shape from = {8, 8192, 10, ARF_ON, ARF_ON, ARF_ON};
    arf_shape to = {8, 4096, 10, ARF_ON, ARF_ON, ARF_ON};
    assert_int_equal(arf_scaled_bound(23, ARF_LL, &from, &to), 46);
    assert_int_equal(arf_scaled_bound(703, ARF_BT, &from, &to), 1406);
    to = (arf_shape){16, 8192, 10, ARF_ON, ARF_ON, ARF_ON};
    assert_int_equal(arf_scaled_bound(23, ARF_LL, &from, &to), 11);
    assert_int_equal(arf_scaled_bound(703, ARF_BT, &from, &to), 703);
    to.hidden_size = 65536;
    assert_int_equal(arf_scaled_bound(5, ARF_LL, &from, &to), 1);
    assert_true(arf_scaled_bound(ARF_OPEN_BOUND, ARF_HT, &from, &to) == ARF_OPEN_BOUND);
    assert_int_equal(arf_scaled_bound(23, ARF_LL, &from, &from), 23);
    /* LL up to 10 tokens at 8 ranks and H=6144: as many bytes at other teams and widths. */
    const arf_shape eight = {8, 6144, 10, ARF_ON, ARF_ON, ARF_ON};
    assert_int_equal(
        arf_scaled_bound(10, ARF_LL, &eight, &(arf_shape){16, 6144, 10, ARF_ON, ARF_ON, ARF_ON}),
        5);
    assert_int_equal(
        arf_scaled_bound(10, ARF_LL, &eight, &(arf_shape){4, 6144, 10, ARF_ON, ARF_ON, ARF_ON}),
        20);
    assert_int_equal(
        arf_scaled_bound(10, ARF_LL, &eight, &(arf_shape){8, 12288, 10, ARF_ON, ARF_ON, ARF_ON}),
        5);
    to = (arf_shape){2, 1024, 10, ARF_ON, ARF_ON, ARF_ON};
    assert_int_equal(arf_scaled_bound(23, ARF_LL, &from, &to), 64);    /* not 736 */
    assert_int_equal(arf_scaled_bound(96, ARF_LL, &from, &to), 96);    /* not lowered either */
    assert_int_equal(arf_scaled_bound(703, ARF_BT, &from, &to), 2048); /* not 5624 */

    const published *source = published_find("default", 8192, 8, 10);
    assert_int_equal(retarget(source, 16384, 8, 10, ARF_RETARGET_SCALED, NULL), ARFUSE_OK);
    assert_bounds(ARF_FINALIZE, "ll 11, bt 24, bt 351, ht -");
    assert_bounds(ARF_ALLREDUCE, "ll 7, bt 128, bt 512, ht -");
}

static void scaled_adapts_ll_to_the_token(void **state)
{
    (void)state;
    const published *from = published_find("default", 8192, 8, 10);
    assert_int_equal(retarget(from, 6144, 4, 8, ARF_RETARGET_SCALED, NULL), ARFUSE_OK);
    const arf_plan *ll = &target[ARF_FINALIZE].route[0].plan;
    assert_int_equal(value(from, ARF_FINALIZE, ll, "collect_cluster"), 6);
    assert_int_equal(value(from, ARF_FINALIZE, ll, "prefetch_group"), 8);
    /* Two lanes cannot share the sources of one rank; a dense model finalizes nothing. */
    const published *sixteen = published_find("default", 8192, 16, 10);
    assert_int_equal(retarget(sixteen, 8192, 2, 0, ARF_RETARGET_SCALED, NULL), ARFUSE_OK);
    assert_int_equal(target[ARF_FINALIZE].count, 0);
}

static void an_end_closes_and_cuts(void **state)
{
    (void)state;
    const published *from = published_find("default", 8192, 8, 10);
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_retarget(&from->problem, from->routes, &from->problem, ARF_RETARGET_SCALED,
                                  8192, target, notes, &error),
                     ARFUSE_OK);
    assert_bounds(ARF_FINALIZE, "ll 23, bt 48, bt 703, ht 8192");
    assert_int_equal(arf_retarget(&from->problem, from->routes, &from->problem, ARF_RETARGET_SCALED,
                                  48, target, notes, &error),
                     ARFUSE_OK);
    assert_bounds(ARF_FINALIZE, "ll 23, bt 48");
    assert_bounds(ARF_ALLREDUCE, "ll 15, bt 48");
}

/* Our own sets, from default routes, to every shape: always legal, HT kept wherever it is
 * reachable. */
static void our_sets_retarget_to_any_shape(void **state)
{
    (void)state;
    static const int hidden[] = {64, 2880, 3584, 4096, 5120, 6144, 7168, 8192, 12288, 16384};
    for (int set = ARF_SET_ARFUSE; set <= ARF_SET_HOST; set++) {
        static published from;
        from.problem = (arf_problem){.set = (arf_set)set,
                                     .shape = {8, 6144, 10, ARF_ON, ARF_ON, ARF_ON},
                                     .sm_count = set == ARF_SET_HOST ? 0 : 148};
        for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
            arf_default_routes(&from.problem, (arf_pattern)pattern, 8192, &from.routes[pattern]);
        for (size_t h = 0; h < sizeof hidden / sizeof *hidden; h++)
            for (int ranks = 1; ranks <= 16; ranks++) {
                arf_problem to = from.problem;
                to.shape.hidden_size = hidden[h];
                to.shape.tp_size = ranks;
                assert_int_equal(retarget(&from, hidden[h], ranks, 10, ARF_RETARGET_SCALED, NULL),
                                 ARFUSE_OK);
                bool ht = arf_reachable(&to, ARF_FINALIZE, ARF_HT, NULL);
                assert_int_equal(last_plan(ARF_FINALIZE)->protocol, ht ? ARF_HT : ARF_BT);
                assert_int_equal(
                    target[ARF_FINALIZE].route[target[ARF_FINALIZE].count - 1].max_tokens, 8192);
            }
    }
}

static void another_kernel_set_is_refused(void **state)
{
    (void)state;
    const published *from = published_find("default", 8192, 8, 10);
    arf_problem to = from->problem;
    to.set = ARF_SET_ARFUSE;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_retarget(&from->problem, from->routes, &to, ARF_RETARGET_SCALED, 8192,
                                  target, notes, &error),
                     ARFUSE_USAGE);
    assert_string_equal(error.text, "cannot retarget from kernel set flashinfer to arfuse");
    arf_retarget_rule rule;
    assert_true(arf_retarget_rule_parse("v2", &rule));
    assert_int_equal(rule, ARF_RETARGET_V2);
    assert_false(arf_retarget_rule_parse("v3", &rule));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_shape_changes_nothing),
        cmocka_unit_test(unknown_tunings_are_seeded_or_refused),
        cmocka_unit_test(v1_reproduces_the_inherited_profiles),
        cmocka_unit_test(splits_and_ht_are_as_listed),
        cmocka_unit_test(without_ht_the_last_bt_takes_its_range),
        cmocka_unit_test(unsafe_tunings_are_refused_by_name),
        cmocka_unit_test(v2_starts_from_the_presets_of_sixteen_ranks),
        cmocka_unit_test(bounds_scale_with_the_bytes),
        cmocka_unit_test(scaled_adapts_ll_to_the_token),
        cmocka_unit_test(an_end_closes_and_cuts),
        cmocka_unit_test(our_sets_retarget_to_any_shape),
        cmocka_unit_test(another_kernel_set_is_refused),
    };
    return cmocka_run_group_tests_name("retarget", tests, NULL, NULL);
}
