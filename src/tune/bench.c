/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device/fd_exchange.h"
#include "device/numerics.h"
#include "rules/sizing.h"
#include "tune/stop.h"
#include "tune/voice.h"

/* Above every wait of the device itself, which names the culprit better than the watch can. */
static double patience(const arf_bench *bench)
{
    return bench->tuner->options->wait_limit_seconds * 1.5 + 15;
}

/* Compiling a kernel takes a minute on a bad day. */
#define PREPARE_SECONDS 120

/* ---- space ------------------------------------------------------------------------------------
 */

static arfuse_status make_space(arf_bench *bench, const arf_space_spec *spec, arf_error *error)
{
    arf_device *device = bench->tuner->device;
    arf_watch_begin(patience(bench) + ARF_EXCHANGE_MOST_SECONDS, "making the buffers");
    arfuse_status status = device->ops->space_create(device, spec, &bench->space, error);
    arf_watch_end();
    return status;
}

static void drop_space(arf_bench *bench)
{
    if (bench->space != NULL)
        bench->tuner->device->ops->space_destroy(bench->space);
    bench->space = NULL;
    memset(bench->ready, 0, sizeof bench->ready);
}

/* Whether the buffers can be had: made, or, with `ask`, only asked for where the device can tell.
 */
static arfuse_status find_room(arf_bench *bench, const arf_space_spec *spec, bool ask,
                               arf_error *error)
{
    arf_device *device = bench->tuner->device;
    return ask && device->ops->space_fits != NULL ? device->ops->space_fits(device, spec, error)
                                                  : make_space(bench, spec, error);
}

/* One protocol alone, so that the one which does not fit is found and the others are kept. *cause
 * keeps the first, of the capacity that was wanted. */
static void fit_protocol(arf_bench *bench, arf_protocol protocol, bool ask, arf_error *cause)
{
    while (bench->spec.capacity[protocol] > 0) {
        arf_space_spec alone = bench->spec;
        arf_error own = ARF_ERROR_INIT;
        memset(alone.capacity, 0, sizeof alone.capacity);
        alone.capacity[protocol] = bench->spec.capacity[protocol];
        if (find_room(bench, &alone, ask, &own) == ARFUSE_OK) {
            drop_space(bench);
            break;
        }
        arf_fail(cause, own.status, "%s", own.text);
        bench->spec.capacity[protocol] /= 2;
    }
}

/* The protocol with the largest buffers; -1: none has any. What a separate finalize makes of a
 * call's tokens stays on its rank. */
static int largest_protocol(const arf_space_spec *spec)
{
    int64_t most = -1;
    int largest = -1;
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        int64_t bytes = spec->capacity[p] * spec->shape.hidden_size * (int64_t)sizeof(arf_bf16);
        if (p != ARF_SEPARATE)
            arf_mailbox_bytes(&spec->shape, (arf_protocol)p, spec->capacity[p], &bytes, NULL);
        if (spec->capacity[p] > 0 && bytes > most) {
            most = bytes;
            largest = p;
        }
    }
    return largest;
}

/* What fits alone may not fit beside the others: the largest gives way. */
static arfuse_status fit_together(arf_bench *bench, bool ask, arf_error cause[ARF_PROTOCOLS],
                                  arf_error *error)
{
    for (int p = largest_protocol(&bench->spec); p >= 0; p = largest_protocol(&bench->spec)) {
        arf_error own = ARF_ERROR_INIT;
        if (find_room(bench, &bench->spec, ask, &own) == ARFUSE_OK)
            return ARFUSE_OK;
        arf_fail(&cause[p], own.status, "%s", own.text);
        arf_fail(error, own.status, "%s", own.text);
        bench->spec.capacity[p] /= 2;
    }
    return error->status;
}

/* Capacities that can be had, at most those wanted; without `ask` the space is made. */
static arfuse_status fit(arf_bench *bench, bool ask, arf_error *error)
{
    arf_error cause[ARF_PROTOCOLS], first = ARF_ERROR_INIT;
    const arf_space_spec wanted = bench->spec;
    arfuse_status status = find_room(bench, &bench->spec, ask, &first);
    if (status == ARFUSE_OK)
        return ARFUSE_OK;
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        cause[p] = (arf_error)ARF_ERROR_INIT;
        fit_protocol(bench, (arf_protocol)p, ask, &cause[p]);
    }
    status = fit_together(bench, ask, cause, &first);
    if (status != ARFUSE_OK)
        return arf_fail(error, status, "%s", first.text);
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        if (bench->spec.capacity[p] < wanted.capacity[p]) {
            bench->curtailed++;
            arf_voice_warn("%s is tried up to %" PRId64 " tokens, not %" PRId64 ": %s",
                           arf_protocol_name((arf_protocol)p), bench->spec.capacity[p],
                           wanted.capacity[p], cause[p].text);
        }
    return ARFUSE_OK;
}

static arfuse_status make_trials(arf_bench *bench, arf_error *error)
{
    const arf_tuner *tuner = bench->tuner;
    if (tuner->device->ops->verdict != NULL)
        return ARFUSE_OK; /* it computes nothing: there is nothing to compute with */
    const uint64_t seed = tuner->options->seed;
    const int64_t small =
        bench->most_tokens < ARF_VERIFY_TOKENS ? bench->most_tokens : ARF_VERIFY_TOKENS;
    arfuse_status status = arf_trial_create(tuner->device, &bench->spec.shape, bench->most_tokens,
                                            ARF_TRIAL_RANDOM, seed, &bench->timing, error);
    for (int kind = 0; kind < ARF_TRIAL_KINDS && status == ARFUSE_OK; kind++)
        status = arf_trial_create(tuner->device, &bench->spec.shape, small, (arf_trial_kind)kind,
                                  seed + 1 + (uint64_t)kind, &bench->check[kind], error);
    arf_watch_begin(patience(bench) + PREPARE_SECONDS, "making the trial data");
    status = arf_team_vote(&tuner->team, status, error);
    arf_watch_end();
    return status;
}

static void begin(arf_bench *bench, const arf_tuner *tuner, const arf_schedule *schedule)
{
    *bench = (arf_bench){
        .tuner = tuner,
        .set = schedule->problem.set,
        .spec = {.shape = schedule->problem.shape,
                 .numerics = tuner->options->any_numerics ? ARF_LIBRARY : ARF_FIXED,
                 .wait_limit_seconds = tuner->options->wait_limit_seconds,
                 .remedy = "see what holds that rank up, or allow it more with --wait-limit"},
        .most_tokens = schedule->tokens.value[schedule->tokens.count - 1],
    };
    memcpy(bench->spec.capacity, schedule->capacity, sizeof bench->spec.capacity);
}

arfuse_status arf_bench_capacities(const arf_tuner *tuner, const arf_schedule *schedule,
                                   int64_t capacity[ARF_PROTOCOLS], arf_error *error)
{
    arf_bench bench;
    begin(&bench, tuner, schedule);
    const arfuse_status status = fit(&bench, true, error);
    memcpy(capacity, bench.spec.capacity, sizeof bench.spec.capacity);
    arf_bench_close(&bench);
    return status;
}

arfuse_status arf_bench_open(const arf_tuner *tuner, const arf_schedule *schedule, arf_bench *bench,
                             arf_error *error)
{
    begin(bench, tuner, schedule);
    arfuse_status status = fit(bench, false, error);
    if (status == ARFUSE_OK)
        status = make_trials(bench, error);
    if (status != ARFUSE_OK)
        arf_bench_close(bench);
    return status;
}

void arf_bench_close(arf_bench *bench)
{
    char trouble[256];
    if (bench->tuner == NULL)
        return;
    arf_clocks_trouble(&bench->clocks, trouble, sizeof trouble);
    if (trouble[0] != '\0')
        arf_voice_warn("%s", trouble);
    arf_trial_destroy(bench->timing);
    for (int kind = 0; kind < ARF_TRIAL_KINDS; kind++)
        arf_trial_destroy(bench->check[kind]);
    drop_space(bench);
    *bench = (arf_bench){0};
}

/* ---- steps ------------------------------------------------------------------------------------
 */

static void watch(const arf_bench *bench, const arf_run *run, double seconds)
{
    char plan[384], what[512];
    arf_plan_text(bench->set, run->pattern, run->plan, plan, sizeof plan);
    snprintf(what, sizeof what, "%s of %" PRId64 " token%s by %s", arf_pattern_name(run->pattern),
             run->tokens, ARF_PLURAL(run->tokens), plan);
    arf_watch_begin(seconds, what);
}

/* What a process brings out of a step. */
typedef struct part {
    double most, least; /* microseconds of its slowest and its fastest rank; 0: not timed */
    int32_t slowest;    /* team rank */
    int32_t status, broken;
} part;

/* A rank this many times slower than the fastest straggles. */
#define STRAGGLES 1.5

static void note_straggler(arf_bench *bench, const part *all, int processes)
{
    const part *slowest = &all[0];
    double least = all[0].least;
    for (int p = 1; p < processes; p++) {
        if (all[p].most > slowest->most)
            slowest = &all[p];
        least = fmin(least, all[p].least);
    }
    bench->timings++;
    if (slowest->most > STRAGGLES * least)
        bench->straggles[slowest->slowest]++;
}

int arf_bench_straggler(const arf_bench *bench)
{
    for (int rank = 0; rank < bench->tuner->team.tp_size; rank++)
        if (2 * bench->straggles[rank] > bench->timings)
            return rank;
    return -1;
}

/* Everyone's status and time at once; the message travels only when there is one. */
static arfuse_status agree(arf_bench *bench, part own, double *most, bool *broken, arf_error *error)
{
    part all[ARF_MAX_RANKS];
    const arf_team *team = &bench->tuner->team;
    own.broken = *broken;
    arf_watch_arrived();
    arf_error gathered = ARF_ERROR_INIT;
    arfuse_status result = arf_team_allgather(team, &own, all, sizeof own, &gathered);
    if (result != ARFUSE_OK)
        arf_group_abort(bench->tuner->group, ARFUSE_FAILURE, gathered.text);
    bool failed = false;
    *most = 0;
    for (int p = 0; p < team->bootstrap.size; p++) {
        failed |= all[p].status != ARFUSE_OK;
        *broken |= all[p].broken != 0;
        *most = fmax(*most, all[p].most);
    }
    if (!failed && *most > 0 && isfinite(*most))
        note_straggler(bench, all, team->bootstrap.size);
    return failed ? arf_team_vote(team, (arfuse_status)own.status, error) : ARFUSE_OK;
}

/* The candidate's failure may have failed the space for good: then a new one, or the end. */
static void mend(arf_bench *bench, bool broken, bool *fatal)
{
    *fatal = false;
    if (!broken)
        return;
    arf_error error = ARF_ERROR_INIT;
    drop_space(bench);
    /* The long limit is for ranks that start late. All of them are at work by now, and a candidate
     * that hangs once hangs at every token count: the next ones shall not cost as much. */
    const double limit = bench->tuner->options->wait_limit_seconds;
    bench->spec.wait_limit_seconds = fmin(limit, fmax(limit / 10, 1));
    if (make_space(bench, &bench->spec, &error) == ARFUSE_OK)
        return;
    arf_voice_warn("the buffers cannot be made again after a failed candidate: %s", error.text);
    *fatal = true;
}

static bool is_broken(const arf_bench *bench)
{
    return bench->space->device->ops->state(bench->space, NULL) != ARFUSE_OK;
}

static arfuse_status prepare(arf_bench *bench, const arf_run *run, arf_launch *launch,
                             arf_error *error)
{
    const arf_device_ops *ops = bench->tuner->device->ops;
    ARF_TRY(ops->prepare(bench->space, run->pattern, run->plan, &launch->plan, error));
    launch->then = -1;
    if (run->then != NULL)
        ARF_TRY(ops->prepare(bench->space, ARF_ALLREDUCE, run->then, &launch->then, error));
    return ARFUSE_OK;
}

static bool is_ready(const arf_bench *bench, int id)
{
    return id >= 0 && id < ARF_READY_PLANS && bench->ready[id];
}

static void set_ready(arf_bench *bench, int id)
{
    if (id >= 0 && id < ARF_READY_PLANS)
        bench->ready[id] = true;
}

/* A collective launch must not be tried by some ranks when it cannot be by others. A plan that was
 * voted ready stays so in its space, on every rank, and needs no other vote. */
static arfuse_status prepare_all(arf_bench *bench, const arf_run *run, arf_launch *launch,
                                 arf_error *error)
{
    bool broken = false;
    double unused;
    watch(bench, run, patience(bench) + PREPARE_SECONDS);
    arfuse_status status = prepare(bench, run, launch, error);
    if (status == ARFUSE_OK && is_ready(bench, launch->plan) &&
        (run->then == NULL || is_ready(bench, launch->then)))
        return ARFUSE_OK;
    status = agree(bench, (part){.status = (int32_t)status}, &unused, &broken, error);
    if (status == ARFUSE_OK) {
        set_ready(bench, launch->plan);
        set_ready(bench, launch->then);
    }
    return status;
}

arfuse_status arf_bench_precompile(arf_bench *bench, arf_pattern pattern,
                                   const arf_plan *const *plan, int count, arf_error *error)
{
    const arf_device_ops *ops = bench->tuner->device->ops;
    char what[64];
    if (ops->precompile == NULL || count == 0)
        return ARFUSE_OK;
    snprintf(what, sizeof what, "compiling %d candidate%s", count, ARF_PLURAL(count));
    arf_watch_begin(patience(bench) + PREPARE_SECONDS * (1 + count / 8), what);
    ops->precompile(bench->space, pattern, plan, count);
    arf_watch_arrived();
    /* Nobody goes on before the others: it would compile what they are about to. */
    arfuse_status status = arf_team_vote(&bench->tuner->team, ARFUSE_OK, error);
    arf_watch_end();
    return status;
}

static arf_launch make_launch(arf_trial *trial, const arf_run *run)
{
    if (trial != NULL)
        return arf_trial_launch(trial, run->pattern, run->tokens);
    return (arf_launch){
        .pattern = run->pattern, .tokens = run->tokens, .epsilon = 1e-6f, .routed_scale = 1};
}

arf_numerics arf_run_numerics(const arf_run *run)
{
    const arf_numerics own = run->plan->numerics;
    return run->then != NULL && run->then->numerics > own ? run->then->numerics : own;
}

static arfuse_status run_and_check(arf_bench *bench, const arf_run *run, const arf_launch *launch,
                                   arf_trial *trial, arf_error *error)
{
    const arf_device_ops *ops = bench->tuner->device->ops;
    if (ops->verdict != NULL)
        return ops->verdict(bench->space, launch, error);
    ARF_TRY(arf_trial_poison_for(trial, run->tokens, error));
    ARF_TRY(ops->launch(bench->space, launch, error));
    ARF_TRY(ops->synchronize(bench->space, launch->stream, error));
    return arf_trial_check_numerics(trial, run->pattern, run->tokens, arf_run_numerics(run), error);
}

static arfuse_status verify_on(arf_bench *bench, const arf_run *run, arf_trial *trial, bool *fatal,
                               arf_error *error)
{
    arf_launch launch = make_launch(trial, run);
    double unused;
    arfuse_status status = prepare_all(bench, run, &launch, error);
    *fatal = false;
    arf_watch_end();
    if (status != ARFUSE_OK)
        return status;
    watch(bench, run, patience(bench));
    status = run_and_check(bench, run, &launch, trial, error);
    bool broken = is_broken(bench);
    status = agree(bench, (part){.status = (int32_t)status}, &unused, &broken, error);
    arf_watch_end();
    mend(bench, broken, fatal);
    return status;
}

arfuse_status arf_bench_verify(arf_bench *bench, const arf_run *run, arf_trial_kind kind,
                               bool *fatal, arf_error *error)
{
    return verify_on(bench, run, bench->check[kind], fatal, error);
}

arfuse_status arf_bench_confirm(arf_bench *bench, const arf_run *run, bool *fatal, arf_error *error)
{
    return verify_on(bench, run, bench->timing, fatal, error);
}

arfuse_status arf_bench_time_mixed(arf_bench *bench, const arf_run *run, int runs, int calls,
                                   int64_t round, double *us, bool *fatal, arf_error *error)
{
    const arf_tuner *tuner = bench->tuner;
    arf_launch launch[ARF_MIXED_RUNS];
    const arf_policy policy = tuner->options->policy;
    const arf_timing timing = {.calls = calls,
                               .policy = !run->other_policy   ? policy
                                         : policy == ARF_WARM ? ARF_DECODE
                                                              : ARF_WARM,
                               .round = round,
                               .launches = runs};
    double local[ARF_MAX_RANKS];
    part own = {0};
    *fatal = false;
    arfuse_status status = ARFUSE_OK;
    for (int i = 0; i < runs && status == ARFUSE_OK; i++) {
        launch[i] = make_launch(bench->timing, &run[i]);
        status = prepare_all(bench, &run[i], &launch[i], error);
        arf_watch_end();
    }
    if (status != ARFUSE_OK)
        return status;
    watch(bench, run, patience(bench));
    status = tuner->device->ops->time(bench->space, launch, &timing, local, error);
    own.status = (int32_t)status;
    for (int i = 0; status == ARFUSE_OK && i < tuner->team.local_ranks; i++) {
        if (isnan(local[i])) /* else the other ranks' times would pass for the team's */
            local[i] = INFINITY;
        if (local[i] > own.most) {
            own.most = local[i];
            own.slowest = tuner->team.first_rank + i;
        }
        own.least = i == 0 ? local[i] : fmin(own.least, local[i]);
    }
    bool broken = is_broken(bench);
    status = agree(bench, own, us, &broken, error);
    arf_watch_end();
    mend(bench, broken, fatal);
    return status;
}

arfuse_status arf_bench_time(arf_bench *bench, const arf_run *run, int calls, int64_t round,
                             double *us, bool *fatal, arf_error *error)
{
    return arf_bench_time_mixed(bench, run, 1, calls, round, us, fatal, error);
}
