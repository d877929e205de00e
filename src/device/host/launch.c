/* SPDX-License-Identifier: Apache-2.0 */
/* Running and timing calls: every local rank on its own thread, the whole call at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/host/space.h"
#include "device/host/wait.h"

typedef struct job {
    arf_host_space *space;
    const arf_launch *launch;
    const arf_timing *timing;
    bool failed[ARF_MAX_RANKS]; /* by local rank: it ran out of memory */
} job;

static const arfuse_operands *operands_of(const arf_launch *launch, int local)
{
    const char *first = (const char *)launch->operands;
    return (const arfuse_operands *)(first + (size_t)local * launch->operands->struct_size);
}

/* ---- one call of one rank -------------------------------------------------------------------- */

/* Rows that were not finished must not look like results. */
static void fill_unfinished(const arf_host_call *call)
{
    const arf_shape *shape = &call->self->space->base.spec.shape;
    const int64_t first = call->done * shape->hidden_size, end = call->tokens * shape->hidden_size;
    arf_bf16 *out[] = {call->operands->residual_out,
                       shape->rms_norm == ARF_ON ? call->operands->norm_out : NULL};
    for (int i = 0; i < 2; i++)
        for (int64_t at = first; out[i] && at < end; at++)
            out[i][at] = ARF_BF16_NAN;
}

static void finalize_apart(const arf_host_call *call)
{
    const int hidden = call->self->space->base.spec.shape.hidden_size;
    const int block = call->plan->row_block / ARF_PACK * ARF_PACK;
    for (int64_t token = 0; token < call->tokens; token++)
        for (int at = 0; at < hidden; at += block)
            arf_host_contribute(call, token, at, hidden - at < block ? hidden - at : block,
                                call->self->finalized + token * hidden + at);
}

static bool run_protocol(arf_host_call *call)
{
    switch (call->plan->plan.protocol) {
    case ARF_LL:
        return arf_host_ll(call);
    case ARF_BT:
        return arf_host_bt(call);
    case ARF_HT:
        return arf_host_ht(call);
    case ARF_UNFUSED:
        return arf_host_unfused(call);
    case ARF_SEPARATE:
        finalize_apart(call);
        call->pattern = ARF_ALLREDUCE;
        call->input = call->self->finalized;
        call->plan = &call->self->space->plan[call->launch->then];
        return run_protocol(call);
    case ARF_PROTOCOLS:
        break;
    }
    return false;
}

/* A call of no tokens touches nothing, not even an epoch, on any rank: so all stay in step. */
static void run_call(arf_host_rank *self, const arf_launch *launch, const arfuse_operands *operands)
{
    if (launch->tokens == 0)
        return;
    arf_host_call call = {.self = self,
                          .plan = &self->space->plan[launch->plan],
                          .launch = launch,
                          .operands = operands,
                          .pattern = launch->pattern,
                          .input = operands->input,
                          .tokens = launch->tokens};
    if (arf_host_failed(self->control, NULL) || !run_protocol(&call))
        fill_unfinished(&call);
}

/* ---- launch ---------------------------------------------------------------------------------- */

static arfuse_status check_part(const arf_host_space *space, int id, arf_pattern pattern,
                                int64_t tokens, arf_error *error)
{
    if (id < 0 || id >= space->plan_count || space->plan[id].pattern != pattern)
        return arf_fail(error, ARFUSE_USAGE, "plan %d was not prepared for %s", id,
                        arf_pattern_name(pattern));
    const arf_protocol protocol = space->plan[id].plan.protocol;
    if (tokens < 0 || tokens > space->base.spec.capacity[protocol])
        return arf_fail(error, ARFUSE_USAGE, "%lld tokens: expected 0 to %lld, the capacity of %s",
                        (long long)tokens, (long long)space->base.spec.capacity[protocol],
                        arf_protocol_name(protocol));
    return ARFUSE_OK;
}

static arfuse_status check_launch(const arf_host_space *space, const arf_launch *launch,
                                  arf_error *error)
{
    ARF_TRY(check_part(space, launch->plan, launch->pattern, launch->tokens, error));
    if (space->plan[launch->plan].plan.protocol != ARF_SEPARATE)
        return ARFUSE_OK;
    ARF_TRY(check_part(space, launch->then, ARF_ALLREDUCE, launch->tokens, error));
    return ARFUSE_OK;
}

static arfuse_status report(const arf_host_space *space, arf_error *error)
{
    arfuse_culprit culprit = {.struct_size = sizeof culprit};
    if (arf_host_state(&space->base, &culprit) == ARFUSE_OK)
        return ARFUSE_OK;
    ARF_TRY(arf_order_state(&space->seat, error));
    const char *remedy = space->base.spec.remedy != NULL
                             ? space->base.spec.remedy
                             : "destroy this workspace on all ranks and make a new one";
    if (culprit.stage == ARF_HOST_LAUNCH)
        return arf_fail(error, ARFUSE_TIMEOUT,
                        "rank %d gave a call up half way; unfinished rows hold NaN; %s",
                        culprit.rank, remedy);
    return arf_fail(error, ARFUSE_TIMEOUT,
                    "rank %d did not arrive within %g s: %s of token %lld in call %llu; unfinished "
                    "rows hold NaN; %s",
                    culprit.rank, space->base.spec.wait_limit_seconds,
                    arf_host_stage_name(culprit.stage), (long long)culprit.token,
                    (unsigned long long)culprit.epoch, remedy);
}

static void launch_one(void *context, int local)
{
    const job *j = context;
    arf_float_state state = arf_float_pin();
    run_call(&j->space->local[local], j->launch, operands_of(j->launch, local));
    arf_float_restore(state);
}

arfuse_status arf_host_launch(arf_space *base, const arf_launch *launch, arf_error *error)
{
    job j = {.space = (arf_host_space *)base, .launch = launch};
    ARF_TRY(check_launch(j.space, launch, error));
    if (launch->tokens == 0) /* waits for nobody */
        return report(j.space, error);
    arfuse_status status = arf_order_begin(&j.space->seat, error);
    /* Out of order, the space has failed: all that is done is to fill the rows with NaN. */
    arf_host_workers_run(((arf_host_instance *)base->device)->workers, launch_one, &j);
    if (status != ARFUSE_OK)
        return status;
    arf_order_end(&j.space->seat);
    return report(j.space, error);
}

void arf_host_abandon(arf_space *base, const arf_launch *launch)
{
    arf_host_give_up(&((arf_host_space *)base)->local[0], launch->tokens);
}

/* ---- time ------------------------------------------------------------------------------------ */

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* Used when the system does not say how large its last-level cache is: more than most have. */
#define UNKNOWN_CACHE_BYTES ((int64_t)64 << 20)

static int64_t cache_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE); /* 0 on many aarch64 systems */
    if (bytes > 0)
        return bytes;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
    long kib = 0;
    if (file) {
        if (fscanf(file, "%ldK", &kib) != 1)
            kib = 0;
        fclose(file);
    }
    return kib > 0 ? (int64_t)kib << 10 : UNKNOWN_CACHE_BYTES;
}

/* The ranks share the cache and stream at the same time, so each takes its part of it and a
 * quarter more. */
static int64_t filler_bytes(const arf_host_space *space)
{
    return cache_bytes() / space->base.spec.shape.tp_size * 5 / 4 + 4096;
}

static void stream(unsigned char *filler, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) /* one write a line */
        (*(volatile unsigned char *)(filler + i))++;
}

/* Brings in what a layer would just have written: the allreduce input, or the expert rows. */
static void touch(const arf_host_space *space, const arf_launch *launch,
                  const arfuse_operands *operands)
{
    const arf_shape *shape = &space->base.spec.shape;
    const bool finalize = launch->pattern == ARF_FINALIZE;
    const volatile unsigned char *data = finalize ? operands->routed : operands->input;
    const int64_t rows = finalize ? operands->routed_rows : launch->tokens;
    for (int64_t i = 0; data && i < rows * shape->hidden_size * 2; i += 64)
        (void)data[i];
}

/*
 * warm: the calls follow each other, timed as one. decode: before each call all ranks stream
 * through more than the cache, meet, and start together; the calls alone are timed. (A loop with
 * the calls minus one without, as a GPU graph needs it, would drown a call in the streaming's own
 * noise here; a host clock can stand right before and behind the call.)
 */
static void time_one(void *context, int local)
{
    job *j = context;
    arf_host_rank *self = &j->space->local[local];
    const bool decode = j->timing->policy == ARF_DECODE;
    const int64_t bytes = decode ? filler_bytes(j->space) : 0;
    if (decode && self->filler == NULL) {
        self->filler = malloc((size_t)bytes);
        j->failed[local] = self->filler == NULL;
        if (self->filler)
            memset(self->filler, 1, (size_t)bytes);
    }
    arf_float_state state = arf_float_pin();
    double spent = 0, start = 0;
    if (arf_host_barrier(self))
        start = now_us();
    for (int i = 0; i < j->timing->calls; i++) {
        const arf_launch *launch = arf_timing_launch(j->timing, j->launch, i);
        const arfuse_operands *operands = operands_of(launch, local);
        if (decode) {
            if (self->filler)
                stream(self->filler, bytes);
            touch(j->space, launch, operands);
            if (!arf_host_barrier(self))
                break;
            start = now_us();
        }
        run_call(self, launch, operands);
        if (decode)
            spent += now_us() - start;
    }
    if (!decode)
        spent = now_us() - start;
    arf_float_restore(state);
    self->us = spent / j->timing->calls;
}

arfuse_status arf_host_time(arf_space *base, const arf_launch *launch, const arf_timing *timing,
                            double *us, arf_error *error)
{
    job j = {.space = (arf_host_space *)base, .launch = launch, .timing = timing};
    if (timing->calls < 1)
        return arf_fail(error, ARFUSE_USAGE, "timing %d calls: expected at least one",
                        timing->calls);
    for (int i = 0; i < arf_timing_launches(timing); i++)
        ARF_TRY(check_launch(j.space, &launch[i], error));
    arf_host_workers_run(((arf_host_instance *)base->device)->workers, time_one, &j);
    ARF_TRY(report(j.space, error));
    for (int local = 0; local < base->device->team->local_ranks; local++) {
        if (j.failed[local])
            return arf_fail(error, ARFUSE_FAILURE,
                            "rank %d: out of memory for %lld bytes to "
                            "stream through",
                            j.space->local[local].rank, (long long)filler_bytes(j.space));
        us[local] = j.space->local[local].us;
    }
    return ARFUSE_OK;
}
