/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/cuda/ahead.h"
#include "rules/seeds.h"

/* ---- device --------------------------------------------------------------------------------- */

bool gpu_present(void)
{
    return access("/dev/nvidia0", F_OK) == 0;
}

arfuse_status gpu_open(gpu_team *gpu, int ranks, arf_error *error)
{
    static const arfuse_bootstrap alone = ARFUSE_BOOTSTRAP_INIT;
    arf_device_options options = {.spec = "cuda", .cuda_ordinal = 0, .gpu_sharing = true};
    arf_device *device = NULL;
    gpu->cuda = NULL;
    ARF_TRY(arf_team_create(&alone, ranks, &gpu->team, error));
    ARF_TRY(arf_cuda_device.open(&options, &gpu->team, &device, error));
    gpu->cuda = (arf_cuda *)device;
    return ARFUSE_OK;
}

void gpu_close(gpu_team *gpu)
{
    if (gpu->cuda != NULL)
        arf_cuda_device.close(&gpu->cuda->base);
    gpu->cuda = NULL;
}

/* ---- TAP ------------------------------------------------------------------------------------ */

static int lines, failures;

static void line(const char *verdict, const char *format, va_list arguments)
{
    printf("%s %d - ", verdict, ++lines);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
}

void gpu_ok(bool passed, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    line(passed ? "ok" : "not ok", format, arguments);
    va_end(arguments);
    failures += !passed;
}

void gpu_report(arfuse_status status, const arf_error *error, const char *what)
{
    gpu_ok(status == ARFUSE_OK, "%s", what);
    if (status != ARFUSE_OK)
        gpu_note("  %s", error->text);
}

void gpu_skip(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("ok %d # SKIP ", ++lines);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

void gpu_note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("# ");
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
}

int gpu_done(void)
{
    printf("1..%d\n", lines);
    return failures > 0;
}

double gpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static arf_cuda *cuda_of(const arf_cuda_space *space)
{
    return (arf_cuda *)space->base.device;
}

arfuse_status gpu_end_capture(const arf_driver *driver, CUstream stream, arfuse_status status,
                              CUgraphExec *graph, arf_error *error)
{
    CUgraph captured = NULL;
    const CUresult ended = driver->cuStreamEndCapture(stream, &captured);
    if (status == ARFUSE_OK)
        status = arf_driver_check(driver, ended, "cuStreamEndCapture", error);
    if (status == ARFUSE_OK)
        status = ARF_CU(driver, error, cuGraphInstantiateWithFlags, graph, captured, 0);
    if (captured != NULL)
        driver->cuGraphDestroy(captured);
    return status;
}

arfuse_status gpu_capture(arf_cuda_space *space, const arf_launch *launch, CUgraphExec *graph,
                          arf_error *error)
{
    const arf_driver *driver = &cuda_of(space)->driver;
    arf_launch recorded = *launch;
    recorded.stream = (arfuse_stream)space->stream;
    *graph = NULL;
    ARF_TRY(arf_cuda_enter(cuda_of(space), error));
    arfuse_status status = ARF_CU(driver, error, cuStreamBeginCapture, space->stream,
                                  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (status == ARFUSE_OK)
        status = arf_cuda_launch(&space->base, &recorded, error);
    status = gpu_end_capture(driver, space->stream, status, graph, error);
    arf_cuda_leave(cuda_of(space));
    return status;
}

arfuse_status gpu_replay(arf_cuda_space *space, CUgraphExec graph, arf_error *error)
{
    ARF_TRY(arf_cuda_enter(cuda_of(space), error));
    arfuse_status status =
        ARF_CU(&cuda_of(space)->driver, error, cuGraphLaunch, graph, space->stream);
    arf_cuda_leave(cuda_of(space));
    return status;
}

void gpu_drop(arf_cuda_space *space, CUgraphExec graph)
{
    if (graph != NULL)
        cuda_of(space)->driver.cuGraphExecDestroy(graph);
}

arfuse_status gpu_finish(arf_cuda_space *space, arf_error *error)
{
    /* Both, also when the first says that a wait expired earlier: the other may still run. */
    arfuse_status first = arf_cuda_synchronize(&space->base, NULL, error);
    arfuse_status second = arf_cuda_synchronize(&space->base, (arfuse_stream)space->stream, error);
    return first != ARFUSE_OK ? first : second;
}

/* ---- plans ---------------------------------------------------------------------------------- */

arf_plan gpu_plan(arf_protocol protocol, arf_pattern pattern)
{
    return (arf_plan){.protocol = protocol,
                      .transport = ARF_UNICAST,
                      .numerics = ARF_FIXED,
                      .tuning = arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, protocol, pattern))};
}

bool gpu_ht_plan(const arf_shape *shape, arf_pattern pattern, int which, arf_plan *plan)
{
    static arf_plans seeds;
    const arf_problem problem = {.set = ARF_SET_ARFUSE, .shape = *shape};
    arf_seeds(&problem, pattern, ARF_HT, &seeds);
    if (seeds.count > 0)
        *plan = seeds.plan[which % seeds.count];
    return seeds.count > 0;
}

void gpu_set(arf_plan *plan, arf_pattern pattern, const char *knob, int value)
{
    int index = arf_knob_index(arf_knobs(ARF_SET_ARFUSE, plan->protocol, pattern), knob);
    if (index >= 0)
        plan->tuning.value[index] = value;
}

arf_plan gpu_form(const arf_shape *shape, int index, arf_pattern *pattern)
{
    enum { HT_FORM = 13 }; /* from here on */
    static const arf_protocol protocols[] = {ARF_LL, ARF_LL,      ARF_BT,      ARF_BT,
                                             ARF_BT, ARF_UNFUSED, ARF_SEPARATE};
    if (index >= HT_FORM) {
        arf_plan ht = {0};
        *pattern = (arf_pattern)((index - HT_FORM) % ARF_PATTERNS);
        gpu_ht_plan(shape, *pattern, index - HT_FORM, &ht);
        return ht;
    }
    const int form = index / ARF_PATTERNS;
    *pattern = protocols[form] == ARF_SEPARATE ? ARF_FINALIZE : (arf_pattern)(index % ARF_PATTERNS);
    arf_plan plan = gpu_plan(protocols[form], *pattern);
    if (form == 1 || form == 4)
        gpu_set(&plan, *pattern, "kernels", 1);
    gpu_set(&plan, *pattern, "owner", form == 3);
    gpu_set(&plan, *pattern, "release_before_store", form == 3);
    if (protocols[form] == ARF_BT)
        gpu_set(&plan, *pattern, "rms_threads", 512);
    return plan;
}

arfuse_status gpu_prepare(arf_cuda_space *space, const arf_plan *plan, arf_launch *launch,
                          arf_error *error)
{
    ARF_TRY(arf_cuda_prepare(&space->base, launch->pattern, plan, &launch->plan, error));
    launch->then = -1;
    if (plan->protocol != ARF_SEPARATE)
        return ARFUSE_OK;
    arf_plan behind = gpu_plan(ARF_LL, ARF_ALLREDUCE);
    return arf_cuda_prepare(&space->base, ARF_ALLREDUCE, &behind, &launch->then, error);
}

arfuse_status gpu_compile(arf_compiler *compiler, const arf_step *step, arf_error *error)
{
    arf_image image;
    ARF_TRY(arf_compile_step(compiler, step, &image, error));
    arf_image_free(&image);
    return ARFUSE_OK;
}

arfuse_status gpu_compile_plan(arf_compiler *compiler, const arf_shape *shape, int local_ranks,
                               arf_pattern pattern, const arf_plan *plan, arf_error *error)
{
    arf_recipe recipe;
    ARF_TRY(arf_recipe_make(shape, local_ranks, pattern, plan, &recipe, error));
    for (int i = 0; i < recipe.steps; i++)
        ARF_TRY(gpu_compile(compiler, &recipe.step[i], error));
    if (plan->protocol != ARF_SEPARATE)
        return ARFUSE_OK;
    arf_plan behind = gpu_plan(ARF_LL, ARF_ALLREDUCE);
    return gpu_compile_plan(compiler, shape, local_ranks, ARF_ALLREDUCE, &behind, error);
}

/* ---- chance --------------------------------------------------------------------------------- */

uint64_t gpu_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

int gpu_pick(uint64_t *state, int count)
{
    return (int)((gpu_random(state) >> 33) % (uint64_t)count);
}
