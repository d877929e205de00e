/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/course.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tune/voice.h"

double arf_course_share(const arf_course *s, double fraction)
{
    return s->start + (s->deadline - s->start) * fraction;
}

arfuse_status arf_course_left(arf_course *s, double deadline, double *left, arf_error *error)
{
    double seconds;
    ARF_TRY(arf_tuner_seconds(s->bench->tuner, &seconds, error));
    *left = deadline - seconds;
    return ARFUSE_OK;
}

int arf_course_line_up(arf_course *s, int64_t tokens, arf_protocol protocol)
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

void arf_course_move(arf_course *s, int from, int to)
{
    s->lane[to].plan = s->lane[from].plan;
    s->lane[to].then = s->lane[from].then;
    s->who[to] = s->who[from];
}

int arf_course_leave_lost(arf_course *s, int64_t tokens, int lanes)
{
    int kept = 0;
    for (int i = 0; i < lanes; i++) {
        if (arf_fit_lost(s->store->samples, s->field.pattern, s->lane[i].plan, tokens))
            continue;
        arf_course_move(s, i, kept++);
    }
    return kept;
}

void arf_course_note_failures(arf_course *s, int64_t tokens, int lanes)
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
                       "%s %s failed at %" PRId64 " token%s and is not tried there or above: %s",
                       arf_pattern_name(s->field.pattern), text, tokens, ARF_PLURAL(tokens),
                       lane->reason);
    }
}

/* The fastest call of the first point becomes the anchor. */
static void cast_anchor(arf_course *s, int64_t tokens, int lanes, const arf_point *point)
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
    const arf_run run = {.pattern = s->field.pattern,
                         .plan = s->lane[best].plan,
                         .then = s->lane[best].then,
                         .tokens = tokens};
    arf_anchor_set(s->anchor, &run, point->calls);
}

arfuse_status arf_course_measure(arf_course *s, int64_t tokens, int lanes, const arf_effort *effort,
                                 arf_point *point, arf_error *error)
{
    ARF_TRY(arf_measure(s->bench, s->field.pattern, tokens, s->lane, lanes, effort, point, error));
    for (int i = 0; i < lanes; i++)
        s->sweep->timings += s->lane[i].rounds;
    if (s->anchor->readings == 0)
        cast_anchor(s, tokens, lanes, point);
    return arf_anchor_read(s->anchor, s->bench, error);
}

void arf_course_samples(const arf_course *s, int64_t tokens, int lanes, const arf_point *point,
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
                                 .clock_mhz = point->clocks.mhz,
                                 .rounds = lane->rounds,
                                 .us = lane->us};
        arf_throttle_text(point->clocks.throttle, sample[i].throttle, sizeof sample[i].throttle);
        if (lane->then != NULL)
            sample[i].then = *lane->then;
        if (lane->status != ARFUSE_OK) {
            memcpy(sample[i].reason, lane->reason, sizeof sample[i].reason);
            sample[i].calls = sample[i].rounds = 0;
        }
    }
}
