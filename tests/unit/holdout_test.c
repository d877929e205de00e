/* SPDX-License-Identifier: Apache-2.0 */
/* Routes judged at token counts that no fit has seen. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "fit/fit.h"
#include "support/samples_case.h"

static void test_held_out_tokens_are_new(void **state)
{
    (void)state;
    int64_t first[16], again[16], other[16];
    arf_samples *samples = samples_empty();
    for (int64_t tokens = 1; tokens <= 1024; tokens *= 2)
        samples_add_equal(samples, tokens, ARF_LL, 4.0);
    assert_int_equal(arf_holdout_tokens(samples, ARF_ALLREDUCE, 5, first, 16), 16);
    assert_int_equal(arf_holdout_tokens(samples, ARF_ALLREDUCE, 5, again, 16), 16);
    assert_int_equal(arf_holdout_tokens(samples, ARF_ALLREDUCE, 6, other, 16), 16);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
    for (int i = 0; i < 16; i++) {
        assert_in_range(first[i], 1, 1024);
        assert_true((first[i] & (first[i] - 1)) != 0); /* the ladder has the powers of two */
        assert_true(i == 0 || first[i] > first[i - 1]);
    }
    assert_int_equal(arf_holdout_tokens(samples, ARF_FINALIZE, 5, first, 16), 0);
    arf_samples_free(samples);

    samples = samples_empty();
    samples_add_equal(samples, 1, ARF_LL, 4.0);
    samples_add_equal(samples, 4, ARF_LL, 4.0);
    assert_int_equal(arf_holdout_tokens(samples, ARF_ALLREDUCE, 1, first, 16), 2);
    assert_int_equal(first[0], 2);
    assert_int_equal(first[1], 3);
    arf_samples_free(samples);
}

static void test_held_out_regret(void **state)
{
    (void)state;
    arf_samples *held_out = samples_empty();
    arf_routes routes = {.count = 1, .min_tokens = 1};
    routes.route[0] = (arf_route){1024, samples_plan(ARF_LL, 0)};
    arf_regret regret;
    assert_int_equal(arf_regret_of(held_out, ARF_ALLREDUCE, &routes, &regret, NULL),
                     ARFUSE_FAILURE);
    for (int64_t tokens = 3; tokens <= 5; tokens++) {
        samples_add_equal(held_out, tokens, ARF_LL, tokens == 5 ? 5.5 : 5.0);
        samples_add_equal(held_out, tokens, ARF_BT, tokens == 3 ? 6.0 : 5.0);
    }
    samples_add_equal(held_out, 2000, ARF_LL, 9.0); /* no route serves it */
    assert_int_equal(arf_regret_of(held_out, ARF_ALLREDUCE, &routes, &regret, NULL), ARFUSE_OK);
    assert_int_equal(regret.points, 3);
    assert_int_equal(regret.worst_tokens, 5);
    assert_true(fabs(regret.worst - 0.1) < 1e-9);
    assert_true(fabs(regret.geomean - (pow(1.1, 1.0 / 3.0) - 1.0)) < 1e-9);
    arf_samples_free(held_out);
}

/* Seven candidates that are all the same: what the best of noisy medians is ahead by is no
 * regret. */
static void test_noise_is_no_regret(void **state)
{
    (void)state;
    arf_samples *held_out = samples_empty();
    uint64_t seed = 9;
    for (int64_t tokens = 1; tokens <= 40; tokens++) {
        for (int variant = 0; variant < 7; variant++) {
            double us[15];
            for (int i = 0; i < 15; i++)
                us[i] = 5.0 * exp(0.02 * arf_random_normal(&seed));
            arf_sample sample = {.pattern = ARF_ALLREDUCE,
                                 .tokens = tokens,
                                 .plan = samples_plan(ARF_LL, -variant),
                                 .outcome = ARF_SAMPLE_TIMED,
                                 .rounds = 15,
                                 .us = us};
            assert_int_equal(arf_samples_add(held_out, &sample, NULL), ARFUSE_OK);
        }
    }
    arf_routes routes = {.count = 1, .min_tokens = 1};
    routes.route[0] = (arf_route){40, samples_plan(ARF_LL, 0)};
    arf_regret regret;
    assert_int_equal(arf_regret_of(held_out, ARF_ALLREDUCE, &routes, &regret, NULL), ARFUSE_OK);
    assert_int_equal(regret.points, 40);
    assert_true(fabs(regret.geomean) < 0.004); /* the plain minimum would say about 0.009 */
    arf_samples_free(held_out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held_out_tokens_are_new),
        cmocka_unit_test(test_held_out_regret),
        cmocka_unit_test(test_noise_is_no_regret),
    };
    return cmocka_run_group_tests_name("holdout", tests, NULL, NULL);
}
