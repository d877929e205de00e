/* SPDX-License-Identifier: Apache-2.0 */
/* The fit on samples whose right answer is known: made by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "fit/fit.h"
#include "rules/knobs.h"
#include "support/samples_case.h"

static const arf_fit_options defaults = ARF_FIT_OPTIONS_INIT;

static void add_outcome(arf_samples *samples, int64_t tokens, const arf_plan *plan,
                        arf_sample_outcome outcome)
{
    arf_sample sample = {.pattern = ARF_ALLREDUCE,
                         .tokens = tokens,
                         .plan = *plan,
                         .outcome = outcome,
                         .reason = "made to fail"};
    assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
}

static arf_fit_result fit_with(const arf_samples *samples, const arf_fit_options *options)
{
    arf_fit_result result;
    arf_error error = ARF_ERROR_INIT;
    if (arf_fit(samples, ARF_ALLREDUCE, options, &result, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return result;
}

static arf_fit_result fit(const arf_samples *samples)
{
    return fit_with(samples, &defaults);
}

static void expect_route(const arf_fit_result *result, int index, int64_t max_tokens,
                         arf_protocol protocol)
{
    assert_true(index < result->routes.count);
    assert_int_equal(result->routes.route[index].plan.protocol, protocol);
    assert_int_equal(result->routes.route[index].max_tokens, max_tokens);
}

static const int64_t ladder[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
#define POINTS ((int)(sizeof ladder / sizeof ladder[0]))

/* LL 4 + 0.1 M, BT 6 + 0.02 M: equal at M = 25, so LL serves up to 25 (the tie is in the first's
 * favour), BT from 26. */
static double ll_us(int64_t tokens)
{
    return 4.0 + 0.1 * (double)tokens;
}
static double bt_us(int64_t tokens)
{
    return 6.0 + 0.02 * (double)tokens;
}

static arf_samples *two_lines(void)
{
    arf_samples *samples = samples_empty();
    for (int i = 0; i < POINTS; i++) {
        samples_add_equal(samples, ladder[i], ARF_LL, ll_us(ladder[i]));
        samples_add_equal(samples, ladder[i], ARF_BT, bt_us(ladder[i]));
    }
    return samples;
}

static void test_crossing_lies_between_its_points(void **state)
{
    (void)state;
    arf_samples *samples = two_lines();
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 2);
    assert_int_equal(result.routes.route[0].plan.protocol, ARF_LL);
    int64_t bound = result.routes.route[0].max_tokens;
    assert_in_range(bound, 24, 26); /* the chord's crossing, within 5 % of 25 */
    assert_int_equal(result.evidence[0].bound_low, 16);
    assert_int_equal(result.evidence[0].bound_high, 32);
    expect_route(&result, 1, 1024, ARF_BT);
    assert_string_equal(result.evidence[0].runner_up, "bt");
    assert_true(fabs(result.evidence[0].margin - (bt_us(16) / ll_us(16) - 1.0)) < 1e-12);
    assert_true(result.regret_max < 1e-12);
    arf_samples_free(samples);
}

/* As if times were the same in every run. */
static const arf_fit_options one_run = {
    .route_price = 0.0005, .repeat = 0.0, .numerics = ARF_FIXED, .seed = 1};

static int wanted_with(const arf_samples *samples, const arf_fit_options *options, int64_t *tokens,
                       int room)
{
    int count;
    assert_int_equal(arf_fit_wanted(samples, ARF_ALLREDUCE, options, tokens, room, &count, NULL),
                     ARFUSE_OK);
    return count;
}

static int wanted_of(const arf_samples *samples, int64_t *tokens, int room)
{
    return wanted_with(samples, &defaults, tokens, room);
}

static void test_refining_makes_it_exact(void **state)
{
    (void)state;
    arf_samples *samples = two_lines();
    arf_fit_result result = fit_with(samples, &one_run);
    int64_t wanted[8];
    int halves = 0, others = 0, count;
    while ((count = wanted_with(samples, &one_run, wanted, 8)) > 0) {
        const bool exact = result.evidence[0].bound_high - result.evidence[0].bound_low <= 2;
        for (int i = 0; i < count; i++) {
            if (!exact) /* nothing comes before the bound */
                assert_in_range(wanted[i], 17, 31);
            samples_add_equal(samples, wanted[i], ARF_LL, ll_us(wanted[i]));
            samples_add_equal(samples, wanted[i], ARF_BT, bt_us(wanted[i]));
            halves += !exact;
            others += exact;
        }
        result = fit_with(samples, &one_run);
        assert_true(others < 20);
    }
    assert_in_range(halves, 1, 6); /* 16..32 by halves */
    assert_int_equal(result.routes.count, 2);
    assert_in_range(result.routes.route[0].max_tokens, 24, 25);
    assert_true(result.evidence[0].bound_high - result.evidence[0].bound_low <= 2);
    arf_samples_free(samples);
}

/* LL is ahead by 1.2 % at 24 tokens and behind by as much at 26, which another run may see the
 * other way round: the bound's interval goes on to where it is clear, and nobody asks between. */
static void test_what_differs_from_run_to_run_is_in_the_interval(void **state)
{
    (void)state;
    arf_samples *samples = two_lines();
    const int64_t near[] = {20, 23, 24, 25, 26, 27, 30};
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        samples_add_equal(samples, near[i], ARF_LL, ll_us(near[i]));
        samples_add_equal(samples, near[i], ARF_BT, bt_us(near[i]));
    }
    arf_fit_result result = fit(samples);
    assert_int_equal(result.evidence[0].bound_low, 23);
    assert_int_equal(result.evidence[0].bound_high, 27);
    result = fit_with(samples, &one_run);
    assert_int_equal(result.evidence[0].bound_low, 24);
    assert_int_equal(result.evidence[0].bound_high, 26);
    arf_samples_free(samples);
}

/* Nobody need time a plan that is behind by 60 % on both sides; one that is behind by 20 %, or was
 * not timed on one side, may be a rival. */
static void test_who_has_lost_on_both_sides_has_lost_between(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    const arf_plan best = samples_plan(ARF_LL, 0), lost = samples_plan(ARF_BT, 0);
    const arf_plan near = samples_plan(ARF_HT, 0), half = samples_plan(ARF_UNFUSED, 0);
    for (int64_t tokens = 8; tokens <= 16; tokens *= 2) {
        samples_add(samples, tokens, &best, 5.0, 0.0);
        samples_add(samples, tokens, &lost, 8.0, 0.0);
        samples_add(samples, tokens, &near, 6.0, 0.0);
    }
    samples_add(samples, 8, &half, 9.0, 0.0);
    assert_false(arf_fit_lost(samples, ARF_ALLREDUCE, &best, 11));
    assert_true(arf_fit_lost(samples, ARF_ALLREDUCE, &lost, 11));
    assert_false(arf_fit_lost(samples, ARF_ALLREDUCE, &near, 11));
    assert_false(arf_fit_lost(samples, ARF_ALLREDUCE, &half, 11));
    assert_false(arf_fit_lost(samples, ARF_ALLREDUCE, &lost, 17));
    arf_samples_free(samples);
}

static void test_same_answer_in_any_order(void **state)
{
    (void)state;
    arf_samples *samples = two_lines();
    arf_plan other = samples_plan(ARF_BT, 32);
    for (int i = 0; i < POINTS; i++)
        samples_add(samples, ladder[i], &other, bt_us(ladder[i]) * (ladder[i] > 300 ? 0.9 : 1.1),
                    0.02);
    arf_fit_result expected = fit(samples);
    assert_int_equal(expected.routes.count, 3);
    uint64_t seed = 7;
    for (int turn = 0; turn < 20; turn++) {
        for (int i = samples->count - 1; i > 0; i--) {
            int j = (int)(arf_random_next(&seed) % (uint64_t)(i + 1));
            arf_sample swap = samples->sample[i];
            samples->sample[i] = samples->sample[j];
            samples->sample[j] = swap;
        }
        arf_fit_result result = fit(samples);
        assert_memory_equal(&result, &expected, sizeof result);
    }
    arf_samples_free(samples);
}

/* 5.00 against 4.98 with a spread of 2 %: a tie, which goes to the first in protocol order, once
 * and for all M (https://github.com/flashinfer-ai/flashinfer/issues/4433). */
static void test_noise_makes_no_islands(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    arf_plan ll = samples_plan(ARF_LL, 0), bt = samples_plan(ARF_BT, 0);
    for (int i = 0; i < POINTS; i++) {
        samples_add(samples, ladder[i], &ll, 5.00, 0.02);
        samples_add(samples, ladder[i], &bt, i % 2 == 1 ? 4.98 : 5.02, 0.02);
    }
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 1);
    expect_route(&result, 0, 1024, ARF_LL);
    /* A tie may hide anything between its points, so some are asked for; but they come to an end
     * and make no island either. */
    int64_t wanted[8];
    int asked = 0, count;
    while ((count = wanted_of(samples, wanted, 8)) > 0) {
        for (int i = 0; i < count; i++, asked++) {
            samples_add(samples, wanted[i], &ll, 5.00, 0.02);
            samples_add(samples, wanted[i], &bt, asked % 2 == 1 ? 4.98 : 5.02, 0.02);
        }
        assert_true(asked < 80);
    }
    result = fit(samples);
    assert_int_equal(result.routes.count, 1);
    arf_samples_free(samples);
}

/* Blocks of 32 tokens: at the ladder's points LL is ahead of BT by 4 % or more, right behind them
 * it is not. */
static double staircase_us(int64_t tokens)
{
    return 2.0 + 0.1 * (double)((tokens + 31) / 32 * 32);
}
static double ramp_us(int64_t tokens)
{
    return 1.04 * (2.0 + 0.1 * (double)tokens);
}

static void add_stairs(arf_samples *samples, int64_t tokens)
{
    samples_add_equal(samples, tokens, ARF_LL, staircase_us(tokens));
    samples_add_equal(samples, tokens, ARF_BT, ramp_us(tokens));
}

static void test_steps_between_the_points_are_found(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    for (int64_t tokens = 32; tokens <= 1024; tokens *= 2)
        add_stairs(samples, tokens);
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 1);
    expect_route(&result, 0, 1024, ARF_LL);
    int64_t wanted[8];
    int count, asked = 0;
    while ((count = wanted_of(samples, wanted, 8)) > 0) {
        for (int i = 0; i < count; i++, asked++)
            add_stairs(samples, wanted[i]);
        assert_true(asked < 80);
    }
    result = fit(samples);
    assert_true(result.routes.count >= 2);
    assert_int_equal(result.routes.route[arf_route_of(&result.routes, 40)].plan.protocol, ARF_BT);
    assert_int_equal(result.routes.route[arf_route_of(&result.routes, 80)].plan.protocol, ARF_BT);
    arf_samples_free(samples);
}

/* BT is behind LL by 60 % but for the gap 64..128: nothing else is in doubt, and that is asked for
 * right behind its lower end, where blocks of tokens begin anew, and then by its middle. */
static void test_only_close_rivals_are_doubted(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    for (int i = 0; i < POINTS; i++) {
        const bool close = ladder[i] == 64 || ladder[i] == 128;
        samples_add_equal(samples, ladder[i], ARF_LL, 5.0);
        samples_add_equal(samples, ladder[i], ARF_BT, close ? 5.5 : 8.0);
    }
    int64_t wanted[8];
    assert_int_equal(wanted_of(samples, wanted, 8), 1);
    assert_int_equal(wanted[0], 65);
    samples_add_equal(samples, 65, ARF_LL, 5.0);
    samples_add_equal(samples, 65, ARF_BT, 5.5);
    assert_int_equal(wanted_of(samples, wanted, 8), 1);
    assert_int_equal(wanted[0], 91);
    /* Of another tuning of its own protocol there is less doubt. */
    arf_plan other = samples_plan(ARF_LL, 1);
    for (int i = 0; i < POINTS; i++)
        samples_add(samples, ladder[i], &other, ladder[i] == 256 || ladder[i] == 512 ? 5.1 : 5.6,
                    0.0);
    assert_int_equal(wanted_of(samples, wanted, 8), 2);
    assert_int_equal(wanted[1], 257);
    arf_samples_free(samples);
}

/* The same difference without any spread is real, but an island of 0.4 % does not pay for itself.
 */
static void test_a_route_has_its_price(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    for (int i = 0; i < POINTS; i++) {
        samples_add_equal(samples, ladder[i], ARF_LL, 5.00);
        samples_add_equal(samples, ladder[i], ARF_BT, ladder[i] == 32 ? 4.98 : 5.2);
    }
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 1);
    arf_fit_options free_routes = defaults;
    free_routes.route_price = 0.0;
    result = fit_with(samples, &free_routes);
    assert_int_equal(result.routes.count, 3);
    /* And one of 30 % does. */
    samples_add_equal(samples, 32, ARF_HT, 3.5);
    result = fit(samples);
    assert_int_equal(result.routes.count, 3);
    assert_int_equal(result.routes.route[1].plan.protocol, ARF_HT);
    arf_samples_free(samples);
}

/* Between tunings of one protocol the one nearest the table's fallback is first. */
static void test_ties_go_to_the_fallback_tuning(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    arf_plan far = samples_plan(ARF_LL, -4), fallback = samples_plan(ARF_LL, 0);
    for (int i = 0; i < POINTS; i++) {
        samples_add(samples, ladder[i], &far, 5.00, 0.01);
        samples_add(samples, ladder[i], &fallback, 5.01, 0.01);
    }
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 1);
    assert_true(
        arf_plan_equal(ARF_SET_ARFUSE, ARF_ALLREDUCE, &result.routes.route[0].plan, &fallback));
    arf_samples_free(samples);
}

/* On a machine so busy that intervals are as wide as the times, half again as slow is no tie. */
static void test_wide_noise_excuses_nothing(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    arf_plan first = samples_plan(ARF_BT, 0), faster = samples_plan(ARF_UNFUSED, 0);
    samples_add(samples, 64, &first, 150.0, 0.95);
    samples_add(samples, 64, &faster, 100.0, 0.95);
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 1);
    expect_route(&result, 0, 64, ARF_UNFUSED);
    arf_samples_free(samples);
}

/* A candidate that stops being measured serves no token beyond, whatever its last time promised. */
static void test_dropped_candidate_is_not_extrapolated(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    for (int i = 0; i < POINTS; i++) {
        if (ladder[i] <= 64)
            samples_add_equal(samples, ladder[i], ARF_LL, 4.0);
        samples_add_equal(samples, ladder[i], ARF_BT, 6.0 + 0.02 * (double)ladder[i]);
    }
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 2);
    assert_int_equal(result.routes.route[0].plan.protocol, ARF_LL);
    assert_in_range(result.routes.route[0].max_tokens, 64, 127);
    assert_int_equal(result.evidence[0].bound_low, 64);
    arf_samples_free(samples);
}

/* One that is missing at a point in between is carried across, by the chord. */
static void test_gap_is_bridged(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    for (int i = 0; i < POINTS; i++) {
        if (ladder[i] != 64 && ladder[i] != 128)
            samples_add_equal(samples, ladder[i], ARF_LL, 4.0 + 0.01 * (double)ladder[i]);
        samples_add_equal(samples, ladder[i], ARF_BT, 6.0 + 0.02 * (double)ladder[i]);
    }
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 1);
    expect_route(&result, 0, 1024, ARF_LL);
    arf_samples_free(samples);
}

static void test_failure_cuts_a_candidate(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    arf_plan bt = samples_plan(ARF_BT, 0);
    for (int i = 0; i < POINTS; i++) {
        samples_add_equal(samples, ladder[i], ARF_BT, 5.0);
        samples_add_equal(samples, ladder[i], ARF_HT, 9.0);
    }
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 1);
    add_outcome(samples, 1024, &bt, ARF_SAMPLE_FAILED);
    result = fit(samples);
    assert_int_equal(result.routes.count, 2);
    assert_int_equal(result.routes.route[0].plan.protocol, ARF_BT);
    assert_in_range(result.routes.route[0].max_tokens, 512, 1023);
    expect_route(&result, 1, 1024, ARF_HT);

    add_outcome(samples, 100, &bt, ARF_SAMPLE_FAILED); /* between two points: may not be crossed */
    result = fit(samples);
    int at_100 = arf_route_of(&result.routes, 100);
    assert_true(at_100 >= 0);
    assert_true(result.routes.route[at_100].plan.protocol == ARF_HT);
    arf_samples_free(samples);
}

/* Where the only candidate failed between two of its points, no route can pass. */
static void test_no_way_past_a_failure(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    arf_plan ll = samples_plan(ARF_LL, 0);
    for (int i = 0; i < POINTS; i++)
        samples_add_equal(samples, ladder[i], ARF_LL, 5.0);
    add_outcome(samples, 100, &ll, ARF_SAMPLE_FAILED);
    arf_fit_result result;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_fit(samples, ARF_ALLREDUCE, &defaults, &result, &error),
                     ARFUSE_NOT_SERVED);
    assert_non_null(strstr(error.text, "128 tokens"));
    samples_add_equal(samples, 128, ARF_BT, 50.0); /* another way round */
    result = fit(samples);
    assert_int_equal(result.routes.count, 3);
    assert_int_equal(result.routes.route[1].plan.protocol, ARF_BT);
    arf_samples_free(samples);
}

static void test_wrong_candidate_is_out(void **state)
{
    (void)state;
    arf_samples *samples = two_lines();
    arf_plan ll = samples_plan(ARF_LL, 0);
    add_outcome(samples, 4, &ll, ARF_SAMPLE_WRONG);
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 1);
    expect_route(&result, 0, 1024, ARF_BT);
    arf_samples_free(samples);
}

static void test_weaker_numerics_need_leave(void **state)
{
    (void)state;
    arf_samples *samples = two_lines();
    arf_plan library = samples_plan(ARF_UNFUSED, 0);
    library.numerics = ARF_LIBRARY;
    for (int i = 0; i < POINTS; i++)
        samples_add(samples, ladder[i], &library, 1.0, 0.0);
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 2);
    arf_fit_options any = defaults;
    any.numerics = ARF_LIBRARY;
    result = fit_with(samples, &any);
    assert_int_equal(result.routes.count, 1);
    expect_route(&result, 0, 1024, ARF_UNFUSED);
    arf_samples_free(samples);
}

static void test_nan_never_enters(void **state)
{
    (void)state;
    arf_samples *samples = two_lines();
    arf_fit_result expected = fit(samples);
    arf_plan ht = samples_plan(ARF_HT, 0), ll = samples_plan(ARF_LL, 0);
    for (int i = 0; i < POINTS; i++) {
        double bad[] = {NAN, INFINITY, -INFINITY, 0.0, -3.0};
        arf_sample sample = {.pattern = ARF_ALLREDUCE,
                             .tokens = ladder[i],
                             .plan = ht,
                             .outcome = ARF_SAMPLE_TIMED,
                             .rounds = 5,
                             .us = bad};
        assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
    }
    /* Some bad rounds among good ones are left out, too. */
    double mixed[] = {NAN, ll_us(16), INFINITY, ll_us(16)};
    arf_sample sample = {.pattern = ARF_ALLREDUCE,
                         .tokens = 16,
                         .plan = ll,
                         .outcome = ARF_SAMPLE_TIMED,
                         .rounds = 4,
                         .us = mixed};
    assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
    arf_fit_result result = fit(samples);
    assert_memory_equal(&result.routes, &expected.routes, sizeof result.routes);
    assert_true(isfinite(result.regret_geomean) && isfinite(result.regret_max));
    arf_samples_free(samples);
}

static void test_nothing_to_fit_is_an_error(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    arf_fit_result result;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_fit(samples, ARF_ALLREDUCE, &defaults, &result, &error),
                     ARFUSE_NOT_SERVED);
    assert_non_null(strstr(error.text, "allreduce"));
    arf_plan ll = samples_plan(ARF_LL, 0);
    add_outcome(samples, 4, &ll, ARF_SAMPLE_FAILED);
    arf_error_clear(&error);
    assert_int_equal(arf_fit(samples, ARF_ALLREDUCE, &defaults, &result, &error),
                     ARFUSE_NOT_SERVED);
    int64_t wanted[4];
    int count = 1;
    assert_int_equal(arf_fit_wanted(samples, ARF_ALLREDUCE, &defaults, wanted, 4, &count, NULL),
                     ARFUSE_NOT_SERVED);
    assert_int_equal(count, 0);
    arf_profile *profile = NULL;
    arf_error_clear(&error);
    assert_int_equal(arf_fit_profile(samples, &defaults, &profile, &error), ARFUSE_FAILURE);
    assert_null(profile);
    arf_samples_free(samples);
}

static void test_one_point(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    samples_add_equal(samples, 8, ARF_BT, 6.0);
    samples_add_equal(samples, 8, ARF_LL, 7.0);
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 1);
    expect_route(&result, 0, 8, ARF_BT);
    assert_int_equal(result.evidence[0].bound_low, 8);
    assert_int_equal(result.evidence[0].bound_high, 8);
    arf_samples_free(samples);
}

/* Two candidates that cross at 25; a histogram that only has few tokens needs but one of them. */
static void test_weights_decide_what_a_route_is_worth(void **state)
{
    (void)state;
    arf_samples *samples = two_lines();
    int64_t few[] = {1, 2, 3}, many[] = {0, 900}, beyond[] = {0, 5000};
    double weight[] = {5.0, 1.0, 1.0};
    arf_fit_options options = defaults;
    arf_weights weights = {3, few, weight};
    options.weights = &weights;
    arf_fit_result result = fit_with(samples, &options);
    assert_int_equal(result.routes.count, 1);
    expect_route(&result, 0, 1024, ARF_LL);
    weights = (arf_weights){2, many, weight};
    result = fit_with(samples, &options);
    assert_int_equal(result.routes.count, 1);
    expect_route(&result, 0, 1024, ARF_BT);
    weights = (arf_weights){2, beyond, weight};
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_fit(samples, ARF_ALLREDUCE, &options, &result, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "1024"));
    arf_samples_free(samples);
}

/* Samples of one (M, candidate): the later counts. */
static void test_later_sample_counts(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    for (int i = 0; i < POINTS; i++) {
        samples_add_equal(samples, ladder[i], ARF_LL, 5.0);
        samples_add_equal(samples, ladder[i], ARF_BT, 4.0);
        samples_add_equal(samples, ladder[i], ARF_BT, 9.0);
    }
    arf_fit_result result = fit(samples);
    assert_int_equal(result.routes.count, 1);
    assert_int_equal(result.routes.route[0].plan.protocol, ARF_LL);
    arf_samples_free(samples);
}

static void test_profile_of_both_patterns(void **state)
{
    (void)state;
    arf_samples *samples = two_lines();
    samples->header.policy = ARF_DECODE;
    strcpy(samples->header.tool, "arfuse 0.1.0");
    int allreduce = samples->count;
    for (int i = 0; i < allreduce; i++) {
        arf_sample sample = samples->sample[i];
        if (sample.plan.protocol != ARF_BT)
            continue;
        sample.pattern = ARF_FINALIZE;
        sample.plan.tuning = arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, ARF_BT, ARF_FINALIZE));
        assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
    }
    arf_profile *profile = NULL;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_fit_profile(samples, &defaults, &profile, &error), ARFUSE_OK);
    assert_int_equal(profile->routes[ARF_ALLREDUCE].count, 2);
    assert_int_equal(profile->routes[ARF_FINALIZE].count, 1);
    assert_int_equal(profile->evidence.route_count[ARF_ALLREDUCE], 2);
    assert_int_equal(profile->evidence.method, ARF_MEASURED);
    assert_int_equal(profile->evidence.policy, ARF_DECODE);
    assert_string_equal(profile->evidence.tool, "arfuse 0.1.0");
    assert_int_equal(profile->numerics, ARF_FIXED);
    assert_int_equal(profile->shape.hidden_size, 6144);
    arf_profile_free(profile);
    arf_samples_free(samples);
}

/* A separate finalize was timed with the allreduce plan behind it; where that one is wrong, the
 * time is worth nothing. */
static void test_separate_and_its_follower(void **state)
{
    (void)state;
    arf_samples *samples = samples_empty();
    arf_plan ll = samples_plan(ARF_LL, 0);
    arf_plan separate = {.protocol = ARF_SEPARATE};
    separate.tuning = arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, ARF_SEPARATE, ARF_FINALIZE));
    arf_plan fused = {.protocol = ARF_HT};
    fused.tuning = arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, ARF_HT, ARF_FINALIZE));
    for (int i = 0; i < 2 * POINTS; i++) {
        bool is_separate = i >= POINTS;
        double us[] = {is_separate ? 7.0 : 9.0, is_separate ? 7.0 : 9.0};
        arf_sample sample = {.pattern = ARF_FINALIZE,
                             .tokens = ladder[i % POINTS],
                             .plan = is_separate ? separate : fused,
                             .has_then = is_separate,
                             .outcome = ARF_SAMPLE_TIMED,
                             .rounds = 2,
                             .us = us};
        if (is_separate)
            sample.then = ll;
        assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
    }
    arf_fit_result result;
    assert_int_equal(arf_fit(samples, ARF_FINALIZE, &defaults, &result, NULL), ARFUSE_OK);
    assert_int_equal(result.routes.count, 1);
    assert_int_equal(result.routes.route[0].plan.protocol, ARF_SEPARATE);
    assert_string_equal(result.evidence[0].runner_up, "ht");
    assert_true(fabs(result.evidence[0].margin - (9.0 / 7.0 - 1.0)) < 1e-12);
    add_outcome(samples, 4, &ll, ARF_SAMPLE_WRONG);
    assert_int_equal(arf_fit(samples, ARF_FINALIZE, &defaults, &result, NULL), ARFUSE_OK);
    assert_int_equal(result.routes.route[0].plan.protocol, ARF_HT);
    arf_samples_free(samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crossing_lies_between_its_points),
        cmocka_unit_test(test_refining_makes_it_exact),
        cmocka_unit_test(test_what_differs_from_run_to_run_is_in_the_interval),
        cmocka_unit_test(test_who_has_lost_on_both_sides_has_lost_between),
        cmocka_unit_test(test_same_answer_in_any_order),
        cmocka_unit_test(test_noise_makes_no_islands),
        cmocka_unit_test(test_steps_between_the_points_are_found),
        cmocka_unit_test(test_only_close_rivals_are_doubted),
        cmocka_unit_test(test_a_route_has_its_price),
        cmocka_unit_test(test_ties_go_to_the_fallback_tuning),
        cmocka_unit_test(test_wide_noise_excuses_nothing),
        cmocka_unit_test(test_dropped_candidate_is_not_extrapolated),
        cmocka_unit_test(test_gap_is_bridged),
        cmocka_unit_test(test_failure_cuts_a_candidate),
        cmocka_unit_test(test_no_way_past_a_failure),
        cmocka_unit_test(test_wrong_candidate_is_out),
        cmocka_unit_test(test_weaker_numerics_need_leave),
        cmocka_unit_test(test_nan_never_enters),
        cmocka_unit_test(test_nothing_to_fit_is_an_error),
        cmocka_unit_test(test_one_point),
        cmocka_unit_test(test_weights_decide_what_a_route_is_worth),
        cmocka_unit_test(test_later_sample_counts),
        cmocka_unit_test(test_profile_of_both_patterns),
        cmocka_unit_test(test_separate_and_its_follower),
    };
    return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
