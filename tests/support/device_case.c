/* SPDX-License-Identifier: Apache-2.0 */
#include "support/device_case.h"

#include <unistd.h>

#include "rules/knobs.h"

uint64_t case_random(uint64_t *state)
{
    /* splitmix64 (Steele, Lea, Flood 2014) */
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void set_knob(const arf_knob_table *table, arf_tuning *tuning, const char *name, int value)
{
    int index = arf_knob_index(table, name);
    if (index >= 0)
        tuning->value[index] = value;
}

arf_plan case_plan(arf_set set, const arf_shape *shape, arf_pattern pattern, arf_protocol protocol,
                   int variant)
{
    static const struct {
        int pack_step, owner, group_tokens, shards, row_block, yield_after;
    } odd[CASE_VARIANTS] = {
        {0}, {5, 1, 3, 2, 24, 0}, {8192, 0, 1000, 7, 65536, 16}, {1, 1, 1, 1, 8, 300}};
    const arf_knob_table *table = arf_knobs(set, protocol, pattern);
    const int packs = shape->hidden_size / 8;
    arf_plan plan = {.protocol = protocol, .tuning = arf_tuning_fallback(table)};
    int shards = variant ? odd[variant].shards : 4;
    set_knob(table, &plan.tuning, "shards", shards < packs ? shards : packs);
    if (variant) {
        set_knob(table, &plan.tuning, "pack_step", odd[variant].pack_step);
        /* Slices of a token must be equal. */
        set_knob(table, &plan.tuning, "owner",
                 packs % shape->tp_size == 0 ? odd[variant].owner : 0);
        set_knob(table, &plan.tuning, "group_tokens", odd[variant].group_tokens);
        set_knob(table, &plan.tuning, "row_block", odd[variant].row_block);
        set_knob(table, &plan.tuning, "yield_after", odd[variant].yield_after);
    }
    return plan;
}

arfuse_status case_host(const arfuse_bootstrap *bootstrap, int local_ranks, arf_team *team,
                        arf_device **device, arf_error *error)
{
    const arfuse_bootstrap alone = ARFUSE_BOOTSTRAP_INIT;
    const arf_device_options options = {.spec = "host"};
    ARF_TRY(arf_team_create(bootstrap != NULL ? bootstrap : &alone, local_ranks, team, error));
    return arf_device_open(&options, team, device, error);
}

arfuse_status case_space(arf_device *device, const arf_shape *shape, int64_t capacity,
                         double wait_limit_seconds, arf_space **space, arf_error *error)
{
    arf_space_spec spec = {.shape = *shape, .wait_limit_seconds = wait_limit_seconds};
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
        spec.capacity[protocol] = protocol == ARF_SEPARATE && shape->top_k == 0 ? 0 : capacity;
    return device->ops->space_create(device, &spec, space, error);
}

arfuse_status case_prepare(arf_space *space, arf_protocol protocol, int variant, arf_launch *launch,
                           arf_error *error)
{
    const arf_device_ops *ops = space->device->ops;
    const arf_set set = arf_device_set(space->device);
    arf_plan plan = case_plan(set, &space->spec.shape, launch->pattern, protocol, variant);
    ARF_TRY(ops->prepare(space, launch->pattern, &plan, &launch->plan, error));
    launch->then = -1;
    if (protocol != ARF_SEPARATE)
        return ARFUSE_OK;
    /* Behind a separate finalize stands any allreduce plan. */
    plan = case_plan(set, &space->spec.shape, ARF_ALLREDUCE, (arf_protocol)(variant % ARF_SEPARATE),
                     variant);
    return ops->prepare(space, ARF_ALLREDUCE, &plan, &launch->then, error);
}

arfuse_status case_call(arf_space *space, arf_trial *trial, arf_pattern pattern,
                        arf_protocol protocol, int variant, int64_t tokens, arf_error *error)
{
    const arf_device_ops *ops = space->device->ops;
    arf_launch launch = arf_trial_launch(trial, pattern, tokens);
    arfuse_status status = case_prepare(space, protocol, variant, &launch, error);
    if (status == ARFUSE_OK)
        status = arf_trial_poison(trial, error);
    if (status == ARFUSE_OK)
        status = ops->launch(space, &launch, error);
    if (status == ARFUSE_OK)
        status = ops->synchronize(space, launch.stream, error);
    if (status == ARFUSE_OK)
        status = arf_trial_check(trial, pattern, tokens, error);
    if (status != ARFUSE_OK)
        arf_error_prefix(error, "%s variant %d", arf_protocol_name(protocol), variant);
    return status;
}

arfuse_status case_matrix(arf_device *device, const arf_shape *shape, int64_t capacity,
                          arf_trial_kind kind, uint64_t seed, arf_error *error)
{
    const int64_t tokens[] = {0, 1, 2, 17, capacity};
    arf_space *space = NULL;
    arf_trial *trial = NULL;
    arfuse_status status = case_space(device, shape, capacity, 30, &space, error);
    if (status == ARFUSE_OK)
        status = arf_trial_create(device, shape, capacity, kind, seed, &trial, error);
    for (int pattern = 0; pattern < (shape->top_k > 0 ? 2 : 1); pattern++)
        for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++) {
            if (pattern == ARF_ALLREDUCE && protocol == ARF_SEPARATE)
                continue;
            for (int i = 0; i < 5 && status == ARFUSE_OK; i++) {
                if (tokens[i] > capacity)
                    continue;
                int variant = (int)(case_random(&seed) % CASE_VARIANTS);
                status = case_call(space, trial, (arf_pattern)pattern, (arf_protocol)protocol,
                                   variant, tokens[i], error);
            }
        }
    if (status != ARFUSE_OK)
        arf_error_prefix(error, "H %d K %d R %d norm %d residual %d shared %d", shape->hidden_size,
                         shape->top_k, shape->tp_size, shape->rms_norm, shape->residual,
                         shape->shared_expert);
    arf_trial_destroy(trial);
    if (space)
        device->ops->space_destroy(space);
    return status;
}

arfuse_status case_mixed(arf_device *device, const arf_shape *shape, int64_t most, int calls,
                         unsigned late_us, uint64_t seed, arf_error *error)
{
    arf_space *space = NULL;
    arf_trial *trial = NULL;
    arfuse_status status = case_space(device, shape, most, 30, &space, error);
    if (status == ARFUSE_OK)
        status = arf_trial_create(device, shape, most, ARF_TRIAL_RANDOM, seed, &trial, error);
    for (int call = 0; call < calls && status == ARFUSE_OK; call++) {
        arf_pattern pattern = (arf_pattern)(case_random(&seed) % (shape->top_k > 0 ? 2 : 1));
        uint64_t protocols = pattern == ARF_FINALIZE ? ARF_PROTOCOLS : ARF_SEPARATE;
        arf_protocol protocol = (arf_protocol)(case_random(&seed) % protocols);
        int variant = (int)(case_random(&seed) % CASE_VARIANTS);
        /* Half of the calls are small: the shorter a call, the more of it meets its neighbours. */
        int64_t range = case_random(&seed) % 2 ? most : 3;
        int64_t tokens = (int64_t)(case_random(&seed) % (uint64_t)(range + 1));
        if (late_us > 0) {
            int late = (int)(case_random(&seed) % (uint64_t)device->team->bootstrap.size);
            unsigned us = (unsigned)(case_random(&seed) % late_us);
            if (late == device->team->bootstrap.rank)
                usleep(us);
        }
        status = case_call(space, trial, pattern, protocol, variant, tokens, error);
        if (status != ARFUSE_OK)
            arf_error_prefix(error, "call %d", call);
    }
    arf_trial_destroy(trial);
    if (space)
        device->ops->space_destroy(space);
    return status;
}
