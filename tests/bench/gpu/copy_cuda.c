/* SPDX-License-Identifier: Apache-2.0 */
#ifdef ARF_CUDA

#include "bench/gpu/copy.h"

#include <math.h>

#include "bench/gpu/inline_kernel.h"
#include "tune/interval.h"

/*
 * Loads and stores pass by the L1, which would else hold what each multiprocessor copies. Threads
 * come back to the same packs in every turn, so small buffers stay in the L2, as a call's do.
 */
static const char copy_text[] =
    "extern \"C\" __global__ void arf_copy(int4 *to, const int4 *from, unsigned long long packs,\n"
    "                                    int turns)\n"
    "{\n"
    "    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;\n"
    "    for (int turn = 0; turn < turns; turn++) {\n"
    "        unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "        for (; i + 3 * step < packs; i += 4 * step) {\n"
    "            const int4 a = __ldcg(from + i), b = __ldcg(from + i + step);\n"
    "            const int4 c = __ldcg(from + i + 2 * step), d = __ldcg(from + i + 3 * step);\n"
    "            __stcg(to + i, a);\n"
    "            __stcg(to + i + step, b);\n"
    "            __stcg(to + i + 2 * step, c);\n"
    "            __stcg(to + i + 3 * step, d);\n"
    "        }\n"
    "        for (; i < packs; i += step)\n"
    "            __stcg(to + i, __ldcg(from + i));\n"
    "    }\n"
    "}\n";

enum { TURNS = 7 };
/* Copied between two events, so that starting a kernel is no part of the time. */
#define COPIED 4e9

typedef struct copy {
    const arf_cuda *device;
    CUstream stream;
    CUevent begin, end;
    CUdeviceptr from, to;
    size_t bytes; /* of one buffer */
    int turns;
    inline_kernel kernel;
} copy;

static arfuse_status by_kernel(copy *c, arf_error *error)
{
    unsigned long long packs = c->bytes / 16;
    void *parameters[] = {&c->to, &c->from, &packs, &c->turns};
    return inline_kernel_fill(c->device, &c->kernel, parameters, c->stream, error);
}

static arfuse_status by_driver(copy *c, arf_error *error)
{
    for (int i = 0; i < c->turns; i++)
        ARF_TRY(ARF_CU(&c->device->driver, error, cuMemcpyDtoDAsync, c->to, c->from, c->bytes,
                       c->stream));
    return ARFUSE_OK;
}

static arfuse_status median(copy *c, arfuse_status (*way)(copy *, arf_error *), double *speed,
                            arf_error *error)
{
    const arf_driver *driver = &c->device->driver;
    double turn[TURNS];
    for (int i = -1; i < TURNS; i++) { /* one to warm up */
        float ms = 0;
        ARF_TRY(ARF_CU(driver, error, cuEventRecord, c->begin, c->stream));
        ARF_TRY(way(c, error));
        ARF_TRY(ARF_CU(driver, error, cuEventRecord, c->end, c->stream));
        ARF_TRY(ARF_CU(driver, error, cuStreamSynchronize, c->stream));
        ARF_TRY(ARF_CU(driver, error, cuEventElapsedTime, &ms, c->begin, c->end));
        if (i >= 0)
            turn[i] = 2.0 * (double)c->bytes * c->turns / (fmax(ms, 1e-6) * 1000);
    }
    *speed = arf_median(turn, TURNS);
    return ARFUSE_OK;
}

static arfuse_status measure(copy *c, double *speed, arf_error *error)
{
    const arf_driver *driver = &c->device->driver;
    double kernel = 0, own = 0;
    ARF_TRY(inline_kernel_make(c->device, "copy", copy_text, &c->kernel, error));
    ARF_TRY(ARF_CU(driver, error, cuStreamCreate, &c->stream, CU_STREAM_NON_BLOCKING));
    ARF_TRY(ARF_CU(driver, error, cuEventCreate, &c->begin, CU_EVENT_DEFAULT));
    ARF_TRY(ARF_CU(driver, error, cuEventCreate, &c->end, CU_EVENT_DEFAULT));
    ARF_TRY(ARF_CU(driver, error, cuMemAlloc, &c->from, c->bytes));
    ARF_TRY(ARF_CU(driver, error, cuMemAlloc, &c->to, c->bytes));
    ARF_TRY(ARF_CU(driver, error, cuMemsetD8, c->from, 1, c->bytes));
    ARF_TRY(median(c, by_kernel, &kernel, error));
    ARF_TRY(median(c, by_driver, &own, error));
    *speed = fmax(kernel, own);
    return ARFUSE_OK;
}

arfuse_status copy_speed_cuda(arf_device *device, size_t bytes, double *speed, arf_error *error)
{
    copy c = {.device = (const arf_cuda *)device, .bytes = bytes / 2 / 16 * 16};
    const arf_driver *driver = &c.device->driver;
    c.turns = (int)fmax(1, COPIED / (2.0 * (double)c.bytes));
    ARF_TRY(arf_cuda_enter(c.device, error));
    arfuse_status status = measure(&c, speed, error);
    if (c.from != 0)
        driver->cuMemFree(c.from);
    if (c.to != 0)
        driver->cuMemFree(c.to);
    if (c.begin != NULL)
        driver->cuEventDestroy(c.begin);
    if (c.end != NULL)
        driver->cuEventDestroy(c.end);
    if (c.stream != NULL)
        driver->cuStreamDestroy(c.stream);
    inline_kernel_free(c.device, &c.kernel);
    arf_cuda_leave(c.device);
    return status;
}

#else
typedef int nothing_without_cuda;
#endif
