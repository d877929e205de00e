/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/sides.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profile/lookup.h"

arfuse_status arf_side_of_profile(const arf_tuner *tuner, const char *name,
                                  const arf_profile *profile, arf_side *side, arf_error *error)
{
    arf_profile_key key = {arf_device_set(tuner->device), profile->shape, tuner->key};
    char reason[ARF_REASON_TEXT];
    if (profile->shape.tp_size != tuner->team.tp_size)
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: is for %d ranks, and this team has %d; start %d processes, or add "
                        "--tp %d",
                        name, profile->shape.tp_size, tuner->team.tp_size, profile->shape.tp_size,
                        profile->shape.tp_size);
    if (!arf_profile_matches(profile, &key, reason))
        return arf_fail(error, ARFUSE_PROFILE, "%s: not for this team and device: %s", name,
                        reason);
    if (profile->numerics != ARF_FIXED && !tuner->options->any_numerics)
        return arf_fail(error, ARFUSE_USAGE,
                        "%s: has routes of numerics %s; add --numerics any to run them", name,
                        arf_numerics_name(profile->numerics));
    side->name = name;
    memcpy(side->routes, profile->routes, sizeof side->routes);
    return ARFUSE_OK;
}

arfuse_status arf_side_named(const char *name, const arf_problem *problem, int64_t most,
                             arf_side *side, arf_error *error)
{
    side->name = name;
    memset(side->routes, 0, sizeof side->routes);
    const int patterns = problem->shape.top_k > 0 ? ARF_PATTERNS : 1;
    arf_plans *seeds = malloc(sizeof *seeds);
    if (seeds == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the routes of %s", name);
    for (int p = 0; p < patterns; p++) {
        arf_routes *routes = &side->routes[p];
        if (strcmp(name, "default") == 0) {
            arf_default_routes(problem, (arf_pattern)p, most, routes);
            continue;
        }
        arf_seeds(problem, (arf_pattern)p, ARF_UNFUSED, seeds);
        if (seeds->count > 0)
            *routes = (arf_routes){.count = 1, .min_tokens = 1, .route = {{most, seeds->plan[0]}}};
    }
    free(seeds);
    return ARFUSE_OK;
}

bool arf_side_lane(const arf_side *side, arf_pattern pattern, int64_t tokens, arf_lane *lane)
{
    const arf_routes *routes = &side->routes[pattern];
    const int at = arf_route_of(routes, tokens);
    if (at < 0 || routes->route[at].plan.tuning_null)
        return false;
    lane->plan = &routes->route[at].plan;
    lane->then = NULL;
    if (lane->plan->protocol != ARF_SEPARATE)
        return true;
    const arf_routes *behind = &side->routes[ARF_ALLREDUCE];
    const int next = arf_route_of(behind, tokens);
    if (next < 0)
        return false;
    lane->then = &behind->route[next].plan;
    return true;
}

arfuse_status arf_sides_bench(const arf_tuner *tuner, const arf_problem *problem,
                              const arf_tokens *tokens, const arf_side *side, int sides,
                              arf_bench *bench, arf_error *error)
{
    arf_schedule *schedule = calloc(1, sizeof *schedule);
    if (schedule == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the points");
    schedule->problem = *problem;
    schedule->tokens = *tokens;
    for (int i = 0; i < sides; i++)
        for (int p = 0; p < ARF_PATTERNS; p++)
            for (int t = 0; t < tokens->count; t++) {
                arf_lane lane;
                if (arf_side_lane(&side[i], (arf_pattern)p, tokens->value[t], &lane) &&
                    schedule->capacity[lane.plan->protocol] < tokens->value[t])
                    schedule->capacity[lane.plan->protocol] = tokens->value[t];
            }
    arfuse_status status = arf_bench_open(tuner, schedule, bench, error);
    free(schedule);
    return status;
}

arfuse_status arf_sides_verify(arf_bench *bench, arf_pattern pattern, int64_t tokens,
                               const arf_lane *lane, arf_error *error)
{
    const int64_t most =
        bench->most_tokens < ARF_VERIFY_TOKENS ? bench->most_tokens : ARF_VERIFY_TOKENS;
    const arf_run run = {.pattern = pattern,
                         .plan = lane->plan,
                         .then = lane->then,
                         .tokens = tokens < most ? tokens : most};
    for (int kind = 0; kind < ARF_TRIAL_KINDS; kind++) {
        bool fatal;
        arfuse_status status = arf_bench_verify(bench, &run, (arf_trial_kind)kind, &fatal, error);
        if (status != ARFUSE_OK) {
            char plan[384];
            arf_plan_text(bench->set, pattern, lane->plan, plan, sizeof plan);
            arf_error_prefix(error, "%s %s", arf_pattern_name(pattern), plan);
            return status;
        }
    }
    return ARFUSE_OK;
}

arf_ratio arf_lane_ratio(const arf_lane *a, const arf_lane *b)
{
    double ratio[ARF_MAX_ROUNDS];
    const int rounds = a->rounds < b->rounds ? a->rounds : b->rounds;
    if (a->status != ARFUSE_OK || b->status != ARFUSE_OK || rounds == 0)
        return (arf_ratio){NAN, NAN, NAN};
    for (int i = 0; i < rounds; i++)
        ratio[i] = a->us[i] / b->us[i];
    arf_ratio result = {.median = arf_median(ratio, rounds)};
    arf_median_interval(ratio, rounds, &result.low, &result.high);
    return result;
}
