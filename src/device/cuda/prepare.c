/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans made ready: compiled, loaded, their blocks counted against the GPU, and
 * launched once into a capture, so that a later launch has nothing left to find out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/ahead.h"
#include "device/cuda/cuda_device.h"

/* More dynamic shared memory than this must be asked for (CUDA programming guide, shared memory).
 */
#define SHARED_WITHOUT_ASKING (48u * 1024)
/* Larger clusters are allowed by the GPU, not promised by every one (same guide, clusters). */
#define PORTABLE_CLUSTER 8

static arf_cuda *device_of(const arf_cuda_space *space)
{
    return (arf_cuda *)space->base.device;
}

/* ---- kernels -------------------------------------------------------------------------------- */

/*
 * Of processes that share the GPU: a multiprocessor changes how much of its first-level memory is
 * shared memory only while nothing runs on it, and what waits there for a peer could keep out the
 * block that it waits for. So all kernels ask for the same.
 */
static arfuse_status divide_alike(const arf_cuda *device, CUfunction function, arf_error *error)
{
    if (device->seat.processes < 2)
        return ARFUSE_OK;
    return ARF_CU(&device->driver, error, cuFuncSetAttribute, function,
                  CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                  CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
}

static arfuse_status load(arf_cuda_space *space, const arf_step *step, arf_kernel *kernel,
                          arf_error *error)
{
    arf_cuda *device = device_of(space);
    const arf_driver *driver = &device->driver;
    char name[64];
    arf_image image;
    snprintf(name, sizeof name, "%s.cu", step->kernel);
    ARF_TRY(arf_compile_step(&device->compiler, step, &image, error));
    arfuse_status status =
        ARF_CU(driver, error, cuModuleLoadDataEx, &kernel->module, image.data, 0, NULL, NULL);
    arf_image_free(&image);
    if (status != ARFUSE_OK) {
        arf_error_prefix(error, "%s", name);
        return status;
    }
    snprintf(name, sizeof name, "arf_%s", step->kernel);
    status = ARF_CU(driver, error, cuModuleGetFunction, &kernel->function, kernel->module, name);
    if (status == ARFUSE_OK)
        status = ARF_CU(driver, error, cuFuncGetAttribute, &kernel->max_threads,
                        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel->function);
    if (status == ARFUSE_OK)
        status = divide_alike(device, kernel->function, error);
    if (status != ARFUSE_OK) {
        arf_error_prefix(error, "%s", name);
        driver->cuModuleUnload(kernel->module);
    }
    return status;
}

/* The kernel of a step, compiled on its first use. The pointer is good until the next call. */
static arfuse_status kernel_of(arf_cuda_space *space, const arf_step *step, arf_kernel **found,
                               arf_error *error)
{
    uint64_t digest = arf_step_digest(step);
    for (int i = 0; i < space->kernels; i++)
        if (space->kernel[i].digest == digest) {
            *found = &space->kernel[i];
            return ARFUSE_OK;
        }
    if (space->kernels == space->kernel_room) {
        int room = space->kernel_room > 0 ? space->kernel_room * 2 : 32;
        arf_kernel *grown = realloc(space->kernel, (size_t)room * sizeof *grown);
        if (grown == NULL)
            return arf_fail(error, ARFUSE_FAILURE, "out of memory for the kernel table");
        space->kernel = grown;
        space->kernel_room = room;
    }
    arf_kernel *kernel = &space->kernel[space->kernels];
    *kernel = (arf_kernel){.digest = digest, .shared_limit = SHARED_WITHOUT_ASKING};
    ARF_TRY(load(space, step, kernel, error));
    space->kernels++;
    *found = kernel;
    return ARFUSE_OK;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static arfuse_status allow(const arf_cuda *device, const arf_step *step, arf_kernel *kernel,
                           arf_error *error)
{
    if (step->threads > kernel->max_threads)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                        "%s: blocks of %d threads; its registers allow %d", step->kernel,
                        step->threads, kernel->max_threads);
    if (step->shared_bytes > kernel->shared_limit) {
        int most = 0;
        ARF_TRY(ARF_CU(&device->driver, error, cuDeviceGetAttribute, &most,
                       CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device->device));
        if (step->shared_bytes > (unsigned)most)
            return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                            "%s: %u bytes of shared memory a block; this GPU has %d", step->kernel,
                            step->shared_bytes, most);
        ARF_TRY(ARF_CU(&device->driver, error, cuFuncSetAttribute, kernel->function,
                       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)step->shared_bytes));
        kernel->shared_limit = step->shared_bytes;
    }
    if (step->cluster > PORTABLE_CLUSTER)
        ARF_TRY(ARF_CU(&device->driver, error, cuFuncSetAttribute, kernel->function,
                       CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    return ARFUSE_OK;
}

static void add_attribute(arf_ready_step *ready, CUlaunchAttributeID id,
                          CUlaunchAttributeValue value)
{
    ready->attribute[ready->attributes++] = (CUlaunchAttribute){.id = id, .value = value};
}

static void choose_attributes(arf_ready_step *ready)
{
    const arf_step *step = &ready->recipe;
    if (step->cluster > 1)
        add_attribute(
            ready, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            (CUlaunchAttributeValue){.clusterDim = {.x = 1, .y = (unsigned)step->cluster, .z = 1}});
    /* Its blocks wait for blocks of other local ranks: all start together, whatever else runs. */
    if (step->resident && step->local_ranks > 1)
        add_attribute(ready, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                      (CUlaunchAttributeValue){.cooperative = 1});
    /* The last, so that a plain launch leaves it out by counting one fewer. */
    if (step->dependent)
        add_attribute(ready, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                      (CUlaunchAttributeValue){.programmaticStreamSerializationAllowed = 1});
}

/*
 * How many rows of blocks are on the GPU at once. The kernel that dependent launch starts early
 * takes none of that room: it starts when every block has triggered, and a block that triggers is
 * resident. The kernel before has no claim either: it never waits for this one.
 */
static arfuse_status count_resident(const arf_cuda *device, arf_ready_step *ready, arf_error *error)
{
    const arf_step *step = &ready->recipe;
    int count = 0, blocks = 0;
    ARF_TRY(ARF_CU(&device->driver, error, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks,
                   ready->function, step->threads, step->shared_bytes));
    blocks *= device->sm_count;
    if (step->cluster > 1) {
        CUlaunchConfig config = {.gridDimX = (unsigned)step->local_ranks,
                                 .gridDimY = (unsigned)step->cluster,
                                 .gridDimZ = 1,
                                 .blockDimX = (unsigned)step->threads,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .sharedMemBytes = step->shared_bytes,
                                 .attrs = ready->attribute,
                                 .numAttrs = 1};
        ARF_TRY(ARF_CU(&device->driver, error, cuOccupancyMaxActiveClusters, &count,
                       ready->function, &config));
        /* More blocks than this process has room for: the driver counted SMs that MPS keeps from
         * it. */
        if (count * step->cluster > blocks)
            count = count * device->sm_count / device->sm_all;
    } else
        count = blocks / step->parts;
    /* MPS limits are no partitions: the SMs that two processes may use can be the same ones. So of
     * p processes each takes a p-th of what the SMs of one hold for what waits, half of that with
     * the kernel that dependent launch starts beside it; a grid of more starts alone, and nothing
     * beside it. What does not wait ends, and may take all there is. */
    const int processes = device->seat.processes;
    count /= processes > 1 ? processes : 1;
    const int64_t rows = count / step->local_ranks;
    const bool bounded = step->resident || (step->waits && processes > 1);
    ready->dependent_rows = processes > 1 ? rows / 2 : INT64_MAX;
    ready->most_rows = bounded ? rows : INT64_MAX;
    if (count > 0 && ready->most_rows > 0)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                    "%s: clusters of %d blocks of %d threads with %u bytes of shared memory: %s "
                    "has room for %d at once, %d ranks need %d",
                    step->kernel, step->cluster, step->threads, step->shared_bytes,
                    processes > 1 ? "a process's part of this GPU" : "this GPU", count,
                    step->local_ranks, bounded ? step->local_ranks : 1);
}

arfuse_status arf_cuda_ready(arf_cuda_space *space, const arf_step *recipe, arf_ready_step *ready,
                             arf_error *error)
{
    arf_kernel *kernel = NULL;
    *ready = (arf_ready_step){.recipe = *recipe};
    ARF_TRY(kernel_of(space, recipe, &kernel, error));
    ARF_TRY(allow(device_of(space), recipe, kernel, error));
    ready->function = kernel->function;
    choose_attributes(ready);
    return count_resident(device_of(space), ready, error);
}

/* ---- plans ---------------------------------------------------------------------------------- */

/* Launches into a capture that is thrown away: the driver checks what a launch would. */
static arfuse_status try_launch(arf_cuda_space *space, arf_pattern pattern, int id, int64_t tokens,
                                arf_error *error)
{
    const arf_driver *driver = &device_of(space)->driver;
    arf_launch launch = {.pattern = pattern, .plan = id, .then = -1, .tokens = tokens};
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    ARF_TRY(
        ARF_CU(driver, error, cuStreamBeginCapture, space->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    arfuse_status status = arf_cuda_enqueue(space, &launch, space->stream, error);
    CUresult ended = driver->cuStreamEndCapture(space->stream, &graph);
    if (status == ARFUSE_OK)
        status = arf_driver_check(driver, ended, "cuStreamEndCapture", error);
    if (status == ARFUSE_OK)
        status = ARF_CU(driver, error, cuGraphInstantiateWithFlags, &executable, graph, 0);
    if (executable != NULL)
        driver->cuGraphExecDestroy(executable);
    if (graph != NULL)
        driver->cuGraphDestroy(graph);
    if (status != ARFUSE_OK) {
        space->broken = false; /* nothing of a capture has run */
        arf_error_prefix(error, "a trial launch of %lld tokens", (long long)tokens);
    }
    return status;
}

static int find(const arf_cuda_space *space, arf_pattern pattern, const arf_plan *plan)
{
    for (int i = 0; i < space->plans; i++)
        if (space->plan[i].pattern == pattern &&
            arf_plan_equal(ARF_SET_ARFUSE, pattern, &space->plan[i].plan, plan))
            return i;
    return -1;
}

static arfuse_status prepare_here(arf_cuda_space *space, arf_pattern pattern, const arf_plan *plan,
                                  arf_error *error)
{
    arf_recipe recipe;
    const arf_space_spec *spec = &space->base.spec;
    const bool library = arf_library_serves(space, plan);
    if (library)
        ARF_TRY(arf_library_recipe(space, pattern, plan, &recipe, error));
    else
        ARF_TRY(arf_recipe_make(&spec->shape, space->base.device->team->local_ranks, pattern, plan,
                                &recipe, error));
    if (!library && plan->protocol != ARF_SEPARATE && device_of(space)->way == ARF_WAY_NONE)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "%s: %s", arf_protocol_name(plan->protocol),
                        device_of(space)->no_way);
    if (spec->capacity[plan->protocol] < 1)
        return arf_fail(error, ARFUSE_USAGE, "the space has no capacity for %s",
                        arf_protocol_name(plan->protocol));
    if (space->plans == ARF_MAX_READY_PLANS)
        return arf_fail(error, ARFUSE_FAILURE, "more than %d plans in one space",
                        ARF_MAX_READY_PLANS);
    arf_ready_plan *ready = &space->plan[space->plans];
    *ready = (arf_ready_plan){
        .pattern = pattern, .plan = *plan, .library = library, .steps = recipe.steps};
    for (int i = 0; i < recipe.steps; i++)
        ARF_TRY(arf_cuda_ready(space, &recipe.step[i], &ready->step[i], error));
    if (library) /* a trial of one process would make NCCL wait for the others */
        return ARFUSE_OK;
    ARF_TRY(try_launch(space, pattern, space->plans, 1, error));
    return try_launch(space, pattern, space->plans, spec->capacity[plan->protocol], error);
}

arfuse_status arf_cuda_prepare(arf_space *base, arf_pattern pattern, const arf_plan *plan, int *id,
                               arf_error *error)
{
    arf_cuda_space *space = (arf_cuda_space *)base;
    int known = find(space, pattern, plan);
    if (known >= 0) {
        *id = known;
        return ARFUSE_OK;
    }
    ARF_TRY(arf_cuda_enter(device_of(space), error));
    arfuse_status status = prepare_here(space, pattern, plan, error);
    arf_cuda_leave(device_of(space));
    if (status == ARFUSE_OK)
        *id = space->plans++;
    return status;
}

/* ---- ahead ---------------------------------------------------------------------------------- */

static bool is_loaded(const arf_cuda_space *space, uint64_t digest)
{
    for (int i = 0; i < space->kernels; i++)
        if (space->kernel[i].digest == digest)
            return true;
    return false;
}

/* Adds the kernels of a plan that are neither loaded nor listed. */
static int list_kernels(const arf_cuda_space *space, arf_pattern pattern, const arf_plan *plan,
                        arf_step *step, uint64_t *digest, int count)
{
    arf_recipe recipe;
    arf_error refused = ARF_ERROR_INIT; /* prepare refuses it too, and says why */
    if (arf_recipe_make(&space->base.spec.shape, space->base.device->team->local_ranks, pattern,
                        plan, &recipe, &refused) != ARFUSE_OK)
        return count;
    for (int i = 0; i < recipe.steps; i++) {
        const uint64_t own = arf_step_digest(&recipe.step[i]);
        bool known = is_loaded(space, own);
        for (int j = 0; j < count && !known; j++)
            known = digest[j] == own;
        if (known)
            continue;
        digest[count] = own;
        step[count++] = recipe.step[i];
    }
    return count;
}

void arf_cuda_precompile(arf_space *base, arf_pattern pattern, const arf_plan *const *plan,
                         int count)
{
    arf_cuda_space *space = (arf_cuda_space *)base;
    arf_cuda *device = device_of(space);
    const int most = count * ARF_MAX_STEPS;
    arf_step *step = calloc((size_t)most + 1, sizeof *step);
    uint64_t *digest = calloc((size_t)most + 1, sizeof *digest);
    int steps = 0, own = 0;
    for (int i = 0; i < count && step != NULL && digest != NULL; i++)
        steps = list_kernels(space, pattern, plan[i], step, digest, steps);
    /* Processes of a node list the same and share the cache: each compiles its part. */
    for (int i = device->node_index; i < steps; i += device->node_processes)
        step[own++] = step[i];
    arf_compile_ahead(&device->compiler, step, own, arf_ahead_threads(device->node_processes));
    free(step);
    free(digest);
}
