/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The anchor: one call that is timed again and again through a run. Candidates of one M are timed
 * side by side, so clocks that change between two points spoil no comparison; but whoever reads the
 * times must know, and nothing but the same call at another time tells.
 */
#ifndef ARF_TUNE_ANCHOR_H
#define ARF_TUNE_ANCHOR_H

#include "tune/bench.h"

#define ARF_ANCHOR_READINGS 1024

typedef struct arf_anchor {
    arf_plan plan, then;
    arf_run run; /* of these plans; tokens 0: not set yet, or given up */
    int calls;
    int readings;
    double us[ARF_ANCHOR_READINGS]; /* later readings take the place of the last */
} arf_anchor;

/* Takes the call over; `run` may go. */
void arf_anchor_set(arf_anchor *anchor, const arf_run *run, int calls);

/* Collective. One reading: the median of a few timings. A call that fails is given up. */
arfuse_status arf_anchor_read(arf_anchor *anchor, arf_bench *bench, arf_error *error);

/* By how much the slowest stretch of three readings was slower than the fastest; 0 below three. */
double arf_anchor_change(const arf_anchor *anchor);

#endif
