/* SPDX-License-Identifier: Apache-2.0 */
/* Samples as a value: a growing list with one entry a (pattern, tokens, plan). */
#include "profile/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

arf_samples *arf_samples_new(const arf_samples_header *header)
{
    arf_samples *samples = calloc(1, sizeof *samples);
    if (samples != NULL)
        samples->header = *header;
    return samples;
}

void arf_samples_free(arf_samples *samples)
{
    if (samples == NULL)
        return;
    for (int i = 0; i < samples->count; i++)
        free(samples->sample[i].us);
    free(samples->sample);
    free(samples);
}

static arf_sample *find(const arf_samples *samples, arf_pattern pattern, int64_t tokens,
                        const arf_plan *plan)
{
    for (int i = 0; i < samples->count; i++) {
        arf_sample *sample = &samples->sample[i];
        if (sample->tokens == tokens && sample->pattern == pattern &&
            arf_plan_equal(samples->header.set, pattern, &sample->plan, plan))
            return sample;
    }
    return NULL;
}

const arf_sample *arf_samples_find(const arf_samples *samples, arf_pattern pattern, int64_t tokens,
                                   const arf_plan *plan)
{
    return find(samples, pattern, tokens, plan);
}

double arf_sample_round(double us)
{
    return nearbyint(us * 1e4) / 1e4;
}

arfuse_status arf_samples_add(arf_samples *samples, const arf_sample *sample, arf_error *error)
{
    double *us = NULL;
    if (sample->rounds > 0) {
        us = malloc((size_t)sample->rounds * sizeof *us);
        if (us == NULL)
            return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d rounds", sample->rounds);
        for (int i = 0; i < sample->rounds; i++)
            us[i] = arf_sample_round(sample->us[i]);
    }
    arf_sample *place = find(samples, sample->pattern, sample->tokens, &sample->plan);
    if (place == NULL && samples->count == samples->room) {
        int room = samples->room == 0 ? 64 : 2 * samples->room;
        arf_sample *grown = realloc(samples->sample, (size_t)room * sizeof *grown);
        if (grown == NULL) {
            free(us);
            return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d samples", room);
        }
        samples->sample = grown;
        samples->room = room;
    }
    if (place == NULL)
        place = &samples->sample[samples->count++];
    else
        free(place->us);
    *place = *sample;
    place->us = us;
    return ARFUSE_OK;
}

void arf_sample_join_clocks(arf_sample *sample, const arf_sample *other)
{
    char words[ARF_NAME_TEXT], *rest = NULL;
    if (sample->clock_mhz == 0 || (other->clock_mhz != 0 && other->clock_mhz < sample->clock_mhz))
        sample->clock_mhz = other->clock_mhz; /* 0: not known */
    memcpy(words, other->throttle, sizeof words);
    for (char *word = strtok_r(words, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
        const size_t used = strlen(sample->throttle);
        if (strstr(sample->throttle, word) == NULL && used + strlen(word) + 3 <= ARF_NAME_TEXT)
            snprintf(sample->throttle + used, ARF_NAME_TEXT - used, "%s%s", used > 0 ? ", " : "",
                     word);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double arf_sample_median(const arf_sample *sample)
{
    double sorted[ARF_MAX_ROUNDS];
    int count = sample->rounds;
    if (sample->outcome != ARF_SAMPLE_TIMED || count < 1 || count > ARF_MAX_ROUNDS)
        return NAN;
    memcpy(sorted, sample->us, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}
