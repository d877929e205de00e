/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel of the benchmark's own, from its text. */
#ifndef TESTS_BENCH_GPU_INLINE_KERNEL_H
#define TESTS_BENCH_GPU_INLINE_KERNEL_H

#include "device/cuda/cuda_device.h"

typedef struct inline_kernel {
    CUmodule module;
    CUfunction function;
} inline_kernel;

/* `text` defines arf_NAME. The context is current. */
arfuse_status inline_kernel_make(const arf_cuda *device, const char *name, const char *text,
                                 inline_kernel *kernel, arf_error *error);
/* A grid that fills the GPU; the kernel strides over its work. The context is current. */
arfuse_status inline_kernel_fill(const arf_cuda *device, const inline_kernel *kernel,
                                 void **parameters, CUstream stream, arf_error *error);
void inline_kernel_free(const arf_cuda *device, inline_kernel *kernel); /* accepts a zeroed one */

#endif
