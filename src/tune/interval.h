/* SPDX-License-Identifier: Apache-2.0 */
/* A median and its interval by order statistics: no draw, so every rank comes to the same. At most
 * ARF_MAX_ROUNDS values. */
#ifndef ARF_TUNE_INTERVAL_H
#define ARF_TUNE_INTERVAL_H

#include "profile/samples.h"

/* The median of `count` numbers. */
double arf_median(const double *value, int count);
/*
 * The interval of a median from order statistics: the narrowest pair of ranks around the middle
 * that covers at least 95 % of cases (binomial), or the extremes where no pair does. Relative
 * half-width; infinite below 3 values.
 */
double arf_half_width(const double *value, int count);
void arf_median_interval(const double *value, int count, double *low, double *high);

#endif
