/* SPDX-License-Identifier: Apache-2.0 */
/*
 * High throughput: two hops over plain memory with ready counters, pipelined.
 * The unit is a slice ("shard") of a group of tokens. While one unit is on its way
 * to its owners, the one before is summed and pushed, and the group before that is
 * normalised.
 *
 * A rank always publishes a unit before it waits for an earlier one, so nobody
 * waits for what stands behind its own wait, and the pipeline cannot lock.
 *
 * No generations. Counters only grow, by the same amount on all ranks. A rank
 * publishes over the last call's contributions after it has seen every owner's row
 * counter at the end of that call, which an owner raises behind its last read. An
 * owner pushes over the last call's rows after it has taken this call's
 * contributions from every rank, which a rank publishes after it has normalised
 * all of the last call. All ranks raise both for every unit, whatever they own.
 */
#include <string.h>

#include "device/host/wait.h"

typedef struct pipeline {
    arf_host_call *call;
    const arf_host_space *space;
    int ranks, hidden, shards;
    int64_t group, owned_most, units;
    uint64_t before; /* units of all earlier calls */
} pipeline;

/* The tokens first .. end - 1 of a unit's group. */
static int64_t first_token(const pipeline *p, int64_t unit)
{
    return unit / p->shards * p->group;
}
static int64_t end_token(const pipeline *p, int64_t unit)
{
    int64_t end = first_token(p, unit) + p->group;
    return end < p->call->tokens ? end : p->call->tokens;
}

static arf_bf16 *contribution_at(const pipeline *p, int owner, int source, int64_t token)
{
    return (arf_bf16 *)(p->space->region[owner] + p->space->layout.ht) +
           (source * p->owned_most + token / p->ranks) * p->hidden;
}

static arf_bf16 *row_at(const pipeline *p, int reader, int64_t token)
{
    return (arf_bf16 *)(p->space->region[reader] + p->space->layout.ht_rows) + token * p->hidden;
}

static arf_host_control *control_of(const pipeline *p, int rank)
{
    return (arf_host_control *)p->space->region[rank];
}

static void publish(const pipeline *p, int64_t unit)
{
    const int self = p->call->self->rank;
    const arf_host_slice s = arf_host_slice_of(p->hidden, p->shards, (int)(unit % p->shards));
    for (int64_t token = first_token(p, unit); token < end_token(p, unit); token++) {
        ARF_HOST_TURN();
        arf_host_contribute(p->call, token, s.first, s.count,
                            contribution_at(p, (int)(token % p->ranks), self, token) + s.first);
    }
    for (int owner = 0; owner < p->ranks; owner++) {
        ARF_HOST_TURN();
        atomic_store_explicit(&control_of(p, owner)->ht_ready[self].word,
                              p->before + (uint64_t)unit + 1, memory_order_release);
    }
}

static bool await_unit(const pipeline *p, int64_t unit, arf_host_stage stage)
{
    arf_host_rank *self = p->call->self;
    arf_line *line = stage == ARF_HOST_HT_ROW ? self->control->ht_rows : self->control->ht_ready;
    for (int peer = 0; peer < p->ranks; peer++) {
        arf_host_wait wait = {self,  p->call->plan->yield_after, peer,
                              stage, first_token(p, unit),       self->control->epoch[ARF_HT] - 1};
        if (!arf_host_await_count(&wait, &line[peer].word, p->before + (uint64_t)unit + 1))
            return false;
    }
    return true;
}

static bool reduce(const pipeline *p, int64_t unit)
{
    arf_host_rank *self = p->call->self;
    if (!await_unit(p, unit, ARF_HOST_HT_CONTRIBUTION))
        return false;
    const arf_host_slice s = arf_host_slice_of(p->hidden, p->shards, (int)(unit % p->shards));
    for (int64_t token = first_token(p, unit); token < end_token(p, unit); token++) {
        if (token % p->ranks != self->rank)
            continue;
        const arf_bf16 *from[ARF_MAX_RANKS];
        for (int source = 0; source < p->ranks; source++)
            from[source] = contribution_at(p, self->rank, source, token) + s.first;
        const arf_bf16 *residual = arf_host_residual(p->call, token);
        ARF_HOST_TURN();
        arf_reduce_row(from, p->ranks, residual ? residual + s.first : NULL, s.count, self->row);
        for (int reader = 0; reader < p->ranks; reader++) {
            ARF_HOST_TURN();
            memcpy(row_at(p, reader, token) + s.first, self->row,
                   (size_t)s.count * sizeof *self->row);
        }
    }
    for (int reader = 0; reader < p->ranks; reader++) {
        ARF_HOST_TURN();
        atomic_store_explicit(&control_of(p, reader)->ht_rows[self->rank].word,
                              p->before + (uint64_t)unit + 1, memory_order_release);
    }
    return true;
}

/* The whole group, once its last shard is there. */
static bool normalise(const pipeline *p, int64_t unit)
{
    if (!await_unit(p, unit, ARF_HOST_HT_ROW))
        return false;
    for (int64_t token = first_token(p, unit); token < end_token(p, unit); token++) {
        const arf_bf16 *row = row_at(p, p->call->self->rank, token);
        ARF_HOST_TURN();
        if (p->call->operands->residual_out)
            memcpy(arf_host_x(p->call, token), row, (size_t)p->hidden * sizeof *row);
        arf_host_finish(p->call, token, row);
    }
    return true;
}

bool arf_host_ht(arf_host_call *call)
{
    arf_host_rank *self = call->self;
    const arf_space_spec *spec = &self->space->base.spec;
    pipeline p = {.call = call,
                  .space = self->space,
                  .ranks = spec->shape.tp_size,
                  .hidden = spec->shape.hidden_size,
                  .shards = call->plan->shards,
                  .group = call->plan->group_tokens,
                  .owned_most = arf_host_owned_most(spec->capacity[ARF_HT], spec->shape.tp_size),
                  .before = self->control->ht_units};
    p.units = (call->tokens + p.group - 1) / p.group * p.shards;
    self->control->ht_units += (uint64_t)p.units;
    self->control->epoch[ARF_HT]++;

    /* publish is one unit ahead of reduce; normalise follows one whole group behind. */
    for (int64_t step = 0; step <= p.units + p.shards; step++) {
        if (step < p.units)
            publish(&p, step);
        const int64_t reduced = step - 1, normal = step - 1 - p.shards;
        if (reduced >= 0 && reduced < p.units && !reduce(&p, reduced))
            return false;
        if (normal >= 0 && normal < p.units && normal % p.shards == p.shards - 1 &&
            !normalise(&p, normal))
            return false;
    }
    return true;
}
