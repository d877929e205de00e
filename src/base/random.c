/* SPDX-License-Identifier: Apache-2.0 */
#include "base/random.h"

#include <math.h>

uint64_t arf_mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

uint64_t arf_random_next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return arf_mix(*state);
}

double arf_random_unit(uint64_t bits)
{
    return ((double)(bits >> 11) + 0.5) * 0x1p-53;
}

double arf_random_normal(uint64_t *state)
{
    static const double two_pi = 6.28318530717958647692;
    double radius = sqrt(-2.0 * log(arf_random_unit(arf_random_next(state))));
    return radius * cos(two_pi * arf_random_unit(arf_random_next(state)));
}
