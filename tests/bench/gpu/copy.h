/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast this machine copies, measured in the same run as what is compared with it: bytes read
 * and written in a microsecond, in the memory of one GPU, by the size of both buffers together.
 */
#ifndef TESTS_BENCH_GPU_COPY_H
#define TESTS_BENCH_GPU_COPY_H

#include "tune/tuner.h"

#define COPY_SIZES 10

typedef struct copy_speeds {
    int count;                /* 0: not measured ... */
    char why[160];            /* ... and why */
    double bytes[COPY_SIZES]; /* ascending */
    double speed[COPY_SIZES]; /* bytes a microsecond: 1e6 is 1 TB/s */
} copy_speeds;

/*
 * Collective. All processes that share a GPU copy at once and their speeds are added. On a GPU the
 * faster of a kernel that copies 16 bytes a thread, four in flight, and the driver's own copy; on
 * the host device memcpy by one thread a process. The model copies nothing.
 */
arfuse_status copy_measure(const arf_tuner *tuner, copy_speeds *speeds, arf_error *error);

/* Microseconds of so many bytes at that working set: between two sizes measured, the speed is
 * interpolated over the logarithm; outside, the nearest counts. NaN when nothing was measured. */
double copy_us(const copy_speeds *speeds, double bytes);

#ifdef ARF_CUDA
/* Bytes a microsecond of this process, the median of some turns. Local, between barriers. */
arfuse_status copy_speed_cuda(arf_device *device, size_t bytes, double *speed, arf_error *error);
#endif

#endif
