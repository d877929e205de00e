/* SPDX-License-Identifier: Apache-2.0 */
/* The insides of a team of emulated ranks, for the team*.c files. */
#ifndef TESTS_EMULATOR_TEAM_STATE_H
#define TESTS_EMULATOR_TEAM_STATE_H

#include "device/cuda/layout.h"
#include "device/cuda/recipe.h"
#include "device/reference.h"
#include "emulator/machine.h"
#include "emulator/team.h"

enum { MOST_UNITS = 96, MOST_RANKS = 16 };
#define POISON ((arf_bf16)0x7fa5) /* a NaN that nobody writes */

typedef struct team_plan {
    arf_pattern pattern;
    arf_plan plan;
    arf_recipe recipe;
    emu_unit *unit[ARF_MAX_STEPS];
    /* The first kernel for one local rank fewer, where it publishes; its unit NULL where not. */
    arf_step mute_step;
    emu_unit *mute_unit;
} team_plan;

struct emu_team {
    const team_case *about;
    arf_shape shape;
    arf_layout layout;
    arf_space_spec spec;
    int plans, units;
    team_plan plan[TEAM_PLANS];
    emu_unit *unit[MOST_UNITS], *producer;
};

/* A call of one run, on all ranks. */
typedef struct team_call {
    const team_plan *plan, *then;
    int64_t tokens;
    arf_trial_data data;
    arfuse_operands given[MOST_RANKS]; /* as the reference sees them */
    arfuse_operands seen[MOST_RANKS];  /* as the kernels do */
    float *inverse[MOST_RANKS];
    bool residual_in_place, input_in_place;
    bool mute; /* the last rank has no part in the first kernel */
} team_call;

typedef struct block_of_memory block_of_memory;
typedef struct team_state {
    emu_team *team;
    const team_story *story;
    int lost_at; /* the call in which a rank is lost; INT32_MAX: none is */
    emu_engine *engine;
    block_of_memory *memory;
    char *segment[MOST_RANKS], *scratch[MOST_RANKS];
    arf_word *mirror[MOST_RANKS]; /* of each process */
    arf_team_view *view[MOST_RANKS];
    team_call *call;
} team_state;

/* ---- team_call.c ----------------------------------------------------------------------------- */

/* The kernel that writes the operands on the stream before a call. */
void team_produce(const void *call, const void *team, const void *operands);
/* Segments, views and mirrors of all ranks, as a space has them at first; and what was made. */
void team_make_memory(team_state *state);
void team_free_memory(team_state *state);
void team_make_operands(team_state *state, team_call *call, int rank);
/* The first `most` kernels of the call on one process's stream. */
void team_launch_call(team_state *state, team_call *call, int process, int most);

#endif
