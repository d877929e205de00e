/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/compare.h"
#include "tune/job.h"
#include "tune/share.h"
#include "tune/sides.h"
#include "tune/voice.h"

/* "in a minute" (design section 9), when --budget does not say otherwise. */
#define CHECK_SECONDS 60
#define LEAST_ROUNDS 15
#define MOST_ROUNDS 64

/* The profile's own plans at a point, and two rivals that are always there. */
#define MAX_LANES (ARF_MAX_ROUTES + 2)

typedef struct check {
    arf_tuner *tuner;
    arf_profile *profile;
    arf_problem problem;
    arf_side side[3]; /* the profile, default, unfused */
    arf_tokens tokens[ARF_PATTERNS];
    arf_lane lane[MAX_LANES];
    double budget;
    int points, skipped;
    double sum; /* of log(1 + loss), for the geometric mean */
    double worst, worst_sure;
    int64_t worst_tokens, sure_tokens;
    arf_pattern worst_pattern, sure_pattern;
} check;

/* Both ends and the middle of every route: a bound that has moved shows on one side of it. */
static void choose_tokens(check *c)
{
    for (int p = 0; p < ARF_PATTERNS; p++) {
        const arf_routes *routes = &c->profile->routes[p];
        int64_t first = routes->min_tokens > 0 ? routes->min_tokens : 1;
        for (int i = 0; i < routes->count; i++) {
            const int64_t last = routes->route[i].max_tokens;
            if (last == ARF_OPEN_BOUND)
                continue; /* nothing says how far it was meant */
            arf_tokens_add(&c->tokens[p], first);
            arf_tokens_add(&c->tokens[p], (int64_t)sqrt((double)first * (double)last));
            arf_tokens_add(&c->tokens[p], last);
            first = last + 1;
        }
    }
}

/* A rival may not be larger than its buffers: the profile's plans serve what its routes say. */
static bool has_room(const arf_bench *bench, const arf_lane *lane, int64_t tokens)
{
    return bench->spec.capacity[lane->plan->protocol] >= tokens &&
           (lane->then == NULL || bench->spec.capacity[lane->then->protocol] >= tokens);
}

static void add_lane(const check *c, arf_lane *lanes, int *count, const arf_bench *bench,
                     arf_pattern pattern, const arf_lane *lane, int64_t tokens)
{
    if (!has_room(bench, lane, tokens))
        return;
    for (int i = 0; i < *count; i++)
        if (arf_plan_equal(c->problem.set, pattern, lanes[i].plan, lane->plan))
            return;
    lanes[*count].plan = lane->plan;
    lanes[(*count)++].then = lane->then;
}

/* The routed plan first, then the other routes' plans, then default and unfused. */
static int line_up(check *c, const arf_bench *bench, arf_pattern pattern, int64_t tokens)
{
    const arf_routes *routes = &c->profile->routes[pattern];
    arf_lane lane;
    int lanes = 0;
    if (!arf_side_lane(&c->side[0], pattern, tokens, &lane))
        return 0;
    add_lane(c, c->lane, &lanes, bench, pattern, &lane, tokens);
    for (int i = 0; i < routes->count; i++)
        if (arf_side_lane(&c->side[0], pattern, routes->route[i].max_tokens, &lane)) {
            arf_lane here;
            /* What stands behind a separate finalize is the route of these tokens. */
            if (lane.then != NULL && arf_side_lane(&c->side[0], ARF_ALLREDUCE, tokens, &here))
                lane.then = here.plan;
            add_lane(c, c->lane, &lanes, bench, pattern, &lane, tokens);
        }
    for (int i = 1; i < 3; i++)
        if (arf_side_lane(&c->side[i], pattern, tokens, &lane))
            add_lane(c, c->lane, &lanes, bench, pattern, &lane, tokens);
    return lanes;
}

/* ---- in print: by rank 0
 * ---------------------------------------------------------------------- */

static void print_head(const check *c)
{
    const arf_tune_options *o = c->tuner->options;
    if (o->format == ARF_FORMAT_CSV || o->format == ARF_FORMAT_JSONL)
        arf_voice_note(
            "loss is the median of the rounds' paired route/best, less 1, not that of the "
            "two times; a route is lost where loss_low is above --max-regret");
    if (o->format == ARF_FORMAT_CSV)
        puts("pattern,tp_size,hidden_size,top_k,tokens,route_protocol,best_protocol,route_us,best_"
             "us,"
             "loss,loss_low,rounds,verdict,format_version");
    else if (o->format == ARF_FORMAT_TABLE || o->format == ARF_FORMAT_MARKDOWN)
        printf("loss: median of route/best over the rounds, paired, which is not the ratio of the "
               "two medians; at least: the low end of its 95 %% interval, above %g %% "
               "(--max-regret) a route is lost\n",
               o->max_regret * 100);
    if (o->format == ARF_FORMAT_MARKDOWN)
        puts("\n| pattern | tokens | route | us | best | us | loss | at least | verdict |\n"
             "|---|---|---|---|---|---|---|---|---|");
    else if (o->format == ARF_FORMAT_TABLE)
        printf("  %-9s %8s  %-8s %10s  %-8s %10s  %8s  %8s\n", "pattern", "tokens", "route", "us",
               "best", "us", "loss", "at least");
}

/* `loss` and what it surely is, of the routed plan against the best one. */
static void print_row(const check *c, arf_pattern pattern, int64_t tokens, const arf_lane *best,
                      double loss, double sure)
{
    const arf_tune_options *o = c->tuner->options;
    const arf_shape *shape = &c->profile->shape;
    const arf_lane *route = &c->lane[0];
    const char *name = arf_pattern_name(pattern);
    const char *own = arf_protocol_name(route->plan->protocol);
    const char *other = arf_protocol_name(best->plan->protocol);
    const double us = arf_median(route->us, route->rounds);
    const double best_us = arf_median(best->us, best->rounds);
    const char *says = sure > o->max_regret   ? "lost"
                       : loss > o->max_regret ? "in the noise"
                                              : "holds";
    switch (o->format) {
    case ARF_FORMAT_CSV:
        printf("%s,%d,%d,%d,%" PRId64 ",%s,%s,%.4f,%.4f,%.4f,%.4f,%d,%s,1\n", name, shape->tp_size,
               shape->hidden_size, shape->top_k, tokens, own, other, us, best_us, loss, sure,
               route->rounds, says);
        break;
    case ARF_FORMAT_JSONL:
        printf("{\"format\": \"arfuse-check\", \"version\": 1, \"pattern\": \"%s\", \"tokens\": "
               "%" PRId64
               ", \"route_protocol\": \"%s\", \"best_protocol\": \"%s\", \"route_us\": %.4f, "
               "\"best_us\": %.4f, \"loss\": %.4f, \"loss_low\": %.4f, \"rounds\": %d, "
               "\"verdict\": \"%s\"}\n",
               name, tokens, own, other, us, best_us, loss, sure, route->rounds, says);
        break;
    case ARF_FORMAT_MARKDOWN:
        printf("| %s | %" PRId64 " | %s | %.2f | %s | %.2f | %.1f %% | %.1f %% | %s |\n", name,
               tokens, own, us, other, best_us, loss * 100, sure * 100, says);
        break;
    default:
        printf("  %-9s %8" PRId64 "  %-8s %10.2f  %-8s %10.2f  %6.1f %%  %6.1f %%  %s\n", name,
               tokens, own, us, other, best_us, loss * 100, sure * 100, says);
    }
}

/* ---- points ---------------------------------------------------------------------------------- */

static void judge_point(check *c, arf_pattern pattern, int64_t tokens, int lanes)
{
    const arf_lane *own = &c->lane[0];
    int best = 0;
    for (int i = 1; i < lanes; i++)
        if (c->lane[i].status == ARFUSE_OK &&
            arf_lane_ratio(&c->lane[i], &c->lane[best]).median < 1)
            best = i;
    arf_ratio ratio = {1, 1, 1};
    if (best != 0)
        ratio = arf_lane_ratio(own, &c->lane[best]);
    const double loss = ratio.median - 1, sure = fmax(0, ratio.low - 1);
    c->points++;
    c->sum += log1p(loss);
    if (loss > c->worst) {
        c->worst = loss;
        c->worst_tokens = tokens;
        c->worst_pattern = pattern;
    }
    if (sure > c->worst_sure) {
        c->worst_sure = sure;
        c->sure_tokens = tokens;
        c->sure_pattern = pattern;
    }
    if (c->tuner->group->rank == 0)
        print_row(c, pattern, tokens, &c->lane[best], loss, sure);
}

static arfuse_status check_point(check *c, arf_bench *bench, arf_pattern pattern, int64_t tokens,
                                 double seconds, arf_error *error)
{
    const int lanes = line_up(c, bench, pattern, tokens);
    arf_point point;
    if (lanes == 0)
        return ARFUSE_OK;
    ARF_TRY(arf_sides_verify(bench, pattern, tokens, &c->lane[0], error));
    const arf_effort effort = {.least_rounds = LEAST_ROUNDS,
                               .most_rounds = MOST_ROUNDS,
                               .noise_aim = c->tuner->options->noise_aim,
                               .seconds = seconds,
                               .deadline = c->budget};
    ARF_TRY(arf_measure(bench, pattern, tokens, c->lane, lanes, &effort, &point, error));
    if (c->lane[0].status != ARFUSE_OK)
        return arf_fail(error, c->lane[0].status, "%s of %" PRId64 " token%s: %s",
                        arf_pattern_name(pattern), tokens, ARF_PLURAL(tokens), c->lane[0].reason);
    if (point.out_of_time)
        c->skipped++;
    else
        judge_point(c, pattern, tokens, lanes);
    return ARFUSE_OK;
}

static arfuse_status check_points(check *c, arf_bench *bench, arf_error *error)
{
    int left = c->tokens[0].count + c->tokens[1].count;
    if (c->tuner->group->rank == 0)
        print_head(c);
    for (int p = 0; p < ARF_PATTERNS; p++)
        for (int t = 0; t < c->tokens[p].count; t++) {
            double seconds;
            ARF_TRY(arf_tuner_seconds(c->tuner, &seconds, error));
            const double rest = c->budget - seconds;
            if (rest <= 0)
                c->skipped++;
            else
                ARF_TRY(check_point(c, bench, (arf_pattern)p, c->tokens[p].value[t], rest / left,
                                    error));
            left--;
        }
    return ARFUSE_OK;
}

static arfuse_status verdict(check *c, int *code, arf_error *error)
{
    const char *file = c->tuner->options->check;
    if (c->skipped > 0)
        arf_voice_warn("the budget of %g s was spent: %d point%s not measured", c->budget,
                       c->skipped, c->skipped == 1 ? " was" : "s were");
    if (c->points == 0)
        return arf_fail(error, ARFUSE_FAILURE, "%s: no point was measured; use a larger --budget",
                        file);
    char where[96] = "";
    if (c->worst > 0)
        snprintf(where, sizeof where, " (%s, %" PRId64 " token%s)",
                 arf_pattern_name(c->worst_pattern), c->worst_tokens, ARF_PLURAL(c->worst_tokens));
    char mean[64];
    arf_loss_text(expm1(c->sum / c->points), mean);
    arf_voice_note("%d point%s: the routes %s in geometric mean, %.2f %% at most%s", c->points,
                   ARF_PLURAL(c->points), mean, c->worst * 100, where);
    if (c->worst_sure > c->tuner->options->max_regret) {
        arf_voice_error(
            "%s no longer holds here: %s of %" PRId64 " token%s loses %.1f %% beyond the "
            "noise, more than --max-regret %g; tune again",
            file, arf_pattern_name(c->sure_pattern), c->sure_tokens, ARF_PLURAL(c->sure_tokens),
            c->worst_sure * 100, c->tuner->options->max_regret);
        *code = ARF_EXIT_REGRET;
        return ARFUSE_OK;
    }
    arf_voice_note("%s holds here: no point loses more than --max-regret %g beyond the noise (the "
                   "low end of a loss's 95 %% interval decides: %.2f %% at most)",
                   file, c->tuner->options->max_regret, c->worst_sure * 100);
    return ARFUSE_OK;
}

static arfuse_status run(check *c, int *code, arf_error *error)
{
    const arf_tune_options *o = c->tuner->options;
    c->budget = o->budget_seconds > 0 ? o->budget_seconds : CHECK_SECONDS;
    c->tuner->budget_seconds = c->budget;
    ARF_TRY(arf_share_profile(c->tuner, o->check, &c->profile, error));
    ARF_TRY(arf_side_of_profile(c->tuner, o->check, c->profile, &c->side[0], error));
    c->problem = arf_device_problem(c->tuner->device, &c->profile->shape);
    choose_tokens(c);
    arf_tokens all = {0};
    for (int p = 0; p < ARF_PATTERNS; p++)
        for (int t = 0; t < c->tokens[p].count; t++)
            arf_tokens_add(&all, c->tokens[p].value[t]);
    if (all.count == 0)
        return arf_fail(error, ARFUSE_PROFILE, "%s: no route with a bound to check", o->check);
    const int64_t most = all.value[all.count - 1];
    ARF_TRY(arf_side_named("default", &c->problem, most, &c->side[1], error));
    ARF_TRY(arf_side_named("unfused", &c->problem, most, &c->side[2], error));
    arf_bench bench;
    ARF_TRY(arf_sides_bench(c->tuner, &c->problem, &all, c->side, 3, &bench, error));
    arf_tuner_greet(c->tuner);
    arfuse_status status = check_points(c, &bench, error);
    arf_bench_close(&bench);
    if (status == ARFUSE_OK)
        status = verdict(c, code, error);
    if (status == ARFUSE_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = arf_fail(error, ARFUSE_FAILURE, "stdout does not take the results");
    return arf_first_says(c->tuner, status, error);
}

arfuse_status arf_check(arf_tuner *tuner, int *code, arf_error *error)
{
    check *c = calloc(1, sizeof *c);
    if (c == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory to check");
    c->tuner = tuner;
    *code = 0;
    arfuse_status status = run(c, code, error);
    arf_profile_free(c->profile);
    free(c);
    return status;
}
