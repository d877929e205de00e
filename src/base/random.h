/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers that look random and are a pure function of what they are made from:
 * a hash (base/hash.h) goes in, the same number comes out on every host.
 */
#ifndef ARF_BASE_RANDOM_H
#define ARF_BASE_RANDOM_H

#include <stdint.h>

/* Spreads every bit of `value` over all 64: the finaliser of SplitMix64 (Steele, Lea and Flood,
 * "Fast splittable pseudorandom number generators", 2014). A bijection. */
uint64_t arf_mix(uint64_t value);

/* The next number of the SplitMix64 sequence that starts at *state. */
uint64_t arf_random_next(uint64_t *state);

/* Uniform in (0, 1): never 0, so that a logarithm may be taken. */
double arf_random_unit(uint64_t bits);

/* Standard normal, made from two numbers of the sequence. */
double arf_random_normal(uint64_t *state);

#endif
