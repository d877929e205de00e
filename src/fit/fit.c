/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From segments to routes: where between two measured points the bound lies, how
 * sure that is, and what the measurement says about each route.
 *
 * Default price of a route, 0.0005 of weighted log-regret: a route more costs a launch nothing, but
 * is one more thing to keep right. From the samples of 8 ranks on one H200 (H 6144, top-k 10), a
 * price of 0.002 made routes that lose 0.77 % on average and 4.5 % at most, 0.0005 ones that lose
 * 0.36 and 2.5 %; on the model device at 1 % noise both find the same routes.
 *
 * Default repeat, 0.01: two runs there (K 10 and K 8, whose allreduce is the same) timed 97 pairs
 * of a plan within 6 % of the best and a token count apart by 0.68 % (standard deviation; the
 * largest 2.5 %), while the median interval inside a run was 0.16 %. A time alone thus lies within
 * 1.96 x 0.68 % / sqrt 2 = 0.94 % of what other runs give. It is drawn anew for every plan and
 * token count, as where its memory lies is.
 */
#include "fit/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fit/gaps.h"
#include "fit/segments.h"
#include "fit/stats.h"
#include "fit/table.h"

/* ---- comparing two candidates -------------------------------------------------------------------
 */

static bool both_measured(const arf_table *table, int a, int b, int point)
{
    return arf_table_cell(table, a, point)->measured && arf_table_cell(table, b, point)->measured;
}

/* -1: a is faster beyond the noise, in any run; 1: b is; 0: inside the noise. */
static int verdict(const arf_table *table, int a, int b, int point)
{
    double noise =
        hypot(hypot(arf_table_cell(table, a, point)->noise, arf_table_cell(table, b, point)->noise),
              sqrt(2.0) * table->repeat);
    double difference = arf_table_lead(table, a, b, point);
    return difference < -noise ? -1 : difference > noise ? 1 : 0;
}

/* ---- bounds -------------------------------------------------------------------------------------
 */

/* A change of hands, as points of the table at which both candidates were measured; -1: none. */
typedef struct change {
    int left, right;            /* plans before and after, as candidates */
    int last_left, first_right; /* the neighbouring points between which the bound lies */
    int sure_left, sure_right;  /* the nearest at which one is faster beyond the noise */
} change;

static change change_after(const arf_table *table, const arf_segment *segment)
{
    change at = {
        segment[0].candidate, segment[1].candidate, segment[0].last, segment[1].first, -1, -1};
    for (int p = segment[0].last; p >= segment[0].first && at.sure_left < 0; p--)
        if (both_measured(table, at.left, at.right, p) && verdict(table, at.left, at.right, p) < 0)
            at.sure_left = p;
    for (int p = segment[1].first; p <= segment[1].last && at.sure_right < 0; p++)
        if (both_measured(table, at.left, at.right, p) && verdict(table, at.left, at.right, p) > 0)
            at.sure_right = p;
    return at;
}

/*
 * The last token count that the left plan serves. Neighbours that are adjacent numbers leave no
 * choice. Else it is where the two times cross, on chords of log time over log M between the
 * neighbours; where those do not cross (one of the two was not measured at one of the neighbours,
 * or noise), it is the geometric middle.
 */
static int64_t bound_of(const arf_table *table, const change *at)
{
    int64_t low = table->tokens[at->last_left], high = table->tokens[at->first_right];
    if (high == low + 1)
        return low;
    double share = 0.5;
    if (both_measured(table, at->left, at->right, at->last_left) &&
        both_measured(table, at->left, at->right, at->first_right)) {
        double before = arf_table_lead(table, at->left, at->right, at->last_left);
        double after = arf_table_lead(table, at->left, at->right, at->first_right);
        if (before <= 0.0 && after > 0.0)
            share = before / (before - after);
    }
    int64_t bound = (int64_t)floor((double)low * pow((double)high / (double)low, share) + 1e-9);
    bound = bound < low ? low : bound >= high ? high - 1 : bound;
    /* Where one of the two failed in between, the other serves. */
    const arf_cell *left = arf_table_cell(table, at->left, at->first_right);
    const arf_cell *right = arf_table_cell(table, at->right, at->first_right);
    if (left->cut && bound >= left->first_failure)
        bound = left->first_failure - 1;
    if (right->cut && bound < right->last_failure)
        bound = right->last_failure;
    return bound;
}

/* ---- evidence
 * ------------------------------------------------------------------------------------ */

/* The strongest rival at the last point of a segment: of another protocol if any was measured
 * there, else another tuning. */
static int runner_up(const arf_table *table, const arf_segment *segment)
{
    arf_protocol own = table->plan[segment->candidate].protocol;
    int best = -1;
    for (int c = 0; c < table->candidates; c++) {
        const arf_cell *cell = arf_table_cell(table, c, segment->last);
        if (c == segment->candidate || !cell->measured)
            continue;
        bool other = table->plan[c].protocol != own;
        bool best_other = best >= 0 && table->plan[best].protocol != own;
        if (best < 0 || (other && !best_other) ||
            (other == best_other &&
             cell->log_us < arf_table_cell(table, best, segment->last)->log_us))
            best = c;
    }
    return best;
}

static void tell_rival(const arf_table *table, const arf_segment *segment,
                       arf_route_evidence *evidence)
{
    int rival = runner_up(table, segment);
    evidence->margin = NAN;
    if (rival < 0)
        return;
    strcpy(evidence->runner_up, arf_protocol_name(table->plan[rival].protocol));
    evidence->margin = expm1(arf_table_lead(table, rival, segment->candidate, segment->last));
}

/* The interval is the two measured points between which the leader changes beyond the noise; where
 * no point is that clear, the route's own ends. */
static void tell_bound(const arf_table *table, const arf_segment *segments, int index, int count,
                       const arf_route *routes, arf_route_evidence *evidence)
{
    if (index == count - 1) { /* the largest M measured: nothing to find */
        evidence->bound_low = evidence->bound_high = routes[index].max_tokens;
        return;
    }
    change at = change_after(table, &segments[index]);
    evidence->bound_low = at.sure_left >= 0 ? table->tokens[at.sure_left]
                          : index > 0       ? routes[index - 1].max_tokens
                                            : 1;
    evidence->bound_high =
        at.sure_right >= 0 ? table->tokens[at.sure_right] : table->tokens[segments[index + 1].last];
}

/* False: out of memory. */
static bool median_noise(const arf_table *table, double *median)
{
    size_t cells = (size_t)table->candidates * (size_t)table->points;
    double *noise = malloc(cells * sizeof *noise);
    if (noise == NULL)
        return false;
    int count = 0;
    for (size_t i = 0; i < cells; i++)
        if (table->cell[i].measured && table->cell[i].noise > 0.0)
            noise[count++] = table->cell[i].noise;
    *median = arf_median_of(noise, count);
    free(noise);
    return true;
}

static void tell_regret(const arf_table *table, const arf_segment *segments, int count,
                        arf_fit_result *result)
{
    double sum = 0.0, worst = 0.0;
    for (int s = 0; s < count; s++) {
        for (int p = segments[s].first; p <= segments[s].last; p++) {
            double own = arf_table_cell(table, segments[s].candidate, p)->log_us;
            double regret = fmax(0.0, own - table->best[p]);
            sum += table->weight[p] * regret;
            worst = fmax(worst, regret);
        }
    }
    result->regret_geomean = expm1(sum);
    result->regret_max = expm1(worst);
}

/* ---- the fit
 * ------------------------------------------------------------------------------------- */

/* The first point that no candidate reaches from the one before it. */
static int64_t first_cut(const arf_table *table)
{
    bool begins = false;
    for (int a = 0; a < table->candidates; a++)
        begins |= arf_table_cell(table, a, 0)->measured && !arf_table_cell(table, a, 0)->cut;
    if (!begins)
        return table->tokens[0];
    for (int p = 1; p < table->points; p++) {
        bool passable = false;
        for (int a = 0; a < table->candidates; a++) {
            const arf_cell *here = arf_table_cell(table, a, p);
            passable |= here->known && !here->cut && arf_table_cell(table, a, p - 1)->known;
            for (int b = 0; b < table->candidates; b++)
                passable |= a != b && here->measured && arf_table_cell(table, b, p - 1)->measured &&
                            !(here->cut && arf_table_cell(table, b, p)->cut);
        }
        if (!passable)
            return table->tokens[p];
    }
    return table->tokens[table->points - 1];
}

static arfuse_status out_of_memory(arf_pattern pattern, arf_error *error)
{
    return arf_fail(error, ARFUSE_FAILURE, "%s: out of memory while fitting",
                    arf_pattern_name(pattern));
}

static arfuse_status find_segments(const arf_samples *samples, arf_pattern pattern,
                                   const arf_fit_options *options, arf_table **table,
                                   arf_segment segments[ARF_MAX_ROUTES], int *count,
                                   arf_error *error)
{
    ARF_TRY(arf_table_create(samples, pattern, options, table, error));
    *count = arf_segments(*table, options->route_price, segments);
    if (*count > 0)
        return ARFUSE_OK;
    int64_t cut = first_cut(*table);
    arf_table_free(*table);
    if (*count < 0)
        return out_of_memory(pattern, error);
    return arf_fail(error, ARFUSE_NOT_SERVED,
                    "%s: at or just below %lld tokens every candidate failed, so no route can pass "
                    "there; measure others at those token counts, or fewer tokens",
                    arf_pattern_name(pattern), (long long)cut);
}

arfuse_status arf_fit(const arf_samples *samples, arf_pattern pattern,
                      const arf_fit_options *options, arf_fit_result *result, arf_error *error)
{
    arf_table *table;
    arf_segment segments[ARF_MAX_ROUTES];
    int count;
    ARF_TRY(find_segments(samples, pattern, options, &table, segments, &count, error));

    memset(result, 0, sizeof *result);
    result->routes.min_tokens = 1;
    result->routes.count = count;
    for (int i = 0; i < count; i++) {
        arf_route *route = &result->routes.route[i];
        route->plan = table->plan[segments[i].candidate];
        route->max_tokens = table->tokens[segments[i].last];
        if (i + 1 < count) {
            change at = change_after(table, &segments[i]);
            route->max_tokens = bound_of(table, &at);
        }
    }
    for (int i = 0; i < count; i++) {
        tell_bound(table, segments, i, count, result->routes.route, &result->evidence[i]);
        tell_rival(table, &segments[i], &result->evidence[i]);
    }
    bool known = median_noise(table, &result->noise);
    tell_regret(table, segments, count, result);
    arf_table_free(table);
    return known ? ARFUSE_OK : out_of_memory(pattern, error);
}

/* ---- what to measure next
 * ------------------------------------------------------------------------- */

/* Two points closer than this need no other between them when the noise hides their order. */
#define CLOSE_ENOUGH 1.05
/* Gaps inside routes are asked for a few at a time: what one shows may move a bound, which goes
 * first, or make another gap worth less. */
#define GAPS_AT_ONCE 4

static bool failed_at(const arf_samples *samples, arf_pattern pattern, const arf_plan *plan,
                      int64_t tokens)
{
    const arf_sample *sample = arf_samples_find(samples, pattern, tokens, plan);
    return sample != NULL && sample->outcome != ARF_SAMPLE_TIMED;
}

typedef struct wish_list {
    const arf_samples *samples;
    const arf_table *table;
    int64_t *tokens;
    int count, room;
} wish_list;

/* 0 tokens: there is nothing between the two. */
static void wish(wish_list *list, const change *at, int64_t tokens)
{
    if (tokens == 0 || list->count == list->room)
        return;
    for (int i = 0; i < list->count; i++)
        if (list->tokens[i] == tokens)
            return;
    arf_pattern pattern = list->table->pattern;
    if (failed_at(list->samples, pattern, &list->table->plan[at->left], tokens) ||
        failed_at(list->samples, pattern, &list->table->plan[at->right], tokens))
        return;
    list->tokens[list->count++] = tokens;
}

/* The nearest point below (step -1) or above (step 1) at which both were measured; -1: none. */
static int compared_from(const arf_table *table, const change *at, int point, int step)
{
    while (point >= 0 && point < table->points && !both_measured(table, at->left, at->right, point))
        point += step;
    return point >= 0 && point < table->points ? point : -1;
}

/*
 * Around one change of hands. Between the neighbours of the bound, as long as at least one of
 * them is clear; where both are inside the noise another point between them would tell nothing.
 * Then outwards, to bring the clear points closer, until neighbours are within 5 %.
 */
static void wish_around(wish_list *list, const change *at)
{
    const arf_table *table = list->table;
    int left = compared_from(table, at, at->last_left, -1);
    int right = compared_from(table, at, at->first_right, 1);
    int64_t low = table->tokens[left >= 0 ? left : at->last_left];
    int64_t high = table->tokens[right >= 0 ? right : at->first_right];
    bool clear = left < 0 || right < 0 || verdict(table, at->left, at->right, left) != 0 ||
                 verdict(table, at->left, at->right, right) != 0;
    if (clear)
        wish(list, at, arf_middle_of(low, high));
    if (at->sure_left >= 0 && left > at->sure_left) {
        int next = compared_from(table, at, at->sure_left + 1, 1);
        if ((double)table->tokens[next] > CLOSE_ENOUGH * (double)table->tokens[at->sure_left])
            wish(list, at, arf_middle_of(table->tokens[at->sure_left], table->tokens[next]));
    }
    if (at->sure_right >= 0 && right >= 0 && right < at->sure_right) {
        int next = compared_from(table, at, at->sure_right - 1, -1);
        if ((double)table->tokens[at->sure_right] > CLOSE_ENOUGH * (double)table->tokens[next])
            wish(list, at, arf_middle_of(table->tokens[next], table->tokens[at->sure_right]));
    }
}

static void wish_in_gaps(wish_list *list, const arf_segment *segments, int routes)
{
    arf_gap gaps[GAPS_AT_ONCE];
    const int count = arf_gaps(list->table, segments, routes, gaps, GAPS_AT_ONCE);
    for (int i = 0; i < count; i++) {
        const change none = {.left = gaps[i].candidate, .right = gaps[i].candidate};
        wish(list, &none, gaps[i].tokens);
    }
}

arfuse_status arf_fit_wanted(const arf_samples *samples, arf_pattern pattern,
                             const arf_fit_options *options, int64_t *tokens, int room, int *count,
                             arf_error *error)
{
    arf_table *table;
    arf_segment segments[ARF_MAX_ROUTES];
    int routes;
    *count = 0;
    ARF_TRY(find_segments(samples, pattern, options, &table, segments, &routes, error));
    wish_list list = {samples, table, tokens, 0, room};
    for (int i = 0; i + 1 < routes; i++) {
        change at = change_after(table, &segments[i]);
        wish_around(&list, &at);
    }
    if (list.count == 0)
        wish_in_gaps(&list, segments, routes);
    arf_table_free(table);
    *count = list.count;
    return ARFUSE_OK;
}
