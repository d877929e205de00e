/* SPDX-License-Identifier: Apache-2.0 */
#ifdef ARF_CUDA

#include "bench/gpu/costs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda/ahead.h"
#include "device/cuda/cuda_device.h"
#include "device/trial.h"
#include "runtime/workspace.h"
#include "tune/interval.h"
#include "tune/voice.h"

/* Calls of a burst: far fewer kernels than the driver queues before it makes the host wait. */
enum { BURST = 16, BURSTS = 31, CREATIONS = 5, MOST_COMPILED = 64, LAUNCH_TOKENS = 1024 };

static const int64_t launch_tokens[] = {1, 16, 128, LAUNCH_TOKENS};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- workspaces --------------------------------------------------------------------------------
 */

static void say(void *context, arfuse_log_level level, const char *line)
{
    (void)context, (void)level;
    arf_voice_warn("%s", line);
}

static arfuse_status make(const arf_device *device, const arf_shape *shape, const char *profile,
                          int64_t capacity, arfuse_workspace **workspace, arf_error *error)
{
    arfuse_options options = ARFUSE_OPTIONS_INIT;
    options.hidden_size = shape->hidden_size;
    options.top_k = shape->top_k;
    options.rms_norm = shape->rms_norm == ARF_ON;
    options.residual = shape->residual == ARF_ON;
    options.shared_expert = shape->shared_expert == ARF_ON;
    options.local_ranks = device->team->local_ranks;
    options.capacity = capacity;
    options.device = "cuda";
    options.cuda_ordinal = ((const arf_cuda *)device)->seat.ordinal;
    options.profile = profile;
    for (int p = 0; p < ARF_PATTERNS; p++)
        options.routes[p] = profile != NULL ? ARFUSE_ROUTES_PROFILE : ARFUSE_ROUTES_DEFAULT;
    options.checked = options.shadow_every = options.check_order = 0;
    options.log = say;
    return arfuse_workspace_create(NULL, &options, workspace, error);
}

/* The first creation fills the cache of kernels; the device's device holds the context. */
static arfuse_status time_creation(const arf_device *device, const arf_shape *shape,
                                   const char *profile, int64_t capacity, double *ms,
                                   arf_error *error)
{
    double turn[CREATIONS];
    for (int i = -1; i < CREATIONS; i++) {
        arfuse_workspace *workspace = NULL;
        const double start = now_us();
        ARF_TRY(make(device, shape, profile, capacity, &workspace, error));
        if (i >= 0)
            turn[i] = (now_us() - start) / 1000;
        ARF_TRY(arfuse_workspace_destroy(&workspace, error));
    }
    *ms = arf_median(turn, CREATIONS);
    return ARFUSE_OK;
}

/* ---- launching ---------------------------------------------------------------------------------
 */

/* A kernel as a call started it. */
typedef struct kernel_start {
    CUlaunchConfig config;
    CUfunction function;
    arf_call call;
    arf_team_view view;
    arf_operand_table table;
} kernel_start;

typedef struct launching {
    arfuse_workspace *workspace;
    arf_trial *trial;
    arf_cuda *device;
    CUstream stream;
    /* Of the call in hand. */
    arf_pattern pattern;
    arfuse_call call;
    int kernels;
    kernel_start bare[2 * ARF_MAX_STEPS];
} launching;

/* Stands in for the driver's function while a call is written down: it takes no context. */
static launching *listening;
static CUresult (*start_kernel)(const CUlaunchConfig *config, CUfunction function,
                                void **parameters, void **extra);

static CUresult write_down(const CUlaunchConfig *config, CUfunction function, void **parameters,
                           void **extra)
{
    kernel_start *bare = &listening->bare[listening->kernels++];
    *bare = (kernel_start){.config = *config, .function = function};
    memcpy(&bare->call, parameters[0], sizeof bare->call);
    memcpy(&bare->view, parameters[1], sizeof bare->view);
    memcpy(&bare->table, parameters[2], sizeof bare->table);
    return start_kernel(config, function, parameters, extra);
}

/* The same kernels on the same operands: what a caller would pay who had them at hand. */
static arfuse_status start_bare(launching *l, arf_error *error)
{
    for (int i = 0; i < l->kernels; i++) {
        kernel_start *bare = &l->bare[i];
        void *parameters[] = {&bare->call, &bare->view, &bare->table};
        ARF_TRY(ARF_CU(&l->device->driver, error, cuLaunchKernelEx, &bare->config, bare->function,
                       parameters, NULL));
    }
    return ARFUSE_OK;
}

static arfuse_status start_call(launching *l, arf_error *error)
{
    const arfuse_operands *operands = arf_trial_operands(l->trial);
    return l->pattern == ARF_ALLREDUCE ? arfuse_allreduce(l->workspace, &l->call, operands, error)
                                       : arfuse_finalize(l->workspace, &l->call, operands, error);
}

/* Microseconds of the host for one; the GPU is idle before and works off the burst behind. */
static arfuse_status burst(launching *l, arfuse_status (*start)(launching *, arf_error *),
                           double *us, arf_error *error)
{
    ARF_TRY(ARF_CU(&l->device->driver, error, cuStreamSynchronize, l->stream));
    const double began = now_us();
    for (int i = 0; i < BURST; i++)
        ARF_TRY(start(l, error));
    *us = (now_us() - began) / BURST;
    return ARFUSE_OK;
}

/* One call, and the kernels that it starts. */
static arfuse_status overhear(launching *l, arf_error *error)
{
    l->kernels = 0;
    listening = l;
    start_kernel = l->device->driver.cuLaunchKernelEx;
    l->device->driver.cuLaunchKernelEx = write_down;
    const arfuse_status status = start_call(l, error);
    l->device->driver.cuLaunchKernelEx = start_kernel;
    return status;
}

static bool by_library(const launching *l)
{
    const arf_cuda_space *space = (const arf_cuda_space *)l->workspace->space;
    const arf_service service = arf_serve(l->workspace, l->pattern, &l->call);
    return space->plan[service.plan].library ||
           (service.then >= 0 && space->plan[service.then].library);
}

static arfuse_status time_launch(launching *l, host_costs *costs, arf_error *error)
{
    double call[BURSTS], bare[BURSTS], unused;
    if (by_library(l))
        return ARFUSE_OK; /* its kernels are not counted here */
    ARF_TRY(overhear(l, error));
    for (int i = 0; i < BURSTS; i++) {
        if (i == 0) { /* warm both */
            ARF_TRY(burst(l, start_call, &unused, error));
            ARF_TRY(burst(l, start_bare, &unused, error));
        }
        ARF_TRY(burst(l, start_call, &call[i], error));
        ARF_TRY(burst(l, start_bare, &bare[i], error));
    }
    const double ratio = arf_median(call, BURSTS) / arf_median(bare, BURSTS);
    arf_voice_note("%s M=%lld: %d kernel%s, %.2f us a call, %.2f us bare",
                   arf_pattern_name(l->pattern), (long long)l->call.tokens, l->kernels,
                   ARF_PLURAL(l->kernels), arf_median(call, BURSTS), arf_median(bare, BURSTS));
    if (isnan(costs->launch_ratio) || ratio > costs->launch_ratio) {
        costs->launch_ratio = ratio;
        costs->launch_us = arf_median(call, BURSTS);
        costs->bare_us = arf_median(bare, BURSTS);
        costs->launch_pattern = l->pattern;
        costs->launch_tokens = l->call.tokens;
        costs->launch_kernels = l->kernels;
    }
    return ARFUSE_OK;
}

static arfuse_status time_launches(launching *l, const arf_shape *shape, host_costs *costs,
                                   arf_error *error)
{
    ARF_TRY(arf_trial_create(l->workspace->device, shape, LAUNCH_TOKENS, ARF_TRIAL_RANDOM, 1,
                             &l->trial, error));
    ARF_TRY(ARF_CU(&l->device->driver, error, cuStreamCreate, &l->stream, CU_STREAM_NON_BLOCKING));
    for (int p = 0; p < (shape->top_k > 0 ? ARF_PATTERNS : 1); p++)
        for (size_t t = 0; t < sizeof launch_tokens / sizeof *launch_tokens; t++) {
            if (launch_tokens[t] > l->workspace->options.capacity)
                continue; /* a call that is cut in chunks */
            const arf_launch launch = arf_trial_launch(l->trial, (arf_pattern)p, launch_tokens[t]);
            l->pattern = (arf_pattern)p;
            l->call = (arfuse_call)ARFUSE_CALL_INIT;
            l->call.tokens = launch_tokens[t];
            l->call.stream = (arfuse_stream)l->stream;
            l->call.epsilon = launch.epsilon;
            l->call.weight_bias = launch.weight_bias;
            l->call.routed_scale = launch.routed_scale;
            ARF_TRY(time_launch(l, costs, error));
        }
    return ARF_CU(&l->device->driver, error, cuStreamSynchronize, l->stream);
}

static arfuse_status launch_costs(const arf_device *device, const arf_shape *shape,
                                  const char *profile, int64_t most, host_costs *costs,
                                  arf_error *error)
{
    launching *l = calloc(1, sizeof *l);
    if (l == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory to time launches");
    arfuse_status status = make(device, shape, profile, most, &l->workspace, error);
    if (status == ARFUSE_OK) {
        l->device = (arf_cuda *)l->workspace->device;
        status = arf_cuda_enter(l->device, error);
    }
    if (status == ARFUSE_OK) {
        status = time_launches(l, shape, costs, error);
        arf_trial_destroy(l->trial);
        if (l->stream != NULL)
            l->device->driver.cuStreamDestroy(l->stream);
        arf_cuda_leave(l->device);
    }
    if (l->workspace != NULL) {
        arf_error own = ARF_ERROR_INIT;
        if (arfuse_workspace_destroy(&l->workspace, &own) != ARFUSE_OK && status == ARFUSE_OK)
            status = arf_fail(error, own.status, "%s", own.text);
    }
    free(l);
    return status;
}

/* ---- compiling ---------------------------------------------------------------------------------
 */

static arfuse_status compile_step(arf_compiler *compiler, const arf_step *step, host_costs *costs,
                                  arf_error *error)
{
    arf_image image;
    const double start = now_us();
    ARF_TRY(arf_compile_step(compiler, step, &image, error));
    const double seconds = (now_us() - start) / 1e6;
    arf_image_free(&image);
    costs->compiled++;
    if (isnan(costs->compile_s) || seconds > costs->compile_s) {
        costs->compile_s = seconds;
        snprintf(costs->compile_kernel, sizeof costs->compile_kernel, "%s", step->kernel);
    }
    return ARFUSE_OK;
}

static arfuse_status compile_routes(arf_compiler *compiler, const arf_device *device,
                                    const arf_shape *shape, const arf_routes routes[ARF_PATTERNS],
                                    host_costs *costs, arf_error *error)
{
    uint64_t known[MOST_COMPILED];
    for (int p = 0; p < ARF_PATTERNS; p++)
        for (int i = 0; i < routes[p].count; i++) {
            arf_recipe recipe;
            ARF_TRY(arf_recipe_make(shape, device->team->local_ranks, (arf_pattern)p,
                                    &routes[p].route[i].plan, &recipe, error));
            for (int s = 0; s < recipe.steps; s++) {
                const uint64_t digest = arf_step_digest(&recipe.step[s]);
                int at = 0;
                while (at < costs->compiled && known[at] != digest)
                    at++;
                if (at < costs->compiled || at == MOST_COMPILED)
                    continue;
                known[at] = digest;
                ARF_TRY(compile_step(compiler, &recipe.step[s], costs, error));
            }
        }
    return ARFUSE_OK;
}

/* Into a cache of its own, one after the other. */
static arfuse_status time_compiling(const arf_device *device, const arf_shape *shape,
                                    const arf_routes routes[ARF_PATTERNS], host_costs *costs,
                                    arf_error *error)
{
    const arf_cuda *gpu = (const arf_cuda *)device;
    char folder[] = "/tmp/arfuse-bench-XXXXXX", command[64], before[4096] = "";
    const char *cache = getenv("XDG_CACHE_HOME");
    arf_compiler compiler;
    if (mkdtemp(folder) == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "no folder under /tmp for an empty cache");
    snprintf(before, sizeof before, "%s", cache != NULL ? cache : "");
    setenv("XDG_CACHE_HOME", folder, 1);
    arfuse_status status =
        arf_compiler_open(&compiler, gpu->key.capability_major * 10 + gpu->key.capability_minor,
                          gpu->driver.version / 1000, arf_sources, NULL, error);
    if (status == ARFUSE_OK) {
        status = compile_routes(&compiler, device, shape, routes, costs, error);
        arf_compiler_close(&compiler);
    }
    if (cache != NULL)
        setenv("XDG_CACHE_HOME", before, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        arf_voice_warn("%s is left", folder);
    return status;
}

arfuse_status costs_on_cuda(const arf_device *device, const arf_shape *shape,
                            const arf_routes routes[ARF_PATTERNS], const char *profile,
                            int64_t most, host_costs *costs, arf_error *error)
{
    ARF_TRY(time_compiling(device, shape, routes, costs, error));
    ARF_TRY(time_creation(device, shape, profile, most, &costs->create_ms, error));
    return launch_costs(device, shape, profile, most, costs, error);
}

#else
typedef int nothing_without_cuda;
#endif
