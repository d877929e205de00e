/* SPDX-License-Identifier: Apache-2.0 */
/* Medians and their intervals. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/random.h"
#include "fit/stats.h"

static void test_median_interval_covers(void **state)
{
    (void)state;
    /* Normal values around 10: the 95 % interval of the median should hold 10 most of the time.
     * A percentile bootstrap of 21 values is a little short of its name; 88 % is far from chance.
     */
    uint64_t seed = 3;
    int inside = 0;
    for (int turn = 0; turn < 400; turn++) {
        double values[21];
        for (int i = 0; i < 21; i++)
            values[i] = 10.0 + 0.1 * arf_random_normal(&seed);
        arf_estimate estimate;
        assert_true(arf_estimate_median(values, 21, (uint64_t)turn, &estimate));
        assert_true(estimate.low <= estimate.median && estimate.median <= estimate.high);
        inside += estimate.low <= 10.0 && 10.0 <= estimate.high;
    }
    assert_in_range(inside, 352, 396);
}

static void test_median_of_little(void **state)
{
    (void)state;
    arf_estimate estimate;
    assert_false(arf_estimate_median(NULL, 0, 1, &estimate));
    double bad[] = {NAN, 0.0, -1.0};
    assert_false(arf_estimate_median(bad, 3, 1, &estimate));
    double one[] = {NAN, 4.0};
    assert_true(arf_estimate_median(one, 2, 1, &estimate));
    assert_true(estimate.median == 4.0 && estimate.low == 4.0 && estimate.high == 4.0);
    assert_int_equal(estimate.values, 1);
    double even[] = {4.0, 1.0, 3.0, 2.0};
    assert_true(arf_median_of(even, 4) == 2.5);
    assert_true(isnan(arf_median_of(even, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median_interval_covers),
        cmocka_unit_test(test_median_of_little),
    };
    return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
