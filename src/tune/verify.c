/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tune/measure.h"
#include "tune/voice.h"

/* A token, and more of them than there are ranks in most teams, no multiple of any. */
static const int64_t trial_tokens[] = {ARF_VERIFY_TOKENS, 1};

/* Enough to keep some threads busy, few enough that a deadline is seen in time; fewer at first. */
#define COMPILED_AT_ONCE 32
#define COMPILED_FIRST 8

static arfuse_status leave(arf_store *store, arf_field *field, int entrant, int64_t tokens,
                           arfuse_status cause, const char *why, arf_sweep *sweep, arf_error *error)
{
    arf_entrant *e = &field->entrant[entrant];
    const bool wrong = cause == ARFUSE_WRONG_RESULT;
    arf_sample sample = {.pattern = field->pattern,
                         .tokens = tokens,
                         .plan = e->candidate->plan,
                         .outcome = wrong ? ARF_SAMPLE_WRONG : ARF_SAMPLE_FAILED};
    char text[384];
    arf_plan_text(store->samples->header.set, field->pattern, &e->candidate->plan, text,
                  sizeof text);
    snprintf(sample.reason, sizeof sample.reason, "%.*s", (int)sizeof sample.reason - 1, why);
    e->standing = wrong ? ARF_STANDING_WRONG : ARF_STANDING_FAILED;
    sweep->wrong += wrong;
    sweep->failed += !wrong;
    arf_field_tell(field, &e->candidate->plan, "%s %s %s and is left out: %s",
                   arf_pattern_name(field->pattern), text,
                   wrong ? "gives wrong results" : "does not run", why);
    return arf_store_add(store, &sample, 1, error);
}

/* One entrant on all trials. *expired counts the waits of its protocol that expired in a row. */
static arfuse_status verify_one(arf_bench *bench, const arf_schedule *schedule, arf_store *store,
                                arf_field *field, int entrant, int *expired, arf_sweep *sweep,
                                arf_error *error)
{
    arf_entrant *e = &field->entrant[entrant];
    bool rounded = false;
    for (size_t t = 0; t < sizeof trial_tokens / sizeof *trial_tokens; t++) {
        int64_t tokens = trial_tokens[t];
        if (tokens > e->limit)
            tokens = e->limit;
        if (tokens > bench->most_tokens)
            tokens = bench->most_tokens;
        const arf_plan *then = e->candidate->plan.protocol == ARF_SEPARATE
                                   ? arf_field_then(store->samples, schedule, tokens)
                                   : NULL;
        if (e->candidate->plan.protocol == ARF_SEPARATE && then == NULL) {
            e->standing = ARF_STANDING_SCREENED; /* no allreduce route to end in */
            return ARFUSE_OK;
        }
        const arf_run run = {
            .pattern = field->pattern, .plan = &e->candidate->plan, .then = then, .tokens = tokens};
        rounded |= arf_run_numerics(&run) != ARF_FIXED;
        /* A device that computes nothing has one verdict, whatever the data. */
        const int kinds = bench->tuner->device->ops->verdict != NULL ? 1 : ARF_TRIAL_KINDS;
        for (int kind = 0; kind < kinds; kind++) {
            arf_error own = ARF_ERROR_INIT;
            bool fatal;
            arfuse_status status =
                arf_bench_verify(bench, &run, (arf_trial_kind)kind, &fatal, &own);
            if (fatal)
                return arf_fail(error, own.status, "%s", own.text);
            *expired = status == ARFUSE_TIMEOUT ? *expired + 1 : status == ARFUSE_OK ? 0 : *expired;
            if (status != ARFUSE_OK)
                return leave(store, field, entrant, tokens, status, own.text, sweep, error);
        }
    }
    sweep->verified++;
    sweep->rounded += rounded;
    return ARFUSE_OK;
}

/* The first of each protocol, then the second of each, and so on: a budget that is too short for
 * all shall not be spent on one protocol. The caller frees. */
static int *in_turn(const arf_field *field)
{
    int *order = malloc((size_t)(field->count + 1) * sizeof *order);
    for (int place = 0, turn = 0; order != NULL && place < field->count; turn++) {
        int seen[ARF_PROTOCOLS] = {0};
        for (int i = 0; i < field->count; i++)
            if (seen[field->entrant[i].candidate->plan.protocol]++ == turn)
                order[place++] = i;
    }
    return order;
}

/* What the next turns of the loop below will prepare, without those that time has run out for. */
static arfuse_status compile_next(arf_bench *bench, const arf_field *field, const int *order,
                                  int place, int batch, bool late, arf_error *error)
{
    const arf_plan *plan[COMPILED_AT_ONCE];
    int count = 0;
    for (int i = place; i < field->count && i < place + batch; i++) {
        const arf_entrant *e = &field->entrant[order[i]];
        if (e->standing == ARF_STANDING_IN && e->limit >= 1 && (!late || e->candidate->always))
            plan[count++] = &e->candidate->plan;
    }
    return arf_bench_precompile(bench, field->pattern, plan, count, error);
}

arfuse_status arf_verify(arf_bench *bench, const arf_schedule *schedule, arf_store *store,
                         arf_field *field, double deadline, arf_sweep *sweep, arf_error *error)
{
    int compiled = 0, batch = COMPILED_FIRST;
    int skipped = 0, expired[ARF_PROTOCOLS] = {0};
    int *order = in_turn(field);
    arfuse_status status = ARFUSE_OK;
    if (order == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d candidates", field->count);
    for (int place = 0; place < field->count && status == ARFUSE_OK; place++) {
        const int i = order[place];
        arf_entrant *e = &field->entrant[i];
        int *of_protocol = &expired[e->candidate->plan.protocol];
        double seconds = 0;
        if (place == compiled) {
            ARF_TRY_GOTO(status, arf_tuner_seconds(bench->tuner, &seconds, error), out);
            const bool late = seconds > deadline;
            ARF_TRY_GOTO(status, compile_next(bench, field, order, place, batch, late, error), out);
            compiled += batch;
            batch = batch * 2 < COMPILED_AT_ONCE ? batch * 2 : COMPILED_AT_ONCE;
        }
        if (e->standing != ARF_STANDING_IN || e->limit < 1)
            continue;
        ARF_TRY_GOTO(status, arf_tuner_seconds(bench->tuner, &seconds, error), out);
        /* Beyond the deadline neighbours are given up, never what always races. */
        if (seconds > deadline && !e->candidate->always) {
            e->standing = ARF_STANDING_SCREENED;
            skipped++;
            continue;
        }
        if (*of_protocol == ARF_HOPELESS) {
            char why[ARF_NOTE_TEXT];
            snprintf(why, sizeof why, "not tried: %d candidates of %s before it waited in vain",
                     *of_protocol, arf_protocol_name(e->candidate->plan.protocol));
            status = leave(store, field, i, 1, ARFUSE_TIMEOUT, why, sweep, error);
            continue;
        }
        status = verify_one(bench, schedule, store, field, i, of_protocol, sweep, error);
    }
out:
    free(order);
    if (skipped > 0)
        arf_voice_warn("%s: %d candidate%s unexplored; a larger --budget tries them",
                       arf_pattern_name(field->pattern), skipped,
                       skipped == 1 ? " stays" : "s stay");
    return status;
}
