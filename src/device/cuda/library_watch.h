/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit of NCCL's waits, which have none of their own: a thread of the space looks whether a
 * call stays longer than the space's limit, or NCCL tells of an error. Then it writes the sticky
 * word, so that rows come out as NaN, and aborts the communicator, so that whoever waits for the
 * stream comes back.
 */
#ifndef ARF_DEVICE_CUDA_LIBRARY_WATCH_H
#define ARF_DEVICE_CUDA_LIBRARY_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef struct arf_library_watch arf_library_watch;
struct arf_cuda_space;

/* The context is current; the space has its communicator, control block and mirror. */
arfuse_status arf_library_watch_start(struct arf_cuda_space *space, arf_library_watch **watch,
                                      arf_error *error);
/* True when the communicator was aborted. Accepts NULL. */
bool arf_library_watch_stop(arf_library_watch *watch);

/*
 * Around every use of the communicator but its end. ARFUSE_TIMEOUT says why it is gone; nothing is
 * to be left then. Two atomic operations: fit for the launch path.
 */
arfuse_status arf_library_enter(arf_library_watch *watch, arf_error *error);
void arf_library_leave(arf_library_watch *watch);

/* Seen at once, between the two: the communicator is about to go, whoever polls it must stop. */
bool arf_library_ends(const arf_library_watch *watch);

/* Why; "" while it does not end. Stays valid. Accepts NULL. */
const char *arf_library_end_text(const arf_library_watch *watch);

#endif
