/* SPDX-License-Identifier: Apache-2.0 */
/* --probe: what is here, in seconds and before any tuning. Lines "name value" on stdout by rank 0.
 */
#ifndef ARF_TUNE_PROBE_H
#define ARF_TUNE_PROBE_H

#include "tune/tuner.h"

/* Collective. Opens nothing but what a tune would open, and lets it go. */
arfuse_status arf_probe(arf_tuner *tuner, arf_error *error);

#endif
