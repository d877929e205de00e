/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The field: the candidates of one pattern and who of them is still in the race. Verification and
 * failures take them out for good, screening leaves the fastest. Pure.
 */
#ifndef ARF_TUNE_FIELD_H
#define ARF_TUNE_FIELD_H

#include "tune/bench.h"
#include "tune/store.h"

typedef enum arf_standing {
    ARF_STANDING_IN,
    ARF_STANDING_SCREENED, /* slower than others of its protocol where it was screened */
    ARF_STANDING_WRONG,
    ARF_STANDING_FAILED
} arf_standing;

typedef struct arf_entrant {
    const arf_candidate *candidate;
    arf_standing standing;
    int64_t limit; /* the most tokens it may be tried with; lowered by a failure */
    int votes;     /* screening points at which it was among the best */
} arf_entrant;

typedef struct arf_field {
    arf_pattern pattern;
    int count;
    arf_entrant *entrant;
    int told[ARF_PROTOCOLS]; /* of a protocol's entrants in trouble */
} arf_field;

/* Limits are cut to what the bench has room for. */
arfuse_status arf_field_make(const arf_schedule *schedule, const arf_bench *bench,
                             arf_pattern pattern, arf_field *field, arf_error *error);
void arf_field_free(arf_field *field);

/*
 * Warns of an entrant in trouble. A whole protocol may be in it, for one cause: after the first few
 * of a protocol the others are only counted (and named with --verbose); arf_field_tell_rest says
 * how many those were.
 */
void arf_field_tell(arf_field *field, const arf_plan *plan, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void arf_field_tell_rest(const arf_field *field);

/* True when the entrant races at this token count. */
bool arf_field_races(const arf_field *field, int entrant, int64_t tokens);

/* The allreduce plan that a separate finalize of `tokens` would be followed by: the fastest sample
 * at the nearest measured token count that has room for them; NULL: none. */
const arf_plan *arf_field_then(const arf_samples *samples, const arf_schedule *schedule,
                               int64_t tokens);

/* Entrants among a protocol's first `keep` at a screening point get a vote; equal times go to the
 * earlier entrant. `us` holds a median for each entrant, NaN where it was not timed. */
void arf_field_vote(arf_field *field, arf_protocol protocol, const double *us, int keep);

/* After all screening points of a protocol: those without a vote leave, unless they always race.
 * When nobody has one (no time to screen), the first `keep` stay. */
void arf_field_close(arf_field *field, arf_protocol protocol, int keep);

#endif
