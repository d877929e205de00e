/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that all ranks of a team can write: one segment a rank, mapped by every
 * peer. Today all ranks of a team are local ranks of one process on one GPU, so a
 * plain allocation is mapped already. Several processes (exported descriptors,
 * fabric handles) will be another way to fill the same struct.
 */
#ifndef ARF_DEVICE_CUDA_SYMMETRIC_H
#define ARF_DEVICE_CUDA_SYMMETRIC_H

#include "device/cuda/driver.h"
#include "device/team.h"

typedef struct arf_symmetric {
    uint64_t bytes;                  /* of a segment */
    CUdeviceptr peer[ARF_MAX_RANKS]; /* the segment of a team rank, as this process sees it */
} arf_symmetric;

/* Whether this team's ranks can see each other's memory; if not, says what it would take. Equal on
 * all ranks. */
arfuse_status arf_symmetric_possible(const arf_team *team, arf_error *error);

/* Collective; the caller votes. The context is current. Contents are undefined. */
arfuse_status arf_symmetric_create(const arf_driver *driver, const arf_team *team, uint64_t bytes,
                                   arf_symmetric *memory, arf_error *error);
/* Accepts a zeroed one, and one that failed half-way. */
void arf_symmetric_destroy(const arf_driver *driver, const arf_team *team, arf_symmetric *memory);

#endif
