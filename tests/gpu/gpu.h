/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the GPU tests share: a device that hosts all ranks of a team, TAP lines,
 * graphs of one call. The tests look inside the cuda device, since they capture,
 * count memory and break ranks.
 */
#ifndef ARF_TESTS_GPU_GPU_H
#define ARF_TESTS_GPU_GPU_H

#include "device/cuda/cuda_device.h"
#include "device/trial.h"

/* One process with `ranks` local ranks on GPU 0. */
typedef struct gpu_team {
    arf_team team;
    arf_cuda *cuda;
} gpu_team;

/* False: no node of GPU 0 here, so the test is to be skipped. */
bool gpu_present(void);
arfuse_status gpu_open(gpu_team *gpu, int ranks, arf_error *error);
void gpu_close(gpu_team *gpu);

/* TAP: numbered lines; gpu_done prints the plan and returns the exit status. */
void gpu_ok(bool passed, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gpu_report(arfuse_status status, const arf_error *error, const char *what);
void gpu_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gpu_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
int gpu_done(void);

double gpu_seconds(void); /* monotonic */

/* One captured launch. */
arfuse_status gpu_capture(arf_cuda_space *space, const arf_launch *launch, CUgraphExec *graph,
                          arf_error *error);
/* Ends any capture; `status` is that of what was captured, and a failing one comes back. */
arfuse_status gpu_end_capture(const arf_driver *driver, CUstream stream, arfuse_status status,
                              CUgraphExec *graph, arf_error *error);
arfuse_status gpu_replay(arf_cuda_space *space, CUgraphExec graph, arf_error *error);
void gpu_drop(arf_cuda_space *space, CUgraphExec graph); /* accepts NULL */

/* Synchronises the legacy and the private stream, and fails when a wait has expired. */
arfuse_status gpu_finish(arf_cuda_space *space, arf_error *error);

/* A plan of the set `arfuse` with every knob at its fallback; and one knob of it changed. */
arf_plan gpu_plan(arf_protocol protocol, arf_pattern pattern);
/* One of the HT plans that a search of this shape begins with; false: the shape has none. */
bool gpu_ht_plan(const arf_shape *shape, arf_pattern pattern, int which, arf_plan *plan);
void gpu_set(arf_plan *plan, arf_pattern pattern, const char *knob, int value);
/* Every protocol and pattern, and its larger choices: number `index`, for a shape that has HT. */
enum { GPU_FORMS = 17 };
arf_plan gpu_form(const arf_shape *shape, int index, arf_pattern *pattern);
/* Prepares a launch's plan, and for a separate finalize the LL allreduce behind it. */
arfuse_status gpu_prepare(arf_cuda_space *space, const arf_plan *plan, arf_launch *launch,
                          arf_error *error);

/* Compiles one step into the cache; needs no GPU. */
arfuse_status gpu_compile(arf_compiler *compiler, const arf_step *step, arf_error *error);
/* All steps of a plan, and of the LL plan behind a separate finalize. */
arfuse_status gpu_compile_plan(arf_compiler *compiler, const arf_shape *shape, int local_ranks,
                               arf_pattern pattern, const arf_plan *plan, arf_error *error);

/* xorshift: tests are a function of their seed. */
uint64_t gpu_random(uint64_t *state);
int gpu_pick(uint64_t *state, int count);

#endif
