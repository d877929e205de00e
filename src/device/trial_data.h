/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contents of a trial's operands: pure functions of (seed, team rank, tensor, row). Nothing is
 * stored, so any process can make any rank's rows, one at a time, in any order.
 */
#ifndef ARF_DEVICE_TRIAL_DATA_H
#define ARF_DEVICE_TRIAL_DATA_H

#include "device/numerics.h"
#include "device/trial.h"

typedef struct arf_trial_data {
    arf_shape shape;
    arf_trial_kind kind;
    uint64_t seed;

    /* Rows of `routed`. Row 0 and the last are NaN and no slot names them: whoever clamps or wraps
     * a dropped slot's -1 reads NaN. */
    int64_t routed_rows;
    arfuse_weights weights_type;
    float epsilon, weight_bias, routed_scale;
} arf_trial_data;

/* `tokens` is the most that the trial's operands hold; it decides how many routed rows there are:
 * a modest pool, since a row for each slot would be K times the size of an input. */
arf_trial_data arf_trial_data_of(const arf_shape *shape, int64_t tokens, arf_trial_kind kind,
                                 uint64_t seed);

/* One row, [H]. */
void arf_trial_input(const arf_trial_data *data, int rank, int64_t token, arf_bf16 *row);
void arf_trial_shared(const arf_trial_data *data, int rank, int64_t token, arf_bf16 *row);
void arf_trial_routed(const arf_trial_data *data, int rank, int64_t index, arf_bf16 *row);
void arf_trial_residual(const arf_trial_data *data, int64_t token, arf_bf16 *row);
void arf_trial_gamma(const arf_trial_data *data, arf_bf16 *row);

/* The slots of one token: K indices, and K weights of the data's type. */
void arf_trial_slots(const arf_trial_data *data, int rank, int64_t token, int32_t *indices,
                     void *weights);

/* "random", "adversarial", "count-ranks" */
const char *arf_trial_kind_name(arf_trial_kind kind);

#endif
