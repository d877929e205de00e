/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A routing profile as a plain value: shape, device, routes for both patterns,
 * evidence. No JSON type appears here (profile/read.h and write.h convert).
 */
#ifndef ARF_PROFILE_PROFILE_H
#define ARF_PROFILE_PROFILE_H

#include "base/error.h"
#include "rules/legal.h"
#include "rules/words.h"

#define ARF_NAME_TEXT 64
#define ARF_NOTE_TEXT 256

typedef enum arf_method {
    ARF_MEASURED,
    ARF_PUBLISHED,
    ARF_RETARGETED,
    ARF_DEFAULT,
    ARF_METHODS
} arf_method;
const char *arf_method_name(arf_method method);
bool arf_method_parse(const char *name, arf_method *method);

/* The machine that a profile belongs to. */
typedef struct arf_device_key {
    char name[ARF_NAME_TEXT]; /* as the driver says it, normalised by arf_device_name */
    int capability_major, capability_minor;
    int sm_count; /* 0: host */
    arf_link link;
    int nodes;
    int ranks_per_gpu;
} arf_device_key;

/* One function for writer and reader: trims and joins runs of white space, keeps the case. */
void arf_device_name(const char *raw, char name[ARF_NAME_TEXT]);
/* Folder name: slug(name)-link, [a-z0-9-] only: "NVIDIA GB300" on nvlink -> "nvidia-gb300-nvlink".
 */
void arf_device_folder(const arf_device_key *device, char folder[ARF_NAME_TEXT + 16]);

/* [a-z0-9-] with single dashes; returns the length. What is in a name can never leave a folder. */
size_t arf_slug(const char *text, char *slug, size_t size);

/* What the measurement says about one route; each part may be absent (count 0, NaN). */
typedef struct arf_route_evidence {
    int64_t bound_low, bound_high; /* hold the route's bound; 0, 0: unknown */
    char runner_up[ARF_NAME_TEXT]; /* protocol of the second best; "" none */
    /* (runner-up / winner) - 1 at the last point measured up to the bound; NaN unknown */
    double margin;
    /* Microseconds a call under each policy, timed by turns at one token count; 0 tokens: not
     * timed. */
    int64_t shift_tokens;
    double policy_us[ARF_POLICIES];
} arf_route_evidence;

/* What a pattern's routes take when the token count changes from call to call, as in service. */
#define ARF_MAX_MIX 64
typedef struct arf_mix_evidence {
    int count;                   /* of tokens; 0: not timed */
    int64_t tokens[ARF_MAX_MIX]; /* in the order of the calls */
    double median_us;            /* a call */
    /* That time over the mean of each token count alone, less 1, and the 95 % interval of it. */
    double change, change_low, change_high;
} arf_mix_evidence;

typedef struct arf_evidence {
    arf_method method;
    char context[ARF_NAME_TEXT]; /* "isolated" */
    arf_policy policy;
    bool has_policy;
    char tool[ARF_NAME_TEXT];
    char driver[ARF_NAME_TEXT];
    char source_digest[ARF_NAME_TEXT];
    char library[ARF_NOTE_TEXT]; /* "NCCL 2.28.9, NCCL_NVLS_ENABLE=0"; "": none was in use */
    double noise, regret_geomean, regret_max; /* NaN: not measured */
    arf_mix_evidence mix[ARF_PATTERNS];
    arf_route_evidence route[ARF_PATTERNS][ARF_MAX_ROUTES];
    int route_count[ARF_PATTERNS]; /* 0, or equal to the pattern's route count */
    /* Members this version does not know, as the text of one compact JSON object ("{...}"), kept
     * on rewriting; NULL: none. Owned by the profile. */
    char *extra;
    /* The same for each pattern's mix and each route's entry. */
    char *mix_extra[ARF_PATTERNS];
    char *route_extra[ARF_PATTERNS][ARF_MAX_ROUTES];
} arf_evidence;

typedef struct arf_profile {
    arf_set set;
    char variant[ARF_NAME_TEXT]; /* published only: several configurations of one key */
    int version[ARF_PROTOCOLS];  /* tuning-schema version of each protocol; 0: absent */
    arf_shape shape;
    arf_device_key device;
    arf_numerics numerics; /* the weakest of the routes */
    arf_routes routes[ARF_PATTERNS];
    arf_evidence evidence;
} arf_profile;

/* Heap-allocated because of its size (tens of KiB); free accepts NULL. */
arf_profile *arf_profile_new(void);
void arf_profile_free(arf_profile *profile);
arf_profile *arf_profile_copy(const arf_profile *profile);

/*
 * Everything the file format demands of the values: strictly increasing bounds, no gap, legal
 * tunings for the shape, open bounds and nulls only where published, numerics the weakest of the
 * routes, shape switches decided unless published, measured intervals that hold their bounds. The
 * message names the JSON path.
 */
arfuse_status arf_profile_validate(const arf_profile *profile, arf_error *error);

/* Digest of everything that decides what runs (not of evidence): equal on all ranks or refused. */
uint64_t arf_profile_digest(const arf_profile *profile);

/* The problem that the profile's tunings must be legal for. */
arf_problem arf_profile_problem(const arf_profile *profile);

#endif
