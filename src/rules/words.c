/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/words.h"

#include <string.h>

#include "rules/knobs.h"

static const char *const pattern_names[ARF_PATTERNS] = {"allreduce", "finalize"};
static const char *const protocol_names[ARF_PROTOCOLS] = {"ll", "bt", "ht", "unfused", "separate"};
static const char *const transport_names[ARF_TRANSPORTS] = {"unicast", "multicast-store"};
static const char *const numerics_names[ARF_NUMERICS] = {"fixed", "in-network", "library"};
static const char *const link_names[ARF_LINKS] = {"nvlink", "pcie", "shared-gpu", "shm", "model"};
static const char *const set_names[ARF_SETS] = {"arfuse", "arfuse-host", "flashinfer", "sglang",
                                                "tokenspeed"};
static const char *const policy_names[ARF_POLICIES] = {"warm", "decode"};

/* A value outside its enum is a bug elsewhere; messages must survive it. */
static const char *name_at(const char *const *names, int count, int index)
{
    return index >= 0 && index < count ? names[index] : "?";
}

static int index_of(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

/* Both directions of one word list. */
#define ARF_WORDS(word, names, count)                           \
    const char *arf_##word##_name(arf_##word word)              \
    {                                                           \
        return name_at(names, count, (int)word);                \
    }                                                           \
    bool arf_##word##_parse(const char *name, arf_##word *word) \
    {                                                           \
        int index = index_of(names, count, name);               \
        if (index < 0)                                          \
            return false;                                       \
        *word = (arf_##word)index;                              \
        return true;                                            \
    }

ARF_WORDS(pattern, pattern_names, ARF_PATTERNS)
ARF_WORDS(protocol, protocol_names, ARF_PROTOCOLS)
ARF_WORDS(transport, transport_names, ARF_TRANSPORTS)
ARF_WORDS(numerics, numerics_names, ARF_NUMERICS)
ARF_WORDS(link, link_names, ARF_LINKS)
ARF_WORDS(set, set_names, ARF_SETS)
ARF_WORDS(policy, policy_names, ARF_POLICIES)

bool arf_set_public(arf_set set)
{
    return set != ARF_SET_ARFUSE && set != ARF_SET_HOST;
}

bool arf_shape_equal(const arf_shape *a, const arf_shape *b)
{
    return a->tp_size == b->tp_size && a->hidden_size == b->hidden_size && a->top_k == b->top_k &&
           a->rms_norm == b->rms_norm && a->residual == b->residual &&
           a->shared_expert == b->shared_expert;
}

bool arf_plan_equal(arf_set set, arf_pattern pattern, const arf_plan *a, const arf_plan *b)
{
    if (a->protocol != b->protocol || a->transport != b->transport || a->numerics != b->numerics ||
        a->tuning_null != b->tuning_null)
        return false;
    if (a->tuning_null)
        return true;
    /* Values behind the table's last knob are not part of the plan and may be anything. */
    int count = arf_knobs(set, a->protocol, pattern)->count;
    return memcmp(a->tuning.value, b->tuning.value, sizeof a->tuning.value[0] * (size_t)count) == 0;
}

int arf_route_of(const arf_routes *routes, int64_t tokens)
{
    if (tokens < 1 || tokens < routes->min_tokens)
        return -1;
    int low = 0, high = routes->count; /* the answer lies in [low, high]; high: none */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (routes->route[middle].max_tokens >= tokens)
            high = middle;
        else
            low = middle + 1;
    }
    return low < routes->count ? low : -1;
}

int64_t arf_route_first(const arf_routes *routes, int index)
{
    return index == 0 ? routes->min_tokens : routes->route[index - 1].max_tokens + 1;
}
