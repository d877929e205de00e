/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed on one GPU that all ranks share: a table of microseconds a call, and the
 * marks that the project set itself.
 *
 *     gpu_marks_test [--decode] [--compile]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"

enum { HIDDEN = 6144, RANKS = 8, TOP_K = 8, MOST_TOKENS = 1024, ROUNDS = 5 };

typedef struct marks_form {
    const char *name;
    arf_protocol protocol;
    arf_pattern pattern;
    int kernels, owner;
} marks_form;

static const marks_form forms[] = {
    {"ll", ARF_LL, ARF_ALLREDUCE, 2, 0},
    {"ll one kernel", ARF_LL, ARF_ALLREDUCE, 1, 0},
    {"bt tokens", ARF_BT, ARF_ALLREDUCE, 2, 0},
    {"bt slices", ARF_BT, ARF_ALLREDUCE, 2, 1},
    {"unfused", ARF_UNFUSED, ARF_ALLREDUCE, 2, 0},
    {"ll", ARF_LL, ARF_FINALIZE, 2, 0},
    {"ll one kernel", ARF_LL, ARF_FINALIZE, 1, 0},
    {"bt tokens", ARF_BT, ARF_FINALIZE, 2, 0},
    {"bt slices", ARF_BT, ARF_FINALIZE, 2, 1},
    {"unfused", ARF_UNFUSED, ARF_FINALIZE, 2, 0},
    {"separate", ARF_SEPARATE, ARF_FINALIZE, 2, 0},
};
#define FORMS ((int)(sizeof forms / sizeof forms[0]))

static const int token_counts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
#define TOKEN_COUNTS ((int)(sizeof token_counts / sizeof token_counts[0]))

static arf_shape shape(void)
{
    return (arf_shape){RANKS, HIDDEN, TOP_K, ARF_ON, ARF_ON, ARF_ON};
}

static arf_plan plan_of(const marks_form *form)
{
    arf_plan plan = gpu_plan(form->protocol, form->pattern);
    gpu_set(&plan, form->pattern, "kernels", form->kernels);
    gpu_set(&plan, form->pattern, "owner", form->owner);
    return plan;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median over rounds of the slowest rank. */
static arfuse_status measure(arf_cuda_space *space, const arf_launch *launch, int calls,
                             arf_policy policy, double *us, arf_error *error)
{
    double round[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double rank[RANKS];
        arf_timing timing = {.calls = calls, .policy = policy, .round = i};
        ARF_TRY(arf_cuda_time(&space->base, launch, &timing, rank, error));
        round[i] = 0;
        for (int r = 0; r < RANKS; r++)
            round[i] = rank[r] > round[i] ? rank[r] : round[i];
    }
    qsort(round, ROUNDS, sizeof round[0], ascending);
    *us = round[ROUNDS / 2];
    return ARFUSE_OK;
}

static double table_of[FORMS][TOKEN_COUNTS];

static void print_table(arf_pattern pattern, arf_policy policy)
{
    char text[256];
    int used = snprintf(text, sizeof text, "%-8s %-14s", arf_policy_name(policy), "M");
    for (int m = 0; m < TOKEN_COUNTS; m++)
        used += snprintf(text + used, sizeof text - (size_t)used, " %8d", token_counts[m]);
    gpu_note("%s", text);
    for (int f = 0; f < FORMS; f++) {
        if (forms[f].pattern != pattern)
            continue;
        used =
            snprintf(text, sizeof text, "%-8.8s %-14s", arf_pattern_name(pattern), forms[f].name);
        for (int m = 0; m < TOKEN_COUNTS; m++)
            used += snprintf(text + used, sizeof text - (size_t)used, " %8.2f", table_of[f][m]);
        gpu_note("%s", text);
    }
}

static arfuse_status fill_table(arf_cuda_space *space, arf_trial *trial, arf_policy policy,
                                arf_error *error)
{
    for (int f = 0; f < FORMS; f++) {
        arf_plan plan = plan_of(&forms[f]);
        arf_launch launch = arf_trial_launch(trial, forms[f].pattern, 1);
        ARF_TRY(gpu_prepare(space, &plan, &launch, error));
        for (int m = 0; m < TOKEN_COUNTS; m++) {
            launch.tokens = token_counts[m];
            ARF_TRY(measure(space, &launch, 20, policy, &table_of[f][m], error));
        }
    }
    return ARFUSE_OK;
}

/* Microseconds of one graph that holds these calls one after another, ten times over. */
static arfuse_status time_sequence(arf_cuda_space *space, const arf_launch *launch, int count,
                                   double *us, arf_error *error)
{
    const arf_driver *driver = &((arf_cuda *)space->base.device)->driver;
    CUgraph captured;
    CUgraphExec graph;
    CUevent begin, end;
    float ms[ROUNDS];
    enum { REPEATS = 10, REPLAYS = 10 };
    ARF_TRY(ARF_CU(driver, error, cuEventCreate, &begin, CU_EVENT_DEFAULT));
    ARF_TRY(ARF_CU(driver, error, cuEventCreate, &end, CU_EVENT_DEFAULT));
    ARF_TRY(
        ARF_CU(driver, error, cuStreamBeginCapture, space->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < REPEATS * count; i++)
        ARF_TRY(arf_cuda_enqueue(space, &launch[i % count], space->stream, error));
    ARF_TRY(ARF_CU(driver, error, cuStreamEndCapture, space->stream, &captured));
    ARF_TRY(ARF_CU(driver, error, cuGraphInstantiateWithFlags, &graph, captured, 0));
    for (int round = 0; round < ROUNDS; round++) {
        ARF_TRY(ARF_CU(driver, error, cuGraphLaunch, graph, space->stream));
        ARF_TRY(ARF_CU(driver, error, cuEventRecord, begin, space->stream));
        for (int i = 0; i < REPLAYS; i++)
            ARF_TRY(ARF_CU(driver, error, cuGraphLaunch, graph, space->stream));
        ARF_TRY(ARF_CU(driver, error, cuEventRecord, end, space->stream));
        ARF_TRY(gpu_finish(space, error));
        ARF_TRY(ARF_CU(driver, error, cuEventElapsedTime, &ms[round], begin, end));
    }
    *us = 1e30;
    for (int round = 0; round < ROUNDS; round++)
        if (ms[round] * 1000.0 / (REPEATS * REPLAYS) < *us)
            *us = ms[round] * 1000.0 / (REPEATS * REPLAYS);
    driver->cuGraphExecDestroy(graph);
    driver->cuGraphDestroy(captured);
    driver->cuEventDestroy(begin);
    driver->cuEventDestroy(end);
    return ARFUSE_OK;
}

static void mark(const char *what, double us, double most)
{
    gpu_ok(us <= most, "%s: %.2f us, at most %.2f", what, us, most);
}

static arfuse_status alternation(arf_cuda_space *space, arf_trial *trial, arf_error *error)
{
    arf_plan plan = gpu_plan(ARF_LL, ARF_ALLREDUCE);
    arf_launch both[2];
    double one, many, mixed;
    for (int i = 0; i < 2; i++) {
        both[i] = arf_trial_launch(trial, ARF_ALLREDUCE, i == 0 ? 1 : 64);
        ARF_TRY(gpu_prepare(space, &plan, &both[i], error));
    }
    ARF_TRY(arf_cuda_enter((arf_cuda *)space->base.device, error));
    arfuse_status status = time_sequence(space, &both[0], 1, &one, error);
    if (status == ARFUSE_OK)
        status = time_sequence(space, &both[1], 1, &many, error);
    if (status == ARFUSE_OK)
        status = time_sequence(space, both, 2, &mixed, error);
    arf_cuda_leave((arf_cuda *)space->base.device);
    if (status == ARFUSE_OK) {
        gpu_note("ll allreduce, back to back: M 1 %.2f us, M 64 %.2f us", one, many);
        mark("ll allreduce alternating M 1 and M 64, both calls", mixed, 1.1 * (one + many));
    }
    return status;
}

/* A mark is about the protocol, not about the default tuning: the best of a small sweep. */
static const struct {
    const char *knob;
    int values, value[4];
} sweep[] = {
    {"kernels", 2, {1, 2}},
    {"collect_cluster", 4, {1, 2, 4, 8}},
    {"collect_threads", 3, {128, 256, 384}},
    {"collect_lanes", 2, {1, 2}},
    {"release_before_store", 2, {0, 1}},
    {"elements_per_thread", 2, {4, 8}},
};
#define SWEPT ((int)(sizeof sweep / sizeof sweep[0]))

static arf_plan sweep_plan(int index)
{
    arf_plan plan = gpu_plan(ARF_LL, ARF_ALLREDUCE);
    for (int k = 0; k < SWEPT; k++) {
        gpu_set(&plan, ARF_ALLREDUCE, sweep[k].knob, sweep[k].value[index % sweep[k].values]);
        index /= sweep[k].values;
    }
    return plan;
}

static int sweep_size(void)
{
    int size = 1;
    for (int k = 0; k < SWEPT; k++)
        size *= sweep[k].values;
    return size;
}

static arfuse_status best_of_sweep(arf_cuda_space *space, arf_trial *trial, int tokens,
                                   double *best, arf_error *error)
{
    char text[256] = "";
    *best = 1e30;
    for (int i = 0; i < sweep_size(); i++) {
        arf_plan plan = sweep_plan(i);
        arf_launch launch = arf_trial_launch(trial, ARF_ALLREDUCE, tokens);
        double us;
        ARF_TRY(gpu_prepare(space, &plan, &launch, error));
        ARF_TRY(measure(space, &launch, 20, ARF_WARM, &us, error));
        if (us >= *best)
            continue;
        *best = us;
        arf_tuning_text(arf_knobs(ARF_SET_ARFUSE, ARF_LL, ARF_ALLREDUCE), &plan.tuning, text,
                        sizeof text);
    }
    gpu_note("ll allreduce M %d: best of %d tunings %.2f us, %s", tokens, sweep_size(), *best,
             text);
    return ARFUSE_OK;
}

static arfuse_status run(arf_cuda_space *space, arf_trial *trial, bool decode, arf_error *error)
{
    gpu_note("H %d R %d local ranks K %d, graph of 20 calls, us a call: slowest rank, median of %d",
             HIDDEN, RANKS, TOP_K, ROUNDS);
    if (decode) {
        ARF_TRY(fill_table(space, trial, ARF_DECODE, error));
        print_table(ARF_ALLREDUCE, ARF_DECODE);
        print_table(ARF_FINALIZE, ARF_DECODE);
    }
    ARF_TRY(fill_table(space, trial, ARF_WARM, error));
    print_table(ARF_ALLREDUCE, ARF_WARM);
    print_table(ARF_FINALIZE, ARF_WARM);
    double one, sixteen, many;
    ARF_TRY(best_of_sweep(space, trial, 1, &one, error));
    ARF_TRY(best_of_sweep(space, trial, 16, &sixteen, error));
    ARF_TRY(best_of_sweep(space, trial, 64, &many, error));
    mark("ll allreduce, 1 token, warm", one, 6.0);
    mark("ll allreduce, 16 tokens, warm", sixteen, 12.0);
    return alternation(space, trial, error);
}

static arfuse_status compile(arf_error *error)
{
    arf_compiler compiler;
    arf_shape of = shape();
    ARF_TRY(arf_compiler_open(&compiler, 90, 13, arf_sources, NULL, error));
    for (int f = 0; f < FORMS; f++) {
        arf_plan plan = plan_of(&forms[f]);
        arf_recipe recipe;
        ARF_TRY(arf_recipe_make(&of, RANKS, forms[f].pattern, &plan, &recipe, error));
        for (int i = 0; i < recipe.steps; i++)
            ARF_TRY(gpu_compile(&compiler, &recipe.step[i], error));
    }
    for (int i = 0; i < sweep_size(); i++) {
        arf_plan plan = sweep_plan(i);
        arf_recipe recipe;
        ARF_TRY(arf_recipe_make(&of, RANKS, ARF_ALLREDUCE, &plan, &recipe, error));
        for (int k = 0; k < recipe.steps; k++)
            ARF_TRY(gpu_compile(&compiler, &recipe.step[k], error));
    }
    arf_step step;
    arf_recipe_plain(&of, RANKS, "team_barrier", 32, &step);
    ARF_TRY(gpu_compile(&compiler, &step, error));
    arf_recipe_plain(&of, RANKS, "filler", 512, &step);
    ARF_TRY(gpu_compile(&compiler, &step, error));
    gpu_note("%d compiled, %d from the cache", compiler.compiled, compiler.reused);
    arf_compiler_close(&compiler);
    return ARFUSE_OK;
}

static arfuse_status on_gpu(bool decode, arf_error *error)
{
    gpu_team gpu;
    arf_space *space = NULL;
    arf_trial *trial = NULL;
    arf_shape of = shape();
    arf_space_spec spec = {.shape = of, .wait_limit_seconds = 2.0};
    spec.capacity[ARF_LL] = spec.capacity[ARF_BT] = MOST_TOKENS;
    spec.capacity[ARF_UNFUSED] = spec.capacity[ARF_SEPARATE] = MOST_TOKENS;
    arfuse_status status = gpu_open(&gpu, RANKS, error);
    if (status == ARFUSE_OK)
        status = arf_cuda_space_create(&gpu.cuda->base, &spec, &space, error);
    if (status == ARFUSE_OK)
        status =
            arf_trial_create(&gpu.cuda->base, &of, MOST_TOKENS, ARF_TRIAL_RANDOM, 1, &trial, error);
    if (status == ARFUSE_OK)
        status = run((arf_cuda_space *)space, trial, decode, error);
    arf_trial_destroy(trial);
    if (space != NULL)
        arf_cuda_space_destroy(space);
    gpu_close(&gpu);
    return status;
}

int main(int argc, char **argv)
{
    bool decode = argc > 1 && strcmp(argv[1], "--decode") == 0;
    bool compiling = argc > 1 && strcmp(argv[1], "--compile") == 0;
    arf_error error = ARF_ERROR_INIT;
    if (!compiling && !gpu_present()) {
        gpu_skip("no NVIDIA device here");
        return gpu_done();
    }
    arfuse_status status = compiling ? compile(&error) : on_gpu(decode, &error);
    gpu_ok(status == ARFUSE_OK, compiling ? "kernels compile" : "every call is timed");
    if (status != ARFUSE_OK)
        gpu_note("  %s", error.text);
    return gpu_done();
}
