/* SPDX-License-Identifier: Apache-2.0 */
/* Results for programs: one row a sample, what it depends on first, as CSV or JSON lines on stdout.
 * `arfuse-profile import` reads the CSV. */
#ifndef ARF_TUNE_ROWS_H
#define ARF_TUNE_ROWS_H

#include "profile/samples.h"

/* The samples in this order; `profile` NULL: none was written. `head`: the line of names comes
 * first. */
void arf_rows_csv(const arf_samples *samples, const arf_profile *profile,
                  const arf_sample *const *order, bool head);
/* False when memory ran out. */
bool arf_rows_jsonl(const arf_samples *samples, const arf_profile *profile,
                    const arf_sample *const *order);

#endif
