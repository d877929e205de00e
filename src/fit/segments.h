/* SPDX-License-Identifier: Apache-2.0 */
/* Which candidate serves which points: the dynamic programme and what settles its ties. */
#ifndef ARF_FIT_SEGMENTS_H
#define ARF_FIT_SEGMENTS_H

#include "fit/table.h"

/* Points [first, last] of the table, served by one candidate. */
typedef struct arf_segment {
    int candidate, first, last;
} arf_segment;

/*
 * The best segments, in ascending order, covering every point. `price` is the weighted log-regret
 * that one more segment must save. At most ARF_MAX_ROUTES: the price is doubled until they fit.
 * Returns their number; 0 when no sequence covers every point, since each candidate failed
 * somewhere on the way; -1 when memory ran out.
 */
int arf_segments(const arf_table *table, double price, arf_segment segments[ARF_MAX_ROUTES]);

#endif
