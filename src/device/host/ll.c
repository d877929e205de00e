/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Low latency: every rank pushes its whole contribution into its slot of every
 * rank's mailbox, and every rank sums all R. One hop; the payload is its flag.
 *
 * Three generations of the mailbox rotate. Why no peer can be writing the slot
 * that is re-armed here: this generation is written again in the third call from
 * now. A peer starts that call after it has taken this rank's contributions of the
 * two calls between, and this rank puts those only after it has finished, so
 * re-armed, this one. (A call of no tokens sends nothing and so proves nothing: it
 * moves no generation.)
 */
#include "device/host/wait.h"

static arf_word *slot(const arf_host_space *space, int reader, uint64_t epoch, int source,
                      int64_t token)
{
    const arf_space_spec *spec = &space->base.spec;
    const int64_t generation = (int64_t)(epoch % ARF_GENERATIONS);
    const int64_t row =
        (generation * spec->shape.tp_size + source) * spec->capacity[ARF_LL] + token;
    return (arf_word *)(space->region[reader] + space->layout.ll +
                        row * spec->shape.hidden_size * (int64_t)sizeof(arf_bf16));
}

static void publish(const arf_host_call *call, uint64_t epoch)
{
    arf_host_rank *self = call->self;
    const arf_shape *shape = &self->space->base.spec.shape;
    const int step = call->plan->pack_step * ARF_PACK;
    arf_host_fence_put();
    for (int64_t token = 0; token < call->tokens; token++)
        for (int at = 0; at < shape->hidden_size; at += step) {
            int count = shape->hidden_size - at < step ? shape->hidden_size - at : step;
            arf_host_contribute(call, token, at, count, self->row);
            /* The peers first: their slots are the far ones. */
            for (int i = 1; i <= shape->tp_size; i++) {
                int reader = (self->rank + i) % shape->tp_size;
                arf_word *to = slot(self->space, reader, epoch, self->rank, token);
                arf_host_put(to + at * sizeof(arf_bf16) / sizeof *to, self->row, count);
            }
        }
}

static bool collect(arf_host_call *call, uint64_t epoch)
{
    arf_host_rank *self = call->self;
    const arf_shape *shape = &self->space->base.spec.shape;
    const int step = call->plan->pack_step * ARF_PACK;
    const arf_bf16 *from[ARF_MAX_RANKS];
    for (int64_t token = 0; token < call->tokens; token++) {
        const arf_bf16 *residual = arf_host_residual(call, token);
        arf_bf16 *x = arf_host_x(call, token);
        for (int at = 0; at < shape->hidden_size; at += step) {
            int count = shape->hidden_size - at < step ? shape->hidden_size - at : step;
            for (int source = 0; source < shape->tp_size; source++) {
                arf_host_wait wait = {
                    self, call->plan->yield_after, source, ARF_HOST_LL_CONTRIBUTION, token, epoch};
                arf_word *box = slot(self->space, self->rank, epoch, source, token);
                arf_bf16 *to = self->arrived + (int64_t)source * shape->hidden_size;
                if (!arf_host_take(&wait, box + at * sizeof(arf_bf16) / sizeof *box, to, count))
                    return false;
                from[source] = to;
            }
            arf_reduce_row(from, shape->tp_size, residual ? residual + at : NULL, count, x + at);
        }
        arf_host_finish(call, token, x);
    }
    arf_host_fence_take();
    return true;
}

bool arf_host_ll(arf_host_call *call)
{
    const uint64_t epoch = call->self->control->epoch[ARF_LL]++;
    publish(call, epoch);
    return collect(call, epoch);
}
