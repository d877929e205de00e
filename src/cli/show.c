/* SPDX-License-Identifier: Apache-2.0 */
/* show: both tables of a profile, in words. */
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "profile/lookup.h"
#include "rules/knobs.h"

static void show_mix(arf_pattern pattern, const arf_mix_evidence *mix)
{
    if (mix->count == 0)
        return;
    printf("  mixed     %s: %.2f us a call, %+.1f %% (%+.1f to %+.1f) against each alone, at",
           arf_pattern_name(pattern), mix->median_us, 100 * mix->change, 100 * mix->change_low,
           100 * mix->change_high);
    for (int i = 0; i < mix->count; i++)
        printf("%s%lld", i == 0 ? " " : ",", (long long)mix->tokens[i]);
    printf(" in turn\n");
}

static void show_evidence(const arf_evidence *evidence)
{
    printf("  method    %s", arf_method_name(evidence->method));
    if (evidence->has_policy)
        printf(", policy %s", arf_policy_name(evidence->policy));
    if (evidence->context[0] != '\0')
        printf(", %s", evidence->context);
    printf("\n");
    if (!isnan(evidence->noise))
        printf("  noise     %.2g %%: half the 95 %% interval of a measured time, median of all\n",
               100 * evidence->noise);
    if (!isnan(evidence->regret_geomean) && !isnan(evidence->regret_max))
        printf("  regret    %.2g %% on average, %.2g %% at most, against the best at each count\n",
               100 * evidence->regret_geomean, 100 * evidence->regret_max);
    for (int i = 0; i < ARF_PATTERNS; i++)
        show_mix((arf_pattern)i, &evidence->mix[i]);
    if (evidence->tool[0] != '\0')
        printf("  tool      %s\n", evidence->tool);
    if (evidence->driver[0] != '\0')
        printf("  driver    %s\n", evidence->driver);
    if (evidence->library[0] != '\0')
        printf("  library   %s\n", evidence->library);
}

/* The rival was timed at points, and the bound may lie between two of them. */
static void evidence_words(const arf_route_evidence *route, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    if (route->bound_high != 0 && route->bound_low != route->bound_high)
        used += (size_t)snprintf(text, size, "  [bound in %lld-%lld]", (long long)route->bound_low,
                                 (long long)route->bound_high);
    if (route->runner_up[0] != '\0' && !isnan(route->margin))
        used += (size_t)snprintf(text + used, size - used,
                                 "  [next %s, %+.2g %% at the nearest measured point]",
                                 route->runner_up, 100 * route->margin);
    if (route->shift_tokens != 0) {
        char shift[128];
        arf_shift_words(route, shift, sizeof shift);
        snprintf(text + used, size - used, "  [%s]", shift);
    }
}

static void show_route(const arf_profile *profile, arf_pattern pattern, int index)
{
    const arf_routes *routes = &profile->routes[pattern];
    const arf_plan *plan = &routes->route[index].plan;
    char range[64], promise[64], tuning[512] = "tuning not known", evidence[320] = "", what[128];
    arf_route_words(routes, index, range, sizeof range);
    arf_promise_words(plan, promise, sizeof promise);
    if (!plan->tuning_null)
        arf_tuning_text(arf_knobs(profile->set, plan->protocol, pattern), &plan->tuning, tuning,
                        sizeof tuning);
    if (profile->evidence.route_count[pattern] > 0)
        evidence_words(&profile->evidence.route[pattern][index], evidence, sizeof evidence);
    snprintf(what, sizeof what, "%s%s", arf_protocol_words(plan->protocol), promise);
    printf("  %-14s  %s%s\n  %-14s    %s\n", range, what, evidence, "", tuning);
}

static void show_pattern(const arf_profile *profile, arf_pattern pattern)
{
    const arf_routes *routes = &profile->routes[pattern];
    char words[128];
    arf_pattern_words(pattern, &profile->shape, words, sizeof words);
    printf("\n%s: %s\n", arf_pattern_name(pattern), words);
    if (routes->count == 0) {
        printf("  %s\n", pattern == ARF_FINALIZE && profile->shape.top_k == 0
                             ? "no routes: a dense model"
                             : "no routes");
        return;
    }
    printf("  %-14s  %s\n", "tokens", "route");
    if (routes->min_tokens > 1)
        printf("  %-14s  not served by this profile\n", "fewer");
    for (int i = 0; i < routes->count; i++)
        show_route(profile, pattern, i);
    if (routes->route[routes->count - 1].max_tokens != ARF_OPEN_BOUND)
        printf("  %-14s  %s: above the last bound\n", "more", arf_protocol_words(ARF_UNFUSED));
}

static void show(const char *path, const arf_profile *profile)
{
    const arf_profile_key key = arf_profile_key_of(profile);
    char text[ARF_REASON_TEXT];
    arf_profile_key_text(&key, text, sizeof text);
    printf("%s\n  for       %s\n", path, text);
    printf("  kernels   %s%s%s\n", arf_set_name(profile->set),
           profile->variant[0] != '\0' ? ", variant " : "", profile->variant);
    printf("  numerics  %s%s\n", arf_numerics_name(profile->numerics),
           profile->numerics == ARF_FIXED ? ": the same bits whichever route runs"
                                          : ": the bits change with the route");
    show_evidence(&profile->evidence);
    for (int i = 0; i < ARF_PATTERNS; i++)
        show_pattern(profile, (arf_pattern)i);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    const char **path = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        arf_cli_take_file(state, argument, path);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "no file, expected one");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int run(int argc, char **argv)
{
    const char *path = NULL;
    arf_cli_parse(&arf_verb_show, NULL, parse, argc, argv, &path);
    arf_profile *profile = arf_cli_load(path);
    if (profile == NULL)
        return ARFUSE_PROFILE;
    show(path, profile);
    arf_profile_free(profile);
    return 0;
}

const arf_verb arf_verb_show = {"show", "FILE", "Print both tables of a profile in words", run};
