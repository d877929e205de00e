/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of one shape from several files made into one list. */
#ifndef ARF_CLI_COMBINE_H
#define ARF_CLI_COMBINE_H

#include <argp.h>

#include "profile/samples.h"

/* What becomes of a (pattern, tokens, plan) that two files time differently. A wrong result wins
 * under every rule: no later run makes a wrong candidate right. */
typedef enum arf_duplicates {
    ARF_DUPLICATES_REFUSED, /* listed, and nothing is made */
    ARF_DUPLICATES_FIRST,   /* of the file named first */
    ARF_DUPLICATES_LAST,    /* of the file named last */
    ARF_DUPLICATES_FASTER,  /* the smaller median; a failure gives way to a time */
    ARF_DUPLICATES_POOLED,  /* the rounds of both; a failure wins over times */
    ARF_DUPLICATES_RULES
} arf_duplicates;
const char *arf_duplicates_name(arf_duplicates rule);
/* The value of an option --duplicates; a wrong one ends the program as argp does. */
void arf_duplicates_take(struct argp_state *state, const char *name, arf_duplicates *rule);

typedef arfuse_status (*arf_combine_use)(const arf_samples *samples, const void *context,
                                         arf_error *error);

/*
 * Reads and joins the files, and hands the result to `use`. Refused (ARFUSE_PROFILE): another
 * kernel set, tuning version, shape, device or policy. Another driver or other kernel sources are
 * one note each. The result's `tool` says how many files and duplicates there were, and by which
 * rule those were resolved; one file comes as it is. Returns the exit code; what was refused, here
 * or by `use`, is on stderr.
 */
int arf_combine_files(char **paths, int count, arf_duplicates rule, arf_combine_use use,
                      const void *context);

#endif
