/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The samples of one pattern as a table of candidates by token counts, which is
 * all that the fit looks at. Candidates and points stand in a fixed order, so the
 * order of the samples file has no influence.
 */
#ifndef ARF_FIT_TABLE_H
#define ARF_FIT_TABLE_H

#include "fit/fit.h"

typedef struct arf_cell {
    bool measured; /* timed here */
    bool known;    /* measured, or between two points where it was: then log_us is their chord */
    /* It failed at an M above the previous point, up to this one: no route of its passes here, and
     * one that ends or begins here keeps the failures outside. */
    bool cut;
    int64_t first_failure, last_failure;
    double log_us; /* of the median */
    double
        noise; /* half-width of its 95 % interval, relative; of a chord: the larger of its ends */
} arf_cell;

typedef struct arf_table {
    int points;
    int64_t *tokens; /* [points], ascending: every M with a timed sample */
    double *weight;  /* [points], sum 1 */
    double *best;    /* [points] the smallest measured log_us */
    int candidates;
    arf_plan *plan; /* [candidates] in arf_plan_order order */
    arf_cell *cell; /* [candidates * points] */
    arf_set set;
    arf_pattern pattern;
    double repeat; /* as asked (fit.h) */
} arf_table;

/*
 * Who is eligible: timed, within the allowed numerics, right wherever it was verified (one wrong
 * result anywhere excludes the plan, and separate samples that ran it behind them). Fails with
 * ARFUSE_NOT_SERVED when nothing is eligible, with ARFUSE_USAGE when no weight falls on the
 * measured range and with ARFUSE_FAILURE when memory is out.
 */
arfuse_status arf_table_create(const arf_samples *samples, arf_pattern pattern,
                               const arf_fit_options *options, arf_table **table, arf_error *error);
void arf_table_free(arf_table *table);

static inline const arf_cell *arf_table_cell(const arf_table *table, int candidate, int point)
{
    return &table->cell[(size_t)candidate * (size_t)table->points + (size_t)point];
}

/* log(time of a / time of b), of what is known at the point. */
static inline double arf_table_lead(const arf_table *table, int a, int b, int point)
{
    return arf_table_cell(table, a, point)->log_us - arf_table_cell(table, b, point)->log_us;
}

/*
 * The order that settles ties: protocol, then numerics, transport, the number of knobs away from
 * the table's fallback, and the values. Negative: a before b.
 */
int arf_plan_order(arf_set set, arf_pattern pattern, const arf_plan *a, const arf_plan *b);

#endif
