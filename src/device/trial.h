/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trial data: operands of every local rank made from a seed, in device memory,
 * and the bits that a right call must leave. Verification, timing, benchmarks
 * and tests all use it. Inputs are a function of (seed, team rank), so each
 * process can compute all ranks' contributions without any exchange.
 */
#ifndef ARF_DEVICE_TRIAL_H
#define ARF_DEVICE_TRIAL_H

#include "device/device.h"

typedef enum arf_trial_kind {
    ARF_TRIAL_RANDOM,      /* large terms that cancel: a wrong order of ranks or slots shows at
                              once; fp32 routing weights */
    ARF_TRIAL_ADVERSARIAL, /* -0.0, subnormals, NaN and Inf, overflow, 2^24 +1 -2^24, ties, -1
                              indices between NaN rows, repeated rows, weight 0; bf16 weights */
    ARF_TRIAL_COUNT_RANKS, /* rank r fills with 2^r, gamma 1, residual 0: the sum names who is
                              missing or doubled */
    ARF_TRIAL_KINDS
} arf_trial_kind;

typedef struct arf_trial arf_trial;

/*
 * Allocates and fills operands for up to `tokens` tokens (at least 1) of both patterns (K = 0:
 * allreduce only). Local; the caller votes. The device outlives the trial. Every token of an
 * adversarial trial has one of five themes that take turns with the seed: to see all of them at
 * M = 1, use five seeds in a row.
 *
 * A wrong order of ranks or slots shows at one token. A sum of squares in another order, or an inv
 * whose steps are rounded otherwise, moves inv by its last bit and turns over about one norm
 * in 2^16: verify at a large M, too, or compare inv itself.
 */
arfuse_status arf_trial_create(arf_device *device, const arf_shape *shape, int64_t tokens,
                               arf_trial_kind kind, uint64_t seed, arf_trial **trial,
                               arf_error *error);
void arf_trial_destroy(arf_trial *trial); /* accepts NULL */

/* [local_ranks] operand sets on the device. What the shape has not (residual, gamma, ...) is NULL.
 * In front of `routed` lies one more NaN row, for whoever reads index -1. */
const arfuse_operands *arf_trial_operands(const arf_trial *trial);
/* A launch of this trial's operands with its epsilon, bias and scale; the caller sets the plan. */
arf_launch arf_trial_launch(const arf_trial *trial, arf_pattern pattern, int64_t tokens);

/* Fills both outputs of every local rank with a NaN that no right call writes, so that an unwritten
 * element shows. */
arfuse_status arf_trial_poison(arf_trial *trial, arf_error *error);
/* The same of the rows that a check of so many tokens looks at. */
arfuse_status arf_trial_poison_for(arf_trial *trial, int64_t tokens, arf_error *error);

/*
 * Compares outputs of the first `tokens` tokens with the reference, after the call has ended.
 * ARFUSE_WRONG_RESULT names rank, tensor, token, element and both values. The next 256 rows
 * must still be poisoned. Expected rows are computed once per pattern and kept: a token's bits do
 * not depend on M, so any M up to the trial's costs one computation in all.
 */
arfuse_status arf_trial_check(arf_trial *trial, arf_pattern pattern, int64_t tokens,
                              arf_error *error);
/*
 * The same of a call with these numerics. Where they are not fixed, the order of the ranks' sum is
 * not the contract's: residual_out is held to what such a sum may come to (any_order.h), and
 * norm_out to the bits that follow from that residual_out.
 */
arfuse_status arf_trial_check_numerics(arf_trial *trial, arf_pattern pattern, int64_t tokens,
                                       arf_numerics numerics, arf_error *error);

#endif
