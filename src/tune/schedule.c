/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "rules/knobs.h"
#include "rules/sizing.h"

void arf_schedule_ladder(arf_link link, arf_tokens *tokens)
{
    const int64_t last = link == ARF_LINK_SHM ? 256 : 8192;
    *tokens = (arf_tokens){0};
    for (int64_t value = 1; value <= last; value *= 2)
        arf_tokens_add(tokens, value);
}

/* ---- one race ---------------------------------------------------------------------------------
 */

static int find(const arf_schedule *s, arf_pattern pattern, const arf_plan *plan)
{
    const arf_race *race = &s->race[pattern];
    for (int i = 0; i < race->count; i++)
        if (arf_plan_equal(s->problem.set, pattern, &race->candidate[i].plan, plan))
            return i;
    return -1;
}

/* True when the pins of the command line allow the plan. */
static bool pinned(const arf_schedule *s, const arf_tune_options *o, arf_pattern pattern,
                   const arf_plan *plan)
{
    const arf_knob_table *knobs = arf_knobs(s->problem.set, plan->protocol, pattern);
    for (int i = 0; i < o->pins; i++) {
        const arf_pin *pin = &o->pin[i];
        if (pin->protocol != plan->protocol || !pin->pattern[pattern])
            continue;
        int at = arf_knob_index(knobs, pin->knob);
        if (at < 0 || plan->tuning.value[at] != pin->value)
            return false;
    }
    return true;
}

/* Sets the pinned knobs: a pinned value need not be in any seed. */
static void pin(const arf_schedule *s, const arf_tune_options *o, arf_pattern pattern,
                arf_plan *plan)
{
    const arf_knob_table *knobs = arf_knobs(s->problem.set, plan->protocol, pattern);
    for (int i = 0; i < o->pins; i++) {
        const arf_pin *pin = &o->pin[i];
        int at = arf_knob_index(knobs, pin->knob);
        if (pin->protocol == plan->protocol && pin->pattern[pattern] && at >= 0)
            plan->tuning.value[at] = pin->value;
    }
}

/* The plan as it races: pinned, and knobs that no kernel reads where all have them, since two plans
 * that launch the same would share the places that screening has. */
static arf_plan settle(const arf_schedule *s, const arf_tune_options *o, arf_pattern pattern,
                       arf_plan plan)
{
    pin(s, o, pattern, &plan); /* before, since what is read depends on it */
    arf_tuning_settle(arf_knobs(s->problem.set, plan.protocol, pattern), &plan.tuning);
    pin(s, o, pattern, &plan);
    return plan;
}

static bool add(arf_schedule *s, arf_pattern pattern, const arf_plan *plan, arf_origin origin)
{
    arf_race *race = &s->race[pattern];
    if (!s->any_numerics && plan->numerics != ARF_FIXED)
        return true;
    int at = find(s, pattern, plan);
    if (at >= 0) {
        race->candidate[at].always |= origin == ARF_ORIGIN_DEFAULT;
        return true;
    }
    if (race->count == race->room) {
        int room = race->room == 0 ? 64 : race->room * 2;
        arf_candidate *grown = realloc(race->candidate, (size_t)room * sizeof *grown);
        if (grown == NULL)
            return false;
        race->candidate = grown;
        race->room = room;
    }
    /* The best guess of a protocol stands for it to the end, whatever screening has time for; for
     * unfused and separate the design asks that, as the strongest simple rivals. */
    bool first = true;
    for (int i = 0; i < race->count; i++)
        first &= race->candidate[i].plan.protocol != plan->protocol;
    race->candidate[race->count++] = (arf_candidate){
        .plan = *plan,
        .origin = origin,
        .always = origin == ARF_ORIGIN_DEFAULT || first,
        .limit = arf_sweep_limit(&s->problem, pattern, plan->protocol),
    };
    return true;
}

/*
 * "A few hundred candidates a protocol" (design section 8). The host device gets the seeds alone:
 * it runs on machines with few cores, where a candidate costs much and its knobs change little.
 */
#define MAX_A_PROTOCOL 384
static int most_candidates(const arf_schedule *s)
{
    return s->problem.set == ARF_SET_HOST ? 0 : MAX_A_PROTOCOL;
}

static arfuse_status add_protocol(arf_schedule *s, const arf_tune_options *o, arf_pattern pattern,
                                  arf_protocol protocol, arf_error *error)
{
    arfuse_status status = ARFUSE_FAILURE;
    arf_plans *seeds = malloc(sizeof *seeds), *near = malloc(sizeof *near);
    if (seeds == NULL || near == NULL)
        goto out;
    char reason[ARF_REASON_TEXT] = "";
    arf_seeds(&s->problem, pattern, protocol, seeds);
    const int first = s->race[pattern].count;
    for (int i = 0; i < seeds->count; i++) {
        arf_plan plan = settle(s, o, pattern, seeds->plan[i]);
        if (!arf_legal(&s->problem, pattern, &plan, reason))
            continue; /* only a pin can have made it so; the last reason is kept */
        if (!add(s, pattern, &plan, ARF_ORIGIN_SEED))
            goto out;
        plan.numerics = ARF_LIBRARY; /* the same kernels around the library's own all-reduce */
        if (s->any_numerics && arf_legal(&s->problem, pattern, &plan, reason) &&
            !add(s, pattern, &plan, ARF_ORIGIN_SEED))
            goto out;
    }
    const int seeded = s->race[pattern].count;
    for (int i = first; i < seeded; i++) {
        arf_plan from = s->race[pattern].candidate[i].plan;
        arf_neighbours(&s->problem, pattern, &from, near);
        for (int j = 0; j < near->count; j++) {
            if (s->race[pattern].count - first >= most_candidates(s))
                break;
            const arf_plan plan = settle(s, o, pattern, near->plan[j]);
            if (pinned(s, o, pattern, &near->plan[j]) &&
                !add(s, pattern, &plan, ARF_ORIGIN_NEIGHBOUR))
                goto out;
        }
    }
    if (s->race[pattern].count == first)
        snprintf(s->refused[pattern][protocol], ARF_REASON_TEXT, "%s",
                 reason[0] != '\0' ? reason : "no candidate is legal for this shape");
    status = ARFUSE_OK;
out:
    free(seeds);
    free(near);
    return status == ARFUSE_OK ? status
                               : arf_fail(error, status, "out of memory for the candidates");
}

/* The routes that run where nothing was measured. */
static arfuse_status add_defaults(arf_schedule *s, const arf_tune_options *o, arf_pattern pattern,
                                  arf_error *error)
{
    arf_routes *routes = malloc(sizeof *routes);
    if (routes == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the default routes");
    arf_default_routes(&s->problem, pattern, s->tokens.value[s->tokens.count - 1], routes);
    bool kept = true;
    for (int i = 0; i < routes->count && kept; i++) {
        const arf_plan *route = &routes->route[i].plan;
        const arf_plan plan = settle(s, o, pattern, *route);
        if (o->protocol[route->protocol] && pinned(s, o, pattern, route))
            kept = add(s, pattern, &plan, ARF_ORIGIN_DEFAULT);
    }
    free(routes);
    return kept ? ARFUSE_OK : arf_fail(error, ARFUSE_FAILURE, "out of memory for the candidates");
}

/* ---- pins that nothing can follow --------------------------------------------------------------
 */

static arfuse_status judge_pins(const arf_schedule *s, const arf_tune_options *o, arf_error *error)
{
    for (int i = 0; i < o->pins; i++) {
        const arf_pin *pin = &o->pin[i];
        char names[512] = "";
        bool found = false;
        for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
            if (!pin->pattern[pattern])
                continue;
            const arf_knob_table *knobs =
                arf_knobs(s->problem.set, pin->protocol, (arf_pattern)pattern);
            int at = arf_knob_index(knobs, pin->knob);
            found |= at >= 0;
            if (at >= 0 && (pin->value < knobs->knob[at].low || pin->value > knobs->knob[at].high))
                return arf_fail(error, ARFUSE_USAGE, "--set %s.%s=%d: expected %d to %d",
                                arf_protocol_name(pin->protocol), pin->knob, pin->value,
                                knobs->knob[at].low, knobs->knob[at].high);
            if (names[0] == '\0')
                for (int k = 0; k < knobs->count; k++)
                    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                             k == 0 ? "" : ", ", knobs->knob[k].name);
        }
        if (!found)
            return arf_fail(error, ARFUSE_USAGE,
                            "--set %s.%s: the knobs of %s in kernel set %s "
                            "are: %s",
                            arf_protocol_name(pin->protocol), pin->knob,
                            arf_protocol_name(pin->protocol), arf_set_name(s->problem.set),
                            names[0] != '\0' ? names : "none");
    }
    return ARFUSE_OK;
}

/* ---- whole ------------------------------------------------------------------------------------
 */

static arfuse_status make_race(arf_schedule *s, const arf_tune_options *o, arf_pattern pattern,
                               arf_error *error)
{
    for (int i = 0; i < ARF_PROTOCOLS; i++) {
        const arf_protocol protocol = (arf_protocol)i;
        char *refused = s->refused[pattern][protocol];
        if (!arf_knobs(s->problem.set, protocol, pattern)->supported)
            snprintf(refused, ARF_REASON_TEXT, "kernel set %s has none for %s",
                     arf_set_name(s->problem.set), arf_pattern_name(pattern));
        else if (!o->protocol[protocol])
            snprintf(refused, ARF_REASON_TEXT, "left out by --protocols");
        else if (protocol == ARF_SEPARATE && !s->pattern[ARF_ALLREDUCE])
            snprintf(refused, ARF_REASON_TEXT,
                     "it ends in an allreduce route, and --pattern left that out");
        else if (!arf_reachable(&s->problem, pattern, protocol, refused))
            continue;
        else {
            refused[0] = '\0';
            ARF_TRY(add_protocol(s, o, pattern, protocol, error));
        }
    }
    ARF_TRY(add_defaults(s, o, pattern, error));
    if (s->race[pattern].count > 0)
        return ARFUSE_OK;
    char reasons[640] = "";
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        if (s->refused[pattern][p][0] != '\0')
            snprintf(reasons + strlen(reasons), sizeof reasons - strlen(reasons), "%s%s: %s",
                     reasons[0] == '\0' ? "" : "; ", arf_protocol_name((arf_protocol)p),
                     s->refused[pattern][p]);
    return arf_fail(error, ARFUSE_USAGE, "%s: no candidate is left (%s)", arf_pattern_name(pattern),
                    reasons);
}

/* --numerics any asks for plans that a set may not have. A set that has them on another machine is
 * no fault of the arguments: the run goes on without, and says so (arf_schedule_lack). */
static arfuse_status judge_numerics(const arf_schedule *s, arf_error *error)
{
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        for (int i = 0; i < s->race[pattern].count; i++)
            if (s->race[pattern].candidate[i].plan.numerics != ARF_FIXED)
                return ARFUSE_OK;
    if (!s->any_numerics || arf_schedule_lack(s) != NULL)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_USAGE,
                    "--numerics any: kernel set %s has candidates with fixed numerics only, so it "
                    "would change nothing; leave it out",
                    arf_set_name(s->problem.set));
}

static arfuse_status size_buffers(arf_schedule *s, arf_error *error)
{
    const int64_t last = s->tokens.value[s->tokens.count - 1];
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        for (int i = 0; i < s->race[pattern].count; i++) {
            const arf_candidate *c = &s->race[pattern].candidate[i];
            int64_t most = c->limit < last ? c->limit : last;
            if (s->capacity[c->plan.protocol] < most)
                s->capacity[c->plan.protocol] = most;
        }
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        if (s->capacity[p] > 0)
            ARF_TRY(arf_mailbox_bytes(&s->problem.shape, (arf_protocol)p, s->capacity[p],
                                      &s->bytes[p], error));
    return ARFUSE_OK;
}

/* Where no candidate serves even the fewest tokens, nothing would be timed. */
static arfuse_status judge_tokens(const arf_schedule *s, arf_error *error)
{
    for (int p = 0; p < ARF_PATTERNS; p++) {
        int64_t most = 0;
        for (int i = 0; i < s->race[p].count; i++)
            if (s->race[p].candidate[i].limit > most)
                most = s->race[p].candidate[i].limit;
        if (most > 0 && most < s->tokens.value[0])
            return arf_fail(error, ARFUSE_USAGE,
                            "--tokens: %" PRId64 " or more, but the %s candidates of --protocols "
                            "serve at most %" PRId64 "; add fewer tokens or another protocol",
                            s->tokens.value[0], arf_pattern_name((arf_pattern)p), most);
    }
    return ARFUSE_OK;
}

arfuse_status arf_schedule_make(const arf_problem *problem, const arf_tokens *tokens,
                                const arf_tune_options *options, arf_schedule **schedule,
                                arf_error *error)
{
    arf_schedule *s = calloc(1, sizeof *s);
    if (s == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the schedule");
    s->problem = *problem;
    s->any_numerics = options->any_numerics;
    s->tokens = *tokens;
    s->pattern[ARF_ALLREDUCE] = options->pattern[ARF_ALLREDUCE];
    s->pattern[ARF_FINALIZE] = options->pattern[ARF_FINALIZE] && problem->shape.top_k > 0;
    arfuse_status status = judge_pins(s, options, error);
    for (int p = 0; p < ARF_PATTERNS && status == ARFUSE_OK; p++)
        if (s->pattern[p])
            status = make_race(s, options, (arf_pattern)p, error);
    if (status == ARFUSE_OK)
        status = judge_numerics(s, error);
    if (status == ARFUSE_OK)
        status = judge_tokens(s, error);
    if (status == ARFUSE_OK)
        status = size_buffers(s, error);
    if (status != ARFUSE_OK) {
        arf_schedule_free(s);
        return status;
    }
    *schedule = s;
    return ARFUSE_OK;
}

void arf_schedule_free(arf_schedule *schedule)
{
    if (schedule == NULL)
        return;
    for (int p = 0; p < ARF_PATTERNS; p++)
        free(schedule->race[p].candidate);
    free(schedule);
}

/* ---- words ------------------------------------------------------------------------------------
 */

const char *arf_schedule_lack(const arf_schedule *schedule)
{
    return schedule->any_numerics ? schedule->problem.no_library : NULL;
}

void arf_plan_text(arf_set set, arf_pattern pattern, const arf_plan *plan, char *text, int size)
{
    int used = snprintf(text, (size_t)size, "%s ", arf_protocol_name(plan->protocol));
    if (plan->numerics != ARF_FIXED && used < size)
        used += snprintf(text + used, (size_t)(size - used), "numerics=%s ",
                         arf_numerics_name(plan->numerics));
    if (used >= size)
        return;
    arf_tuning_text(arf_knobs(set, plan->protocol, pattern), &plan->tuning, text + used,
                    size - used);
    if (text[used] == '\0')
        text[used - 1] = '\0';
}

void arf_plan_facts(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
                    char *text, int size)
{
    const arf_knob_table *knobs = arf_knobs(problem->set, plan->protocol, pattern);
    const int consumers = arf_knob_index(knobs, "consumer_threads");
    const int vectors = arf_knob_index(knobs, "vectors_per_thread");
    const int elements = arf_knob_index(knobs, "elements_per_thread");
    const int threads = arf_knob_index(knobs, "threads");
    text[0] = '\0';
    if (plan->protocol == ARF_HT && consumers >= 0 && vectors >= 0)
        snprintf(text, (size_t)size, "%dx%d", plan->tuning.value[consumers],
                 plan->tuning.value[vectors]);
    else if (plan->protocol == ARF_LL && elements >= 0 && threads >= 0) {
        int blocks = arf_publish_blocks(problem->shape.hidden_size, plan->tuning.value[elements],
                                        plan->tuning.value[threads]);
        snprintf(text, (size_t)size, "%d block%s a token", blocks, blocks == 1 ? "" : "s");
    }
}

uint64_t arf_schedule_digest(const arf_schedule *s)
{
    uint64_t hash = arf_hash_number(ARF_HASH_INIT, s->problem.set);
    hash = arf_hash_number(hash, s->problem.sm_count);
    for (int i = 0; i < s->tokens.count; i++)
        hash = arf_hash_number(hash, s->tokens.value[i]);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        for (int i = 0; i < s->race[pattern].count; i++) {
            const arf_candidate *c = &s->race[pattern].candidate[i];
            char text[512];
            arf_plan_text(s->problem.set, (arf_pattern)pattern, &c->plan, text, sizeof text);
            hash = arf_hash_text(hash, text);
            hash = arf_hash_number(hash, c->limit * 2 + c->always);
        }
    return hash;
}

int arf_schedule_points(const arf_schedule *schedule)
{
    int points = 0;
    for (int p = 0; p < ARF_PATTERNS; p++)
        points += schedule->pattern[p] ? schedule->tokens.count : 0;
    return points;
}
