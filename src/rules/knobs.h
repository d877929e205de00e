/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of launch parameters ("knobs") per kernel set, protocol and pattern:
 * the one place that declares a knob's name, range, default and help. Files,
 * options, legality rules, search and kernels all read these tables.
 *
 * A role has one name in every set and both patterns: `threads` and
 * `elements_per_thread` are the publishing kernel's, `collect_...` the collecting
 * kernel's, `reduction_threads` and `rms_threads` those of BT's second and third
 * kernel. The nested members of public configurations are flat here; `published`
 * tells where each comes from.
 */
#ifndef ARF_RULES_KNOBS_H
#define ARF_RULES_KNOBS_H

#include "rules/words.h"

typedef enum arf_knob_kind { ARF_KNOB_INTEGER, ARF_KNOB_BOOLEAN } arf_knob_kind;

typedef struct arf_knob {
    const char *name; /* flat, as in the file: "collect_threads" */
    arf_knob_kind kind;
    int32_t low, high; /* inclusive range of the file format; legality may be narrower */
    int32_t fallback;  /* the default for a shape that no rule adapts */
    bool nullable;     /* may be null: "derived when the kernel is built", a fact of public sets */
    const char *help;  /* one line: meaning and effect */
    /* Where the public configurations keep it: "collective.cluster_size"; NULL: a knob that only
     * arfuse's own kernels have. The map is one to one inside a table. */
    const char *published;
    /* The steps that a search takes, ascending, ended by -1; NULL: not searched. */
    const int32_t *ladder;
} arf_knob;

typedef struct arf_knob_table {
    int count; /* at most ARF_MAX_KNOBS; 0: the protocol exists but has nothing to tune */
    const arf_knob *knob;
    int version;    /* raised by hand when a knob changes meaning (design section 6) */
    bool supported; /* false: this set has no such protocol or pattern */
} arf_knob_table;

const arf_knob_table *arf_knobs(arf_set set, arf_protocol protocol, arf_pattern pattern);

/* The tuning-schema version of a protocol in a set; 0 when the set does not have it. Both patterns
 * of one protocol share a version. */
int arf_protocol_version(arf_set set, arf_protocol protocol);

/* The place of a knob in arf_tuning.value, or -1. */
int arf_knob_index(const arf_knob_table *table, const char *name);
/* The value of a knob that the table must have; asking for another is a programming error. */
int32_t arf_knob_value(arf_set set, arf_protocol protocol, arf_pattern pattern,
                       const arf_tuning *tuning, const char *name);

/* Every knob at its fallback. */
arf_tuning arf_tuning_fallback(const arf_knob_table *table);

/* False where no kernel of the tuning reads the knob: a single kernel (`kernels` 1) has
 * none that publishes or reduces alone. */
bool arf_knob_read(const arf_knob_table *table, const arf_tuning *tuning, int knob);
/* Knobs that nothing reads to their fallbacks: of tunings that launch the same, one. */
void arf_tuning_settle(const arf_knob_table *table, arf_tuning *tuning);

/* "name=value name=value ..." in table order, as tables and messages print a tuning. */
void arf_tuning_text(const arf_knob_table *table, const arf_tuning *tuning, char *text, int size);
/* "bt unicast fixed threads=128 ...": all of a plan, as a cell of a table holds one. Without the
 * tuning where that is not known. */
void arf_plan_cell(arf_set set, arf_pattern pattern, const arf_plan *plan, char *text, int size);

#endif
