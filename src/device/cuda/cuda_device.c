/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda device of a process: one GPU, its driver, its compiler; and the table of functions. */
#include "device/cuda/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"

arfuse_status arf_cuda_enter(const arf_cuda *device, arf_error *error)
{
    return ARF_CU(&device->driver, error, cuCtxPushCurrent, device->context);
}

void arf_cuda_leave(const arf_cuda *device)
{
    CUcontext context;
    device->driver.cuCtxPopCurrent(&context);
}

/* ---- open ----------------------------------------------------------------------------------- */

static arfuse_status attribute(const arf_cuda *device, CUdevice_attribute which, int *value,
                               arf_error *error)
{
    return ARF_CU(&device->driver, error, cuDeviceGetAttribute, value, which, device->device);
}

/* The GPU of the caller's current context, else the first. */
static int current_ordinal(const arf_driver *driver)
{
    CUcontext context = NULL;
    CUdevice current;
    if (driver->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != NULL &&
        driver->cuCtxGetDevice(&current) == CUDA_SUCCESS)
        return (int)current; /* a CUdevice is its ordinal */
    return 0;
}

static arfuse_status choose(arf_cuda *device, const arf_device_options *options, arf_error *error)
{
    const arf_driver *driver = &device->driver;
    int count = 0;
    ARF_TRY(ARF_CU(driver, error, cuDeviceGetCount, &count));
    int ordinal = options->cuda_ordinal < 0 ? current_ordinal(driver) : options->cuda_ordinal;
    if (ordinal >= count)
        return arf_fail(error, ARFUSE_HARDWARE, "CUDA device %d: this process sees %d devices",
                        ordinal, count);
    int ranks = device->base.team->local_ranks;
    if (ranks > 1 && !options->gpu_sharing)
        return arf_fail(error, ARFUSE_HARDWARE,
                        "%d ranks of one process would share one GPU; allow it with --gpu-sharing, "
                        "or start one process a GPU",
                        ranks);
    return ARF_CU(driver, error, cuDeviceGet, &device->device, ordinal);
}

static arfuse_status describe_hardware(arf_cuda *device, arf_error *error)
{
    arf_device_key *key = &device->key;
    char raw[256];
    int l2 = 0;
    ARF_TRY(ARF_CU(&device->driver, error, cuDeviceGetName, raw, sizeof raw, device->device));
    arf_device_name(raw, key->name);
    ARF_TRY(attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &key->capability_major,
                      error));
    ARF_TRY(attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &key->capability_minor,
                      error));
    ARF_TRY(attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &key->sm_count, error));
    ARF_TRY(attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2, error));
    int ranks = device->base.team->local_ranks;
    key->ranks_per_gpu = ranks;
    key->nodes = 1;
    /* One rank a GPU: the link is a property of pairs of GPUs, and this team has no pair yet. */
    key->link = ranks > 1 ? ARF_LINK_SHARED_GPU : ARF_LINK_NVLINK;
    device->l2_bytes = (uint64_t)l2;
    device->sm_count = key->sm_count;
    return ARFUSE_OK;
}

/* "CUDA 13.0, NVRTC 13.0, driver 580.159.04"; the last only where the kernel module tells it. */
static void describe_driver(arf_cuda *device)
{
    char module[24] = "";
    FILE *file = fopen("/sys/module/nvidia/version", "re");
    if (file != NULL) {
        if (fscanf(file, "%23s", module) != 1)
            module[0] = '\0';
        fclose(file);
    }
    snprintf(device->driver_text, sizeof device->driver_text, "CUDA %d.%d, NVRTC %d.%d%s%s",
             device->driver.version / 1000, device->driver.version % 1000 / 10,
             device->compiler.nvrtc.major, device->compiler.nvrtc.minor,
             module[0] != '\0' ? ", driver " : "", module);
}

static arfuse_status open_here(arf_cuda *device, const arf_device_options *options,
                               arf_error *error)
{
    ARF_TRY(arf_symmetric_possible(device->base.team, error));
    ARF_TRY(arf_driver_open(&device->driver, error));
    ARF_TRY(choose(device, options, error));
    ARF_TRY(describe_hardware(device, error));
    ARF_TRY(arf_compiler_open(
        &device->compiler, device->key.capability_major * 10 + device->key.capability_minor,
        device->driver.version / 1000, arf_sources, &device->base.log, error));
    ARF_TRY(
        ARF_CU(&device->driver, error, cuDevicePrimaryCtxRetain, &device->context, device->device));
    describe_driver(device);
    return ARFUSE_OK;
}

static void cuda_close(arf_device *base)
{
    arf_cuda *device = (arf_cuda *)base;
    if (device->context != NULL)
        device->driver.cuDevicePrimaryCtxRelease(device->device);
    arf_compiler_close(&device->compiler);
    arf_driver_close(&device->driver);
    free(device);
}

static uint64_t key_digest(const arf_device_key *key)
{
    uint64_t hash = arf_hash_text(ARF_HASH_INIT, key->name);
    hash = arf_hash_number(hash, key->capability_major * 10 + key->capability_minor);
    hash = arf_hash_number(hash, key->sm_count);
    hash = arf_hash_number(hash, key->link);
    return arf_hash_number(hash, key->ranks_per_gpu);
}

static arfuse_status cuda_open(const arf_device_options *options, const arf_team *team,
                               arf_device **opened, arf_error *error)
{
    arf_cuda *device = calloc(1, sizeof *device);
    arfuse_status status = ARFUSE_OK;
    if (device == NULL)
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory");
    else {
        device->base = (arf_device){.ops = &arf_cuda_device, .team = team};
        if (options->log != NULL)
            device->base.log = *options->log;
        status = open_here(device, options, error);
    }
    status = arf_team_vote(team, status, error);
    if (status == ARFUSE_OK)
        status = arf_team_agree(team, "GPU and link", key_digest(&device->key), error);
    if (status == ARFUSE_OK)
        status = arf_team_agree(team, "kernel sources", device->compiler.source_digest, error);
    if (status == ARFUSE_OK)
        *opened = &device->base;
    else if (device != NULL)
        cuda_close(&device->base);
    return status;
}

/* ---- what a profile says --------------------------------------------------------------------- */

static void cuda_describe(const arf_device *base, arf_device_key *key)
{
    *key = ((const arf_cuda *)base)->key;
}

static void cuda_evidence(const arf_device *base, char driver[ARF_NAME_TEXT],
                          char source_digest[ARF_NAME_TEXT])
{
    const arf_cuda *device = (const arf_cuda *)base;
    memcpy(driver, device->driver_text, ARF_NAME_TEXT);
    snprintf(source_digest, ARF_NAME_TEXT, "%016llx",
             (unsigned long long)device->compiler.source_digest);
}

/* ---- memory of a local rank ------------------------------------------------------------------ */

static void *cuda_allocate(arf_device *base, int local_rank, size_t bytes)
{
    (void)local_rank; /* all of them share one GPU */
    arf_cuda *device = (arf_cuda *)base;
    CUdeviceptr address = 0;
    if (arf_cuda_enter(device, NULL) != ARFUSE_OK)
        return NULL;
    if (device->driver.cuMemAlloc(&address, bytes > 0 ? bytes : 1) != CUDA_SUCCESS)
        address = 0;
    arf_cuda_leave(device);
    return (void *)(uintptr_t)address;
}

static void cuda_release(arf_device *base, int local_rank, void *memory)
{
    (void)local_rank;
    arf_cuda *device = (arf_cuda *)base;
    if (memory == NULL || arf_cuda_enter(device, NULL) != ARFUSE_OK)
        return;
    device->driver.cuMemFree((CUdeviceptr)(uintptr_t)memory);
    arf_cuda_leave(device);
}

static arfuse_status cuda_upload(arf_device *base, int local_rank, void *to, const void *from,
                                 size_t bytes, arf_error *error)
{
    (void)local_rank;
    arf_cuda *device = (arf_cuda *)base;
    if (bytes == 0)
        return ARFUSE_OK;
    ARF_TRY(arf_cuda_enter(device, error));
    arfuse_status status =
        ARF_CU(&device->driver, error, cuMemcpyHtoD, (CUdeviceptr)(uintptr_t)to, from, bytes);
    /* A copy from pageable memory may return while its last part is still on the way. */
    if (status == ARFUSE_OK)
        status = ARF_CU(&device->driver, error, cuStreamSynchronize, NULL);
    arf_cuda_leave(device);
    return status;
}

static arfuse_status cuda_download(arf_device *base, int local_rank, void *to, const void *from,
                                   size_t bytes, arf_error *error)
{
    (void)local_rank;
    arf_cuda *device = (arf_cuda *)base;
    if (bytes == 0)
        return ARFUSE_OK;
    ARF_TRY(arf_cuda_enter(device, error));
    arfuse_status status =
        ARF_CU(&device->driver, error, cuMemcpyDtoH, to, (CUdeviceptr)(uintptr_t)from, bytes);
    arf_cuda_leave(device);
    return status;
}

static double cuda_now(const arf_device *base)
{
    (void)base;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

const arf_device_ops arf_cuda_device = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .evidence = cuda_evidence,
    .space_create = arf_cuda_space_create,
    .space_destroy = arf_cuda_space_destroy,
    .prepare = arf_cuda_prepare,
    .launch = arf_cuda_launch,
    .synchronize = arf_cuda_synchronize,
    .capturing = arf_cuda_capturing,
    .graphs = arf_cuda_graphs,
    .time = arf_cuda_time,
    .state = arf_cuda_state,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .upload = cuda_upload,
    .download = cuda_download,
    .now = cuda_now,
};
