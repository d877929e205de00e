/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/measure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/voice.h"

/* ---- how long ----------------------------------------------------------------------------------
 */

/*
 * One timing lasts about this long, so that its fixed cost (a graph launch of some ten
 * microseconds, a barrier) stays far below 2 % (design section 8); a call that takes longer alone
 * is timed alone.
 */
#define TIMING_US 2000.0
#define MOST_CALLS 512
/* Calls of the timing that warms up and tells about how long a call is. */
#define FIRST_CALLS 2

static int choose_calls(double best_us, double timing_us)
{
    double calls = ceil((timing_us > 0 ? timing_us : TIMING_US) / best_us);
    return calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : (int)calls;
}

/* Under the decode policy each call has a filler before it, which its time does not contain but
 * which can take a thousand times as long. `wall` is seconds a call with all of that. */
#define DECODE_SECONDS 0.05
static int bound_calls(int calls, double wall)
{
    const double most = DECODE_SECONDS / fmax(wall, 1e-9);
    return most < 1 ? 1 : most < calls ? (int)most : calls;
}

/* A median of fewer says nothing: what even a point that has used up its time gets. */
#define FEWEST_ROUNDS 3

/* A lane this much slower than the best needs no interval as narrow as the aim: it has lost. But a
 * wide one (outliers among few rounds) would look like a tie to whoever fits. */
#define LOST 1.15
#define LOST_WIDTH 0.05
/* Behind by this much no width is a tie: the fit takes none for more than 20 % (fit/segments.c). */
#define FAR_BEHIND 1.5

static double best_median(const arf_lane *lane, int lanes)
{
    double best = INFINITY;
    for (int i = 0; i < lanes; i++)
        if (lane[i].status == ARFUSE_OK && lane[i].rounds > 0)
            best = fmin(best, arf_median(lane[i].us, lane[i].rounds));
    return best;
}

static bool has_lost(const arf_lane *lane, double best)
{
    double low, high;
    arf_median_interval(lane->us, lane->rounds, &low, &high);
    return low > FAR_BEHIND * best ||
           (low > LOST * best && arf_half_width(lane->us, lane->rounds) <= LOST_WIDTH);
}

static bool settled(const arf_lane *lane, double best, double aim)
{
    return arf_half_width(lane->us, lane->rounds) <= aim || has_lost(lane, best);
}

/* ---- order -------------------------------------------------------------------------------------
 */

/* SplitMix64 (Steele, Lea, Flood 2014): small, seeded, equal everywhere. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void shuffle(int *order, int count, uint64_t seed)
{
    for (int i = 0; i < count; i++)
        order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int j = (int)(next_random(&seed) % (uint64_t)(i + 1));
        int swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

/* ---- the point ---------------------------------------------------------------------------------
 */

typedef struct session {
    arf_bench *bench;
    arf_pattern pattern;
    int64_t tokens;
    arf_lane *lane;
    int lanes;
    const arf_effort *effort;
    double spent; /* seconds in timings: from the agreed maxima, so equal on all ranks */
    int expired[ARF_PROTOCOLS]; /* waits in a row that expired, since one of the protocol ran */
} session;

/* A timing without a time counts for nothing (under the decode policy, what is left of a call
 * beside its filler may be lost in the noise once); a lane that goes on like that has none. */
static void lose(arf_lane *lane, int calls, double us)
{
    if (++lane->timeless < lane->rounds + FEWEST_ROUNDS)
        return;
    lane->status = ARFUSE_FAILURE;
    snprintf(lane->reason, sizeof lane->reason,
             "no time: the last of %d timings of it gave %g us a call, of %d", lane->timeless, us,
             calls);
}

/* One timing of one lane; *us: NaN without a time. A failure is the lane's own unless the bench is
 * gone. */
static arfuse_status time_lane(session *s, arf_lane *lane, int calls, int64_t round, double *us,
                               arf_error *error)
{
    const arf_run run = {
        .pattern = s->pattern, .plan = lane->plan, .then = lane->then, .tokens = s->tokens};
    arf_error own = ARF_ERROR_INIT;
    bool fatal;
    int *expired = &s->expired[lane->plan->protocol];
    if (*expired == ARF_HOPELESS) {
        lane->status = ARFUSE_TIMEOUT;
        snprintf(lane->reason, sizeof lane->reason,
                 "not tried: %d candidates of %s before it waited in vain", *expired,
                 arf_protocol_name(lane->plan->protocol));
        return ARFUSE_OK;
    }
    lane->status = arf_bench_time(s->bench, &run, calls, round, us, &fatal, &own);
    if (lane->status == ARFUSE_OK) {
        *expired = 0;
        if (isfinite(*us) && *us > 0) {
            s->spent += *us * calls * 1e-6;
            return ARFUSE_OK;
        }
        lose(lane, calls, *us);
        *us = NAN;
        return ARFUSE_OK;
    }
    *expired += lane->status == ARFUSE_TIMEOUT;
    snprintf(lane->reason, sizeof lane->reason, "%.*s", (int)sizeof lane->reason - 1, own.text);
    return fatal ? arf_fail(error, own.status, "%s", own.text) : ARFUSE_OK;
}

/* Brings every lane to life and finds about how long a call is; *late: the deadline came first. */
static arfuse_status warm_up(session *s, double *best_us, bool *late, arf_error *error)
{
    *best_us = INFINITY;
    for (int i = 0; i < s->lanes; i++) {
        double us = 0, seconds;
        ARF_TRY(arf_tuner_seconds(s->bench->tuner, &seconds, error));
        *late = seconds >= s->effort->deadline;
        if (*late)
            return ARFUSE_OK;
        do {
            ARF_TRY(time_lane(s, &s->lane[i], FIRST_CALLS, s->effort->first_round, &us, error));
        } while (s->lane[i].status == ARFUSE_OK && isnan(us));
        if (s->lane[i].status == ARFUSE_OK)
            *best_us = fmin(*best_us, us);
    }
    return ARFUSE_OK;
}

/* A round over the lanes that are still open. */
static arfuse_status play_round(session *s, int calls, int round, const bool *open,
                                arf_error *error)
{
    int *order = malloc((size_t)s->lanes * sizeof *order);
    if (order == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d lanes", s->lanes);
    const int64_t number = s->effort->first_round + 1 + round;
    shuffle(order, s->lanes,
            s->bench->tuner->options->seed * 1000003 + (uint64_t)s->tokens * 4 +
                (uint64_t)s->pattern + ((uint64_t)number << 32));
    arfuse_status status = ARFUSE_OK;
    for (int i = 0; i < s->lanes && status == ARFUSE_OK; i++) {
        arf_lane *lane = &s->lane[order[i]];
        double us = 0;
        if (!open[order[i]] || lane->status != ARFUSE_OK)
            continue;
        status = time_lane(s, lane, calls, number, &us, error);
        if (status == ARFUSE_OK && lane->status == ARFUSE_OK && !isnan(us))
            lane->us[lane->rounds++] = us;
    }
    free(order);
    return status;
}

static double drift_of(const arf_lane *lane)
{
    const int half = lane->rounds / 2;
    if (half < 4)
        return 0;
    return fabs(arf_median(lane->us + half, lane->rounds - half) / arf_median(lane->us, half) - 1);
}

static void judge(const session *s, arf_point *point)
{
    const double best = best_median(s->lane, s->lanes);
    point->noise = point->drift = 0;
    for (int i = 0; i < s->lanes; i++) {
        const arf_lane *lane = &s->lane[i];
        if (lane->status != ARFUSE_OK)
            continue;
        point->out_of_time |=
            lane->rounds < s->effort->least_rounds && lane->rounds < FEWEST_ROUNDS;
        double low, high;
        arf_median_interval(lane->us, lane->rounds, &low, &high);
        if (low > LOST * best)
            continue;
        point->noise = fmax(point->noise, arf_half_width(lane->us, lane->rounds));
        point->drift = fmax(point->drift, drift_of(lane));
    }
}

arfuse_status arf_measure(arf_bench *bench, arf_pattern pattern, int64_t tokens, arf_lane *lane,
                          int lanes, const arf_effort *effort, arf_point *point, arf_error *error)
{
    session s = {.bench = bench,
                 .pattern = pattern,
                 .tokens = tokens,
                 .lane = lane,
                 .lanes = lanes,
                 .effort = effort};
    *point = (arf_point){0};
    double best_us, seconds;
    for (int i = 0; i < lanes; i++) {
        lane[i].rounds = lane[i].timeless = 0;
        lane[i].status = ARFUSE_OK;
    }
    double before;
    ARF_TRY(arf_tuner_seconds(bench->tuner, &before, error));
    ARF_TRY(warm_up(&s, &best_us, &point->out_of_time, error));
    ARF_TRY(arf_tuner_seconds(bench->tuner, &seconds, error));
    if (point->out_of_time || !isfinite(best_us))
        return ARFUSE_OK; /* no lane ran; each says why */
    point->calls = effort->calls > 0 ? effort->calls : choose_calls(best_us, effort->timing_us);
    if (bench->tuner->options->policy == ARF_DECODE)
        point->calls = bound_calls(point->calls, (seconds - before) / (lanes * FIRST_CALLS));
    bool *open = malloc((size_t)lanes * sizeof *open);
    if (open == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d lanes", lanes);
    for (int i = 0; i < lanes; i++)
        open[i] = true;
    arfuse_status status = ARFUSE_OK;
    for (int round = 0; round < effort->most_rounds && status == ARFUSE_OK; round++) {
        status = arf_tuner_seconds(bench->tuner, &seconds, error);
        if (status != ARFUSE_OK || seconds >= effort->deadline)
            break;
        status = play_round(&s, point->calls, round, open, error);
        if (status != ARFUSE_OK || round + 1 < FEWEST_ROUNDS)
            continue;
        if (s.spent >= effort->seconds)
            break;
        const bool enough = round + 1 >= effort->least_rounds;
        if (!enough && !effort->drop_lost)
            continue;
        const double best = best_median(lane, lanes);
        int left = 0;
        for (int i = 0; i < lanes; i++)
            left += open[i] =
                open[i] && lane[i].status == ARFUSE_OK &&
                !(enough ? settled(&lane[i], best, effort->noise_aim) : has_lost(&lane[i], best));
        if (left == 0)
            break;
    }
    free(open);
    /* Right behind the last timing: a clock comes down within some milliseconds of idling. */
    if (status == ARFUSE_OK)
        status = arf_clocks_read(&bench->clocks, bench->tuner->device, error);
    point->clocks = bench->clocks.now;
    if (status == ARFUSE_OK)
        judge(&s, point);
    return status;
}
