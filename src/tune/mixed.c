/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/mixed.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tune/confirm.h"
#include "tune/interval.h"
#include "tune/voice.h"

/* Decode batches; a larger call dwarfs what a change costs. */
#define MOST_TOKENS 256
#define ROUNDS 9
#define LEAST_ROUNDS 3
#define TIMING_US 2000.0             /* of the segment: repeated until it lasts about as long */
#define MOST_REPEATS 64              /* of the mix in one graph */
#define FIRST_ROUND INT64_C(3000000) /* far from those of points, anchors and shifts */

static int64_t most_tokens(const arf_bench *bench, const arf_routes *routes)
{
    int64_t most = bench->most_tokens < MOST_TOKENS ? bench->most_tokens : MOST_TOKENS;
    const int64_t bound = routes->route[routes->count - 1].max_tokens;
    most = bound < most ? bound : most;
    /* A bound may lie above what a protocol's buffers here hold. */
    for (int i = 0; i < routes->count; i++) {
        const arf_route *route = &routes->route[i];
        const int64_t room = bench->spec.capacity[route->plan.protocol];
        if (room < most && room < route->max_tokens)
            most = room;
    }
    return most;
}

/* The segment, and each of its parts at the same number of calls. *ratio: segment over parts. */
static arfuse_status play(arf_bench *bench, const arf_run *run, int calls, int64_t round,
                          double *us, double *ratio, bool *ran, arf_error *error)
{
    arf_error own = ARF_ERROR_INIT;
    double parts = 0;
    bool fatal = false;
    *ran = arf_bench_time_mixed(bench, run, ARF_MIXED_RUNS, calls, round, us, &fatal, &own) ==
           ARFUSE_OK;
    for (int i = 0; i < ARF_MIXED_RUNS && *ran; i++) {
        double alone = 0;
        *ran = arf_bench_time(bench, &run[i], calls, round, &alone, &fatal, &own) == ARFUSE_OK;
        parts += alone / ARF_MIXED_RUNS;
    }
    *ratio = *us / parts;
    return fatal ? arf_fail(error, own.status, "%s", own.text) : ARFUSE_OK;
}

/* False, and nothing taken, where a part took no time at all: under the decode policy what is left
 * of a short call beside its filler may come to that. */
static bool take(const int64_t *tokens, const double *us, const double *ratio, int rounds,
                 arf_mix_evidence *mix)
{
    for (int i = 0; i < rounds; i++)
        if (!isfinite(ratio[i]))
            return false;
    mix->count = ARF_MIXED_RUNS;
    memcpy(mix->tokens, tokens, ARF_MIXED_RUNS * sizeof *tokens);
    mix->median_us = arf_sample_round(arf_median(us, rounds));
    mix->change = arf_median(ratio, rounds) - 1;
    arf_median_interval(ratio, rounds, &mix->change_low, &mix->change_high);
    mix->change_low -= 1;
    mix->change_high -= 1;
    return true;
}

static void tell(arf_pattern pattern, const arf_mix_evidence *mix)
{
    char list[160] = "";
    for (int i = 0; i < mix->count; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%" PRId64, i > 0 ? "," : "",
                 mix->tokens[i]);
    arf_voice_note("%s at M=%s in turn: %.2f us a call, %+.1f %% (%+.1f to %+.1f) against each "
                   "alone",
                   arf_pattern_name(pattern), list, mix->median_us, mix->change * 100,
                   mix->change_low * 100, mix->change_high * 100);
}

static arfuse_status mix_pattern(arf_bench *bench, arf_profile *profile, arf_pattern pattern,
                                 double deadline, arf_error *error)
{
    const arf_tuner *tuner = bench->tuner;
    const int64_t most = most_tokens(bench, &profile->routes[pattern]);
    int64_t tokens[ARF_MIXED_RUNS];
    arf_run run[ARF_MIXED_RUNS];
    double us[ROUNDS], ratio[ROUNDS], before, now;
    bool ran;
    if (most < 2)
        return ARFUSE_OK; /* nothing to mix */
    arf_tokens_mix(tuner->options->seed * ARF_PATTERNS + (uint64_t)pattern, most, tokens,
                   ARF_MIXED_RUNS);
    for (int i = 0; i < ARF_MIXED_RUNS; i++)
        run[i] = arf_route_run(profile, pattern, tokens[i]);
    ARF_TRY(arf_tuner_seconds(tuner, &before, error));
    if (before >= deadline) {
        arf_voice_note(
            "the budget was spent: the routes of %s were not timed at mixed token counts",
            arf_pattern_name(pattern));
        return ARFUSE_OK;
    }
    /* Brings them all to life, and tells how long a call is. */
    ARF_TRY(play(bench, run, ARF_MIXED_RUNS, FIRST_ROUND, us, ratio, &ran, error));
    ARF_TRY(arf_tuner_seconds(tuner, &now, error));
    if (!ran)
        return ARFUSE_OK;
    /* A round has one segment and as many parts; under the decode policy most of it is filler. */
    const double most_repeats = (deadline - now) / ROUNDS / fmax(now - before, 1e-9);
    const double repeats = fmin(TIMING_US / (us[0] * ARF_MIXED_RUNS), most_repeats);
    const int calls = ARF_MIXED_RUNS * (repeats < 1              ? 1
                                        : repeats > MOST_REPEATS ? MOST_REPEATS
                                                                 : (int)repeats);
    int rounds = 0;
    while (rounds < ROUNDS && now < deadline) {
        ARF_TRY(play(bench, run, calls, FIRST_ROUND + 1 + rounds, &us[rounds], &ratio[rounds], &ran,
                     error));
        if (!ran)
            return ARFUSE_OK;
        rounds++;
        ARF_TRY(arf_tuner_seconds(tuner, &now, error));
    }
    if (rounds >= LEAST_ROUNDS && take(tokens, us, ratio, rounds, &profile->evidence.mix[pattern]))
        tell(pattern, &profile->evidence.mix[pattern]);
    return ARFUSE_OK;
}

arfuse_status arf_mixed(arf_bench *bench, arf_profile *profile, double deadline, arf_error *error)
{
    for (int p = 0; p < ARF_PATTERNS; p++)
        if (profile->routes[p].count > 0)
            ARF_TRY(mix_pattern(bench, profile, (arf_pattern)p, deadline, error));
    return ARFUSE_OK;
}
