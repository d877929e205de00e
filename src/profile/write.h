/* SPDX-License-Identifier: Apache-2.0 */
/* Profile value to canonical text: fixed member order, one route a line. Equal data give equal
 * bytes; read(write(p)) equals p. */
#ifndef ARF_PROFILE_WRITE_H
#define ARF_PROFILE_WRITE_H

#include "base/json.h"
#include "profile/lookup.h"
#include "profile/profile.h"

/* The caller frees `text` with arf_text_free. Refuses what the reader would refuse. */
arfuse_status arf_profile_print(const arf_profile *profile, arf_text *text, arf_error *error);

/* "tp8_h6144_k10_bf16.json" with the suffixes of the switches that are off (design section 7). */
void arf_profile_filename(const arf_shape *shape, char name[ARF_NAME_TEXT + 64]);

/* What stands at `path` must be a profile of the same key and variant, or nothing; else it is
 * refused (ARFUSE_PROFILE) with both keys. */
arfuse_status arf_profile_replaceable(const arf_profile_key *key, const char *variant,
                                      const char *path, arf_error *error);

/* Writes the profile to a named file, atomically. A file there of another key, or one that is no
 * profile, is refused (ARFUSE_PROFILE). */
arfuse_status arf_profile_save(const arf_profile *profile, const char *path, arf_error *error);

/*
 * Writes root/<device>-<link>/<name> (a published one:
 * root/published/<kernel-set>/<variant>/<name>) atomically, making folders. A file with another key
 * already there is refused (ARFUSE_PROFILE) with both keys. `path` gets what was written.
 */
arfuse_status arf_profile_store(const arf_profile *profile, const char *root, char *path,
                                size_t path_size, arf_error *error);

#endif
