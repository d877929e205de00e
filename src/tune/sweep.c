/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/sweep.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/anchor.h"
#include "tune/field.h"
#include "tune/measure.h"
#include "tune/verify.h"
#include "tune/voice.h"

/* Shares of a pattern's time. What a stage leaves over, the later ones have. */
#define VERIFY_SHARE 0.20
#define SCREEN_SHARE 0.40
#define LADDER_SHARE 0.80
#define REFINE_SHARE 0.95
/* Token counts, of each pattern, at which the routes are judged; and the rounds they get, of which
 * one half chooses the best and the other judges (fit/fit.h). */
#define HELD_OUT 6
#define HELD_OUT_ROUNDS 16

/* With fewer, one outlier can be half of a resampled median. */
#define LEAST_ROUNDS 7
/* Enough for a 95 % interval of a median within 1 % where single rounds spread by 2.5 %; and a
 * samples file of 2 MiB holds this many rounds of some thirty candidates at thirty points. */
#define MOST_ROUNDS 48
/* How many of a protocol a screening point keeps: on the host device, whose tunings differ little
 * and whose calls are slow, the best one. */
static int keep_of(const arf_bench *bench)
{
    return bench->set == ARF_SET_HOST ? 1 : 2;
}
/* A finalize call moves K + 1 rows where an allreduce call moves one. */
static const double pattern_weight[ARF_PATTERNS] = {2, 3};

/* Refining ends after this many passes over both sides of every bound: 8192 is 2^13. */
#define REFINE_PASSES 14
#define REFINE_ROOM 16

typedef struct state {
    arf_bench *bench;
    const arf_schedule *schedule;
    arf_store *store;
    const arf_fit_options *fit;
    arf_sweep *sweep;
    arf_field field;
    double start, deadline; /* of this pattern, in seconds since the run began */
    int done, total;        /* points, for the progress lines */
    arf_lane *lane;         /* [field.count] */
    int *who;               /* [field.count] entrant on each lane */
    arf_anchor *anchor;     /* of all patterns */
} state;

static double share(const state *s, double fraction)
{
    return s->start + (s->deadline - s->start) * fraction;
}

/* ---- lanes -------------------------------------------------------------------------------------
 */

/* Puts the entrants that race at `tokens` on lanes; `protocol` ARF_PROTOCOLS: all. */
static int line_up(state *s, int64_t tokens, arf_protocol protocol)
{
    int lanes = 0;
    for (int i = 0; i < s->field.count; i++) {
        const arf_plan *plan = &s->field.entrant[i].candidate->plan;
        if (!arf_field_races(&s->field, i, tokens) ||
            (protocol != ARF_PROTOCOLS && plan->protocol != protocol))
            continue;
        s->lane[lanes].plan = plan;
        s->lane[lanes].then = NULL;
        if (plan->protocol == ARF_SEPARATE) {
            s->lane[lanes].then = arf_field_then(s->store->samples, s->schedule, tokens);
            if (s->lane[lanes].then == NULL)
                continue;
        }
        s->who[lanes++] = i;
    }
    return lanes;
}

/* A lane that failed at `tokens` is not tried there or above again. */
static void note_failures(state *s, int64_t tokens, int lanes)
{
    for (int i = 0; i < lanes; i++) {
        arf_lane *lane = &s->lane[i];
        arf_entrant *e = &s->field.entrant[s->who[i]];
        if (lane->status == ARFUSE_OK)
            continue;
        char text[384];
        arf_plan_text(s->bench->set, s->field.pattern, lane->plan, text, sizeof text);
        e->limit = tokens - 1;
        if (e->limit < 1)
            e->standing = ARF_STANDING_FAILED;
        s->sweep->failed++;
        arf_field_tell(&s->field, lane->plan,
                       "%s %s failed at %" PRId64 " tokens and is not tried there or above: %s",
                       arf_pattern_name(s->field.pattern), text, tokens, lane->reason);
    }
}

/* The fastest call of the first point becomes the anchor. */
static void cast_anchor(state *s, int64_t tokens, int lanes, const arf_point *point)
{
    int best = -1;
    double least = INFINITY;
    for (int i = 0; i < lanes; i++) {
        const arf_lane *lane = &s->lane[i];
        if (lane->status != ARFUSE_OK || lane->rounds == 0)
            continue;
        const double us = arf_median(lane->us, lane->rounds);
        if (us < least) {
            least = us;
            best = i;
        }
    }
    if (best < 0)
        return;
    const arf_run run = {s->field.pattern, s->lane[best].plan, s->lane[best].then, tokens};
    arf_anchor_set(s->anchor, &run, point->calls);
}

static arfuse_status measure(state *s, int64_t tokens, int lanes, const arf_effort *effort,
                             arf_point *point, arf_error *error)
{
    ARF_TRY(arf_measure(s->bench, s->field.pattern, tokens, s->lane, lanes, effort, point, error));
    for (int i = 0; i < lanes; i++)
        s->sweep->timings += s->lane[i].rounds;
    if (s->anchor->readings == 0)
        cast_anchor(s, tokens, lanes, point);
    return arf_anchor_read(s->anchor, s->bench, error);
}

/* ---- screening ---------------------------------------------------------------------------------
 */

/* First, middle and last point that a protocol serves. */
static int screening_points(const state *s, arf_protocol protocol, int64_t tokens[3])
{
    const arf_tokens *ladder = &s->schedule->tokens;
    int served = 0, count = 0;
    for (int i = 0; i < s->field.count; i++)
        if (s->field.entrant[i].candidate->plan.protocol == protocol)
            for (int t = 0; t < ladder->count; t++)
                if (arf_field_races(&s->field, i, ladder->value[t]) && t >= served)
                    served = t + 1;
    const int at[] = {0, served / 2, served - 1};
    const int most = s->bench->set == ARF_SET_HOST ? 2 : 3; /* its large calls are too slow */
    for (int i = 0; i < most && served > 0; i++)
        if (count == 0 || tokens[count - 1] != ladder->value[at[i]])
            tokens[count++] = ladder->value[at[i]];
    return count;
}

/*
 * Successive halving at one point: everyone gets a round, the faster half two more, and so on until
 * few are left; those get the votes. How often it halves depends on their number alone.
 */
static arfuse_status halve(state *s, arf_protocol protocol, int64_t tokens, double deadline,
                           arf_error *error)
{
    double *us = malloc((size_t)s->field.count * sizeof *us);
    if (us == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d candidates", s->field.count);
    for (int i = 0; i < s->field.count; i++)
        us[i] = NAN;
    arfuse_status status = ARFUSE_OK;
    int lanes = line_up(s, tokens, protocol);
    int64_t first_round = 100000; /* far from the ladder's rounds, so no noise is shared */
    for (int rounds = 1; lanes > 0; rounds *= 2) {
        const arf_effort effort = {.least_rounds = rounds,
                                   .most_rounds = rounds,
                                   .noise_aim = s->bench->tuner->options->noise_aim,
                                   .seconds = INFINITY,
                                   .deadline = deadline,
                                   .first_round = first_round};
        arf_point point;
        status = measure(s, tokens, lanes, &effort, &point, error);
        if (status != ARFUSE_OK)
            break;
        first_round += rounds + 1;
        note_failures(s, tokens, lanes);
        for (int i = 0; i < s->field.count; i++)
            us[i] = NAN;
        for (int i = 0; i < lanes; i++)
            if (s->lane[i].status == ARFUSE_OK && s->lane[i].rounds > 0)
                us[s->who[i]] = arf_median(s->lane[i].us, s->lane[i].rounds);
        if (lanes <= 2 * keep_of(s->bench) || point.out_of_time)
            break;
        /* Keep the faster half, in the order of the field. */
        int kept = 0;
        for (int i = 0; i < lanes; i++) {
            const int self = s->who[i];
            int ahead = 0;
            for (int j = 0; j < lanes; j++)
                ahead += us[s->who[j]] < us[self] || (us[s->who[j]] == us[self] && j < i);
            if (isfinite(us[self]) && ahead < (lanes + 1) / 2) {
                s->lane[kept].plan = s->lane[i].plan;
                s->lane[kept].then = s->lane[i].then;
                s->who[kept++] = self;
            }
        }
        lanes = kept;
    }
    if (status == ARFUSE_OK)
        arf_field_vote(&s->field, protocol, us, keep_of(s->bench));
    free(us);
    return status;
}

/* Rank 0's clock; a point is not begun behind the deadline. */
static arfuse_status time_left(state *s, double deadline, double *left, arf_error *error)
{
    double seconds;
    ARF_TRY(arf_tuner_seconds(s->bench->tuner, &seconds, error));
    *left = deadline - seconds;
    return ARFUSE_OK;
}

/* The time that is left for screening is shared evenly by what is still to be screened. */
static arfuse_status screen(state *s, arf_error *error)
{
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        int64_t tokens[3];
        int in = 0;
        for (int i = 0; i < s->field.count; i++)
            in += s->field.entrant[i].candidate->plan.protocol == (arf_protocol)p &&
                  s->field.entrant[i].standing == ARF_STANDING_IN;
        if (in <= keep_of(s->bench))
            continue;
        const int points = screening_points(s, (arf_protocol)p, tokens);
        for (int i = 0; i < points; i++) {
            const double end = share(s, SCREEN_SHARE);
            double left;
            ARF_TRY(time_left(s, end, &left, error));
            const int to_do = points * (ARF_PROTOCOLS - p) - i;
            ARF_TRY(halve(s, (arf_protocol)p, tokens[i], end - left + left / to_do, error));
        }
        arf_field_close(&s->field, (arf_protocol)p, keep_of(s->bench));
        int left = 0;
        for (int i = 0; i < s->field.count; i++)
            left += s->field.entrant[i].candidate->plan.protocol == (arf_protocol)p &&
                    s->field.entrant[i].standing == ARF_STANDING_IN;
        arf_voice_detail("%s %s: %d of %d candidates go on the ladder",
                         arf_pattern_name(s->field.pattern), arf_protocol_name((arf_protocol)p),
                         left, in);
    }
    return ARFUSE_OK;
}

/*
 * A resumed run takes up the survivors that the samples know, since screening them again could end
 * otherwise and make every measured point incomplete. With fewer than two token counts the first
 * point may itself be incomplete.
 */
static bool take_up_survivors(state *s)
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

static bool is_known(const state *s, int64_t tokens, int lanes)
{
    for (int i = 0; i < lanes; i++)
        if (arf_samples_find(s->store->samples, s->field.pattern, tokens, s->lane[i].plan) == NULL)
            return false;
    return lanes > 0;
}

/* The lanes of a point as samples, which borrow the rounds. */
static void to_samples(const state *s, int64_t tokens, int lanes, const arf_point *point,
                       arf_sample *sample)
{
    for (int i = 0; i < lanes; i++) {
        arf_lane *lane = &s->lane[i];
        sample[i] = (arf_sample){.pattern = s->field.pattern,
                                 .tokens = tokens,
                                 .plan = *lane->plan,
                                 .has_then = lane->then != NULL,
                                 .outcome = lane->status == ARFUSE_OK ? ARF_SAMPLE_TIMED
                                                                      : ARF_SAMPLE_FAILED,
                                 .calls = point->calls,
                                 .rounds = lane->rounds,
                                 .us = lane->us};
        if (lane->then != NULL)
            sample[i].then = *lane->then;
        if (lane->status != ARFUSE_OK) {
            memcpy(sample[i].reason, lane->reason, sizeof sample[i].reason);
            sample[i].calls = sample[i].rounds = 0;
        }
    }
}

static arfuse_status save(state *s, int64_t tokens, int lanes, const arf_point *point,
                          arf_error *error)
{
    arf_sample *sample = calloc((size_t)lanes, sizeof *sample);
    if (sample == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d samples", lanes);
    to_samples(s, tokens, lanes, point, sample);
    arfuse_status status = arf_store_add(s->store, sample, lanes, error);
    free(sample);
    return status;
}

/* "[17/120] allreduce M=64: ll 12.34 us, bt 15.2 us; about 40 s left". */
static arfuse_status report_progress(state *s, int64_t tokens, int lanes, arf_error *error)
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
    /* Points differ a lot in cost, so the past says little; the limit is certain. */
    const double elapsed = seconds - s->start;
    double left = elapsed / (s->done > 0 ? s->done : 1) * (s->total - s->done);
    left = fmin(left, s->deadline - seconds);
    arf_voice_note("[%d/%d] %s M=%" PRId64 ": %s; about %.0f s left for this pattern", s->done,
                   s->total, arf_pattern_name(s->field.pattern), tokens,
                   line[0] != '\0' ? line : "nothing ran", left > 0 ? left : 0);
    return ARFUSE_OK;
}

/* Measures and saves one point unless it is known. *reached: there was time for it. */
static arfuse_status visit(state *s, int64_t tokens, double seconds, bool *reached,
                           arf_error *error)
{
    const int lanes = line_up(s, tokens, ARF_PROTOCOLS);
    arf_point point;
    *reached = true;
    s->done++;
    if (lanes == 0 || is_known(s, tokens, lanes))
        return ARFUSE_OK;
    const arf_effort effort = {.least_rounds = LEAST_ROUNDS,
                               .most_rounds = MOST_ROUNDS,
                               .noise_aim = s->bench->tuner->options->noise_aim,
                               .seconds = seconds,
                               .deadline = s->deadline,
                               .first_round = 0};
    ARF_TRY(measure(s, tokens, lanes, &effort, &point, error));
    note_failures(s, tokens, lanes);
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

static arfuse_status climb_ladder(state *s, arf_error *error)
{
    const arf_tokens *ladder = &s->schedule->tokens;
    int order[ARF_MAX_POINTS];
    arf_tokens_coarse_first(ladder, order);
    for (int i = 0; i < ladder->count; i++) {
        double left;
        bool reached = false;
        ARF_TRY(time_left(s, share(s, LADDER_SHARE), &left, error));
        if (left > 0)
            ARF_TRY(visit(s, ladder->value[order[i]], left / (ladder->count - i), &reached, error));
        if (!reached)
            s->sweep->unmeasured[s->field.pattern]++;
    }
    return ARFUSE_OK;
}

/* Between points whose winners differ, until bounds are exact, inside the noise, or time is out. */
static arfuse_status refine(state *s, arf_error *error)
{
    for (int pass = 0; pass < REFINE_PASSES; pass++) {
        int64_t wanted[REFINE_ROOM];
        const int count =
            arf_fit_wanted(s->store->samples, s->field.pattern, s->fit, wanted, REFINE_ROOM);
        bool any = false;
        for (int i = 0; i < count; i++) {
            double left;
            bool reached;
            ARF_TRY(time_left(s, share(s, REFINE_SHARE), &left, error));
            if (left <= 0)
                return ARFUSE_OK;
            s->total++;
            ARF_TRY(visit(s, wanted[i], left / 4, &reached, error));
            any |= reached;
        }
        if (!any)
            return ARFUSE_OK;
    }
    return ARFUSE_OK;
}

/* ---- judging ------------------------------------------------------------------------------------
 */

/* One held-out point into `held_out`; *reached as in visit. */
static arfuse_status visit_held_out(state *s, int64_t tokens, double seconds, arf_samples *held_out,
                                    bool *reached, arf_error *error)
{
    const int lanes = line_up(s, tokens, ARF_PROTOCOLS);
    const arf_effort effort = {.least_rounds = HELD_OUT_ROUNDS,
                               .most_rounds = MOST_ROUNDS,
                               .noise_aim = s->bench->tuner->options->noise_aim,
                               .seconds = seconds,
                               .deadline = s->deadline,
                               .first_round = 0};
    arf_point point;
    ARF_TRY(measure(s, tokens, lanes, &effort, &point, error));
    *reached = !point.out_of_time;
    arf_sample *sample = calloc((size_t)lanes + 1, sizeof *sample);
    if (sample == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d samples", lanes);
    to_samples(s, tokens, lanes, &point, sample);
    arfuse_status status = ARFUSE_OK;
    for (int i = 0; i < lanes && *reached && status == ARFUSE_OK; i++)
        status = arf_samples_add(held_out, &sample[i], error);
    free(sample);
    return status;
}

/* What the routes lose at token counts that no fit has seen. Such samples are not saved: they
 * would be seen by the next fit. */
static arfuse_status judge(state *s, arf_error *error)
{
    const arf_pattern pattern = s->field.pattern;
    arf_regret *regret = &s->sweep->regret[pattern];
    arf_fit_result result;
    int64_t tokens[HELD_OUT];
    if (arf_fit(s->store->samples, pattern, s->fit, &result, NULL) != ARFUSE_OK)
        return ARFUSE_OK; /* nothing was timed, which is said elsewhere */
    const int count =
        arf_holdout_tokens(s->store->samples, pattern, s->fit->seed, tokens, HELD_OUT);
    arf_samples *held_out = arf_samples_new(&s->store->samples->header);
    if (held_out == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for held-out samples");
    arfuse_status status = ARFUSE_OK;
    bool reached = true;
    for (int i = 0; i < count && reached && status == ARFUSE_OK; i++) {
        double left;
        status = time_left(s, s->deadline, &left, error);
        if (status == ARFUSE_OK && left <= 0)
            break;
        if (status == ARFUSE_OK)
            status = visit_held_out(s, tokens[i], left / (count - i), held_out, &reached, error);
    }
    if (status == ARFUSE_OK)
        arf_regret_of(held_out, pattern, &result.routes, regret, NULL); /* else: 0 points */
    arf_samples_free(held_out);
    return status;
}

/* ---- one pattern -------------------------------------------------------------------------------
 */

static arfuse_status run_pattern(state *s, arf_error *error)
{
    ARF_TRY(arf_verify(s->bench, s->schedule, s->store, &s->field, share(s, VERIFY_SHARE), s->sweep,
                       error));
    if (!take_up_survivors(s))
        ARF_TRY(screen(s, error));
    ARF_TRY(climb_ladder(s, error));
    ARF_TRY(refine(s, error));
    return judge(s, error);
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
        state s = {.bench = bench,
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
        weight -= pattern_weight[p];
        if (status == ARFUSE_OK)
            status = run_pattern(&s, error);
        arf_field_tell_rest(&s.field);
        free(s.lane);
        free(s.who);
        arf_field_free(&s.field);
    }
    sweep->clock_change = arf_anchor_change(&anchor);
    return status;
}
