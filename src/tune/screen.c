/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Screening: hundreds of candidates a protocol, of which a few go on the ladder. A few token
 * counts, and successive halving at each (in thirds): everyone gets a round, the fastest third two
 * more, and so on, which costs three rounds a candidate in all. Votes of all token counts together
 * decide.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/course.h"
#include "tune/voice.h"

/* One timing of a screening round: shorter than on the ladder, since a fixed cost that all of them
 * share changes no order. */
#define SCREEN_TIMING_US 600.0
/* Far from the ladder's rounds, so that no noise is shared. */
#define FIRST_ROUND 100000
/* Room for a clause about each protocol. */
#define CUT_TEXT (ARF_PROTOCOLS * 64)

/* How thorough: on the host device, whose tunings differ little and whose large calls are slow,
 * two token counts and the best one of each. */
#define MOST_POINTS 4
static int points_of(const arf_bench *bench)
{
    return bench->set == ARF_SET_HOST ? 2 : MOST_POINTS;
}
static int keep_of(const arf_bench *bench)
{
    return bench->set == ARF_SET_HOST ? 1 : 2;
}

/* Token counts of the ladder that a protocol serves, spread evenly; those that tell most come
 * first, since time may run out: few tokens for LL, more for the others. */
static int screening_points(const arf_course *s, arf_protocol protocol, int64_t tokens[MOST_POINTS])
{
    static const double few[MOST_POINTS] = {0, 0.5, 1, 0.25};
    static const double many[MOST_POINTS] = {0.5, 1, 0.75, 0.25};
    const bool host = s->bench->set == ARF_SET_HOST;
    const double *at = host || protocol == ARF_LL ? few : many;
    const arf_tokens *ladder = &s->schedule->tokens;
    int served = 0, count = 0;
    for (int i = 0; i < s->field.count; i++)
        if (s->field.entrant[i].candidate->plan.protocol == protocol)
            for (int t = 0; t < ladder->count; t++)
                if (arf_field_races(&s->field, i, ladder->value[t]) && t >= served)
                    served = t + 1;
    for (int i = 0; i < points_of(s->bench) && served > 0; i++) {
        const int64_t value = ladder->value[(int)round(at[i] * (served - 1))];
        bool known = false;
        for (int j = 0; j < count; j++)
            known |= tokens[j] == value;
        if (!known)
            tokens[count++] = value;
    }
    return count;
}

/* The medians of the lanes by entrant; NaN for those on no lane. */
static void medians(const arf_course *s, int lanes, double *us)
{
    for (int i = 0; i < s->field.count; i++)
        us[i] = NAN;
    for (int i = 0; i < lanes; i++)
        if (s->lane[i].status == ARFUSE_OK && s->lane[i].rounds > 0)
            us[s->who[i]] = arf_median(s->lane[i].us, s->lane[i].rounds);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Closes the ranks of the fastest third, in the order of the field. `sorted` is scratch for as many
 * numbers as there are lanes. Returns how many stay. */
static int keep_fastest(arf_course *s, int lanes, const double *us, double *sorted)
{
    int timed = 0, kept = 0;
    for (int i = 0; i < lanes; i++)
        if (isfinite(us[s->who[i]]))
            sorted[timed++] = us[s->who[i]];
    if (timed == 0)
        return 0;
    qsort(sorted, (size_t)timed, sizeof *sorted, ascending);
    const int third = (lanes + 2) / 3, room = third < timed ? third : timed;
    for (int i = 0; i < lanes && kept < room; i++) {
        if (!(us[s->who[i]] <= sorted[room - 1]))
            continue;
        s->lane[kept].plan = s->lane[i].plan;
        s->lane[kept].then = s->lane[i].then;
        s->who[kept++] = s->who[i];
    }
    return kept;
}

/*
 * Successive halving at one token count; the medians of its last complete turn give the votes. How
 * often it halves depends on the number of lanes alone. *cut: the deadline came before the end.
 */
static arfuse_status halve(arf_course *s, arf_protocol protocol, int64_t tokens, double deadline,
                           bool *cut, arf_error *error)
{
    const size_t room = (size_t)s->field.count;
    double *us = malloc(2 * room * sizeof *us), *turn = us + room;
    if (us == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d candidates", s->field.count);
    medians(s, 0, us);
    arfuse_status status = ARFUSE_OK;
    int lanes = arf_course_line_up(s, tokens, protocol);
    int64_t first_round = FIRST_ROUND;
    for (int rounds = 1; lanes > 0; rounds *= 2) {
        const arf_effort effort = {.least_rounds = rounds,
                                   .most_rounds = rounds,
                                   .noise_aim = s->bench->tuner->options->noise_aim,
                                   .timing_us = SCREEN_TIMING_US,
                                   .seconds = INFINITY,
                                   .deadline = deadline,
                                   .first_round = first_round,
                                   .drop_lost = true};
        arf_point point;
        status = arf_course_measure(s, tokens, lanes, &effort, &point, error);
        if (status != ARFUSE_OK)
            break;
        first_round += rounds + 1;
        arf_course_note_failures(s, tokens, lanes);
        *cut |= point.out_of_time;
        medians(s, lanes, turn);
        /* A turn that was cut has timed some and not others; but a first one is better than none.
         */
        if (!point.out_of_time || rounds == 1)
            memcpy(us, turn, room * sizeof *us);
        if (lanes <= 2 * keep_of(s->bench) || point.out_of_time)
            break;
        lanes = keep_fastest(s, lanes, us, turn);
    }
    if (status == ARFUSE_OK)
        arf_field_vote(&s->field, protocol, us, keep_of(s->bench));
    free(us);
    return status;
}

static int count_in(const arf_course *s, arf_protocol protocol)
{
    int in = 0;
    for (int i = 0; i < s->field.count; i++)
        in += s->field.entrant[i].candidate->plan.protocol == protocol &&
              s->field.entrant[i].standing == ARF_STANDING_IN;
    return in;
}

/* The time that is left is shared evenly by what is still to be screened. What it was too short for
 * is added to `cut_short`. */
static arfuse_status screen_protocol(arf_course *s, arf_protocol protocol, double deadline,
                                     char cut_short[CUT_TEXT], arf_error *error)
{
    int64_t tokens[MOST_POINTS];
    const int in = count_in(s, protocol);
    if (in <= keep_of(s->bench))
        return ARFUSE_OK;
    const int points = screening_points(s, protocol, tokens);
    int cuts = 0;
    for (int i = 0; i < points; i++) {
        double left;
        bool cut = false;
        ARF_TRY(arf_course_left(s, deadline, &left, error));
        const int to_do = points * (ARF_PROTOCOLS - (int)protocol) - i;
        ARF_TRY(halve(s, protocol, tokens[i], deadline - left + left / to_do, &cut, error));
        cuts += cut;
    }
    arf_field_close(&s->field, protocol, keep_of(s->bench));
    const char *pattern = arf_pattern_name(s->field.pattern), *name = arf_protocol_name(protocol);
    const size_t used = strlen(cut_short);
    if (cuts > 0)
        snprintf(cut_short + used, CUT_TEXT - used, "%s%d of %s at %d of %d token counts",
                 used > 0 ? ", " : "", in, name, cuts, points);
    arf_voice_detail("%s %s: %d of %d candidates go on the ladder", pattern, name,
                     count_in(s, protocol), in);
    return ARFUSE_OK;
}

arfuse_status arf_screen(arf_course *s, double deadline, arf_error *error)
{
    char cut_short[CUT_TEXT] = "";
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
        ARF_TRY(screen_protocol(s, (arf_protocol)protocol, deadline, cut_short, error));
    if (cut_short[0] != '\0')
        arf_voice_warn("%s, H %d: the budget cut the screening of candidates short: %s; a larger "
                       "--budget explores them",
                       arf_pattern_name(s->field.pattern), s->schedule->problem.shape.hidden_size,
                       cut_short);
    return ARFUSE_OK;
}
