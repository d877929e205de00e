/* SPDX-License-Identifier: Apache-2.0 */
/* What right calls on a trial's operands leave, computed by the reference from rows that are made
 * again for every rank. */
#ifndef ARF_DEVICE_TRIAL_EXPECTED_H
#define ARF_DEVICE_TRIAL_EXPECTED_H

#include "device/any_order.h"
#include "device/trial_data.h"

/* residual_out and norm_out of tokens first .. first + count - 1, [count, H]; norm_out NULL with
 * rms_norm off. Holds the operands of one token of all ranks at a time, tp_size * (K + 2) rows;
 * false when memory ran out. */
bool arf_trial_expect(const arf_trial_data *data, arf_pattern pattern, int64_t first, int64_t count,
                      arf_bf16 *residual_out, arf_bf16 *norm_out);

/* What x of one token, [H], may be where the order of its sum is not known; the contributions have
 * the contract's bits. False when memory ran out. */
bool arf_trial_expect_any_order(const arf_trial_data *data, arf_pattern pattern, int64_t token,
                                arf_any_order *x);

#endif
