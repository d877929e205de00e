/* SPDX-License-Identifier: Apache-2.0 */
/* Floating-point helpers of tests: a second way to compute, and a hostile caller's modes. */
#ifndef TESTS_SUPPORT_FLOATS_H
#define TESTS_SUPPORT_FLOATS_H

#include <stdint.h>

/* The fused multiply-add by another road: the product exact in double, the sum rounded to odd,
 * which a second rounding to float cannot spoil. */
float second_fmaf(float a, float b, float c);

/* The tree by its definition: recursion over the index range padded to a power of two. */
float second_tree(const float *term, int count);

/* 1 / sqrt(sum / hidden + epsilon), each step rounded from a double that holds it well enough. */
float second_inverse(float sum, int hidden, float epsilon);

/* bf16 rounding by comparing distances in double, without looking at bits. */
uint16_t second_bf16(float value);

/* Rounding upwards, flush-to-zero and denormals-are-zero, as a careless engine leaves them; and
 * back. hostile_modes_hold() says whether they are (still) on. */
uint64_t hostile_modes_on(void);
void hostile_modes_off(uint64_t saved);
int hostile_modes_hold(void);

/* A small generator: the next of a sequence that `state` carries. */
uint32_t next_random(uint64_t *state);

#endif
