/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/confirm.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "tune/interval.h"
#include "tune/share.h"
#include "tune/voice.h"

/* The reference of so many tokens (H=8192, 8 ranks, top-k 10) takes about a second. */
#define CONFIRM_TOKENS 1024

/* ---- bits ---------------------------------------------------------------------------------------
 */

/* The allreduce plan that a separate finalize of these routes ends in. */
static const arf_plan *behind(const arf_plan *plan, const arf_routes *allreduce, int64_t tokens)
{
    const int at = arf_route_of(allreduce, tokens);
    return plan->protocol == ARF_SEPARATE && at >= 0 ? &allreduce->route[at].plan : NULL;
}

arf_run arf_route_run(const arf_profile *profile, arf_pattern pattern, int64_t tokens)
{
    const arf_routes *routes = &profile->routes[pattern];
    const arf_plan *plan = &routes->route[arf_route_of(routes, tokens)].plan;
    return (arf_run){.pattern = pattern,
                     .plan = plan,
                     .then = behind(plan, &profile->routes[ARF_ALLREDUCE], tokens),
                     .tokens = tokens};
}

static arfuse_status expel(arf_store *store, arf_pattern pattern, const arf_route *route,
                           int64_t tokens, const arf_error *why, arf_sweep *sweep, arf_error *error)
{
    const bool wrong = why->status == ARFUSE_WRONG_RESULT;
    arf_sample sample = {.pattern = pattern,
                         .tokens = tokens,
                         .plan = route->plan,
                         .outcome = wrong ? ARF_SAMPLE_WRONG : ARF_SAMPLE_FAILED};
    char plan[384];
    arf_plan_text(store->samples->header.set, pattern, &route->plan, plan, sizeof plan);
    snprintf(sample.reason, sizeof sample.reason, "%.*s", (int)sizeof sample.reason - 1, why->text);
    sweep->wrong += wrong;
    sweep->failed += !wrong;
    arf_voice_warn("%s %s %s at %" PRId64 " token%s and is left out: %s", arf_pattern_name(pattern),
                   plan, wrong ? "gives wrong results" : "does not run", tokens, ARF_PLURAL(tokens),
                   why->text);
    return arf_store_add(store, &sample, 1, error);
}

/* One pass over a pattern's routes; *right: none had to go. */
static arfuse_status confirm_routes(arf_bench *bench, arf_store *store, arf_pattern pattern,
                                    const arf_routes *routes, const arf_routes *allreduce,
                                    arf_sweep *sweep, bool *right, arf_error *error)
{
    *right = true;
    for (int i = 0; i < routes->count && *right; i++) {
        const arf_route *route = &routes->route[i];
        int64_t tokens = route->max_tokens;
        const int64_t room = bench->spec.capacity[route->plan.protocol];
        tokens = tokens < CONFIRM_TOKENS ? tokens : CONFIRM_TOKENS;
        tokens = tokens < room ? tokens : room; /* a bound may lie between two measured points */
        const arf_run run = {.pattern = pattern,
                             .plan = &route->plan,
                             .then = behind(&route->plan, allreduce, tokens),
                             .tokens = tokens};
        if (route->plan.protocol == ARF_SEPARATE && run.then == NULL)
            continue; /* no allreduce route yet: the profile will not be whole, which is said */
        arf_error own = ARF_ERROR_INIT;
        bool fatal;
        arfuse_status status = arf_bench_confirm(bench, &run, &fatal, &own);
        if (fatal)
            return arf_fail(error, own.status, "%s", own.text);
        if (status == ARFUSE_OK)
            continue;
        *right = false;
        ARF_TRY(expel(store, pattern, route, tokens, &own, sweep, error));
    }
    return ARFUSE_OK;
}

arfuse_status arf_confirm(arf_bench *bench, arf_store *store, const arf_fit_options *fit,
                          arf_sweep *sweep, arf_error *error)
{
    static arf_fit_result result[ARF_PATTERNS];
    for (int p = 0; p < ARF_PATTERNS; p++) {
        bool right = false, routes;
        /* Each turn takes one plan out, so it ends. */
        while (!right) {
            result[p].routes.count = 0;
            arfuse_status status = arf_fit(store->samples, (arf_pattern)p, fit, &result[p], error);
            ARF_TRY(arf_share_fit(bench->tuner, status, &routes, error));
            if (!routes) {
                result[p].routes.count = 0;
                break;
            }
            ARF_TRY(confirm_routes(bench, store, (arf_pattern)p, &result[p].routes,
                                   &result[ARF_ALLREDUCE].routes, sweep, &right, error));
        }
    }
    return ARFUSE_OK;
}

/* ---- policies
 * ------------------------------------------------------------------------------------ */

#define SHIFT_ROUNDS 9
#define SHIFT_LEAST 3                /* a median of fewer says nothing */
#define SHIFT_SECONDS 0.05           /* of one timing with all that goes on around its calls */
#define SHIFT_US 2000.0              /* of one timing */
#define FIRST_ROUND INT64_C(2000000) /* far from those of points and anchors */

/* Calls of a timing: as long as usual, unless what goes on around the calls of a cold cache (it is
 * not in their time) takes far longer than they do. */
static arfuse_status choose_calls(arf_bench *bench, const arf_run *run, int *calls, bool *ran,
                                  arf_error *error)
{
    arf_run cold = *run;
    double warm_us = 0, unused = 0, before, after;
    bool fatal;
    arf_error own = ARF_ERROR_INIT;
    cold.other_policy = true;
    arfuse_status status = arf_bench_time(bench, run, 2, FIRST_ROUND, &warm_us, &fatal, &own);
    ARF_TRY(arf_tuner_seconds(bench->tuner, &before, error));
    if (status == ARFUSE_OK)
        status = arf_bench_time(bench, &cold, 2, FIRST_ROUND, &unused, &fatal, &own);
    ARF_TRY(arf_tuner_seconds(bench->tuner, &after, error));
    *ran = status == ARFUSE_OK;
    if (!*ran)
        return fatal ? arf_fail(error, own.status, "%s", own.text) : ARFUSE_OK;
    double most = fmin(SHIFT_US / warm_us, SHIFT_SECONDS * 2 / fmax(after - before, 1e-9));
    *calls = most < 1 ? 1 : most > 512 ? 512 : (int)most;
    return ARFUSE_OK;
}

/* Both policies by turns; NaN where a timing failed or time was out before it said anything. */
static arfuse_status time_both(arf_bench *bench, const arf_run *run, double deadline,
                               double median[2], arf_error *error)
{
    double us[2][SHIFT_ROUNDS], seconds;
    int calls = 1, rounds = 0;
    bool ran, fatal = false;
    arf_error own = ARF_ERROR_INIT;
    median[0] = median[1] = NAN;
    ARF_TRY(choose_calls(bench, run, &calls, &ran, error));
    while (ran && rounds < SHIFT_ROUNDS) {
        ARF_TRY(arf_tuner_seconds(bench->tuner, &seconds, error));
        if (seconds >= deadline)
            break;
        for (int other = 0; other < 2 && ran; other++) {
            arf_run turn = *run;
            turn.other_policy = other == 1;
            ran = arf_bench_time(bench, &turn, calls, FIRST_ROUND + 1 + rounds, &us[other][rounds],
                                 &fatal, &own) == ARFUSE_OK;
        }
        rounds += ran;
    }
    if (fatal)
        return arf_fail(error, own.status, "%s", own.text);
    if (!ran || rounds < SHIFT_LEAST)
        return ARFUSE_OK;
    median[0] = arf_median(us[0], rounds);
    median[1] = arf_median(us[1], rounds);
    return ARFUSE_OK;
}

static arf_policy other_than(arf_policy policy)
{
    return policy == ARF_WARM ? ARF_DECODE : ARF_WARM;
}

static void take_shift(const double us[2], arf_policy policy, int64_t tokens,
                       arf_route_evidence *evidence)
{
    evidence->shift_tokens = tokens;
    evidence->policy_us[policy] = arf_sample_round(us[0]);
    evidence->policy_us[other_than(policy)] = arf_sample_round(us[1]);
}

arfuse_status arf_shift(arf_bench *bench, arf_profile *profile, double deadline, arf_error *error)
{
    const arf_policy policy = bench->tuner->options->policy;
    /* On the host device the filler delays each rank by more than a call takes, by another amount:
     * what is left after taking it off is chance. */
    if (bench->tuner->key.link == ARF_LINK_SHM)
        return ARFUSE_OK;
    int left = profile->routes[ARF_ALLREDUCE].count + profile->routes[ARF_FINALIZE].count;
    for (int p = 0; p < ARF_PATTERNS; p++) {
        const arf_routes *routes = &profile->routes[p];
        for (int i = 0; i < routes->count; i++, left--) {
            const arf_route *route = &routes->route[i];
            const int64_t tokens =
                (int64_t)sqrt((double)arf_route_first(routes, i) * (double)route->max_tokens);
            const arf_run run = arf_route_run(profile, (arf_pattern)p, tokens);
            double seconds, us[2];
            ARF_TRY(arf_tuner_seconds(bench->tuner, &seconds, error));
            if (seconds > deadline) {
                arf_voice_note("the budget was spent: %d route%s not timed under both policies",
                               left, left == 1 ? " was" : "s were");
                return ARFUSE_OK;
            }
            ARF_TRY(time_both(bench, &run, seconds + (deadline - seconds) / left, us, error));
            if (!(us[0] > 0 && us[1] > 0)) /* NaN, or lost in the noise of the filler */
                continue;
            take_shift(us, policy, tokens, &profile->evidence.route[p][i]);
            arf_voice_note("%s %s of %" PRId64 " token%s: %s %.2f us, %s %.2f us (%+.1f %%)",
                           arf_pattern_name((arf_pattern)p),
                           arf_protocol_name(route->plan.protocol), tokens, ARF_PLURAL(tokens),
                           arf_policy_name(policy), us[0], arf_policy_name(other_than(policy)),
                           us[1], (us[1] / us[0] - 1) * 100);
        }
    }
    return ARFUSE_OK;
}
