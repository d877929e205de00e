/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/flag.h"

#include <string.h>

#include "device/cuda/compile.h"
#include "kernels/arguments.h"

/* Round trips before the clock is read, and those that count. */
#define WARM_TURNS 100
#define TURNS 1000

#define DIGITS(number) #number
#define TEXT(number) DIGITS(number)

/*
 * One thread at each end. The clock is read rarely, since that takes as long as some looks. No file
 * of kernels/: no call runs it, and what is there is evidence in profiles.
 */
static const char flag_text[] =
    "#include \"primitives.cuh\"\n"
    "extern \"C\" __global__ void arf_flag(arf_word *mine, arf_word *theirs, int first,\n"
    "                                    arf_word limit)\n"
    "{\n"
    "    const arf_word start = arf_now();\n"
    "    arf_word begun = start;\n"
    "    for (arf_word turn = 1; turn <= WARM_TURNS + TURNS; turn++) {\n"
    "        if (first)\n"
    "            arf_send_word(theirs, turn);\n"
    "        for (unsigned looks = 1; arf_look_word(mine) < turn; looks++)\n"
    "            if (looks % 256 == 0 && arf_now() - start > limit)\n"
    "                return;\n"
    "        if (!first)\n"
    "            arf_send_word(theirs, turn);\n"
    "        if (turn == WARM_TURNS)\n"
    "            begun = arf_now();\n"
    "    }\n"
    "    mine[1] = arf_now() - begun;\n"
    "}\n";

/* ---- the ends ----------------------------------------------------------------------------------
 */

/* The text, and the headers of kernels/ that it includes. */
static arfuse_status compile(const arf_driver *driver, CUdevice device, arf_image *image,
                             arf_error *error)
{
    enum { MOST_SOURCES = 64 };
    static const char *const define[] = {"-DARF_H=8", "-DARF_R=1", "-DARF_LOCAL_RANKS=1",
                                         "-DWARM_TURNS=" TEXT(WARM_TURNS), "-DTURNS=" TEXT(TURNS)};
    arf_source sources[MOST_SOURCES + 2] = {{"flag.cu", flag_text, sizeof flag_text - 1}};
    arf_compiler compiler;
    int major = 0, minor = 0;
    for (int i = 0; arf_sources[i].name != NULL && i < MOST_SOURCES; i++)
        sources[i + 1] = arf_sources[i];
    ARF_TRY(ARF_CU(driver, error, cuDeviceGetAttribute, &major,
                   CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    ARF_TRY(ARF_CU(driver, error, cuDeviceGetAttribute, &minor,
                   CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    ARF_TRY(arf_compiler_open(&compiler, major * 10 + minor, driver->version / 1000, sources, NULL,
                              error));
    arfuse_status status =
        arf_compile(&compiler, "flag.cu", define, sizeof define / sizeof *define, image, error);
    arf_compiler_close(&compiler);
    return status;
}

arfuse_status arf_flag_end_make(const arf_driver *driver, CUdevice device, CUcontext context,
                                CUdeviceptr words, arf_flag_end *end, arf_error *error)
{
    arf_image image = {0};
    *end = (arf_flag_end){.context = context, .words = words};
    ARF_TRY(compile(driver, device, &image, error));
    arfuse_status status =
        ARF_CU(driver, error, cuModuleLoadDataEx, &end->module, image.data, 0, NULL, NULL);
    arf_image_free(&image);
    ARF_TRY(status);
    ARF_TRY(ARF_CU(driver, error, cuModuleGetFunction, &end->kernel, end->module, "arf_flag"));
    return ARF_CU(driver, error, cuStreamCreate, &end->stream, CU_STREAM_NON_BLOCKING);
}

void arf_flag_end_drop(const arf_driver *driver, arf_flag_end *end)
{
    CUcontext popped;
    if (end->module != NULL && driver->cuCtxPushCurrent(end->context) == CUDA_SUCCESS) {
        if (end->stream != NULL)
            driver->cuStreamDestroy(end->stream);
        driver->cuModuleUnload(end->module);
        driver->cuCtxPopCurrent(&popped);
    }
    *end = (arf_flag_end){0};
}

/* ---- one pair ----------------------------------------------------------------------------------
 */

typedef arfuse_status step(const arf_driver *driver, const arf_flag_end *own,
                           const arf_flag_end *other, bool first, arf_error *error);

static arfuse_status clear(const arf_driver *driver, const arf_flag_end *own,
                           const arf_flag_end *other, bool first, arf_error *error)
{
    (void)other, (void)first;
    ARF_TRY(ARF_CU(driver, error, cuMemsetD8, own->words, 0, ARF_FLAG_BYTES));
    return ARF_CU(driver, error, cuCtxSynchronize); /* the stream does not wait for it */
}

static arfuse_status launch(const arf_driver *driver, const arf_flag_end *own,
                            const arf_flag_end *other, bool first, arf_error *error)
{
    CUdeviceptr mine = own->words, theirs = other->words;
    int begins = first;
    arf_word limit = (arf_word)(ARF_FLAG_LIMIT_SECONDS * 1e9);
    void *parameters[] = {&mine, &theirs, &begins, &limit};
    const CUlaunchConfig config = {.gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 1,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = own->stream};
    return ARF_CU(driver, error, cuLaunchKernelEx, &config, own->kernel, parameters, NULL);
}

static arfuse_status finish(const arf_driver *driver, const arf_flag_end *own,
                            const arf_flag_end *other, bool first, arf_error *error)
{
    (void)other, (void)first;
    return ARF_CU(driver, error, cuStreamSynchronize, own->stream);
}

/* A step at one end, in its context. */
static arfuse_status at_end(const arf_driver *driver, const arf_flag_end *own,
                            const arf_flag_end *other, bool first, step *what, arf_error *error)
{
    CUcontext popped;
    ARF_TRY(ARF_CU(driver, error, cuCtxPushCurrent, own->context));
    arfuse_status status = what(driver, own, other, first, error);
    driver->cuCtxPopCurrent(&popped);
    return status;
}

/* The second end first, so that it polls already when the first begins. */
static arfuse_status at_both(const arf_driver *driver, const arf_flag_end *first,
                             const arf_flag_end *second, step *what, arf_error *error)
{
    ARF_TRY(at_end(driver, second, first, false, what, error));
    return at_end(driver, first, second, true, what, error);
}

arfuse_status arf_flag_time(const arf_driver *driver, const arf_flag_end *first,
                            const arf_flag_end *second, double *us, arf_error *error)
{
    arf_word words[ARF_FLAG_BYTES / sizeof(arf_word)] = {0};
    CUcontext popped;
    ARF_TRY(at_both(driver, first, second, clear, error));
    ARF_TRY(at_both(driver, first, second, launch, error));
    ARF_TRY(at_both(driver, first, second, finish, error));
    ARF_TRY(ARF_CU(driver, error, cuCtxPushCurrent, first->context));
    arfuse_status status = ARF_CU(driver, error, cuMemcpyDtoH, words, first->words, ARF_FLAG_BYTES);
    driver->cuCtxPopCurrent(&popped);
    ARF_TRY(status);
    if (words[1] == 0)
        return arf_fail(error, ARFUSE_TIMEOUT, "no flag came back within %g s",
                        ARF_FLAG_LIMIT_SECONDS);
    *us = (double)words[1] / (2.0 * TURNS) * 1e-3;
    return ARFUSE_OK;
}
