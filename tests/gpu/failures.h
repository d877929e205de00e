/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a space where calls of the driver fail, on one process after the other: all end alike and
 * soon, a later start works, and nothing is left on the GPU.
 */
#ifndef ARF_TESTS_GPU_FAILURES_H
#define ARF_TESTS_GPU_FAILURES_H

#include "gpu/peers.h"

enum { PEER_FAILURES = 20 };

/* Collective; votes. Needs the device alone. *passed counts those that ended as they must; `text`
 * tells how long the slowest took and what memory is free. */
arfuse_status peer_failures(peer *at, int *passed, char *text, size_t size, arf_error *error);

#endif
