/* SPDX-License-Identifier: Apache-2.0 */
/* What a workspace holds, shared by the files of this folder alone. */
#ifndef ARF_RUNTIME_WORKSPACE_H
#define ARF_RUNTIME_WORKSPACE_H

#include "device/device.h"
#include "runtime/choose.h"

/* One pattern's way from a token count to something launchable. */
typedef struct arf_pattern_plans {
    int plan[ARF_MAX_ROUTES]; /* device plan id of each route */
    int unfused;              /* device plan id for everything that no route serves */
} arf_pattern_plans;

struct arfuse_workspace {
    arfuse_options options; /* strings are not kept: what they named is in `choice` */
    arf_team team;
    arf_log log;
    arf_device *device;
    arf_space *space;
    arf_choice choice;
    arf_pattern_plans plans[ARF_PATTERNS];
    /* Tokens of one unfused launch; a longer call is cut into chunks of it. */
    int64_t chunk;
    /* The caller's operands in this version's layout, moved along chunk by chunk. */
    arfuse_operands operands[ARF_MAX_RANKS];
};

/* Which plan serves a call, decided once for launching and explaining alike. */
typedef struct arf_service {
    int route;      /* of the choice's routes; -1: unfused */
    int plan, then; /* device plan ids, as in arf_launch */
    bool fused;
} arf_service;
arf_service arf_serve(const arfuse_workspace *workspace, arf_pattern pattern, int64_t tokens);

#endif
