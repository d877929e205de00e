/* SPDX-License-Identifier: Apache-2.0 */
/* explain: which route serves a token count, from which file, and why. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "rules/knobs.h"

typedef struct question {
    const char *path;
    int64_t tokens; /* -1: not yet given */
    bool asked[ARF_PATTERNS];
} question;

/* Why no route serves the tokens. */
static void explain_unserved(const arf_profile *profile, arf_pattern pattern, int64_t tokens)
{
    const arf_routes *routes = &profile->routes[pattern];
    if (tokens == 0)
        printf("  route   none: no tokens, nothing to do but keep the ranks in step\n");
    else if (routes->count == 0 && pattern == ARF_FINALIZE && profile->shape.top_k == 0)
        printf("  route   none: top_k is 0, a dense model has nothing to finalize\n");
    else if (routes->count == 0)
        printf("  route   %s\n  why     the profile has no route for this pattern\n",
               arf_protocol_words(ARF_UNFUSED));
    else if (tokens < routes->min_tokens)
        printf("  route   %s\n  why     %lld is below %lld, where the profile begins\n",
               arf_protocol_words(ARF_UNFUSED), (long long)tokens, (long long)routes->min_tokens);
    else
        printf("  route   %s\n  why     %lld is above %lld, the last bound%s\n",
               arf_protocol_words(ARF_UNFUSED), (long long)tokens,
               (long long)routes->route[routes->count - 1].max_tokens,
               profile->evidence.method == ARF_MEASURED ? "; nothing larger was measured" : "");
}

static void explain_evidence(const arf_evidence *evidence, arf_pattern pattern, int index,
                             bool last)
{
    printf("  method  %s\n", arf_method_name(evidence->method));
    if (evidence->route_count[pattern] == 0)
        return;
    const arf_route_evidence *route = &evidence->route[pattern][index];
    if (route->bound_high != 0 && last && route->bound_low == route->bound_high)
        printf("  bound   the largest token count that was measured\n");
    else if (route->bound_high != 0)
        printf("  bound   measured to lie from %lld to %lld\n", (long long)route->bound_low,
               (long long)route->bound_high);
    if (route->runner_up[0] != '\0' && !isnan(route->margin))
        printf("  next    %s, %+.2g %% at the nearest measured point\n", route->runner_up,
               100 * route->margin);
    if (route->shift_tokens != 0) {
        char shift[128];
        arf_shift_words(route, shift, sizeof shift);
        printf("  shift   %s\n", shift);
    }
}

static void explain_choice(const arf_routes *routes, arf_pattern pattern, int index, int64_t tokens)
{
    printf("  why     routes.%s[%d] serves ", arf_pattern_name(pattern), index);
    if (routes->route[index].max_tokens == ARF_OPEN_BOUND) {
        printf("%lld tokens and more: its bound is open\n",
               (long long)arf_route_first(routes, index));
        return;
    }
    char range[64];
    arf_route_words(routes, index, range, sizeof range);
    printf("%s tokens: the first whose bound is at least %lld\n", range, (long long)tokens);
}

static void explain_route(const arf_profile *profile, arf_pattern pattern, int64_t tokens)
{
    const arf_routes *routes = &profile->routes[pattern];
    int index = arf_route_of(routes, tokens);
    if (index < 0) {
        explain_unserved(profile, pattern, tokens);
        return;
    }
    const arf_plan *plan = &routes->route[index].plan;
    char promise[64], tuning[512] = "not known";
    arf_promise_words(plan, promise, sizeof promise);
    if (!plan->tuning_null)
        arf_tuning_text(arf_knobs(profile->set, plan->protocol, pattern), &plan->tuning, tuning,
                        sizeof tuning);
    printf("  route   %s%s\n", arf_protocol_words(plan->protocol), promise);
    explain_choice(routes, pattern, index, tokens);
    printf("  tuning  %s\n", tuning);
    explain_evidence(&profile->evidence, pattern, index, index + 1 == routes->count);
    if (plan->protocol == ARF_SEPARATE) {
        printf("then allreduce, %lld tokens\n", (long long)tokens);
        explain_route(profile, ARF_ALLREDUCE, tokens);
    }
}

enum { KEY_TOKENS = 0x100, KEY_PATTERN };

static const struct argp_option options[] = {
    {"tokens", KEY_TOKENS, "M", 0, "The token count of the call", 0},
    {"pattern", KEY_PATTERN, "P", 0, "allreduce or finalize (default: both)", 0},
    {0, 0, 0, 0, 0, 0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    question *q = state->input;
    arf_pattern pattern;
    switch (key) {
    case KEY_TOKENS:
        if (!arf_cli_number(argument, 0, INT64_MAX, &q->tokens))
            argp_error(state, "--tokens '%s': expected a whole number from 0 up", argument);
        return 0;
    case KEY_PATTERN:
        if (!arf_pattern_parse(argument, &pattern))
            argp_error(state, "--pattern '%s': expected allreduce or finalize", argument);
        q->asked[pattern] = true;
        return 0;
    case ARGP_KEY_ARG:
        arf_cli_take_file(state, argument, &q->path);
        return 0;
    case ARGP_KEY_END:
        if (q->tokens < 0)
            argp_error(state, "no --tokens M, expected one");
        if (q->path == NULL)
            argp_error(state, "no file, expected one");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int run(int argc, char **argv)
{
    question q = {.tokens = -1};
    arf_cli_parse(&arf_verb_explain, options, parse, argc, argv, &q);
    arf_profile *profile = arf_cli_load(q.path);
    if (profile == NULL)
        return ARFUSE_PROFILE;
    bool all = !q.asked[ARF_ALLREDUCE] && !q.asked[ARF_FINALIZE];
    for (int i = 0; i < ARF_PATTERNS; i++) {
        if (!all && !q.asked[i])
            continue;
        printf("%s, %lld token%s\n  file    %s\n", arf_pattern_name((arf_pattern)i),
               (long long)q.tokens, q.tokens == 1 ? "" : "s", q.path);
        explain_route(profile, (arf_pattern)i, q.tokens);
    }
    arf_profile_free(profile);
    return 0;
}

const arf_verb arf_verb_explain = {"explain", "--tokens M [--pattern P] FILE",
                                   "Say which route serves a token count, and why", run};
