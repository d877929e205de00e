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
    int sm_all;  /* that the GPU has; where nothing tells, what is known to be there */
    int mps;     /* its contexts are shared by MPS */
} arf_share;

/*
 * `sm_seen` as the driver tells, `sm_all` as libnvidia-ml does; 0: unknown. Whether the driver
 * counts CUDA_MPS_ACTIVE_THREAD_PERCENTAGE in is not relied upon: where it tells all SMs in spite
 * of a limit, the share follows from the percentage. Where libnvidia-ml is not usable the driver is
 * taken to count it in.
 */
arf_share arf_mps_look(const arf_driver *driver, CUdevice device, int sm_seen, int sm_all);

/* The highest percentage of a GPU's SMs that so many processes may have each. */
int arf_mps_percentage(int processes, int sm_all);

/* Whether the control daemon can be asked: `folder` is where it was looked for. */
bool arf_mps_daemon(char *folder, size_t size);

/*
 * Pure: every process has gathered the same shares, one a process. *timing: "" when times may be
 * taken, else why not. ARFUSE_HARDWARE when some processes of a GPU are under MPS and others not,
 * when their shares differ, or when these do not fit.
 */
#define ARF_TIMING_TEXT 256
arfuse_status arf_mps_judge(const arf_team *team, const arf_seat_claim *claim, const arf_seat *seat,
                            const arf_share *share, char timing[ARF_TIMING_TEXT], arf_error *error);

#endif
