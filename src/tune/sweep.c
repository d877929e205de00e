/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/sweep.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/course.h"
#include "tune/share.h"
#include "tune/verify.h"
#include "tune/voice.h"

/* Shares of a pattern's time. What a stage leaves over, the later ones have. */
#define VERIFY_SHARE 0.20
#define LADDER_SHARE 0.80
#define REFINE_SHARE 0.95
/* A GPU has hundreds of candidates and short calls, the host device the opposite. */
static double screen_share(const arf_bench *bench)
{
    return bench->set == ARF_SET_HOST ? 0.40 : 0.65;
}

/* With fewer, one outlier can be half of a resampled median. */
#define LEAST_ROUNDS 7
/* A finalize call moves K + 1 rows where an allreduce call moves one. */
static const double pattern_weight[ARF_PATTERNS] = {2, 3};

/* Refining ends after this many passes: 8192 is 2^13, so 14 make every bound exact; the others are
 * for gaps inside routes, a few points each. */
#define REFINE_PASSES 56
#define REFINE_ROOM 16

/*
 * A resumed run takes up the survivors that the samples know, since screening them again could end
 * otherwise and make every measured point incomplete. With fewer than two token counts the first
 * point may itself be incomplete.
 */
static bool take_up_survivors(arf_course *s)
{
    const arf_samples *samples = s->store->samples;
    int64_t first = 0;
    bool second = false;
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *sample = &samples->sample[i];
        if (sample->pattern != s->field.pattern || sample->outcome != ARF_SAMPLE_TIMED)
            continue;
        if (first == 0)
            first = sample->tokens;
        second |= sample->tokens != first;
    }
    if (!second)
        return false;
    for (int i = 0; i < s->field.count; i++) {
        arf_entrant *e = &s->field.entrant[i];
        bool known = e->candidate->always;
        for (int j = 0; j < samples->count && !known; j++)
            known = samples->sample[j].pattern == s->field.pattern &&
                    samples->sample[j].outcome == ARF_SAMPLE_TIMED &&
                    arf_plan_equal(s->bench->set, s->field.pattern, &samples->sample[j].plan,
                                   &e->candidate->plan);
        if (!known && e->standing == ARF_STANDING_IN)
            e->standing = ARF_STANDING_SCREENED;
    }
    return true;
}

/* ---- points ------------------------------------------------------------------------------------
 */

static bool is_known(const arf_course *s, int64_t tokens, int lanes)
{
    for (int i = 0; i < lanes; i++)
        if (arf_samples_find(s->store->samples, s->field.pattern, tokens, s->lane[i].plan) == NULL)
            return false;
    return lanes > 0;
}

static arfuse_status save(arf_course *s, int64_t tokens, int lanes, const arf_point *point,
                          arf_error *error)
{
    arf_sample *sample = calloc((size_t)lanes, sizeof *sample);
    if (sample == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d samples", lanes);
    arf_course_samples(s, tokens, lanes, point, sample);
    arfuse_status status = arf_store_add(s->store, sample, lanes, error);
    free(sample);
    return status;
}

/* "[17/120] allreduce M=64: ll 12.34 us, bt 15.2 us; about 40 s left". */
static arfuse_status report_progress(arf_course *s, int64_t tokens, int lanes, arf_error *error)
{
    double us[ARF_PROTOCOLS], seconds;
    char line[256] = "";
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        us[p] = INFINITY;
    for (int i = 0; i < lanes; i++)
        if (s->lane[i].status == ARFUSE_OK && s->lane[i].rounds > 0) {
            double *best = &us[s->lane[i].plan->protocol];
            *best = fmin(*best, arf_median(s->lane[i].us, s->lane[i].rounds));
        }
    for (int rank = 0; rank < ARF_PROTOCOLS; rank++) {
        int best = 0;
        for (int p = 1; p < ARF_PROTOCOLS; p++)
            if (us[p] < us[best])
                best = p;
        if (!isfinite(us[best]))
            break;
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s %.2f us",
                 rank == 0 ? "" : ", ", arf_protocol_name((arf_protocol)best), us[best]);
        us[best] = INFINITY;
    }
    ARF_TRY(arf_tuner_seconds(s->bench->tuner, &seconds, error));
    /* Points differ a lot in cost, so the past says little; the limit is certain. How many points
     * refining will ask for nobody knows. */
    const bool counted = s->done < s->total;
    double left = s->deadline - seconds;
    if (counted)
        left = fmin(left, (seconds - s->start) / s->done * (s->total - s->done));
    arf_voice_note("[%d/%d] %s M=%" PRId64 ": %s; %s %.0f s left for this pattern", s->done,
                   s->total, arf_pattern_name(s->field.pattern), tokens,
                   line[0] != '\0' ? line : "nothing ran", counted ? "about" : "at most",
                   left > 0 ? left : 0);
    return ARFUSE_OK;
}

/* Measures and saves one point unless it is known. *reached: there was time for it. `all`: a point
 * of the ladder, on which everyone is measured. */
static arfuse_status visit(arf_course *s, int64_t tokens, double seconds, bool all, bool *reached,
                           arf_error *error)
{
    int lanes = arf_course_line_up(s, tokens, ARF_PROTOCOLS);
    if (!all)
        lanes = arf_course_leave_lost(s, tokens, lanes);
    arf_point point;
    *reached = true;
    s->done++;
    if (lanes == 0 || is_known(s, tokens, lanes))
        return ARFUSE_OK;
    const arf_effort effort = {.least_rounds = LEAST_ROUNDS,
                               .most_rounds = ARF_MOST_ROUNDS,
                               .noise_aim = s->bench->tuner->options->noise_aim,
                               .seconds = seconds,
                               .deadline = s->deadline,
                               .first_round = 0,
                               .drop_lost = true};
    ARF_TRY(arf_course_measure(s, tokens, lanes, &effort, &point, error));
    arf_course_note_failures(s, tokens, lanes);
    if (point.out_of_time) {
        *reached = false;
        return ARFUSE_OK;
    }
    s->sweep->timed++;
    s->sweep->noisy += point.noise > effort.noise_aim;
    s->sweep->worst_noise = fmax(s->sweep->worst_noise, point.noise);
    s->sweep->worst_drift = fmax(s->sweep->worst_drift, point.drift);
    ARF_TRY(save(s, tokens, lanes, &point, error));
    return report_progress(s, tokens, lanes, error);
}

static arfuse_status climb_ladder(arf_course *s, arf_error *error)
{
    const arf_tokens *ladder = &s->schedule->tokens;
    int order[ARF_MAX_POINTS];
    arf_tokens_coarse_first(ladder, order);
    for (int i = 0; i < ladder->count; i++) {
        const double own = s->deadline;
        double left;
        bool reached = false;
        arfuse_status status = ARFUSE_OK;
        ARF_TRY(arf_course_left(s, arf_course_share(s, LADDER_SHARE), &left, error));
        /* Without a single point of a pattern there is no profile: the first is begun late, too,
         * with the fewest rounds, and may take from the next pattern's time. */
        if (i == 0)
            s->deadline = s->last;
        if (left > 0 || i == 0)
            status = visit(s, ladder->value[order[i]], fmax(left, 0) / (ladder->count - i), true,
                           &reached, error);
        s->deadline = own;
        if (status != ARFUSE_OK)
            return status;
        if (!reached)
            arf_tokens_add(&s->sweep->unmeasured[s->field.pattern], ladder->value[order[i]]);
    }
    return ARFUSE_OK;
}

/* Between points whose winners differ, until bounds are exact or inside the noise, and then where a
 * rival is close; until nothing is in doubt or time is out. */
static arfuse_status refine(arf_course *s, arf_error *error)
{
    for (int pass = 0; pass < REFINE_PASSES; pass++) {
        int64_t wanted[REFINE_ROOM];
        int count;
        bool routes, any = false;
        arfuse_status status = arf_fit_wanted(s->store->samples, s->field.pattern, s->fit, wanted,
                                              REFINE_ROOM, &count, error);
        ARF_TRY(arf_share_fit(s->bench->tuner, status, &routes, error));
        for (int i = 0; i < count; i++) {
            double left;
            bool reached;
            ARF_TRY(arf_course_left(s, arf_course_share(s, REFINE_SHARE), &left, error));
            if (left <= 0)
                return ARFUSE_OK;
            s->total++;
            ARF_TRY(visit(s, wanted[i], left / 4, false, &reached, error));
            any |= reached;
        }
        if (!any)
            return ARFUSE_OK;
    }
    return ARFUSE_OK;
}

/* ---- one pattern -------------------------------------------------------------------------------
 */

static arfuse_status run_pattern(arf_course *s, arf_error *error)
{
    ARF_TRY(arf_verify(s->bench, s->schedule, s->store, &s->field,
                       arf_course_share(s, VERIFY_SHARE), s->sweep, error));
    if (!take_up_survivors(s))
        ARF_TRY(arf_screen(s, arf_course_share(s, screen_share(s->bench)), error));
    ARF_TRY(climb_ladder(s, error));
    ARF_TRY(refine(s, error));
    return arf_judge(s, error);
}

arfuse_status arf_sweep_run(arf_bench *bench, const arf_schedule *schedule, arf_store *store,
                            const arf_fit_options *fit, double deadline, arf_sweep *sweep,
                            arf_error *error)
{
    *sweep = (arf_sweep){.failed = bench->curtailed};
    arf_anchor anchor = {0};
    double weight = 0;
    for (int p = 0; p < ARF_PATTERNS; p++)
        weight += schedule->pattern[p] ? pattern_weight[p] : 0;
    arfuse_status status = ARFUSE_OK;
    for (int p = 0; p < ARF_PATTERNS && status == ARFUSE_OK; p++) {
        if (!schedule->pattern[p])
            continue;
        arf_course s = {.bench = bench,
                        .schedule = schedule,
                        .store = store,
                        .fit = fit,
                        .sweep = sweep,
                        .anchor = &anchor,
                        .total = schedule->tokens.count};
        status = arf_field_make(schedule, bench, (arf_pattern)p, &s.field, error);
        if (status == ARFUSE_OK) {
            s.lane = calloc((size_t)s.field.count, sizeof *s.lane);
            s.who = calloc((size_t)s.field.count, sizeof *s.who);
            if (s.lane == NULL || s.who == NULL)
                status = arf_fail(error, ARFUSE_FAILURE, "out of memory for %d candidates",
                                  s.field.count);
        }
        if (status == ARFUSE_OK)
            status = arf_tuner_seconds(bench->tuner, &s.start, error);
        s.deadline = s.start + (deadline - s.start) * pattern_weight[p] / weight;
        s.last = deadline;
        weight -= pattern_weight[p];
        if (status == ARFUSE_OK)
            status = run_pattern(&s, error);
        arf_field_tell_rest(&s.field);
        free(s.lane);
        free(s.who);
        arf_field_free(&s.field);
    }
    sweep->straggler = arf_bench_straggler(bench);
    sweep->clock_change = arf_anchor_change(&anchor);
    return status;
}
