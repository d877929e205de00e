/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unfused: the parts one after another, each over all tokens, as separate
 * kernels would run. Contributions to memory; then all-reduce in two hops
 * (owners pull and sum their tokens, everyone pulls the sums); then the norm.
 * The residual is added with the sums, before the one rounding that the contract
 * allows.
 *
 * One generation suffices. A rank overwrites its contributions in the next call,
 * after it has seen every owner's `reduced` of this one, which an owner raises
 * when it has read all it needs. An owner overwrites its sums in the next call,
 * after it has seen every rank's `contributed` of it, which a rank raises after
 * it has read this call's sums. All ranks raise both, whether they own a token
 * of this call or not, and whether there is a norm or not.
 */
#include <string.h>

#include "device/host/wait.h"

static bool await_all(const arf_host_call *call, arf_host_stage stage, uint64_t calls)
{
    arf_host_rank *self = call->self;
    for (int peer = 0; peer < self->space->base.spec.shape.tp_size; peer++) {
        arf_host_control *control = (arf_host_control *)self->space->region[peer];
        arf_line *line = stage == ARF_HOST_UNFUSED_ROW ? &control->reduced : &control->contributed;
        arf_host_wait wait = {self, call->plan->yield_after, peer, stage, 0, calls - 1};
        if (!arf_host_await_count(&wait, &line->word, calls))
            return false;
    }
    return true;
}

static arf_bf16 *part(const arf_host_space *space, int rank, int64_t offset, int64_t row)
{
    return (arf_bf16 *)(space->region[rank] + offset) + row * space->base.spec.shape.hidden_size;
}

bool arf_host_unfused(arf_host_call *call)
{
    arf_host_rank *self = call->self;
    const arf_host_space *space = self->space;
    const int ranks = space->base.spec.shape.tp_size, hidden = space->base.spec.shape.hidden_size;
    const uint64_t calls = ++self->control->epoch[ARF_UNFUSED];

    for (int64_t token = 0; token < call->tokens; token++) {
        ARF_HOST_TURN();
        arf_host_contribute(call, token, 0, hidden,
                            part(space, self->rank, space->layout.unfused, token));
    }
    ARF_HOST_TURN();
    atomic_store_explicit(&self->control->contributed.word, calls, memory_order_release);

    if (!await_all(call, ARF_HOST_UNFUSED_CONTRIBUTION, calls))
        return false;
    for (int64_t token = self->rank; token < call->tokens; token += ranks) {
        const arf_bf16 *from[ARF_MAX_RANKS];
        for (int source = 0; source < ranks; source++)
            from[source] = part(space, source, space->layout.unfused, token);
        ARF_HOST_TURN();
        arf_reduce_row(from, ranks, arf_host_residual(call, token), hidden,
                       part(space, self->rank, space->layout.unfused_rows, token / ranks));
    }
    ARF_HOST_TURN();
    atomic_store_explicit(&self->control->reduced.word, calls, memory_order_release);

    if (!await_all(call, ARF_HOST_UNFUSED_ROW, calls))
        return false;
    for (int64_t token = 0; token < call->tokens; token++) {
        const arf_bf16 *sum =
            part(space, (int)(token % ranks), space->layout.unfused_rows, token / ranks);
        ARF_HOST_TURN();
        if (call->operands->residual_out)
            memcpy(arf_host_x(call, token), sum, (size_t)hidden * sizeof *sum);
        arf_host_finish(call, token, sum);
    }
    return true;
}
