/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HT's cases: every knob at several values, between plans of other protocols, which share the
 * workspace but not the mailboxes. Blocks of many warps take many switches.
 */
#include "emulator/ht_cases.h"

/* clang-format off */
/* Consumer threads and packs of each; stages; reducing warps; shards of a token; norm groups and the
 * rows of each in flight. */
#define HT(pattern, threads, vectors, stages, warps, shards, groups, rows)                                \
    "ht." #pattern " consumer_threads=" #threads " vectors_per_thread=" #vectors " stages=" #stages      \
    " reduction_warps=" #warps " shards=" #shards " rms_token_groups=" #groups " rms_pipeline_stages=" #rows

const team_case ht_cases[] = {
    {"ht: one grid of four ranks", .hidden = 512, .ranks = 4, .local = 4, .top_k = 3, .norm = 1, .residual = 1,
     .shared = 1, .capacity = 11, .weight = 4, .mute = 1, /* 64 packs; shards of 22 or 21 */
     .plan = {HT(allreduce, 64, 1, 2, 1, 3, 2, 1),
              HT(finalize, 32, 2, 3, 2, 1, 1, 2),
              HT(finalize, 32, 1, 4, 1, 5, 1, 3) " reduction_cta_groups=1"}},
    {"ht: two processes, between other protocols", .hidden = 512, .ranks = 2, .local = 1, .top_k = 2, .norm = 1,
     .residual = 1, .shared = 0, .capacity = 7, .weight = 4,
     .plan = {HT(allreduce, 64, 1, 2, 2, 2, 2, 2),
              HT(finalize, 64, 1, 2, 1, 7, 1, 1) " persistent_ctas=7",
              "ll.allreduce threads=64 collect_threads=64 collect_cluster=1",
              "bt.finalize threads=64 reduction_threads=64 rms_threads=64 prefetch_group=2",
              "unfused.allreduce rms_threads=64"}},
    {"ht: three processes of two ranks, tokens of many tiles", .hidden = 1024, .ranks = 6, .local = 2, .top_k = 2,
     .norm = 1, .residual = 0, .shared = 1, .capacity = 8, .weight = 6,
     .plan = {HT(allreduce, 128, 1, 2, 4, 16, 4, 1),
              HT(finalize, 32, 1, 5, 1, 4, 1, 1),
              HT(allreduce, 64, 1, 3, 1, 8, 2, 3)}},
    {"ht: without the norm", .hidden = 256, .ranks = 3, .local = 1, .top_k = 4, .norm = 0, .residual = 1,
     .shared = 1, .capacity = 17, .weight = 6,
     .plan = {HT(allreduce, 32, 1, 2, 1, 2, 1, 1),
              HT(finalize, 32, 1, 3, 2, 32, 1, 2)}},
    {"ht: more slots than lanes, and a rank of its own", .hidden = 256, .ranks = 1, .local = 1, .top_k = 40,
     .norm = 1, .residual = 1, .shared = 0, .capacity = 5, .weight = 4,
     .plan = {HT(finalize, 32, 1, 2, 1, 3, 1, 1)}},
    {"ht: more ranks than a subtree in flight", .hidden = 256, .ranks = 12, .local = 6, .top_k = 2, .norm = 1,
     .residual = 1, .shared = 1, .capacity = 14, .weight = 4,
     .plan = {HT(allreduce, 32, 1, 2, 1, 2, 1, 1),
              HT(finalize, 32, 1, 2, 8, 1, 1, 1)}},
    {"ht: rows too large for registers", .hidden = 2304, .ranks = 2, .local = 2, .top_k = 2, .norm = 1,
     .residual = 1, .shared = 1, .capacity = 5, .weight = 4, /* three rows of nine packs a thread */
     .plan = {HT(finalize, 32, 3, 2, 1, 2, 1, 3)}},
};
/* clang-format on */
const int ht_case_count = sizeof ht_cases / sizeof ht_cases[0];
