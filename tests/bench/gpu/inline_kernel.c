/* SPDX-License-Identifier: Apache-2.0 */
#ifdef ARF_CUDA

#include "bench/gpu/inline_kernel.h"

#include <stdio.h>
#include <string.h>

enum { FILL_THREADS = 512, FILL_BLOCKS_PER_SM = 4 };

arfuse_status inline_kernel_make(const arf_cuda *device, const char *name, const char *text,
                                 inline_kernel *kernel, arf_error *error)
{
    char file[64], function[64];
    arf_compiler compiler;
    arf_image image = {0};
    snprintf(file, sizeof file, "%s.cu", name);
    snprintf(function, sizeof function, "arf_%s", name);
    const arf_source sources[] = {{file, text, strlen(text)}, {NULL, NULL, 0}};
    ARF_TRY(arf_compiler_open(&compiler,
                              device->key.capability_major * 10 + device->key.capability_minor,
                              device->driver.version / 1000, sources, NULL, error));
    arfuse_status status = arf_compile(&compiler, file, NULL, 0, &image, error);
    arf_compiler_close(&compiler);
    if (status == ARFUSE_OK)
        status = ARF_CU(&device->driver, error, cuModuleLoadDataEx, &kernel->module, image.data, 0,
                        NULL, NULL);
    arf_image_free(&image);
    if (status == ARFUSE_OK)
        status = ARF_CU(&device->driver, error, cuModuleGetFunction, &kernel->function,
                        kernel->module, function);
    return status;
}

arfuse_status inline_kernel_fill(const arf_cuda *device, const inline_kernel *kernel,
                                 void **parameters, CUstream stream, arf_error *error)
{
    const CUlaunchConfig config = {.gridDimX = (unsigned)(FILL_BLOCKS_PER_SM * device->sm_count),
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = FILL_THREADS,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = stream};
    return ARF_CU(&device->driver, error, cuLaunchKernelEx, &config, kernel->function, parameters,
                  NULL);
}

void inline_kernel_free(const arf_cuda *device, inline_kernel *kernel)
{
    if (kernel->module != NULL)
        device->driver.cuModuleUnload(kernel->module);
    *kernel = (inline_kernel){0};
}

#else
typedef int nothing_without_cuda;
#endif
