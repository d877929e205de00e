/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory, a stream and graphs for the examples: plain memory for the host device,
 * or the little of the CUDA driver that they need, opened at run time, so that
 * they build on any machine. An engine has all of this already.
 */
#ifndef EXAMPLES_DEVICE_MEMORY_H
#define EXAMPLES_DEVICE_MEMORY_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arfuse.h"

typedef void *cuda_graph;

typedef struct example_device {
    int cuda; /* 0: the functions below are not there */
    arfuse_stream stream;
    int (*allocate)(unsigned long long *pointer, size_t bytes);
    int (*release)(unsigned long long pointer);
    int (*to_device)(unsigned long long to, const void *from, size_t bytes);
    int (*to_host)(void *to, unsigned long long from, size_t bytes);
    int (*synchronize)(arfuse_stream stream);
    int (*begin)(arfuse_stream stream, int mode);
    int (*end)(arfuse_stream stream, void **graph);
    int (*instantiate)(cuda_graph *executable, void *graph, unsigned long long flags);
    int (*launch)(cuda_graph executable, arfuse_stream stream);
    int (*drop)(cuda_graph executable);
    int (*drop_template)(void *graph);
} example_device;

static inline void device_check(int code, const char *what)
{
    if (code == 0)
        return;
    fprintf(stderr, "CUDA: %s failed with %d\n", what, code);
    exit(ARFUSE_HARDWARE);
}

/* Looks up one function; the pointer is copied since C has no cast from data to code. */
static inline void device_find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    device_check(found == NULL, name);
    memcpy(function, &found, sizeof found);
}

/* `cuda` 1: GPU 0, in the primary context that CUDA's run-time library uses too. */
static inline void device_open(example_device *device, int cuda)
{
    void *library, *context = NULL;
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *);
    int (*stream)(arfuse_stream *, unsigned);
    memset(device, 0, sizeof *device);
    device->cuda = cuda;
    if (!cuda)
        return;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    device_check(library == NULL, "opening libcuda.so.1");
    device_find(library, "cuInit", &init);
    device_find(library, "cuDevicePrimaryCtxRetain", &retain);
    device_find(library, "cuCtxSetCurrent", &set);
    device_find(library, "cuStreamCreate", &stream);
    device_find(library, "cuMemAlloc_v2", &device->allocate);
    device_find(library, "cuMemFree_v2", &device->release);
    device_find(library, "cuMemcpyHtoD_v2", &device->to_device);
    device_find(library, "cuMemcpyDtoH_v2", &device->to_host);
    device_find(library, "cuStreamSynchronize", &device->synchronize);
    device_find(library, "cuStreamBeginCapture_v2", &device->begin);
    device_find(library, "cuStreamEndCapture", &device->end);
    device_find(library, "cuGraphInstantiateWithFlags", &device->instantiate);
    device_find(library, "cuGraphLaunch", &device->launch);
    device_find(library, "cuGraphExecDestroy", &device->drop);
    device_find(library, "cuGraphDestroy", &device->drop_template);
    device_check(init(0), "cuInit");
    device_check(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    device_check(set(context), "cuCtxSetCurrent");
    device_check(stream(&device->stream, 1 /* not ordered with the default stream */),
                 "cuStreamCreate");
}

/* 16-byte alignment is what operands need; both give more. */
static inline void *device_allocate(const example_device *device, size_t bytes)
{
    unsigned long long pointer = 0;
    void *memory;
    if (device->cuda) {
        device_check(device->allocate(&pointer, bytes + 1), "cuMemAlloc");
        return (void *)(uintptr_t)pointer;
    }
    memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (memory == NULL)
        abort();
    return memory;
}

static inline void device_release(const example_device *device, void *memory)
{
    if (device->cuda)
        device->release((unsigned long long)(uintptr_t)memory);
    else
        free(memory);
}

/*
 * Both wait for the stream first. A copy to the device may return while its last part is still on
 * the way, on the legacy stream, which ours is not ordered with: so it is waited for as well.
 */
static inline void device_upload(const example_device *device, void *to, const void *from,
                                 size_t bytes)
{
    if (device->cuda) {
        device_check(device->synchronize(device->stream), "cuStreamSynchronize");
        device_check(device->to_device((unsigned long long)(uintptr_t)to, from, bytes), "copying");
        device_check(device->synchronize(NULL), "cuStreamSynchronize");
    } else {
        memcpy(to, from, bytes);
    }
}

static inline void device_download(const example_device *device, void *to, const void *from,
                                   size_t bytes)
{
    if (device->cuda) {
        device_check(device->synchronize(device->stream), "cuStreamSynchronize");
        device_check(device->to_host(to, (unsigned long long)(uintptr_t)from, bytes), "copying");
    } else {
        memcpy(to, from, bytes);
    }
}

/* Between the two, calls on the stream are recorded instead of run; in this thread alone. */
static inline void device_begin_capture(const example_device *device)
{
    device_check(device->begin(device->stream, 1), "cuStreamBeginCapture");
}

static inline cuda_graph device_end_capture(const example_device *device)
{
    void *graph = NULL;
    cuda_graph executable = NULL;
    device_check(device->end(device->stream, &graph), "cuStreamEndCapture");
    device_check(device->instantiate(&executable, graph, 0), "cuGraphInstantiate");
    /* It, too, would keep the workspace from being destroyed. */
    device_check(device->drop_template(graph), "cuGraphDestroy");
    return executable;
}

#endif
