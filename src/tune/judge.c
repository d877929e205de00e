/* SPDX-License-Identifier: Apache-2.0 */
/* Judging: the routes at token counts that no fit has seen. */
#include <stdlib.h>

#include "tune/course.h"
#include "tune/share.h"

/* Token counts, of each pattern, at which the routes are judged; and the rounds they get, of which
 * one half chooses the best and the other judges (fit/fit.h). */
#define HELD_OUT 6
#define HELD_OUT_ROUNDS 16

/* One held-out point into `held_out`; *reached as in visit. */
static arfuse_status visit_held_out(arf_course *s, int64_t tokens, double seconds,
                                    arf_samples *held_out, bool *reached, arf_error *error)
{
    const int lanes =
        arf_course_leave_lost(s, tokens, arf_course_line_up(s, tokens, ARF_PROTOCOLS));
    const arf_effort effort = {.least_rounds = HELD_OUT_ROUNDS,
                               .most_rounds = ARF_MOST_ROUNDS,
                               .noise_aim = s->bench->tuner->options->noise_aim,
                               .seconds = seconds,
                               .deadline = s->deadline,
                               .first_round = 0,
                               .drop_lost = true};
    arf_point point;
    ARF_TRY(arf_course_measure(s, tokens, lanes, &effort, &point, error));
    *reached = !point.out_of_time;
    arf_sample *sample = calloc((size_t)lanes + 1, sizeof *sample);
    if (sample == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d samples", lanes);
    arf_course_samples(s, tokens, lanes, &point, sample);
    arfuse_status status = ARFUSE_OK;
    for (int i = 0; i < lanes && *reached && status == ARFUSE_OK; i++)
        status = arf_samples_add(held_out, &sample[i], error);
    free(sample);
    return status;
}

/* What the routes lose at token counts that no fit has seen. Such samples are not saved: they
 * would be seen by the next fit. */
arfuse_status arf_judge(arf_course *s, arf_error *error)
{
    const arf_pattern pattern = s->field.pattern;
    arf_regret *regret = &s->sweep->regret[pattern];
    arf_fit_result result;
    int64_t tokens[HELD_OUT];
    bool routes;
    arfuse_status status = arf_fit(s->store->samples, pattern, s->fit, &result, error);
    ARF_TRY(arf_share_fit(s->bench->tuner, status, &routes, error));
    if (!routes)
        return ARFUSE_OK;
    const int count =
        arf_holdout_tokens(s->store->samples, pattern, s->fit->seed, tokens, HELD_OUT);
    arf_samples *held_out = arf_samples_new(&s->store->samples->header);
    if (held_out == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for held-out samples");
    bool reached = true;
    for (int i = 0; i < count && reached && status == ARFUSE_OK; i++) {
        double left;
        status = arf_course_left(s, s->deadline, &left, error);
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
