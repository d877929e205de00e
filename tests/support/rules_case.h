/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that are put before the rules. */
#ifndef TESTS_SUPPORT_RULES_CASE_H
#define TESTS_SUPPORT_RULES_CASE_H

#include "rules/legal.h"

/* Top-k 10, all switches on. */
arf_problem rules_problem(arf_set set, int hidden, int ranks);

/* Sets a knob by its name. */
void rules_put(arf_set set, arf_pattern pattern, arf_plan *plan, const char *name, int32_t value);

/* The plan is refused, and the reason begins so. */
void rules_refused(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
                   const char *begins);

#endif
