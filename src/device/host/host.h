/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host device from inside: a space is one shared region per rank, mapped by
 * every process; a call is one protocol run by every local rank on its own
 * thread. See README.md for the memory orders that all of it rests on.
 */
#ifndef ARF_DEVICE_HOST_HOST_H
#define ARF_DEVICE_HOST_HOST_H

#include "device/device.h"
#include "device/host/region.h"
#include "device/host/workers.h"
#include "device/numerics.h"
#include "device/order.h"
#include "rules/sizing.h"

/* A prepared plan: its knobs by name. Those of other protocols are 0. */
typedef struct arf_host_plan {
    arf_pattern pattern;
    arf_plan plan;
    int pack_step;    /* LL, BT: packs of one source handled before the next source's turn */
    int owner;        /* BT: 0 whole tokens, 1 a slice of every token */
    int group_tokens; /* HT */
    int shards;       /* HT: slices of a token that are published one by one */
    int row_block;    /* separate: values of a token finalized per pass */
    int yield_after;  /* empty polls before the core is yielded */
} arf_host_plan;

typedef struct arf_host_space arf_host_space;

/* One local rank of a space; used by its own thread alone during a call. */
typedef struct arf_host_rank {
    arf_host_space *space;
    int rank;                  /* team rank */
    arf_host_control *control; /* at the head of its own region */
    arf_bf16 *row;             /* [H]: a contribution on its way out */
    arf_bf16 *x;               /* [H]: a pre-norm row when residual_out is NULL */
    arf_bf16 *arrived;         /* [R,H]: contributions taken out of a mailbox */
    arf_bf16 *finalized;       /* [capacity,H]: output of a separate finalize; or NULL */
    unsigned char *filler;     /* what the decode policy streams through; or NULL until used */
    double us;                 /* of the last time() */
} arf_host_rank;

struct arf_host_space {
    arf_space base;
    arf_host_layout layout;
    unsigned char *region[ARF_MAX_RANKS]; /* by team rank */
    arf_host_rank local[ARF_MAX_RANKS];
    arf_host_plan *plan;
    int plan_count, plan_room;
    arf_order_seat seat; /* zero: the order of calls is not watched */
};

typedef struct arf_host_instance {
    arf_device base;
    arf_host_workers *workers;
} arf_host_instance;

/* One call of one local rank. */
typedef struct arf_host_call {
    arf_host_rank *self;
    const arf_host_plan *plan;
    const arf_launch *launch;
    const arfuse_operands *operands;
    arf_pattern pattern;   /* of this part: the allreduce behind a separate finalize is one */
    const arf_bf16 *input; /* allreduce: [M,H] */
    int64_t tokens;
    int64_t done; /* rows whose outputs are complete; they complete in ascending order */
} arf_host_call;

/* The protocols. False: a wait expired, here or on a peer; rows from call->done on are not
 * finished. Called with 0 < tokens <= capacity, on an intact space. */
bool arf_host_ll(arf_host_call *call);
bool arf_host_bt(arf_host_call *call);
bool arf_host_ht(arf_host_call *call);
bool arf_host_unfused(arf_host_call *call);

/* ---- what the protocols share (rows.c) ------------------------------------------------------ */

/* This rank's contribution to one token, elements first .. first + count - 1. */
void arf_host_contribute(const arf_host_call *call, int64_t token, int first, int count,
                         arf_bf16 *contribution);
/* Where the token's pre-norm row goes: residual_out, or the rank's own scratch. */
arf_bf16 *arf_host_x(const arf_host_call *call, int64_t token);
/* The token's residual row, or NULL when the shape has none. */
const arf_bf16 *arf_host_residual(const arf_host_call *call, int64_t token);
/* Normalises the finished pre-norm row; the token is done. */
void arf_host_finish(arf_host_call *call, int64_t token, const arf_bf16 *x);

/* A part of one token, in elements. */
typedef struct arf_host_slice {
    int first, count;
} arf_host_slice;
/* Cuts H into `slices` parts of whole packs; where they do not come out equal, the last ones are
 * smaller, or empty. */
arf_host_slice arf_host_slice_of(int hidden_size, int slices, int index);

#endif
