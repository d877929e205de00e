/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks must have passed alike: compared field by field, the one that differs is named. */
#ifndef ARF_RUNTIME_AGREE_H
#define ARF_RUNTIME_AGREE_H

#include "device/team.h"

#define ARF_MAX_FIELDS 16

typedef struct arf_fields {
    int count;
    const char *name[ARF_MAX_FIELDS];
    int64_t value[ARF_MAX_FIELDS];
    bool bits[ARF_MAX_FIELDS]; /* a digest: printed in hexadecimal */
} arf_fields;

void arf_field(arf_fields *fields, const char *name, int64_t value);
void arf_field_bits(arf_fields *fields, const char *name, uint64_t digest);

/* Collective. ARFUSE_DISAGREE on every rank: "WHAT: tokens is 5 on rank 0 and 6 on ranks 1-3".
 * Allocates nothing. */
arfuse_status arf_agree(const arf_team *team, const char *what, const arf_fields *fields,
                        arf_error *error);

struct arfuse_workspace;
/* Checked mode, before a call whose own checks gave `status`: a vote on that, then the call's
 * scalars, then the bits of residual and gamma. */
arfuse_status arf_agree_call(struct arfuse_workspace *workspace, arf_pattern pattern,
                             const arfuse_call *call, arfuse_status status, arf_error *error);

#endif
