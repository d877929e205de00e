/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Neighbours, default routes and sweep limits; the seeds themselves are in seeds.c.
 */
#include "rules/candidates.h"

#include <string.h>

#include "rules/knobs.h"
#include "rules/seeds.h"

/* ---- neighbours ------------------------------------------------------------------------------ */

/* Steps from `value` to the next ladder values below and above. top_k is a step of its own for the
 * prefetch group: K rows at once is what most published presets do. */
static int steps_of(const arf_knob *knob, int32_t value, int top_k, int32_t step[2])
{
    int32_t below = -1, above = -1;
    bool prefetch = strcmp(knob->name, "prefetch_group") == 0;
    for (int i = prefetch && top_k > 0 ? -1 : 0; i < 0 || knob->ladder[i] != -1; i++) {
        int32_t at = i < 0 ? top_k : knob->ladder[i];
        if (prefetch && at > top_k)
            continue; /* legal, and only wastes registers */
        if (at < value && at > below)
            below = at;
        if (at > value && (above == -1 || at < above))
            above = at;
    }
    int count = 0;
    if (below != -1)
        step[count++] = below;
    if (above != -1)
        step[count++] = above;
    return count;
}

/* HT's tile is one axis with two knobs: a step of the threads alone would hardly ever divide the
 * token again, so the threads also step with threads x vectors kept. */
static void add_tile_steps(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
                           arf_plans *neighbours)
{
    const arf_knob_table *table = arf_knobs(problem->set, plan->protocol, pattern);
    int threads = arf_knob_index(table, "consumer_threads");
    int vectors = arf_knob_index(table, "vectors_per_thread");
    if (threads < 0)
        return;
    int32_t from = plan->tuning.value[threads];
    int32_t tile = from * plan->tuning.value[vectors];
    for (int direction = -1; direction <= 1; direction += 2) {
        int before = neighbours->count;
        for (int32_t to = from + 32 * direction;
             to >= 32 && to <= 1024 && neighbours->count == before; to += 32 * direction) {
            if (tile % to != 0)
                continue;
            arf_plan next = *plan;
            next.tuning.value[threads] = to;
            next.tuning.value[vectors] = tile / to;
            arf_plans_add(problem, pattern, &next, neighbours);
        }
    }
}

void arf_neighbours(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
                    arf_plans *neighbours)
{
    const arf_knob_table *table = arf_knobs(problem->set, plan->protocol, pattern);
    neighbours->count = 0;
    if (plan->tuning_null)
        return;
    for (int i = 0; i < table->count; i++) {
        const arf_knob *knob = &table->knob[i];
        if (!knob->ladder || !arf_knob_read(table, &plan->tuning, i))
            continue;
        int32_t step[2];
        int steps = steps_of(knob, plan->tuning.value[i], problem->shape.top_k, step);
        for (int s = 0; s < steps; s++) {
            arf_plan next = *plan;
            next.tuning.value[i] = step[s];
            arf_plans_add(problem, pattern, &next, neighbours);
        }
    }
    add_tile_steps(problem, pattern, plan, neighbours);
}

/* ---- default routes -------------------------------------------------------------------------- */

/* LL's traffic into a GPU grows with M x R, so its bound is a constant over R. 128 / R gives 32, 16
 * and 8 at 4, 8 and 16 ranks; published bounds there are 24 to 42, 12 to 24 and 5 to 7. */
static int64_t ll_bound(int ranks)
{
    int64_t bound = 128 / ranks;
    return bound > ARF_LL_SWEEP ? ARF_LL_SWEEP : bound < 1 ? 1 : bound;
}

/* Published BT bounds in front of HT lie between 703 and 2048. */
#define ARF_BT_BOUND 1024
/* design.md section 7: a default profile closes here, or at the capacity. */
#define ARF_DEFAULT_END 8192

/* Appends a route unless nothing is left for it. */
static void serve(arf_routes *routes, int64_t bound, const arf_plan *plan)
{
    const int64_t served = routes->count > 0 ? routes->route[routes->count - 1].max_tokens : 0;
    if (bound > served)
        routes->route[routes->count++] = (arf_route){.max_tokens = bound, .plan = *plan};
}

void arf_default_routes(const arf_problem *problem, arf_pattern pattern, int64_t capacity,
                        arf_routes *routes)
{
    const int64_t end = capacity < ARF_DEFAULT_END ? capacity : ARF_DEFAULT_END;
    const int64_t bound[] = {[ARF_LL] = ll_bound(problem->shape.tp_size),
                             [ARF_BT] =
                                 arf_reachable(problem, pattern, ARF_HT, NULL) ? ARF_BT_BOUND : end,
                             [ARF_HT] = end};

    *routes = (arf_routes){.count = 0, .min_tokens = 1};
    for (arf_protocol protocol = ARF_LL; protocol <= ARF_HT; protocol++) {
        const int64_t last = bound[protocol] < end ? bound[protocol] : end;
        arf_plan plan;
        if (!arf_first_seed(problem, pattern, protocol, &plan))
            continue;
        arf_plan many;
        if (arf_many_seed(problem, pattern, protocol, &many)) {
            const int64_t few = arf_many_from(pattern, protocol) - 1;
            serve(routes, few < last ? few : last, &plan);
            plan = many;
        }
        serve(routes, last, &plan);
    }
}

int64_t arf_sweep_limit(const arf_problem *problem, arf_pattern pattern, arf_protocol protocol)
{
    if (protocol == ARF_LL)
        return ARF_LL_SWEEP;
    if (protocol == ARF_BT && arf_reachable(problem, pattern, ARF_HT, NULL))
        return ARF_BT_SWEEP;
    return ARF_MAX_TOKENS;
}
