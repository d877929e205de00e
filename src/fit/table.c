/* SPDX-License-Identifier: Apache-2.0 */
#include "fit/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"
#include "fit/stats.h"
#include "rules/knobs.h"

/* A weight that no histogram gives: it decides only where the histogram has nothing to say. */
#define FAINT 1e-6

static int away_from_fallback(const arf_knob_table *table, const arf_plan *plan)
{
    int away = 0;
    for (int i = 0; i < table->count; i++)
        away += plan->tuning.value[i] != table->knob[i].fallback;
    return away;
}

int arf_plan_order(arf_set set, arf_pattern pattern, const arf_plan *a, const arf_plan *b)
{
    if (a->protocol != b->protocol)
        return (int)a->protocol - (int)b->protocol;
    if (a->numerics != b->numerics)
        return (int)a->numerics - (int)b->numerics;
    if (a->transport != b->transport)
        return (int)a->transport - (int)b->transport;
    if (a->tuning_null || b->tuning_null)
        return (int)b->tuning_null - (int)a->tuning_null;
    const arf_knob_table *table = arf_knobs(set, a->protocol, pattern);
    int away_a = away_from_fallback(table, a), away_b = away_from_fallback(table, b);
    if (away_a != away_b)
        return away_a - away_b;
    for (int i = 0; i < table->count; i++) {
        int32_t x = a->tuning.value[i], y = b->tuning.value[i];
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

/* ---- gathering --------------------------------------------------------------------------------
 */

/* A sample on its way into the table. */
typedef struct entry {
    const arf_sample *sample;
    arf_set set;
    bool timed;
} entry;

static int entry_order(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    int order = arf_plan_order(a->set, a->sample->pattern, &a->sample->plan, &b->sample->plan);
    if (order != 0)
        return order;
    return a->sample->tokens < b->sample->tokens ? -1 : a->sample->tokens > b->sample->tokens;
}

static bool is_wrong(const arf_samples *samples, arf_pattern pattern, const arf_plan *plan)
{
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *other = &samples->sample[i];
        if (other->outcome == ARF_SAMPLE_WRONG && other->pattern == pattern &&
            arf_plan_equal(samples->header.set, pattern, &other->plan, plan))
            return true;
    }
    return false;
}

static bool is_timed(const arf_sample *sample)
{
    if (sample->outcome != ARF_SAMPLE_TIMED)
        return false;
    for (int i = 0; i < sample->rounds; i++)
        if (isfinite(sample->us[i]) && sample->us[i] > 0.0)
            return true;
    return false;
}

static bool same_plan(const entry *a, const entry *b)
{
    return arf_plan_order(a->set, a->sample->pattern, &a->sample->plan, &b->sample->plan) == 0;
}

/* Samples that may take part, in table order. Returns their number. */
static int gather(const arf_samples *samples, arf_pattern pattern, arf_numerics weakest,
                  entry *entries)
{
    int count = 0;
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *sample = &samples->sample[i];
        if (sample->pattern != pattern || sample->outcome == ARF_SAMPLE_WRONG ||
            sample->plan.numerics > weakest || sample->tokens < 1)
            continue;
        if (sample->has_then && sample->then.numerics > weakest)
            continue;
        if (is_wrong(samples, pattern, &sample->plan) ||
            (sample->has_then && is_wrong(samples, ARF_ALLREDUCE, &sample->then)))
            continue;
        entries[count++] = (entry){sample, samples->header.set, is_timed(sample)};
    }
    qsort(entries, (size_t)count, sizeof *entries, entry_order);
    return count;
}

static int token_order(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static int point_of(const arf_table *table, int64_t tokens)
{
    int low = 0, high = table->points;
    while (low < high) {
        int mid = (low + high) / 2;
        if (table->tokens[mid] < tokens)
            low = mid + 1;
        else
            high = mid;
    }
    return low; /* the first point at or above */
}

/* Points and candidates from the entries. */
static void lay_out(arf_table *table, const entry *entries, int count)
{
    int tokens = 0;
    for (int i = 0; i < count; i++)
        if (entries[i].timed)
            table->tokens[tokens++] = entries[i].sample->tokens;
    qsort(table->tokens, (size_t)tokens, sizeof *table->tokens, token_order);
    for (int i = 0; i < tokens; i++)
        if (table->points == 0 || table->tokens[table->points - 1] != table->tokens[i])
            table->tokens[table->points++] = table->tokens[i];
    for (int i = 0; i < count; i++)
        if (i == 0 || !same_plan(&entries[i - 1], &entries[i]))
            table->plan[table->candidates++] = entries[i].sample->plan;
}

/* ---- cells ------------------------------------------------------------------------------------
 */

static uint64_t cell_seed(uint64_t seed, const entry *from)
{
    const arf_sample *sample = from->sample;
    uint64_t hash = arf_hash_number(ARF_HASH_INIT, (int64_t)seed);
    hash = arf_hash_number(hash, sample->pattern);
    hash = arf_hash_number(hash, sample->tokens);
    hash = arf_hash_number(hash, sample->plan.protocol);
    const arf_knob_table *knobs = arf_knobs(from->set, sample->plan.protocol, sample->pattern);
    for (int i = 0; i < knobs->count; i++)
        hash = arf_hash_number(hash, sample->plan.tuning.value[i]);
    return arf_mix(hash);
}

static void note_failure(arf_cell *cell, int64_t tokens)
{
    if (!cell->cut || tokens < cell->first_failure)
        cell->first_failure = tokens;
    if (!cell->cut || tokens > cell->last_failure)
        cell->last_failure = tokens;
    cell->cut = true;
}

static void fill_cells(arf_table *table, const entry *entries, int count, uint64_t seed)
{
    int candidate = -1;
    for (int i = 0; i < count; i++) {
        const arf_sample *sample = entries[i].sample;
        if (i == 0 || !same_plan(&entries[i - 1], &entries[i]))
            candidate++;
        int point = point_of(table, sample->tokens);
        if (point == table->points)
            continue; /* failed above everything that was timed */
        arf_cell *cell = &table->cell[(size_t)candidate * (size_t)table->points + (size_t)point];
        arf_estimate estimate;
        if (sample->outcome == ARF_SAMPLE_FAILED)
            note_failure(cell, sample->tokens);
        else if (entries[i].timed && arf_estimate_median(sample->us, sample->rounds,
                                                         cell_seed(seed, &entries[i]), &estimate)) {
            cell->measured = true;
            cell->log_us = log(estimate.median);
            cell->noise = arf_estimate_noise(&estimate);
        }
    }
}

/*
 * A candidate that was dropped between two points where it was measured is taken to lie on the
 * chord between them in log time over log M. Times are convex there (a floor plus a slope), so a
 * chord lies above the truth: it can carry a route across a gap but will not win one.
 */
static void draw_chords(arf_table *table)
{
    for (int c = 0; c < table->candidates; c++) {
        arf_cell *row = &table->cell[(size_t)c * (size_t)table->points];
        int last = -1;
        for (int p = 0; p < table->points; p++) {
            if (row[p].cut)
                last = -1;
            if (!row[p].measured)
                continue;
            row[p].known = true;
            for (int q = last + 1; last >= 0 && q < p; q++) {
                double share = log((double)table->tokens[q] / (double)table->tokens[last]) /
                               log((double)table->tokens[p] / (double)table->tokens[last]);
                row[q].known = true;
                row[q].log_us = row[last].log_us + share * (row[p].log_us - row[last].log_us);
                row[q].noise = fmax(row[last].noise, row[p].noise);
            }
            last = p;
        }
    }
    for (int p = 0; p < table->points; p++) {
        table->best[p] = INFINITY;
        for (int c = 0; c < table->candidates; c++) {
            const arf_cell *cell = arf_table_cell(table, c, p);
            if (cell->measured)
                table->best[p] = fmin(table->best[p], cell->log_us);
        }
    }
}

/* ---- weights ----------------------------------------------------------------------------------
 */

/*
 * Every token count belongs to the measured point nearest in log M. By default M weighs
 * log2((M + 1) / M), so that each octave weighs one however many points it has; else a point weighs
 * what the histogram says about its token counts (those below the first point are its own, since
 * the first route serves them).
 */
static arfuse_status weigh(arf_table *table, const arf_weights *histogram, arf_error *error)
{
    int64_t low = table->tokens[0], last = table->tokens[table->points - 1];
    double octaves = log2((double)(last + 1) / (double)low), counted = 0.0;
    for (int i = 0; histogram != NULL && i < histogram->count; i++)
        if (histogram->tokens[i] >= 1 && histogram->tokens[i] <= last)
            counted += histogram->weight[i];
    if (histogram != NULL && !(counted > 0.0))
        return arf_fail(error, ARFUSE_USAGE,
                        "the weights have no token count from 1 to %lld, which is what was "
                        "measured",
                        (long long)last);
    int next = 0;
    for (int p = 0; p < table->points; p++) {
        int64_t high = table->tokens[p];
        if (p + 1 < table->points)
            high = (int64_t)sqrt((double)table->tokens[p] * (double)table->tokens[p + 1]);
        double by_octave = log2((double)(high + 1) / (double)low) / octaves, by_count = 0.0;
        low = high + 1;
        if (histogram == NULL) {
            table->weight[p] = by_octave;
            continue;
        }
        for (; next < histogram->count && histogram->tokens[next] <= high; next++)
            if (histogram->tokens[next] >= 1)
                by_count += histogram->weight[next];
        table->weight[p] = (by_count / counted + FAINT * by_octave) / (1.0 + FAINT);
    }
    return ARFUSE_OK;
}

/* ---- the whole --------------------------------------------------------------------------------
 */

void arf_table_free(arf_table *table)
{
    if (table == NULL)
        return;
    free(table->tokens);
    free(table->weight);
    free(table->best);
    free(table->plan);
    free(table->cell);
    free(table);
}

static bool any_timed(const entry *entries, int count)
{
    for (int i = 0; i < count; i++)
        if (entries[i].timed)
            return true;
    return false;
}

arfuse_status arf_table_create(const arf_samples *samples, arf_pattern pattern,
                               const arf_fit_options *options, arf_table **table, arf_error *error)
{
    size_t room = samples->count > 0 ? (size_t)samples->count : 1;
    entry *entries = malloc(room * sizeof *entries);
    arf_table *made = calloc(1, sizeof *made);
    arfuse_status status = ARFUSE_OK;
    if (entries == NULL || made == NULL)
        goto out_of_memory;
    made->set = samples->header.set;
    made->pattern = pattern;
    made->repeat = options->repeat;

    int count = gather(samples, pattern, options->numerics, entries);
    if (!any_timed(entries, count)) {
        status = arf_fail(error, ARFUSE_NOT_SERVED,
                          "%s: no timed sample may become a route (%d samples, all wrong, failed, "
                          "of another pattern or of numerics weaker than \"%s\")",
                          arf_pattern_name(pattern), samples->count,
                          arf_numerics_name(options->numerics));
        goto done;
    }
    made->tokens = malloc(room * sizeof *made->tokens);
    made->plan = malloc(room * sizeof *made->plan);
    if (made->tokens == NULL || made->plan == NULL)
        goto out_of_memory;
    lay_out(made, entries, count);
    made->weight = calloc((size_t)made->points, sizeof *made->weight);
    made->best = calloc((size_t)made->points, sizeof *made->best);
    made->cell = calloc((size_t)made->points * (size_t)made->candidates, sizeof *made->cell);
    if (made->weight == NULL || made->best == NULL || made->cell == NULL)
        goto out_of_memory;
    fill_cells(made, entries, count, options->seed);
    draw_chords(made);
    status = weigh(made, options->weights, error);
    goto done;

out_of_memory:
    status = arf_fail(error, ARFUSE_FAILURE, "out of memory while tabulating samples");
done:
    free(entries);
    if (status == ARFUSE_OK)
        *table = made;
    else
        arf_table_free(made);
    return status;
}
