/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tunings that the benchmark tries of each protocol: what runs by the routes, by default, and
 * either the fastest that a profile's samples know or the first of the rule engine's seeds. A pure
 * function, so it is equal on all ranks.
 */
#ifndef TESTS_BENCH_GPU_ENTRANTS_H
#define TESTS_BENCH_GPU_ENTRANTS_H

#include "profile/samples.h"
#include "rules/candidates.h"
#include "tune/sides.h"

typedef struct entrants {
    arf_plans of[ARF_PATTERNS][ARF_PROTOCOLS];
    int64_t limit[ARF_PATTERNS][ARF_PROTOCOLS]; /* tokens: 0: none is tried */
    int count;
} entrants;

/* `samples` may be NULL. `most` tokens are the last of the ladder. */
void entrants_make(const arf_problem *problem, const arf_side *routed, const arf_samples *samples,
                   int64_t most, entrants *all);

#endif
