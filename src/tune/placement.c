/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/placement.h"

#include <stdio.h>

arfuse_status arf_place(int tp_size, int processes, arf_placement *placement, arf_error *error)
{
    if (tp_size == 0)
        tp_size = processes;
    if (processes < 1 || processes > ARF_MAX_RANKS)
        return arf_fail(error, ARFUSE_USAGE, "%d processes; expected 1 to %d", processes,
                        ARF_MAX_RANKS);
    if (tp_size < processes)
        return arf_fail(error, ARFUSE_USAGE,
                        "--tp %d with %d processes: some would host no rank; start at most %d",
                        tp_size, processes, tp_size);
    *placement = (arf_placement){.tp_size = tp_size, .processes = processes};
    for (int p = 0; p < processes; p++)
        placement->ranks_of[p] = tp_size / processes + (p < tp_size % processes);
    return ARFUSE_OK;
}

void arf_placement_text(const arf_placement *placement, char *text, size_t size)
{
    const int ranks = placement->tp_size, processes = placement->processes;
    int used = snprintf(text, size, "%d rank%s on %d process%s", ranks, ranks == 1 ? "" : "s",
                        processes, processes == 1 ? "" : "es");
    if (ranks == processes)
        return;
    if (ranks % processes == 0) {
        snprintf(text + used, size - (size_t)used, ", %d each", ranks / processes);
        return;
    }
    for (int p = 0; p < processes && (size_t)used < size; p++)
        used += snprintf(text + used, size - (size_t)used, "%s%d", p == 0 ? ": " : ", ",
                         placement->ranks_of[p]);
}
