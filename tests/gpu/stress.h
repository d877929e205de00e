/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls without number by a team of processes: graphs of many calls (pattern, protocol and M at
 * random, the same on all ranks; hold-ups each rank's own) replayed in random order, and bursts of
 * eager calls between them. Outputs are compared on the GPU after about every second call.
 */
#ifndef ARF_TESTS_GPU_STRESS_H
#define ARF_TESTS_GPU_STRESS_H

#include "gpu/peers.h"

/* Until so many calls, or so many seconds; 0: no such end. Not both. */
typedef struct stress_end {
    long calls;
    double seconds;
} stress_end;

/* Collective; votes. *calls counts those made, *compared those whose outputs were, *seconds the
 * time without setting up. */
arfuse_status peer_stress(peer *at, const stress_end *end, long *calls, long *compared,
                          double *seconds, arf_error *error);

#endif
