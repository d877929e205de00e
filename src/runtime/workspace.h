/* SPDX-License-Identifier: Apache-2.0 */
/* What a workspace holds, shared by the files of this folder alone. */
#ifndef ARF_RUNTIME_WORKSPACE_H
#define ARF_RUNTIME_WORKSPACE_H

#include "device/device.h"
#include "runtime/choose.h"
#include "runtime/deferred.h"
#include "runtime/shadow.h"
#include "runtime/sites.h"

/* One pattern's way from a token count to something launchable. */
typedef struct arf_pattern_plans {
    int plan[ARF_MAX_ROUTES]; /* device plan id of each route */
    int unfused;              /* device plan id for everything that no route serves */
    uint64_t lacking;         /* bit i: this device lacks what route i needs, on some rank */
} arf_pattern_plans;

struct arfuse_workspace {
    arfuse_options options; /* strings are not kept; AUTO and -1 are resolved */
    arf_team team;
    arf_log log;
    char label[ARF_LABEL_TEXT]; /* what messages call it */
    arf_device *device;
    arf_space *space;
    arf_choice choice;
    arf_pattern_plans plans[ARF_PATTERNS];
    arf_sites sites;
    arf_counters routes[ARF_PATTERNS][1 + ARF_MAX_ROUTES]; /* [0]: unfused; [1 + i]: route i */
    arf_deferred deferred;
    arf_shadow shadow;
    /* The caller's operands in this version's layout, what the shape lacks NULL; moved along chunk
     * by chunk. */
    arfuse_operands operands[ARF_MAX_RANKS];
    void *row; /* [H] in host memory: checked mode; else NULL */
    uint64_t calls;
    arfuse_stream stream; /* of the calls so far */
    bool has_stream;
    bool profiled; /* a profiler listens: calls name themselves */
    bool failed;   /* a call failed half way: nothing more is launched */
};

/* How a call is served, decided once for launching, asking and explaining alike. */
typedef struct arf_service {
    int route;      /* of the choice's routes; -1: none */
    int plan, then; /* device plan ids, as in arf_launch */
    int then_route; /* of the allreduce routes, behind a separate finalize; -1: none */
    int64_t chunk;  /* most tokens of one launch; a longer call is cut */
    bool fused;
    bool fixed;    /* numerics: the bits are those of unfused */
    bool declined; /* the site is off */
    bool beyond;   /* above the last route or the capacity */
} arf_service;
arf_service arf_serve(const arfuse_workspace *workspace, arf_pattern pattern,
                      const arfuse_call *call);

/* A device without streams takes none; `name` is what gave it, for the message. */
arfuse_status arf_check_stream(const arfuse_workspace *workspace, const char *name,
                               arfuse_stream stream, arf_error *error);

/* The call's struct, ranges, site, route and stream. Nothing is changed. */
arfuse_status arf_check_call(const arfuse_workspace *workspace, arf_pattern pattern,
                             const arfuse_call *call, arf_error *error);

/* What a local rank's operands may be: see operands.c. Copies what the shape has, and nulls what it
 * has not. */
typedef enum arf_half { ARF_PRODUCER = 1, ARF_CONSUMER = 2, ARF_WHOLE = 3 } arf_half;
arfuse_status arf_take_operands(const arfuse_workspace *workspace, arf_pattern pattern,
                                arf_half half, const arfuse_operands *from, arfuse_operands *to,
                                arf_error *error);
/* Pointers, alignment and overlap of workspace->operands. `sum_alone`: residual, gamma and norm_out
 * are not looked at, and residual_out may be the input. */
arfuse_status arf_check_operands(const arfuse_workspace *workspace, arf_pattern pattern,
                                 int64_t tokens, bool sum_alone, arf_error *error);
/* Moves workspace->operands on by `tokens` rows; with sum_alone those that were lent stay. */
void arf_advance_operands(arfuse_workspace *workspace, int64_t tokens, bool sum_alone);

/* Serves and launches a call whose operands are taken. `status` is what the checks so far gave: in
 * checked mode the other ranks are told of it before it is returned. */
arfuse_status arf_run(arfuse_workspace *workspace, arf_pattern pattern, const arfuse_call *call,
                      bool sum_alone, arfuse_status status, arf_error *error);

/* Opens the device; arf_device_open but for tests. */
typedef arfuse_status (*arf_open_device)(const arf_device_options *options, const arf_team *team,
                                         arf_device **device, arf_error *error);
arfuse_status arf_workspace_make(const arfuse_bootstrap *bootstrap, const arfuse_options *options,
                                 arf_open_device open, arfuse_workspace **workspace,
                                 arf_error *error);

static inline const arf_routes *arf_routes_of(const arfuse_workspace *workspace,
                                              arf_pattern pattern)
{
    return workspace->choice.profile == NULL ? NULL : &workspace->choice.profile->routes[pattern];
}

#endif
