/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/helpers.h"

#define SOURCE(...) #__VA_ARGS__
static const char helper_text[] = SOURCE(
    extern "C" __global__ void delay(unsigned long long ns) {
        unsigned long long start, now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
        do
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        while (now - start < ns);
    }

    /* Counts words of `got` that differ from `expected`, and leaves nothing of them. */
    extern "C" __global__ void compare(unsigned *got, const unsigned *expected, unsigned words,
                                       unsigned long long *differ) {
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words;
             i += gridDim.x * blockDim.x) {
            if (got[i] != expected[i])
                atomicAdd(differ, 1ull);
            got[i] = 0x7fc17fc1u;
        }
    });

enum { COMPARE_BLOCKS = 8, COMPARE_THREADS = 256 };

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

static arfuse_status load(const arf_cuda *cuda, gpu_helpers *helpers, arf_error *error)
{
    const arf_source sources[] = {{"helpers.cu", helper_text, sizeof helper_text - 1},
                                  {NULL, NULL, 0}};
    arf_compiler compiler;
    arf_image image;
    ARF_TRY(arf_compiler_open(&compiler,
                              cuda->key.capability_major * 10 + cuda->key.capability_minor,
                              cuda->driver.version / 1000, sources, NULL, error));
    arfuse_status status = arf_compile(&compiler, "helpers.cu", NULL, 0, &image, error);
    if (status == ARFUSE_OK)
        status = ARF_CU(helpers->driver, error, cuModuleLoadDataEx, &helpers->module, image.data, 0,
                        NULL, NULL);
    if (status == ARFUSE_OK)
        status = take(helpers, "delay", &helpers->delay, error);
    if (status == ARFUSE_OK)
        status = take(helpers, "compare", &helpers->compare, error);
    arf_image_free(&image);
    arf_compiler_close(&compiler);
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
    ARF_TRY(ARF_CU(helpers->driver, error, cuMemAlloc, &helpers->differ, 8));
    ARF_TRY(ARF_CU(helpers->driver, error, cuMemsetD8, helpers->differ, 0, 8));
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
    if (helpers->differ != 0)
        driver->cuMemFree(helpers->differ);
    if (helpers->module != NULL)
        driver->cuModuleUnload(helpers->module);
    *helpers = (gpu_helpers){.driver = NULL};
}

/* ---- using ----------------------------------------------------------------------------------- */

static arfuse_status launch(const gpu_helpers *helpers, CUfunction function, unsigned blocks,
                            unsigned threads, void **parameters, CUstream stream, arf_error *error)
{
    CUlaunchConfig config = {.gridDimX = blocks,
                             .gridDimY = 1,
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
    return launch(helpers, helpers->delay, 1, 1, parameters, stream, error);
}

arfuse_status gpu_compare(const gpu_helpers *helpers, arf_pattern pattern,
                          const arfuse_operands *own, int64_t tokens, CUstream stream,
                          arf_error *error)
{
    const void *out[2] = {own->residual_out, own->norm_out};
    unsigned words = (unsigned)((size_t)tokens * helpers->row_bytes / 4);
    for (int t = 0; t < 2; t++) {
        void *parameters[] = {&out[t], (void *)(uintptr_t)&helpers->expected[pattern][t], &words,
                              (void *)(uintptr_t)&helpers->differ};
        ARF_TRY(launch(helpers, helpers->compare, COMPARE_BLOCKS, COMPARE_THREADS, parameters,
                       stream, error));
    }
    return ARFUSE_OK;
}

arfuse_status gpu_differences(const gpu_helpers *helpers, arf_error *error)
{
    unsigned long long differ = 0;
    ARF_TRY(ARF_CU(helpers->driver, error, cuMemcpyDtoH, &differ, helpers->differ, 8));
    return differ == 0 ? ARFUSE_OK
                       : arf_fail(error, ARFUSE_WRONG_RESULT, "%llu words differ", differ);
}
