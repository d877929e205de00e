/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/field.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tune/voice.h"

arfuse_status arf_field_make(const arf_schedule *schedule, const arf_bench *bench,
                             arf_pattern pattern, arf_field *field, arf_error *error)
{
    const arf_race *race = &schedule->race[pattern];
    *field = (arf_field){.pattern = pattern, .count = race->count};
    field->entrant = calloc((size_t)(race->count > 0 ? race->count : 1), sizeof *field->entrant);
    if (field->entrant == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d candidates", race->count);
    for (int i = 0; i < race->count; i++) {
        const arf_candidate *c = &race->candidate[i];
        const int64_t room = bench->spec.capacity[c->plan.protocol];
        field->entrant[i] =
            (arf_entrant){.candidate = c, .limit = c->limit < room ? c->limit : room};
    }
    return ARFUSE_OK;
}

void arf_field_free(arf_field *field)
{
    free(field->entrant);
    field->entrant = NULL;
    field->count = 0;
}

#define TELL_FIRST 3

void arf_field_tell(arf_field *field, const arf_plan *plan, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (field->told[plan->protocol]++ < TELL_FIRST)
        arf_voice_warn("%s", line);
    else
        arf_voice_detail("%s", line);
}

void arf_field_tell_rest(const arf_field *field)
{
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        if (field->told[p] > TELL_FIRST)
            arf_voice_warn("%s %s: the same with %d more candidates (--verbose names them)",
                           arf_pattern_name(field->pattern), arf_protocol_name((arf_protocol)p),
                           field->told[p] - TELL_FIRST);
}

bool arf_field_races(const arf_field *field, int entrant, int64_t tokens)
{
    const arf_entrant *e = &field->entrant[entrant];
    return e->standing == ARF_STANDING_IN && tokens <= e->limit;
}

const arf_plan *arf_field_then(const arf_samples *samples, const arf_schedule *schedule,
                               int64_t tokens)
{
    const arf_sample *best = NULL;
    double best_apart = INFINITY, best_us = INFINITY;
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *s = &samples->sample[i];
        if (s->pattern != ARF_ALLREDUCE || s->outcome != ARF_SAMPLE_TIMED ||
            tokens > schedule->capacity[s->plan.protocol] ||
            tokens > arf_sweep_limit(&schedule->problem, ARF_ALLREDUCE, s->plan.protocol))
            continue;
        const double apart = fabs(log((double)s->tokens / (double)tokens));
        const double us = arf_sample_median(s);
        if (apart < best_apart || (apart == best_apart && us < best_us)) {
            best = s;
            best_apart = apart;
            best_us = us;
        }
    }
    return best != NULL ? &best->plan : NULL;
}

void arf_field_vote(arf_field *field, arf_protocol protocol, const double *us, int keep)
{
    for (int i = 0; i < field->count; i++) {
        if (field->entrant[i].candidate->plan.protocol != protocol || !isfinite(us[i]))
            continue;
        int ahead = 0;
        for (int j = 0; j < field->count; j++)
            if (field->entrant[j].candidate->plan.protocol == protocol && isfinite(us[j]))
                ahead += us[j] < us[i] || (us[j] == us[i] && j < i);
        field->entrant[i].votes += ahead < keep;
    }
}

void arf_field_close(arf_field *field, arf_protocol protocol, int keep)
{
    int votes = 0;
    for (int i = 0; i < field->count; i++)
        if (field->entrant[i].candidate->plan.protocol == protocol)
            votes += field->entrant[i].votes;
    /* Without a screening the first guesses stand. */
    for (int i = 0; i < field->count && votes == 0; i++) {
        arf_entrant *e = &field->entrant[i];
        if (e->candidate->plan.protocol == protocol && e->standing == ARF_STANDING_IN && keep-- > 0)
            e->votes++;
    }
    for (int i = 0; i < field->count; i++) {
        arf_entrant *e = &field->entrant[i];
        if (e->candidate->plan.protocol == protocol && e->standing == ARF_STANDING_IN &&
            e->votes == 0 && !e->candidate->always)
            e->standing = ARF_STANDING_SCREENED;
    }
}
