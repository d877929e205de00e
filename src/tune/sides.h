/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What --ab and --check put side by side: routes from a profile file, the default routes, or
 * unfused at every token count. A side answers which plan runs at M, as the runtime would.
 */
#ifndef ARF_TUNE_SIDES_H
#define ARF_TUNE_SIDES_H

#include "tune/bench.h"
#include "tune/measure.h"
#include "tune/tuner.h"

typedef struct arf_side {
    const char *name; /* as the user wrote it; not copied */
    arf_routes routes[ARF_PATTERNS];
} arf_side;

/* A profile as a side; it must be of this team and device (ARFUSE_PROFILE, which names what
 * differs). */
arfuse_status arf_side_of_profile(const arf_tuner *tuner, const char *name,
                                  const arf_profile *profile, arf_side *side, arf_error *error);
/* "default" or "unfused" for a problem, up to `most` tokens. */
arfuse_status arf_side_named(const char *name, const arf_problem *problem, int64_t most,
                             arf_side *side, arf_error *error);

/* The lane that the side runs at `tokens`: false when it serves them by no route. */
bool arf_side_lane(const arf_side *side, arf_pattern pattern, int64_t tokens, arf_lane *lane);

/* A bench that has room for all sides at these token counts. */
arfuse_status arf_sides_bench(const arf_tuner *tuner, const arf_problem *problem,
                              const arf_tokens *tokens, const arf_side *side, int sides,
                              arf_bench *bench, arf_error *error);

/* Checks a lane's results before its times count. ARFUSE_WRONG_RESULT names the plan. */
arfuse_status arf_sides_verify(arf_bench *bench, arf_pattern pattern, int64_t tokens,
                               const arf_lane *lane, arf_error *error);

/* a / b round by round: median and its interval. Both lanes took part in every round. */
typedef struct arf_ratio {
    double median, low, high;
} arf_ratio;
arf_ratio arf_lane_ratio(const arf_lane *a, const arf_lane *b);

#endif
