/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rules/knobs.h"

static void names_and_parse_are_inverse(void **state)
{
    (void)state;
    for (int i = 0; i < ARF_PROTOCOLS; i++) {
        arf_protocol back = ARF_PROTOCOLS;
        assert_true(arf_protocol_parse(arf_protocol_name((arf_protocol)i), &back));
        assert_int_equal(back, i);
    }
    for (int i = 0; i < ARF_SETS; i++) {
        arf_set back = ARF_SETS;
        assert_true(arf_set_parse(arf_set_name((arf_set)i), &back));
        assert_int_equal(back, i);
    }
    for (int i = 0; i < ARF_LINKS; i++) {
        arf_link back = ARF_LINKS;
        assert_true(arf_link_parse(arf_link_name((arf_link)i), &back));
        assert_int_equal(back, i);
    }
    assert_string_equal(arf_pattern_name(ARF_FINALIZE), "finalize");
    assert_string_equal(arf_transport_name(ARF_MULTICAST_STORE), "multicast-store");
    assert_string_equal(arf_numerics_name(ARF_IN_NETWORK), "in-network");
    assert_string_equal(arf_link_name(ARF_LINK_SHARED_GPU), "shared-gpu");
    assert_string_equal(arf_set_name(ARF_SET_HOST), "arfuse-host");
    assert_string_equal(arf_policy_name(ARF_DECODE), "decode");
    assert_string_equal(arf_policy_name((arf_policy)99), "?");
}

static void parse_is_exact_and_leaves_its_output_alone(void **state)
{
    (void)state;
    arf_protocol protocol = ARF_HT;
    assert_false(arf_protocol_parse("LL", &protocol));
    assert_false(arf_protocol_parse("ll ", &protocol));
    assert_false(arf_protocol_parse("", &protocol));
    assert_int_equal(protocol, ARF_HT);
}

static void route_of_takes_the_first_bound_that_is_enough(void **state)
{
    (void)state;
    arf_routes routes = {.count = 3, .min_tokens = 1};
    routes.route[0].max_tokens = 12;
    routes.route[1].max_tokens = 768;
    routes.route[2].max_tokens = 8192;
    static const struct {
        int64_t tokens;
        int route;
    } cases[] = {{-1, -1}, {0, -1},  {1, 0},    {12, 0},    {13, 1},
                 {768, 1}, {769, 2}, {8192, 2}, {8193, -1}, {INT64_MAX, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(arf_route_of(&routes, cases[i].tokens), cases[i].route);

    routes.min_tokens = 10;
    assert_int_equal(arf_route_of(&routes, 9), -1);
    assert_int_equal(arf_route_of(&routes, 10), 0);

    routes.route[2].max_tokens = ARF_OPEN_BOUND;
    assert_int_equal(arf_route_of(&routes, INT64_MAX), 2);

    routes.count = 0;
    assert_int_equal(arf_route_of(&routes, 10), -1);
}

/* The binary search against a plain scan, for every length and every token count. */
static void route_of_equals_a_scan(void **state)
{
    (void)state;
    static arf_routes routes;
    routes.min_tokens = 1;
    for (int count = 0; count <= ARF_MAX_ROUTES; count++) {
        routes.count = count;
        for (int i = 0; i < count; i++)
            routes.route[i].max_tokens = 3 * i + 1 + i % 2;
        for (int64_t tokens = 0; tokens <= 3 * count + 3; tokens++) {
            int want = -1;
            for (int i = 0; i < count && tokens > 0 && want < 0; i++)
                if (routes.route[i].max_tokens >= tokens)
                    want = i;
            assert_int_equal(arf_route_of(&routes, tokens), want);
        }
    }
}

static void plans_are_equal_when_they_run_the_same(void **state)
{
    (void)state;
    const arf_knob_table *table = arf_knobs(ARF_SET_ARFUSE, ARF_LL, ARF_FINALIZE);
    arf_plan a = {.protocol = ARF_LL, .tuning = arf_tuning_fallback(table)};
    arf_plan b = a;
    b.tuning.value[table->count] = 77; /* behind the table: no part of the plan */
    assert_true(arf_plan_equal(ARF_SET_ARFUSE, ARF_FINALIZE, &a, &b));
    b.tuning.value[table->count - 1] ^= 1;
    assert_false(arf_plan_equal(ARF_SET_ARFUSE, ARF_FINALIZE, &a, &b));
    b = a;
    b.transport = ARF_MULTICAST_STORE;
    assert_false(arf_plan_equal(ARF_SET_ARFUSE, ARF_FINALIZE, &a, &b));
    b = a;
    b.tuning_null = true;
    assert_false(arf_plan_equal(ARF_SET_ARFUSE, ARF_FINALIZE, &a, &b));
    a.tuning_null = true;
    a.tuning.value[0] = 1; /* unknown launch parameters have no value to differ in */
    assert_true(arf_plan_equal(ARF_SET_ARFUSE, ARF_FINALIZE, &a, &b));
}

static void shapes_differ_by_any_member(void **state)
{
    (void)state;
    const arf_shape shape = {8, 6144, 10, ARF_ON, ARF_ON, ARF_ON};
    arf_shape other = shape;
    assert_true(arf_shape_equal(&shape, &other));
    other.residual = ARF_OFF;
    assert_false(arf_shape_equal(&shape, &other));
    other = shape;
    other.top_k = 8;
    assert_false(arf_shape_equal(&shape, &other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_parse_are_inverse),
        cmocka_unit_test(parse_is_exact_and_leaves_its_output_alone),
        cmocka_unit_test(route_of_takes_the_first_bound_that_is_enough),
        cmocka_unit_test(route_of_equals_a_scan),
        cmocka_unit_test(plans_are_equal_when_they_run_the_same),
        cmocka_unit_test(shapes_differ_by_any_member),
    };
    return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
