/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/retarget.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rules/knobs.h"
#include "rules/seeds.h"

static const char *const rule_names[ARF_RETARGET_RULES] = {"scaled", "v1", "v2"};

const char *arf_retarget_rule_name(arf_retarget_rule rule)
{
    return rule < ARF_RETARGET_RULES ? rule_names[rule] : "?";
}

bool arf_retarget_rule_parse(const char *name, arf_retarget_rule *rule)
{
    for (int i = 0; i < ARF_RETARGET_RULES; i++)
        if (strcmp(rule_names[i], name) == 0) {
            *rule = (arf_retarget_rule)i;
            return true;
        }
    return false;
}

/* One retargeting while it is being done. */
typedef struct retargeting {
    const arf_problem *from, *to;
    arf_retarget_rule rule;
    arf_pattern pattern;
    char *notes;
} retargeting;

__attribute__((format(printf, 2, 3))) static void note(const retargeting *at, const char *format,
                                                       ...)
{
    size_t used = strlen(at->notes);
    int head = snprintf(at->notes + used, ARF_RETARGET_NOTES - used, "%s%s: ", used ? "\n" : "",
                        arf_pattern_name(at->pattern));
    used += (size_t)head;
    if (used >= ARF_RETARGET_NOTES)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(at->notes + used, ARF_RETARGET_NOTES - used, format, arguments);
    va_end(arguments);
}

static int32_t *knob(const retargeting *at, arf_plan *plan, const char *name)
{
    int index = arf_knob_index(arf_knobs(at->to->set, plan->protocol, at->pattern), name);
    return index < 0 ? NULL : &plan->tuning.value[index];
}

static void set(const retargeting *at, arf_plan *plan, const char *name, int32_t value)
{
    int32_t *at_knob = knob(at, plan, name);
    if (at_knob)
        *at_knob = value;
}

/* ---- HT -------------------------------------------------------------------------------------- */

/* Judged as the engine would, for v1 and v2; whether it is also safe is asked afterwards. */
static bool accepted(const retargeting *at, const arf_plan *plan, char *reason)
{
    return at->rule == ARF_RETARGET_SCALED ? arf_legal(at->to, at->pattern, plan, reason)
                                           : arf_legal_upstream(at->to, at->pattern, plan, reason);
}

/* The plan with these reduction warps and the split that goes with them. */
static bool with_warps(const retargeting *at, arf_plan *plan, int warps, char *reason)
{
    int hidden = at->to->shape.hidden_size;
    set(at, plan, "reduction_warps", warps);
    if (hidden == at->from->shape.hidden_size)
        return accepted(at, plan, reason); /* its split was chosen for this token */
    int limit = at->rule == ARF_RETARGET_V1 ? 928 : 1024 - 32 * (2 + warps);
    arf_split split;
    if (!arf_derived_split_below(hidden, limit, &split)) {
        if (reason)
            snprintf(reason, ARF_REASON_TEXT,
                     "no multiple of 32 threads divides the %d packs of a token", hidden / 8);
        return false;
    }
    set(at, plan, "consumer_threads", split.consumer_threads);
    set(at, plan, "vectors_per_thread", split.vectors_per_thread);
    return accepted(at, plan, reason);
}

/* The same, giving up rms_shard_major, then stages, as far as the rule does that. */
static bool with_concessions(const retargeting *at, arf_plan *plan, int warps, char *reason)
{
    const arf_plan start = *plan;
    if (with_warps(at, plan, warps, reason))
        return true;
    int32_t *major = knob(at, plan, "rms_shard_major");
    if (at->rule != ARF_RETARGET_V1 && major && *major) {
        *major = 0;
        if (accepted(at, plan, reason))
            return true;
    }
    int32_t *stages = knob(at, plan, "stages");
    while (at->rule == ARF_RETARGET_SCALED && --*stages >= 2)
        if (accepted(at, plan, NULL))
            return true;
    *plan = start;
    return false;
}

/* The preset's warps, then fewer from the nearest; v1 stops there, later rules then try more. */
static bool retarget_warps(const retargeting *at, arf_plan *plan, char *reason)
{
    int preset = *knob(at, plan, "reduction_warps");
    if (with_concessions(at, plan, preset, reason))
        return true; /* `reason` otherwise stays that of the preset's own warps */
    for (int warps = preset / 2; warps >= 1; warps /= 2)
        if (with_concessions(at, plan, warps, NULL))
            return true;
    for (int warps = preset * 2; warps <= 8 && at->rule != ARF_RETARGET_V1; warps *= 2)
        if (with_concessions(at, plan, warps, NULL))
            return true;
    return false;
}

/* What v2 starts from at 16 ranks and more: the finalize preset for H=8192 there. */
static void start_from_sixteen(const retargeting *at, arf_plan *plan)
{
    bool sixteen = at->to->shape.tp_size >= 16 && at->from->shape.tp_size < 16;
    if (!sixteen || at->rule == ARF_RETARGET_V1 || at->pattern != ARF_FINALIZE ||
        !knob(at, plan, "rms_shard_major"))
        return;
    set(at, plan, "stages", 7);
    set(at, plan, "reduction_warps", 2);
    set(at, plan, "rms_pipeline_stages", 3);
    set(at, plan, "rms_shard_major", 1);
}

/* False with the reason; the caller drops HT or gives up. */
static bool retarget_ht(const retargeting *at, arf_plan *plan, char *reason)
{
    start_from_sixteen(at, plan);
    /* Accepted by every public check, the kernel may still break: that is asked last. */
    return retarget_warps(at, plan, reason) && arf_legal(at->to, at->pattern, plan, reason);
}

/* ---- the other protocols --------------------------------------------------------------------- */

static void adapt_to_shape(const retargeting *at, arf_plan *plan)
{
    const arf_shape *from = &at->from->shape, *to = &at->to->shape;
    int32_t *cluster = knob(at, plan, "collect_cluster");
    if (cluster) {
        int64_t scaled =
            ((int64_t)*cluster * to->hidden_size + from->hidden_size - 1) / from->hidden_size;
        *cluster = scaled < 1 ? 1 : scaled > 16 ? 16 : (int32_t)scaled;
    }
    int32_t *prefetch = knob(at, plan, "prefetch_group");
    if (prefetch && to->top_k > 0 && (*prefetch == from->top_k || *prefetch > to->top_k))
        *prefetch = to->top_k;
    int32_t *lanes = knob(at, plan, "collect_lanes");
    while (lanes && *lanes > 1 && !arf_legal(at->to, at->pattern, plan, NULL))
        *lanes /= 2;
}

/* One plan for the target shape; false with the reason. */
static bool retarget_plan(const retargeting *at, arf_plan *plan, char *reason)
{
    arf_plan source = *plan;
    if (!plan->tuning_null && arf_shape_equal(&at->from->shape, &at->to->shape) &&
        arf_legal(at->to, at->pattern, plan, reason))
        return true;
    if (!plan->tuning_null) {
        if (plan->protocol == ARF_HT && knob(at, plan, "consumer_threads")) {
            if (retarget_ht(at, plan, reason))
                return true;
        } else {
            if (at->rule == ARF_RETARGET_SCALED)
                adapt_to_shape(at, plan);
            if (arf_legal(at->to, at->pattern, plan, reason))
                return true;
        }
    } else {
        snprintf(reason, ARF_REASON_TEXT, "its launch parameters are not known");
    }
    if (at->rule != ARF_RETARGET_SCALED)
        return false;
    char unreachable[ARF_REASON_TEXT];
    if (!arf_first_seed(at->to, at->pattern, plan->protocol, plan)) {
        arf_reachable(at->to, at->pattern, source.protocol, unreachable);
        memcpy(reason, unreachable, sizeof unreachable);
        return false;
    }
    plan->transport = source.transport;
    plan->numerics = source.numerics;
    note(at, "%s tuned anew, not carried over: %s", arf_protocol_name(plan->protocol), reason);
    return arf_legal(at->to, at->pattern, plan, reason);
}

/* ---- routes ---------------------------------------------------------------------------------- */

int64_t arf_scaled_bound(int64_t bound, arf_protocol protocol, const arf_shape *from,
                         const arf_shape *to)
{
    if (bound == ARF_OPEN_BOUND)
        return bound;
    /* Below 2^20 * 2^16 * 72: no overflow. */
    int64_t up = from->hidden_size, down = to->hidden_size;
    if (protocol == ARF_LL) {
        up *= from->tp_size;
        down *= to->tp_size;
    }
    int64_t scaled = bound * up / down;
    int64_t swept = protocol == ARF_LL   ? ARF_LL_SWEEP
                    : protocol == ARF_BT ? ARF_BT_SWEEP
                                         : ARF_MAX_TOKENS;
    int64_t most = bound > swept ? bound : swept;
    return scaled < 1 ? 1 : scaled > most ? most : scaled;
}

static bool serves(const arf_problem *problem, arf_pattern pattern)
{
    return pattern == ARF_ALLREDUCE || problem->shape.top_k > 0;
}

/* Appends a route, or lets the one before it take the range when nothing is left of it. */
static void append(arf_routes *routes, int64_t bound, const arf_plan *plan)
{
    int64_t before = routes->count ? routes->route[routes->count - 1].max_tokens : 0;
    if (bound > before)
        routes->route[routes->count++] = (arf_route){.max_tokens = bound, .plan = *plan};
}

/* The bound of route i in the target, before anything takes another one's range. */
static int64_t retarget_bound(const retargeting *at, const arf_routes *source, int i, int64_t end)
{
    int64_t stop = source->route[source->count - 1].max_tokens;
    int64_t bound = source->route[i].max_tokens;
    if (at->rule == ARF_RETARGET_SCALED && i < source->count - 1)
        bound = arf_scaled_bound(bound, source->route[i].plan.protocol, &at->from->shape,
                                 &at->to->shape);
    bound = bound < stop ? bound : stop; /* nobody measured beyond */
    return bound < end ? bound : end;
}

/* False when an HT route of the source cannot be had; then `notes` says why. */
static bool keeps_ht(const retargeting *at, const arf_routes *source, char *reason)
{
    char aside[ARF_RETARGET_NOTES] = ""; /* what is carried over is noted when it is */
    retargeting trial = *at;
    trial.notes = aside;
    for (int i = 0; i < source->count; i++) {
        arf_plan plan = source->route[i].plan;
        if (plan.protocol == ARF_HT && !retarget_plan(&trial, &plan, reason)) {
            note(at, "ht dropped: %s", reason);
            return false;
        }
    }
    return true;
}

static arfuse_status retarget_pattern(const retargeting *at, const arf_routes *source, bool with_ht,
                                      int64_t end, arf_routes *target, arf_error *error)
{
    for (int i = 0; i < source->count; i++) {
        int64_t bound = retarget_bound(at, source, i, end);
        arf_plan plan = source->route[i].plan;
        char reason[ARF_REASON_TEXT] = "";
        bool ht = plan.protocol == ARF_HT;
        if ((!ht || with_ht) && retarget_plan(at, &plan, reason)) {
            append(target, bound, &plan);
            continue;
        }
        if (!ht && at->rule != ARF_RETARGET_SCALED)
            return arf_fail(error, ARFUSE_PROFILE, "%s: %s cannot run for the target shape: %s",
                            arf_pattern_name(at->pattern), arf_protocol_name(plan.protocol),
                            reason);
        if (!ht)
            note(at, "%s dropped: %s", arf_protocol_name(plan.protocol), reason);
        /* The route before takes the range; in front of all others the next one does so anyway. */
        if (target->count > 0)
            target->route[target->count - 1].max_tokens = bound;
    }
    if (target->count == 0)
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: nothing of the source can run for the target shape (%s)",
                        arf_pattern_name(at->pattern), at->notes);
    return ARFUSE_OK;
}

arfuse_status arf_retarget(const arf_problem *from, const arf_routes source[ARF_PATTERNS],
                           const arf_problem *to, arf_retarget_rule rule, int64_t end,
                           arf_routes target[ARF_PATTERNS], char notes[ARF_RETARGET_NOTES],
                           arf_error *error)
{
    if (from->set != to->set)
        return arf_fail(error, ARFUSE_USAGE, "cannot retarget from kernel set %s to %s",
                        arf_set_name(from->set), arf_set_name(to->set));
    notes[0] = '\0';
    /* Where one pattern cannot have HT neither gets it: they share its workspace. */
    bool with_ht = true;
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        retargeting at = {from, to, rule, (arf_pattern)pattern, notes};
        char reason[ARF_REASON_TEXT] = "";
        if (!serves(to, at.pattern) || keeps_ht(&at, &source[pattern], reason))
            continue;
        if (rule == ARF_RETARGET_V1)
            return arf_fail(error, ARFUSE_PROFILE, "%s: rule v1 gives up without ht: %s",
                            arf_pattern_name(at.pattern), reason);
        with_ht = false;
    }
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        retargeting at = {from, to, rule, (arf_pattern)pattern, notes};
        target[pattern] = (arf_routes){.count = 0, .min_tokens = 1};
        if (!serves(to, at.pattern))
            continue;
        if (source[pattern].count == 0)
            return arf_fail(error, ARFUSE_PROFILE, "the source has no routes for %s",
                            arf_pattern_name(at.pattern));
        ARF_TRY(retarget_pattern(&at, &source[pattern], with_ht, end, &target[pattern], error));
    }
    return ARFUSE_OK;
}
