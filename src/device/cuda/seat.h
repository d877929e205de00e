/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPU each process takes. Pure: every process gathers the same claims and comes to the same
 * seats. GPUs are told apart by UUID alone, since CUDA_VISIBLE_DEVICES gives one GPU another
 * number in every process.
 */
#ifndef ARF_DEVICE_CUDA_SEAT_H
#define ARF_DEVICE_CUDA_SEAT_H

#include <cuda.h>

#include "base/error.h"
#include "device/node.h"
#include "device/team.h"

#define ARF_MAX_GPUS 16 /* that a process looks at; nodes have at most that many */

/* What a process brings. */
typedef struct arf_seat_claim {
    arf_node node;
    int fixed; /* it must have this one of its GPUs (an engine's current device); -1: any */
    int gpus;
    CUuuid gpu[ARF_MAX_GPUS]; /* in its own order: ordinal i */
} arf_seat_claim;

/* What it gets. */
typedef struct arf_seat {
    int ordinal;   /* its own number for the GPU; -1: it sees none */
    int processes; /* of the team that sit on this GPU, itself included */
    int ranks;     /* that these host */
} arf_seat;

/*
 * One seat a process, `count` of both. Processes of a node take GPUs in node-local order, the k-th
 * its GPU k where that is free; a maximum matching, so that none shares while a free GPU is visible
 * to it. Who is left over joins the visible GPU with the fewest ranks.
 */
void arf_seats(const arf_team *team, const arf_seat_claim *claim, arf_seat *seat);

/* "ranks 0-1 on GPU-01234567-..., rank 2 on GPU-...", cut by "..." where there is no room for more;
 * every process has a seat. Returns how many GPUs these are. */
int arf_seats_text(const arf_team *team, const arf_seat_claim *claim, const arf_seat *seat,
                   char *text, size_t size);

/*
 * ARFUSE_HARDWARE when a process has no GPU, or when ranks share one and `sharing` is not given:
 * names ranks and GPUs, and the command that would work (`command`: the program's own, or NULL).
 * Equal on all ranks.
 */
arfuse_status arf_seats_judge(const arf_team *team, const arf_seat_claim *claim,
                              const arf_seat *seat, bool sharing, const char *command,
                              arf_error *error);

/* Processes p and q sit on one GPU. */
bool arf_seats_shared(const arf_seat_claim *claim, const arf_seat *seat, int p, int q);

/* Different nodes among the first `count` claims. */
int arf_seat_nodes(const arf_seat_claim *claim, int count);

#endif
