/* SPDX-License-Identifier: Apache-2.0 */
#include "device/model/truth.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"
#include "rules/knobs.h"

#define MIB (1024.0 * 1024.0)

/*
 * Of the order of the fused finalize published for tensor parallel 8 at H=5120, K=6 on GB200
 * (https://github.com/flashinfer-ai/flashinfer/pull/5178: 4.8 us at 1 token, 41.5 at 1024, some
 * 240 at 8192), so that budgets and noise are realistic. Not a claim about any machine.
 */
static const struct {
    arf_pattern pattern;
    arf_protocol protocol;
    double floor_us, link_us_per_mib, memory_us_per_mib, decode_us;
} built_in[] = {
    {ARF_ALLREDUCE, ARF_LL, 4.2, 1.0, 0.05, 0.3},
    {ARF_ALLREDUCE, ARF_BT, 5.6, 1.0, 0.10, 0.5},
    {ARF_ALLREDUCE, ARF_HT, 10.0, 0.85, 0.09, 1.0},
    {ARF_ALLREDUCE, ARF_UNFUSED, 24.0, 1.3, 0.25, 2.0},
    {ARF_FINALIZE, ARF_LL, 4.7, 1.0, 0.05, 0.4},
    {ARF_FINALIZE, ARF_BT, 6.0, 1.0, 0.10, 0.7},
    {ARF_FINALIZE, ARF_HT, 11.0, 0.85, 0.09, 1.4},
    {ARF_FINALIZE, ARF_UNFUSED, 30.0, 1.3, 0.25, 3.0},
    {ARF_FINALIZE, ARF_SEPARATE, 3.0, 0.0, 0.20, 0.8},
};

/* The step of a knob's ladder after its fallback, or before it where that is the last. */
static int32_t next_step(const arf_knob *knob)
{
    int place = 0;
    while (knob->ladder[place] >= 0 && knob->ladder[place] < knob->fallback)
        place++;
    if (knob->ladder[place] == knob->fallback)
        place++;
    return knob->ladder[place] >= 0 ? knob->ladder[place] : place > 1 ? knob->ladder[place - 2] : 0;
}

/* Every number that a search may move matters a little, and its best value is one step from the
 * table's fallback: so the default plan is good, and one-knob steps lead to a better one. */
static void default_knobs(arf_pattern pattern, arf_protocol protocol, arf_model_curve *curve)
{
    const arf_knob_table *table = arf_knobs(ARF_SET_ARFUSE, protocol, pattern);
    for (int i = 0; i < table->count; i++) {
        const arf_knob *knob = &table->knob[i];
        if (knob->kind == ARF_KNOB_INTEGER && knob->ladder != NULL)
            curve->knob[i] = (arf_model_knob){next_step(knob), 0.0, 0.04};
    }
}

void arf_model_default(arf_model *model)
{
    memset(model, 0, sizeof *model);
    strcpy(model->name, "model");
    model->sm_count = 148;
    model->seed = 1;
    model->noise = 0.01;
    model->outlier_rate = 0.001;
    model->outlier_factor = 4.0;
    model->graph_us = 6.0;
    model->prepare_seconds = 0.02;
    for (size_t i = 0; i < sizeof built_in / sizeof built_in[0]; i++) {
        arf_model_curve *curve = &model->curve[built_in[i].pattern][built_in[i].protocol];
        curve->floor_us = built_in[i].floor_us;
        curve->link_us_per_mib = built_in[i].link_us_per_mib;
        curve->memory_us_per_mib = built_in[i].memory_us_per_mib;
        curve->decode_us = built_in[i].decode_us;
        default_knobs(built_in[i].pattern, built_in[i].protocol, curve);
    }
}

/* Bytes that one rank's link carries each way, in units of B = M * H * 2 (design.md section 4). */
static double link_factor(const arf_shape *shape, arf_protocol protocol)
{
    double ranks = shape->tp_size;
    switch (protocol) {
    case ARF_LL:
        return ranks - 1.0;
    case ARF_BT:
    case ARF_HT:
    case ARF_UNFUSED:
        return 2.0 * (ranks - 1.0) / ranks;
    case ARF_SEPARATE:
    case ARF_PROTOCOLS:
        break;
    }
    return 0.0; /* a finalize kernel sends nothing */
}

static double memory_factor(const arf_shape *shape, arf_pattern pattern, arf_protocol protocol)
{
    double ranks = shape->tp_size, top_k = shape->top_k;
    double read = pattern == ARF_ALLREDUCE ? 1.0 : top_k + 1.0;
    switch (protocol) {
    case ARF_LL:
        return read + 3.0 * ranks + 3.0;
    case ARF_BT:
        return read + 8.0 + 1.0 / ranks;
    case ARF_HT:
        return read + 7.0 + 1.0 / ranks;
    case ARF_UNFUSED:
        return pattern == ARF_ALLREDUCE ? 12.0 : top_k + 14.0;
    case ARF_SEPARATE:
        return read + 1.0; /* reads K rows and the shared one, writes the sum */
    case ARF_PROTOCOLS:
        break;
    }
    return 0.0;
}

static double penalty(const arf_model_curve *curve, arf_pattern pattern, const arf_plan *plan,
                      int64_t tokens)
{
    const arf_knob_table *table = arf_knobs(ARF_SET_ARFUSE, plan->protocol, pattern);
    double sum = 0.0;
    for (int i = 0; i < table->count; i++) {
        const arf_model_knob *knob = &curve->knob[i];
        if (!arf_knob_read(table, &plan->tuning, i))
            continue;
        double distance = log2(1.0 + plan->tuning.value[i]) - log2(1.0 + knob->best) -
                          knob->per_octave * log2((double)tokens);
        sum += knob->cost * distance * distance / (1.0 + distance * distance);
    }
    return sum;
}

double arf_model_time(const arf_model *model, const arf_shape *shape, arf_policy policy,
                      arf_pattern pattern, const arf_plan *plan, const arf_plan *then,
                      int64_t tokens)
{
    if (tokens <= 0)
        return 0.0;
    const arf_model_curve *curve = &model->curve[pattern][plan->protocol];
    const int64_t stair = curve->stair_tokens > 1 ? curve->stair_tokens : 1;
    const int64_t served = (tokens + stair - 1) / stair * stair;
    double mib = (double)served * shape->hidden_size * 2.0 / MIB;
    double us = curve->floor_us +
                curve->link_us_per_mib * link_factor(shape, plan->protocol) * mib +
                curve->memory_us_per_mib * memory_factor(shape, pattern, plan->protocol) * mib;
    if (policy == ARF_DECODE)
        us += curve->decode_us;
    us *= 1.0 + penalty(curve, pattern, plan, tokens);
    if (plan->protocol == ARF_SEPARATE && then != NULL)
        us += arf_model_time(model, shape, policy, ARF_ALLREDUCE, then, NULL, tokens);
    return us;
}

static uint64_t hash_plan(uint64_t hash, arf_pattern pattern, const arf_plan *plan)
{
    hash = arf_hash_number(hash, pattern);
    hash = arf_hash_number(hash, plan->protocol);
    hash = arf_hash_number(hash, plan->transport);
    const arf_knob_table *table = arf_knobs(ARF_SET_ARFUSE, plan->protocol, pattern);
    for (int i = 0; i < table->count; i++)
        hash = arf_hash_number(hash, plan->tuning.value[i]);
    return hash;
}

/* What a call's time is drawn from: the run, `salt` and all that the call is. */
static uint64_t hash_call(const arf_model *model, int64_t salt, arf_policy policy,
                          arf_pattern pattern, const arf_plan *plan, const arf_plan *then,
                          int64_t tokens)
{
    uint64_t hash = arf_hash_number(ARF_HASH_INIT, (int64_t)model->seed);
    hash = arf_hash_number(hash, salt);
    hash = arf_hash_number(hash, policy);
    hash = hash_plan(hash, pattern, plan);
    if (plan->protocol == ARF_SEPARATE && then != NULL)
        hash = hash_plan(hash, ARF_ALLREDUCE, then);
    return arf_hash_number(hash, tokens);
}

double arf_model_noisy(const arf_model *model, const arf_shape *shape, arf_policy policy,
                       arf_pattern pattern, const arf_plan *plan, const arf_plan *then,
                       int64_t tokens, int rank, int64_t round)
{
    uint64_t place = arf_mix(hash_call(model, -1, policy, pattern, plan, then, tokens));
    uint64_t state = arf_mix(
        arf_hash_number(hash_call(model, rank, policy, pattern, plan, then, tokens), round));

    double us = arf_model_time(model, shape, policy, pattern, plan, then, tokens);
    us *= exp(model->placement * arf_random_normal(&place));
    us *= exp(model->noise * arf_random_normal(&state));
    if (arf_random_unit(arf_random_next(&state)) < model->outlier_rate)
        us *= model->outlier_factor;
    return us;
}

bool arf_model_fault_hits(const arf_model_fault *fault, int rank, arf_pattern pattern,
                          const arf_plan *plan, int64_t tokens, double seconds)
{
    if (fault->rank >= 0 && rank != fault->rank)
        return false;
    if (seconds < fault->from_seconds || seconds >= fault->until_seconds)
        return false;
    if (tokens != 0 && (tokens < fault->min_tokens || tokens > fault->max_tokens))
        return false;
    if (plan == NULL)
        return true;
    if ((fault->has_pattern && pattern != fault->pattern) ||
        (fault->has_protocol && plan->protocol != fault->protocol))
        return false;
    const arf_knob_table *table = arf_knobs(ARF_SET_ARFUSE, plan->protocol, pattern);
    for (int i = 0; i < fault->knob_count; i++) {
        int index = arf_knob_index(table, fault->knob_name[i]);
        if (index < 0 || plan->tuning.value[index] != fault->knob_value[i])
            return false;
    }
    return true;
}
