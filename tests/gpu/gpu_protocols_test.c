/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every protocol on one GPU against the reference, bit for bit: a pairwise slice of
 * the space, graphs of different M replayed in random order, and everything
 * interleaved on one workspace.
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

#include "device/reference.h"
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

/* ---- everything on one workspace --------------------------------------------------------------
 */

enum { MIXED_HIDDEN = 6144, MIXED_RANKS = 8, MIXED_TOP_K = 8, MIXED_TOKENS = 64 };

typedef struct mixed_work {
    arf_cuda_space *space;
    arf_trial *trial;
    arf_launch launch[16];
    int launches;
} mixed_work;

static arf_shape mixed_shape(void)
{
    return (arf_shape){MIXED_RANKS, MIXED_HIDDEN, MIXED_TOP_K, ARF_ON, ARF_ON, ARF_ON};
}

static arf_plan mixed_plan(int index, arf_pattern *pattern)
{
    static const arf_protocol protocols[] = {ARF_LL, ARF_LL,      ARF_BT,
                                             ARF_BT, ARF_UNFUSED, ARF_SEPARATE};
    int form = index / ARF_PATTERNS;
    *pattern = (arf_pattern)(index % ARF_PATTERNS);
    if (protocols[form] == ARF_SEPARATE)
        *pattern = ARF_FINALIZE;
    arf_plan plan = gpu_plan(protocols[form], *pattern);
    gpu_set(&plan, *pattern, "kernels", form == 1 ? 1 : 2);
    gpu_set(&plan, *pattern, "owner", form == 3);
    return plan;
}
#define MIXED_PLANS 11

static arfuse_status prepare_mixed(mixed_work *mixed, arf_error *error)
{
    for (int i = 0; i < MIXED_PLANS; i++) {
        arf_pattern pattern;
        arf_plan plan = mixed_plan(i, &pattern);
        arf_launch *launch = &mixed->launch[mixed->launches++];
        *launch = arf_trial_launch(mixed->trial, pattern, 1);
        ARF_TRY(gpu_prepare(mixed->space, &plan, launch, error));
    }
    return ARFUSE_OK;
}

/* Calls back to back, without a host wait between them; the last one of each burst is compared. */
static arfuse_status eager_bursts(mixed_work *mixed, uint64_t *state, arf_error *error)
{
    for (int burst = 0; burst < 40; burst++) {
        arf_launch launch;
        int length = 1 + gpu_pick(state, 12);
        for (int i = 0; i < length; i++) {
            launch = mixed->launch[gpu_pick(state, mixed->launches)];
            launch.tokens = 1 + gpu_pick(state, gpu_pick(state, 2) ? 4 : MIXED_TOKENS);
            if (i == length - 1) {
                ARF_TRY(gpu_finish(mixed->space, error));
                ARF_TRY(arf_trial_poison(mixed->trial, error));
            }
            ARF_TRY(arf_cuda_launch(&mixed->space->base, &launch, error));
        }
        ARF_TRY(gpu_finish(mixed->space, error));
        ARF_TRY(arf_trial_check(mixed->trial, launch.pattern, launch.tokens, error));
    }
    return ARFUSE_OK;
}

enum { GRAPHS = 33, REPLAYS = 600, REPLAYS_A_CHECK = 20 };

static arfuse_status replay_graphs(mixed_work *mixed, CUgraphExec *graph, arf_launch *captured,
                                   uint64_t *state, arf_error *error)
{
    static const int tokens[] = {1, 17, 64};
    for (int i = 0; i < GRAPHS; i++) {
        captured[i] = mixed->launch[i % mixed->launches];
        captured[i].tokens = tokens[i / mixed->launches % 3];
        ARF_TRY(gpu_capture(mixed->space, &captured[i], &graph[i], error));
    }
    for (int i = 1; i <= REPLAYS; i++) {
        int which = gpu_pick(state, GRAPHS);
        bool compared = i % REPLAYS_A_CHECK == 0;
        if (compared) {
            ARF_TRY(gpu_finish(mixed->space, error));
            ARF_TRY(arf_trial_poison(mixed->trial, error));
        }
        ARF_TRY(gpu_replay(mixed->space, graph[which], error));
        if (compared) {
            ARF_TRY(gpu_finish(mixed->space, error));
            ARF_TRY(arf_trial_check(mixed->trial, captured[which].pattern, captured[which].tokens,
                                    error));
        }
    }
    return ARFUSE_OK;
}

static arfuse_status graph_order(mixed_work *mixed, uint64_t *state, arf_error *error)
{
    CUgraphExec graph[GRAPHS] = {NULL};
    arf_launch captured[GRAPHS];
    arfuse_status status = replay_graphs(mixed, graph, captured, state, error);
    for (int i = 0; i < GRAPHS; i++)
        gpu_drop(mixed->space, graph[i]);
    return status;
}

/* The reference's 1 / rms from the operands as they stand on the device. */
static arfuse_status expect_inverse(mixed_work *mixed, arf_pattern pattern, int64_t tokens,
                                    float *inverse, arf_error *error)
{
    static arfuse_operands host[MIXED_RANKS];
    const arfuse_operands *device = arf_trial_operands(mixed->trial);
    const arf_launch launch = arf_trial_launch(mixed->trial, pattern, tokens);
    const size_t row = MIXED_HIDDEN * 2, rows = (size_t)tokens * row;
    const size_t slots = (size_t)tokens * MIXED_TOP_K;
    arfuse_status status = ARFUSE_OK;
    for (int r = 0; r < MIXED_RANKS; r++) {
        host[r] = device[r];
        const struct {
            const void **at;
            size_t bytes;
        } tensor[] = {{&host[r].input, rows},
                      {&host[r].routed, (size_t)device[r].routed_rows * row},
                      {&host[r].weights, slots * 4},
                      {(const void **)&host[r].indices, slots * sizeof(int32_t)},
                      {&host[r].shared, rows},
                      {&host[r].residual, rows},
                      {&host[r].gamma, row}};
        for (size_t t = 0; t < sizeof tensor / sizeof tensor[0]; t++) {
            void *copy = malloc(tensor[t].bytes);
            if (status == ARFUSE_OK)
                status = copy == NULL
                             ? arf_fail(error, ARFUSE_FAILURE, "out of memory")
                             : arf_cuda_device.download(mixed->space->base.device, r, copy,
                                                        *tensor[t].at, tensor[t].bytes, error);
            *tensor[t].at = copy;
        }
    }
    arf_reference_call call = {
        pattern, mixed_shape(), tokens, launch.epsilon, launch.weight_bias, launch.routed_scale,
        host};
    static arf_bf16 residual_out[MIXED_TOKENS * MIXED_HIDDEN],
        norm_out[MIXED_TOKENS * MIXED_HIDDEN];
    if (status == ARFUSE_OK && !arf_reference(&call, residual_out, norm_out, inverse))
        status = arf_fail(error, ARFUSE_FAILURE, "no memory for the reference");
    for (int r = 0; r < MIXED_RANKS; r++) {
        free((void *)(uintptr_t)host[r].input);
        free((void *)(uintptr_t)host[r].routed);
        free((void *)(uintptr_t)host[r].weights);
        free((void *)(uintptr_t)host[r].indices);
        free((void *)(uintptr_t)host[r].shared);
        free((void *)(uintptr_t)host[r].residual);
        free((void *)(uintptr_t)host[r].gamma);
    }
    return status;
}

static arfuse_status inverses_are_equal(mixed_work *mixed, const arf_launch *launch,
                                        const float *expected, arf_error *error)
{
    float got[MIXED_TOKENS];
    const size_t bytes = (size_t)launch->tokens * sizeof got[0];
    ARF_TRY(arf_cuda_launch(&mixed->space->base, launch, error));
    ARF_TRY(gpu_finish(mixed->space, error));
    for (int r = 0; r < MIXED_RANKS; r++) {
        ARF_TRY(arf_cuda_device.download(mixed->space->base.device, r, got,
                                         mixed->space->inverse_rms[r], bytes, error));
        for (int64_t m = 0; m < launch->tokens; m++)
            if (memcmp(&got[m], &expected[m], sizeof got[m]) != 0)
                return arf_fail(error, ARFUSE_WRONG_RESULT,
                                "plan %d, rank %d, token %d: 1 / rms is %.9g, expected %.9g",
                                launch->plan, r, (int)m, (double)got[m], (double)expected[m]);
    }
    return ARFUSE_OK;
}

/* 1 / rms itself, of every plan: a last bit that is wrong there seldom shows in bf16. */
static arfuse_status check_inverses(mixed_work *mixed, arf_error *error)
{
    float expected[ARF_PATTERNS][MIXED_TOKENS];
    arf_device *device = mixed->space->base.device;
    arfuse_status status = ARFUSE_OK;
    for (int p = 0; p < ARF_PATTERNS; p++)
        ARF_TRY(expect_inverse(mixed, (arf_pattern)p, MIXED_TOKENS, expected[p], error));
    for (int r = 0; r < MIXED_RANKS; r++)
        mixed->space->inverse_rms[r] =
            arf_cuda_device.allocate(device, r, MIXED_TOKENS * sizeof(float));
    for (int i = 0; status == ARFUSE_OK && i < mixed->launches; i++) {
        arf_launch launch = mixed->launch[i];
        launch.tokens = MIXED_TOKENS;
        status = inverses_are_equal(mixed, &launch, expected[launch.pattern], error);
    }
    for (int r = 0; r < MIXED_RANKS; r++) {
        arf_cuda_device.release(device, r, mixed->space->inverse_rms[r]);
        mixed->space->inverse_rms[r] = NULL;
    }
    return status;
}

static arf_space_spec mixed_spec(void)
{
    return (arf_space_spec){.shape = mixed_shape(),
                            .capacity = {[ARF_LL] = MIXED_TOKENS,
                                         [ARF_BT] = MIXED_TOKENS,
                                         [ARF_UNFUSED] = MIXED_TOKENS,
                                         [ARF_SEPARATE] = MIXED_TOKENS},
                            .wait_limit_seconds = wait_limit_seconds};
}

static void report(arfuse_status status, const arf_error *error, const char *what)
{
    gpu_ok(status == ARFUSE_OK, "%s", what);
    if (status != ARFUSE_OK)
        gpu_note("  %s", error->text);
}

static arfuse_status open_mixed(gpu_team *gpu, mixed_work *mixed, arf_trial_kind kind,
                                uint64_t seed, arf_error *error)
{
    arf_space *space = NULL;
    arf_shape shape = mixed_shape();
    arf_space_spec spec = mixed_spec();
    ARF_TRY(gpu_open(gpu, MIXED_RANKS, error));
    ARF_TRY(arf_cuda_space_create(&gpu->cuda->base, &spec, &space, error));
    mixed->space = (arf_cuda_space *)space;
    ARF_TRY(
        arf_trial_create(&gpu->cuda->base, &shape, MIXED_TOKENS, kind, seed, &mixed->trial, error));
    return prepare_mixed(mixed, error);
}

static void close_mixed(gpu_team *gpu, mixed_work *mixed)
{
    arf_trial_destroy(mixed->trial);
    if (mixed->space != NULL)
        arf_cuda_space_destroy(&mixed->space->base);
    gpu_close(gpu);
}

static void run_mixed(uint64_t seed)
{
    gpu_team gpu;
    mixed_work mixed = {0};
    arf_error error = ARF_ERROR_INIT;
    uint64_t state = seed * 2 + 1;
    arfuse_status status = open_mixed(&gpu, &mixed, ARF_TRIAL_ADVERSARIAL, seed, &error);
    report(status, &error, "one workspace holds every protocol and pattern");
    if (status == ARFUSE_OK) {
        status = eager_bursts(&mixed, &state, &error);
        report(status, &error, "eager calls of all protocols, patterns and M in random order");
    }
    if (status == ARFUSE_OK) {
        status = graph_order(&mixed, &state, &error);
        report(status, &error, "graphs of all protocols, patterns and M replayed in random order");
    }
    close_mixed(&gpu, &mixed);
}

static void run_inverses(uint64_t seed)
{
    gpu_team gpu;
    mixed_work mixed = {0};
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = open_mixed(&gpu, &mixed, ARF_TRIAL_RANDOM, seed, &error);
    if (status == ARFUSE_OK)
        status = check_inverses(&mixed, &error);
    report(status, &error, "1 / rms of every protocol and pattern has the reference's bits");
    close_mixed(&gpu, &mixed);
}

/* ---- compiling only ---------------------------------------------------------------------------
 */

static arfuse_status compile_plan(arf_compiler *compiler, const arf_shape *shape, int local_ranks,
                                  arf_pattern pattern, const arf_plan *plan, arf_error *error)
{
    arf_recipe recipe;
    ARF_TRY(arf_recipe_make(shape, local_ranks, pattern, plan, &recipe, error));
    for (int i = 0; i < recipe.steps; i++)
        ARF_TRY(gpu_compile(compiler, &recipe.step[i], error));
    if (plan->protocol != ARF_SEPARATE)
        return ARFUSE_OK;
    arf_plan behind = gpu_plan(ARF_LL, ARF_ALLREDUCE);
    return compile_plan(compiler, shape, local_ranks, ARF_ALLREDUCE, &behind, error);
}

static void compile_all(const slice_set *slice)
{
    arf_compiler compiler;
    arf_error error = ARF_ERROR_INIT;
    arf_shape shape = mixed_shape();
    arfuse_status status = arf_compiler_open(&compiler, 90, 13, arf_sources, NULL, &error);
    for (int i = 0; status == ARFUSE_OK && i < slice->cases; i++)
        status = compile_plan(&compiler, &slice->of[i].shape, slice->of[i].shape.tp_size,
                              slice->of[i].pattern, &slice->of[i].plan, &error);
    for (int i = 0; status == ARFUSE_OK && i < MIXED_PLANS; i++) {
        arf_pattern pattern;
        arf_plan plan = mixed_plan(i, &pattern);
        status = compile_plan(&compiler, &shape, MIXED_RANKS, pattern, &plan, &error);
    }
    report(status, &error, "every kernel of the slice compiles");
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
        else {
            run_mixed(seed);
            run_inverses(seed);
        }
        run_slice(&slice, small, start + seconds);
    }
    return gpu_done();
}
