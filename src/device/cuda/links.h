/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the GPUs of a team reach each other. Asked for every directed pair before anything is
 * allocated, so that a machine where only some pairs can is told of all bad ones at once.
 */
#ifndef ARF_DEVICE_CUDA_LINKS_H
#define ARF_DEVICE_CUDA_LINKS_H

#include "device/cuda/driver.h"
#include "device/cuda/nvml.h"
#include "device/cuda/seat.h"

typedef enum arf_pair {
    ARF_PAIR_SAME,    /* one GPU */
    ARF_PAIR_NVLINK,  /* peer access with native atomics */
    ARF_PAIR_PCIE,    /* peer access without */
    ARF_PAIR_NONE,    /* no peer access */
    ARF_PAIR_UNKNOWN, /* on this node, and nobody can say; mapping decides */
    ARF_PAIR_REMOTE   /* another node: the fabric decides */
} arf_pair;

/* "nvlink" */
const char *arf_pair_name(arf_pair pair);

/* Of two GPUs that this process sees. */
arf_pair arf_links_pair(const arf_driver *driver, CUdevice from, CUdevice to);

/* What this process sees: pair[p] is the way from its GPU to that of process p. */
void arf_links_look(const arf_driver *driver, const arf_nvml *nvml, const arf_team *team,
                    const arf_seat_claim *claim, const arf_seat *seat, arf_pair *pair);

/*
 * Collective: all look, all judge the same. Fills `link` (the worst of all pairs; shared-gpu where
 * any ranks share one). ARFUSE_HARDWARE names every directed pair without peer access, with both
 * UUIDs.
 */
arfuse_status arf_links_agree(const arf_team *team, const arf_seat_claim *claim,
                              const arf_seat *seat, const arf_pair *own, arf_link *link,
                              bool *guessed, arf_error *error);

#endif
