/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One shape from candidates to samples: verify, screen, ladder, refine. What comes out is in the
 * store; what the exit code and the last lines need is counted here.
 */
#ifndef ARF_TUNE_SWEEP_H
#define ARF_TUNE_SWEEP_H

#include "fit/fit.h"
#include "tune/bench.h"
#include "tune/store.h"

typedef struct arf_sweep {
    int wrong, failed; /* candidates excluded; those that failed to run somewhere, and
                          protocols whose buffers could not be had in full */
    arf_tokens unmeasured[ARF_PATTERNS]; /* of the ladder: what the budget did not reach */
    int noisy;                           /* points that missed the noise aim */
    double worst_noise, worst_drift;
    int straggler;                   /* the team rank that was far behind most of the time, or -1 */
    double clock_change;             /* how much slower the same call became, relative */
    arf_regret regret[ARF_PATTERNS]; /* at token counts that the fit has not seen; 0 points: none */
    int verified, timed;             /* candidates; points */
    int rounded;     /* of the verified: to rounding, their numerics are not fixed */
    int64_t timings; /* timed graphs or loops, all candidates and rounds */
} arf_sweep;

/*
 * Collective. `deadline` is in seconds since the run began. Fails only when nothing can go on;
 * candidates that are wrong or fail are counted and said, not errors.
 */
arfuse_status arf_sweep_run(arf_bench *bench, const arf_schedule *schedule, arf_store *store,
                            const arf_fit_options *fit, double deadline, arf_sweep *sweep,
                            arf_error *error);

#endif
