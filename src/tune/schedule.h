/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tune will do for one shape: candidates, token counts, memory. A pure function of the
 * problem and the options, so it is equal on every rank and --dry-run lists what a run then does.
 */
#ifndef ARF_TUNE_SCHEDULE_H
#define ARF_TUNE_SCHEDULE_H

#include "rules/candidates.h"
#include "tune/options.h"

/* What a candidate is in the race for. */
typedef enum arf_origin {
    ARF_ORIGIN_DEFAULT, /* what runs where nothing was measured: always races */
    ARF_ORIGIN_SEED,
    ARF_ORIGIN_NEIGHBOUR
} arf_origin;

typedef struct arf_candidate {
    arf_plan plan;
    arf_origin origin;
    bool always;   /* stays in the race to the last point: defaults, each protocol's best guess */
    int64_t limit; /* the most tokens it is tried with: the sweep limit of its protocol */
} arf_candidate;

typedef struct arf_race { /* of one pattern */
    int count, room;
    arf_candidate *candidate; /* protocols in the order of the enum, best guess first */
} arf_race;

typedef struct arf_schedule {
    arf_problem problem;
    bool any_numerics;
    arf_tokens tokens;
    bool pattern[ARF_PATTERNS];
    arf_race race[ARF_PATTERNS];
    /* Why a protocol is not in a race; "" when it is. */
    char refused[ARF_PATTERNS][ARF_PROTOCOLS][ARF_REASON_TEXT];
    int64_t capacity[ARF_PROTOCOLS]; /* tokens that each protocol's buffers must hold */
    int64_t bytes[ARF_PROTOCOLS];    /* receive buffers of one rank at that capacity */
} arf_schedule;

/* The ladder of a device when --tokens is not given. */
void arf_schedule_ladder(arf_link link, arf_tokens *tokens);

/*
 * ARFUSE_USAGE when --set names a knob that the set lacks, or when the filters leave a pattern
 * without candidates; the message says which filter. *schedule is heap-allocated; free accepts
 * NULL.
 */
arfuse_status arf_schedule_make(const arf_problem *problem, const arf_tokens *tokens,
                                const arf_tune_options *options, arf_schedule **schedule,
                                arf_error *error);
void arf_schedule_free(arf_schedule *schedule);

/* Why --numerics any brings no candidate of the library here; NULL: it does, or was not given. */
const char *arf_schedule_lack(const arf_schedule *schedule);

/* "ll elements_per_thread=8 threads=128 ...": a candidate as messages name it; where its numerics
 * are not fixed, these first: "unfused numerics=library rms_threads=512". */
void arf_plan_text(arf_set set, arf_pattern pattern, const arf_plan *plan, char *text, int size);

/* Shape facts beside the knobs: HT's split "384x2", LL's blocks a token "6 blocks"; "" for others
 * and for sets whose plans have no such knob. */
void arf_plan_facts(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
                    char *text, int size);

/* Equal on all ranks, or they must not start. */
uint64_t arf_schedule_digest(const arf_schedule *schedule);

/* Timed points of the ladder (pattern, M), of which each times the candidates that serve M. */
int arf_schedule_points(const arf_schedule *schedule);

#endif
