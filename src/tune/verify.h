/* SPDX-License-Identifier: Apache-2.0 */
/* Verification before timing: a wrong kernel is often a fast one. */
#ifndef ARF_TUNE_VERIFY_H
#define ARF_TUNE_VERIFY_H

#include "tune/field.h"
#include "tune/sweep.h"

/*
 * Every entrant still in the race runs on all kinds of trial data and at one and several tokens. A
 * wrong one is named and leaves the race with a sample that says so; one that does not run
 * likewise. Stops at the deadline: who was not verified is not timed.
 */
arfuse_status arf_verify(arf_bench *bench, const arf_schedule *schedule, arf_store *store,
                         arf_field *field, double deadline, arf_sweep *sweep, arf_error *error);

#endif
