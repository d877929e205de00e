/* SPDX-License-Identifier: Apache-2.0 */
/* Every published knob set against the rules: the knob tables map it whole (tests/support), and it
 * is legal for the shape that it was published for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/published.h"

static void check_plan(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan)
{
    char reason[ARF_REASON_TEXT];
    if (!arf_legal(problem, pattern, plan, reason))
        fail_msg("%s H=%d R=%d %s %s: %s", arf_set_name(problem->set), problem->shape.hidden_size,
                 problem->shape.tp_size, arf_pattern_name(pattern),
                 arf_protocol_name(plan->protocol), reason);
    /* H=3584 with 4 ranks and more is legal by the predicated tail alone. */
    bool tail = plan->protocol == ARF_HT && !plan->tuning_null &&
                problem->shape.hidden_size == 3584 && problem->shape.tp_size >= 4;
    assert_int_equal(arf_needs_tail(problem, pattern, plan), tail);
    if (!tail)
        return;
    arf_problem plain = *problem;
    plain.set = ARF_SET_FLASHINFER;
    assert_false(arf_legal(&plain, pattern, plan, reason));
    assert_string_equal(reason, "reduction_warps 2: a shard of 56 packs is no multiple of 32 x 2");
}

static void every_published_knob_set_is_legal_for_its_shape(void **state)
{
    (void)state;
    const published *list;
    int count = published_configurations(&list), routes = 0;
    assert_int_equal(count, 50);
    for (int i = 0; i < count; i++)
        for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
            for (int r = 0; r < list[i].routes[pattern].count; r++, routes++)
                check_plan(&list[i].problem, (arf_pattern)pattern,
                           &list[i].routes[pattern].route[r].plan);
    assert_int_equal(routes, 221);
}

static void presets_that_no_profile_routes_to_are_legal_too(void **state)
{
    (void)state;
    published_preset list[16];
    int count = published_unrouted(list);
    assert_int_equal(count, 10);
    for (int i = 0; i < count; i++)
        check_plan(&list[i].problem, list[i].pattern, &list[i].plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_published_knob_set_is_legal_for_its_shape),
        cmocka_unit_test(presets_that_no_profile_routes_to_are_legal_too),
    };
    return cmocka_run_group_tests_name("published", tests, NULL, NULL);
}
