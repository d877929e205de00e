/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The race: at each point (pattern, M) the fastest tuning of each protocol and what the routes say,
 * timed side by side by the tuner's own rounds (tune/measure.h). Results are equal on all ranks.
 */
#ifndef TESTS_BENCH_GPU_RACE_H
#define TESTS_BENCH_GPU_RACE_H

#include "bench/gpu/entrants.h"

/* Replays of each candidate's graph: the marks ask for the median of so many. */
#define RACE_ROUNDS 20

/* What one plan took. */
typedef struct race_time {
    bool timed;
    arf_plan plan, then; /* `then`: behind a separate finalize */
    double us;           /* median over rounds of the slowest rank */
    int rounds;
} race_time;

/* Forms of the NCCL composition (composition.h): the contract's bits by grouped send and receive,
 * the tree's sum and an all-gather; sums of the library by ncclAllReduce. */
typedef enum composed_form { COMPOSED_FIXED, COMPOSED_LIBRARY, COMPOSED_FORMS } composed_form;

typedef struct race_row {
    arf_pattern pattern;
    int64_t tokens;
    bool ladder; /* every protocol, candidates screened; else the routes and rivals */
    bool timed;  /* false: the time was spent before */
    int calls;   /* in a graph */
    race_time best[ARF_PROTOCOLS]; /* the fastest tuning of each */
    race_time routed;
    race_time composed[COMPOSED_FORMS]; /* at ladder points where NCCL serves */
    /* routed / best by the rounds' pairs, with its 95 % interval; 1 where the same plan runs; NaN
     * where either was not timed. */
    arf_ratio ratio[ARF_PROTOCOLS];
} race_row;

/* Ladder, bounds and seeds; more are not taken up. */
#define RACE_MOST_ROWS 1024

typedef struct race {
    arf_bench *bench;
    struct composition *composed; /* NULL: NCCL does not serve */
    const arf_problem *problem;
    const entrants *all;
    const arf_side *routed;
    const bool *wanted; /* [ARF_PROTOCOLS]: the others run only where the routes say so */
    int calls;          /* N of every graph; 0: chosen by the tuner */
    double deadline;    /* seconds since the run began */
    int count;
    race_row row[RACE_MOST_ROWS]; /* in the order of their turn */
    int wrong, failed;            /* candidates with other bits; candidates that did not run */
} race;

/*
 * The points, without duplicates: the ladder in an order that covers it coarsely first; each bound
 * of the routes and the next token count; finalize at 1 to 16; `seeded` more token counts, by the
 * seed.
 */
void race_points(race *r, const arf_tokens *ladder, const bool pattern[ARF_PATTERNS], int seeded,
                 uint64_t seed);

/*
 * Calls of two token counts by turns in one graph, against each alone: microseconds of one of each,
 * medians of RACE_ROUNDS. LL moves no more than each call's own rows, so the sum is what the pair
 * takes. NaN where LL was not timed at both.
 */
typedef struct race_pair {
    int64_t few, many;
    double apart, together;
} race_pair;
arfuse_status race_alternate(const race *r, int64_t few, int64_t many, race_pair *pair,
                             arf_error *error);

/* Collective. Points that the deadline leaves out stay untimed. An error: the bench is gone. */
arfuse_status race_run(race *r, arf_error *error);

#endif
