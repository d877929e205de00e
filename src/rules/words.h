/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of the project as plain values: patterns, protocols, shapes,
 * tunings, plans and routes. No pointers, no ownership: copy them freely.
 */
#ifndef ARF_RULES_WORDS_H
#define ARF_RULES_WORDS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum arf_pattern { ARF_ALLREDUCE, ARF_FINALIZE, ARF_PATTERNS } arf_pattern;

/* ARF_SEPARATE is the finalize kernel of a route that says "finalize": "separate": that kernel
 * first, then whatever the allreduce routes name for the same M. */
typedef enum arf_protocol {
    ARF_LL,
    ARF_BT,
    ARF_HT,
    ARF_UNFUSED,
    ARF_SEPARATE,
    ARF_PROTOCOLS
} arf_protocol;

typedef enum arf_transport { ARF_UNICAST, ARF_MULTICAST_STORE, ARF_TRANSPORTS } arf_transport;

/* From the strongest promise to the weakest, so that the weakest of several is their maximum. */
typedef enum arf_numerics { ARF_FIXED, ARF_IN_NETWORK, ARF_LIBRARY, ARF_NUMERICS } arf_numerics;

typedef enum arf_link {
    ARF_LINK_NVLINK,
    ARF_LINK_PCIE,
    ARF_LINK_SHARED_GPU,
    ARF_LINK_SHM,
    ARF_LINK_MODEL,
    ARF_LINKS
} arf_link;

typedef enum arf_set {
    ARF_SET_ARFUSE,
    ARF_SET_HOST,
    ARF_SET_FLASHINFER,
    ARF_SET_SGLANG,
    ARF_SET_TOKENSPEED,
    ARF_SETS
} arf_set;

/* How the operands stand in the cache when a call is timed (design section 8). */
typedef enum arf_policy { ARF_WARM, ARF_DECODE, ARF_POLICIES } arf_policy;

/* A switch of the shape. A published profile may leave a switch open; a measured one never does. */
typedef enum arf_switch { ARF_OFF = 0, ARF_ON = 1, ARF_EITHER = 2 } arf_switch;

/* design.md section 11, item 4. */
#define ARF_MIN_HIDDEN 8
#define ARF_MAX_HIDDEN 65536
#define ARF_MAX_TOP_K 64
#define ARF_MAX_RANKS 72
#define ARF_MAX_TOKENS (1 << 20)

/* The static shape. dtype is bf16 throughout version 1. top_k 0: a dense model, no finalize. */
typedef struct arf_shape {
    int tp_size;
    int hidden_size;
    int top_k;
    arf_switch rms_norm, residual, shared_expert;
} arf_shape;

/* Values in the order of the knob table of (set, protocol, pattern); see rules/knobs.h. */
#define ARF_MAX_KNOBS 16
#define ARF_KNOB_NULL INT32_MIN /* "derived at build time"; published profiles only */
typedef struct arf_tuning {
    int32_t value[ARF_MAX_KNOBS];
} arf_tuning;

/* What runs: everything of a route but its bound. */
typedef struct arf_plan {
    arf_protocol protocol;
    arf_transport transport;
    arf_numerics numerics;
    arf_tuning tuning;
    bool tuning_null; /* published profiles only: the launch parameters are not known */
} arf_plan;

/* Serves M in previous max_tokens + 1 .. max_tokens. */
typedef struct arf_route {
    int64_t max_tokens; /* ARF_OPEN_BOUND: no upper bound; published profiles only */
    arf_plan plan;
} arf_route;
#define ARF_OPEN_BOUND INT64_MAX

/* Far more than any profile needs (the tuner aims at four); a longer list is refused by name. */
#define ARF_MAX_ROUTES 64
typedef struct arf_routes {
    int count;
    int64_t min_tokens; /* 1; published profiles may start later */
    arf_route route[ARF_MAX_ROUTES];
} arf_routes;

/* Names as they stand in files, options and messages ("ll", "finalize", "shared-gpu", ...). */
const char *arf_pattern_name(arf_pattern pattern);
const char *arf_protocol_name(arf_protocol protocol);
const char *arf_transport_name(arf_transport transport);
const char *arf_numerics_name(arf_numerics numerics);
const char *arf_link_name(arf_link link);
const char *arf_set_name(arf_set set);
const char *arf_policy_name(arf_policy policy);

/* Exact, case-sensitive; false leaves the output alone. */
bool arf_pattern_parse(const char *name, arf_pattern *pattern);
bool arf_protocol_parse(const char *name, arf_protocol *protocol);
bool arf_transport_parse(const char *name, arf_transport *transport);
bool arf_numerics_parse(const char *name, arf_numerics *numerics);
bool arf_link_parse(const char *name, arf_link *link);
bool arf_set_parse(const char *name, arf_set *set);
bool arf_policy_parse(const char *name, arf_policy *policy);

/* Kernels of somebody else: nothing of them is measured here, their sums have orders of their own,
 * and launch parameters may be unknown. */
bool arf_set_public(arf_set set);

bool arf_shape_equal(const arf_shape *a, const arf_shape *b);
/* Compares what runs; only the knobs that the table of (set, protocol, pattern) has. */
bool arf_plan_equal(arf_set set, arf_pattern pattern, const arf_plan *a, const arf_plan *b);

/*
 * THE routing function: tuner, runtime and `explain` all call it (design section 6). The index of
 * the first route whose bound is at least `tokens`, or -1 when no route serves them (0 tokens,
 * above the last bound, below min_tokens, or no route at all).
 */
int arf_route_of(const arf_routes *routes, int64_t tokens);
/* The fewest tokens that a route serves. */
int64_t arf_route_first(const arf_routes *routes, int index);

#endif
