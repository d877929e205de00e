/* SPDX-License-Identifier: Apache-2.0 */
/* What candidates.c and seeds.c share; inside src/rules only. */
#ifndef ARF_RULES_SEEDS_H
#define ARF_RULES_SEEDS_H

#include "rules/candidates.h"

/* The largest published LL bound, and the largest published BT bound where HT exists (FlashInfer
 * pull request 5178). */
#define ARF_LL_SWEEP 64
#define ARF_BT_SWEEP 2048

/* Appends a plan that is legal and not there yet; silently full at ARF_MAX_CANDIDATES. */
void arf_plans_add(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
                   arf_plans *plans);

/* The best guess of a protocol; false when it is not reachable. */
bool arf_first_seed(const arf_problem *problem, arf_pattern pattern, arf_protocol protocol,
                    arf_plan *plan);

/* The best guess for calls of many tokens, from arf_many_from on; false when none is known, or none
 * is legal, that differs from the best guess for few. */
int64_t arf_many_from(arf_pattern pattern, arf_protocol protocol); /* of LL and BT */
bool arf_many_seed(const arf_problem *problem, arf_pattern pattern, arf_protocol protocol,
                   arf_plan *plan);

#endif
