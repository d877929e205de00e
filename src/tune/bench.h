/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bench: one shape's buffers and trial data on the device, on which candidates are checked and
 * timed. Every function is collective; every rank leaves with the same status and message, so that
 * all of them go on or all give a candidate up. A space that a candidate has broken (a wait that
 * expired) is made anew before the next one.
 */
#ifndef ARF_TUNE_BENCH_H
#define ARF_TUNE_BENCH_H

#include "device/trial.h"
#include "tune/clocks.h"
#include "tune/schedule.h"
#include "tune/tuner.h"

/* Plans with a larger id are voted on each time, which is only slower. */
#define ARF_READY_PLANS 4096

typedef struct arf_bench {
    const arf_tuner *tuner;
    arf_set set;
    arf_space_spec spec;
    arf_space *space;
    bool ready[ARF_READY_PLANS]; /* by plan id: voted ready on every rank, in this space */
    int64_t timings, straggles[ARF_MAX_RANKS]; /* by team rank: timings in which it was the slowest,
                                                  far behind the fastest */
    arf_clock_watch clocks;                    /* of all points */
    int curtailed;       /* protocols whose buffers had to be smaller than the schedule wants */
    int64_t most_tokens; /* of the timing trial */
    arf_trial *timing;   /* NULL on a device that computes nothing */
    arf_trial *check[ARF_TRIAL_KINDS];
} arf_bench;

/*
 * Makes the space at the schedule's capacities. Where a protocol's buffers cannot be had, its
 * capacity is halved until they can, down to 0; where all cannot be had together, that of the
 * largest. `spec.capacity` says what it came to, a warning why.
 */
arfuse_status arf_bench_open(const arf_tuner *tuner, const arf_schedule *schedule, arf_bench *bench,
                             arf_error *error);
/* The capacities that it would come to, with the same warnings. A device that can tell is asked, so
 * that no memory is touched; on another a space is made and dropped. */
arfuse_status arf_bench_capacities(const arf_tuner *tuner, const arf_schedule *schedule,
                                   int64_t capacity[ARF_PROTOCOLS], arf_error *error);
/* Says what was wrong with the clocks. */
void arf_bench_close(arf_bench *bench);

/* Makes what preparing these plans needs, all at once where the device can. A plan that fails
 * fails when it is used. */
arfuse_status arf_bench_precompile(arf_bench *bench, arf_pattern pattern,
                                   const arf_plan *const *plan, int count, arf_error *error);

/* A plan of a pattern; `then` is the allreduce plan behind a separate finalize, else NULL.
 * `other_policy`: timed under the policy that --policy does not name. */
typedef struct arf_run {
    arf_pattern pattern;
    const arf_plan *plan, *then;
    int64_t tokens;
    bool other_policy;
} arf_run;
/* The weaker of both plans'. */
arf_numerics arf_run_numerics(const arf_run *run);

/*
 * Runs once on fresh trial data and compares with the reference, as the run's numerics allow
 * (arf_trial_check_numerics). ARFUSE_WRONG_RESULT: the plan is wrong. Any other
 * failure: it did not run. `fatal` is set when the bench itself is gone.
 */
arfuse_status arf_bench_verify(arf_bench *bench, const arf_run *run, arf_trial_kind kind,
                               bool *fatal, arf_error *error);

/* The same on the timing trial, which is as large as the sweep: for few calls, since the reference
 * is computed for all their tokens. */
arfuse_status arf_bench_confirm(arf_bench *bench, const arf_run *run, bool *fatal,
                                arf_error *error);

/* Microseconds a call, maximum over all ranks, equal on all. Not above 0, or infinite, where a
 * clock gave none. */
arfuse_status arf_bench_time(arf_bench *bench, const arf_run *run, int calls, int64_t round,
                             double *us, bool *fatal, arf_error *error);

/* The same of `runs` runs, of one pattern and policy, that take turns: at most ARF_MIXED_RUNS. */
#define ARF_MIXED_RUNS 8
arfuse_status arf_bench_time_mixed(arf_bench *bench, const arf_run *run, int runs, int calls,
                                   int64_t round, double *us, bool *fatal, arf_error *error);

/* The team rank that straggled in most timings, -1: none. Ranks wait for each other in every call,
 * so one that is far behind all the time has a slow link, clock or neighbour of its own. */
int arf_bench_straggler(const arf_bench *bench);

/* Tokens of the trials that verification uses: at most this many. */
#define ARF_VERIFY_TOKENS 19

#endif
