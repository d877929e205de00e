/* SPDX-License-Identifier: Apache-2.0 */
/* Samples made by hand, all of the allreduce pattern: H 6144, top-k 10, 8 ranks. */
#ifndef TESTS_SUPPORT_SAMPLES_CASE_H
#define TESTS_SUPPORT_SAMPLES_CASE_H

#include "profile/samples.h"

arf_samples *samples_empty(void);

/* A protocol with its fallback tuning, the first knob moved by `variant`. */
arf_plan samples_plan(arf_protocol protocol, int variant);

/* A sample with some rounds around `us`: spread 0 gives equal rounds. The odd number of rounds is
 * symmetric about the middle, so the median is exact. */
void samples_add(arf_samples *samples, int64_t tokens, const arf_plan *plan, double us,
                 double spread);
/* The same of a fallback tuning, whose rounds are equal. */
void samples_add_equal(arf_samples *samples, int64_t tokens, arf_protocol protocol, double us);

#endif
