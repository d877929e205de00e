/* SPDX-License-Identifier: Apache-2.0 */
/* A bootstrap whose processes are forked: for tests that kill them. */
#ifndef TESTS_SUPPORT_PROCESSES_BOOTSTRAP_H
#define TESTS_SUPPORT_PROCESSES_BOOTSTRAP_H

#include <stddef.h>
#include <sys/types.h>

#include "arfuse.h"

typedef struct processes {
    int size;
    pid_t pid[16];
    void *meeting; /* shared: where the callbacks meet */
} processes;

/* Memory that parent and children share, zero at first. */
void *processes_share(size_t bytes);
void processes_unshare(void *memory, size_t bytes);

/* Forks `size` (at most 16) children; each calls process() and exits with what it returns. A child
 * dies with its parent. */
void processes_start(processes *all, int size, int (*process)(const arfuse_bootstrap *, void *),
                     void *context);
/* Waits for all; status[] is what waitpid says. Kills those that still run after `seconds`. */
void processes_wait(processes *all, int *status, double seconds);

#endif
