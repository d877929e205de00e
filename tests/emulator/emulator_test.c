/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of kernels/ on the emulated machine, bit for bit against the reference, under many
 * interleavings. Prints TAP; a failure prints its seed.
 *
 *   emulator_test --units [CASE]      what must be compiled: digest, kernel, macros
 *   emulator_test FOLDER [CASE]       runs the cases, or the one, with the units in FOLDER
 *
 * Every case runs seeds 0, 1, 2 ... until it has used its share of switches, so that wide ones do
 * not take all the time. ARFUSE_TEST_SEED=n runs one seed; ARFUSE_TEST_SEEDS=n that many a case.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/fiber.h"
#include "emulator/ht_cases.h"
#include "emulator/team.h"

/* Small blocks and rows, so that everything has several: a switch costs as much as on wide ones. */
/* clang-format off */
static const team_case cases[] = {
    {"ll, each rank a process", .hidden = 272, .ranks = 3, .local = 1, .norm = 1, .residual = 1,
     .capacity = 4,
     .plan = {"ll.allreduce threads=32 elements_per_thread=4 collect_threads=32 collect_cluster=2",
              "ll.allreduce kernels=1 collect_threads=64 collect_cluster=1"}},
    {"bt, each rank a process", .hidden = 72, .ranks = 3, .local = 1, .norm = 1, .residual = 1,
     .capacity = 4,
     .plan = {"bt.allreduce threads=32 reduction_threads=32 rms_threads=32",
              "bt.allreduce owner=1 threads=32 vectors_per_thread=8 reduction_threads=32 rms_threads=32",
              "bt.allreduce kernels=1 rms_threads=32 rms_cluster=2",
              "bt.allreduce kernels=1 owner=1 rms_threads=64"}},
    {"unfused, each rank a process", .hidden = 72, .ranks = 3, .local = 1, .norm = 1, .residual = 1,
     .capacity = 4,
     .plan = {"unfused.allreduce rms_threads=32"}},
    {"four ranks in one grid", .hidden = 264, .ranks = 4, .local = 4, .top_k = 6,
     .norm = 1, .residual = 1, .shared = 1, .capacity = 5, .mute = 1,
     .plan = {"ll.allreduce threads=32 elements_per_thread=4 collect_threads=32 collect_cluster=2",
              "ll.finalize threads=64 elements_per_thread=2 release_before_store=1 collect_threads=32 collect_cluster=3 collect_lanes=2 prefetch_group=4",
              "ll.allreduce kernels=1 collect_threads=64 collect_cluster=1 collect_lanes=4",
              "ll.finalize kernels=1 collect_threads=32 collect_cluster=2 prefetch_group=1",
              "bt.allreduce threads=32 vectors_per_thread=2 reduction_threads=32 rms_threads=64",
              "bt.finalize threads=32 reduction_threads=32 rms_threads=32 prefetch_group=4",
              "bt.allreduce threads=32 release_before_store=1 reduction_threads=32 rms_threads=32 rms_cluster=2",
              "bt.finalize kernels=1 rms_threads=32 rms_cluster=2 prefetch_group=6",
              "unfused.allreduce rms_threads=64",
              "unfused.finalize threads=32 rms_threads=32",
              "separate.finalize threads=32 elements_per_thread=4 release_before_store=1 prefetch_group=4"}},
    {"eight ranks, each a process", .hidden = 64, .ranks = 8, .local = 1, .top_k = 3,
     .norm = 1, .residual = 1, .shared = 1, .capacity = 5,
     .plan = {"ll.allreduce threads=32 elements_per_thread=2 release_before_store=1 collect_threads=32 collect_cluster=1 collect_lanes=8",
              "ll.finalize threads=32 elements_per_thread=1 early_shared=1 collect_threads=32 collect_cluster=2 prefetch_group=2",
              "ll.finalize kernels=1 collect_threads=32 collect_cluster=1 collect_lanes=2",
              "bt.allreduce owner=1 threads=32 reduction_threads=32 rms_threads=32 enable_pdl=0",
              "bt.finalize owner=1 threads=32 elements_per_thread=2 early_shared=1 reduction_threads=32 rms_threads=32",
              "bt.finalize kernels=1 owner=1 rms_threads=32 prefetch_group=3",
              "unfused.finalize threads=32 rms_threads=32",
              "separate.finalize threads=32 elements_per_thread=1 prefetch_group=1"}},
    {"two processes of two ranks", .hidden = 96, .ranks = 4, .local = 2, .top_k = 20,
     .norm = 1, .residual = 1, .shared = 0, .capacity = 5,
     .plan = {"ll.finalize threads=32 collect_threads=32 collect_cluster=1 collect_lanes=4 prefetch_group=20",
              "ll.allreduce kernels=1 collect_threads=32 collect_cluster=2",
              "bt.finalize threads=64 elements_per_thread=1 release_before_store=1 reduction_threads=64 rms_threads=32 prefetch_group=3",
              "bt.allreduce owner=1 threads=64 vectors_per_thread=1 reduction_threads=32 rms_threads=32",
              "bt.finalize kernels=1 owner=1 rms_threads=32 rms_cluster=3 prefetch_group=20",
              "unfused.allreduce rms_threads=32"}},
    {"no norm", .hidden = 40, .ranks = 2, .local = 1, .top_k = 2, .norm = 0, .residual = 1,
     .shared = 1, .capacity = 3,
     .plan = {"ll.allreduce threads=32 collect_threads=32 collect_cluster=2",
              "ll.finalize kernels=1 collect_threads=32 collect_cluster=1 collect_lanes=2",
              "bt.finalize threads=32 reduction_threads=32 rms_threads=32",
              "bt.allreduce kernels=1 rms_threads=32",
              "unfused.finalize threads=32 rms_threads=32"}},
    {"no residual, no shared expert", .hidden = 136, .ranks = 3, .local = 3, .top_k = 1,
     .norm = 1, .residual = 0, .shared = 0, .capacity = 4,
     .plan = {"ll.finalize threads=32 collect_threads=32 collect_cluster=2 collect_lanes=2",
              "ll.allreduce kernels=1 collect_threads=32 collect_cluster=3",
              "bt.finalize threads=32 reduction_threads=32 rms_threads=32",
              "bt.finalize kernels=1 rms_threads=32 rms_cluster=2",
              "unfused.allreduce rms_threads=32",
              "separate.finalize threads=32"}},
    {"one pack a token, five ranks", .hidden = 8, .ranks = 5, .local = 1, .top_k = 2, .norm = 1,
     .residual = 1, .shared = 1, .capacity = 7,
     .plan = {"ll.finalize threads=32 elements_per_thread=1 collect_threads=32 collect_cluster=1",
              "bt.allreduce threads=32 reduction_threads=32 rms_threads=32",
              "unfused.allreduce rms_threads=32"}},
    {"sixteen ranks in one grid", .hidden = 128, .ranks = 16, .local = 16, .norm = 1, .residual = 1,
     .capacity = 2,
     .plan = {"ll.allreduce threads=32 collect_threads=32 collect_cluster=1 collect_lanes=1",
              "ll.allreduce kernels=1 collect_threads=32 collect_cluster=2 collect_lanes=4",
              "bt.allreduce owner=1 threads=32 reduction_threads=32 rms_threads=32",
              "bt.allreduce kernels=1 owner=1 rms_threads=32",
              "unfused.allreduce rms_threads=32"}},
    {"wide rows", .hidden = 2880, .ranks = 2, .local = 2, .top_k = 2, .norm = 1, .residual = 1,
     .shared = 1, .capacity = 2,
     .plan = {"ll.allreduce threads=128 collect_threads=64 collect_cluster=5",
              "ll.finalize kernels=1 collect_threads=128 collect_cluster=3 collect_lanes=2",
              "bt.finalize threads=64 reduction_threads=64 rms_threads=320",
              "bt.allreduce kernels=1 rms_threads=64",
              "bt.finalize kernels=1 owner=1 rms_threads=128 rms_cluster=3"}},
};
/* clang-format on */
enum { CASES = sizeof cases / sizeof cases[0] };

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static bool run_case(const team_case *about, const char *folder, uint64_t first, uint64_t seeds,
                     uint64_t share)
{
    char why[1200] = "";
    team_tally tally = {0};
    emu_team *team = team_open(about, folder, why, sizeof why);
    bool good = team != NULL;
    for (uint64_t seed = first; good && seed - first < seeds &&
                                tally.switches / (about->weight ? about->weight : 1) < share;
         seed++) {
        char what[1100];
        const int processes = about->ranks / about->local;
        team_story story = {.seed = seed, .calls = 8, .wait_limit_ns = 100000000000, .lost = -1};
        if (processes > 1 && seed % 4 == 3) {
            story.wait_limit_ns = 50000000; /* far beyond what a slow rank takes */
            story.lost = (int)(seed / 4 % (uint64_t)processes);
            story.lost_at = (int)(seed / 8 % 4);
            story.lost_steps = (int)(seed / 4 % 3);
        }
        if (about->mute && seed % 4 == 3) {
            story.wait_limit_ns = 50000000;
            story.mute = true;
            story.lost_at = (int)(seed / 4 % 4);
        }
        good = team_run(team, &story, &tally, what, sizeof what);
        if (!good)
            snprintf(why, sizeof why, "seed %llu%s: %s", (unsigned long long)seed,
                     story.lost >= 0 ? " (a lost process)"
                     : story.mute    ? " (a mute rank)"
                                     : "",
                     what);
    }
    printf("# %s: %llu runs, %llu calls, %llu switches\n", about->name,
           (unsigned long long)tally.runs, (unsigned long long)tally.calls,
           (unsigned long long)tally.switches);
    if (!good)
        printf("# %s\n", why);
    if (team != NULL)
        team_close(team);
    return good;
}

int main(int argc, char **argv)
{
    const char *wanted = argc > 2 ? argv[2] : NULL;
    const bool list = argc > 1 && strcmp(argv[1], "--units") == 0;
    const uint64_t seeds = number("ARFUSE_TEST_SEEDS", UINT64_MAX);
    const uint64_t million = 1000 * 1000;
    const uint64_t share = seeds != UINT64_MAX                  ? UINT64_MAX
                           : getenv("ARFUSE_TEST_LONG") != NULL ? 12 * million
                                                                : million;
    const uint64_t one = number("ARFUSE_TEST_SEED", UINT64_MAX);
    int ran = 0, failed = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: emulator_test --units|FOLDER [CASE]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < CASES + ht_case_count; i++) {
        const team_case *about = i < CASES ? &cases[i] : &ht_cases[i - CASES];
        if (wanted != NULL && strcmp(wanted, about->name) != 0)
            continue;
        ran++;
        if (list) {
            failed += !team_list_units(about);
            continue;
        }
        const bool good = one != UINT64_MAX ? run_case(about, argv[1], one, 1, share)
                                            : run_case(about, argv[1], 0, seeds, share);
        printf("%sok %d - %s\n", good ? "" : "not ", ran, about->name);
        failed += !good;
    }
    if (!list)
        printf("1..%d\n", ran);
    emu_fibers_free();
    return ran == 0 || failed > 0;
}
