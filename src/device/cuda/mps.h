/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several processes on one GPU. Without MPS they take turns, so calls are right and times mean
 * nothing. With MPS they run side by side, and kernels that wait for each other need room for all
 * at once: the SMs that the processes may use must add up to no more than the GPU has.
 */
#ifndef ARF_DEVICE_CUDA_MPS_H
#define ARF_DEVICE_CUDA_MPS_H

#include "device/cuda/driver.h"
#include "device/cuda/seat.h"

/* What a process knows of its own GPU. */
typedef struct arf_share {
    int sm_seen; /* that it may use */
    int sm_all;  /* that the GPU has; 0: unknown */
    int mps;     /* its contexts are shared by MPS */
} arf_share;

/* `sm_all` as libnvidia-ml says; 0: unknown, then it follows from this process's percentage. */
arf_share arf_mps_look(const arf_driver *driver, CUdevice device, int sm_seen, int sm_all);

/* Whether the control daemon can be asked: `folder` is where it was looked for. */
bool arf_mps_daemon(char *folder, size_t size);

/*
 * Collective. *timing: "" when times may be taken, else why not. ARFUSE_HARDWARE on all ranks when
 * some processes of a GPU are under MPS and others not, or when their SMs do not fit.
 */
#define ARF_TIMING_TEXT 256
arfuse_status arf_mps_agree(const arf_team *team, const arf_seat_claim *claim, const arf_seat *seat,
                            const arf_share *own, char timing[ARF_TIMING_TEXT], arf_error *error);

#endif
