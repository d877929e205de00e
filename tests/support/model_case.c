/* SPDX-License-Identifier: Apache-2.0 */
#include "support/model_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rules/knobs.h"

const arf_shape model_shape = {MODEL_RANKS, 8192, 10, ARF_ON, ARF_ON, ARF_ON};

arf_space_spec model_spec(int64_t capacity)
{
    arf_space_spec spec = {.shape = model_shape, .wait_limit_seconds = 30.0};
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
        spec.capacity[protocol] = capacity;
    return spec;
}

void model_open(model_stand *stand, const char *spec)
{
    arfuse_bootstrap bootstrap = ARFUSE_BOOTSTRAP_INIT;
    arf_error error = ARF_ERROR_INIT;
    memset(stand, 0, sizeof *stand);
    assert_int_equal(arf_team_create(&bootstrap, MODEL_RANKS, &stand->team, &error), ARFUSE_OK);
    arf_device_options options = {.spec = spec, .cuda_ordinal = -1};
    if (arf_model_device.open(&options, &stand->team, &stand->device, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
}

void model_open_space(model_stand *stand, int64_t capacity)
{
    arf_space_spec spec = model_spec(capacity);
    arf_error error = ARF_ERROR_INIT;
    if (arf_model_device.space_create(stand->device, &spec, &stand->space, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
}

void model_set_up(model_stand *stand, const char *spec)
{
    model_open(stand, spec);
    model_open_space(stand, 8192);
}

void model_tear_down(model_stand *stand)
{
    if (stand->space != NULL)
        arf_model_device.space_destroy(stand->space);
    arf_model_device.close(stand->device);
}

arf_plan model_plan(arf_pattern pattern, arf_protocol protocol)
{
    arf_plan plan = {.protocol = protocol};
    plan.tuning = arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, protocol, pattern));
    return plan;
}

int model_prepared(const model_stand *stand, arf_pattern pattern, arf_protocol protocol)
{
    arf_plan plan = model_plan(pattern, protocol);
    int id = -1;
    arf_error error = ARF_ERROR_INIT;
    if (arf_model_device.prepare(stand->space, pattern, &plan, &id, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return id;
}

arf_launch model_launch(const model_stand *stand, arf_protocol protocol, int64_t tokens)
{
    return (arf_launch){.pattern = ARF_ALLREDUCE,
                        .plan = model_prepared(stand, ARF_ALLREDUCE, protocol),
                        .then = -1,
                        .tokens = tokens};
}

arfuse_status model_time(const model_stand *stand, const arf_launch *launch, int64_t round,
                         double us[MODEL_RANKS], arf_error *error)
{
    arf_timing timing = {.calls = 100, .policy = ARF_WARM, .round = round};
    *error = (arf_error)ARF_ERROR_INIT;
    return arf_model_device.time(stand->space, launch, &timing, us, error);
}
