/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples to routes: the segmentation of the token axis that minimises weighted
 * log-regret against the best candidate at each M, with a price per extra route.
 * Pure and deterministic: equal samples, equal routes. Knows nothing of devices.
 */
#ifndef ARF_FIT_FIT_H
#define ARF_FIT_FIT_H

#include "profile/samples.h"

/* Real token counts and how often each occurred; NULL weights: equal weight per octave. */
typedef struct arf_weights {
    int count;
    int64_t *tokens; /* ascending */
    double *weight;
} arf_weights;

typedef struct arf_fit_options {
    double route_price;    /* log-regret that an extra route must save; see fit.c for the default */
    double repeat; /* half-width of the 95 % interval by which one time differs from run to run,
                      relative, which no spread inside a run shows; see fit.c for the default */
    arf_numerics numerics; /* the weakest allowed */
    const arf_weights *weights;
    uint64_t seed; /* of the bootstrap intervals */
} arf_fit_options;
#define ARF_FIT_OPTIONS_INIT             \
    {                                    \
        0.0005, 0.01, ARF_FIXED, NULL, 1 \
    }

typedef struct arf_fit_result {
    arf_routes routes;
    arf_route_evidence evidence[ARF_MAX_ROUTES];
    double noise;          /* median relative half-width of the samples' intervals */
    double regret_geomean; /* over the fitted points, in-sample */
    double regret_max;
} arf_fit_result;

/* Fails with ARFUSE_NOT_SERVED when the samples have no route (none of the pattern was timed, or at
 * some M all failed), with ARFUSE_USAGE when no weight falls on the measured range and with
 * ARFUSE_FAILURE when memory is out. A bound's interval is the pair of
 * measured points between which the faster plan is clear beyond the noise, of this run and from run
 * to run: [12, 13] is exact. The rules are in README.md. */
arfuse_status arf_fit(const arf_samples *samples, arf_pattern pattern,
                      const arf_fit_options *options, arf_fit_result *result, arf_error *error);

/* Both patterns into a whole profile with evidence; the profile is the caller's. As arf_fit, but
 * ARFUSE_FAILURE also when there is no route. */
arfuse_status arf_fit_profile(const arf_samples *samples, const arf_fit_options *options,
                              arf_profile **profile, arf_error *error);

/*
 * Where another measurement would help, most urgent first. Bounds come first: token counts strictly
 * inside intervals of neighbouring points whose winners differ. Once all are exact or inside the
 * noise: gaps inside routes where a rival may be ahead unseen (gaps.c). *count is how many were
 * written; 0: nothing is left in doubt. Fails as arf_fit.
 */
arfuse_status arf_fit_wanted(const arf_samples *samples, arf_pattern pattern,
                             const arf_fit_options *options, int64_t *tokens, int room, int *count,
                             arf_error *error);

/* True where a plan need not be measured at `tokens`: by what it took at the nearest token counts
 * on both sides that it was timed at, it cannot be within 15 % of the best there (gaps.c). */
bool arf_fit_lost(const arf_samples *samples, arf_pattern pattern, const arf_plan *plan,
                  int64_t tokens);

/* ---- judging routes at token counts that no fit has seen ----------------------------------------
 */

/*
 * Up to `count` distinct token counts, drawn by `seed` evenly over log M in the range that the
 * pattern's samples span, none of which has a sample of the pattern. Ascending; returns how many
 * (less where the range has no more).
 */
int arf_holdout_tokens(const arf_samples *samples, arf_pattern pattern, uint64_t seed,
                       int64_t *tokens, int count);

typedef struct arf_regret {
    double geomean, worst; /* relative: 0.01 is 1 % slower than the best candidate at that M */
    int64_t worst_tokens;
    int points;
} arf_regret;

/*
 * What `routes` lose at the points of `held_out` against the best candidate there. The best is
 * chosen on every other round and judged by the rest, and the other way round, so that noise is not
 * counted as regret; the geometric mean may therefore come out a little below 0. Points without a
 * time of the route's plan do not count. Fails with ARFUSE_FAILURE when none does.
 */
arfuse_status arf_regret_of(const arf_samples *held_out, arf_pattern pattern,
                            const arf_routes *routes, arf_regret *regret, arf_error *error);

/* "tokens,count" a line, one count a line, or the runtime's histogram dump. */
arfuse_status arf_weights_load(const char *path, arf_weights *weights, arf_error *error);
arfuse_status arf_weights_parse(const char *name, const char *text, size_t bytes,
                                arf_weights *weights, arf_error *error);
void arf_weights_free(arf_weights *weights);

#endif
