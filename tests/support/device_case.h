/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs calls of a device by chosen plans and compares every bit with the
 * reference. For devices that compute; with or without MPI.
 */
#ifndef TESTS_SUPPORT_DEVICE_CASE_H
#define TESTS_SUPPORT_DEVICE_CASE_H

#include "device/device.h"
#include "device/trial.h"

/* Knob settings of a protocol: the default, and others that cut tokens oddly. */
enum { CASE_VARIANTS = 4 };
arf_plan case_plan(arf_set set, const arf_shape *shape, arf_pattern pattern, arf_protocol protocol,
                   int variant);

/* The host device, with so many ranks of a team in this process; `bootstrap` NULL: all of them.
 * `team` must outlive the device. */
arfuse_status case_host(const arfuse_bootstrap *bootstrap, int local_ranks, arf_team *team,
                        arf_device **device, arf_error *error);

/* A space with room for `capacity` tokens of every protocol. */
arfuse_status case_space(arf_device *device, const arf_shape *shape, int64_t capacity,
                         double wait_limit_seconds, arf_space **space, arf_error *error);

/* Prepares the variant's plan and what must follow it, and fills the launch's plan and then. */
arfuse_status case_prepare(arf_space *space, arf_protocol protocol, int variant, arf_launch *launch,
                           arf_error *error);

/* One call from poisoned outputs, compared with the reference. */
arfuse_status case_call(arf_space *space, arf_trial *trial, arf_pattern pattern,
                        arf_protocol protocol, int variant, int64_t tokens, arf_error *error);

/* All protocols and patterns that the shape has, some variants, at M = 0, 1, 2, 17 and capacity,
 * with one kind of data. Collective, but does not vote. */
arfuse_status case_matrix(arf_device *device, const arf_shape *shape, int64_t capacity,
                          arf_trial_kind kind, uint64_t seed, arf_error *error);

/* `calls` calls at random pattern, protocol, variant and M in 0..most, on one space. Before each,
 * one process comes up to `late_us` later than the others. */
arfuse_status case_mixed(arf_device *device, const arf_shape *shape, int64_t most, int calls,
                         unsigned late_us, uint64_t seed, arf_error *error);

/* The next number of a sequence that is equal on all ranks. */
uint64_t case_random(uint64_t *state);

#endif
