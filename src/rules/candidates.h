/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be tried, and what is used when nothing was measured: seeds,
 * one-knob neighbours, and default routes. Pure functions of the problem.
 */
#ifndef ARF_RULES_CANDIDATES_H
#define ARF_RULES_CANDIDATES_H

#include "rules/legal.h"

/* At most a few hundred candidates a protocol (design section 8). */
#define ARF_MAX_CANDIDATES 512

typedef struct arf_plans {
    int count;
    arf_plan plan[ARF_MAX_CANDIDATES];
} arf_plans;

/*
 * The legal plans worth timing first, best guess first, without duplicates (rules.md section 8;
 * sources of each seed beside it in the code). Empty when the protocol is not reachable.
 */
void arf_seeds(const arf_problem *problem, arf_pattern pattern, arf_protocol protocol,
               arf_plans *seeds);

/* Every legal plan that differs from `plan` in one knob by one step of that knob's ladder. */
void arf_neighbours(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
                    arf_plans *neighbours);

/*
 * Routes for a shape that nobody measured: LL, BT and HT as far as they are reachable, closing at
 * min(capacity, 8192) (design section 7). Where HT is missing, for the shape or on the device
 * (problem->lacks), BT takes its range: by the floors of design section 4 it moves less memory than
 * unfused, 9.1 to 12 bytes of a byte at 8 ranks, and as much over links. The price is its mailbox,
 * some 6 C H values a rank. LL and BT have a second tuning for many tokens where one is known.
 * Bounds are the rule's own guess, said to be one by `method: "default"`.
 */
void arf_default_routes(const arf_problem *problem, arf_pattern pattern, int64_t capacity,
                        arf_routes *routes);

/* The largest M that a sweep of this protocol should try, so that its mailbox stays bounded
 * (rules.md section 8: LL 64, BT 2048 where HT exists, else no limit of its own). */
int64_t arf_sweep_limit(const arf_problem *problem, arf_pattern pattern, arf_protocol protocol);

#endif
