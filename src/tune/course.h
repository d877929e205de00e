/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The course of one pattern: what its stages (verify, screen, ladder, refine, judge) share, and the
 * steps that all of them take.
 */
#ifndef ARF_TUNE_COURSE_H
#define ARF_TUNE_COURSE_H

#include "tune/anchor.h"
#include "tune/field.h"
#include "tune/measure.h"
#include "tune/sweep.h"

/* Enough for a 95 % interval of a median within 1 % where single rounds spread by 2.5 %; and a
 * samples file of 2 MiB holds this many rounds of some thirty candidates at thirty points. */
#define ARF_MOST_ROUNDS 48

typedef struct arf_course {
    arf_bench *bench;
    const arf_schedule *schedule;
    arf_store *store;
    const arf_fit_options *fit;
    arf_sweep *sweep;
    arf_field field;
    double start, deadline; /* of this pattern, in seconds since the run began */
    double last;            /* the deadline of the shape: of the pattern that comes last */
    int done, total;        /* points, for the progress lines */
    arf_lane *lane;         /* [field.count] */
    int *who;               /* [field.count] entrant on each lane */
    arf_anchor *anchor;     /* of all patterns */
} arf_course;

/* When a share of the pattern's time is over, in seconds since the run began. What a stage leaves
 * over, the later ones have. */
double arf_course_share(const arf_course *s, double fraction);
/* Rank 0's clock; nothing is begun behind a deadline. */
arfuse_status arf_course_left(arf_course *s, double deadline, double *left, arf_error *error);

/* Puts the entrants that race at `tokens` on lanes; `protocol` ARF_PROTOCOLS: all. Returns how
 * many. */
int arf_course_line_up(arf_course *s, int64_t tokens, arf_protocol protocol);
/* Puts who stands on lane `from` on lane `to`. */
void arf_course_move(arf_course *s, int from, int to);
/* Closes the ranks of the lanes that may be near the best at `tokens` by the samples around it, so
 * that points between others cost no time of those that have lost. Returns how many. */
int arf_course_leave_lost(arf_course *s, int64_t tokens, int lanes);
/* Times the lanes, and then the anchor. */
arfuse_status arf_course_measure(arf_course *s, int64_t tokens, int lanes, const arf_effort *effort,
                                 arf_point *point, arf_error *error);
/* A lane that failed at `tokens` is not tried there or above again. */
void arf_course_note_failures(arf_course *s, int64_t tokens, int lanes);
/* The lanes of a point as samples, which borrow the rounds. */
void arf_course_samples(const arf_course *s, int64_t tokens, int lanes, const arf_point *point,
                        arf_sample *sample);

/* Leaves the fastest of each protocol in the race (screen.c). */
arfuse_status arf_screen(arf_course *s, double deadline, arf_error *error);
/* What the routes lose at token counts that no fit has seen (judge.c). */
arfuse_status arf_judge(arf_course *s, arf_error *error);

#endif
