/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes that tune together. The one file pair that knows MPI (group.c alone includes
 * mpi.h): start, the bootstrap callbacks of a team, rank 0's word to all, and the ways out.
 */
#ifndef ARF_TUNE_GROUP_H
#define ARF_TUNE_GROUP_H

#include <stdatomic.h>

#include "base/error.h"
#include "rules/words.h"

/* Memory that the processes of one node share: who has spoken, and how far each has come. */
typedef struct arf_node_page {
    atomic_int claimed;                   /* voice.h */
    atomic_llong progress[ARF_MAX_RANKS]; /* stop.h; by process number */
} arf_node_page;

typedef struct arf_group {
    int rank, size; /* of processes */
    bool mpi;       /* false: a lone process that no launcher started; MPI stays untouched */
    arf_node_page *page;
    bool on_node[ARF_MAX_RANKS]; /* processes that share `page` */
} arf_group;

/*
 * What a launcher says about this process in its environment, before MPI starts: rank and number of
 * processes; false, 0 and 1 when nothing started it but a shell. Open MPI, PMIx and PMI variables.
 */
bool arf_group_launcher(int *rank, int *size);

/*
 * Leaves before MPI has started with a message and code. Rank 0 speaks. The others wait to be ended
 * by the launcher, which ends all when the first goes: were they to go first, rank 0 could be ended
 * before it has spoken. One that is left alone (its own arguments were wrong, not rank 0's) speaks
 * for itself after a while.
 */
_Noreturn void arf_group_leave_early(int code, const char *message);

/* Starts MPI when a launcher is there. One group a process. */
arfuse_status arf_group_start(arf_group *group, arf_error *error);
/* A bootstrap on a private duplicate of the world communicator. An MPI call that fails in it, or in
 * a broadcast, ends the job with its name: nothing could be agreed on any more. */
arfuse_bootstrap arf_group_bootstrap(const arf_group *group);
/* Collective: the bytes of rank 0 on every rank. */
arfuse_status arf_group_broadcast(const arf_group *group, void *data, size_t bytes,
                                  arf_error *error);
/*
 * Collective: ends MPI. After success everyone comes. After a failure everyone should, with the
 * same code (after a vote); a rank that comes alone failed where nobody asked, such as out of
 * memory: it waits some seconds for the others, then says `message`, unless rank 0 has spoken, and
 * ends the whole job. The largest code is returned. What was to be printed must be flushed before:
 * a launcher ends the others when one goes.
 */
int arf_group_finish(arf_group *group, int code, const char *message);
/* One rank's own way out when the others cannot be asked: message, and the whole job ends. */
_Noreturn void arf_group_abort(const arf_group *group, int code, const char *message);

/* The MPI library in use, or that none is. */
void arf_group_library(const arf_group *group, char *text, size_t size);

/* Cores that this node has for `group`'s processes on it, and how many those are. */
void arf_group_cores(const arf_group *group, int *processes, int *cores);

#endif
