/* SPDX-License-Identifier: Apache-2.0 */
/* A plan from one cell of a table (arf_plan_cell), and a tuning alone to a cell and back. */
#ifndef ARF_CLI_PLAN_TEXT_H
#define ARF_CLI_PLAN_TEXT_H

#include "base/error.h"
#include "rules/words.h"

#define ARF_PLAN_TEXT 768

/* "name=value name=value", "" where nothing is known. */
void arf_plan_tuning_text(arf_set set, arf_pattern pattern, const arf_plan *plan,
                          char text[ARF_PLAN_TEXT]);
/* The inverse: every knob of the plan's table once, in any order; "" is "not known". Refusals are
 * ARFUSE_PROFILE and name the knob. Does not judge what the values mean. */
arfuse_status arf_plan_tuning_parse(arf_set set, arf_pattern pattern, const char *text,
                                    arf_plan *plan, arf_error *error);

/* The inverse of arf_plan_cell. */
arfuse_status arf_plan_parse(arf_set set, arf_pattern pattern, const char *text, arf_plan *plan,
                             arf_error *error);

#endif
