/* SPDX-License-Identifier: Apache-2.0 */
/* What the CUDA side of a machine offers. */
#include "device/probe.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/flag.h"
#include "device/cuda/links.h"
#include "device/cuda/mps.h"
#include "device/cuda/nvml.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/segment.h"

/* Long enough that a launch is no part of the time, short enough for 56 pairs in seconds. */
#define COPY_BYTES ((size_t)64 << 20)
#define COPIES 8

typedef struct looking {
    arf_findings *findings;
    arf_driver driver;
    arf_nvml nvml;
    int gpus;
    CUdevice device[ARF_MAX_GPUS];
    CUuuid uuid[ARF_MAX_GPUS];
    CUcontext context[ARF_MAX_GPUS]; /* NULL: none */
    CUdeviceptr buffer[ARF_MAX_GPUS];
    bool reach[ARF_MAX_GPUS][ARF_MAX_GPUS]; /* peer access from, to */
    arf_flag_end end[ARF_MAX_GPUS];         /* kernel NULL: no flags there */
} looking;

/* ---- libraries ------------------------------------------------------------------------------- */

static const char *path_of(void *library)
{
    struct link_map *map = NULL;
    if (library == NULL || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == NULL)
        return "unknown path";
    return map->l_name;
}

static void find_nvrtc(looking *at)
{
    arf_nvrtc nvrtc;
    arf_error error = ARF_ERROR_INIT;
    if (arf_nvrtc_open(&nvrtc, &error) != ARFUSE_OK)
        arf_find(at->findings, "library", "nvrtc", "not usable: %s", error.text);
    else
        arf_find(at->findings, "library", "nvrtc", "%d.%d, %s", nvrtc.major, nvrtc.minor,
                 path_of(nvrtc.library));
    arf_nvrtc_close(&nvrtc);
}

static void find_nccl(looking *at)
{
    int (*version)(int *);
    int number = 0;
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library != NULL)
        *(void **)&version = dlsym(library, "ncclGetVersion");
    if (library == NULL)
        arf_find(at->findings, "library", "nccl", "not here: %s", dlerror());
    else if (version == NULL || version(&number) != 0)
        arf_find(at->findings, "library", "nccl", "does not tell its version, %s",
                 path_of(library));
    else /* 2 for major * 10000 since 2.9 (NCCL manual, ncclGetVersion) */
        arf_find(at->findings, "library", "nccl", "%d.%d.%d, %s", number / 10000,
                 number / 100 % 100, number % 100, path_of(library));
    if (library != NULL)
        dlclose(library);
}

static bool find_libraries(looking *at)
{
    arf_error error = ARF_ERROR_INIT;
    char text[32] = "";
    bool usable = arf_driver_open(&at->driver, &error) == ARFUSE_OK;
    arf_nvml_open(&at->nvml);
    if (usable)
        arf_find(at->findings, "library", "cuda", "CUDA %d.%d, %s", at->driver.version / 1000,
                 at->driver.version % 1000 / 10, path_of(at->driver.library));
    else
        arf_find(at->findings, "library", "cuda", "not usable: %s", error.text);
    arf_nvml_driver(&at->nvml, text, sizeof text);
    if (at->nvml.library != NULL)
        arf_find(at->findings, "library", "nvml", "driver %s, %s", text, path_of(at->nvml.library));
    else
        arf_find(at->findings, "library", "nvml", "not usable (optional)");
    find_nvrtc(at);
    find_nccl(at);
    return usable;
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* -1: the driver does not know the question. */
static int attribute(const looking *at, int gpu, CUdevice_attribute which)
{
    int value = -1;
    if (at->driver.cuDeviceGetAttribute(&value, which, at->device[gpu]) != CUDA_SUCCESS)
        return -1;
    return value;
}

static const char *yes_no(int value)
{
    return value < 0 ? "unknown" : value ? "yes" : "no";
}

static void try_memory(const looking *at, int gpu, arf_way way, const char *item)
{
    const arf_driver *driver = &at->driver;
    arf_segment segment = {0};
    arf_fabric_handle handle;
    arf_error error = ARF_ERROR_INIT;
    uint64_t bytes = 0;
    int descriptor = -1;
    arfuse_status status = arf_segment_round(driver, at->device[gpu], way, 1, &bytes, &error);
    if (status == ARFUSE_OK)
        status = arf_segment_allocate(driver, at->device[gpu], way, bytes, &segment, &error);
    if (status == ARFUSE_OK)
        status = way == ARF_WAY_FABRIC
                     ? arf_segment_export_fabric(driver, &segment, &handle, &error)
                     : arf_segment_export_fd(driver, &segment, &descriptor, &error);
    if (status == ARFUSE_OK)
        status = arf_segment_map(driver, at->device[gpu], &segment, &error);
    if (descriptor >= 0)
        close(descriptor);
    arf_segment_drop(driver, &segment);
    if (status == ARFUSE_OK)
        arf_find(at->findings, "trial", item, "made, exported and mapped %llu bytes (a granule)",
                 (unsigned long long)bytes);
    else
        arf_find(at->findings, "trial", item, "refused: %s", error.text);
}

static void find_gpu(looking *at, int gpu)
{
    const arf_driver *driver = &at->driver;
    char item[24], name[256] = "", uuid[ARF_UUID_TEXT], bus[32] = "";
    size_t bytes = 0;
    driver->cuDeviceGetName(name, sizeof name, at->device[gpu]);
    driver->cuDeviceGetPCIBusId(bus, sizeof bus, at->device[gpu]);
    driver->cuDeviceTotalMem(&bytes, at->device[gpu]);
    arf_uuid_text(&at->uuid[gpu], uuid);
    snprintf(item, sizeof item, "%d", gpu);
    arf_find(at->findings, "gpu", item, "%s, %d.%d, %d SMs, %zu MiB, %s, bus %s", name,
             attribute(at, gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
             attribute(at, gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
             attribute(at, gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), bytes >> 20, uuid, bus);
    arf_fabric_domain domain;
    char fabric[80] = "no NVLink domain joined";
    if (arf_nvml_fabric(&at->nvml, &at->uuid[gpu], &domain))
        snprintf(fabric, sizeof fabric, "NVLink clique %u of cluster %02x%02x%02x%02x...",
                 domain.clique, domain.cluster[0], domain.cluster[1], domain.cluster[2],
                 domain.cluster[3]);
    arf_find(
        at->findings, "attributes", item,
        "descriptors %s, fabric handles %s, multicast %s (never made), MPS %s; %s",
        yes_no(attribute(at, gpu, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)),
        yes_no(attribute(at, gpu, ARF_FABRIC_SUPPORTED)),
        yes_no(attribute(at, gpu, ARF_MULTICAST_SUPPORTED)),
        yes_no(attribute(at, gpu, ARF_MPS_ENABLED)), fabric);
}

static bool open_gpu(looking *at, int gpu)
{
    const arf_driver *driver = &at->driver;
    CUcontext popped;
    if (driver->cuDevicePrimaryCtxRetain(&at->context[gpu], at->device[gpu]) != CUDA_SUCCESS) {
        at->context[gpu] = NULL;
        return false;
    }
    if (driver->cuCtxPushCurrent(at->context[gpu]) != CUDA_SUCCESS)
        return false;
    if (driver->cuMemAlloc(&at->buffer[gpu], 2 * COPY_BYTES) != CUDA_SUCCESS)
        at->buffer[gpu] = 0;
    char item[24];
    snprintf(item, sizeof item, "fd %d", gpu);
    try_memory(at, gpu, ARF_WAY_FD, item);
    snprintf(item, sizeof item, "fabric %d", gpu);
    try_memory(at, gpu, ARF_WAY_FABRIC, item);
    driver->cuCtxPopCurrent(&popped);
    return at->buffer[gpu] != 0;
}

/* ---- links ----------------------------------------------------------------------------------- */

/* Bytes a second of copies from one GPU's buffer to another's (or within one); 0: failed. */
static double copy_rate(const looking *at, int from, int to)
{
    const arf_driver *driver = &at->driver;
    CUcontext popped;
    CUevent begin = NULL, end = NULL;
    CUstream stream = NULL;
    float milliseconds = 0;
    if (at->buffer[from] == 0 || at->buffer[to] == 0 ||
        driver->cuCtxPushCurrent(at->context[from]) != CUDA_SUCCESS)
        return 0;
    bool good = driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
                driver->cuEventCreate(&begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
                driver->cuEventCreate(&end, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
    for (int i = -2; good && i < COPIES; i++) {
        if (i == 0)
            good = driver->cuEventRecord(begin, stream) == CUDA_SUCCESS;
        good = good && driver->cuMemcpyDtoDAsync(at->buffer[to] + COPY_BYTES, at->buffer[from],
                                                 COPY_BYTES, stream) == CUDA_SUCCESS;
    }
    good = good && driver->cuEventRecord(end, stream) == CUDA_SUCCESS &&
           driver->cuEventSynchronize(end) == CUDA_SUCCESS &&
           driver->cuEventElapsedTime(&milliseconds, begin, end) == CUDA_SUCCESS;
    if (begin != NULL)
        driver->cuEventDestroy(begin);
    if (end != NULL)
        driver->cuEventDestroy(end);
    if (stream != NULL)
        driver->cuStreamDestroy(stream);
    driver->cuCtxPopCurrent(&popped);
    return good && milliseconds > 0 ? COPIES * (double)COPY_BYTES / (milliseconds * 1e-3) : 0;
}

static void rate_text(double rate, const char *meaning, char *text, size_t size)
{
    if (rate > 0)
        snprintf(text, size, "%.0f GB/s %s", 1e-9 * rate, meaning);
    else
        snprintf(text, size, "not measured: a copy failed");
}

/* The other half of the buffer is what copies write. */
static void make_ends(looking *at)
{
    for (int gpu = 0; gpu < at->gpus && at->gpus > 1; gpu++) {
        CUcontext popped;
        char item[24];
        arf_error error = ARF_ERROR_INIT;
        snprintf(item, sizeof item, "%d", gpu);
        if (at->buffer[gpu] == 0 || at->driver.cuCtxPushCurrent(at->context[gpu]) != CUDA_SUCCESS)
            continue;
        if (arf_flag_end_make(&at->driver, at->device[gpu], at->context[gpu], at->buffer[gpu],
                              &at->end[gpu], &error) != ARFUSE_OK) {
            arf_find(at->findings, "flag", item, "not measured: %s", error.text);
            arf_flag_end_drop(&at->driver, &at->end[gpu]);
        }
        at->driver.cuCtxPopCurrent(&popped);
    }
}

/* ", a flag 0.85 us", or why not. */
static void flag_text(const looking *at, int from, int to, char *text, size_t size)
{
    double us = 0;
    arf_error error = ARF_ERROR_INIT;
    text[0] = '\0';
    if (at->end[from].kernel == NULL || at->end[to].kernel == NULL || !at->reach[from][to] ||
        !at->reach[to][from])
        return; /* said by the finding of the GPU, or by the kind of link */
    if (arf_flag_time(&at->driver, &at->end[from], &at->end[to], &us, &error) == ARFUSE_OK)
        snprintf(text, size, ", a flag %.2f us", us);
    else
        snprintf(text, size, ", a flag not measured: %.100s", error.text);
}

static void find_links(looking *at)
{
    make_ends(at);
    for (int from = 0; from < at->gpus; from++)
        for (int to = 0; to < at->gpus; to++) {
            char item[24], text[64], flag[160];
            double rate = copy_rate(at, from, to);
            snprintf(item, sizeof item, "%d->%d", from, to);
            if (from == to) {
                rate_text(2 * rate, "read and written", text, sizeof text);
                arf_find(at->findings, "copy", item, "%s", text);
                continue;
            }
            arf_pair pair = arf_links_pair(&at->driver, at->device[from], at->device[to]);
            rate_text(rate, "one way", text, sizeof text);
            flag_text(at, from, to, flag, sizeof flag);
            arf_find(at->findings, "link", item, "%s, %s%s", arf_pair_name(pair), text, flag);
        }
    if (at->gpus == 1)
        arf_find(at->findings, "link", "", "none: one GPU is visible");
}

static void enable_peers(looking *at)
{
    for (int from = 0; from < at->gpus; from++)
        for (int to = 0; to < at->gpus; to++) {
            CUcontext popped;
            if (from == to || at->context[from] == NULL || at->context[to] == NULL ||
                at->driver.cuCtxPushCurrent(at->context[from]) != CUDA_SUCCESS)
                continue;
            const CUresult result = at->driver.cuCtxEnablePeerAccess(at->context[to], 0);
            at->reach[from][to] = /* refused: copies are staged */
                result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
            at->driver.cuCtxPopCurrent(&popped);
        }
}

static void close_gpus(looking *at)
{
    for (int gpu = 0; gpu < at->gpus; gpu++) {
        CUcontext popped;
        if (at->context[gpu] == NULL)
            continue;
        arf_flag_end_drop(&at->driver, &at->end[gpu]);
        if (at->buffer[gpu] != 0 && at->driver.cuCtxPushCurrent(at->context[gpu]) == CUDA_SUCCESS) {
            at->driver.cuMemFree(at->buffer[gpu]);
            at->driver.cuCtxPopCurrent(&popped);
        }
        at->driver.cuDevicePrimaryCtxRelease(at->device[gpu]);
    }
}

void arf_probe_cuda(arf_findings *findings)
{
    looking at = {.findings = findings};
    char folder[200];
    bool usable = find_libraries(&at);
    bool daemon = arf_mps_daemon(folder, sizeof folder);
    arf_find(findings, "mps", "", "control daemon %s in %s", daemon ? "answers" : "not found",
             folder);
    int count = 0;
    if (usable && at.driver.cuDeviceGetCount(&count) == CUDA_SUCCESS) {
        arf_find(findings, "visible", "", "%d GPU%s", count, count == 1 ? "" : "s");
        for (; at.gpus < count && at.gpus < ARF_MAX_GPUS; at.gpus++)
            if (at.driver.cuDeviceGet(&at.device[at.gpus], at.gpus) != CUDA_SUCCESS ||
                at.driver.cuDeviceGetUuid(&at.uuid[at.gpus], at.device[at.gpus]) != CUDA_SUCCESS)
                break;
        for (int gpu = 0; gpu < at.gpus; gpu++) {
            find_gpu(&at, gpu);
            if (!open_gpu(&at, gpu))
                arf_find(findings, "gpu", "context",
                         "none on GPU %d: out of memory, or not allowed", gpu);
        }
        enable_peers(&at);
        find_links(&at);
        close_gpus(&at);
    }
    arf_nvml_close(&at.nvml);
    arf_driver_close(&at.driver);
}
