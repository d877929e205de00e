/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Screening: hundreds of candidates a protocol, of which a few go on the ladder. A few token
 * counts, and successive halving at each (in thirds): everyone gets a round, the fastest third two
 * more, and so on, which costs three rounds a candidate in all. Votes of all token counts together
 * decide.
 *
 * The token counts are those at which the protocol may win. Its first guesses tell, a round of each
 * at every token count of the ladder: on one H200 with 8 ranks BT finalize, which serves up to
 * 2048, won between 6 and 25 tokens, and screened at 64, 256 and 2048 nothing that is good there is
 * kept.
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
#define MOST_POINTS 8
static int points_of(const arf_bench *bench)
{
    return bench->set == ARF_SET_HOST ? 2 : MOST_POINTS;
}
static int keep_of(const arf_bench *bench)
{
    return bench->set == ARF_SET_HOST ? 1 : 2;
}

/* ---- where ------------------------------------------------------------------------------------
 */

/* A first guess may be this much slower than the best tuning of its protocol will be, against
 * others: about what screening gains. A protocol that is nowhere so close is screened where it is
 * closest. */
#define CLOSE 1.25
/* One round of each first guess; far from the rounds of the screening. */
#define SCOUT_ROUND 90000

/* By protocol, the fastest first guess at a token count over that of all; NaN where nobody ran. */
static arfuse_status scout_point(arf_course *s, int64_t tokens, double deadline,
                                 double ratio[ARF_PROTOCOLS], arf_error *error)
{
    const arf_effort effort = {.least_rounds = 1,
                               .most_rounds = 1,
                               .noise_aim = 1,
                               .timing_us = SCREEN_TIMING_US,
                               .seconds = INFINITY,
                               .deadline = deadline,
                               .first_round = SCOUT_ROUND};
    double best = INFINITY;
    arf_point point;
    int lanes = 0;
    const int all = arf_course_line_up(s, tokens, ARF_PROTOCOLS);
    for (int i = 0; i < all; i++)
        if (s->field.entrant[s->who[i]].candidate->always)
            arf_course_move(s, i, lanes++);
    ARF_TRY(arf_course_measure(s, tokens, lanes, &effort, &point, error));
    arf_course_note_failures(s, tokens, lanes);
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        ratio[p] = NAN;
    for (int i = 0; i < lanes; i++) {
        if (s->lane[i].status != ARFUSE_OK || s->lane[i].rounds == 0)
            continue;
        double *own = &ratio[s->lane[i].plan->protocol];
        *own = fmin(*own, s->lane[i].us[0]);
        best = fmin(best, s->lane[i].us[0]);
    }
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        ratio[p] /= best;
    return ARFUSE_OK;
}

/*
 * The ladder's token counts at which each protocol may win: all that it serves where no time is
 * left to find out, and the lower half of those on the host device, where large calls are slow.
 */
static arfuse_status scout(arf_course *s, double deadline, arf_tokens ground[ARF_PROTOCOLS],
                           arf_error *error)
{
    const arf_tokens *ladder = &s->schedule->tokens;
    const bool host = s->bench->set == ARF_SET_HOST;
    double ratio[ARF_MAX_POINTS][ARF_PROTOCOLS], least[ARF_PROTOCOLS], left;
    bool known = !host;
    for (int t = 0; t < ladder->count && known; t++) {
        ARF_TRY(scout_point(s, ladder->value[t], deadline, ratio[t], error));
        ARF_TRY(arf_course_left(s, deadline, &left, error));
        known = left > 0;
    }
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        least[p] = INFINITY;
        for (int t = 0; t < ladder->count && known; t++)
            least[p] = fmin(least[p], ratio[t][p]);
    }
    for (int t = 0; t < ladder->count; t++) {
        bool served[ARF_PROTOCOLS] = {false};
        for (int i = 0; i < s->field.count; i++)
            served[s->field.entrant[i].candidate->plan.protocol] |=
                arf_field_races(&s->field, i, ladder->value[t]);
        for (int p = 0; p < ARF_PROTOCOLS; p++)
            if (served[p] && !(known && ratio[t][p] > fmax(CLOSE, least[p])))
                arf_tokens_add(&ground[p], ladder->value[t]);
    }
    for (int p = 0; p < ARF_PROTOCOLS && host; p++)
        ground[p].count = (ground[p].count + 1) / 2;
    return ARFUSE_OK;
}

/* Some of those, the outer ones first. Returns how many. */
static int screening_points(const arf_course *s, const arf_tokens *ground,
                            int64_t tokens[MOST_POINTS])
{
    int order[ARF_MAX_POINTS], count = 0;
    arf_tokens_coarse_first(ground, order);
    for (; count < points_of(s->bench) && count < ground->count; count++)
        tokens[count] = ground->value[order[count]];
    return count;
}

/* ---- who --------------------------------------------------------------------------------------
 */

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
        arf_course_move(s, i, kept++);
    }
    return kept;
}

/* Who was among the fastest in the first turns of one protocol: by entrant, at each token count. */
typedef struct turns {
    int count;
    int64_t tokens[MOST_POINTS];
    bool *fast[MOST_POINTS];
} turns;

/* Between two token counts only those start that were fast at one of the nearest on both sides. */
static bool may_be_first(const turns *seen, int entrant, int64_t tokens)
{
    int low = -1, high = -1;
    for (int i = 0; i < seen->count; i++) {
        if (seen->tokens[i] < tokens && (low < 0 || seen->tokens[i] > seen->tokens[low]))
            low = i;
        if (seen->tokens[i] > tokens && (high < 0 || seen->tokens[i] < seen->tokens[high]))
            high = i;
    }
    return low < 0 || high < 0 || seen->fast[low][entrant] || seen->fast[high][entrant];
}

static int line_up(arf_course *s, arf_protocol protocol, int64_t tokens, const turns *seen)
{
    const int all = arf_course_line_up(s, tokens, protocol);
    int lanes = 0;
    for (int i = 0; i < all; i++)
        if (may_be_first(seen, s->who[i], tokens))
            arf_course_move(s, i, lanes++);
    return lanes;
}

/* After a whole first turn: `kept` lanes are left of `all`. */
static void note_turn(const arf_course *s, turns *seen, int64_t tokens, int kept)
{
    bool *fast = seen->fast[seen->count];
    for (int i = 0; i < s->field.count; i++)
        fast[i] = false;
    for (int i = 0; i < kept; i++)
        fast[s->who[i]] = true;
    seen->tokens[seen->count++] = tokens;
}

/*
 * Successive halving at one token count; the medians of its last complete turn give the votes. How
 * often it halves depends on the number of lanes alone. *cut: the deadline came before the end.
 */
static arfuse_status halve(arf_course *s, arf_protocol protocol, int64_t tokens, turns *seen,
                           double deadline, bool *cut, arf_error *error)
{
    const size_t room = (size_t)s->field.count;
    double *us = malloc(2 * room * sizeof *us), *turn = us + room;
    if (us == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d candidates", s->field.count);
    medians(s, 0, us);
    arfuse_status status = ARFUSE_OK;
    int lanes = line_up(s, protocol, tokens, seen);
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
        if (rounds == 1)
            note_turn(s, seen, tokens, lanes);
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

/* Shares of the time that the first `points` of a protocol's token counts have: the two outer ones
 * try everyone, the others a third or so. */
#define OUTER_SHARE 3
static int shares_of(int points)
{
    return points < 2 ? OUTER_SHARE * points : 2 * OUTER_SHARE + points - 2;
}

/* The time that is left is shared by what is still to be screened; `later` shares are those of
 * other protocols. What it was too short for is added to `cut_short`. */
static arfuse_status screen_protocol(arf_course *s, arf_protocol protocol,
                                     const int64_t tokens[MOST_POINTS], int points, int later,
                                     double deadline, char cut_short[CUT_TEXT], arf_error *error)
{
    const int in = count_in(s, protocol);
    if (in <= keep_of(s->bench))
        return ARFUSE_OK;
    bool *fast = malloc((size_t)MOST_POINTS * (size_t)s->field.count * sizeof *fast);
    if (fast == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d candidates", s->field.count);
    turns seen = {0};
    for (int i = 0; i < MOST_POINTS; i++)
        seen.fast[i] = fast + (size_t)i * (size_t)s->field.count;
    int cuts = 0;
    arfuse_status status = ARFUSE_OK;
    for (int i = 0; i < points && status == ARFUSE_OK; i++) {
        double left;
        bool cut = false;
        status = arf_course_left(s, deadline, &left, error);
        const double share = shares_of(i + 1) - shares_of(i);
        const double to_do = shares_of(points) - shares_of(i) + later;
        if (status == ARFUSE_OK)
            status = halve(s, protocol, tokens[i], &seen, deadline - left + left * share / to_do,
                           &cut, error);
        cuts += cut;
    }
    free(fast);
    if (status != ARFUSE_OK)
        return status;
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
    arf_tokens ground[ARF_PROTOCOLS] = {0};
    int64_t tokens[ARF_PROTOCOLS][MOST_POINTS];
    int points[ARF_PROTOCOLS], later = 0;
    ARF_TRY(scout(s, deadline, ground, error));
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        points[p] = screening_points(s, &ground[p], tokens[p]);
        later += shares_of(points[p]);
    }
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        later -= shares_of(points[p]);
        ARF_TRY(screen_protocol(s, (arf_protocol)p, tokens[p], points[p], later, deadline,
                                cut_short, error));
    }
    if (cut_short[0] != '\0')
        arf_voice_warn("%s, H %d: the budget cut the screening of candidates short: %s; a larger "
                       "--budget explores them",
                       arf_pattern_name(s->field.pattern), s->schedule->problem.shape.hidden_size,
                       cut_short);
    return ARFUSE_OK;
}
