/* SPDX-License-Identifier: Apache-2.0 */
/* The shadow check: a call is run unfused as well, into memory of our own, and compared. */
#ifndef ARF_RUNTIME_SHADOW_H
#define ARF_RUNTIME_SHADOW_H

#include <stdbool.h>

#include "device/device.h"

typedef struct arf_shadow {
    int every;                    /* 0: off */
    uint64_t until;               /* calls until the next check */
    arfuse_operands *operands;    /* [local_ranks]: the shadow's */
    void **x, **norm;             /* [local_ranks], [chunk, H] on the device */
    unsigned char *seen, *wanted; /* [H] on the host */
} arf_shadow;

struct arfuse_workspace;
arfuse_status arf_shadow_create(struct arfuse_workspace *workspace, arf_error *error);
void arf_shadow_free(struct arfuse_workspace *workspace);

/* Of calls whose numerics are fixed, the others have bits of their own: true when the one that
 * comes now is to be compared; counts it. */
bool arf_shadow_due(struct arfuse_workspace *workspace, arfuse_stream stream);
/* Around one launch of it: runs the same unfused; compares. */
arfuse_status arf_shadow_before(struct arfuse_workspace *workspace, const arf_launch *launch,
                                arf_error *error);
/* `first`: tokens of the call that were launched before this piece; `site` for the message. */
arfuse_status arf_shadow_after(struct arfuse_workspace *workspace, const arf_launch *launch,
                               int64_t first, const char *site, arf_error *error);

#endif
