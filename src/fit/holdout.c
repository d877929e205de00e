/* SPDX-License-Identifier: Apache-2.0 */
/* How good routes are where nothing was fitted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"
#include "fit/fit.h"
#include "fit/stats.h"

static bool has_tokens(const arf_samples *samples, arf_pattern pattern, int64_t tokens)
{
    for (int i = 0; i < samples->count; i++)
        if (samples->sample[i].pattern == pattern && samples->sample[i].tokens == tokens)
            return true;
    return false;
}

static int ascending(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static bool is_among(const int64_t *tokens, int count, int64_t wanted)
{
    for (int i = 0; i < count; i++)
        if (tokens[i] == wanted)
            return true;
    return false;
}

int arf_holdout_tokens(const arf_samples *samples, arf_pattern pattern, uint64_t seed,
                       int64_t *tokens, int count)
{
    int64_t low = INT64_MAX, high = 0;
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *sample = &samples->sample[i];
        if (sample->pattern != pattern || sample->outcome != ARF_SAMPLE_TIMED)
            continue;
        low = sample->tokens < low ? sample->tokens : low;
        high = sample->tokens > high ? sample->tokens : high;
    }
    uint64_t state =
        arf_mix(arf_hash_number(arf_hash_number(ARF_HASH_INIT, (int64_t)seed), (int64_t)pattern));
    int found = 0;
    /* A short range may hold fewer than `count` new numbers; then draws run out. */
    for (int draw = 0; high > 0 && found < count && draw < 100 * count; draw++) {
        double at = arf_random_unit(arf_random_next(&state));
        int64_t drawn = llround((double)low * pow((double)high / (double)low, at));
        if (!is_among(tokens, found, drawn) && !has_tokens(samples, pattern, drawn))
            tokens[found++] = drawn;
    }
    if (found > 0)
        qsort(tokens, (size_t)found, sizeof *tokens, ascending);
    return found;
}

/* The median of every other round from `first` on; NaN for none. */
static double half_median(const arf_sample *sample, int first)
{
    double half[ARF_MAX_ROUNDS];
    int count = 0;
    for (int i = first; i < sample->rounds && count < ARF_MAX_ROUNDS; i += 2)
        if (isfinite(sample->us[i]) && sample->us[i] > 0.0)
            half[count++] = sample->us[i];
    return arf_median_of(half, count);
}

/* log(time of own / time of the best), the best being chosen on one half of the rounds and both
 * being judged on the other. NaN where that cannot be said. */
static double half_regret(const arf_samples *samples, const arf_sample *own, int half)
{
    const arf_sample *best = NULL;
    double least = INFINITY;
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *other = &samples->sample[i];
        if (other->pattern != own->pattern || other->tokens != own->tokens ||
            other->outcome != ARF_SAMPLE_TIMED)
            continue;
        double median = half_median(other, half);
        if (median < least) {
            least = median;
            best = other;
        }
    }
    return best == NULL ? NAN : log(half_median(own, 1 - half) / half_median(best, 1 - half));
}

arfuse_status arf_regret_of(const arf_samples *held_out, arf_pattern pattern,
                            const arf_routes *routes, arf_regret *regret, arf_error *error)
{
    double sum = 0.0, worst = -INFINITY;
    *regret = (arf_regret){0};
    for (int i = 0; i < held_out->count; i++) {
        const arf_sample *sample = &held_out->sample[i];
        int route = arf_route_of(routes, sample->tokens);
        if (sample->pattern != pattern || sample->outcome != ARF_SAMPLE_TIMED || route < 0 ||
            !arf_plan_equal(held_out->header.set, pattern, &sample->plan,
                            &routes->route[route].plan))
            continue;
        double here = 0.5 * (half_regret(held_out, sample, 0) + half_regret(held_out, sample, 1));
        if (!isfinite(here))
            continue;
        sum += here;
        regret->points++;
        if (here > worst) {
            worst = here;
            regret->worst_tokens = sample->tokens;
        }
    }
    if (regret->points == 0)
        return arf_fail(error, ARFUSE_FAILURE,
                        "%s: no held-out token count has two rounds of the route that serves it",
                        arf_pattern_name(pattern));
    regret->geomean = expm1(sum / regret->points);
    regret->worst = expm1(fmax(0.0, worst));
    return ARFUSE_OK;
}
