/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bootstrap whose processes are threads of one test program: what needs
 * several processes of a team can be tested without MPI.
 */
#ifndef TESTS_SUPPORT_THREADS_BOOTSTRAP_H
#define TESTS_SUPPORT_THREADS_BOOTSTRAP_H

#include "arfuse.h"

/* Runs `process` once for each of `size` (at most 72) ranks, all at the same time; returns when
 * all have returned. cmocka's assertions must not be used inside. */
void threads_bootstrap_run(int size, void (*process)(const arfuse_bootstrap *, void *),
                           void *context);

#endif
