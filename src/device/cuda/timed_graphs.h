/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graphs of the latest timings, so that the rounds of a point instantiate each of theirs once:
 * making a graph of hundreds of calls takes longer than it runs.
 */
#ifndef ARF_DEVICE_CUDA_TIMED_GRAPHS_H
#define ARF_DEVICE_CUDA_TIMED_GRAPHS_H

#include <stdint.h>

#include "device/cuda/driver.h"

/* Points race some twenty candidates; a graph of 512 calls keeps about a megabyte on the GPU. */
#define ARF_TIMED_GRAPHS 48

typedef struct arf_timed_graph {
    uint64_t digest; /* of all that was recorded */
    uint64_t used;   /* the turn of its last use; 0: free */
    CUgraphExec executable;
} arf_timed_graph;

/* All zero: empty. */
typedef struct arf_timed_graphs {
    arf_timed_graph graph[ARF_TIMED_GRAPHS];
    uint64_t turn;
} arf_timed_graphs;

/* NULL: not there. It stays the table's. */
CUgraphExec arf_timed_find(arf_timed_graphs *graphs, uint64_t digest);
/* Takes the executable, and destroys the one that was not used for longest where there is no room.
 */
void arf_timed_keep(arf_timed_graphs *graphs, const arf_driver *driver, uint64_t digest,
                    CUgraphExec executable);
/* Destroys them all; the context is current. */
void arf_timed_drop(arf_timed_graphs *graphs, const arf_driver *driver);

#endif
