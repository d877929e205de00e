/* SPDX-License-Identifier: Apache-2.0 */
/* Medians and their intervals. Pure, and independent of the order of the values. */
#ifndef ARF_FIT_STATS_H
#define ARF_FIT_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* A median with its 95 % interval, in the unit of the values. One value alone says nothing about
 * its spread: low = median = high. */
typedef struct arf_estimate {
    double median, low, high;
    int values; /* that it stands on */
} arf_estimate;

/*
 * Percentile bootstrap of the median (Efron, 1979): 200 resamples drawn from `seed`. Values that
 * are not finite and positive are left out; false when none remains. At most ARF_MAX_ROUNDS values.
 */
bool arf_estimate_median(const double *values, int count, uint64_t seed, arf_estimate *estimate);

/* Half the interval relative to the median. */
double arf_estimate_noise(const arf_estimate *estimate);

/* The plain median of `count` values, which it sorts; NaN for none. */
double arf_median_of(double *values, int count);

#endif
