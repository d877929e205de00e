/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels beside those under test, so that graphs of many calls are held up at random and checked
 * without the host: hold-ups, and a comparison of a call's outputs with what they must be.
 */
#ifndef ARF_TESTS_GPU_HELPERS_H
#define ARF_TESTS_GPU_HELPERS_H

#include "gpu/gpu.h"

typedef struct gpu_helpers {
    const arf_driver *driver;
    CUmodule module;
    CUfunction delay, compare;
    CUdeviceptr expected[ARF_PATTERNS][2]; /* [tokens, H] of each output */
    size_t row_bytes;
    CUdeviceptr differ; /* how many words did */
} gpu_helpers;

/*
 * Compiles and loads the kernels; then runs each pattern once by LL, checks it against the
 * reference and keeps its outputs, of so many tokens: a row depends neither on M nor on the rank.
 * Collective as a call is. The context is current, in the functions below too.
 */
arfuse_status gpu_helpers_make(arf_cuda_space *space, arf_trial *trial, int tokens,
                               gpu_helpers *helpers, arf_error *error);
void gpu_helpers_drop(gpu_helpers *helpers); /* accepts a zeroed one, and one half made */

/* What is enqueued behind lasts so much later. */
arfuse_status gpu_hold_up(const gpu_helpers *helpers, unsigned long long ns, CUstream stream,
                          arf_error *error);
/* Compares both outputs, and leaves nothing of them for the next call to look right by. */
arfuse_status gpu_compare(const gpu_helpers *helpers, arf_pattern pattern,
                          const arfuse_operands *own, int64_t tokens, CUstream stream,
                          arf_error *error);
/* Waits for nothing: of what has run so far. ARFUSE_WRONG_RESULT says how many words differ. */
arfuse_status gpu_differences(const gpu_helpers *helpers, arf_error *error);

#endif
