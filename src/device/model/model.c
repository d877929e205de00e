/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model device: launches that take virtual time and compute nothing. Every
 * rank knows what every other rank does (truth.h is a pure function), so its
 * collective calls agree without any exchange but the team's votes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "device/device.h"
#include "device/model/truth.h"

typedef struct model_device {
    arf_device base;
    arf_model model;
    double seconds;      /* the virtual clock: equal on all ranks, moved by timings and launches */
    int64_t clock_reads; /* of this process alone: waiting by reading the clock must end, too */
} model_device;

typedef struct model_plan {
    arf_pattern pattern;
    arf_plan plan;
} model_plan;

typedef struct model_space {
    arf_space base;
    int count, room;
    model_plan *plan;
    bool failed;
    arfuse_culprit culprit;
} model_space;

#define CLOCK_READ_SECONDS 1e-6
#define MODEL_MHZ 2000.0 /* full speed */

static model_device *device_of(const arf_space *space)
{
    return (model_device *)space->device;
}

/* ---- device --------------------------------------------------------------------------------- */

/* Of what the model says about time, member by member: a struct's padding has no value. */
static uint64_t model_digest(const arf_model *model)
{
    uint64_t hash = arf_hash_number(ARF_HASH_INIT, (int64_t)model->seed);
    hash = arf_hash(hash, &model->noise, sizeof model->noise);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++) {
            const arf_model_curve *curve = &model->curve[pattern][protocol];
            hash = arf_hash(hash, curve, sizeof *curve); /* doubles only */
        }
    }
    return hash;
}

static arfuse_status model_open(const arf_device_options *options, const arf_team *team,
                                arf_device **device, arf_error *error)
{
    arfuse_status status = ARFUSE_OK;
    model_device *opened = calloc(1, sizeof *opened);
    if (opened == NULL) {
        status = arf_fail(error, ARFUSE_FAILURE, "model device: out of memory");
    } else {
        opened->base.ops = &arf_model_device;
        opened->base.team = team;
        if (options->log != NULL)
            opened->base.log = *options->log;
        const char *spec = options->spec;
        spec = strncmp(spec, "model:", 6) == 0 ? spec + 6 : spec;
        status = arf_model_load(spec, &opened->model, error);
    }
    status = arf_team_vote(team, status, error);
    if (status == ARFUSE_OK) /* each rank read the file itself */
        status = arf_team_agree(team, "model", model_digest(&opened->model), error);
    if (status != ARFUSE_OK) {
        free(opened);
        return status;
    }
    *device = &opened->base;
    return ARFUSE_OK;
}

static void model_close(arf_device *device)
{
    free(device);
}

static void model_describe(const arf_device *device, arf_device_key *key)
{
    const model_device *model = (const model_device *)device;
    memset(key, 0, sizeof *key);
    arf_device_name(model->model.name, key->name);
    key->sm_count = model->model.sm_count;
    key->link = ARF_LINK_MODEL;
    key->nodes = 1;
    key->ranks_per_gpu = 1;
}

static void model_evidence(const arf_device *device, arf_device_evidence *evidence)
{
    const model_device *model = (const model_device *)device;
    snprintf(evidence->driver, ARF_NAME_TEXT, "model");
    snprintf(evidence->source_digest, ARF_NAME_TEXT, "%016llx",
             (unsigned long long)model_digest(&model->model));
}

static double model_now(const arf_device *device)
{
    /* The device is ours and was allocated writable; the seam's const promises only that nothing
     * the caller can see changes, and a clock may move. */
    model_device *model = (model_device *)device;
    return model->seconds + CLOCK_READ_SECONDS * (double)++model->clock_reads;
}

/* ---- faults --------------------------------------------------------------------------------- */

/* The lowest rank that a fault of this kind hits, or -1. */
static int faulty_rank(const model_device *device, arf_model_fault_kind kind, arf_pattern pattern,
                       const arf_plan *plan, int64_t tokens)
{
    for (int rank = 0; rank < device->base.team->tp_size; rank++) {
        for (int i = 0; i < device->model.fault_count; i++) {
            const arf_model_fault *fault = &device->model.fault[i];
            if (fault->kind == kind &&
                arf_model_fault_hits(fault, rank, pattern, plan, tokens, device->seconds))
                return rank;
        }
    }
    return -1;
}

static bool rank_has_fault(const model_device *device, arf_model_fault_kind kind, int rank,
                           arf_pattern pattern, const arf_plan *plan, int64_t tokens)
{
    for (int i = 0; i < device->model.fault_count; i++) {
        const arf_model_fault *fault = &device->model.fault[i];
        if (fault->kind == kind &&
            arf_model_fault_hits(fault, rank, pattern, plan, tokens, device->seconds))
            return true;
    }
    return false;
}

/* The first rank of this process with the fault, or -1. */
static int local_fault(const model_device *device, arf_model_fault_kind kind, arf_pattern pattern,
                       const arf_plan *plan, int64_t tokens)
{
    const arf_team *team = device->base.team;
    for (int i = 0; i < team->local_ranks; i++) {
        int rank = team->first_rank + i;
        if (rank_has_fault(device, kind, rank, pattern, plan, tokens))
            return rank;
    }
    return -1;
}

static double slowness(const model_device *device, int rank, arf_pattern pattern,
                       const arf_plan *plan, int64_t tokens)
{
    double factor = 1.0;
    for (int i = 0; i < device->model.fault_count; i++) {
        const arf_model_fault *fault = &device->model.fault[i];
        if (fault->kind == ARF_FAULT_SLOW &&
            arf_model_fault_hits(fault, rank, pattern, plan, tokens, device->seconds))
            factor *= fault->factor;
    }
    return factor;
}

/* A clock that drops is a fault that slows whatever runs, from some time on; a model without one
 * tells of no clock. */
static void model_clocks(const arf_device *base, arf_clocks *clocks)
{
    const model_device *device = (const model_device *)base;
    const arf_team *team = base->team;
    double slowest = 0.0;
    for (int i = 0; i < device->model.fault_count; i++) {
        const arf_model_fault *fault = &device->model.fault[i];
        if (fault->kind != ARF_FAULT_SLOW || fault->from_seconds <= 0.0 || fault->has_protocol ||
            fault->has_pattern || fault->knob_count > 0)
            continue;
        for (int rank = team->first_rank; rank < team->first_rank + team->local_ranks; rank++) {
            const bool hits =
                arf_model_fault_hits(fault, rank, ARF_ALLREDUCE, NULL, 0, device->seconds);
            slowest = fmax(slowest, hits ? fault->factor : 1.0);
            clocks->throttle |= hits ? ARF_THROTTLE_POWER : 0;
        }
    }
    clocks->mhz = slowest > 0.0 ? (int)lround(MODEL_MHZ / slowest) : 0;
}

/* ---- space and plans --------------------------------------------------------------------------
 */

static arfuse_status check_memory(const model_device *device, const arf_space_spec *spec,
                                  arf_error *error)
{
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++) {
        if (spec->capacity[protocol] <= 0)
            continue;
        /* Only the protocol counts: a mailbox serves both patterns and every tuning. */
        const arf_plan plan = {.protocol = (arf_protocol)protocol};
        for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
            int rank = local_fault(device, ARF_FAULT_MEMORY, (arf_pattern)pattern, &plan,
                                   spec->capacity[protocol]);
            if (rank >= 0)
                return arf_fail(error, ARFUSE_HARDWARE,
                                "rank %d: out of device memory for %s at %lld tokens (a fault of "
                                "the model)",
                                rank, arf_protocol_name((arf_protocol)protocol),
                                (long long)spec->capacity[protocol]);
        }
    }
    return ARFUSE_OK;
}

static arfuse_status model_space_create(arf_device *device, const arf_space_spec *spec,
                                        arf_space **space, arf_error *error)
{
    model_device *model = (model_device *)device;
    arfuse_status status = check_memory(model, spec, error);
    model_space *created = status == ARFUSE_OK ? calloc(1, sizeof *created) : NULL;
    if (status == ARFUSE_OK && created == NULL)
        status = arf_fail(error, ARFUSE_FAILURE, "model device: out of memory");
    status = arf_team_vote(device->team, status, error);
    if (status != ARFUSE_OK) {
        free(created);
        return status;
    }
    created->base.device = device;
    created->base.spec = *spec;
    *space = &created->base;
    return ARFUSE_OK;
}

static void model_space_destroy(arf_space *space)
{
    model_space *model = (model_space *)space;
    free(model->plan);
    free(model);
}

static arfuse_status model_prepare(arf_space *space, arf_pattern pattern, const arf_plan *plan,
                                   int *id, arf_error *error)
{
    model_space *model = (model_space *)space;
    model_device *device = device_of(space);
    for (int i = 0; i < model->count; i++) {
        if (model->plan[i].pattern == pattern &&
            arf_plan_equal(ARF_SET_ARFUSE, pattern, &model->plan[i].plan, plan)) {
            *id = i;
            return ARFUSE_OK;
        }
    }
    const arf_problem problem = {
        .set = ARF_SET_ARFUSE, .shape = space->spec.shape, .sm_count = device->model.sm_count};
    char reason[ARF_REASON_TEXT];
    if (!arf_legal(&problem, pattern, plan, reason))
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "%s for %s: %s",
                        arf_protocol_name(plan->protocol), arf_pattern_name(pattern), reason);
    if (plan->numerics > space->spec.numerics)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                        "%s: numerics \"%s\", where the space allows \"%s\" at most",
                        arf_protocol_name(plan->protocol), arf_numerics_name(plan->numerics),
                        arf_numerics_name(space->spec.numerics));
    int rank = local_fault(device, ARF_FAULT_PREPARE, pattern, plan, 0);
    device->seconds += device->model.prepare_seconds;
    if (rank >= 0)
        return arf_fail(error, ARFUSE_FAILURE,
                        "rank %d: %s does not compile (a fault of the model)", rank,
                        arf_protocol_name(plan->protocol));
    if (model->count == model->room) {
        int room = model->room == 0 ? 64 : 2 * model->room;
        model_plan *grown = realloc(model->plan, (size_t)room * sizeof *grown);
        if (grown == NULL)
            return arf_fail(error, ARFUSE_FAILURE, "model device: out of memory");
        model->plan = grown;
        model->room = room;
    }
    model->plan[model->count] = (model_plan){pattern, *plan};
    *id = model->count++;
    return ARFUSE_OK;
}

/* ---- launching and timing ----------------------------------------------------------------------
 */

/* A launch resolved to its plans. */
typedef struct model_call {
    arf_pattern pattern;
    const arf_plan *plan, *then;
    int64_t tokens;
} model_call;

static arfuse_status check_call(const model_space *space, const arf_launch *launch,
                                model_call *call, arf_error *error)
{
    if (space->failed)
        return arf_fail(error, ARFUSE_FAILED,
                        "this space failed earlier: rank %d did not take part; make a new one",
                        space->culprit.rank);
    if (launch->plan < 0 || launch->plan >= space->count ||
        space->plan[launch->plan].pattern != launch->pattern)
        return arf_fail(error, ARFUSE_USAGE, "launch: plan %d was not prepared for %s",
                        launch->plan, arf_pattern_name(launch->pattern));
    *call = (model_call){launch->pattern, &space->plan[launch->plan].plan, NULL, launch->tokens};
    const arf_plan *sender = call->plan;
    if (call->plan->protocol == ARF_SEPARATE) {
        if (launch->then < 0 || launch->then >= space->count ||
            space->plan[launch->then].pattern != ARF_ALLREDUCE)
            return arf_fail(error, ARFUSE_USAGE,
                            "launch: a separate finalize needs an allreduce plan behind it, not %d",
                            launch->then);
        call->then = sender = &space->plan[launch->then].plan;
    }
    int64_t capacity = space->base.spec.capacity[sender->protocol];
    if (launch->tokens < 0 || launch->tokens > capacity)
        return arf_fail(error, ARFUSE_USAGE, "launch: %lld tokens, where %s has capacity %lld",
                        (long long)launch->tokens, arf_protocol_name(sender->protocol),
                        (long long)capacity);
    return ARFUSE_OK;
}

static void fail_space(model_space *space, int rank)
{
    space->failed = true;
    space->culprit = (arfuse_culprit){.struct_size = sizeof(arfuse_culprit), .rank = rank};
}

/* Who refuses to launch or never arrives. */
static arfuse_status play_faults(model_space *space, const model_call *call, arf_error *error)
{
    model_device *device = device_of(&space->base);
    int rank = faulty_rank(device, ARF_FAULT_LAUNCH, call->pattern, call->plan, call->tokens);
    if (rank >= 0) {
        int here = local_fault(device, ARF_FAULT_LAUNCH, call->pattern, call->plan, call->tokens);
        bool everywhere = true;
        for (int i = 0; i < device->base.team->tp_size; i++)
            everywhere &= rank_has_fault(device, ARF_FAULT_LAUNCH, i, call->pattern, call->plan,
                                         call->tokens);
        if (!everywhere) /* peers were already on their way: they are told */
            fail_space(space, rank);
        if (here >= 0)
            return arf_fail(error, ARFUSE_FAILURE,
                            "rank %d: the launch of %s at %lld tokens was refused (a fault of the "
                            "model)",
                            here, arf_protocol_name(call->plan->protocol), (long long)call->tokens);
        return arf_fail(error, ARFUSE_TIMEOUT, "%s at %lld tokens: rank %d failed to launch",
                        arf_protocol_name(call->plan->protocol), (long long)call->tokens, rank);
    }
    rank = faulty_rank(device, ARF_FAULT_ABSENT, call->pattern, call->plan, call->tokens);
    if (rank >= 0) {
        double limit = space->base.spec.wait_limit_seconds;
        device->seconds += limit;
        fail_space(space, rank);
        return arf_fail(
            error, ARFUSE_TIMEOUT, "%s at %lld tokens: rank %d did not arrive within %g s",
            arf_protocol_name(call->plan->protocol), (long long)call->tokens, rank, limit);
    }
    return ARFUSE_OK;
}

static double rank_time(const model_space *space, const model_call *call, arf_policy policy,
                        int rank, int64_t round)
{
    const model_device *device = device_of(&space->base);
    double us = arf_model_noisy(&device->model, &space->base.spec.shape, policy, call->pattern,
                                call->plan, call->then, call->tokens, rank, round);
    return us * slowness(device, rank, call->pattern, call->plan, call->tokens);
}

static arfuse_status model_time(arf_space *space, const arf_launch *launch,
                                const arf_timing *timing, double *us, arf_error *error)
{
    model_space *model = (model_space *)space;
    model_device *device = device_of(space);
    const arf_team *team = space->device->team;
    const int launches = arf_timing_launches(timing);
    double all[ARF_MAX_RANKS] = {0}, longest = 0.0;
    if (timing->calls < 1)
        return arf_fail(error, ARFUSE_USAGE, "time: %d calls, expected at least 1", timing->calls);
    for (int i = 0; i < launches && i < timing->calls; i++) {
        const int times =
            (timing->calls - i + launches - 1) / launches; /* that it takes its turn */
        model_call call;
        ARF_TRY(check_call(model, &launch[i], &call, error));
        ARF_TRY(play_faults(model, &call, error));
        for (int rank = 0; rank < team->tp_size; rank++) {
            all[rank] += rank_time(model, &call, timing->policy, rank, timing->round) * times /
                         timing->calls;
            if (rank_has_fault(device, ARF_FAULT_TIMELESS, rank, call.pattern, call.plan,
                               call.tokens))
                all[rank] = NAN;
        }
    }
    for (int rank = 0; rank < team->tp_size; rank++) {
        const double rank_us = all[rank] + device->model.graph_us / timing->calls;
        longest = fmax(longest, rank_us);
        if (rank >= team->first_rank && rank < team->first_rank + team->local_ranks)
            us[rank - team->first_rank] = rank_us;
    }
    device->seconds += 1e-6 * longest * timing->calls;
    if (device->model.pause_seconds > 0.0) {
        double whole = floor(device->model.pause_seconds);
        struct timespec pause = {(time_t)whole,
                                 (long)(1e9 * (device->model.pause_seconds - whole))};
        nanosleep(&pause, NULL);
    }
    return ARFUSE_OK;
}

static arfuse_status model_launch(arf_space *space, const arf_launch *launch, arf_error *error)
{
    model_space *model = (model_space *)space;
    model_call call;
    ARF_TRY(check_call(model, launch, &call, error));
    ARF_TRY(play_faults(model, &call, error));
    double longest = 0.0;
    for (int rank = 0; rank < space->device->team->tp_size; rank++)
        longest = fmax(longest, rank_time(model, &call, ARF_WARM, rank, 0));
    device_of(space)->seconds += 1e-6 * longest;
    return ARFUSE_OK;
}

static arfuse_status model_synchronize(arf_space *space, arfuse_stream stream, arf_error *error)
{
    (void)stream;
    const model_space *model = (const model_space *)space;
    if (model->failed)
        return arf_fail(error, ARFUSE_TIMEOUT, "rank %d did not take part", model->culprit.rank);
    return ARFUSE_OK;
}

static arfuse_status model_state(const arf_space *space, arfuse_culprit *culprit)
{
    const model_space *model = (const model_space *)space;
    if (!model->failed)
        return ARFUSE_OK;
    if (culprit != NULL)
        *culprit = model->culprit;
    return ARFUSE_TIMEOUT;
}

static arfuse_status model_verdict(arf_space *space, const arf_launch *launch, arf_error *error)
{
    model_space *model = (model_space *)space;
    model_device *device = device_of(space);
    model_call call;
    ARF_TRY(check_call(model, launch, &call, error));
    ARF_TRY(play_faults(model, &call, error));
    int rank = local_fault(device, ARF_FAULT_WRONG, call.pattern, call.plan, call.tokens);
    if (rank < 0)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_WRONG_RESULT,
                    "rank %d: %s at %lld tokens: wrong result (a fault of the model)", rank,
                    arf_protocol_name(call.plan->protocol), (long long)call.tokens);
}

/* ---- memory -----------------------------------------------------------------------------------
 */

/* Host memory that nothing here touches: untouched pages cost nothing, however many are asked for.
 */
static void *model_allocate(arf_device *device, int local_rank, size_t bytes)
{
    (void)device, (void)local_rank;
    return malloc(bytes > 0 ? bytes : 1);
}

static void model_release(arf_device *device, int local_rank, void *memory)
{
    (void)device, (void)local_rank;
    free(memory);
}

/* A device that computes nothing reads no operand. */
static arfuse_status model_upload(arf_device *device, int local_rank, void *to, const void *from,
                                  size_t bytes, arf_error *error)
{
    (void)device, (void)local_rank, (void)to, (void)from, (void)bytes, (void)error;
    return ARFUSE_OK;
}

static arfuse_status model_download(arf_device *device, int local_rank, void *to, const void *from,
                                    size_t bytes, arf_error *error)
{
    (void)device, (void)local_rank, (void)to, (void)from, (void)bytes;
    return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                    "the model device computes nothing: it has verdicts, not results");
}

const arf_device_ops arf_model_device = {
    .name = "model",
    .open = model_open,
    .close = model_close,
    .describe = model_describe,
    .evidence = model_evidence,
    .space_create = model_space_create,
    .space_destroy = model_space_destroy,
    .prepare = model_prepare,
    .launch = model_launch,
    .synchronize = model_synchronize,
    .time = model_time,
    .state = model_state,
    .allocate = model_allocate,
    .release = model_release,
    .upload = model_upload,
    .download = model_download,
    .now = model_now,
    .clocks = model_clocks,
    .verdict = model_verdict,
};
