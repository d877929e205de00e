/* SPDX-License-Identifier: Apache-2.0 */
/* What a tune would do, on stdout, from the same schedule that it would follow. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rules/knobs.h"
#include "rules/sizing.h"
#include "tune/bench.h"
#include "tune/job.h"
#include "tune/schedule.h"
#include "tune/share.h"
#include "tune/store.h"
#include "tune/voice.h"

static void print_candidate(const arf_schedule *s, arf_pattern pattern, const arf_candidate *c)
{
    static const char *const origin[] = {"default", "seed", "neighbour"};
    const int64_t last = s->tokens.value[s->tokens.count - 1];
    const int64_t most = c->limit < last ? c->limit : last;
    char facts[64], tuning[512];
    arf_plan_facts(&s->problem, pattern, &c->plan, facts, sizeof facts);
    arf_tuning_text(arf_knobs(s->problem.set, c->plan.protocol, pattern), &c->plan.tuning, tuning,
                    sizeof tuning);
    const bool fixed = c->plan.numerics == ARF_FIXED;
    printf("candidate %s %s%s%s%s%s%s%s (%s, up to %" PRId64 " token%s)\n",
           arf_protocol_name(c->plan.protocol), arf_pattern_name(pattern), facts[0] ? " " : "",
           facts, fixed ? "" : " numerics=", fixed ? "" : arf_numerics_name(c->plan.numerics),
           tuning[0] ? " " : "", tuning, origin[c->origin], most, ARF_PLURAL(most));
}

/* HT's one-token splits that the rules forbid for this shape: consumer threads x packs a thread. */
static void print_refused_splits(const arf_schedule *s, arf_pattern pattern)
{
    const arf_knob_table *knobs = arf_knobs(s->problem.set, ARF_HT, pattern);
    const int threads = arf_knob_index(knobs, "consumer_threads");
    const int vectors = arf_knob_index(knobs, "vectors_per_thread");
    const int packs = s->problem.shape.hidden_size / 8;
    if (threads < 0 || vectors < 0 || s->refused[pattern][ARF_HT][0] != '\0')
        return;
    for (const int32_t *step = knobs->knob[threads].ladder; step != NULL && *step >= 0; step++) {
        arf_plan plan = {.protocol = ARF_HT, .tuning = arf_tuning_fallback(knobs)};
        char reason[ARF_REASON_TEXT];
        plan.tuning.value[threads] = *step;
        plan.tuning.value[vectors] = (packs + *step - 1) / *step;
        if (!arf_legal(&s->problem, pattern, &plan, reason))
            printf("refused ht %s %dx%d: %s\n", arf_pattern_name(pattern), *step,
                   plan.tuning.value[vectors], reason);
    }
}

/* BT's owners of slices of every token, where the ranks do not cut a token evenly. */
static void print_refused_slices(const arf_schedule *s, arf_pattern pattern)
{
    const int owner = arf_knob_index(arf_knobs(s->problem.set, ARF_BT, pattern), "owner");
    arf_plan plan = arf_least_plan(s->problem.set, pattern, ARF_BT);
    char reason[ARF_REASON_TEXT];
    if (owner < 0 || s->refused[pattern][ARF_BT][0] != '\0')
        return;
    plan.tuning.value[owner] = 1;
    if (!arf_legal(&s->problem, pattern, &plan, reason))
        printf("refused bt %s slices: %s\n", arf_pattern_name(pattern), reason);
}

static void print_race(const arf_schedule *s, arf_pattern pattern)
{
    for (int i = 0; i < s->race[pattern].count; i++)
        print_candidate(s, pattern, &s->race[pattern].candidate[i]);
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        if (s->refused[pattern][p][0] != '\0')
            printf("refused %s %s: %s\n", arf_protocol_name((arf_protocol)p),
                   arf_pattern_name(pattern), s->refused[pattern][p]);
    if (arf_schedule_lack(s) != NULL && s->refused[pattern][ARF_UNFUSED][0] == '\0')
        printf("refused unfused %s numerics=library: %s\n", arf_pattern_name(pattern),
               arf_schedule_lack(s));
    print_refused_slices(s, pattern);
    print_refused_splits(s, pattern);
}

static void print_points(const arf_schedule *s)
{
    printf("points");
    for (int i = 0; i < s->tokens.count; i++)
        printf("%s%" PRId64, i == 0 ? " " : ",", s->tokens.value[i]);
    printf(" tokens, %d in all\n", arf_schedule_points(s));
}

/* What the buffers come to on this machine, as the run itself would find out: what does not fit is
 * halved until it does, with a warning. A dry run takes no memory, and leaves GPUs alone. */
static arfuse_status print_memory(const arf_tuner *tuner, const arf_schedule *s, arf_error *error)
{
    const arf_link link = tuner->key.link;
    const bool tried = link == ARF_LINK_SHM || link == ARF_LINK_MODEL;
    int64_t sum = 0, had[ARF_PROTOCOLS];
    fflush(stdout); /* warnings stand where they belong */
    memcpy(had, s->capacity, sizeof had);
    if (tried)
        ARF_TRY(arf_bench_capacities(tuner, s, had, error));
    for (int i = 0; i < ARF_PROTOCOLS; i++) {
        const arf_protocol p = (arf_protocol)i;
        const int64_t capacity = had[p];
        int64_t bytes = s->bytes[p];
        if (s->capacity[p] == 0)
            continue;
        if (capacity == 0) {
            printf("memory %s refused: not even one token's buffers can be had\n",
                   arf_protocol_name(p));
            continue;
        }
        if (capacity < s->capacity[p])
            ARF_TRY(arf_mailbox_bytes(&s->problem.shape, p, capacity, &bytes, error));
        sum += bytes;
        printf("memory %s %" PRId64 " bytes a rank for %" PRId64 " token%s", arf_protocol_name(p),
               bytes, capacity, ARF_PLURAL(capacity));
        if (capacity < s->capacity[p])
            printf(", curtailed from %" PRId64, s->capacity[p]);
        printf("\n");
    }
    printf("memory all %" PRId64 " bytes a rank%s\n", sum,
           tried ? "" : " (not tried here; --probe tries it)");
    return ARFUSE_OK;
}

/*
 * From the schedule: each candidate is verified and screened, a few of each protocol are timed at
 * each point that they serve, and refining adds about half as many points. A timing lasts two
 * milliseconds, one of screening 0.6; rounds are between seven and some fifty. Compiling and calls
 * that are longer than a timing are not in it.
 */
static double guess_seconds(const arf_schedule *s)
{
    const double timing = 2e-3, rounds = 20, refine = 1.5, keep = 2;
    const double verify = 4e-3, screen = 4 * 3 * 0.6e-3;
    double seconds = 0;
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        const arf_race *race = &s->race[pattern];
        seconds += race->count * (verify + screen);
        for (int t = 0; t < s->tokens.count; t++) {
            double lanes[ARF_PROTOCOLS] = {0};
            for (int i = 0; i < race->count; i++)
                if (race->candidate[i].limit >= s->tokens.value[t])
                    lanes[race->candidate[i].plan.protocol]++;
            for (int p = 0; p < ARF_PROTOCOLS; p++)
                seconds += refine * rounds * timing * (lanes[p] < keep ? lanes[p] : keep);
        }
    }
    return seconds;
}

/* The budget is shared by the shapes; it alone is certain. */
static void print_time(const arf_schedule *s, double budget, int shapes)
{
    const double own = budget / shapes, guess = guess_seconds(s);
    printf("time about %.2g s, at most %g s (the budget%s)", guess < own ? guess : own, own,
           shapes > 1 ? "'s share of this shape" : "");
    if (guess < own)
        printf("; longer where times are noisy or kernels must be compiled\n");
    else
        printf(": its limit, since all that is listed would take about %.2g s\n", guess);
}

static void print_shape(const arf_shape *shape, arf_set set)
{
    printf("shape tp_size %d, hidden_size %d, top_k %d, bf16%s%s%s, kernel set %s\n",
           shape->tp_size, shape->hidden_size, shape->top_k,
           shape->rms_norm == ARF_ON ? ", rms_norm" : "",
           shape->residual == ARF_ON ? ", residual" : "",
           shape->shared_expert == ARF_ON && shape->top_k > 0 ? ", shared_expert" : "",
           arf_set_name(set));
}

static arfuse_status dry_shape(const arf_tuner *tuner, const arf_shape *shape, arf_error *error)
{
    const arf_problem problem = arf_device_problem(tuner->device, shape);
    arf_tokens tokens = tuner->options->tokens;
    if (tokens.count == 0)
        arf_schedule_ladder(tuner->key.link, &tokens);
    arf_schedule *s = NULL;
    arfuse_status places = ARFUSE_OK;
    if (tuner->group->rank == 0) /* who writes, in a run */
        places = arf_store_judge(tuner, shape, problem.set, error);
    ARF_TRY(arf_first_says(tuner, places, error));
    ARF_TRY(arf_schedule_make(&problem, &tokens, tuner->options, &s, error));
    char device[160], placement[256];
    arf_tuner_device_text(&tuner->key, device, sizeof device);
    arf_placement_text(&tuner->placement, placement, sizeof placement);
    print_shape(shape, problem.set);
    printf("placement %s, device %s\n", placement, device);
    for (int p = 0; p < ARF_PATTERNS; p++)
        if (s->pattern[p])
            print_race(s, (arf_pattern)p);
    print_points(s);
    const arfuse_status status = print_memory(tuner, s, error);
    if (status == ARFUSE_OK)
        print_time(s, tuner->budget_seconds, arf_shape_count(tuner->options));
    arf_schedule_free(s);
    return status;
}

/* All ranks take the same way, and one speaks. */
static arfuse_status hush(const arf_tuner *tuner, arf_error *error)
{
    arfuse_status status = ARFUSE_OK;
    if (tuner->group->rank != 0 && freopen("/dev/null", "w", stdout) == NULL)
        status = arf_fail(error, ARFUSE_FAILURE, "cannot open /dev/null: %s", strerror(errno));
    return arf_team_vote(&tuner->team, status, error);
}

static arfuse_status describe(const arf_tuner *tuner, arf_error *error)
{
    const arf_tune_options *options = tuner->options;
    arf_weights weights = {0};
    ARF_TRY(hush(tuner, error));
    arfuse_status status = arf_share_weights(tuner, &weights, error);
    arf_weights_free(&weights);
    for (int i = 0; i < arf_shape_count(options) && status == ARFUSE_OK; i++) {
        const arf_shape shape = arf_shape_at(options, tuner->team.tp_size, i);
        status = dry_shape(tuner, &shape, error);
    }
    if (status == ARFUSE_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = arf_fail(error, ARFUSE_FAILURE, "stdout does not take the list");
    return arf_team_vote(&tuner->team, status, error);
}

arfuse_status arf_dry_run(const arf_tune_options *options, arf_group *group, arf_error *error)
{
    arf_tuner tuner;
    ARF_TRY(arf_tuner_open(&tuner, options, group, error));
    arfuse_status status = describe(&tuner, error);
    arf_tuner_close(&tuner);
    return status;
}
