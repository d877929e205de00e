/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread per local rank, started once: ranks of one process must run at the
 * same time, since they wait for each other. The caller's thread is local rank 0,
 * so that the usual process with one rank has no thread at all.
 */
#ifndef ARF_DEVICE_HOST_WORKERS_H
#define ARF_DEVICE_HOST_WORKERS_H

#include "base/error.h"

typedef struct arf_host_workers arf_host_workers;

arfuse_status arf_host_workers_start(int local_ranks, arf_host_workers **workers, arf_error *error);
void arf_host_workers_stop(arf_host_workers *workers); /* accepts NULL */

/* Runs work(context, local) for every local rank at the same time; returns when all have. One
 * caller at a time. */
void arf_host_workers_run(arf_host_workers *workers, void (*work)(void *context, int local),
                          void *context);

#endif
