/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every fit keeps, on samples made at random: with gaps, failures, wrong candidates, rounds
 * that are no numbers, plans of several numerics, ties to the last bit.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "fit/fit.h"
#include "profile/read.h"
#include "profile/write.h"
#include "rules/candidates.h"
#include "rules/knobs.h"

static const arf_problem problem = {
    .set = ARF_SET_ARFUSE, .shape = {8, 6144, 10, ARF_ON, ARF_ON, ARF_ON}, .sm_count = 148};

static int below(uint64_t *seed, int limit)
{
    return (int)(arf_random_next(seed) % (uint64_t)limit);
}

static arf_samples *empty(void)
{
    arf_samples_header header;
    memset(&header, 0, sizeof header);
    header.set = problem.set;
    header.shape = problem.shape;
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
        header.version[protocol] = arf_protocol_version(problem.set, (arf_protocol)protocol);
    strcpy(header.device.name, "model");
    header.device.sm_count = problem.sm_count;
    header.device.link = ARF_LINK_MODEL;
    header.device.nodes = header.device.ranks_per_gpu = 1;
    strcpy(header.tool, "test");
    arf_samples *samples = arf_samples_new(&header);
    assert_non_null(samples);
    return samples;
}

static double random_round(uint64_t *seed, double us)
{
    static const double bad[] = {NAN, INFINITY, 0.0, -1.0};
    if (below(seed, 60) == 0)
        return bad[below(seed, 4)];
    return us * exp(0.02 * arf_random_normal(seed));
}

/* One candidate over some token counts: a floor and a slope, with holes and accidents. */
static void add_candidate(arf_samples *samples, arf_pattern pattern, const arf_plan *plan,
                          const arf_plan *then, uint64_t *seed)
{
    double floor_us = 3.0 + below(seed, 10), slope = 0.01 * below(seed, 20);
    bool quantised = below(seed, 3) == 0; /* ties to the last bit */
    for (int64_t tokens = 1; tokens <= 4096; tokens += 1 + below(seed, (int)tokens + 1)) {
        if (below(seed, 4) == 0)
            continue;
        double us[ARF_MAX_ROUNDS];
        arf_sample sample = {.pattern = pattern,
                             .tokens = tokens,
                             .plan = *plan,
                             .has_then = then != NULL,
                             .calls = 10,
                             .rounds = 1 + below(seed, 12),
                             .us = us};
        if (then != NULL)
            sample.then = *then;
        int accident = below(seed, 80);
        sample.outcome = accident == 0   ? ARF_SAMPLE_WRONG
                         : accident <= 2 ? ARF_SAMPLE_FAILED
                                         : ARF_SAMPLE_TIMED;
        if (sample.outcome != ARF_SAMPLE_TIMED) {
            strcpy(sample.reason, "an accident");
            sample.rounds = 0;
        }
        for (int i = 0; i < sample.rounds; i++)
            us[i] = quantised ? 5.0 : random_round(seed, floor_us + slope * (double)tokens);
        assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
    }
}

static arf_samples *random_samples(uint64_t *seed)
{
    static arf_plans seeds;
    arf_samples *samples = empty();
    arf_plan last = {0};
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++) {
            if (protocol == ARF_SEPARATE && pattern == ARF_ALLREDUCE)
                continue;
            arf_seeds(&problem, (arf_pattern)pattern, (arf_protocol)protocol, &seeds);
            int count = below(seed, 4);
            for (int i = 0; i < count && i < seeds.count; i++) {
                arf_plan plan = seeds.plan[below(seed, seeds.count)];
                if (protocol == ARF_UNFUSED && below(seed, 2) == 0)
                    plan.numerics = ARF_LIBRARY;
                if (pattern == ARF_ALLREDUCE)
                    last = plan;
                add_candidate(samples, (arf_pattern)pattern, &plan,
                              protocol == ARF_SEPARATE ? &last : NULL, seed);
            }
        }
    }
    return samples;
}

static int64_t largest_timed(const arf_samples *samples, arf_pattern pattern, arf_numerics weakest)
{
    int64_t largest = 0;
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *sample = &samples->sample[i];
        if (sample->pattern == pattern && sample->outcome == ARF_SAMPLE_TIMED &&
            sample->plan.numerics <= weakest && sample->tokens > largest)
            largest = sample->tokens;
    }
    return largest;
}

static void check_route(const arf_samples *samples, arf_pattern pattern, const arf_plan *plan,
                        int64_t first, int64_t last, arf_numerics weakest)
{
    bool timed = false;
    assert_true(plan->numerics <= weakest);
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *sample = &samples->sample[i];
        if (sample->pattern != pattern ||
            !arf_plan_equal(problem.set, pattern, &sample->plan, plan))
            continue;
        assert_int_not_equal(sample->outcome, ARF_SAMPLE_WRONG);
        if (sample->tokens < first || sample->tokens > last)
            continue;
        if (sample->outcome == ARF_SAMPLE_FAILED)
            fail_msg("a route serves %d tokens, at which its plan failed", (int)sample->tokens);
        timed |= sample->outcome == ARF_SAMPLE_TIMED;
    }
    assert_true(timed);
}

static void check_fit(const arf_samples *samples, arf_pattern pattern,
                      const arf_fit_options *options)
{
    arf_fit_result result;
    arf_error error = ARF_ERROR_INIT;
    if (arf_fit(samples, pattern, options, &result, &error) != ARFUSE_OK) {
        assert_int_equal(error.status, ARFUSE_NOT_SERVED);
        assert_true(error.text[0] != '\0');
        return;
    }
    int64_t before = 0;
    assert_in_range(result.routes.count, 1, ARF_MAX_ROUTES);
    for (int i = 0; i < result.routes.count; i++) {
        const arf_route *route = &result.routes.route[i];
        const arf_route_evidence *evidence = &result.evidence[i];
        assert_true(route->max_tokens > before);
        if (i > 0)
            assert_false(arf_plan_equal(problem.set, pattern, &route->plan,
                                        &result.routes.route[i - 1].plan));
        check_route(samples, pattern, &route->plan, before + 1, route->max_tokens,
                    options->numerics);
        assert_true(evidence->bound_low <= route->max_tokens &&
                    route->max_tokens <= evidence->bound_high);
        before = route->max_tokens;
    }
    assert_true(before <= largest_timed(samples, pattern, options->numerics));
    assert_true(isfinite(result.regret_geomean) && result.regret_geomean >= 0.0);
    assert_true(isfinite(result.regret_max) && result.regret_max >= result.regret_geomean - 1e-12);
    assert_false(result.noise < 0.0);

    int64_t wanted[64];
    int count;
    assert_int_equal(arf_fit_wanted(samples, pattern, options, wanted, 64, &count, NULL),
                     ARFUSE_OK);
    assert_in_range(count, 0, 64);
    for (int i = 0; i < count; i++)
        assert_true(wanted[i] >= 1 && wanted[i] <= before);
}

static void test_what_every_fit_keeps(void **state)
{
    (void)state;
    int fits = getenv("ARFUSE_TEST_LONG") != NULL ? 4000 : 400;
    for (int turn = 0; turn < fits; turn++) {
        uint64_t seed = (uint64_t)turn;
        arf_samples *samples = random_samples(&seed);
        arf_fit_options options = ARF_FIT_OPTIONS_INIT;
        static const double prices[] = {0.0, 0.0005, 0.002, 0.02, 1.0};
        options.route_price = prices[below(&seed, 5)];
        options.numerics = below(&seed, 2) == 0 ? ARF_FIXED : ARF_LIBRARY;
        int64_t tokens[] = {1, 17, 300};
        double weight[] = {1.0, 10.0, 1.0};
        arf_weights weights = {3, tokens, weight};
        if (below(&seed, 4) == 0)
            options.weights = &weights;
        check_fit(samples, ARF_ALLREDUCE, &options);
        check_fit(samples, ARF_FINALIZE, &options);
        arf_samples_free(samples);
    }
}

/* A fitted profile is one that the writer takes, the reader gives back, and a second fit repeats.
 */
static void test_profiles_are_written_and_repeat(void **state)
{
    (void)state;
    const arf_fit_options options = {.route_price = 0.002, .numerics = ARF_LIBRARY, .seed = 1};
    int written = 0;
    for (int turn = 0; turn < 60; turn++) {
        uint64_t seed = (uint64_t)turn;
        arf_samples *samples = random_samples(&seed);
        arf_text first = {0};
        for (int again = 0; again < 2; again++) {
            arf_profile *profile = NULL;
            arf_error error = ARF_ERROR_INIT;
            if (arf_fit_profile(samples, &options, &profile, &error) != ARFUSE_OK)
                break;
            if (profile->routes[0].count == 0 || profile->routes[1].count == 0) {
                arf_profile_free(profile); /* one pattern alone is no measured profile */
                break;
            }
            arf_text text = {0};
            if (arf_profile_print(profile, &text, &error) != ARFUSE_OK)
                fail_msg("seed %d: %s", turn, error.text);
            arf_profile_free(profile);
            if (again == 0) {
                first = text;
                arf_profile *back = NULL;
                if (arf_profile_parse("fitted", text.data, text.bytes, &back, &error) != ARFUSE_OK)
                    fail_msg("seed %d: %s", turn, error.text);
                arf_profile_free(back);
                continue;
            }
            assert_string_equal(first.data, text.data);
            arf_text_free(&text);
            written++;
        }
        arf_text_free(&first);
        arf_samples_free(samples);
    }
    assert_true(written > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_every_fit_keeps),
        cmocka_unit_test(test_profiles_are_written_and_repeat),
    };
    return cmocka_run_group_tests_name("fit at random", tests, NULL, NULL);
}
