/* SPDX-License-Identifier: Apache-2.0 */
/* A profile as a reviewer wants it in a pull request. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/export.h"
#include "cli/plan_text.h"
#include "profile/lookup.h"

/* A cell must not end early, nor its row. */
static void add_cell(arf_text *text, const char *cell)
{
    arf_text_add(text, " ");
    for (; *cell != '\0'; cell++)
        arf_text_add(text, "%s%c", *cell == '|' ? "\\" : "", *cell == '\n' ? ' ' : *cell);
    arf_text_add(text, " |");
}

static void add_summary(const char *path, const arf_profile *profile, arf_text *text)
{
    const arf_evidence *evidence = &profile->evidence;
    const arf_profile_key key = arf_profile_key_of(profile);
    char for_what[ARF_REASON_TEXT];
    const char *name = strrchr(path, '/');
    arf_profile_key_text(&key, for_what, sizeof for_what);
    arf_text_add(text, "### %s\n\n", name != NULL ? name + 1 : path);
    arf_text_add(text, "%s.\n", for_what);
    arf_text_add(text, "Kernels of %s%s%s, numerics %s, %s", arf_set_name(profile->set),
                 profile->variant[0] != '\0' ? ", variant " : "", profile->variant,
                 arf_numerics_name(profile->numerics), arf_method_name(evidence->method));
    if (evidence->has_policy)
        arf_text_add(text, ", policy %s", arf_policy_name(evidence->policy));
    arf_text_add(text, ".\n");
    if (!isnan(evidence->noise))
        arf_text_add(text, "Noise %.2g %%.\n", 100 * evidence->noise);
    if (!isnan(evidence->regret_geomean) && !isnan(evidence->regret_max))
        arf_text_add(text, "Regret %.2g %% on average, %.2g %% at most.\n",
                     100 * evidence->regret_geomean, 100 * evidence->regret_max);
    for (int i = 0; i < ARF_PATTERNS; i++)
        if (evidence->mix[i].count > 0)
            arf_text_add(text,
                         "Token counts that change from call to call cost %s %+.1f %% (%+.1f to "
                         "%+.1f).\n",
                         arf_pattern_name((arf_pattern)i), 100 * evidence->mix[i].change,
                         100 * evidence->mix[i].change_low, 100 * evidence->mix[i].change_high);
}

static void add_route(const arf_profile *profile, arf_pattern pattern, int index, arf_text *text)
{
    const arf_routes *routes = &profile->routes[pattern];
    const arf_plan *plan = &routes->route[index].plan;
    const arf_route_evidence *evidence = profile->evidence.route_count[pattern] > 0
                                             ? &profile->evidence.route[pattern][index]
                                             : NULL;
    char range[64], promise[64], protocol[96], bound[64] = "", next[96] = "", shift[128] = "";
    char tuning[ARF_PLAN_TEXT] = "not known";
    arf_route_words(routes, index, range, sizeof range);
    arf_promise_words(plan, promise, sizeof promise);
    snprintf(protocol, sizeof protocol, "%s%s", arf_protocol_name(plan->protocol), promise);
    if (evidence != NULL && evidence->bound_high > evidence->bound_low)
        snprintf(bound, sizeof bound, "%lld to %lld", (long long)evidence->bound_low,
                 (long long)evidence->bound_high);
    if (evidence != NULL && evidence->runner_up[0] != '\0' && !isnan(evidence->margin))
        snprintf(next, sizeof next, "%s %+.2g %%", evidence->runner_up, 100 * evidence->margin);
    if (evidence != NULL && evidence->shift_tokens != 0)
        arf_shift_words(evidence, shift, sizeof shift);
    if (!plan->tuning_null)
        arf_plan_tuning_text(profile->set, pattern, plan, tuning);
    arf_text_add(text, "|");
    add_cell(text, range);
    add_cell(text, protocol);
    add_cell(text, bound);
    add_cell(text, next);
    add_cell(text, shift);
    add_cell(text, tuning);
    arf_text_add(text, "\n");
}

arfuse_status arf_export_markdown(const char *path, const arf_profile *profile, arf_text *text,
                                  arf_error *error)
{
    (void)error;
    add_summary(path, profile, text);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        if (profile->routes[pattern].count == 0)
            continue;
        arf_text_add(text,
                     "\n%s\n\n| tokens | protocol | bound lies in | next, at the nearest measured "
                     "point | both policies | tuning |\n"
                     "|---|---|---|---|---|---|\n",
                     arf_pattern_name((arf_pattern)pattern));
        for (int i = 0; i < profile->routes[pattern].count; i++)
            add_route(profile, (arf_pattern)pattern, i, text);
    }
    return ARFUSE_OK;
}
