/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes one file descriptor of every rank to every process of a team on one
 * node. A descriptor is no data: it cannot travel through the bootstrap's
 * allgather, only over a Unix socket (SCM_RIGHTS). What the allgather carries is
 * the name of each process's socket. No privilege is needed (pidfd_getfd would
 * need ptrace rights, which default containers lack).
 */
#ifndef ARF_DEVICE_FD_EXCHANGE_H
#define ARF_DEVICE_FD_EXCHANGE_H

#include "device/team.h"

/* Descriptors travel within milliseconds, but on a busy machine a process comes late to them. */
#define ARF_EXCHANGE_SECONDS 20.0
/* An exchange takes at most this: both attempts. */
#define ARF_EXCHANGE_MOST_SECONDS (2 * ARF_EXCHANGE_SECONDS)

/*
 * own[local_ranks] goes in; all[tp_size] comes out: a fresh close-on-exec descriptor of every rank
 * (duplicates of one's own), which the caller closes. `own` stays the caller's.
 *
 * Collective; votes: every process gets all of them, or the same error and none. ARFUSE_HARDWARE
 * when the processes are not on one node or not of one user. Abstract sockets are tried first, then
 * sockets in ARFUSE_SOCKET_FOLDER, else XDG_RUNTIME_DIR, else /tmp (for containers that share a
 * folder but no network namespace). `limit_seconds` bounds each of the two attempts. No socket and
 * no file is left behind on any path.
 */
arfuse_status arf_fd_exchange(const arf_team *team, const int *own, int *all, double limit_seconds,
                              arf_error *error);

#endif
