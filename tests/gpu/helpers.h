/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels beside those under test, so that graphs of many calls are held up at random and checked
 * without the host: hold-ups, and a comparison of a call's outputs with what they must be.
 */
#ifndef ARF_TESTS_GPU_HELPERS_H
#define ARF_TESTS_GPU_HELPERS_H

#include "device/numerics.h"
#include "gpu/gpu.h"

typedef struct gpu_helpers {
    const arf_driver *driver;
    CUmodule module;
    CUfunction delay, compare;
    CUdeviceptr expected[ARF_PATTERNS][2]; /* [tokens, H] of each output */
    size_t row_bytes;
    CUdeviceptr found; /* what differed so far */
} gpu_helpers;

/*
 * Compiles and loads the kernels; then runs each pattern once by LL, checks it against the
 * reference and keeps its outputs, of so many tokens: a row depends neither on M nor on the rank.
 * Collective as a call is. The context is current, in the functions below too.
 */
arfuse_status gpu_helpers_make(arf_cuda_space *space, arf_trial *trial, int tokens,
                               gpu_helpers *helpers, arf_error *error);
/* The kernels alone, into the cache; needs no GPU. */
arfuse_status gpu_helpers_compile(int capability, int driver_major, arf_error *error);
void gpu_helpers_drop(gpu_helpers *helpers); /* accepts a zeroed one, and one half made */

/* What is enqueued behind lasts so much later. */
arfuse_status gpu_hold_up(const gpu_helpers *helpers, unsigned long long ns, CUstream stream,
                          arf_error *error);

enum { GPU_MOST_COMPARED = 16 }; /* ranks at a time */

/* What one call of a shape with both outputs has left. */
typedef struct gpu_outputs {
    arf_pattern pattern;
    int64_t tokens;                  /* with the hidden size at most 2^27 elements */
    const arfuse_operands *operands; /* [ranks], one after another */
    int ranks;
    unsigned call; /* by which a difference names it */
} gpu_outputs;

/* Compares both outputs, and leaves nothing of them for the next call to look right by. */
arfuse_status gpu_compare(const gpu_helpers *helpers, const gpu_outputs *outputs, CUstream stream,
                          arf_error *error);
/* What is enqueued behind belongs to this replay. */
arfuse_status gpu_number(const gpu_helpers *helpers, unsigned replay, CUstream stream,
                         arf_error *error);

/* The lowest element of the first call that was wrong; calls that several streams compare at once
 * may be mixed up with one another. */
typedef struct gpu_difference {
    unsigned long long elements; /* that differ, of all calls; 0: none, and nothing else is set */
    unsigned replay, call;
    int rank; /* among the outputs' operands */
    bool norm;
    int64_t token;
    int element;
    arf_bf16 got, expected;
} gpu_difference;

/* Waits for nothing: of what has run so far. ARFUSE_WRONG_RESULT says in words what `first` does.
 */
arfuse_status gpu_differences(const gpu_helpers *helpers, gpu_difference *first, arf_error *error);
/* Nothing has differed so far. */
arfuse_status gpu_forget(const gpu_helpers *helpers, arf_error *error);

#endif
