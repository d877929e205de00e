/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token counts as people write them: a comma list of numbers and ranges.
 *
 *   1,2,48        these
 *   1-8           every one from 1 to 8
 *   16-128+16     every 16th
 *   1-8192*2      each twice the one before
 *
 * Both ends of a range are always part of it, also where step or factor would pass over the last
 * one: the largest count is the last bound of a profile, so it must be measured as it was asked.
 */
#ifndef ARF_TUNE_TOKENS_H
#define ARF_TUNE_TOKENS_H

#include "base/error.h"
#include "rules/words.h"

/* More points than a sweep could ever time; a longer list is refused. */
#define ARF_MAX_POINTS 1024

/* Ascending, without duplicates, each in 1 .. ARF_MAX_TOKENS. */
typedef struct arf_tokens {
    int count;
    int64_t value[ARF_MAX_POINTS];
} arf_tokens;

/* Fails with ARFUSE_USAGE, naming the part that is wrong and what was expected. */
arfuse_status arf_tokens_parse(const char *text, arf_tokens *tokens, arf_error *error);

/* Keeps the set ascending and without duplicates; false when it is full. */
bool arf_tokens_add(arf_tokens *tokens, int64_t value);

/* The order in which a sweep visits ascending points: both ends first, then the middles of the
 * widest gaps, so that a sweep that is cut short has covered the whole range coarsely. */
void arf_tokens_coarse_first(const arf_tokens *tokens, int order[ARF_MAX_POINTS]);

/* `count` token counts in 1 .. most, a function of the seed: every octave as likely as the others.
 */
void arf_tokens_mix(uint64_t seed, int64_t most, int64_t *tokens, int count);

/*
 * A whole decimal number in [low, high] with nothing around it: no sign, space, suffix, exponent
 * or leading zero. What every numeric option accepts. False leaves the output alone.
 */
bool arf_number_parse(const char *text, int64_t low, int64_t high, int64_t *number);

#endif
