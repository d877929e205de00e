/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HT's cases: every knob at several values, between plans of other protocols, which share the
 * workspace but not the mailboxes. Blocks of many warps take many switches.
 */
#include "emulator/ht_cases.h"

const team_case ht_cases[] = {
    {.name = "ht: one grid of four ranks",
     .hidden = 512, /* 64 packs; shards of 22 or 21 */
     .ranks = 4,
     .local = 4,
     .top_k = 3,
     .norm = 1,
     .residual = 1,
     .shared = 1,
     .capacity = 11,
     .weight = 4,
     .mute = 1,
     .plan = {"ht.allreduce consumer_threads=64 vectors_per_thread=1 stages=2 reduction_warps=1 "
              "shards=3 rms_token_groups=2 rms_pipeline_stages=1",
              "ht.finalize consumer_threads=32 vectors_per_thread=2 stages=3 reduction_warps=2 "
              "shards=1 rms_token_groups=1 rms_pipeline_stages=2",
              "ht.finalize consumer_threads=32 vectors_per_thread=1 stages=4 reduction_warps=1 "
              "shards=5 rms_token_groups=1 rms_pipeline_stages=3 reduction_cta_groups=1"}},
    {.name = "ht: two processes, between other protocols",
     .hidden = 512,
     .ranks = 2,
     .local = 1,
     .top_k = 2,
     .norm = 1,
     .residual = 1,
     .shared = 0,
     .capacity = 7,
     .weight = 4,
     .plan = {"ht.allreduce consumer_threads=64 vectors_per_thread=1 stages=2 reduction_warps=2 "
              "shards=2 rms_token_groups=2 rms_pipeline_stages=2",
              "ht.finalize consumer_threads=64 vectors_per_thread=1 stages=2 reduction_warps=1 "
              "shards=7 rms_token_groups=1 rms_pipeline_stages=1 persistent_ctas=7",
              "ll.allreduce threads=64 collect_threads=64 collect_cluster=1",
              "bt.finalize threads=64 reduction_threads=64 rms_threads=64 prefetch_group=2",
              "unfused.allreduce rms_threads=64"}},
    {.name = "ht: three processes of two ranks, tokens of many tiles",
     .hidden = 1024,
     .ranks = 6,
     .local = 2,
     .top_k = 2,
     .norm = 1,
     .residual = 0,
     .shared = 1,
     .capacity = 8,
     .weight = 6,
     .plan = {"ht.allreduce consumer_threads=128 vectors_per_thread=1 stages=2 reduction_warps=4 "
              "shards=16 rms_token_groups=4 rms_pipeline_stages=1",
              "ht.finalize consumer_threads=32 vectors_per_thread=1 stages=5 reduction_warps=1 "
              "shards=4 rms_token_groups=1 rms_pipeline_stages=1",
              "ht.allreduce consumer_threads=64 vectors_per_thread=1 stages=3 reduction_warps=1 "
              "shards=8 rms_token_groups=2 rms_pipeline_stages=3"}},
    {.name = "ht: without the norm",
     .hidden = 256,
     .ranks = 3,
     .local = 1,
     .top_k = 4,
     .norm = 0,
     .residual = 1,
     .shared = 1,
     .capacity = 17,
     .weight = 6,
     .plan = {"ht.allreduce consumer_threads=32 vectors_per_thread=1 stages=2 reduction_warps=1 "
              "shards=2 rms_token_groups=1 rms_pipeline_stages=1",
              "ht.finalize consumer_threads=32 vectors_per_thread=1 stages=3 reduction_warps=2 "
              "shards=32 rms_token_groups=1 rms_pipeline_stages=2"}},
    {.name = "ht: more slots than lanes, and a rank of its own",
     .hidden = 256,
     .ranks = 1,
     .local = 1,
     .top_k = 40,
     .norm = 1,
     .residual = 1,
     .shared = 0,
     .capacity = 5,
     .weight = 4,
     .plan = {"ht.finalize consumer_threads=32 vectors_per_thread=1 stages=2 reduction_warps=1 "
              "shards=3 rms_token_groups=1 rms_pipeline_stages=1"}},
    {.name = "ht: more ranks than a subtree in flight",
     .hidden = 256,
     .ranks = 12,
     .local = 6,
     .top_k = 2,
     .norm = 1,
     .residual = 1,
     .shared = 1,
     .capacity = 14,
     .weight = 4,
     .plan = {"ht.allreduce consumer_threads=32 vectors_per_thread=1 stages=2 reduction_warps=1 "
              "shards=2 rms_token_groups=1 rms_pipeline_stages=1",
              "ht.finalize consumer_threads=32 vectors_per_thread=1 stages=2 reduction_warps=8 "
              "shards=1 rms_token_groups=1 rms_pipeline_stages=1"}},
    {.name = "ht: rows too large for registers",
     .hidden = 2304, /* three rows of nine packs a thread */
     .ranks = 2,
     .local = 2,
     .top_k = 2,
     .norm = 1,
     .residual = 1,
     .shared = 1,
     .capacity = 5,
     .weight = 4,
     .plan = {"ht.finalize consumer_threads=32 vectors_per_thread=3 stages=2 reduction_warps=1 "
              "shards=2 rms_token_groups=1 rms_pipeline_stages=3"}},
};
const int ht_case_count = sizeof ht_cases / sizeof ht_cases[0];
