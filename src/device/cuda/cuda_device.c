/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the cuda device's functions, and its memory. */
#include "device/cuda/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

arfuse_status arf_cuda_enter(const arf_cuda *device, arf_error *error)
{
    return ARF_CU(&device->driver, error, cuCtxPushCurrent, device->context);
}

void arf_cuda_leave(const arf_cuda *device)
{
    CUcontext context;
    device->driver.cuCtxPopCurrent(&context);
}

/* ---- open and close ---------------------------------------------------------------------------
 */

static void cuda_close(arf_device *base)
{
    arf_cuda *device = (arf_cuda *)base;
    if (device->context != NULL)
        device->driver.cuDevicePrimaryCtxRelease(device->device);
    arf_ranges_close(device->ranges);
    arf_compiler_close(&device->compiler);
    arf_nvml_close(&device->nvml);
    arf_driver_close(&device->driver);
    free(device);
}

static arfuse_status cuda_open(const arf_device_options *options, const arf_team *team,
                               arf_device **opened, arf_error *error)
{
    arf_cuda *device = calloc(1, sizeof *device);
    arfuse_status status =
        device != NULL ? ARFUSE_OK : arf_fail(error, ARFUSE_FAILURE, "out of memory");
    status = arf_team_vote(team, status, error);
    if (status == ARFUSE_OK) {
        device->base = (arf_device){.ops = &arf_cuda_device, .team = team};
        device->ranges = arf_ranges_open();
        if (options->log != NULL)
            device->base.log = *options->log;
        status = arf_cuda_open_steps(device, options, error);
    }
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

static void cuda_evidence(const arf_device *base, arf_device_evidence *evidence)
{
    const arf_cuda *device = (const arf_cuda *)base;
    memcpy(evidence->driver, device->driver_text, ARF_NAME_TEXT);
    memcpy(evidence->library, device->library, ARF_NOTE_TEXT);
    snprintf(evidence->source_digest, ARF_NAME_TEXT, "%016llx",
             (unsigned long long)device->compiler.source_digest);
}

static const char *cuda_no_library(const arf_device *base)
{
    const char *reason = ((const arf_cuda *)base)->no_library;
    return reason[0] != '\0' ? reason : NULL;
}

static int64_t cuda_space_bytes(const arf_space *space)
{
    return (int64_t)((const arf_cuda_space *)space)->memory.mapped_bytes;
}

static const char *cuda_untimed(const arf_device *base)
{
    const char *reason = ((const arf_cuda *)base)->timing;
    return reason[0] != '\0' ? reason : NULL;
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

static arfuse_status copy(arf_device *base, bool up, void *to, const void *from, size_t bytes,
                          arf_error *error)
{
    arf_cuda *device = (arf_cuda *)base;
    const arf_driver *driver = &device->driver;
    if (bytes == 0)
        return ARFUSE_OK;
    ARF_TRY(arf_cuda_enter(device, error));
    arfuse_status status =
        up ? ARF_CU(driver, error, cuMemcpyHtoD, (CUdeviceptr)(uintptr_t)to, from, bytes)
           : ARF_CU(driver, error, cuMemcpyDtoH, to, (CUdeviceptr)(uintptr_t)from, bytes);
    /* A copy from pageable memory may return while its last part is still on the way. */
    if (up && status == ARFUSE_OK)
        status = ARF_CU(driver, error, cuStreamSynchronize, NULL);
    arf_cuda_leave(device);
    return status;
}

static arfuse_status cuda_upload(arf_device *base, int local_rank, void *to, const void *from,
                                 size_t bytes, arf_error *error)
{
    (void)local_rank;
    return copy(base, true, to, from, bytes, error);
}

static arfuse_status cuda_download(arf_device *base, int local_rank, void *to, const void *from,
                                   size_t bytes, arf_error *error)
{
    (void)local_rank;
    return copy(base, false, to, from, bytes, error);
}

static bool cuda_profiled(const arf_device *device)
{
    return ((const arf_cuda *)device)->ranges != NULL;
}

static void cuda_range_begin(const arf_device *device, const char *text)
{
    arf_ranges_begin(((const arf_cuda *)device)->ranges, text);
}

static void cuda_range_end(const arf_device *device)
{
    arf_ranges_end(((const arf_cuda *)device)->ranges);
}

static double cuda_now(const arf_device *base)
{
    (void)base;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void cuda_clocks(const arf_device *base, arf_clocks *clocks)
{
    const arf_cuda *device = (const arf_cuda *)base;
    *clocks = arf_nvml_clocks(&device->nvml, &device->uuid);
}

const arf_device_ops arf_cuda_device = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .evidence = cuda_evidence,
    .no_library = cuda_no_library,
    .space_create = arf_cuda_space_create,
    .space_destroy = arf_cuda_space_destroy,
    .space_bytes = cuda_space_bytes,
    .prepare = arf_cuda_prepare,
    .precompile = arf_cuda_precompile,
    .launch = arf_cuda_launch,
    .abandon = arf_cuda_abandon,
    .synchronize = arf_cuda_synchronize,
    .capturing = arf_cuda_capturing,
    .graphs = arf_cuda_graphs,
    .profiled = cuda_profiled,
    .range_begin = cuda_range_begin,
    .range_end = cuda_range_end,
    .time = arf_cuda_time,
    .untimed = cuda_untimed,
    .state = arf_cuda_state,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .upload = cuda_upload,
    .download = cuda_download,
    .now = cuda_now,
    .clocks = cuda_clocks,
};
