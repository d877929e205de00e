/* SPDX-License-Identifier: Apache-2.0 */
#include "device/any_order.h"

#define UNIT_ROUNDOFF 0x1p-8
#define LEAST_NORMAL 0x1p-126
#define INFINITE_FROM \
    0x1.ffp127 /* half way from the largest bf16 number to the next power of two */

void arf_any_order_add(arf_any_order *all, arf_bf16 term)
{
    const double value = (double)arf_bf16_to_float(term);
    all->sum += value;
    all->size += isfinite(value) ? fabs(value) : 0;
}

double arf_any_order_tolerance(const arf_any_order *all, int additions)
{
    const double share = additions * UNIT_ROUNDOFF;
    return share / (1 - share) * all->size + additions * LEAST_NORMAL;
}

bool arf_any_order_allows(const arf_any_order *all, int additions, arf_bf16 got)
{
    const double value = (double)arf_bf16_to_float(got);
    const double tolerance = arf_any_order_tolerance(all, additions);
    const bool overflows = all->size + tolerance >= INFINITE_FROM;
    if (isnan(value)) /* NaN by overflow: an infinity met its opposite */
        return got == ARF_BF16_NAN && (isnan(all->sum) || overflows);
    if (isinf(value))
        return isinf(all->sum) ? value == all->sum : !isnan(all->sum) && overflows;
    return fabs(value - all->sum) <= tolerance; /* false where the sum is no number */
}
