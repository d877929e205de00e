/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The team: R ranks spread over the processes of a bootstrap, some hosting
 * several local ranks. Votes and agreements are made here, so that all ranks
 * take the same turn after every step that can fail on one of them.
 */
#ifndef ARF_DEVICE_TEAM_H
#define ARF_DEVICE_TEAM_H

#include "base/error.h"
#include "rules/words.h"

typedef struct arf_team {
    arfuse_bootstrap bootstrap;
    int tp_size;                  /* R: team ranks over all processes */
    int first_rank;               /* of the ranks that this process hosts ... */
    int local_ranks;              /* ... and how many */
    int process_of[ARF_MAX_RANKS]; /* which process hosts a team rank */
} arf_team;

/* Collective. Each process says how many ranks it hosts; ranks are numbered in process order. A
 * bootstrap of one process may leave the callbacks NULL. */
arfuse_status arf_team_create(const arfuse_bootstrap *bootstrap, int local_ranks, arf_team *team,
                              arf_error *error);

arfuse_status arf_team_allgather(const arf_team *team, const void *send, void *receive,
                                 size_t bytes, arf_error *error);
arfuse_status arf_team_barrier(const arf_team *team, arf_error *error);

/*
 * The vote after a step: every process brings its status (and its message, in `error`); every
 * process leaves with the same status and the same message, which names the processes that failed
 * ("ranks 0-7: ...", "rank 3: ..."). All pass, or none.
 */
arfuse_status arf_team_vote(const arf_team *team, arfuse_status status, arf_error *error);

/* Every process must bring the same digest; else ARFUSE_DISAGREE on all, with both digests and
 * the ranks that hold them. `what` names the thing: "profile", "shape and capacity". */
arfuse_status arf_team_agree(const arf_team *team, const char *what, uint64_t digest,
                             arf_error *error);

/* "0-3,7" for the set bits: how messages name ranks. */
void arf_rank_set_text(const bool *member, int count, char *text, size_t size);

#endif
