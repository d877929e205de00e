/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics of a point, and the field that screening thins out. */
#include "tune/interval.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tune/field.h"

static void test_median(void **state)
{
    (void)state;
    assert_float_equal(arf_median((double[]){3, 1, 2}, 3), 2, 0);
    assert_float_equal(arf_median((double[]){4, 1, 2, 3}, 4), 2.5, 0);
    assert_true(isnan(arf_median(NULL, 0)));
}

static void test_interval_ranks(void **state)
{
    (void)state;
    double value[50], low, high;
    for (int i = 0; i < 50; i++)
        value[i] = 50 - i;
    /* Tables of the sign test, two-sided 95 %: n = 5 none, 6 the extremes, 9 the second, 25 the
     * eighth, 50 the eighteenth from each end. */
    const int table[][2] = {{5, 1}, {6, 1}, {8, 1}, {9, 2}, {11, 2}, {12, 3}, {25, 8}, {50, 18}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const int count = table[i][0], rank = table[i][1];
        arf_median_interval(value + 50 - count, count, &low, &high);
        assert_float_equal(low, rank, 0);
        assert_float_equal(high, count + 1 - rank, 0);
    }
    assert_true(isinf(arf_half_width(value, 2)));
}

static void test_one_outlier_widens_nothing_from_nine_rounds_on(void **state)
{
    (void)state;
    double value[9] = {100, 101, 99, 100, 101, 99, 100, 101, 400};
    assert_true(arf_half_width(value, 9) < 0.02);
    assert_true(arf_half_width(value + 2, 7) > 1);
}

static arf_candidate made[6];
static arf_entrant entrant[6];
static arf_field field = {.count = 6, .entrant = entrant};

static void fill(void)
{
    for (int i = 0; i < 6; i++) {
        made[i] = (arf_candidate){.plan = {.protocol = i < 4 ? ARF_LL : ARF_BT}, .limit = 64};
        entrant[i] = (arf_entrant){.candidate = &made[i], .limit = 64};
    }
}

static void test_votes_go_to_the_fastest_of_a_protocol(void **state)
{
    (void)state;
    fill();
    made[3].always = true;
    arf_field_vote(&field, ARF_LL, (double[]){5, 4, 4, 6, 1, 1}, 2);
    arf_field_close(&field, ARF_LL, 2);
    const arf_standing expected[] = {ARF_STANDING_SCREENED, ARF_STANDING_IN, ARF_STANDING_IN,
                                     ARF_STANDING_IN,       ARF_STANDING_IN, ARF_STANDING_IN};
    for (int i = 0; i < 6; i++)
        assert_int_equal(entrant[i].standing, expected[i]);
}

static void test_without_a_screening_the_first_guesses_stay(void **state)
{
    (void)state;
    fill();
    arf_field_close(&field, ARF_LL, 2);
    for (int i = 0; i < 4; i++)
        assert_int_equal(entrant[i].standing, i < 2 ? ARF_STANDING_IN : ARF_STANDING_SCREENED);
}

static void test_limits(void **state)
{
    (void)state;
    fill();
    assert_true(arf_field_races(&field, 0, 64));
    assert_false(arf_field_races(&field, 0, 65));
    entrant[0].standing = ARF_STANDING_WRONG;
    assert_false(arf_field_races(&field, 0, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_interval_ranks),
        cmocka_unit_test(test_one_outlier_widens_nothing_from_nine_rounds_on),
        cmocka_unit_test(test_votes_go_to_the_fastest_of_a_protocol),
        cmocka_unit_test(test_without_a_screening_the_first_guesses_stay),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
