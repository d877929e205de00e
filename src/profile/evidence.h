/* SPDX-License-Identifier: Apache-2.0 */
/* The evidence of a profile between its text and its value. Members that this version does not know
 * are kept as they were. */
#ifndef ARF_PROFILE_EVIDENCE_H
#define ARF_PROFILE_EVIDENCE_H

#include "base/json.h"
#include "profile/profile.h"

/* `root` is the object that holds the member "evidence". */
arfuse_status arf_read_evidence(const arf_json_value *root, arf_evidence *evidence,
                                arf_error *error);
/* What a reader would refuse, whoever made the value. */
arfuse_status arf_check_evidence(const arf_profile *profile, arf_error *error);
/* The member "evidence", the last of a profile. */
void arf_write_evidence(arf_text *text, const arf_evidence *evidence);

#endif
