/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legality: may this plan run for this shape, and if not, which rule forbids it.
 * Pure functions of the problem: equal on every rank by construction.
 */
#ifndef ARF_RULES_LEGAL_H
#define ARF_RULES_LEGAL_H

#include <stddef.h>

#include "rules/words.h"

/* What a kernel set's build can do beyond the published rules. */
typedef struct arf_capabilities {
    bool predicated_tail; /* HT: a shard need not divide into whole reduction warps */
    bool ht_without_norm; /* HT with rms_norm off */
    bool any_rank_count;  /* 1..72 instead of 2, 4, 8, 16 */
    bool reaches_ht;      /* has HT at all */
    bool shards_by_ranks; /* HT cuts a token into R shards; false: the shard count is a knob */
} arf_capabilities;
arf_capabilities arf_set_capabilities(arf_set set);

/* What legality may depend on besides the plan. */
typedef struct arf_problem {
    arf_set set;
    arf_shape shape;
    int sm_count;     /* 0: host, or not known: no rule counts SMs then */
    int shared_bytes; /* shared memory one block may use; 0: ARF_SHARED_BYTES */
    unsigned lacks;   /* bits 1 << protocol: the device has no code for it, whatever the tuning */
    const char *no_library; /* why there is no library to reduce; NULL: there is one, as the set
                               allows. Outlives the problem */
} arf_problem;
/* 227 KiB: the most dynamic shared memory of one block on sm_90, sm_100 and sm_103
 * (CUDA C++ Programming Guide, compute capability table). */
#define ARF_SHARED_BYTES (227 * 1024)

#define ARF_REASON_TEXT 256

/*
 * True when the plan is legal. Otherwise `reason` (may be NULL) says which rule it breaks, with
 * the numbers: "reduction_warps 2: a shard of 96 packs is no multiple of 32 x 2".
 */
bool arf_legal(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
               char reason[ARF_REASON_TEXT]);

/*
 * As arf_legal, without the two rules that no public constructor checks although the kernels need
 * them (whole warps in a norm group, stages within shared memory): what a public engine would
 * launch. For comparison with published counts; nothing is ever run by it.
 */
bool arf_legal_upstream(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan,
                        char reason[ARF_REASON_TEXT]);

/* The least demanding plan of a protocol: legal whenever any plan is. */
arf_plan arf_least_plan(arf_set set, arf_pattern pattern, arf_protocol protocol);

/* True when any legal plan of the protocol exists; else `reason` says why none can. */
bool arf_reachable(const arf_problem *problem, arf_pattern pattern, arf_protocol protocol,
                   char reason[ARF_REASON_TEXT]);

/* True when the plan is legal only because the set has the predicated tail (legal.h,
 * arf_capabilities): a set without it would refuse. */
bool arf_needs_tail(const arf_problem *problem, arf_pattern pattern, const arf_plan *plan);

/* HT's shard split: consumer threads x packs a thread for one token a stage. */
typedef struct arf_split {
    int consumer_threads, vectors_per_thread;
} arf_split;
/* The derived split of rules.md section 5 (v1): the largest multiple of 32 at most min(928, P/2)
 * that divides P. False: none (H=2880). */
bool arf_derived_split(int hidden_size, arf_split *split);
/* The same with a limit of its own in place of 928 (v2: what the reduction warps leave of a block).
 */
bool arf_derived_split_below(int hidden_size, int limit, arf_split *split);

/* Blocks that one token's publish takes: ceil(H / (elements x threads)). */
int arf_publish_blocks(int hidden_size, int elements_per_thread, int threads);

/* Blocks of the persistent HT kernel: the SMs, rounded down to whole groups of `shards` blocks.
 * 148 SMs and 8 shards: 144. */
int arf_ht_blocks(int sm_count, int shards);

/* Puts a number where the plan leaves a knob null: what building the kernel would derive for
 * problem->sm_count, which must be known, and no more blocks
 * than that allows. */
void arf_derive_knobs(const arf_problem *problem, arf_pattern pattern, arf_plan *plan);

/* Tokens that `rank` owns of `tokens` (owner of m is m mod R): 13 over 8 is 2,2,2,2,2,1,1,1. */
int64_t arf_owned_tokens(int64_t tokens, int tp_size, int rank);

#endif
