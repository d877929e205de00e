/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of the public kernels, from reading their constructors and kernels
 * (FlashInfer pull requests 4358 and 5178, SGLang 34134, TokenSpeed 1547), and
 * what arfuse's own kernels lift or add. HT's knobs stand in legal_ht.c.
 */
#include "rules/legal.h"

#include <stdarg.h>
#include <stdio.h>

#include "rules/check.h"
#include "rules/knobs.h"

arf_capabilities arf_set_capabilities(arf_set set)
{
    switch (set) {
    case ARF_SET_ARFUSE:
    case ARF_SET_HOST:
        return (arf_capabilities){.predicated_tail = true,
                                  .ht_without_norm = true,
                                  .any_rank_count = true,
                                  .reaches_ht = true,
                                  .shards_by_ranks = false};
    case ARF_SET_TOKENSPEED:
        return (arf_capabilities){
            .predicated_tail = true, .reaches_ht = true, .shards_by_ranks = true};
    default: /* FlashInfer, and SGLang, which launches FlashInfer's kernels */
        return (arf_capabilities){.reaches_ht = true, .shards_by_ranks = true};
    }
}

/* ---- the tools of check.h -------------------------------------------------------------------- */

bool arf_refuse(const arf_check *check, const char *format, ...)
{
    if (check->reason) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(check->reason, ARF_REASON_TEXT, format, arguments);
        va_end(arguments);
    }
    return false;
}

int32_t arf_check_knob(const arf_check *check, const char *name, int32_t otherwise)
{
    const arf_knob_table *table =
        arf_knobs(check->problem->set, check->plan->protocol, check->pattern);
    int index = arf_knob_index(table, name);
    return index < 0 ? otherwise : check->plan->tuning.value[index];
}

bool arf_check_threads(const arf_check *check, const char *name)
{
    int32_t threads = arf_check_knob(check, name, 32);
    if (threads < 32 || threads > 1024 || threads % 32 != 0)
        return arf_refuse(check, "%s %d: not a multiple of 32 from 32 to 1024", name, threads);
    return true;
}

bool arf_check_among(const arf_check *check, const char *name, const int32_t *values)
{
    int32_t value = arf_check_knob(check, name, values[0]);
    char list[64];
    int used = 0;
    for (int i = 0; values[i] != 0; i++) {
        if (values[i] == value)
            return true;
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%d", i ? ", " : "", values[i]);
    }
    return arf_refuse(check, "%s %d: not one of %s", name, value, list);
}

/* ---- shape and plan -------------------------------------------------------------------------- */

static bool check_shape(const arf_check *check)
{
    const arf_shape *shape = &check->problem->shape;
    int ranks = shape->tp_size;
    if (shape->hidden_size < ARF_MIN_HIDDEN || shape->hidden_size > ARF_MAX_HIDDEN)
        return arf_refuse(check, "hidden_size %d: not from %d to %d", shape->hidden_size,
                          ARF_MIN_HIDDEN, ARF_MAX_HIDDEN);
    if (shape->hidden_size % 8 != 0)
        return arf_refuse(check, "hidden_size %d: not a multiple of 8", shape->hidden_size);
    if (shape->top_k < 0 || shape->top_k > ARF_MAX_TOP_K)
        return arf_refuse(check, "top_k %d: not from 0 to %d", shape->top_k, ARF_MAX_TOP_K);
    if (ranks < 1 || ranks > ARF_MAX_RANKS)
        return arf_refuse(check, "tp_size %d: not from 1 to %d", ranks, ARF_MAX_RANKS);
    if (!check->can.any_rank_count && ranks != 2 && ranks != 4 && ranks != 8 && ranks != 16)
        return arf_refuse(check, "tp_size %d: kernel set %s has 2, 4, 8 and 16", ranks,
                          arf_set_name(check->problem->set));
    if (check->pattern == ARF_FINALIZE && shape->top_k == 0)
        return arf_refuse(check, "finalize: top_k is 0, a dense model has nothing to finalize");
    return true;
}

/* Which transports and numerics a kernel set has. */
static bool check_promise(const arf_check *check)
{
    arf_set set = check->problem->set;
    const arf_plan *plan = check->plan;
    bool ours = set == ARF_SET_ARFUSE || set == ARF_SET_HOST;
    if (!ours && plan->numerics == ARF_FIXED)
        return arf_refuse(check, "numerics fixed: kernel set %s sums in an order of its own",
                          arf_set_name(set));
    if (!ours)
        return true;
    bool mailbox = plan->protocol == ARF_LL || plan->protocol == ARF_BT || plan->protocol == ARF_HT;
    if (plan->transport == ARF_MULTICAST_STORE && (set == ARF_SET_HOST || !mailbox))
        return arf_refuse(check, "transport multicast-store: %s of kernel set %s has unicast only",
                          arf_protocol_name(plan->protocol), arf_set_name(set));
    if (plan->numerics == ARF_LIBRARY && (set == ARF_SET_HOST || plan->protocol != ARF_UNFUSED))
        return arf_refuse(check, "numerics library: %s of kernel set %s calls no library",
                          arf_protocol_name(plan->protocol), arf_set_name(set));
    if (plan->numerics == ARF_LIBRARY && check->problem->no_library != NULL)
        return arf_refuse(check, "numerics library: %s", check->problem->no_library);
    if (plan->numerics == ARF_IN_NETWORK &&
        (plan->protocol != ARF_HT || plan->transport != ARF_MULTICAST_STORE))
        return arf_refuse(check, "numerics in-network: only ht over multicast sums in the network");
    return true;
}

static bool check_ranges(const arf_check *check, const arf_knob_table *table)
{
    for (int i = 0; i < table->count; i++) {
        const arf_knob *knob = &table->knob[i];
        int32_t value = check->plan->tuning.value[i];
        if (value == ARF_KNOB_NULL) {
            if (!knob->nullable)
                return arf_refuse(check, "%s: must not be null", knob->name);
        } else if (value < knob->low || value > knob->high) {
            return arf_refuse(check, "%s %d: not from %d to %d", knob->name, value, knob->low,
                              knob->high);
        }
    }
    return true;
}

/* ---- protocols ------------------------------------------------------------------------------- */

/* Elements a publishing thread may take. Public LL kernels have 1 and 4 for finalize, 1, 4 and 8
 * for allreduce; BT's and arfuse's have every power of two up to a pack. All divide H, because
 * they divide 8 and H is a multiple of 8. */
static bool check_publish(const arf_check *check)
{
    static const int32_t any[] = {1, 2, 4, 8, 0};
    static const int32_t public_allreduce[] = {1, 4, 8, 0};
    static const int32_t public_finalize[] = {1, 4, 0};
    const int32_t *elements = any;
    if (check->plan->protocol == ARF_LL && check->problem->set != ARF_SET_ARFUSE)
        elements = check->pattern == ARF_FINALIZE ? public_finalize : public_allreduce;
    return arf_check_among(check, "elements_per_thread", elements) &&
           arf_check_threads(check, "threads");
}

static bool check_ll(const arf_check *check)
{
    static const int32_t powers[] = {1, 2, 4, 8, 0};
    int ranks = check->problem->shape.tp_size;
    int32_t lanes = arf_check_knob(check, "collect_lanes", 1);
    int32_t threads = arf_check_knob(check, "collect_threads", 32);
    int32_t cluster = arf_check_knob(check, "collect_cluster", 1);
    if (!check_publish(check) || !arf_check_threads(check, "collect_threads") ||
        !arf_check_among(check, "collect_lanes", powers))
        return false;
    /* arfuse's lanes hold aligned rank ranges of the padded tree, so they need not divide R. */
    if (check->can.any_rank_count ? lanes > ranks : ranks % lanes != 0)
        return arf_refuse(check, "collect_lanes %d: %s %d ranks", lanes,
                          check->can.any_rank_count ? "more than" : "does not divide", ranks);
    /* One thread gathers each block's partial sum. */
    if (threads < cluster)
        return arf_refuse(check, "collect_threads %d: fewer than the %d blocks of a cluster",
                          threads, cluster);
    return true;
}

/* Slices are equal, so that a slice's place in the mailbox is a product. */
static bool check_owner(const arf_check *check)
{
    int ranks = check->problem->shape.tp_size, packs = check->problem->shape.hidden_size / 8;
    if (arf_check_knob(check, "owner", 0) == 1 && packs % ranks != 0)
        return arf_refuse(check, "owner 1: %d packs a token do not cut into %d equal slices", packs,
                          ranks);
    return true;
}

static bool check_bt_kernels(const arf_check *check)
{
    static const int32_t kernels[] = {3, 1, 0};
    return arf_check_among(check, "kernels", kernels);
}

static bool check_bt(const arf_check *check)
{
    static const int32_t powers[] = {1, 2, 4, 8, 0};
    if (check->problem->set == ARF_SET_ARFUSE &&
        !arf_check_among(check, "vectors_per_thread", powers))
        return false;
    return check_publish(check) && arf_check_threads(check, "reduction_threads") &&
           arf_check_threads(check, "rms_threads") && check_owner(check) && check_bt_kernels(check);
}

static bool check_host(const arf_check *check)
{
    int packs = check->problem->shape.hidden_size / 8;
    int32_t shards = arf_check_knob(check, "shards", 1);
    if (shards > packs)
        return arf_refuse(check, "shards %d: more than the %d packs of a token", shards, packs);
    return check_owner(check);
}

static bool check_protocol(const arf_check *check)
{
    if (check->problem->lacks >> check->plan->protocol & 1)
        return arf_refuse(check, "this device has no %s", arf_protocol_name(check->plan->protocol));
    if (check->plan->protocol == ARF_HT && !check->can.ht_without_norm &&
        check->problem->shape.rms_norm == ARF_OFF)
        return arf_refuse(check, "rms_norm false: kernel set %s has no ht kernel without the norm",
                          arf_set_name(check->problem->set));
    /* Published configurations whose launch parameters nobody printed: nothing left to check. */
    if (check->plan->tuning_null)
        return true;
    const arf_knob_table *table =
        arf_knobs(check->problem->set, check->plan->protocol, check->pattern);
    if (!check_ranges(check, table))
        return false;
    if (check->problem->set == ARF_SET_HOST)
        return check_host(check);
    switch (check->plan->protocol) {
    case ARF_LL:
        return check_ll(check);
    case ARF_BT:
        return check_bt(check);
    case ARF_HT:
        return arf_check_ht(check);
    default: /* unfused, separate */
        return check_publish(check) && arf_check_threads(check, "rms_threads");
    }
}

static bool answer(const arf_check *check)
{
    const arf_plan *plan = check->plan;
    arf_set set = check->problem->set;
    if (!arf_knobs(set, plan->protocol, check->pattern)->supported ||
        (plan->protocol == ARF_HT && !check->can.reaches_ht))
        return arf_refuse(check, "kernel set %s has no %s for %s", arf_set_name(set),
                          arf_protocol_name(plan->protocol), arf_pattern_name(check->pattern));
    return check_shape(check) && check_promise(check) && check_protocol(check);
}

/* ---- questions ------------------------------------------------------------------------------- */

bool arf_legal(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
               char reason[ARF_REASON_TEXT])
{
    arf_check check = {problem, arf_set_capabilities(problem->set), pattern, plan, false, reason};
    return answer(&check);
}

bool arf_legal_upstream(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
                        char reason[ARF_REASON_TEXT])
{
    arf_check check = {problem, arf_set_capabilities(problem->set), pattern, plan, true, reason};
    return answer(&check);
}

bool arf_needs_tail(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan)
{
    arf_check check = {problem, arf_set_capabilities(problem->set), pattern, plan, false, NULL};
    if (!check.can.predicated_tail || !answer(&check))
        return false;
    check.can.predicated_tail = false;
    return !answer(&check);
}

arf_plan arf_least_plan(arf_set set, arf_pattern pattern, arf_protocol protocol)
{
    static const struct {
        const char *name;
        int32_t value;
    } least[] = {{"elements_per_thread", 4}, {"threads", 32},
                 {"prefetch_group", 1},      {"collect_cluster", 1},
                 {"collect_lanes", 1},       {"collect_threads", 32},
                 {"vectors_per_thread", 1},  {"owner", 0},
                 {"reduction_threads", 32},  {"rms_threads", 32},
                 {"consumer_threads", 32},   {"stages", 2},
                 {"reduction_warps", 1},     {"shards", 1},
                 {"rms_token_groups", 1},    {"rms_shard_major", 0},
                 {"rms_pipeline_stages", 1}};
    const arf_knob_table *table = arf_knobs(set, protocol, pattern);
    bool ours = set == ARF_SET_ARFUSE || set == ARF_SET_HOST;
    arf_plan plan = {.protocol = protocol, .tuning = arf_tuning_fallback(table)};
    for (size_t i = 0; i < sizeof least / sizeof *least; i++) {
        int index = arf_knob_index(table, least[i].name);
        if (index >= 0)
            plan.tuning.value[index] = least[i].value;
    }
    if (!ours) {
        plan.transport = ARF_MULTICAST_STORE;
        plan.numerics = protocol == ARF_HT ? ARF_IN_NETWORK : ARF_LIBRARY;
    }
    return plan;
}

bool arf_reachable(const arf_problem *problem, arf_pattern pattern, arf_protocol protocol,
                   char reason[ARF_REASON_TEXT])
{
    /* If any plan is legal, then so is the least demanding one: for HT that is one consumer warp
     * with one pack a thread, one reduction warp, one token. */
    arf_plan least = arf_least_plan(problem->set, pattern, protocol);
    return arf_legal(problem, pattern, &least, reason);
}

/* ---- derived numbers ------------------------------------------------------------------------- */

bool arf_derived_split_below(int hidden_size, int limit, arf_split *split)
{
    int packs = hidden_size / 8;
    int most = packs / 2 < limit ? packs / 2 : limit;
    for (int threads = most / 32 * 32; threads >= 32; threads -= 32)
        if (packs % threads == 0) {
            *split = (arf_split){threads, packs / threads};
            return true;
        }
    return false;
}

bool arf_derived_split(int hidden_size, arf_split *split)
{
    return arf_derived_split_below(hidden_size, 928, split); /* 1024 less loader, publisher and one
                                                                reduction warp */
}

int arf_publish_blocks(int hidden_size, int elements_per_thread, int threads)
{
    int block = elements_per_thread * threads;
    return (hidden_size + block - 1) / block;
}

int64_t arf_owned_tokens(int64_t tokens, int tp_size, int rank)
{
    return tokens / tp_size + (rank < tokens % tp_size);
}
