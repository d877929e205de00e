/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The insides of the cuda device, for the files of this folder: the device of a
 * process, a space on it, and plans made ready.
 *
 * Every function here that calls the driver does so between arf_cuda_enter and
 * arf_cuda_leave, so that the caller's current context is what it was.
 */
#ifndef ARF_DEVICE_CUDA_CUDA_DEVICE_H
#define ARF_DEVICE_CUDA_CUDA_DEVICE_H

#include "device/cuda/busy.h"
#include "device/cuda/compile.h"
#include "device/cuda/driver.h"
#include "device/cuda/layout.h"
#include "device/cuda/library.h"
#include "device/cuda/links.h"
#include "device/cuda/mps.h"
#include "device/cuda/nvml.h"
#include "device/cuda/ranges.h"
#include "device/cuda/recipe.h"
#include "device/cuda/symmetric.h"
#include "device/cuda/timed_graphs.h"
#include "device/device.h"
#include "device/order.h"

typedef struct arf_cuda {
    arf_device base; /* first */
    arf_driver driver;
    arf_nvml nvml;
    CUdevice device;
    CUuuid uuid;
    CUcontext context; /* the primary one, retained */
    arf_seat seat;
    int node_index, node_processes; /* of the team's processes on this node: which, of how many */
    arf_way way;                    /* how segments travel; NONE: only the library reduces */
    char no_way[800];               /* ... and why */
    char library[ARF_NOTE_TEXT];    /* NCCL and its settings; "": calls do not go by it */
    char no_library[ARF_NOTE_TEXT]; /* "" or why they cannot, where plans may ask for that */
    char timing[ARF_TIMING_TEXT];   /* "" or why times mean nothing here */
    arf_compiler compiler;
    arf_device_key key;
    char driver_text[ARF_NAME_TEXT];
    void *ranges; /* of a profiler; NULL: nobody listens */
    uint64_t l2_bytes;
    int sm_count, sm_all; /* that this process may use (less than all under MPS), that there are */
} arf_cuda;

/* A compiled kernel; plans share them. */
typedef struct arf_kernel {
    uint64_t digest; /* of name and macros */
    CUmodule module;
    CUfunction function;
    int max_threads;       /* by its registers */
    unsigned shared_limit; /* the dynamic shared memory that it was allowed so far */
} arf_kernel;

/* A step of a plan, ready: what a launch adds is the grid, the stream and the arguments. */
typedef struct arf_ready_step {
    arf_step recipe;
    CUfunction function;
    int64_t most_rows;      /* so many fit beside what else waits; INT64_MAX: no limit */
    int64_t dependent_rows; /* more rows than these: no dependent launch, nor of what follows */
    unsigned attributes;
    CUlaunchAttribute attribute[3];
} arf_ready_step;

typedef struct arf_ready_plan {
    arf_pattern pattern;
    arf_plan plan;
    bool library; /* NCCL's collectives go between its kernels */
    int steps;
    arf_ready_step step[ARF_MAX_STEPS];
} arf_ready_plan;

#define ARF_STAMPS 2 /* begin, end */

/* Far above a tuner's few hundred candidates a protocol; fixed, so that launches read without a
 * lock while no table moves. */
#define ARF_MAX_READY_PLANS 4096

typedef struct arf_graph_holds arf_graph_holds; /* graphs.c */

typedef struct arf_cuda_space arf_cuda_space;
struct arf_cuda_space {
    arf_space base; /* first */
    arf_symmetric memory;
    arf_library library;
    arf_ready_step mark; /* around its calls */
    arf_layout layout;
    arf_team_view view;                        /* as kernels get it */
    CUdeviceptr scratch[ARF_VIEW_LOCAL_RANKS]; /* finalized contributions; 0: none */
    CUdeviceptr stamps;                        /* [ARF_STAMPS][local ranks] words: timing */
    volatile arf_word *mirror;                 /* host address of view.mirror[ARF_MIRROR_WORDS] */
    bool broken;                               /* a launch failed half-way */
    arf_graph_holds *holds;                    /* counts the graphs that use the space */
    cuuint64_t capture;                        /* the last one that holds it; 0: none */
    CUstream stream;                           /* private: checks and timing */

    arf_kernel *kernel;
    int kernels, kernel_room;
    arf_ready_plan *plan; /* [ARF_MAX_READY_PLANS] */
    int plans;
    arf_order_seat seat;            /* zero: the order of calls is not watched, and busy is NULL */
    arf_busy *busy;                 /* of the GPU */
    uint32_t busy_number;           /* of this space there */
    arf_ready_step order;           /* writes busy */
    arf_ready_step barrier, filler; /* of timing; function NULL until first used */
    arf_timed_graphs timed;

    /* Device memory [tokens], where kernels write 1 / rms of a local rank; only tests set it. */
    float *inverse_rms[ARF_VIEW_LOCAL_RANKS];
};

arfuse_status arf_cuda_enter(const arf_cuda *device, arf_error *error);
void arf_cuda_leave(const arf_cuda *device);

/* open.c: the steps of opening, each voted on */
arfuse_status arf_cuda_open_steps(arf_cuda *device, const arf_device_options *options,
                                  arf_error *error);

/* space.c */
arfuse_status arf_cuda_space_create(arf_device *device, const arf_space_spec *spec,
                                    arf_space **space, arf_error *error);
void arf_cuda_space_destroy(arf_space *space);
arfuse_status arf_cuda_state(const arf_space *space, arfuse_culprit *culprit);
/* ARFUSE_TIMEOUT in words, when a wait on a peer has expired. */
arfuse_status arf_cuda_expired(const arf_cuda_space *space, arf_error *error);

/* prepare.c */
arfuse_status arf_cuda_prepare(arf_space *space, arf_pattern pattern, const arf_plan *plan, int *id,
                               arf_error *error);
void arf_cuda_precompile(arf_space *space, arf_pattern pattern, const arf_plan *const *plan,
                         int count);
/* Makes one step ready; the context is current. */
arfuse_status arf_cuda_ready(arf_cuda_space *space, const arf_step *recipe, arf_ready_step *ready,
                             arf_error *error);

/* launch.c */
arfuse_status arf_cuda_launch(arf_space *space, const arf_launch *launch, arf_error *error);
void arf_cuda_abandon(arf_space *space, const arf_launch *launch);
/* As abandoning, without a call: the ordering rule was broken. Enters the context. */
void arf_cuda_fail(arf_space *space);
arfuse_status arf_cuda_synchronize(arf_space *space, arfuse_stream stream, arf_error *error);
bool arf_cuda_capturing(const arf_space *space, arfuse_stream stream);
/* One grid; `plain`: without dependent launch. */
CUresult arf_cuda_launch_step(const arf_cuda_space *space, const arf_ready_step *step,
                              arf_call *call, const arf_operand_table *table, bool plain,
                              CUstream stream);
/* What a launch refuses. */
arfuse_status arf_cuda_check(const arf_cuda_space *space, const arf_launch *launch,
                             arf_error *error);
/* Enqueues without looking at the arguments; the context is current. */
arfuse_status arf_cuda_enqueue(arf_cuda_space *space, const arf_launch *launch, CUstream stream,
                               arf_error *error);

/* graphs.c */
arf_graph_holds *arf_graph_holds_new(void);
void arf_graph_holds_release(arf_graph_holds *holds); /* accepts NULL */
/* When the stream is being captured, its graph holds the space; else nothing. */
arfuse_status arf_cuda_hold(arf_cuda_space *space, CUstream stream, arf_error *error);
int arf_cuda_graphs(const arf_space *space);

/* timing.c */
arfuse_status arf_cuda_time(arf_space *space, const arf_launch *launch, const arf_timing *timing,
                            double *us, arf_error *error);

#endif
