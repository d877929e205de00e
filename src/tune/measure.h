/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One point: candidates timed side by side at one token count. Rounds are interleaved in an order
 * that is random but the same on every rank; each round keeps the maximum over the ranks. All
 * decisions but "out of time" follow from those maxima, so every rank takes them alike.
 */
#ifndef ARF_TUNE_MEASURE_H
#define ARF_TUNE_MEASURE_H

#include "profile/samples.h"
#include "tune/bench.h"
#include "tune/interval.h"

/* A candidate on its lane of one point. */
typedef struct arf_lane {
    const arf_plan *plan, *then;
    int rounds;
    double us[ARF_MAX_ROUNDS];
    int timeless;         /* timings that gave no time */
    arfuse_status status; /* other than ok: it did not run; no time counts */
    char reason[ARF_NOTE_TEXT];
} arf_lane;

/* Every wait that expires costs the wait limit (30 s): after this many of one protocol in a row, at
 * one token count, the rest of that protocol is not tried there. */
#define ARF_HOPELESS 3

typedef struct arf_effort {
    int least_rounds, most_rounds; /* most: at most ARF_MAX_ROUNDS */
    double noise_aim;              /* relative half-width of each contender's interval */
    double timing_us;              /* how long one timing lasts; 0: as long as usual */
    int calls;                     /* N of each timing, whatever that comes to; 0: by timing_us */
    double seconds;                /* rounds end when this is spent, but not before the third */
    double deadline;               /* seconds since the run began; nothing starts after it */
    int64_t first_round;           /* number of the first round, so that no two are alike */
    bool drop_lost; /* a lane that has lost clearly is timed no more once it has the fewest rounds;
                       not where lanes are compared round by round */
} arf_effort;

/* What a point came to. */
typedef struct arf_point {
    int calls;         /* N of each timing, equal for all lanes */
    bool out_of_time;  /* some lane has fewer than least_rounds: the point does not count */
    double noise;      /* widest relative half-width among the contenders */
    double drift;      /* largest change of a lane's median from the first half of its rounds to
                          the second, relative */
    arf_clocks clocks; /* behind the last round */
} arf_point;

/* ARFUSE_OK unless the bench itself is gone; lanes that failed say so themselves. */
arfuse_status arf_measure(arf_bench *bench, arf_pattern pattern, int64_t tokens, arf_lane *lane,
                          int lanes, const arf_effort *effort, arf_point *point, arf_error *error);

#endif
