/* SPDX-License-Identifier: Apache-2.0 */
/* The last word on the routes of a fit: their bits at their largest token counts, and what another
 * cache policy would make of their times. */
#ifndef ARF_TUNE_CONFIRM_H
#define ARF_TUNE_CONFIRM_H

#include "fit/fit.h"
#include "tune/sweep.h"

/*
 * Verification ran before timing, on few tokens. Here every plan that the fit would route is run
 * at its bound (or the most that a reference can be computed for in reason). A wrong one is named,
 * counted and put among the samples, so that the next fit does without it; until all are right.
 */
arfuse_status arf_confirm(arf_bench *bench, arf_store *store, const arf_fit_options *fit,
                          arf_sweep *sweep, arf_error *error);

/* What a profile's routes run at a token count that they serve; it borrows the plans. */
arf_run arf_route_run(const arf_profile *profile, arf_pattern pattern, int64_t tokens);

/*
 * Times each route at the middle of its range under --policy and under the other one, and says the
 * shift and puts it into the evidence. Stops at the deadline (seconds since the run began). Nothing
 * on the host device.
 */
arfuse_status arf_shift(arf_bench *bench, arf_profile *profile, double deadline, arf_error *error);

#endif
