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

#define LEAST_ROUNDS 15
#define MOST_ROUNDS 100

typedef struct ab {
    arf_tuner *tuner;
    arf_shape shape;
    bool has_shape;
    arf_profile *profile[2]; /* NULL: a named side */
    arf_side side[2];
    arf_tokens tokens;
} ab;

static bool is_named(const char *name)
{
    return strcmp(name, "default") == 0 || strcmp(name, "unfused") == 0;
}

/* Files first: the shape may come from one. */
static arfuse_status load_sides(ab *c, arf_error *error)
{
    const arf_tune_options *o = c->tuner->options;
    for (int i = 0; i < 2; i++) {
        if (is_named(o->ab[i]))
            continue;
        ARF_TRY(arf_share_profile(c->tuner, o->ab[i], &c->profile[i], error));
        ARF_TRY(arf_side_of_profile(c->tuner, o->ab[i], c->profile[i], &c->side[i], error));
        if (c->has_shape && !arf_shape_equal(&c->shape, &c->profile[i]->shape))
            return arf_fail(error, ARFUSE_PROFILE,
                            "%s: hidden_size %d, top_k %d: not the shape of the other side or of "
                            "the options",
                            o->ab[i], c->profile[i]->shape.hidden_size, c->profile[i]->shape.top_k);
        c->shape = c->profile[i]->shape;
        c->has_shape = true;
    }
    return ARFUSE_OK;
}

/* --tokens, else the ladder as far as files reach. */
static void choose_tokens(ab *c)
{
    c->tokens = c->tuner->options->tokens;
    if (c->tokens.count > 0)
        return;
    arf_schedule_ladder(c->tuner->key.link, &c->tokens);
    for (int i = 0; i < 2; i++) {
        const arf_routes *routes = &c->side[i].routes[ARF_ALLREDUCE];
        if (c->profile[i] == NULL || routes->count == 0)
            continue;
        const int64_t last = routes->route[routes->count - 1].max_tokens;
        while (c->tokens.count > 1 && c->tokens.value[c->tokens.count - 1] > last)
            c->tokens.count--;
    }
}

static void print_head(const ab *c)
{
    const arf_tune_options *o = c->tuner->options;
    if (o->format == ARF_FORMAT_CSV || o->format == ARF_FORMAT_JSONL)
        arf_voice_note("a_over_b is the median of the rounds' paired ratios, not a_us / b_us");
    if (o->format == ARF_FORMAT_CSV)
        puts("pattern,tp_size,hidden_size,top_k,tokens,a,b,a_protocol,b_protocol,a_us,b_us,"
             "a_over_b,low,high,rounds,format_version");
    else if (o->format == ARF_FORMAT_MARKDOWN)
        printf("A %s, B %s; A/B: median of the rounds' paired ratios\n\n| pattern | tokens | A | A "
               "us | B | B us | A/B | A/B, 95 %% interval |\n"
               "|---|---|---|---|---|---|---|---|\n",
               o->ab[0], o->ab[1]);
    else if (o->format == ARF_FORMAT_TABLE)
        printf("A %s, B %s; A/B: median of the rounds' paired ratios, which is not the ratio of "
               "the two medians; below 1: A is faster\n  %-9s %8s  %-8s %10s  %-8s %10s  %7s  "
               "95 %% interval\n",
               o->ab[0], o->ab[1], "pattern", "tokens", "A", "A us", "B", "B us", "A/B");
}

static void print_row(const ab *c, arf_pattern pattern, int64_t tokens, const arf_lane lane[2])
{
    const arf_tune_options *o = c->tuner->options;
    const char *name = arf_pattern_name(pattern), *protocol[2];
    double us[2];
    for (int i = 0; i < 2; i++) {
        protocol[i] = arf_protocol_name(lane[i].plan->protocol);
        us[i] = arf_median(lane[i].us, lane[i].rounds);
    }
    const arf_ratio r = arf_lane_ratio(&lane[0], &lane[1]);
    switch (o->format) {
    case ARF_FORMAT_CSV:
        printf("%s,%d,%d,%d,%" PRId64 ",\"%s\",\"%s\",%s,%s,%.4f,%.4f,%.4f,%.4f,%.4f,%d,1\n", name,
               c->shape.tp_size, c->shape.hidden_size, c->shape.top_k, tokens, o->ab[0], o->ab[1],
               protocol[0], protocol[1], us[0], us[1], r.median, r.low, r.high, lane[0].rounds);
        break;
    case ARF_FORMAT_JSONL:
        printf(
            "{\"format\": \"arfuse-ab\", \"version\": 1, \"pattern\": \"%s\", \"tokens\": %" PRId64
            ", \"a_protocol\": \"%s\", \"b_protocol\": \"%s\", \"a_us\": %.4f, \"b_us\": %.4f, "
            "\"a_over_b\": %.4f, \"low\": %.4f, \"high\": %.4f, \"rounds\": %d}\n",
            name, tokens, protocol[0], protocol[1], us[0], us[1], r.median, r.low, r.high,
            lane[0].rounds);
        break;
    case ARF_FORMAT_MARKDOWN:
        printf("| %s | %" PRId64 " | %s | %.2f | %s | %.2f | %.3f | %.3f..%.3f |\n", name, tokens,
               protocol[0], us[0], protocol[1], us[1], r.median, r.low, r.high);
        break;
    default:
        printf("  %-9s %8" PRId64 "  %-8s %10.2f  %-8s %10.2f  %7.3f  %.3f..%.3f\n", name, tokens,
               protocol[0], us[0], protocol[1], us[1], r.median, r.low, r.high);
    }
}

static arfuse_status compare_point(ab *c, arf_bench *bench, arf_pattern pattern, int64_t tokens,
                                   double seconds, double deadline, int *skipped, arf_error *error)
{
    arf_lane lane[2];
    arf_point point;
    for (int i = 0; i < 2; i++)
        if (!arf_side_lane(&c->side[i], pattern, tokens, &lane[i])) {
            arf_voice_warn("%s: no route for %s of %" PRId64 " token%s", c->side[i].name,
                           arf_pattern_name(pattern), tokens, ARF_PLURAL(tokens));
            return ARFUSE_OK;
        }
    for (int i = 0; i < 2; i++)
        ARF_TRY(arf_sides_verify(bench, pattern, tokens, &lane[i], error));
    const arf_effort effort = {.least_rounds = LEAST_ROUNDS,
                               .most_rounds = MOST_ROUNDS,
                               .noise_aim = c->tuner->options->noise_aim,
                               .seconds = seconds,
                               .deadline = deadline};
    ARF_TRY(arf_measure(bench, pattern, tokens, lane, 2, &effort, &point, error));
    for (int i = 0; i < 2; i++)
        if (lane[i].status != ARFUSE_OK)
            return arf_fail(error, lane[i].status, "%s: %s", c->side[i].name, lane[i].reason);
    if (point.out_of_time)
        ++*skipped;
    else if (c->tuner->group->rank == 0)
        print_row(c, pattern, tokens, lane);
    return ARFUSE_OK;
}

static arfuse_status compare_all(ab *c, arf_bench *bench, arf_error *error)
{
    const bool *asked = c->tuner->options->pattern;
    const int patterns = (int)asked[ARF_ALLREDUCE] + (asked[ARF_FINALIZE] && c->shape.top_k > 0);
    int left = patterns * c->tokens.count, skipped = 0;
    if (c->tuner->group->rank == 0)
        print_head(c);
    for (int p = 0; p < ARF_PATTERNS; p++) {
        if (!asked[p] || (p == ARF_FINALIZE && c->shape.top_k == 0))
            continue;
        for (int t = 0; t < c->tokens.count; t++) {
            double seconds;
            ARF_TRY(arf_tuner_seconds(c->tuner, &seconds, error));
            const double rest = c->tuner->budget_seconds - seconds;
            if (rest <= 0)
                skipped++;
            else
                ARF_TRY(compare_point(c, bench, (arf_pattern)p, c->tokens.value[t], rest / left,
                                      c->tuner->budget_seconds, &skipped, error));
            left--;
        }
    }
    if (skipped > 0)
        arf_voice_warn("the budget of %g s was spent: %d point%s not measured",
                       c->tuner->budget_seconds, skipped, skipped == 1 ? " was" : "s were");
    return ARFUSE_OK;
}

static arfuse_status run(ab *c, arf_error *error)
{
    const arf_tune_options *o = c->tuner->options;
    if (o->hidden_count > 0) {
        c->shape = arf_shape_at(o, c->tuner->team.tp_size, 0);
        c->has_shape = true;
    }
    ARF_TRY(load_sides(c, error));
    const arf_problem problem = arf_device_problem(c->tuner->device, &c->shape);
    choose_tokens(c);
    for (int i = 0; i < 2; i++)
        if (c->profile[i] == NULL)
            ARF_TRY(arf_side_named(o->ab[i], &problem, c->tokens.value[c->tokens.count - 1],
                                   &c->side[i], error));
    arf_bench bench;
    ARF_TRY(arf_sides_bench(c->tuner, &problem, &c->tokens, c->side, 2, &bench, error));
    arf_tuner_greet(c->tuner);
    arfuse_status status = compare_all(c, &bench, error);
    arf_bench_close(&bench);
    if (status == ARFUSE_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = arf_fail(error, ARFUSE_FAILURE, "stdout does not take the results");
    return arf_first_says(c->tuner, status, error);
}

arfuse_status arf_ab(arf_tuner *tuner, int *code, arf_error *error)
{
    ab *c = calloc(1, sizeof *c);
    if (c == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory to compare");
    *code = 0;
    c->tuner = tuner;
    arfuse_status status = run(c, error);
    for (int i = 0; i < 2; i++)
        arf_profile_free(c->profile[i]);
    free(c);
    return status;
}
