/* SPDX-License-Identifier: Apache-2.0 */
/* Inside a route: between which measured points a rival may be ahead unseen. */
#ifndef ARF_FIT_GAPS_H
#define ARF_FIT_GAPS_H

#include "fit/segments.h"

/* The geometric middle of two token counts, strictly between them; 0: nothing is. */
int64_t arf_middle_of(int64_t low, int64_t high);

/* Two neighbouring points of one segment. */
typedef struct arf_gap {
    int candidate; /* the segment's */
    int64_t low, high;
    int64_t tokens; /* between them, where to measure next */
    double doubt; /* weight times what the leads at both ends fall short by; above 0 */
} arf_gap;

/* The gaps of most doubt, in descending order, at most `room`. Returns how many. */
int arf_gaps(const arf_table *table, const arf_segment *segments, int count, arf_gap *gaps,
             int room);

#endif
