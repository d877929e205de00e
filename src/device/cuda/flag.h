/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a word takes from one GPU to another that polls for it: what no exchange between ranks
 * can beat. Of two GPUs that this process sees; no team.
 */
#ifndef ARF_DEVICE_CUDA_FLAG_H
#define ARF_DEVICE_CUDA_FLAG_H

#include "device/cuda/driver.h"

/* Of device memory at each end. */
#define ARF_FLAG_BYTES 16
/* Of a trial: far above any latency, short enough for all pairs of a node. */
#define ARF_FLAG_LIMIT_SECONDS 0.2

/* One GPU, ready to be either end. */
typedef struct arf_flag_end {
    CUcontext context; /* the caller's, not owned */
    CUdeviceptr words; /* the caller's ARF_FLAG_BYTES; the other GPU can write there */
    CUmodule module;
    CUfunction kernel;
    CUstream stream;
} arf_flag_end;

/* Compiles and loads; the context is current. On failure `end` is to be dropped too. */
arfuse_status arf_flag_end_make(const arf_driver *driver, CUdevice device, CUcontext context,
                                CUdeviceptr words, arf_flag_end *end, arf_error *error);
void arf_flag_end_drop(const arf_driver *driver, arf_flag_end *end); /* accepts a zeroed one */

/*
 * Microseconds one way: half of a round trip that `first` begins, mean of a thousand, by relaxed
 * stores and loads at system scope as LL's. Only where each GPU has peer access to the other.
 * ARFUSE_TIMEOUT when no word came back within the limit.
 */
arfuse_status arf_flag_time(const arf_driver *driver, const arf_flag_end *first,
                            const arf_flag_end *second, double *us, arf_error *error);

#endif
