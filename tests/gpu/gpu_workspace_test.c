/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One workspace that holds every protocol and pattern: calls in random order without
 * a host wait between them, graphs of different M replayed in random order, 1 / rms
 * itself, and calls with what they may leave out.
 *
 *     gpu_workspace_test [--seed N] [--compile]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/reference.h"
#include "gpu/gpu.h"

#define WAIT_LIMIT_SECONDS 2.0

enum { MIXED_HIDDEN = 6144, MIXED_RANKS = 8, MIXED_TOP_K = 8, MIXED_TOKENS = 64 };

typedef struct mixed_work {
    arf_cuda_space *space;
    arf_trial *trial;
    arf_launch launch[GPU_FORMS];
    int launches;
} mixed_work;

static arf_shape mixed_shape(void)
{
    return (arf_shape){MIXED_RANKS, MIXED_HIDDEN, MIXED_TOP_K, ARF_ON, ARF_ON, ARF_ON};
}

static arfuse_status prepare_mixed(mixed_work *mixed, arf_error *error)
{
    const arf_shape shape = mixed_shape();
    for (int i = 0; i < GPU_FORMS; i++) {
        arf_pattern pattern;
        arf_plan plan = gpu_form(&shape, i, &pattern);
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

/* A call may leave residual_out out, start plainly, and read the shared row early (nothing is on
 * the stream here that could still write it); the norm keeps its bits. */
static arfuse_status call_otherwise(mixed_work *mixed, const arf_launch *prepared, arf_error *error)
{
    static uint16_t first[MIXED_TOKENS * MIXED_HIDDEN], second[MIXED_TOKENS * MIXED_HIDDEN];
    arfuse_operands without[MIXED_RANKS];
    arf_device *device = mixed->space->base.device;
    arf_launch launch = *prepared;
    launch.tokens = MIXED_TOKENS;
    memcpy(without, launch.operands, sizeof without);
    for (int r = 0; r < MIXED_RANKS; r++)
        without[r].residual_out = NULL;
    ARF_TRY(arf_trial_poison(mixed->trial, error));
    ARF_TRY(arf_cuda_launch(&mixed->space->base, &launch, error));
    ARF_TRY(gpu_finish(mixed->space, error));
    ARF_TRY(arf_trial_check(mixed->trial, launch.pattern, launch.tokens, error));
    ARF_TRY(arf_cuda_device.download(device, 0, first, without[0].norm_out, sizeof first, error));
    ARF_TRY(arf_trial_poison(mixed->trial, error));
    launch.operands = without;
    launch.plain = launch.early_shared = true;
    ARF_TRY(arf_cuda_launch(&mixed->space->base, &launch, error));
    ARF_TRY(gpu_finish(mixed->space, error));
    ARF_TRY(arf_cuda_device.download(device, 0, second, without[0].norm_out, sizeof second, error));
    if (memcmp(first, second, sizeof first) == 0)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_WRONG_RESULT, "plan %d gives another norm then", launch.plan);
}

static arfuse_status other_calls(mixed_work *mixed, arf_error *error)
{
    for (int i = 0; i < mixed->launches; i++)
        ARF_TRY(call_otherwise(mixed, &mixed->launch[i], error));
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
                                         [ARF_HT] = MIXED_TOKENS,
                                         [ARF_BT] = MIXED_TOKENS,
                                         [ARF_UNFUSED] = MIXED_TOKENS,
                                         [ARF_SEPARATE] = MIXED_TOKENS},
                            .wait_limit_seconds = WAIT_LIMIT_SECONDS};
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
    gpu_report(status, &error, "one workspace holds every protocol and pattern");
    if (status == ARFUSE_OK) {
        status = eager_bursts(&mixed, &state, &error);
        gpu_report(status, &error, "eager calls of all protocols, patterns and M in random order");
    }
    if (status == ARFUSE_OK) {
        status = graph_order(&mixed, &state, &error);
        gpu_report(status, &error,
                   "graphs of all protocols, patterns and M replayed in random order");
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
    gpu_report(status, &error, "1 / rms of every protocol and pattern has the reference's bits");
    if (status == ARFUSE_OK) {
        status = other_calls(&mixed, &error);
        gpu_report(status, &error, "without residual_out, plain, early shared: the same norm");
    }
    close_mixed(&gpu, &mixed);
}

static void compile_all(void)
{
    arf_compiler compiler;
    arf_error error = ARF_ERROR_INIT;
    arf_shape shape = mixed_shape();
    arfuse_status status = arf_compiler_open(&compiler, 90, 13, arf_sources, NULL, &error);
    for (int i = 0; status == ARFUSE_OK && i < GPU_FORMS; i++) {
        arf_pattern pattern;
        arf_plan plan = gpu_form(&shape, i, &pattern);
        status = gpu_compile_plan(&compiler, &shape, MIXED_RANKS, pattern, &plan, &error);
    }
    gpu_report(status, &error, "every kernel of the workspace compiles");
    arf_compiler_close(&compiler);
}

int main(int argc, char **argv)
{
    uint64_t seed = 1;
    bool compile = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--compile") == 0)
            compile = true;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else
            return fprintf(stderr, "gpu_workspace_test: unknown option %s\n", argv[i]), 2;
    }
    if (compile)
        compile_all();
    else if (!gpu_present())
        gpu_skip("no NVIDIA device here");
    else {
        run_mixed(seed);
        run_inverses(seed);
    }
    return gpu_done();
}
