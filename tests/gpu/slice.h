/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A seeded pairwise slice of (hidden size, ranks, top-k, switches, pattern, tokens,
 * protocol, tuning, kind of data, eager or graph): every pair of two values that can occur together
 * occurs in some case.
 */
#ifndef ARF_TESTS_GPU_SLICE_H
#define ARF_TESTS_GPU_SLICE_H

#include "gpu/gpu.h"

typedef struct slice_case {
    arf_shape shape;
    arf_pattern pattern;
    int64_t tokens;
    arf_plan plan;
    arf_trial_kind kind;
    bool graph;
    uint64_t seed;
    char text[320]; /* what it is, for a TAP line */
} slice_case;

#define SLICE_MAX_CASES 160

typedef struct slice_set {
    int cases;
    slice_case of[SLICE_MAX_CASES];
    int pairs, covered; /* pairs that can occur, and those that do in `cases` */
} slice_set;

void slice_make(uint64_t seed, slice_set *slice);

#endif
