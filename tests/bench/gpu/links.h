/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast GPUs write to each other, measured in the same run as what is compared with it: every
 * GPU of the team to all its peers at once, as LL, BT and HT do.
 */
#ifndef TESTS_BENCH_GPU_LINKS_H
#define TESTS_BENCH_GPU_LINKS_H

#include "tune/tuner.h"

typedef struct link_speed {
    double slowest, fastest; /* GPU of the team: bytes that it sends a microsecond (1e6: 1 TB/s) */
    char why[160];           /* both 0: not measured, and why */
} link_speed;

/* Collective. Processes that share a GPU, the host device and the model have no such links. */
arfuse_status links_measure(const arf_tuner *tuner, link_speed *speed, arf_error *error);

/* Microseconds that a GPU needs to send so many bytes, by the slowest: a call lasts as long as its
 * slowest rank. NaN when nothing was measured. */
double links_us(const link_speed *speed, double bytes);

#ifdef ARF_CUDA
/* Bytes a microsecond that this process sends, the median of some turns. Collective: votes. */
arfuse_status link_speed_cuda(const arf_tuner *tuner, double *speed, arf_error *error);
#endif

#endif
