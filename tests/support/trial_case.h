/* SPDX-License-Identifier: Apache-2.0 */
/* Trials on a device that is nothing but host memory; calls are computed by the reference. */
#ifndef TESTS_SUPPORT_TRIAL_CASE_H
#define TESTS_SUPPORT_TRIAL_CASE_H

#include "device/reference.h"
#include "device/trial.h"

extern int trial_live_blocks;      /* allocated and not released */
extern int trial_allocations_left; /* then there is no memory */
extern arf_team trial_team;
extern arf_device trial_device;
extern arf_error trial_error;

/* Around each test: a team of four ranks in this process; everything must be given back. */
int trial_set_up(void **state);
int trial_tear_down(void **state);

arf_shape trial_shape(int ranks, int hidden, int top_k);
arf_trial *trial_make(const arf_shape *shape, int64_t tokens, arf_trial_kind kind, uint64_t seed);

/* The call that a test changes before it runs: all ranks, from their operands in memory. */
arf_reference_call trial_call(const arf_trial *trial, const arf_shape *shape, arf_pattern pattern,
                              int64_t tokens);

/* Leaves the call's results on every local rank. */
void trial_run(const arf_trial *trial, const arf_reference_call *call);
void trial_poison(arf_trial *trial);

/* The verdict on what lies in the outputs. `words` are in the message. */
void trial_right(arf_trial *trial, arf_pattern pattern, int64_t tokens);
void trial_wrong(arf_trial *trial, arf_pattern pattern, int64_t tokens, const char *words);

#define TRIAL_TEST(name) cmocka_unit_test_setup_teardown(name, trial_set_up, trial_tear_down)

#endif
