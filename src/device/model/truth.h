/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model device knows: the noise-free time of every plan at every M, and
 * the faults it plays. Tests ask here what the tuner should have found.
 *
 * Time of one call, all ranks alike:
 *
 *     us = (floor_us + link_us_per_mib * link MiB + memory_us_per_mib * memory MiB) * (1 + penalty)
 *
 * with the byte counts of the floors in design.md section 4 (one rank a GPU), of M rounded up to a
 * whole number of `stair_tokens` (kernels that serve blocks of tokens take as long for a part of
 * one), and
 *
 *     penalty = sum over the knobs that are read of cost * d^2 / (1 + d^2)
 *     d       = log2(1 + value) - log2(1 + best) - per_octave * log2(M)
 *
 * which is smooth, smallest at the best value, and at most `cost` a knob. A separate finalize adds
 * the time of the allreduce plan behind it.
 */
#ifndef ARF_DEVICE_MODEL_TRUTH_H
#define ARF_DEVICE_MODEL_TRUTH_H

#include "base/error.h"
#include "profile/profile.h"
#include "rules/words.h"

typedef struct arf_model_knob {
    double best;       /* the fastest value at M = 1 */
    double per_octave; /* by how many powers of two it moves with each doubling of M */
    double cost;       /* the most this knob can add, as a fraction; 0: it does not matter */
} arf_model_knob;

typedef struct arf_model_curve {
    double floor_us;
    double link_us_per_mib, memory_us_per_mib;
    double decode_us;                   /* what a cold cache adds under the decode policy */
    int64_t stair_tokens;               /* 1, or 0: the time rises with every token */
    arf_model_knob knob[ARF_MAX_KNOBS]; /* in the order of the `arfuse` knob table */
} arf_model_curve;

typedef enum arf_model_fault_kind {
    ARF_FAULT_WRONG,    /* verification finds a wrong result */
    ARF_FAULT_ABSENT,   /* the rank never arrives: every rank times out and names it */
    ARF_FAULT_LAUNCH,   /* the launch is refused */
    ARF_FAULT_PREPARE,  /* the plan cannot be made ready (does not compile) */
    ARF_FAULT_MEMORY,   /* a space of that many tokens cannot be allocated */
    ARF_FAULT_SLOW,     /* `factor` times slower */
    ARF_FAULT_TIMELESS, /* a timing gives NaN */
    ARF_FAULT_KINDS
} arf_model_fault_kind;

/* Whom and when a fault hits; whatever is left open matches everything. */
#define ARF_FAULT_KNOBS 4
typedef struct arf_model_fault {
    arf_model_fault_kind kind;
    int rank; /* -1: every rank */
    bool has_pattern, has_protocol;
    arf_pattern pattern;
    arf_protocol protocol;
    int knob_count; /* only plans with these values */
    char knob_name[ARF_FAULT_KNOBS][ARF_NAME_TEXT];
    int32_t knob_value[ARF_FAULT_KNOBS];
    int64_t min_tokens, max_tokens;
    double from_seconds,
        until_seconds; /* of the virtual clock: a clock drop is "slow" from then on */
    double factor;
} arf_model_fault;

#define ARF_MODEL_FAULTS 16
typedef struct arf_model {
    char name[ARF_NAME_TEXT]; /* of the device, in the profile */
    int sm_count;
    uint64_t seed;
    double noise;           /* standard deviation of log(time), for each rank and round by itself */
    double placement; /* the same for each plan and M, alike for all its ranks and rounds: what
                         differs from run to run and cannot be seen inside one */
    double outlier_rate;    /* chance that a rank's round is an outlier ... */
    double outlier_factor;  /* ... and how many times slower it is */
    double graph_us;        /* fixed cost of one timed graph, shared by its calls */
    double prepare_seconds; /* virtual time to make a plan ready */
    double pause_seconds;   /* real time that each timing sleeps, so that a test can interrupt it */
    arf_model_curve curve[ARF_PATTERNS][ARF_PROTOCOLS];
    int fault_count;
    arf_model_fault fault[ARF_MODEL_FAULTS];
} arf_model;

/* The built-in model: LL wins few tokens, BT the middle, HT many. */
void arf_model_default(arf_model *model);

/*
 * `spec` is what follows "model:" in a device option: "default" or a file (tests/fixtures/model has
 * some; src/device/model/README.md says what stands in them), then overrides of single numbers,
 * as in "default,seed=7,noise=0.02". Refusals are ARFUSE_USAGE for the spec and ARFUSE_PROFILE for
 * the file, which names file, JSON path and value.
 */
arfuse_status arf_model_load(const char *spec, arf_model *model, arf_error *error);

/* The truth in microseconds under a policy. `then` is the allreduce plan behind a separate
 * finalize, else NULL. Faults play no part in it. */
double arf_model_time(const arf_model *model, const arf_shape *shape, arf_policy policy,
                      arf_pattern pattern, const arf_plan *plan, const arf_plan *then,
                      int64_t tokens);

/* What one rank measures in one round: the truth with noise and outliers, a pure function of
 * (seed, rank, plan, M, round). Faults and the cost of the graph are not in it. */
double arf_model_noisy(const arf_model *model, const arf_shape *shape, arf_policy policy,
                       arf_pattern pattern, const arf_plan *plan, const arf_plan *then,
                       int64_t tokens, int rank, int64_t round);

/* True when the fault hits this plan on this rank at this time. `plan` NULL and `tokens` 0 match
 * any. */
bool arf_model_fault_hits(const arf_model_fault *fault, int rank, arf_pattern pattern,
                          const arf_plan *plan, int64_t tokens, double seconds);

#endif
