/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/retarget.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "rules/knobs.h"

/* The first route reaches down to one token even where the source began later. */
static void note_start(const arf_profile *from, char notes[ARF_RETARGET_NOTES])
{
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        size_t used = strlen(notes);
        if (from->routes[pattern].count > 0 && from->routes[pattern].min_tokens > 1)
            snprintf(notes + used, ARF_RETARGET_NOTES - used,
                     "%s%s: the source begins at %lld tokens, its first route now serves fewer too",
                     used ? "\n" : "", arf_pattern_name((arf_pattern)pattern),
                     (long long)from->routes[pattern].min_tokens);
    }
}

/* One string a line. */
static void add_notes(arf_text *text, const char *notes)
{
    if (!notes[0])
        return;
    char lines[ARF_RETARGET_NOTES], *rest = NULL;
    snprintf(lines, sizeof lines, "%s", notes);
    const char *gap = ",\"notes\":[";
    for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        arf_text_add(text, "%s", gap);
        arf_text_string(text, line);
        gap = ",";
    }
    arf_text_add(text, "]");
}

/* Where the routes came from, as members of evidence. */
static arfuse_status describe(arf_profile *to, const arf_profile *from, const char *name,
                              arf_retarget_rule rule, const char *notes, arf_error *error)
{
    arf_text text = {0};
    arf_text_add(&text, "{\"retargeted_from\":");
    arf_text_string(&text, name);
    arf_text_add(&text, ",\"retargeted_digest\":\"%016" PRIx64 "\"", arf_profile_digest(from));
    arf_text_add(&text, ",\"retargeted_method\":\"%s\"", arf_method_name(from->evidence.method));
    arf_text_add(&text, ",\"rule\":\"%s\"", arf_retarget_rule_name(rule));
    add_notes(&text, notes);
    arf_text_add(&text, "}");
    if (text.failed) {
        arf_text_free(&text);
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the evidence of a profile");
    }
    to->evidence.extra = text.data;
    return ARFUSE_OK;
}

/* Everything but the routes and evidence.extra. */
static void lay_out(arf_profile *to, const arf_profile *from, const arf_shape *shape)
{
    to->set = from->set;
    to->shape = *shape;
    arf_switch *switches[] = {&to->shape.rms_norm, &to->shape.residual, &to->shape.shared_expert};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (*switches[i] == ARF_EITHER)
            *switches[i] = ARF_ON;
    to->device = from->device;
    int ranks = from->shape.tp_size;
    to->device.nodes = (shape->tp_size * from->device.nodes + ranks - 1) / ranks;
    to->evidence.method = ARF_RETARGETED;
    snprintf(to->evidence.tool, sizeof to->evidence.tool, "arfuse %s", arfuse_version());
    to->evidence.noise = to->evidence.regret_geomean = to->evidence.regret_max = NAN;
}

/* Versions, weakest numerics and derived knobs follow from the routes. */
static void settle(arf_profile *to)
{
    arf_problem problem = arf_profile_problem(to);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        for (int i = 0; i < to->routes[pattern].count; i++) {
            arf_plan *plan = &to->routes[pattern].route[i].plan;
            if (problem.sm_count > 0)
                arf_derive_knobs(&problem, (arf_pattern)pattern, plan);
            to->version[plan->protocol] = arf_protocol_version(to->set, plan->protocol);
            if (plan->numerics > to->numerics)
                to->numerics = plan->numerics;
        }
}

arfuse_status arf_profile_retarget(const arf_profile *from, const char *name,
                                   const arf_shape *shape, arf_retarget_rule rule, int64_t end,
                                   arf_profile **to, char notes[ARF_RETARGET_NOTES],
                                   arf_error *error)
{
    arf_profile *made = arf_profile_new();
    if (!made)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for a profile");
    lay_out(made, from, shape);
    arf_problem source = arf_profile_problem(from), target = arf_profile_problem(made);
    arfuse_status status = ARFUSE_OK;
    ARF_TRY_GOTO(
        status, arf_retarget(&source, from->routes, &target, rule, end, made->routes, notes, error),
        failed);
    note_start(from, notes);
    settle(made);
    ARF_TRY_GOTO(status, describe(made, from, name, rule, notes, error), failed);
    ARF_TRY_GOTO(status, arf_profile_validate(made, error), failed);
    *to = made;
    return ARFUSE_OK;
failed:
    arf_profile_free(made);
    return status;
}
