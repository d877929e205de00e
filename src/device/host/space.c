/* SPDX-License-Identifier: Apache-2.0 */
/* Making a space, step by step with a vote after each, and its plans. */
#include "device/host/space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "device/fd_exchange.h"
#include "device/host/wait.h"
#include "rules/knobs.h"

#define MOST_SECONDS 1e9 /* 30 years; also what refuses infinity and NaN */

/* ---- set-up ---------------------------------------------------------------------------------- */

static uint64_t digest_of(const arf_space_spec *spec)
{
    uint64_t digest = ARF_HASH_INIT;
    digest = arf_hash_number(digest, spec->shape.tp_size);
    digest = arf_hash_number(digest, spec->shape.hidden_size);
    digest = arf_hash_number(digest, spec->shape.top_k);
    digest = arf_hash_number(digest, spec->shape.rms_norm);
    digest = arf_hash_number(digest, spec->shape.residual);
    digest = arf_hash_number(digest, spec->shape.shared_expert);
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
        digest = arf_hash_number(digest, spec->capacity[protocol]);
    digest = arf_hash_number(digest, spec->numerics);
    return arf_hash_number(digest, (int64_t)(spec->wait_limit_seconds * 1e6));
}

static arfuse_status check_spec(const arf_team *team, const arf_space_spec *spec, arf_error *error)
{
    const arf_shape *s = &spec->shape;
    if (s->tp_size != team->tp_size)
        return arf_fail(error, ARFUSE_USAGE, "the shape is for %d ranks, the team has %d",
                        s->tp_size, team->tp_size);
    if (s->hidden_size < ARF_MIN_HIDDEN || s->hidden_size > ARF_MAX_HIDDEN ||
        s->hidden_size % ARF_PACK != 0)
        return arf_fail(error, ARFUSE_USAGE, "hidden size %d: expected a multiple of %d, %d to %d",
                        s->hidden_size, ARF_PACK, ARF_MIN_HIDDEN, ARF_MAX_HIDDEN);
    if (s->top_k < 0 || s->top_k > ARF_MAX_TOP_K)
        return arf_fail(error, ARFUSE_USAGE, "top_k %d: expected 0 to %d", s->top_k, ARF_MAX_TOP_K);
    if (s->rms_norm == ARF_EITHER || s->residual == ARF_EITHER || s->shared_expert == ARF_EITHER)
        return arf_fail(error, ARFUSE_USAGE, "a space needs every switch of its shape decided");
    if (!(spec->wait_limit_seconds >= 0 && spec->wait_limit_seconds <= MOST_SECONDS))
        return arf_fail(error, ARFUSE_USAGE, "wait limit of %g s: expected 0 (none) to %g",
                        spec->wait_limit_seconds, MOST_SECONDS);
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
        if (spec->capacity[protocol] < 0 || spec->capacity[protocol] > ARF_MAX_TOKENS)
            return arf_fail(error, ARFUSE_USAGE, "capacity %lld of %s: expected 0 to %d tokens",
                            (long long)spec->capacity[protocol],
                            arf_protocol_name((arf_protocol)protocol), ARF_MAX_TOKENS);
    return ARFUSE_OK;
}

/* A rank's scratch of a separate finalize, by far the largest of its scratch. */
static size_t finalized_bytes(const arf_space_spec *spec)
{
    return (size_t)spec->capacity[ARF_SEPARATE] * (size_t)spec->shape.hidden_size *
           sizeof(arf_bf16);
}

static arfuse_status allocate_local(arf_host_space *space, arf_error *error)
{
    const arf_team *team = space->base.device->team;
    const arf_space_spec *spec = &space->base.spec;
    const size_t hidden = (size_t)spec->shape.hidden_size;
    for (int i = 0; i < team->local_ranks; i++) {
        arf_host_rank *local = &space->local[i];
        local->space = space;
        local->rank = team->first_rank + i;
        const size_t finalized = finalized_bytes(spec);
        local->row = malloc(hidden * sizeof *local->row);
        local->x = malloc(hidden * sizeof *local->x);
        local->arrived = malloc(hidden * (size_t)spec->shape.tp_size * sizeof *local->arrived);
        local->finalized = finalized > 0 ? malloc(finalized) : NULL;
        if (!local->row || !local->x || !local->arrived || (finalized > 0 && !local->finalized))
            return arf_fail(error, ARFUSE_FAILURE, "out of memory for the scratch of rank %d",
                            local->rank);
    }
    return ARFUSE_OK;
}

/* Every region mapped, the own ones made before and armed after. On failure space_destroy unmaps
 * what there is; no descriptor stays open on any path. */
static arfuse_status map_regions(arf_host_space *space, arf_error *error)
{
    const arf_team *team = space->base.device->team;
    int own[ARF_MAX_RANKS], all[ARF_MAX_RANKS];
    int made = 0;
    arfuse_status status = ARFUSE_OK;
    while (made < team->local_ranks && status == ARFUSE_OK) {
        status = arf_host_region_create(&space->layout, team->first_rank + made, &own[made], error);
        made += status == ARFUSE_OK;
    }
    status = arf_team_vote(team, status, error);
    if (status == ARFUSE_OK)
        status = arf_fd_exchange(team, own, all, ARF_EXCHANGE_SECONDS, error);
    for (int i = 0; i < made; i++)
        close(own[i]);
    if (status != ARFUSE_OK)
        return status;

    for (int rank = 0; rank < team->tp_size; rank++) {
        if (status == ARFUSE_OK)
            status =
                arf_host_region_map(&space->layout, rank, all[rank], &space->region[rank], error);
        close(all[rank]); /* the mapping keeps the memory */
    }
    for (int i = 0; status == ARFUSE_OK && i < team->local_ranks; i++) {
        arf_host_rank *local = &space->local[i];
        local->control = (arf_host_control *)space->region[local->rank];
        arf_host_region_arm(&space->layout, space->region[local->rank]);
    }
    return arf_team_vote(team, status, error);
}

static void meet(void *context, int local)
{
    arf_host_space *space = context;
    arf_host_barrier(&space->local[local]);
}

/* All ranks meet in the shared memory itself: what was mapped is the same memory on all sides, and
 * nobody starts before all mailboxes are armed. */
static arfuse_status self_check(arf_host_space *space, arf_error *error)
{
    const arf_team *team = space->base.device->team;
    ARF_TRY(arf_team_barrier(team, error));
    arf_host_workers_run(((arf_host_instance *)space->base.device)->workers, meet, space);
    arfuse_culprit culprit = {.struct_size = sizeof culprit};
    arfuse_status status = arf_host_state(&space->base, &culprit);
    if (status != ARFUSE_OK)
        arf_fail(error, status, "rank %d did not come to the first barrier in shared memory",
                 culprit.rank);
    return arf_team_vote(team, status, error);
}

static void give_up(arf_space *base)
{
    arf_host_give_up(&((arf_host_space *)base)->local[0], 0);
}

static arfuse_status lay_out(const arf_space_spec *spec, arf_host_layout *layout, arf_error *error)
{
    ARF_TRY(arf_host_layout_of(spec, layout, error));
    return arf_host_memory_check(layout->bytes + (int64_t)finalized_bytes(spec),
                                 spec->shape.tp_size, error);
}

arfuse_status arf_host_space_fits(arf_device *device, const arf_space_spec *spec, arf_error *error)
{
    arf_host_layout layout;
    arfuse_status status = check_spec(device->team, spec, error);
    if (status == ARFUSE_OK)
        status = lay_out(spec, &layout, error);
    return arf_team_vote(device->team, status, error);
}

arfuse_status arf_host_space_create(arf_device *device, const arf_space_spec *spec,
                                    arf_space **result, arf_error *error)
{
    const arf_team *team = device->team;
    arfuse_status status = arf_team_vote(team, check_spec(team, spec, error), error);
    if (status != ARFUSE_OK)
        return status;
    ARF_TRY(arf_team_agree(team, "shape and capacity", digest_of(spec), error));

    arf_host_space *space = calloc(1, sizeof *space);
    if (space == NULL) {
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for a space");
    } else {
        space->base.device = device;
        space->base.spec = *spec;
        status = lay_out(spec, &space->layout, error);
        if (status == ARFUSE_OK)
            status = allocate_local(space, error);
    }
    ARF_TRY_GOTO(status, arf_team_vote(team, status, error), failed);
    ARF_TRY_GOTO(status, map_regions(space, error), failed);
    ARF_TRY_GOTO(status, self_check(space, error), failed);
    if (spec->check_order)
        ARF_TRY_GOTO(status, arf_order_join(&space->seat, &space->base, 0, give_up, error), failed);
    *result = &space->base;
    return ARFUSE_OK;
failed:
    if (space)
        arf_host_space_destroy(&space->base);
    return status;
}

void arf_host_space_destroy(arf_space *base)
{
    arf_host_space *space = (arf_host_space *)base;
    arf_order_leave(&space->seat);
    for (int rank = 0; rank < ARF_MAX_RANKS; rank++) {
        arf_host_region_unmap(&space->layout, space->region[rank]);
        free(space->local[rank].row);
        free(space->local[rank].x);
        free(space->local[rank].arrived);
        free(space->local[rank].finalized);
        free(space->local[rank].filler);
    }
    free(space->plan);
    free(space);
}

arfuse_status arf_host_state(const arf_space *base, arfuse_culprit *culprit)
{
    const arf_host_space *space = (const arf_host_space *)base;
    return arf_host_failed(space->local[0].control, culprit) ? ARFUSE_TIMEOUT : ARFUSE_OK;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static int knob(const arf_host_plan *p, const char *name)
{
    const arf_knob_table *table = arf_knobs(ARF_SET_HOST, p->plan.protocol, p->pattern);
    int index = arf_knob_index(table, name);
    return index < 0 ? 0 : p->plan.tuning.value[index];
}

static arfuse_status check_plan(const arf_host_space *space, arf_pattern pattern,
                                const arf_plan *plan, arf_error *error)
{
    const arf_shape *shape = &space->base.spec.shape;
    const char *name = arf_protocol_name(plan->protocol);
    if (plan->transport != ARF_UNICAST)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                        "transport %s: the host device has unicast only",
                        arf_transport_name(plan->transport));
    if (plan->numerics != ARF_FIXED)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                        "numerics %s: the host device has fixed bits only",
                        arf_numerics_name(plan->numerics));
    if (plan->tuning_null)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "%s: a plan without its tuning cannot run",
                        name);
    arf_problem problem = arf_device_problem(space->base.device, shape);
    char reason[ARF_REASON_TEXT];
    if (!arf_legal(&problem, pattern, plan, reason))
        return arf_fail(error, ARFUSE_USAGE, "%s %s: %s", name, arf_pattern_name(pattern), reason);
    if (space->base.spec.capacity[plan->protocol] == 0)
        return arf_fail(error, ARFUSE_USAGE, "%s: the space was made without room for it", name);
    return ARFUSE_OK;
}

arfuse_status arf_host_prepare(arf_space *base, arf_pattern pattern, const arf_plan *plan, int *id,
                               arf_error *error)
{
    arf_host_space *space = (arf_host_space *)base;
    ARF_TRY(check_plan(space, pattern, plan, error));
    for (int i = 0; i < space->plan_count; i++)
        if (space->plan[i].pattern == pattern &&
            arf_plan_equal(ARF_SET_HOST, pattern, &space->plan[i].plan, plan)) {
            *id = i;
            return ARFUSE_OK;
        }
    if (space->plan_count == space->plan_room) {
        int room = space->plan_room ? 2 * space->plan_room : 16;
        arf_host_plan *grown = realloc(space->plan, (size_t)room * sizeof *grown);
        if (grown == NULL)
            return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d plans", room);
        space->plan = grown;
        space->plan_room = room;
    }
    arf_host_plan *p = &space->plan[space->plan_count];
    *p = (arf_host_plan){.pattern = pattern, .plan = *plan};
    p->pack_step = knob(p, "pack_step");
    p->owner = knob(p, "owner");
    p->group_tokens = knob(p, "group_tokens");
    p->shards = knob(p, "shards");
    p->row_block = knob(p, "row_block");
    p->yield_after = knob(p, "yield_after");
    *id = space->plan_count++;
    return ARFUSE_OK;
}
