/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/interval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sorted_copy(const double *value, int count, double sorted[ARF_MAX_ROUNDS])
{
    memcpy(sorted, value, (size_t)count * sizeof *value);
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
}

double arf_median(const double *value, int count)
{
    double sorted[ARF_MAX_ROUNDS];
    if (count == 0)
        return NAN;
    sorted_copy(value, count, sorted);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/*
 * The chance that the median lies below the r-th smallest of n values is the chance of fewer than r
 * successes in n tosses of a fair coin. The largest r with 2 * that <= 5 % bounds the interval.
 */
static int interval_rank(int count)
{
    double chance = pow(0.5, count), below = 0;
    int rank = 0;
    while (rank < count / 2) {
        below += chance;
        if (2 * below > 0.05)
            break;
        chance *= (double)(count - rank) / (rank + 1);
        rank++;
    }
    return rank; /* values cut off at each side, plus one; 0: none can be */
}

void arf_median_interval(const double *value, int count, double *low, double *high)
{
    double sorted[ARF_MAX_ROUNDS];
    if (count == 0) {
        *low = *high = NAN;
        return;
    }
    sorted_copy(value, count, sorted);
    int cut = interval_rank(count);
    cut = cut > 0 ? cut - 1 : 0;
    *low = sorted[cut];
    *high = sorted[count - 1 - cut];
}

double arf_half_width(const double *value, int count)
{
    if (count < 3)
        return INFINITY;
    double low, high;
    arf_median_interval(value, count, &low, &high);
    return (high - low) / 2 / arf_median(value, count);
}
