/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every protocol on one GPU against the reference, bit for bit: a pairwise slice of
 * the space.
 *
 *     gpu_protocols_test [--seed N] [--seconds N] [--small] [--compile]
 *
 * --small takes the slice's small cases alone and waits long: for compute-sanitizer.
 * --compile needs no GPU: it compiles the slice's kernels for compute capability 9.0
 * into the cache, so that a machine with a GPU need not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/slice.h"

static double wait_limit_seconds = 2.0; /* a sanitizer makes everything much slower */

static arf_space_spec spec_for(const slice_case *one)
{
    arf_space_spec spec = {.shape = one->shape, .wait_limit_seconds = wait_limit_seconds};
    spec.capacity[one->plan.protocol] = one->tokens;
    if (one->plan.protocol == ARF_SEPARATE)
        spec.capacity[ARF_LL] = one->tokens;
    return spec;
}

/* ---- the slice ------------------------------------------------------------------------------ */

/* A call of `tokens` tokens, as the case says: enqueued, or captured once and replayed. */
static arfuse_status call(arf_cuda_space *space, arf_trial *trial, const slice_case *one,
                          const arf_launch *prepared, int64_t tokens, CUgraphExec *graph,
                          arf_error *error)
{
    arf_launch launch = *prepared;
    launch.tokens = tokens;
    ARF_TRY(arf_trial_poison(trial, error));
    if (!one->graph)
        ARF_TRY(arf_cuda_launch(&space->base, &launch, error));
    else {
        if (*graph == NULL)
            ARF_TRY(gpu_capture(space, &launch, graph, error));
        ARF_TRY(gpu_replay(space, *graph, error));
    }
    ARF_TRY(gpu_finish(space, error));
    return arf_trial_check(trial, one->pattern, tokens, error);
}

/* More calls than there are generations, of two sizes: what a small call leaves must not show in a
 * large one, nor the other way round. */
static arfuse_status calls(arf_cuda_space *space, arf_trial *trial, const slice_case *one,
                           arf_error *error)
{
    arf_launch launch = arf_trial_launch(trial, one->pattern, one->tokens);
    uint64_t state = one->seed | 1;
    int64_t few = 1 + gpu_pick(&state, (int)one->tokens);
    int64_t tokens[] = {one->tokens, few, one->tokens, few, one->tokens};
    CUgraphExec graph[2] = {NULL, NULL};
    arfuse_status status = gpu_prepare(space, &one->plan, &launch, error);
    for (int i = 0; status == ARFUSE_OK && i < 5; i++) {
        status = call(space, trial, one, &launch, tokens[i], &graph[i % 2], error);
        if (status != ARFUSE_OK)
            arf_error_prefix(error, "call %d, of %lld tokens", i + 1, (long long)tokens[i]);
    }
    gpu_drop(space, graph[0]);
    gpu_drop(space, graph[1]);
    return status;
}

static arfuse_status run_case(const slice_case *one, arf_error *error)
{
    gpu_team gpu;
    arf_space *space = NULL;
    arf_trial *trial = NULL;
    arf_space_spec spec = spec_for(one);
    arfuse_status status = gpu_open(&gpu, one->shape.tp_size, error);
    if (status == ARFUSE_OK)
        status = arf_cuda_space_create(&gpu.cuda->base, &spec, &space, error);
    if (status == ARFUSE_OK)
        status = arf_trial_create(&gpu.cuda->base, &one->shape, one->tokens, one->kind, one->seed,
                                  &trial, error);
    if (status == ARFUSE_OK)
        status = calls((arf_cuda_space *)space, trial, one, error);
    arf_trial_destroy(trial);
    if (space != NULL)
        arf_cuda_space_destroy(space);
    gpu_close(&gpu);
    return status;
}

static bool is_small(const slice_case *one)
{
    return one->tokens <= 8 && one->shape.tp_size <= 4 && one->shape.hidden_size <= 6144;
}

static void run_slice(const slice_set *slice, bool small, double until)
{
    int run = 0, refused = 0;
    for (int i = 0; i < slice->cases && gpu_seconds() < until; i++) {
        const slice_case *one = &slice->of[i];
        if (small && !is_small(one))
            continue;
        run++;
        arf_error error = ARF_ERROR_INIT;
        arfuse_status status = run_case(one, &error);
        if (status == ARFUSE_NOT_SUPPORTED) {
            refused++;
            gpu_skip("%s: %s", one->text, error.text);
            continue;
        }
        gpu_ok(status == ARFUSE_OK, "%s", one->text);
        if (status != ARFUSE_OK)
            gpu_note("  %s", error.text);
    }
    gpu_note("coverage: %d of %d cases run, %d of them refused by the GPU; all %d cases hold %d of "
             "%d pairs",
             run, slice->cases, refused, slice->cases, slice->covered, slice->pairs);
}

/* ---- compiling only ---------------------------------------------------------------------------
 */

static void compile_all(const slice_set *slice)
{
    arf_compiler compiler;
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = arf_compiler_open(&compiler, 90, 13, arf_sources, NULL, &error);
    for (int i = 0; status == ARFUSE_OK && i < slice->cases; i++)
        status = gpu_compile_plan(&compiler, &slice->of[i].shape, slice->of[i].shape.tp_size,
                                  slice->of[i].pattern, &slice->of[i].plan, &error);
    gpu_report(status, &error, "every kernel of the slice compiles");
    gpu_note("%d compiled, %d from the cache", compiler.compiled, compiler.reused);
    arf_compiler_close(&compiler);
}

int main(int argc, char **argv)
{
    static slice_set slice;
    uint64_t seed = 1;
    double seconds = 150;
    bool compile = false, small = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--compile") == 0)
            compile = true;
        else if (strcmp(argv[i], "--small") == 0)
            small = true;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = strtod(argv[++i], NULL);
        else
            return fprintf(stderr, "gpu_protocols_test: unknown option %s\n", argv[i]), 2;
    }
    double start = gpu_seconds();
    if (!compile && !gpu_present()) {
        gpu_skip("no NVIDIA device here");
        return gpu_done();
    }
    gpu_note("seed %llu", (unsigned long long)seed);
    slice_make(seed, &slice);
    if (compile)
        compile_all(&slice);
    else {
        if (small)
            wait_limit_seconds = 60;
        run_slice(&slice, small, start + seconds);
    }
    return gpu_done();
}
