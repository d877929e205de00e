/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/job.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fit/fit.h"
#include "profile/write.h"
#include "tune/confirm.h"
#include "tune/mixed.h"
#include "tune/report.h"
#include "tune/schedule.h"
#include "tune/share.h"
#include "tune/store.h"
#include "tune/sweep.h"
#include "tune/voice.h"

int arf_exit_code(arfuse_status status)
{
    if (status == ARFUSE_DISAGREE)
        return ARFUSE_USAGE;
    return status == ARFUSE_NOT_SUPPORTED ? ARFUSE_HARDWARE
           : status > ARFUSE_TIMEOUT      ? ARFUSE_FAILURE
                                          : (int)status;
}

int arf_shape_count(const arf_tune_options *options)
{
    return options->hidden_count * (options->topk_count > 0 ? options->topk_count : 1);
}

arf_shape arf_shape_at(const arf_tune_options *options, int tp_size, int index)
{
    const int topks = options->topk_count > 0 ? options->topk_count : 1;
    return (arf_shape){.tp_size = tp_size,
                       .hidden_size = options->hidden[index / topks],
                       .top_k = options->topk_count > 0 ? options->topk[index % topks] : 0,
                       .rms_norm = options->rms_norm,
                       .residual = options->residual,
                       .shared_expert = options->shared_expert};
}

/* ---- one shape ---------------------------------------------------------------------------------
 */

typedef struct outcome {
    bool written;
    arf_sweep sweep;
    char path[ARF_PATH_TEXT];
} outcome;

static bool has_time(const arf_samples *samples, arf_pattern pattern, int64_t tokens)
{
    for (int i = 0; i < samples->count; i++)
        if (samples->sample[i].pattern == pattern && samples->sample[i].tokens == tokens &&
            samples->sample[i].outcome == ARF_SAMPLE_TIMED)
            return true;
    return false;
}

/* "1,2,4" of the points that the budget did not reach: those that samples of an earlier run know
 * in part, or the others. False when there is none. */
static bool missing_text(const arf_tokens *unmeasured, const arf_samples *samples,
                         arf_pattern pattern, bool in_part, char *text, size_t size)
{
    size_t used = 0;
    int more = 0;
    text[0] = '\0';
    for (int t = 0; t < unmeasured->count; t++) {
        if (has_time(samples, pattern, unmeasured->value[t]) != in_part)
            continue;
        if (used + 40 > size)
            more++;
        else
            used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, used == 0 ? "" : ",",
                                     unmeasured->value[t]);
    }
    if (more > 0)
        snprintf(text + used, size - used, " and %d more", more);
    return used > 0;
}

static void say_what_is_missing(const arf_tuner *tuner, const arf_store *store,
                                const arf_sweep *sweep)
{
    for (int p = 0; p < ARF_PATTERNS; p++)
        for (int in_part = 0; in_part < 2; in_part++) {
            char text[512];
            if (missing_text(&sweep->unmeasured[p], store->samples, (arf_pattern)p, in_part, text,
                             sizeof text))
                arf_voice_warn("the budget of %g s was spent: %s was %s at %s tokens; run again "
                               "with --resume or a larger --budget",
                               tuner->budget_seconds, arf_pattern_name((arf_pattern)p),
                               in_part ? "measured with some candidates only" : "not measured",
                               text);
        }
}

/* A profile needs every pattern that its shape has. */
static bool is_whole(const arf_samples *samples, const arf_shape *shape, const char **lacking)
{
    bool timed[ARF_PATTERNS] = {false};
    for (int i = 0; i < samples->count; i++)
        timed[samples->sample[i].pattern] |= samples->sample[i].outcome == ARF_SAMPLE_TIMED;
    *lacking = !timed[ARF_ALLREDUCE] ? "allreduce" : "finalize";
    return timed[ARF_ALLREDUCE] && (timed[ARF_FINALIZE] || shape->top_k == 0);
}

/* Regret where nothing was fitted says more than the fit's own, when each pattern has it. */
static void take_regret(const arf_sweep *sweep, arf_profile *profile)
{
    double geomean = -1, worst = 0;
    for (int p = 0; p < ARF_PATTERNS; p++) {
        if (profile->routes[p].count == 0)
            continue;
        if (sweep->regret[p].points == 0)
            return;
        geomean = fmax(geomean, sweep->regret[p].geomean);
        worst = fmax(worst, sweep->regret[p].worst);
    }
    profile->evidence.regret_geomean = fmax(geomean, 0);
    profile->evidence.regret_max = worst;
}

static arfuse_status finish_shape(const arf_tuner *tuner, const arf_shape *shape,
                                  const arf_fit_options *fit, arf_bench *bench, arf_store *store,
                                  double deadline, bool first, outcome *out, arf_error *error)
{
    arf_profile *profile = NULL;
    const char *lacking;
    arfuse_status status = ARFUSE_OK;
    if (is_whole(store->samples, shape, &lacking)) {
        /* The same samples and function on every rank, but memory is each one's own. */
        status = arf_fit_profile(store->samples, fit, &profile, error);
        status = arf_team_vote(&tuner->team, status, error);
        if (status == ARFUSE_OK)
            take_regret(&out->sweep, profile);
        if (status == ARFUSE_OK)
            status = arf_mixed(bench, profile, deadline, error);
        if (status == ARFUSE_OK)
            status = arf_shift(bench, profile, deadline, error);
        if (status == ARFUSE_OK)
            status = arf_store_profile(store, profile, out->path, error);
        out->written = status == ARFUSE_OK;
        if (out->written)
            arf_voice_detail_here("route digest %016" PRIx64, arf_profile_digest(profile));
    } else {
        arf_voice_warn("no profile was written: nothing was timed for the %s pattern; samples are "
                       "in %s",
                       lacking, store->path);
    }
    if (status == ARFUSE_OK && tuner->group->rank == 0)
        status = arf_report(store->samples, profile, tuner->options->format, first, error);
    status = arf_team_vote(&tuner->team, status, error);
    arf_profile_free(profile);
    return status;
}

/* What a shape's time keeps for its routes: to confirm them (a reference of 1024 tokens each), to
 * mix them and to time them under both policies. A run of a minute has ten seconds or so for it. */
#define CLOSING_SECONDS 20.0
#define CLOSING_LEAST 0.05 /* of the shape's time */
#define CLOSING_MOST 0.2

static double sweep_end(double began, double deadline)
{
    const double span = deadline - began;
    return deadline - fmax(CLOSING_LEAST * span, fmin(CLOSING_SECONDS, CLOSING_MOST * span));
}

static arfuse_status tune_shape(const arf_tuner *tuner, const arf_shape *shape,
                                const arf_weights *weights, double began, double deadline,
                                bool first, outcome *out, arf_error *error)
{
    const arf_tune_options *o = tuner->options;
    const arf_problem problem = arf_device_problem(tuner->device, shape);
    arf_fit_options fit = ARF_FIT_OPTIONS_INIT;
    fit.numerics = o->any_numerics ? ARF_LIBRARY : ARF_FIXED;
    fit.weights = weights;
    fit.seed = o->seed;
    arf_tokens tokens = o->tokens;
    if (tokens.count == 0)
        arf_schedule_ladder(tuner->key.link, &tokens);

    arf_schedule *schedule = NULL;
    arf_store store = {0};
    arf_bench bench = {0};
    arfuse_status status = arf_schedule_make(&problem, &tokens, o, &schedule, error);
    if (status == ARFUSE_OK)
        status = arf_team_agree(&tuner->team, "schedule", arf_schedule_digest(schedule), error);
    if (status == ARFUSE_OK)
        status = arf_store_open(tuner, shape, problem.set, &store, error);
    if (status == ARFUSE_OK)
        status = arf_bench_open(tuner, schedule, &bench, error);
    if (status == ARFUSE_OK && first)
        arf_tuner_greet(tuner);
    if (status == ARFUSE_OK && first && arf_schedule_lack(schedule) != NULL)
        arf_voice_warn("--numerics any changes nothing here: %s", arf_schedule_lack(schedule));
    if (status == ARFUSE_OK && store.resumed > 0)
        arf_voice_note("%d sample%s of %s %s taken up", store.resumed, ARF_PLURAL(store.resumed),
                       store.path, store.resumed == 1 ? "is" : "are");
    if (status == ARFUSE_OK && store.discards > 0)
        arf_voice_warn("%d sample%s that an interrupted run left in %s %s", store.discards,
                       ARF_PLURAL(store.discards), store.path,
                       o->base != NULL ? "made way for those of --base"
                                       : "will make way for this run's first one; to keep them, "
                                         "end it now and add --resume");
    if (status == ARFUSE_OK && store.replaces)
        arf_voice_note("samples go to %s; those of the run before stay until its profile is stored",
                       store.path);
    if (status == ARFUSE_OK)
        status = arf_sweep_run(&bench, schedule, &store, &fit, sweep_end(began, deadline),
                               &out->sweep, error);
    if (status == ARFUSE_OK)
        status = arf_confirm(&bench, &store, &fit, &out->sweep, error);
    if (status == ARFUSE_OK) {
        say_what_is_missing(tuner, &store, &out->sweep);
        status = finish_shape(tuner, shape, &fit, &bench, &store, deadline, first, out, error);
    }
    if (status != ARFUSE_OK)
        arf_store_advise(&store, error);
    arf_bench_close(&bench);
    arf_store_close(&store);
    arf_schedule_free(schedule);
    return status;
}

/* Of all shapes, before the first takes its time. */
static arfuse_status judge_places(const arf_tuner *tuner, arf_error *error)
{
    arfuse_status status = ARFUSE_OK;
    for (int i = 0; i < arf_shape_count(tuner->options) && status == ARFUSE_OK; i++) {
        const arf_shape shape = arf_shape_at(tuner->options, tuner->team.tp_size, i);
        if (tuner->group->rank == 0)
            status = arf_store_judge(tuner, &shape, arf_device_problem(tuner->device, &shape).set,
                                     error);
    }
    return arf_first_says(tuner, status, error);
}

/* ---- the whole run ------------------------------------------------------------------------------
 */

static void say_regret(arf_pattern pattern, const arf_regret *regret)
{
    char mean[64], worst[64];
    arf_loss_text(regret->geomean, mean);
    arf_loss_text(regret->worst, worst);
    arf_voice_note("%s: at %d token count%s that the fit has not seen, the routes %s on average; "
                   "at M=%" PRId64 ", the worst, they %s",
                   arf_pattern_name(pattern), regret->points, ARF_PLURAL(regret->points), mean,
                   regret->worst_tokens, worst);
}

static void say_goodbye(const arf_tuner *tuner, const outcome *out)
{
    char device[160];
    arf_tuner_device_text(&tuner->key, device, sizeof device);
    if (out->sweep.worst_drift > 0.05)
        arf_voice_warn("times moved by up to %.0f %% while a point was measured (clocks, or other "
                       "work on this machine)",
                       out->sweep.worst_drift * 100);
    if (out->sweep.straggler >= 0)
        arf_voice_warn("rank %d took far longer than the fastest rank in most timings: look at its "
                       "GPU, link and core before you trust these times",
                       out->sweep.straggler);
    if (out->sweep.clock_change > 0.05)
        arf_voice_warn(
            "the same call became up to %.0f %% slower or faster during the run (clocks, "
            "or other work on this machine): routes hold, since candidates of one M were "
            "timed side by side, but times of different M do not compare",
            out->sweep.clock_change * 100);
    for (int p = 0; p < ARF_PATTERNS; p++) {
        const arf_regret *regret = &out->sweep.regret[p];
        if (regret->points > 0)
            say_regret((arf_pattern)p, regret);
    }
    if (out->sweep.noisy > 0)
        arf_voice_warn("%d of %d point%s missed the noise aim of %g %% (worst %.1f %%)",
                       out->sweep.noisy, out->sweep.timed, ARF_PLURAL(out->sweep.timed),
                       tuner->options->noise_aim * 100, out->sweep.worst_noise * 100);
    if (!out->written)
        return;
    arf_voice_note("%d candidate%s verified, %d point%s, %" PRId64 " timing%s", out->sweep.verified,
                   ARF_PLURAL(out->sweep.verified), out->sweep.timed, ARF_PLURAL(out->sweep.timed),
                   out->sweep.timings, ARF_PLURAL(out->sweep.timings));
    if (out->sweep.rounded > 0)
        arf_voice_note("%d of the verified had numerics that are not fixed: held to what a sum in "
                       "any order may come to, not to the bit",
                       out->sweep.rounded);
    arf_voice_note("wrote %s (device %s)", out->path, device);
    arf_voice_note("load it with ARFUSE_PROFILE=%s; see what it says with: arfuse-profile show %s",
                   out->path, out->path);
}

static int worse(int a, int b)
{
    /* 5 beats 9 beats 7 (design section 9). */
    static const int order[] = {ARFUSE_WRONG_RESULT, ARFUSE_FAILURE, ARF_EXIT_PARTIAL,
                                ARF_EXIT_NOISE, 0};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (a == order[i] || b == order[i])
            return order[i];
    return a;
}

static int code_of(const arf_tuner *tuner, const outcome *out)
{
    int code = out->written ? 0 : ARFUSE_FAILURE;
    if (out->sweep.wrong > 0)
        code = worse(code, ARFUSE_WRONG_RESULT);
    if (out->sweep.failed > 0)
        code = worse(code, ARF_EXIT_PARTIAL);
    if (tuner->options->strict && out->sweep.noisy > 0)
        code = worse(code, ARF_EXIT_NOISE);
    return code;
}

arfuse_status arf_tune(arf_tuner *tuner, int *code, arf_error *error)
{
    arf_weights weights = {0};
    static outcome out;
    const int shapes = arf_shape_count(tuner->options);
    *code = 0;
    ARF_TRY(arf_share_weights(tuner, &weights, error));
    arfuse_status status = judge_places(tuner, error);
    for (int i = 0; i < shapes && status == ARFUSE_OK; i++) {
        const arf_shape shape = arf_shape_at(tuner->options, tuner->team.tp_size, i);
        double seconds;
        status = arf_tuner_seconds(tuner, &seconds, error);
        if (status != ARFUSE_OK)
            break;
        out = (outcome){0};
        status = tune_shape(tuner, &shape, tuner->options->weights != NULL ? &weights : NULL,
                            seconds, seconds + (tuner->budget_seconds - seconds) / (shapes - i),
                            i == 0, &out, error);
        if (status != ARFUSE_OK)
            break;
        say_goodbye(tuner, &out);
        *code = worse(*code, code_of(tuner, &out));
    }
    arf_weights_free(&weights);
    return status;
}
