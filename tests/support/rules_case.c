/* SPDX-License-Identifier: Apache-2.0 */
#include "support/rules_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rules/knobs.h"

arf_problem rules_problem(arf_set set, int hidden, int ranks)
{
    return (arf_problem){.set = set, .shape = {ranks, hidden, 10, ARF_ON, ARF_ON, ARF_ON}};
}

void rules_put(arf_set set, arf_pattern pattern, arf_plan *plan, const char *name, int32_t value)
{
    int index = arf_knob_index(arf_knobs(set, plan->protocol, pattern), name);
    assert_true(index >= 0);
    plan->tuning.value[index] = value;
}

void rules_refused(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
                   const char *begins)
{
    char reason[ARF_REASON_TEXT] = "";
    assert_false(arf_legal(problem, pattern, plan, reason));
    if (strncmp(reason, begins, strlen(begins)) != 0)
        fail_msg("reason \"%s\" does not begin with \"%s\"", reason, begins);
}
