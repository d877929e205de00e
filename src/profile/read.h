/* SPDX-License-Identifier: Apache-2.0 */
/* Profile text to value: strict, all or nothing (design section 7). */
#ifndef ARF_PROFILE_READ_H
#define ARF_PROFILE_READ_H

#include <stddef.h>

#include "profile/profile.h"

/*
 * Refusals are ARFUSE_PROFILE and name file (`name`), JSON path, value and what was expected. On
 * success *profile is new and the caller's; on failure it is untouched.
 */
arfuse_status arf_profile_parse(const char *name, const char *text, size_t bytes,
                                arf_profile **profile, arf_error *error);
/* Reads a file of at most 4 MiB; one that cannot be read is ARFUSE_PROFILE too. */
arfuse_status arf_profile_load(const char *path, arf_profile **profile, arf_error *error);

#endif
