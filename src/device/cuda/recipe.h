/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan's recipe: which kernels run in which order, compiled with which macros,
 * launched with which blocks (kernels/arguments.h). A pure function of shape,
 * team and plan, so it is checked without a GPU.
 */
#ifndef ARF_DEVICE_CUDA_RECIPE_H
#define ARF_DEVICE_CUDA_RECIPE_H

#include "base/error.h"
#include "rules/knobs.h"

/* How the blocks of a grid follow from the token count. */
typedef enum arf_grid_rule {
    ARF_GRID_ROWS,      /* one row of blocks a token */
    ARF_GRID_VALUES,    /* `values` bf16 values a block, over all tokens */
    ARF_GRID_OWNED,     /* a thread a pack of what the busiest owner reduces */
    ARF_GRID_PERSISTENT /* `blocks`, or fewer where a call has no work for them */
} arf_grid_rule;

#define ARF_MAX_DEFINES 16
#define ARF_DEFINE_TEXT 32

typedef struct arf_step {
    const char *kernel; /* "ll_publish": file ll_publish.cu, function arf_ll_publish */
    int defines;
    char define[ARF_MAX_DEFINES][ARF_DEFINE_TEXT]; /* "-DARF_H=6144" */
    int local_ranks;                               /* grid.x is this times the rows */
    int threads;
    int cluster; /* blocks of a cluster, along y; 1: none */
    int parts;   /* grid.y */
    arf_grid_rule rule;
    int values;            /* ARF_GRID_VALUES */
    bool slices;           /* ARF_GRID_OWNED: a slice of every token, not whole tokens */
    int blocks;            /* ARF_GRID_PERSISTENT: at most; 0: as many as are resident at once */
    int reducing_warps;    /* the same: of a block, a shard each */
    int shards, reducers;  /* of arf_call */
    unsigned shared_bytes; /* dynamic */
    unsigned flags;        /* of arf_call */
    bool dependent;        /* programmatic stream serialisation */
    bool waits;            /* for what other ranks send */
    bool resident;         /* and sends itself: all its blocks must be on the GPU at once */
    bool from_scratch;     /* takes the finalized contribution as its input */
} arf_step;

#define ARF_MAX_STEPS 4
typedef struct arf_recipe {
    int steps;
    arf_step step[ARF_MAX_STEPS];
} arf_recipe;

/* ARFUSE_NOT_SUPPORTED names what these kernels do not have. The plan must be legal by the rules
 * of set `arfuse`; what they leave open is checked here. */
arfuse_status arf_recipe_make(const arf_shape *shape, int local_ranks, arf_pattern pattern,
                              const arf_plan *plan, arf_recipe *recipe, arf_error *error);

/* Macros that a kernel without knobs (team_barrier, filler) is compiled with. */
void arf_recipe_plain(const arf_shape *shape, int local_ranks, const char *kernel, int threads,
                      arf_step *step);

/* Rows of blocks for `tokens` >= 1: grid.x is this times the local ranks. */
int64_t arf_step_rows(const arf_step *step, const arf_shape *shape, int64_t tokens);

#endif
