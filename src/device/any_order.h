/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sum of bf16 terms may come to when neither its order is known nor how its partial sums are
 * rounded, but that none is rounded coarser than to bf16: the sums of a library or of the network.
 */
#ifndef ARF_DEVICE_ANY_ORDER_H
#define ARF_DEVICE_ANY_ORDER_H

#include "device/numerics.h"

typedef struct arf_any_order {
    double sum;  /* of all terms */
    double size; /* of the magnitudes of the finite ones */
} arf_any_order;

void arf_any_order_add(arf_any_order *all, arf_bf16 term);

/*
 * How far such a sum of that many additions may be from the exact one: n u / (1 - n u) of the
 * terms' magnitudes, whatever the order (N. J. Higham, Accuracy and Stability of Numerical
 * Algorithms, 2nd ed., section 4.2); u = 2^-8, the unit roundoff of bf16. And the least normal
 * number an addition: a library may flush what is below. Largest for ARF_MAX_RANKS ranks, 0.39 of
 * the magnitudes: less than half of them, so that of two opposed terms none can be missing.
 */
double arf_any_order_tolerance(const arf_any_order *all, int additions);

/* Is that what it may have come to? Where a partial sum may have overflowed, so is an infinity, and
 * the NaN that arfuse writes. */
bool arf_any_order_allows(const arf_any_order *all, int additions, arf_bf16 got);

#endif
