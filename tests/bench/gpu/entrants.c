/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/entrants.h"

#include <string.h>

#include "rules/knobs.h"

/* Of a protocol at each token count of the samples, and of the seeds. */
enum { FASTEST = 3, FIRST_SEEDS = 16 };

static void add(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
                entrants *all)
{
    arf_plans *plans = &all->of[pattern][plan->protocol];
    if (plan->tuning_null || plan->numerics != ARF_FIXED || plans->count >= ARF_MAX_CANDIDATES ||
        !arf_legal(problem, pattern, plan, NULL))
        return;
    for (int i = 0; i < plans->count; i++)
        if (arf_plan_equal(problem->set, pattern, &plans->plan[i], plan))
            return;
    plans->plan[plans->count++] = *plan;
    all->count++;
}

static void add_routes(const arf_problem *problem, arf_pattern pattern, const arf_routes *routes,
                       entrants *all)
{
    for (int i = 0; i < routes->count; i++)
        add(problem, pattern, &routes->route[i].plan, all);
}

/* True when it is among the fastest of its protocol at its token count. */
static bool is_fast(const arf_samples *samples, const arf_sample *sample)
{
    const double us = arf_sample_median(sample);
    int ahead = 0;
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *other = &samples->sample[i];
        ahead += other->pattern == sample->pattern && other->tokens == sample->tokens &&
                 other->outcome == ARF_SAMPLE_TIMED &&
                 other->plan.protocol == sample->plan.protocol && arf_sample_median(other) < us;
    }
    return ahead < FASTEST;
}

static void add_sampled(const arf_problem *problem, const arf_samples *samples, entrants *all)
{
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *sample = &samples->sample[i];
        if (sample->outcome == ARF_SAMPLE_TIMED && is_fast(samples, sample))
            add(problem, sample->pattern, &sample->plan, all);
    }
}

static void add_seeds(const arf_problem *problem, arf_pattern pattern, arf_protocol protocol,
                      entrants *all)
{
    static arf_plans seeds;
    if (!arf_knobs(problem->set, protocol, pattern)->supported)
        return;
    arf_seeds(problem, pattern, protocol, &seeds);
    for (int i = 0; i < seeds.count && i < FIRST_SEEDS; i++)
        add(problem, pattern, &seeds.plan[i], all);
}

/* A protocol is tried as far as a sweep would, and at least as far as it is a route. */
static void set_limits(const arf_problem *problem, arf_pattern pattern, const arf_routes *routes,
                       int64_t most, entrants *all)
{
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        int64_t *limit = &all->limit[pattern][p];
        if (all->of[pattern][p].count == 0)
            continue;
        *limit = arf_sweep_limit(problem, pattern, (arf_protocol)p);
        for (int i = 0; i < routes->count; i++)
            if (routes->route[i].plan.protocol == (arf_protocol)p &&
                *limit < routes->route[i].max_tokens)
                *limit = routes->route[i].max_tokens;
        *limit = *limit < most ? *limit : most;
    }
}

void entrants_make(const arf_problem *problem, const arf_side *routed, const arf_samples *samples,
                   int64_t most, entrants *all)
{
    static arf_routes standard;
    memset(all, 0, sizeof *all);
    if (samples != NULL)
        add_sampled(problem, samples, all);
    for (int p = 0; p < ARF_PATTERNS; p++) {
        const arf_pattern pattern = (arf_pattern)p;
        if (pattern == ARF_FINALIZE && problem->shape.top_k == 0)
            continue;
        for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
            if (all->of[p][protocol].count == 0) /* no sample knows it */
                add_seeds(problem, pattern, (arf_protocol)protocol, all);
        add_routes(problem, pattern, &routed->routes[p], all);
        arf_default_routes(problem, pattern, most, &standard);
        add_routes(problem, pattern, &standard, all);
        set_limits(problem, pattern, &routed->routes[p], most, all);
    }
}
