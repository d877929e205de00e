/* SPDX-License-Identifier: Apache-2.0 */
/* The marks: what the numbers of a run must come to. Pure functions of those numbers. */
#ifndef TESTS_BENCH_GPU_MARKS_H
#define TESTS_BENCH_GPU_MARKS_H

#include "bench/gpu/copy.h"
#include "bench/gpu/costs.h"
#include "bench/gpu/links.h"
#include "bench/gpu/race.h"

typedef enum verdict_of_mark {
    MARK_HELD,
    MARK_MISSED,
    MARK_OPEN,    /* points that it is about were not timed: as good as missed */
    MARK_NOT_HERE /* it says nothing about this device, shape or choice of tokens */
} verdict_of_mark;

typedef struct mark {
    char name[96];
    bool aim; /* wished for, not binding */
    verdict_of_mark verdict;
    char figure[256]; /* what was found, where, and what is demanded */
} mark;

#define MOST_MARKS 32

typedef struct marks {
    int count;
    mark of[MOST_MARKS];
} marks;

typedef struct run_of_marks {
    const race *race;
    const arf_problem *problem;
    const copy_speeds *copy;
    const link_speed *links;
    const char *no_composition; /* why NCCL does not serve; "": it does */
    const host_costs *costs;
    const race_pair *pair;
    int ranks_here; /* of one GPU */
    int processes;
    bool gpu;  /* false: what is said of a GPU alone says nothing here */
    bool host; /* times of the host device are no measure of anything */
} run_of_marks;

/* Microseconds of the floor of what was timed at a row; NaN when not known. */
double floor_of_time(const run_of_marks *run, const race_row *row, const race_time *time);

void judge_marks(const run_of_marks *run, marks *all);
const char *mark_verdict_name(verdict_of_mark verdict);
/* True when a binding mark does not hold, or could not be judged for lack of time. */
bool marks_missed(const marks *all);

#endif
