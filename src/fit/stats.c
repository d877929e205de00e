/* SPDX-License-Identifier: Apache-2.0 */
#include "fit/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "profile/samples.h"

#define RESAMPLES 200
#define TAIL 5 /* 2.5 % of the resamples lie outside the interval at each end */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle(const double *sorted, int count)
{
    return count % 2 == 1 ? sorted[count / 2] : 0.5 * (sorted[count / 2 - 1] + sorted[count / 2]);
}

double arf_median_of(double *values, int count)
{
    if (count <= 0)
        return NAN;
    qsort(values, (size_t)count, sizeof *values, compare);
    return middle(values, count);
}

/* The median of one resample: how often each of the sorted values was drawn, then a walk to the
 * middle, which needs no sorting. */
static double resample(const double *sorted, int count, int *drawn, uint64_t *state)
{
    memset(drawn, 0, (size_t)count * sizeof *drawn);
    for (int i = 0; i < count; i++)
        drawn[(int)(arf_random_unit(arf_random_next(state)) * count)]++;
    int lower = (count - 1) / 2, upper = count / 2, seen = 0;
    double low = NAN;
    for (int i = 0; i < count; i++) {
        seen += drawn[i];
        if (isnan(low) && seen > lower)
            low = sorted[i];
        if (seen > upper)
            return 0.5 * (low + sorted[i]);
    }
    return low;
}

bool arf_estimate_median(const double *values, int count, uint64_t seed, arf_estimate *estimate)
{
    double sorted[ARF_MAX_ROUNDS];
    int drawn[ARF_MAX_ROUNDS], kept = 0;
    for (int i = 0; i < count && i < ARF_MAX_ROUNDS; i++)
        if (isfinite(values[i]) && values[i] > 0.0)
            sorted[kept++] = values[i];
    if (kept > 0) {
        double medians[RESAMPLES];
        double median = arf_median_of(sorted, kept);
        uint64_t state = seed;
        for (int i = 0; i < RESAMPLES; i++)
            medians[i] = kept == 1 ? median : resample(sorted, kept, drawn, &state);
        qsort(medians, RESAMPLES, sizeof medians[0], compare);
        *estimate = (arf_estimate){median, medians[TAIL], medians[RESAMPLES - 1 - TAIL], kept};
    }
    return kept > 0;
}

double arf_estimate_noise(const arf_estimate *estimate)
{
    return 0.5 * (estimate->high - estimate->low) / estimate->median;
}
