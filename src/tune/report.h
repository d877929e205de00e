/* SPDX-License-Identifier: Apache-2.0 */
/* Results on stdout, by rank 0 alone: table, CSV, JSON lines or markdown. */
#ifndef ARF_TUNE_REPORT_H
#define ARF_TUNE_REPORT_H

#include "profile/samples.h"
#include "tune/options.h"

/*
 * One shape's samples, and the routes that came of them (`profile` NULL: none was written).
 * `first`: the first shape of this run, which prints what stands once at the top. ARFUSE_FAILURE
 * when stdout does not take it.
 */
arfuse_status arf_report(const arf_samples *samples, const arf_profile *profile, arf_format format,
                         bool first, arf_error *error);

#endif
