/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that all ranks of a team can write: one segment a rank, mapped by every process. A team of
 * one process needs plain allocations only; otherwise segments travel as file descriptors inside a
 * node, as fabric handles across nodes. Local ranks and peers mix freely.
 */
#ifndef ARF_DEVICE_CUDA_SYMMETRIC_H
#define ARF_DEVICE_CUDA_SYMMETRIC_H

#include "device/cuda/segment.h"
#include "device/team.h"

typedef struct arf_symmetric {
    arf_way way;
    uint64_t bytes;                     /* of a segment, as asked for */
    uint64_t mapped_bytes;              /* as it is: whole granules */
    CUdeviceptr peer[ARF_MAX_RANKS];    /* the segment of a team rank, as this process sees it */
    arf_segment segment[ARF_MAX_RANKS]; /* what stands behind; zero for ARF_WAY_LOCAL */
} arf_symmetric;

/*
 * Collective; votes after every step (allocate, export, exchange, map, check), so all ranks have
 * the memory or none, with the same status and message. The last step writes a pattern through
 * every pointer of every peer and looks for it. The context is current. Contents are undefined.
 */
arfuse_status arf_symmetric_create(const arf_driver *driver, CUdevice device, const arf_team *team,
                                   arf_way way, uint64_t bytes, arf_symmetric *memory,
                                   arf_error *error);
/* Not collective: a segment lives on until its last peer has let it go. Accepts a zeroed one, and
 * one that failed half-way. */
void arf_symmetric_destroy(const arf_driver *driver, const arf_team *team, arf_symmetric *memory);

/*
 * Collective: the way that works for this team, found by making one small segment by it. What the
 * driver's attributes promise is not believed: a container without an IMEX channel has the promise
 * and not the memory. `one_node`: descriptors can travel. `domain`: "" or why fabric handles cannot
 * (equal on all ranks). ARFUSE_NOT_SUPPORTED says why each way failed, with *way ARF_WAY_NONE.
 */
arfuse_status arf_symmetric_choose(const arf_driver *driver, CUdevice device, const arf_team *team,
                                   bool one_node, const char *domain, arf_way *way,
                                   arf_error *error);

const char *arf_way_name(arf_way way);

#endif
