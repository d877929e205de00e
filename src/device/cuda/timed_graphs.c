/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/timed_graphs.h"

CUgraphExec arf_timed_find(arf_timed_graphs *graphs, uint64_t digest)
{
    for (int i = 0; i < ARF_TIMED_GRAPHS; i++) {
        arf_timed_graph *graph = &graphs->graph[i];
        if (graph->used == 0 || graph->digest != digest)
            continue;
        graph->used = ++graphs->turn;
        return graph->executable;
    }
    return NULL;
}

void arf_timed_keep(arf_timed_graphs *graphs, const arf_driver *driver, uint64_t digest,
                    CUgraphExec executable)
{
    arf_timed_graph *oldest = &graphs->graph[0];
    for (int i = 1; i < ARF_TIMED_GRAPHS; i++)
        if (graphs->graph[i].used < oldest->used)
            oldest = &graphs->graph[i];
    if (oldest->used != 0)
        driver->cuGraphExecDestroy(oldest->executable);
    *oldest = (arf_timed_graph){digest, ++graphs->turn, executable};
}

void arf_timed_drop(arf_timed_graphs *graphs, const arf_driver *driver)
{
    for (int i = 0; i < ARF_TIMED_GRAPHS; i++)
        if (graphs->graph[i].used != 0)
            driver->cuGraphExecDestroy(graphs->graph[i].executable);
    *graphs = (arf_timed_graphs){0};
}
