/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A team of ranks on the emulated machine: segments, plans, calls, and the
 * comparison with the reference. Recipes, grids and offsets are those of
 * src/device/cuda.
 *
 * Ranks are hosted by processes of `local` ranks each, and each process has a
 * stream of its own: nothing but the protocols holds the processes together.
 */
#ifndef TESTS_EMULATOR_TEAM_H
#define TESTS_EMULATOR_TEAM_H

#include "device/trial_data.h"
#include "emulator/engine.h"

enum { TEAM_PLANS = 16 };

/* What a case is about; the plans are words as in a profile:
 * "ll.allreduce threads=32 collect_threads=64". */
typedef struct team_case {
    const char *name;
    int hidden, ranks, local, top_k;
    int norm, residual, shared; /* switches */
    int capacity;
    unsigned weight; /* of the switches that a case may take, so many shares; 0: one */
    int mute;        /* one process: its last rank can be left out of a call's first kernel, as
                        gpu_faults_test does it */
    const char *plan[TEAM_PLANS]; /* a separate finalize is followed by any allreduce plan */
} team_case;

/* One line a unit on stdout: digest, kernel, macros. For the compiler. */
bool team_list_units(const team_case *about);

typedef struct emu_team emu_team;
/* Opens the units, which lie in `folder`. NULL: `why` says it. */
emu_team *team_open(const team_case *about, const char *folder, char *why, size_t room);
void team_close(emu_team *team);

/* What happens in one run. */
typedef struct team_story {
    uint64_t seed;
    int calls;
    uint64_t wait_limit_ns;
    int lost; /* a process that ends after `lost_at` calls and `lost_steps` kernels; -1 */
    int lost_at, lost_steps;
    bool mute; /* no process is lost: the last rank has no part in the first kernel of call
                  `lost_at`, or of the first one behind it that publishes with its first kernel */
} team_story;
typedef struct team_tally {
    uint64_t runs, calls, switches;
} team_tally;
/* False: `why` says what was wrong. */
bool team_run(emu_team *team, const team_story *story, team_tally *tally, char *why, size_t room);

#endif
