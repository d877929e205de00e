/* SPDX-License-Identifier: Apache-2.0 */
/* What `export` can write. Each appends to `text`; refusals are ARFUSE_PROFILE. */
#ifndef ARF_CLI_EXPORT_H
#define ARF_CLI_EXPORT_H

#include "base/json.h"
#include "profile/samples.h"

/* One row a measured point, or one row a route (columns.h). */
arfuse_status arf_export_samples_csv(const arf_samples *samples, bool header, arf_text *text,
                                     arf_error *error);
arfuse_status arf_export_routes_csv(const arf_profile *profile, bool header, arf_text *text,
                                    arf_error *error);

/* Tables for a pull request: what the profile is for, its routes, what the evidence says. */
arfuse_status arf_export_markdown(const char *path, const arf_profile *profile, arf_text *text,
                                  arf_error *error);

#define ARF_FLASHINFER_HEAD "# Routes for FlashInfer's MNNVL CuTe DSL backend"

/*
 * The Python module that FlashInfer's MNNVL backend reads, with one static profile for each of
 * `profile`. What the public configuration needs and a profile does not have (an unknown tuning, a
 * missing pattern, tokens below its beginning) becomes a parameter of the module's function
 * config(), never an invented number. Profiles of other kernel sets are refused unless `hints`.
 */
arfuse_status arf_export_flashinfer(char *const *path, arf_profile *const *profile, int count,
                                    bool hints, arf_text *text, arf_error *error);

#endif
