/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/helpers.h"

#include <stddef.h>

#define SOURCE(...) #__VA_ARGS__
static const char helper_text[] = SOURCE(
    extern "C" __global__ void delay(unsigned long long ns) {
        unsigned long long start, now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
        do
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        while (now - start < ns);
    }

    struct findings { /* as of helpers.h */
                      unsigned long long elements, owner, first;
                      unsigned replay, unused;
    };
    struct comparison {
        unsigned *got[32];
        const unsigned *expected[2];
        findings *found;
        unsigned words, call;
    };

    /* The lowest element of the first call that differs: place and values in one word, so that one
     * atomic minimum keeps them together. Calls on one stream are compared one after another. */
    __device__ void note(const comparison &of, unsigned element, unsigned got, unsigned expected) {
        const unsigned long long own = (unsigned long long)of.found->replay << 32 | (of.call + 1);
        const unsigned long long place = blockIdx.y << 27 | element;
        const unsigned long long owner = atomicCAS(&of.found->owner, 0ull, own);
        atomicAdd(&of.found->elements, 1ull);
        if (owner == 0 || owner == own)
            atomicMin(&of.found->first, place << 32 | got << 16 | expected);
    }

    /* A row of blocks for each output; leaves nothing of it. A word is two elements. */
    extern "C" __global__ void compare(comparison of) {
        unsigned *const got = of.got[blockIdx.y];
        const unsigned *const expected = of.expected[blockIdx.y % 2];
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < of.words;
             i += gridDim.x * blockDim.x) {
            const unsigned is = got[i], right = expected[i];
            got[i] = 0x7fc17fc1u;
            if ((is & 0xffffu) != (right & 0xffffu))
                note(of, 2 * i, is & 0xffffu, right & 0xffffu);
            if (is >> 16 != right >> 16)
                note(of, 2 * i + 1, is >> 16, right >> 16);
        }
    });

/* The kernels' own structs, again. */
typedef struct findings {
    unsigned long long elements; /* that differ */
    unsigned long long owner;    /* replay << 32 | call + 1 of the first of them; 0: none yet */
    unsigned long long first;    /* output << 59 | element << 32 | got << 16 | expected */
    unsigned replay, unused;     /* now */
} findings;
typedef struct comparison {
    CUdeviceptr got[2 * GPU_MOST_COMPARED], expected[2], found;
    unsigned words, call;
} comparison;

enum { COMPARE_BLOCKS = 8, COMPARE_THREADS = 256, POISON = 0x7fc1 };

/* ---- making ---------------------------------------------------------------------------------- */

/* As the kernels under test do where a GPU is shared: a multiprocessor on which something waits
 * cannot divide its first-level memory in another way. */
static arfuse_status take(gpu_helpers *helpers, const char *name, CUfunction *function,
                          arf_error *error)
{
    ARF_TRY(ARF_CU(helpers->driver, error, cuModuleGetFunction, function, helpers->module, name));
    return ARF_CU(helpers->driver, error, cuFuncSetAttribute, *function,
                  CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                  CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
}

static arfuse_status compile(int capability, int driver_major, arf_image *image, arf_error *error)
{
    const arf_source sources[] = {{"helpers.cu", helper_text, sizeof helper_text - 1},
                                  {NULL, NULL, 0}};
    arf_compiler compiler;
    ARF_TRY(arf_compiler_open(&compiler, capability, driver_major, sources, NULL, error));
    arfuse_status status = arf_compile(&compiler, "helpers.cu", NULL, 0, image, error);
    arf_compiler_close(&compiler);
    return status;
}

arfuse_status gpu_helpers_compile(int capability, int driver_major, arf_error *error)
{
    arf_image image;
    ARF_TRY(compile(capability, driver_major, &image, error));
    arf_image_free(&image);
    return ARFUSE_OK;
}

static arfuse_status load(const arf_cuda *cuda, gpu_helpers *helpers, arf_error *error)
{
    arf_image image;
    ARF_TRY(compile(cuda->key.capability_major * 10 + cuda->key.capability_minor,
                    cuda->driver.version / 1000, &image, error));
    arfuse_status status = ARF_CU(helpers->driver, error, cuModuleLoadDataEx, &helpers->module,
                                  image.data, 0, NULL, NULL);
    if (status == ARFUSE_OK)
        status = take(helpers, "delay", &helpers->delay, error);
    if (status == ARFUSE_OK)
        status = take(helpers, "compare", &helpers->compare, error);
    arf_image_free(&image);
    return status;
}

static arfuse_status expect(arf_cuda_space *space, arf_trial *trial, int tokens,
                            arf_pattern pattern, gpu_helpers *helpers, arf_error *error)
{
    const arfuse_operands *operands = arf_trial_operands(trial);
    const size_t bytes = (size_t)tokens * helpers->row_bytes;
    arf_launch launch = arf_trial_launch(trial, pattern, tokens);
    arf_plan plan = gpu_plan(ARF_LL, pattern);
    ARF_TRY(gpu_prepare(space, &plan, &launch, error));
    ARF_TRY(arf_trial_poison(trial, error));
    ARF_TRY(arf_cuda_launch(&space->base, &launch, error));
    ARF_TRY(gpu_finish(space, error));
    ARF_TRY(arf_trial_check(trial, pattern, tokens, error));
    const void *out[2] = {operands->residual_out, operands->norm_out};
    for (int t = 0; t < 2; t++) {
        CUdeviceptr *to = &helpers->expected[pattern][t];
        ARF_TRY(ARF_CU(helpers->driver, error, cuMemAlloc, to, bytes));
        ARF_TRY(ARF_CU(helpers->driver, error, cuMemcpyDtoDAsync, *to,
                       (CUdeviceptr)(uintptr_t)out[t], bytes, NULL));
    }
    return arf_cuda_synchronize(&space->base, NULL, error);
}

arfuse_status gpu_helpers_make(arf_cuda_space *space, arf_trial *trial, int tokens,
                               gpu_helpers *helpers, arf_error *error)
{
    const arf_cuda *cuda = (const arf_cuda *)space->base.device;
    *helpers = (gpu_helpers){.driver = &cuda->driver,
                             .row_bytes = (size_t)space->base.spec.shape.hidden_size * 2};
    ARF_TRY(load(cuda, helpers, error));
    ARF_TRY(ARF_CU(helpers->driver, error, cuMemAlloc, &helpers->found, sizeof(findings)));
    ARF_TRY(gpu_forget(helpers, error));
    for (int p = 0; p < ARF_PATTERNS; p++)
        ARF_TRY(expect(space, trial, tokens, (arf_pattern)p, helpers, error));
    return ARFUSE_OK;
}

void gpu_helpers_drop(gpu_helpers *helpers)
{
    const arf_driver *driver = helpers->driver;
    for (int p = 0; p < ARF_PATTERNS; p++)
        for (int t = 0; t < 2; t++)
            if (helpers->expected[p][t] != 0)
                driver->cuMemFree(helpers->expected[p][t]);
    if (helpers->found != 0)
        driver->cuMemFree(helpers->found);
    if (helpers->module != NULL)
        driver->cuModuleUnload(helpers->module);
    *helpers = (gpu_helpers){.driver = NULL};
}

/* ---- using ----------------------------------------------------------------------------------- */

static arfuse_status launch(const gpu_helpers *helpers, CUfunction function, unsigned blocks,
                            unsigned rows, unsigned threads, void **parameters, CUstream stream,
                            arf_error *error)
{
    CUlaunchConfig config = {.gridDimX = blocks,
                             .gridDimY = rows,
                             .gridDimZ = 1,
                             .blockDimX = threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};
    return ARF_CU(helpers->driver, error, cuLaunchKernelEx, &config, function, parameters, NULL);
}

arfuse_status gpu_hold_up(const gpu_helpers *helpers, unsigned long long ns, CUstream stream,
                          arf_error *error)
{
    void *parameters[] = {&ns};
    return launch(helpers, helpers->delay, 1, 1, 1, parameters, stream, error);
}

arfuse_status gpu_number(const gpu_helpers *helpers, unsigned replay, CUstream stream,
                         arf_error *error)
{
    return ARF_CU(helpers->driver, error, cuMemsetD32Async,
                  helpers->found + offsetof(findings, replay), replay, 1, stream);
}

arfuse_status gpu_compare(const gpu_helpers *helpers, const gpu_outputs *outputs, CUstream stream,
                          arf_error *error)
{
    comparison of = {.found = helpers->found,
                     .words = (unsigned)((size_t)outputs->tokens * helpers->row_bytes / 4),
                     .call = outputs->call};
    if (outputs->ranks > GPU_MOST_COMPARED)
        return arf_fail(error, ARFUSE_FAILURE, "%d ranks to compare: at most %d", outputs->ranks,
                        GPU_MOST_COMPARED);
    for (int r = 0; r < outputs->ranks; r++) {
        of.got[2 * r] = (CUdeviceptr)(uintptr_t)outputs->operands[r].residual_out;
        of.got[2 * r + 1] = (CUdeviceptr)(uintptr_t)outputs->operands[r].norm_out;
    }
    for (int t = 0; t < 2; t++)
        of.expected[t] = helpers->expected[outputs->pattern][t];
    void *parameters[] = {&of};
    return launch(helpers, helpers->compare, COMPARE_BLOCKS, 2 * (unsigned)outputs->ranks,
                  COMPARE_THREADS, parameters, stream, error);
}

arfuse_status gpu_differences(const gpu_helpers *helpers, gpu_difference *first, arf_error *error)
{
    findings found;
    ARF_TRY(ARF_CU(helpers->driver, error, cuMemcpyDtoH, &found, helpers->found, sizeof found));
    *first = (gpu_difference){.elements = found.elements};
    if (found.elements == 0)
        return ARFUSE_OK;
    const unsigned output = (unsigned)(found.first >> 59);
    const unsigned element = (unsigned)(found.first >> 32 & 0x7ffffffu);
    const unsigned hidden = (unsigned)(helpers->row_bytes / 2);
    first->replay = (unsigned)(found.owner >> 32);
    first->call = (unsigned)found.owner - 1;
    first->rank = (int)(output / 2);
    first->norm = output % 2 == 1;
    first->token = element / hidden;
    first->element = (int)(element % hidden);
    first->got = (arf_bf16)(found.first >> 16);
    first->expected = (arf_bf16)found.first;
    return arf_fail(error, ARFUSE_WRONG_RESULT,
                    "rank %d of those compared, %s, token %lld, element %d is 0x%04x%s, expected "
                    "0x%04x; %llu elements differ in all",
                    first->rank, first->norm ? "norm_out" : "residual_out", (long long)first->token,
                    first->element, (unsigned)first->got,
                    first->got == POISON ? " (not written)" : "", (unsigned)first->expected,
                    first->elements);
}

arfuse_status gpu_forget(const gpu_helpers *helpers, arf_error *error)
{
    const findings none = {.first = UINT64_MAX};
    return ARF_CU(helpers->driver, error, cuMemcpyHtoD, helpers->found, &none, sizeof none);
}
