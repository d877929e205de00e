/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the profile of a key: a named file, else folders in order (design section 6). */
#ifndef ARF_PROFILE_LOOKUP_H
#define ARF_PROFILE_LOOKUP_H

#include "base/log.h"
#include "profile/profile.h"

typedef struct arf_profile_key {
    arf_set set;
    arf_shape shape;
    arf_device_key device;
} arf_profile_key;

arf_profile_key arf_profile_key_of(const arf_profile *profile);
bool arf_profile_key_equal(const arf_profile_key *a, const arf_profile_key *b);

/*
 * True when the profile may be used for the key: set, shape with switches, device name, capability,
 * SM count, link, nodes, ranks per GPU, and the tuning-schema version of each protocol that it
 * routes to. Containment, never nearest. Else `reason` names the first member that differs, with both values.
 */
bool arf_profile_matches(const arf_profile *profile, const arf_profile_key *key,
                         char reason[ARF_REASON_TEXT]);

/* "tp_size 8, hidden_size 6144, top_k 10, bf16, rms_norm, residual, shared_expert on NVIDIA B300
 * (10.3, 148 SMs, nvlink)": the key in words, for messages. */
void arf_profile_key_text(const arf_profile_key *key, char *text, size_t size);

/* Colon-separated folders to search, first wins; NULL-terminated expansion of the default order:
 * ARFUSE_PROFILE_PATH, user folder, system folder. Reads the environment; never on a launch path. */
arfuse_status arf_profile_folders(const char *configured, char *folders, size_t size,
                                  arf_error *error);

typedef enum arf_found {
    ARF_FOUND_EXACT,
    ARF_FOUND_NEAREST, /* same link and set, other shape: only a source for retargeting */
    ARF_FOUND_NONE
} arf_found;

/*
 * Searches the folders and the folders in them (the `<device>-<link>` of design section 7). Exact: *profile and `path` are it.
 * Nearest: the profile of the same link and kernel set whose shape is closest by a stated
 * distance. A second exact one in the same folder of the list is one warning with both names; the
 * first is taken, by folder, then name, in bytes. Corrupt files, and folders that are there and cannot be
 * read, are one warning each and skipped. *profile is the caller's; NULL when none.
 */
arfuse_status arf_profile_find(const arf_profile_key *key, const char *folders, const arf_log *log,
                               arf_found *found, arf_profile **profile, char *path,
                               size_t path_size, arf_error *error);

#endif
