/* SPDX-License-Identifier: Apache-2.0 */
/* The mixed segment: whether routes that were timed one token count at a time are as fast when the
 * token count changes from call to call, as it does in service. */
#ifndef ARF_TUNE_MIXED_H
#define ARF_TUNE_MIXED_H

#include "tune/bench.h"

/*
 * Collective. Each pattern's routes at a seeded mix of token counts, in turn in one graph or loop,
 * beside the same calls of each token count alone, by turns; says the ratio and puts it into the
 * evidence. Stops at the deadline (seconds since the run began); too few rounds say nothing.
 */
arfuse_status arf_mixed(arf_bench *bench, arf_profile *profile, double deadline, arf_error *error);

#endif
