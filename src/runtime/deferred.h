/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions that are owed: a fixed table of tickets. */
#ifndef ARF_RUNTIME_DEFERRED_H
#define ARF_RUNTIME_DEFERRED_H

#include <stdbool.h>

#include "base/error.h"
#include "rules/words.h"

#define ARF_LABEL_TEXT 48

typedef struct arf_owed {
    uint64_t number; /* of the ticket; 0: never used */
    bool owed;       /* false: the place is free, `label` tells who had it last */
    char label[ARF_LABEL_TEXT];
    arf_pattern pattern;
    int64_t tokens;
    float routed_scale;
    int site;
    bool early_shared;
    arfuse_operands *operands; /* [local_ranks]: the producer's half */
} arf_owed;

typedef struct arf_deferred {
    int room;
    arf_owed *place;
    arfuse_operands *operands; /* of all places */
    uint64_t last;             /* number of the newest ticket */
    /* What materialising needs where the workspace has norm or residual: for each local rank a
     * residual of zeros, a gamma, and a place for the norm that nobody wants. */
    int64_t chunk; /* tokens of one piece */
    void **zeros, **gamma, **norm;
} arf_deferred;

struct arfuse_workspace;
arfuse_status arf_deferred_create(struct arfuse_workspace *workspace, arf_error *error);
void arf_deferred_free(struct arfuse_workspace *workspace);

/* Forgets what is still owed; ARFUSE_OWED names it. `when` ends the message. */
arfuse_status arf_deferred_drop(struct arfuse_workspace *workspace, const char *when,
                                arf_error *error);

/* Gives workspace->operands a residual of zeros (adding +0.0 changes no sum, since none is -0.0), a
 * gamma and a place for the norm, where its operation has them. They serve pieces of so many tokens
 * as are returned. */
int64_t arf_deferred_lend(struct arfuse_workspace *workspace);

#endif
