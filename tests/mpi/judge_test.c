/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges a profile that was tuned on the model device by the times which the model knows:
 *
 *     judge_test SPEC PROFILE
 *
 * prints a line for each pattern:
 *
 *     PATTERN routes N geomean X worst Y at M bounds N right N
 *
 * X and Y are regret, as fractions, against the best of everything that a search may try (seeds and
 * their one-knob neighbours), weighted by octave, over 1 .. the last bound. A bound is right within
 * 5 % of the true crossing of its two plans, or when that lies in the stated interval.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/model/truth.h"
#include "profile/read.h"
#include "rules/candidates.h"
#include "rules/knobs.h"

typedef struct truth_judge {
    arf_model model;
    arf_problem problem;
    const arf_profile *profile;
    int count[ARF_PATTERNS];
    arf_plan *plan[ARF_PATTERNS];
} truth_judge;

static void out_of_memory(void)
{
    fputs("judge_test: out of memory\n", stderr);
    exit(1);
}

static void add_plans(truth_judge *judge, arf_pattern pattern, const arf_plans *plans)
{
    int count = judge->count[pattern] + plans->count;
    arf_plan *grown = realloc(judge->plan[pattern], (size_t)(count + 1) * sizeof *grown);
    if (grown == NULL)
        out_of_memory();
    judge->plan[pattern] = grown;
    for (int i = 0; i < plans->count; i++)
        grown[judge->count[pattern]++] = plans->plan[i];
}

static void raise_candidates(truth_judge *judge, arf_pattern pattern)
{
    arf_plans *seeds = malloc(sizeof *seeds), *near = malloc(sizeof *near);
    if (seeds == NULL || near == NULL)
        out_of_memory();
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++) {
        if (!arf_knobs(judge->problem.set, (arf_protocol)protocol, pattern)->supported)
            continue;
        arf_seeds(&judge->problem, pattern, (arf_protocol)protocol, seeds);
        add_plans(judge, pattern, seeds);
        for (int i = 0; i < seeds->count; i++) {
            arf_neighbours(&judge->problem, pattern, &seeds->plan[i], near);
            add_plans(judge, pattern, near);
        }
    }
    free(seeds);
    free(near);
}

static double time_of(const truth_judge *judge, arf_pattern pattern, const arf_plan *plan,
                      const arf_plan *then, int64_t tokens)
{
    return arf_model_time(&judge->model, &judge->profile->shape, judge->profile->evidence.policy,
                          pattern, plan, then, tokens);
}

static double best_of(const truth_judge *judge, arf_pattern pattern, int64_t tokens)
{
    double best = INFINITY;
    double behind = pattern == ARF_FINALIZE ? best_of(judge, ARF_ALLREDUCE, tokens) : 0.0;
    for (int i = 0; i < judge->count[pattern]; i++) {
        const arf_plan *plan = &judge->plan[pattern][i];
        if (tokens > arf_sweep_limit(&judge->problem, pattern, plan->protocol))
            continue;
        double us = time_of(judge, pattern, plan, NULL, tokens);
        if (plan->protocol == ARF_SEPARATE)
            us += behind;
        best = fmin(best, us);
    }
    return best;
}

static double route_time(const truth_judge *judge, arf_pattern pattern, int index, int64_t tokens)
{
    const arf_plan *plan = &judge->profile->routes[pattern].route[index].plan, *then = NULL;
    if (plan->protocol == ARF_SEPARATE) {
        const arf_routes *routes = &judge->profile->routes[ARF_ALLREDUCE];
        int behind = arf_route_of(routes, tokens);
        if (behind < 0)
            return INFINITY;
        then = &routes->route[behind].plan;
    }
    return time_of(judge, pattern, plan, then, tokens);
}

/* The last M of both routes' ranges at which the left one is the faster in truth. */
static int64_t true_bound(const truth_judge *judge, arf_pattern pattern, int index)
{
    const arf_routes *routes = &judge->profile->routes[pattern];
    int64_t low = index > 0 ? routes->route[index - 1].max_tokens + 1 : 1, bound = low - 1;
    for (int64_t tokens = low; tokens <= routes->route[index + 1].max_tokens; tokens++)
        if (route_time(judge, pattern, index, tokens) <=
            route_time(judge, pattern, index + 1, tokens))
            bound = tokens;
    return bound;
}

static void judge_pattern(truth_judge *judge, arf_pattern pattern)
{
    const arf_routes *routes = &judge->profile->routes[pattern];
    if (routes->count == 0)
        return;
    int64_t last = routes->route[routes->count - 1].max_tokens, worst_at = 0, next;
    double sum = 0.0, weights = 0.0, worst = -1.0;
    for (int64_t tokens = 1; tokens <= last; tokens = next) {
        next = tokens < 128 ? tokens + 1 : tokens + tokens / 64;
        double weight = log2((double)next / (double)tokens);
        double regret = log(route_time(judge, pattern, arf_route_of(routes, tokens), tokens) /
                            best_of(judge, pattern, tokens));
        sum += weight * regret;
        weights += weight;
        if (regret > worst) {
            worst = regret;
            worst_at = tokens;
        }
    }
    int right = 0;
    for (int i = 0; i + 1 < routes->count; i++) {
        int64_t bound = routes->route[i].max_tokens, truth = true_bound(judge, pattern, i);
        const arf_route_evidence *evidence = &judge->profile->evidence.route[pattern][i];
        bool close = llabs(bound - truth) <= 0.05 * (double)truth;
        right += close || (evidence->bound_low <= truth && truth <= evidence->bound_high);
    }
    printf("%s routes %d geomean %.5f worst %.5f at %lld bounds %d right %d\n",
           arf_pattern_name(pattern), routes->count, expm1(sum / weights), expm1(worst),
           (long long)worst_at, routes->count - 1, right);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: judge_test SPEC PROFILE\n", stderr);
        return 2;
    }
    truth_judge judge = {0};
    arf_profile *profile = NULL;
    arf_error error = ARF_ERROR_INIT;
    if (arf_model_load(argv[1], &judge.model, &error) != ARFUSE_OK ||
        arf_profile_load(argv[2], &profile, &error) != ARFUSE_OK) {
        fprintf(stderr, "judge_test: %s\n", error.text);
        return (int)error.status;
    }
    judge.profile = profile;
    judge.problem = arf_profile_problem(profile);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        raise_candidates(&judge, (arf_pattern)pattern);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        judge_pattern(&judge, (arf_pattern)pattern);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        free(judge.plan[pattern]); /* a separate finalize is judged with the allreduce behind it */
    arf_profile_free(profile);
    return 0;
}
