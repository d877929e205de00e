/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fit against a truth that is known: samples drawn from the model device's
 * curves with noise on every rank, refined where the fit asks, then judged at every
 * M by the noise-free times. Ten seeds; ARFUSE_TEST_LONG=1 takes a hundred.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/model/truth.h"
#include "fit/fit.h"
#include "rules/knobs.h"

#define RANKS 8
#define ROUNDS 15
#define LAST 8192

static const arf_shape shape = {RANKS, 6144, 10, ARF_ON, ARF_ON, ARF_ON};

typedef struct race {
    arf_model model;
    arf_pattern pattern;
    int count;
    arf_plan plan[64];
    int64_t limit[64]; /* largest M at which a plan is measured */
    arf_samples *samples;
} race;

/* Every protocol with its fallback tuning and some one-knob neighbours. */
static void raise_candidates(race *field)
{
    static const struct {
        arf_protocol protocol;
        int64_t limit;
        int variants;
    } kinds[] = {{ARF_LL, 64, 6}, {ARF_BT, 2048, 6}, {ARF_HT, LAST, 6}, {ARF_UNFUSED, LAST, 0}};
    field->count = 0;
    for (int k = 0; k < 4; k++) {
        const arf_knob_table *table = arf_knobs(ARF_SET_ARFUSE, kinds[k].protocol, field->pattern);
        arf_plan plan = {.protocol = kinds[k].protocol, .tuning = arf_tuning_fallback(table)};
        int made = 0;
        field->limit[field->count] = kinds[k].limit;
        field->plan[field->count++] = plan;
        for (int i = 0; i < table->count && made < kinds[k].variants; i++) {
            const int32_t *step = table->knob[i].ladder;
            for (; step != NULL && *step >= 0 && made < kinds[k].variants; step++) {
                if (*step == table->knob[i].fallback || step[1] < 0)
                    continue;
                field->limit[field->count] = kinds[k].limit;
                field->plan[field->count] = plan;
                field->plan[field->count++].tuning.value[i] = *step;
                made++;
            }
        }
    }
}

static double truth(const race *field, int candidate, int64_t tokens)
{
    return arf_model_time(&field->model, &shape, ARF_WARM, field->pattern, &field->plan[candidate],
                          NULL, tokens);
}

static void measure(race *field, int64_t tokens)
{
    for (int c = 0; c < field->count; c++) {
        if (tokens > field->limit[c])
            continue;
        double us[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            us[round] = 0.0;
            for (int rank = 0; rank < RANKS; rank++)
                us[round] =
                    fmax(us[round], arf_model_noisy(&field->model, &shape, ARF_WARM, field->pattern,
                                                    &field->plan[c], NULL, tokens, rank, round));
        }
        arf_sample sample = {.pattern = field->pattern,
                             .tokens = tokens,
                             .plan = field->plan[c],
                             .outcome = ARF_SAMPLE_TIMED,
                             .calls = 20,
                             .rounds = ROUNDS,
                             .us = us};
        assert_int_equal(arf_samples_add(field->samples, &sample, NULL), ARFUSE_OK);
    }
}

static arf_fit_result tune(race *field, const arf_fit_options *options)
{
    arf_samples_header header;
    memset(&header, 0, sizeof header);
    header.set = ARF_SET_ARFUSE;
    header.shape = shape;
    field->samples = arf_samples_new(&header);
    assert_non_null(field->samples);
    for (int64_t tokens = 1; tokens <= LAST; tokens *= 2)
        measure(field, tokens);
    for (int turn = 0; turn < 40; turn++) {
        int64_t wanted[32];
        int count;
        assert_int_equal(
            arf_fit_wanted(field->samples, field->pattern, options, wanted, 32, &count, NULL),
            ARFUSE_OK);
        for (int i = 0; i < count; i++)
            measure(field, wanted[i]);
        if (count == 0) {
            arf_fit_result result;
            assert_int_equal(arf_fit(field->samples, field->pattern, options, &result, NULL),
                             ARFUSE_OK);
            arf_samples_free(field->samples);
            return result;
        }
    }
    fail_msg("the fit asks for more points without end");
    abort();
}

static double route_truth(const race *field, const arf_route *route, int64_t tokens)
{
    return arf_model_time(&field->model, &shape, ARF_WARM, field->pattern, &route->plan, NULL,
                          tokens);
}

typedef struct verdict {
    int routes, bounds, bounds_good;
    double geomean, worst;
} verdict;

/* The last M at which the left of two neighbouring routes is the faster, in truth, inside their
 * range. */
static int64_t true_bound(const race *field, const arf_routes *routes, int index)
{
    int64_t low = index > 0 ? routes->route[index - 1].max_tokens + 1 : 1;
    int64_t high = routes->route[index + 1].max_tokens, bound = low;
    for (int64_t tokens = low; tokens <= high; tokens++)
        if (route_truth(field, &routes->route[index], tokens) <=
            route_truth(field, &routes->route[index + 1], tokens))
            bound = tokens;
    return bound;
}

static verdict judge(const race *field, const arf_fit_result *result)
{
    verdict judgement = {.routes = result->routes.count};
    double sum = 0.0, weights = 0.0;
    for (int64_t tokens = 1; tokens <= LAST; tokens++) {
        int index = arf_route_of(&result->routes, tokens);
        assert_true(index >= 0);
        double best = INFINITY;
        for (int c = 0; c < field->count; c++)
            if (tokens <= field->limit[c])
                best = fmin(best, truth(field, c, tokens));
        double regret = log(route_truth(field, &result->routes.route[index], tokens) / best);
        double weight = log2((double)(tokens + 1) / (double)tokens);
        sum += weight * fmax(0.0, regret);
        weights += weight;
        judgement.worst = fmax(judgement.worst, regret);
    }
    judgement.geomean = sum / weights;
    for (int i = 0; i + 1 < result->routes.count; i++) {
        int64_t expected = true_bound(field, &result->routes, i);
        int64_t bound = result->routes.route[i].max_tokens;
        bool close = llabs(bound - expected) <= 0.05 * (double)expected;
        bool inside =
            result->evidence[i].bound_low <= expected && expected <= result->evidence[i].bound_high;
        judgement.bounds++;
        judgement.bounds_good += close || inside;
    }
    return judgement;
}

static void run(double noise, int seeds, double allowed_geomean, double allowed_worst)
{
    const arf_fit_options options = ARF_FIT_OPTIONS_INIT;
    race *field = calloc(1, sizeof *field);
    assert_non_null(field);
    verdict all = {0};
    for (int seed = 1; seed <= seeds; seed++) {
        for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
            arf_model_default(&field->model);
            field->model.noise = noise;
            field->model.seed = (uint64_t)seed;
            field->pattern = (arf_pattern)pattern;
            raise_candidates(field);
            arf_fit_result result = tune(field, &options);
            verdict one = judge(field, &result);
            if (getenv("ARFUSE_TEST_VERBOSE") != NULL)
                print_message("seed %d %s: %d routes, regret %.4f%% worst %.3f%%, bounds %d/%d\n",
                              seed, arf_pattern_name(field->pattern), one.routes, 100 * one.geomean,
                              100 * one.worst, one.bounds_good, one.bounds);
            if (one.routes > 4 || one.geomean > allowed_geomean || one.worst > allowed_worst)
                fail_msg("noise %g, seed %d, %s: %d routes, regret %.4f (allowed %.4f), worst "
                         "%.4f (allowed %.4f)",
                         noise, seed, arf_pattern_name(field->pattern), one.routes, one.geomean,
                         allowed_geomean, one.worst, allowed_worst);
            all.bounds += one.bounds;
            all.bounds_good += one.bounds_good;
            all.geomean += one.geomean / (2.0 * seeds);
            all.worst = fmax(all.worst, one.worst);
        }
    }
    print_message("# seen: noise %g: mean regret %.4f %%, worst %.3f %%, %d of %d bounds right\n",
                  noise, 100.0 * all.geomean, 100.0 * all.worst, all.bounds_good, all.bounds);
    assert_true(all.bounds > 0 && all.bounds_good >= 0.95 * all.bounds);
    free(field);
}

static int seed_count(void)
{
    return getenv("ARFUSE_TEST_LONG") != NULL ? 100 : 10;
}

/* The promise: at 1 % noise a rank, 0.3 % geometric mean and 2 % worst, with at most four routes.
 */
static void test_regret_at_one_percent(void **state)
{
    (void)state;
    run(0.01, seed_count(), 0.003, 0.02);
}

static void test_regret_at_half_a_percent(void **state)
{
    (void)state;
    run(0.005, seed_count(), 0.003, 0.02);
}

/* Five times the noise: what the promise scales to. */
static void test_regret_at_five_percent(void **state)
{
    (void)state;
    run(0.05, seed_count(), 0.015, 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regret_at_one_percent),
        cmocka_unit_test(test_regret_at_half_a_percent),
        cmocka_unit_test(test_regret_at_five_percent),
    };
    return cmocka_run_group_tests_name("regret", tests, NULL, NULL);
}
