/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/race.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/composition.h"
#include "tune/voice.h"

/* Candidates of a protocol that the full rounds of a ladder point are for. */
enum { KEEP = 2 };
/* A graph lasts about this long; half of a tune's, since nobody bisects bounds here. */
#define TIMING_US 1000.0
#define SCREEN_TIMING_US 300.0
/* Far from the other rounds, so that the model shares no noise. */
#define SCREEN_ROUND 100000
/* Of a point's time, what the calls themselves may take: each graph is made, and runs twice. */
#define CALLS_SHARE 0.4

enum { FINALIZE_FEW = 16 };

/* ---- points ------------------------------------------------------------------------------------
 */

/* False: the point is there already. */
static bool add_row(race *r, arf_pattern pattern, int64_t tokens, bool ladder)
{
    for (int i = 0; i < r->count; i++)
        if (r->row[i].pattern == pattern && r->row[i].tokens == tokens)
            return false;
    if (r->count < RACE_MOST_ROWS)
        r->row[r->count++] = (race_row){.pattern = pattern, .tokens = tokens, .ladder = ladder};
    return true;
}

static void add_bounds(race *r, arf_pattern pattern, int64_t most)
{
    const arf_routes *routes = &r->routed->routes[pattern];
    for (int i = 0; i < routes->count; i++)
        for (int next = 0; next < 2; next++)
            if (routes->route[i].max_tokens <= most - next)
                add_row(r, pattern, routes->route[i].max_tokens + next, false);
}

void race_points(race *r, const arf_tokens *ladder, const bool pattern[ARF_PATTERNS], int seeded,
                 uint64_t seed)
{
    int order[ARF_MAX_POINTS];
    int64_t mix[ARF_MAX_POINTS];
    const int64_t most = ladder->value[ladder->count - 1];
    arf_tokens_coarse_first(ladder, order);
    arf_tokens_mix(seed, most, mix, ARF_MAX_POINTS);
    for (int t = 0; t < ladder->count; t++)
        for (int p = 0; p < ARF_PATTERNS; p++)
            if (pattern[p])
                add_row(r, (arf_pattern)p, ladder->value[order[t]], true);
    for (int p = 0; p < ARF_PATTERNS; p++)
        if (pattern[p])
            add_bounds(r, (arf_pattern)p, most);
    for (int64_t tokens = 1; tokens <= FINALIZE_FEW && tokens <= most; tokens++)
        if (pattern[ARF_FINALIZE])
            add_row(r, ARF_FINALIZE, tokens, false);
    int left[ARF_PATTERNS] = {seeded, seeded};
    for (int t = 0; t < ARF_MAX_POINTS; t++)
        for (int p = 0; p < ARF_PATTERNS; p++)
            if (pattern[p] && left[p] > 0)
                left[p] -= add_row(r, (arf_pattern)p, mix[t], false);
}

/* ---- lanes -------------------------------------------------------------------------------------
 */

/* Room for every candidate of a pattern. */
enum { MOST_LANES = ARF_PROTOCOLS * ARF_MAX_CANDIDATES };

/* A plan that was compared with the reference. */
typedef struct verdict {
    arf_pattern pattern;
    arf_plan plan, then;
    bool sound;
} verdict;

enum { MOST_VERDICTS = 4096 };

typedef struct session {
    race *r;
    race_row *row;
    arf_lane *lane; /* [MOST_LANES] */
    int lanes;
    verdict *verdict; /* [MOST_VERDICTS] */
    int verdicts;
} session;

static bool has_room(const race *r, arf_pattern pattern, const arf_plan *plan, int64_t tokens)
{
    return tokens <= r->all->limit[pattern][plan->protocol] &&
           tokens <= r->bench->spec.capacity[plan->protocol];
}

/* What the routes run: as the runtime, unfused where no route serves. */
static bool routed_lane(const race *r, arf_pattern pattern, int64_t tokens, arf_lane *lane)
{
    const arf_plans *unfused = &r->all->of[pattern][ARF_UNFUSED];
    lane->then = NULL;
    if (arf_side_lane(r->routed, pattern, tokens, lane))
        return true;
    lane->plan = unfused->plan;
    lane->then = NULL;
    return unfused->count > 0;
}

static bool same_lane(const race *r, arf_pattern pattern, const arf_lane *a, const arf_lane *b)
{
    return arf_plan_equal(r->problem->set, pattern, a->plan, b->plan) &&
           (a->then == NULL) == (b->then == NULL) &&
           (a->then == NULL || arf_plan_equal(r->problem->set, ARF_ALLREDUCE, a->then, b->then));
}

/* Its place among the lanes. A separate finalize is followed by the allreduce route of as many
 * tokens, whichever routes it came from. */
static int add_lane(session *s, const arf_plan *plan)
{
    arf_lane lane = {.plan = plan}, behind;
    if (plan->protocol == ARF_SEPARATE) {
        if (!routed_lane(s->r, ARF_ALLREDUCE, s->row->tokens, &behind))
            return -1;
        lane.then = behind.plan;
    }
    for (int i = 0; i < s->lanes; i++)
        if (same_lane(s->r, s->row->pattern, &s->lane[i], &lane))
            return i;
    if (s->lanes == MOST_LANES)
        return -1;
    s->lane[s->lanes].plan = lane.plan;
    s->lane[s->lanes].then = lane.then;
    return s->lanes++;
}

/* ---- bits --------------------------------------------------------------------------------------
 */

/* Compares a lane with the reference, once for each plan of a run. */
static bool is_sound(session *s, const arf_lane *lane)
{
    const arf_pattern pattern = s->row->pattern;
    for (int i = 0; i < s->verdicts; i++) {
        const verdict *known = &s->verdict[i];
        const arf_lane as = {.plan = &known->plan,
                             .then = lane->then != NULL ? &known->then : NULL};
        if (known->pattern == pattern && same_lane(s->r, pattern, &as, lane))
            return known->sound;
    }
    arf_error error = ARF_ERROR_INIT;
    const int64_t most = s->r->bench->spec.capacity[lane->plan->protocol];
    const arfuse_status status = arf_sides_verify(
        s->r->bench, pattern, most < ARF_VERIFY_TOKENS ? most : ARF_VERIFY_TOKENS, lane, &error);
    if (status != ARFUSE_OK) {
        arf_voice_warn("left out: %s", error.text);
        s->r->wrong += status == ARFUSE_WRONG_RESULT;
        s->r->failed += status != ARFUSE_WRONG_RESULT;
    }
    if (s->verdicts < MOST_VERDICTS) {
        verdict *now = &s->verdict[s->verdicts++];
        *now = (verdict){.pattern = pattern, .plan = *lane->plan, .sound = status == ARFUSE_OK};
        if (lane->then != NULL)
            now->then = *lane->then;
    }
    return status == ARFUSE_OK;
}

static void drop_unsound(session *s)
{
    int kept = 0;
    for (int i = 0; i < s->lanes; i++)
        if (is_sound(s, &s->lane[i])) {
            s->lane[kept].plan = s->lane[i].plan;
            s->lane[kept++].then = s->lane[i].then;
        }
    s->lanes = kept;
}

/* ---- who is timed ------------------------------------------------------------------------------
 */

static double median_of(const arf_lane *lane)
{
    return lane->status == ARFUSE_OK && lane->rounds > 0 ? arf_median(lane->us, lane->rounds) : NAN;
}

/* Keeps the fastest of the lanes from `first` on. */
static arfuse_status screen(session *s, int first, arf_error *error)
{
    const int count = s->lanes - first;
    arf_point point;
    const arf_effort effort = {.least_rounds = 1,
                               .most_rounds = 1,
                               .timing_us = SCREEN_TIMING_US,
                               .seconds = INFINITY,
                               .deadline = s->r->deadline,
                               .first_round = SCREEN_ROUND};
    if (count <= KEEP)
        return ARFUSE_OK;
    ARF_TRY(arf_measure(s->r->bench, s->row->pattern, s->row->tokens, s->lane + first, count,
                        &effort, &point, error));
    arf_lane kept[KEEP];
    int keep = 0;
    while (keep < KEEP) {
        int best = -1;
        for (int i = first; i < s->lanes; i++)
            if (isfinite(median_of(&s->lane[i])) &&
                (best < 0 || median_of(&s->lane[i]) < median_of(&s->lane[best])))
                best = i;
        if (best < 0)
            break;
        kept[keep++] = s->lane[best];
        s->lane[best].rounds = 0;
    }
    for (int i = 0; i < keep; i++) {
        s->lane[first + i].plan = kept[i].plan;
        s->lane[first + i].then = kept[i].then;
    }
    s->lanes = first + keep;
    return ARFUSE_OK;
}

static arfuse_status line_up_ladder(session *s, arf_error *error)
{
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        const arf_plans *plans = &s->r->all->of[s->row->pattern][p];
        const int first = s->lanes;
        for (int i = 0; i < plans->count && s->r->wanted[p]; i++)
            if (has_room(s->r, s->row->pattern, &plans->plan[i], s->row->tokens))
                add_lane(s, &plans->plan[i]);
        ARF_TRY(screen(s, first, error));
    }
    return ARFUSE_OK;
}

/* The rivals that won at the ladder points on either side; the first of its kind before any did. */
static void line_up_rivals(session *s, arf_protocol protocol)
{
    const race *r = s->r;
    const race_row *below = NULL, *above = NULL;
    if (!r->wanted[protocol])
        return;
    for (int i = 0; i < r->count; i++) {
        const race_row *row = &r->row[i];
        if (!row->ladder || row->pattern != s->row->pattern || !row->best[protocol].timed)
            continue;
        if (row->tokens <= s->row->tokens && (below == NULL || row->tokens > below->tokens))
            below = row;
        if (row->tokens >= s->row->tokens && (above == NULL || row->tokens < above->tokens))
            above = row;
    }
    if (below != NULL)
        add_lane(s, &below->best[protocol].plan);
    if (above != NULL)
        add_lane(s, &above->best[protocol].plan);
    const arf_plans *plans = &r->all->of[s->row->pattern][protocol];
    if (below == NULL && above == NULL && plans->count > 0 &&
        has_room(r, s->row->pattern, plans->plan, s->row->tokens))
        add_lane(s, plans->plan);
}

/* ---- one point ---------------------------------------------------------------------------------
 */

static void note(const arf_lane *lane, race_time *time)
{
    *time = (race_time){.plan = *lane->plan, .us = median_of(lane), .rounds = lane->rounds};
    time->timed = isfinite(time->us);
    if (lane->then != NULL)
        time->then = *lane->then;
}

static void note_all(session *s, int routed)
{
    race_row *row = s->row;
    int best[ARF_PROTOCOLS];
    row->timed = true;
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        row->ratio[p] = (arf_ratio){NAN, NAN, NAN};
        best[p] = -1;
    }
    for (int i = 0; i < s->lanes; i++) {
        int *of = &best[s->lane[i].plan->protocol];
        const double us = median_of(&s->lane[i]);
        if (!isfinite(us)) {
            s->r->failed++;
            arf_voice_warn("%s %s of %" PRId64 " token%s did not run: %s",
                           arf_pattern_name(row->pattern),
                           arf_protocol_name(s->lane[i].plan->protocol), row->tokens,
                           ARF_PLURAL(row->tokens), s->lane[i].reason);
        } else if (*of < 0 || us < median_of(&s->lane[*of])) {
            *of = i;
        }
    }
    if (routed >= 0)
        note(&s->lane[routed], &row->routed);
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        if (best[p] < 0)
            continue;
        note(&s->lane[best[p]], &row->best[p]);
        if (best[p] == routed)
            row->ratio[p] = (arf_ratio){1, 1, 1};
        else if (routed >= 0)
            row->ratio[p] = arf_lane_ratio(&s->lane[routed], &s->lane[best[p]]);
    }
}

static int place_of(const session *s, const arf_lane *lane)
{
    for (int i = 0; i < s->lanes; i++)
        if (same_lane(s->r, s->row->pattern, &s->lane[i], lane))
            return i;
    return -1;
}

static arfuse_status time_row(session *s, double seconds, arf_error *error)
{
    arf_lane routed;
    arf_point point;
    s->lanes = 0;
    if (s->row->ladder) {
        ARF_TRY(line_up_ladder(s, error));
    } else {
        line_up_rivals(s, ARF_UNFUSED);
        if (s->row->pattern == ARF_FINALIZE)
            line_up_rivals(s, ARF_SEPARATE);
    }
    const bool has_route = routed_lane(s->r, s->row->pattern, s->row->tokens, &routed);
    if (has_route)
        add_lane(s, routed.plan);
    drop_unsound(s);
    const arf_effort effort = {.least_rounds = RACE_ROUNDS,
                               .most_rounds = RACE_ROUNDS,
                               .timing_us = TIMING_US,
                               .calls = s->r->calls,
                               .seconds = seconds * CALLS_SHARE,
                               .deadline = s->r->deadline};
    if (s->lanes == 0)
        return ARFUSE_OK;
    ARF_TRY(arf_measure(s->r->bench, s->row->pattern, s->row->tokens, s->lane, s->lanes, &effort,
                        &point, error));
    if (point.out_of_time)
        return ARFUSE_OK;
    s->row->calls = point.calls;
    note_all(s, has_route ? place_of(s, &routed) : -1);
    if (s->row->ladder && s->r->composed != NULL)
        return composition_time(s->r->composed, s->row, &effort, error);
    return ARFUSE_OK;
}

static void report(const race *r, int at, double left)
{
    const race_row *row = &r->row[at];
    char line[256] = "";
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        if (row->best[p].timed)
            snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s %.2f",
                     line[0] == '\0' ? "" : ", ", arf_protocol_name((arf_protocol)p),
                     row->best[p].us);
    arf_voice_note("[%d/%d] %s M=%" PRId64 ": %s%s; %.0f s left", at + 1, r->count,
                   arf_pattern_name(row->pattern), row->tokens,
                   line[0] == '\0' ? "nothing ran" : line, line[0] == '\0' ? "" : " us", left);
}

static arfuse_status precompile(const race *r, arf_error *error)
{
    const arf_plan **plan = malloc(MOST_LANES * sizeof *plan);
    arfuse_status status = ARFUSE_OK;
    if (plan == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the candidates");
    for (int p = 0; p < ARF_PATTERNS && status == ARFUSE_OK; p++) {
        int count = 0;
        for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
            for (int i = 0; i < r->all->of[p][protocol].count && r->wanted[protocol]; i++)
                plan[count++] = &r->all->of[p][protocol].plan[i];
        status = arf_bench_precompile(r->bench, (arf_pattern)p, plan, count, error);
    }
    free(plan);
    return status;
}

arfuse_status race_run(race *r, arf_error *error)
{
    session s = {.r = r,
                 .lane = malloc(MOST_LANES * sizeof *s.lane),
                 .verdict = malloc(MOST_VERDICTS * sizeof *s.verdict)};
    arfuse_status status = ARFUSE_OK;
    if (s.lane == NULL || s.verdict == NULL)
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for the lanes");
    status = arf_team_vote(&r->bench->tuner->team, status, error);
    if (status == ARFUSE_OK)
        status = precompile(r, error);
    for (int i = 0; i < r->count && status == ARFUSE_OK; i++) {
        double seconds = 0;
        status = arf_tuner_seconds(r->bench->tuner, &seconds, error);
        const double left = r->deadline - seconds;
        if (status != ARFUSE_OK || left <= 0)
            break;
        s.row = &r->row[i];
        /* Ladder points come first, have several times the candidates, and are the table. */
        status = time_row(&s, left / (r->count - i) * (s.row->ladder ? 4 : 1), error);
        if (status == ARFUSE_OK)
            report(r, i, left);
    }
    free(s.verdict);
    free(s.lane);
    return status;
}
