/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles against something else on this machine: --ab and --check. Both print on stdout, by rank
 * 0. Collective; the same status and code on all ranks. */
#ifndef ARF_TUNE_COMPARE_H
#define ARF_TUNE_COMPARE_H

#include "tune/tuner.h"

/* Times two sides by turns at every token count and prints the ratio of A to B with its interval.
 */
arfuse_status arf_ab(arf_tuner *tuner, int *code, arf_error *error);

/*
 * Times a profile's routes at the ends and in the middle of each route, against its other routes,
 * the default and unfused, and says what it loses. *code: 0, or ARF_EXIT_REGRET when some point
 * loses more than --max-regret beyond its noise.
 */
arfuse_status arf_check(arf_tuner *tuner, int *code, arf_error *error);

#endif
