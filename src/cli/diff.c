/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff: two profiles range by range. Two plans for the same tokens are no difference when the range
 * lies inside the interval of the bound that separates them, or when the samples behind the
 * profiles say that the two take the same time within the tolerance.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/plan_text.h"
#include "profile/lookup.h"
#include "rules/knobs.h"

/* Two runs of one machine differ by about this much whatever the noise inside each. */
#define LEAST_TOLERANCE 0.01

typedef struct side {
    const char *path;
    arf_profile *profile;
    arf_samples *samples; /* NULL: none beside the profile */
} side;

typedef struct comparison {
    side a, b;
    double tolerance; /* relative; negative until known */
    bool same_set;    /* else only protocols and bounds can be compared */
    bool different;
} comparison;

/* Tokens that each profile serves by one route, or not at all (index -1). */
typedef struct range {
    int64_t low, high;
    int a, b;
} range;

/* ---- times --------------------------------------------------------------------------------------
 */

static double time_of(const arf_samples *samples, arf_pattern pattern, int64_t tokens,
                      const arf_plan *plan)
{
    const arf_sample *sample =
        samples != NULL ? arf_samples_find(samples, pattern, tokens, plan) : NULL;
    return sample != NULL ? arf_sample_median(sample) : NAN;
}

/*
 * log(time of b's plan / time of a's plan) at a token count: inside one run where a run has both,
 * the mean of both runs where both have; else across the runs. NaN: nobody measured it.
 */
static double log_ratio(const comparison *c, arf_pattern pattern, int64_t tokens, const arf_plan *a,
                        const arf_plan *b)
{
    double in_a =
        log(time_of(c->a.samples, pattern, tokens, b) / time_of(c->a.samples, pattern, tokens, a));
    double in_b =
        log(time_of(c->b.samples, pattern, tokens, b) / time_of(c->b.samples, pattern, tokens, a));
    if (!isnan(in_a) && !isnan(in_b))
        return (in_a + in_b) / 2;
    if (!isnan(in_a) || !isnan(in_b))
        return isnan(in_a) ? in_b : in_a;
    return log(time_of(c->b.samples, pattern, tokens, b) /
               time_of(c->a.samples, pattern, tokens, a));
}

/* What the points of a range say on average; without one inside, its neighbours on both sides. */
typedef struct tally {
    double sum;
    int points;
    int64_t below, above; /* the nearest outside; 0: none */
    double at_below, at_above;
} tally;

static void count_point(const comparison *c, const range *r, arf_pattern pattern, int64_t tokens,
                        tally *t)
{
    double ratio = log_ratio(c, pattern, tokens, &c->a.profile->routes[pattern].route[r->a].plan,
                             &c->b.profile->routes[pattern].route[r->b].plan);
    if (isnan(ratio))
        return;
    if (tokens >= r->low && tokens <= r->high) {
        t->sum += ratio;
        t->points++;
    } else if (tokens < r->low && tokens > t->below) {
        t->below = tokens;
        t->at_below = ratio;
    } else if (tokens > r->high && (t->above == 0 || tokens < t->above)) {
        t->above = tokens;
        t->at_above = ratio;
    }
}

static void count_points(const comparison *c, const range *r, arf_pattern pattern,
                         const arf_samples *samples, const arf_samples *counted, tally *t)
{
    const arf_plan *plan = &c->a.profile->routes[pattern].route[r->a].plan;
    const arf_plan *other = &c->b.profile->routes[pattern].route[r->b].plan;
    for (int i = 0; samples != NULL && i < samples->count; i++) {
        const arf_sample *sample = &samples->sample[i];
        if (sample->pattern != pattern)
            continue;
        bool first = arf_plan_equal(c->a.profile->set, pattern, &sample->plan, plan);
        bool second = arf_plan_equal(c->a.profile->set, pattern, &sample->plan, other);
        /* Each token count once: A's samples before B's, the plan of A before that of B. */
        if (first || (second && isnan(time_of(samples, pattern, sample->tokens, plan))))
            if (counted == NULL || (isnan(time_of(counted, pattern, sample->tokens, plan)) &&
                                    isnan(time_of(counted, pattern, sample->tokens, other))))
                count_point(c, r, pattern, sample->tokens, t);
    }
}

/* The mean ratio b / a over a range less one; NaN when nothing was measured there. */
static double slower(const comparison *c, const range *r, arf_pattern pattern, int *points)
{
    tally t = {0};
    count_points(c, r, pattern, c->a.samples, NULL, &t);
    count_points(c, r, pattern, c->b.samples, c->a.samples, &t);
    *points = t.points;
    if (t.points > 0)
        return expm1(t.sum / t.points);
    if (t.below > 0 && t.above > 0)
        return expm1((t.at_below + t.at_above) / 2);
    return NAN;
}

/* ---- bounds -------------------------------------------------------------------------------------
 */

/* The bound of `profile` that separates two protocols and may lie anywhere in the range. */
static const arf_route_evidence *interval_around(const arf_profile *profile, arf_pattern pattern,
                                                 const range *r, arf_protocol a, arf_protocol b)
{
    const arf_routes *routes = &profile->routes[pattern];
    for (int i = 0; i + 1 < routes->count && profile->evidence.route_count[pattern] > 0; i++) {
        const arf_route_evidence *evidence = &profile->evidence.route[pattern][i];
        arf_protocol left = routes->route[i].plan.protocol;
        arf_protocol right = routes->route[i + 1].plan.protocol;
        if ((left == a && right == b) || (left == b && right == a))
            if (evidence->bound_high != 0 && evidence->bound_low <= r->low - 1 &&
                r->high <= evidence->bound_high)
                return evidence;
    }
    return NULL;
}

/* ---- ranges -------------------------------------------------------------------------------------
 */

static int64_t end_of(const arf_routes *routes, int64_t tokens)
{
    int index = arf_route_of(routes, tokens);
    if (index >= 0)
        return routes->route[index].max_tokens;
    return tokens < routes->min_tokens && routes->count > 0 ? routes->min_tokens - 1
                                                            : ARF_OPEN_BOUND;
}

static const char *name_of(const side *s, arf_pattern pattern, int index)
{
    if (index < 0)
        return "nothing";
    return arf_protocol_name(s->profile->routes[pattern].route[index].plan.protocol);
}

static void print_line(const range *r, bool equal, const char *what)
{
    char tokens[48];
    arf_range_words(r->low, r->high, tokens, sizeof tokens);
    printf("  %-14s  %-9s  %s\n", tokens, equal ? "equal" : "different", what);
}

static void print_tunings(const comparison *c, arf_pattern pattern, const range *r)
{
    char text[ARF_PLAN_TEXT];
    const side *sides[] = {&c->a, &c->b};
    for (int i = 0; i < 2; i++) {
        const arf_plan *plan = &sides[i]->profile->routes[pattern].route[i == 0 ? r->a : r->b].plan;
        arf_plan_cell(sides[i]->profile->set, pattern, plan, text, sizeof text);
        printf("  %-14s    %c: %s%s\n", "", "AB"[i], text,
               plan -> tuning_null ? " (tuning not known)" : "");
    }
}

/* Two plans that differ, for tokens that both profiles serve. */
static void judge_plans(comparison *c, arf_pattern pattern, const range *r)
{
    const arf_plan *a = &c->a.profile->routes[pattern].route[r->a].plan;
    const arf_plan *b = &c->b.profile->routes[pattern].route[r->b].plan;
    const arf_route_evidence *interval =
        interval_around(c->a.profile, pattern, r, a->protocol, b->protocol);
    const char *whose = "A";
    char what[256], names[64];
    int points = 0;
    bool equal = true;
    if (interval == NULL) {
        interval = interval_around(c->b.profile, pattern, r, a->protocol, b->protocol);
        whose = "B";
    }
    double loss = c->same_set ? slower(c, r, pattern, &points) : NAN;
    snprintf(names, sizeof names, a->protocol == b->protocol ? "%s, other tuning" : "%s, %s",
             arf_protocol_name(a->protocol), arf_protocol_name(b->protocol));
    if (!isnan(loss)) {
        equal = fabs(loss) <= c->tolerance || interval != NULL;
        snprintf(what, sizeof what, "%s: B takes %+.2g %% (%d point%s)", names, 100 * loss, points,
                 points == 1 ? "" : "s");
    } else if (interval != NULL) {
        snprintf(what, sizeof what, "%s: inside the interval of %s's bound, %lld to %lld", names,
                 whose, (long long)interval->bound_low, (long long)interval->bound_high);
    } else {
        equal = false;
        snprintf(what, sizeof what, "%s: no samples beside both profiles say what it costs", names);
    }
    print_line(r, equal, what);
    if (!equal && c->same_set)
        print_tunings(c, pattern, r);
    c->different |= !equal;
}

static bool same_plan(const comparison *c, arf_pattern pattern, const range *r)
{
    if (r->a < 0 || r->b < 0)
        return r->a < 0 && r->b < 0;
    const arf_plan *a = &c->a.profile->routes[pattern].route[r->a].plan;
    const arf_plan *b = &c->b.profile->routes[pattern].route[r->b].plan;
    return c->same_set ? arf_plan_equal(c->a.profile->set, pattern, a, b)
                       : a->protocol == b->protocol;
}

static void judge(comparison *c, arf_pattern pattern, const range *r)
{
    char what[128];
    if (same_plan(c, pattern, r)) {
        print_line(r, true, name_of(&c->a, pattern, r->a));
    } else if (r->a < 0 || r->b < 0) {
        snprintf(what, sizeof what, "A: %s, B: %s", name_of(&c->a, pattern, r->a),
                 name_of(&c->b, pattern, r->b));
        print_line(r, false, what);
        c->different = true;
    } else {
        judge_plans(c, pattern, r);
    }
}

static void print_bounds(const side *s, arf_pattern pattern, char name)
{
    const arf_routes *routes = &s->profile->routes[pattern];
    printf("  %c bounds", name);
    for (int i = 0; i < routes->count; i++) {
        const arf_route_evidence *evidence = &s->profile->evidence.route[pattern][i];
        printf("  %s ", arf_protocol_name(routes->route[i].plan.protocol));
        if (routes->route[i].max_tokens == ARF_OPEN_BOUND)
            printf("open");
        else
            printf("%lld", (long long)routes->route[i].max_tokens);
        if (s->profile->evidence.route_count[pattern] > 0 &&
            evidence->bound_high > evidence->bound_low)
            printf(" [%lld, %lld]", (long long)evidence->bound_low,
                   (long long)evidence->bound_high);
    }
    printf("%s\n", routes->count == 0 ? "  none" : "");
}

static void compare_pattern(comparison *c, arf_pattern pattern)
{
    const arf_routes *a = &c->a.profile->routes[pattern], *b = &c->b.profile->routes[pattern];
    if (a->count == 0 && b->count == 0)
        return;
    printf("%s\n", arf_pattern_name(pattern));
    print_bounds(&c->a, pattern, 'A');
    print_bounds(&c->b, pattern, 'B');
    for (int64_t low = 1;;) {
        int64_t end_a = end_of(a, low), end_b = end_of(b, low);
        range r = {low, end_a < end_b ? end_a : end_b, arf_route_of(a, low), arf_route_of(b, low)};
        /* Above the last bound of both nothing is left to compare. */
        if (r.a < 0 && r.b < 0 && r.high == ARF_OPEN_BOUND)
            break;
        judge(c, pattern, &r);
        if (r.high == ARF_OPEN_BOUND)
            break;
        low = r.high + 1;
    }
}

/* ---- the whole ----------------------------------------------------------------------------------
 */

static void compare_keys(comparison *c)
{
    const arf_profile_key a = arf_profile_key_of(c->a.profile);
    const arf_profile_key b = arf_profile_key_of(c->b.profile);
    char a_text[ARF_REASON_TEXT], b_text[ARF_REASON_TEXT];
    c->same_set = a.set == b.set;
    if (arf_profile_key_equal(&a, &b))
        return;
    arf_profile_key_text(&a, a_text, sizeof a_text);
    arf_profile_key_text(&b, b_text, sizeof b_text);
    printf("different keys\n  A: %s\n  B: %s\n", a_text, b_text);
    c->different = true;
}

static double noise_of(const arf_profile *profile)
{
    return isnan(profile->evidence.noise) ? 0 : profile->evidence.noise;
}

static bool load_side(side *s)
{
    char beside[4096];
    s->profile = arf_cli_load_either(s->path);
    if (s->profile == NULL)
        return false;
    if (arf_cli_is_samples(s->path))
        return (s->samples = arf_cli_load_samples(s->path)) != NULL;
    if (!arf_cli_samples_beside(s->path, beside, sizeof beside) || access(beside, F_OK) != 0)
        return true;
    s->samples = arf_cli_load_behind(s->profile, s->path, beside);
    return s->samples != NULL;
}

enum { KEY_TOLERANCE = 0x100 };

static const struct argp_option options[] = {
    {"tolerance", KEY_TOLERANCE, "PERCENT", 0,
     "Times closer than this are equal (default: the larger noise of the two, at least 1)", 0},
    {0, 0, 0, 0, 0, 0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    comparison *c = state->input;
    char *end = NULL;
    switch (key) {
    case KEY_TOLERANCE:
        c->tolerance = strtod(argument, &end) / 100;
        if (argument[strspn(argument, "0123456789.")] != '\0' || end == argument || *end != '\0' ||
            c->tolerance > 1)
            argp_error(state, "--tolerance '%s': expected a percentage from 0 to 100", argument);
        return 0;
    case ARGP_KEY_ARG:
        if (c->b.path != NULL)
            argp_error(state, "'%s' is one file too many, expected two", argument);
        *(c->a.path == NULL ? &c->a.path : &c->b.path) = argument;
        return 0;
    case ARGP_KEY_END:
        if (c->b.path == NULL)
            argp_error(state, "%s, expected two", c->a.path == NULL ? "no file" : "one file");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int run(int argc, char **argv)
{
    comparison c = {.tolerance = -1};
    int code = ARFUSE_PROFILE;
    arf_cli_parse(&arf_verb_diff, options, parse, argc, argv, &c);
    if (load_side(&c.a) && load_side(&c.b)) {
        if (c.tolerance < 0)
            c.tolerance = fmax(LEAST_TOLERANCE, fmax(noise_of(c.a.profile), noise_of(c.b.profile)));
        printf("A  %s\nB  %s\n", c.a.path, c.b.path);
        compare_keys(&c);
        for (int i = 0; i < ARF_PATTERNS; i++)
            compare_pattern(&c, (arf_pattern)i);
        printf("%s (times within %.2g %% are equal)\n", c.different ? "different" : "equal",
               100 * c.tolerance);
        code = c.different ? ARFUSE_FAILURE : 0;
    }
    arf_samples_free(c.a.samples);
    arf_samples_free(c.b.samples);
    arf_profile_free(c.a.profile);
    arf_profile_free(c.b.profile);
    return code;
}

const arf_verb arf_verb_diff = {"diff", "[--tolerance PERCENT] A B",
                                "Compare two profiles: 0 if equal within the noise, 1 if not", run};
