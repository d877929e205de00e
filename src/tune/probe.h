/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --probe: what is here, in seconds and before any tuning. Rank 0 prints lines "topic item value",
 * or one JSON object a line with --format jsonl.
 */
#ifndef ARF_TUNE_PROBE_H
#define ARF_TUNE_PROBE_H

#include "tune/tuner.h"

/* What needs no device to open: so that it is told also where none does. */
void arf_probe_machine(const arf_tune_options *options, const arf_group *group);

/* The last line: "verdict" with what would stop a tune, NULL for nothing. */
void arf_probe_verdict(const arf_tune_options *options, const arf_group *group, const char *stop);

/* Collective. Opens nothing but what a tune would open, and lets it go. */
arfuse_status arf_probe(arf_tuner *tuner, arf_error *error);

#endif
