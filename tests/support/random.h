/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded random numbers for tests: the same on every machine, so that a seed in a message is a
 * case. */
#ifndef TESTS_SUPPORT_RANDOM_H
#define TESTS_SUPPORT_RANDOM_H

#include <stdint.h>

static uint64_t random_state = 1;

static inline void random_seed(uint64_t seed)
{
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

/* From 0 to limit - 1 (xorshift64; Marsaglia, 2003). */
static inline uint64_t random_below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % limit;
}

#endif
