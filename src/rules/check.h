/* SPDX-License-Identifier: Apache-2.0 */
/* One question of legality while it is being answered; inside src/rules only. */
#ifndef ARF_RULES_CHECK_H
#define ARF_RULES_CHECK_H

#include "rules/legal.h"

typedef struct arf_check {
    const arf_problem *problem;
    arf_capabilities can;
    arf_pattern pattern;
    const arf_plan *plan;
    bool upstream_only; /* leave out the rules that no public constructor checks */
    char *reason;       /* ARF_REASON_TEXT bytes, or NULL */
} arf_check;

/* The plan's value of a knob; `otherwise` where the set's table has no such knob. */
int32_t arf_check_knob(const arf_check *check, const char *name, int32_t otherwise);

/* Writes the reason and is false, so that a rule is one line: return arf_refuse(check, ...). */
bool arf_refuse(const arf_check *check, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A block of whole warps, at most 1024 threads. */
bool arf_check_threads(const arf_check *check, const char *name);
/* One of the zero-ended list of values. */
bool arf_check_among(const arf_check *check, const char *name, const int32_t *values);

/* All rules of HT's knobs (rules.md 4.1) on a GPU. */
bool arf_check_ht(const arf_check *check);

#endif
