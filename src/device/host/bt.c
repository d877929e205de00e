/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Balanced: a contribution goes to its owner alone, the owner sums, adds the
 * residual and pushes the pre-norm row to every rank, and all normalise. Two hops,
 * far fewer bytes; both mailboxes work as LL's does, and rotate together.
 *
 * The owner holds whole tokens (m mod R), or one of R equal slices of every token.
 * Rank 0 owns something of every call with tokens either way.
 *
 * Why no peer can be writing what is re-armed here: as for LL, with the owner
 * between. This generation is written again in the third call from now. A peer
 * that starts it has taken rows of the two calls between; an owner pushed the
 * second of them after it had taken this rank's contribution to the first, and
 * this rank puts that only after it has finished, so re-armed, this call.
 */
#include "device/host/wait.h"

/* What one rank owns of a call: `count` items, item i in token token_of(i). */
typedef struct share {
    int64_t first_token, step, count;
    arf_host_slice slice;
} share;

static share share_of(const arf_host_call *call, int owner)
{
    const arf_shape *shape = &call->self->space->base.spec.shape;
    if (call->plan->owner == 0) {
        int64_t owned = (call->tokens - owner + shape->tp_size - 1) / shape->tp_size;
        return (share){owner, shape->tp_size, owned > 0 ? owned : 0, {0, shape->hidden_size}};
    }
    arf_host_slice slice = arf_host_slice_of(shape->hidden_size, shape->tp_size, owner);
    return (share){0, 1, slice.count > 0 ? call->tokens : 0, slice};
}

/* Contributions of `source` in the mailbox of `owner`: item after item. */
static arf_word *contribution_slot(const arf_host_space *space, int owner, uint64_t epoch,
                                   int source, const share *owned, int64_t item)
{
    const int64_t generation = (int64_t)(epoch % ARF_GENERATIONS);
    const int64_t at =
        (generation * space->base.spec.shape.tp_size + source) * space->layout.bt_source +
        item * owned->slice.count;
    return (arf_word *)(space->region[owner] + space->layout.bt + at * (int64_t)sizeof(arf_bf16));
}

static arf_word *row_slot(const arf_host_space *space, int reader, uint64_t epoch, int64_t token,
                          int first)
{
    const arf_space_spec *spec = &space->base.spec;
    const int64_t generation = (int64_t)(epoch % ARF_GENERATIONS);
    const int64_t at =
        (generation * spec->capacity[ARF_BT] + token) * spec->shape.hidden_size + first;
    return (arf_word *)(space->region[reader] + space->layout.bt_rows +
                        at * (int64_t)sizeof(arf_bf16));
}

static void publish(const arf_host_call *call, uint64_t epoch)
{
    arf_host_rank *self = call->self;
    const int ranks = self->space->base.spec.shape.tp_size;
    arf_host_fence_put();
    for (int i = 1; i <= ranks; i++) {
        const int owner = (self->rank + i) % ranks;
        const share owned = share_of(call, owner);
        for (int64_t item = 0; item < owned.count; item++) {
            int64_t token = owned.first_token + item * owned.step;
            arf_host_contribute(call, token, owned.slice.first, owned.slice.count, self->row);
            arf_host_put(contribution_slot(self->space, owner, epoch, self->rank, &owned, item),
                         self->row, owned.slice.count);
        }
    }
}

static bool reduce(const arf_host_call *call, uint64_t epoch)
{
    arf_host_rank *self = call->self;
    const int ranks = self->space->base.spec.shape.tp_size;
    const int hidden = self->space->base.spec.shape.hidden_size;
    const share owned = share_of(call, self->rank);
    const int step = call->plan->pack_step * ARF_PACK;
    const arf_bf16 *from[ARF_MAX_RANKS];
    for (int64_t item = 0; item < owned.count; item++) {
        const int64_t token = owned.first_token + item * owned.step;
        const arf_bf16 *residual = arf_host_residual(call, token);
        for (int at = 0; at < owned.slice.count; at += step) {
            const int count = owned.slice.count - at < step ? owned.slice.count - at : step;
            const int column = owned.slice.first + at;
            for (int source = 0; source < ranks; source++) {
                arf_host_wait wait = {
                    self, call->plan->yield_after, source, ARF_HOST_BT_CONTRIBUTION, token, epoch};
                arf_word *box =
                    contribution_slot(self->space, self->rank, epoch, source, &owned, item);
                arf_bf16 *to = self->arrived + (int64_t)source * hidden;
                if (!arf_host_take(&wait, box + at * sizeof(arf_bf16) / sizeof *box, to, count))
                    return false;
                from[source] = to;
            }
            /* A row holds no sentinel either: contributions are no -0.0, a sum of others is none,
             * and +0.0 plus a residual of -0.0 is +0.0. */
            arf_reduce_row(from, ranks, residual ? residual + column : NULL, count, self->row);
            arf_host_fence_take();
            arf_host_fence_put();
            for (int i = 1; i <= ranks; i++)
                arf_host_put(row_slot(self->space, (self->rank + i) % ranks, epoch, token, column),
                             self->row, count);
        }
    }
    return true;
}

static bool normalise(arf_host_call *call, uint64_t epoch)
{
    arf_host_rank *self = call->self;
    const arf_shape *shape = &self->space->base.spec.shape;
    for (int64_t token = 0; token < call->tokens; token++) {
        arf_bf16 *x = arf_host_x(call, token);
        const int owners = call->plan->owner == 0 ? 1 : shape->tp_size;
        for (int i = 0; i < owners; i++) {
            const int owner = call->plan->owner == 0 ? (int)(token % shape->tp_size) : i;
            const arf_host_slice slice = call->plan->owner == 0
                                             ? (arf_host_slice){0, shape->hidden_size}
                                             : arf_host_slice_of(shape->hidden_size, owners, i);
            arf_host_wait wait = {self, call->plan->yield_after, owner, ARF_HOST_BT_ROW, token,
                                  epoch};
            if (!arf_host_take(&wait, row_slot(self->space, self->rank, epoch, token, slice.first),
                               x + slice.first, slice.count))
                return false;
        }
        arf_host_finish(call, token, x);
    }
    arf_host_fence_take();
    return true;
}

bool arf_host_bt(arf_host_call *call)
{
    const uint64_t epoch = call->self->control->epoch[ARF_BT]++;
    publish(call, epoch);
    return reduce(call, epoch) && normalise(call, epoch);
}
