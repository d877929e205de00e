/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/composition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tune/voice.h"
#ifdef ARF_CUDA
#include "device/cuda/cuda_device.h"
#endif

/* ---- life --------------------------------------------------------------------------------------
 */

static arfuse_status open_device(composition *c, arf_error *error)
{
    const arf_tune_options *o = &c->options;
    const arf_device_options wanted = {.spec = o->device,
                                       .cuda_ordinal = -1,
                                       .gpu_sharing = o->gpu_sharing,
                                       .numerics = ARF_LIBRARY,
                                       .command = o->command,
                                       .log = &c->tuner.log};
    c->tuner.device = NULL;
    ARF_TRY(arf_device_open(&wanted, &c->tuner.team, &c->tuner.device, error));
    const arf_device_ops *ops = c->tuner.device->ops;
    const char *lack = ops->no_library != NULL ? ops->no_library(c->tuner.device) : NULL;
    if (lack != NULL)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "%s", lack);
#ifdef ARF_CUDA
    if (ops == &arf_cuda_device)
        ((arf_cuda *)c->tuner.device)->way = ARF_WAY_NONE; /* as if no memory could be mapped */
#endif
    return ARFUSE_OK;
}

static arfuse_status open_bench(composition *c, const arf_problem *problem,
                                const arf_tokens *tokens, arf_error *error)
{
    arf_schedule *schedule = calloc(1, sizeof *schedule);
    arfuse_status status = ARFUSE_OK;
    if (schedule == NULL)
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for the points");
    status = arf_team_vote(&c->tuner.team, status, error);
    if (status == ARFUSE_OK) {
        schedule->problem = *problem;
        schedule->tokens = *tokens;
        schedule->capacity[ARF_UNFUSED] = tokens->value[tokens->count - 1];
        status = arf_bench_open(&c->tuner, schedule, &c->bench, error);
    }
    free(schedule);
    return status;
}

arfuse_status composition_open(const arf_tuner *tuner, const arf_problem *problem,
                               const arf_tokens *tokens, composition *c, arf_error *error)
{
    double elapsed = 0;
    arf_error own = ARF_ERROR_INIT;
    *c = (composition){.options = *tuner->options, .tuner = *tuner};
    c->options.any_numerics = true;
    c->tuner.options = &c->options;
    if (problem->set == ARF_SET_HOST) {
        snprintf(c->why, sizeof c->why, "the host device has no library");
        return ARFUSE_OK;
    }
    if (tuner->key.ranks_per_gpu > 1) { /* known before a device is opened for it */
        snprintf(c->why, sizeof c->why, "NCCL takes one rank a GPU, and %d share one",
                 tuner->key.ranks_per_gpu);
        return ARFUSE_OK;
    }
    ARF_TRY(arf_tuner_seconds(tuner, &elapsed, error));
    c->open = open_device(c, &own) == ARFUSE_OK;
    if (c->open) {
        c->tuner.started = c->tuner.device->ops->now(c->tuner.device) - elapsed;
        c->open = open_bench(c, problem, tokens, &own) == ARFUSE_OK;
    }
    if (c->open)
        return ARFUSE_OK;
    snprintf(c->why, sizeof c->why, "%.250s", own.text);
    arf_device_close(c->tuner.device);
    c->tuner.device = NULL;
    return ARFUSE_OK;
}

void composition_close(composition *c)
{
    if (!c->open)
        return;
    arf_bench_close(&c->bench);
    arf_device_close(c->tuner.device);
    c->open = false;
}

/* ---- one row -----------------------------------------------------------------------------------
 */

static bool is_sound(composition *c, arf_pattern pattern, const arf_plan *plan)
{
    const arf_lane lane = {.plan = plan};
    arf_error error = ARF_ERROR_INIT;
    if (c->checked[pattern])
        return c->sound[pattern];
    const arfuse_status status =
        arf_sides_verify(&c->bench, pattern, ARF_VERIFY_TOKENS, &lane, &error);
    c->checked[pattern] = true;
    c->sound[pattern] = status == ARFUSE_OK;
    c->wrong += status == ARFUSE_WRONG_RESULT;
    if (status != ARFUSE_OK)
        arf_voice_warn("left out: by NCCL: %s", error.text);
    return status == ARFUSE_OK;
}

arfuse_status composition_time(composition *c, race_row *row, const arf_effort *effort,
                               arf_error *error)
{
    static arf_lane lane[COMPOSED_FORMS];
    static const arf_numerics numerics[COMPOSED_FORMS] = {ARF_FIXED, ARF_LIBRARY};
    arf_plan plan[COMPOSED_FORMS];
    composed_form form[COMPOSED_FORMS];
    arf_point point;
    int lanes = 0;
    if (!row->best[ARF_UNFUSED].timed || row->tokens > c->bench.spec.capacity[ARF_UNFUSED])
        return ARFUSE_OK;
    for (int f = 0; f < COMPOSED_FORMS; f++) {
        plan[f] = row->best[ARF_UNFUSED].plan;
        plan[f].numerics = numerics[f];
        if (f == COMPOSED_FIXED && !is_sound(c, row->pattern, &plan[f]))
            continue;
        form[lanes] = (composed_form)f;
        lane[lanes++] = (arf_lane){.plan = &plan[f]};
    }
    ARF_TRY(arf_measure(&c->bench, row->pattern, row->tokens, lane, lanes, effort, &point, error));
    for (int i = 0; i < lanes && !point.out_of_time; i++) {
        if (lane[i].status == ARFUSE_OK && lane[i].rounds > 0)
            row->composed[form[i]] = (race_time){.timed = true,
                                                 .plan = *lane[i].plan,
                                                 .us = arf_median(lane[i].us, lane[i].rounds),
                                                 .rounds = lane[i].rounds};
        else
            arf_voice_warn("%s %s by NCCL: %s", arf_pattern_name(row->pattern),
                           arf_numerics_name(lane[i].plan->numerics), lane[i].reason);
    }
    return ARFUSE_OK;
}
