/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling a tuner's first candidates one after the other, and ahead by several threads: each into
 * an empty cache, in turns. Needs libnvrtc, no GPU.
 *
 *     compile_bench [THREADS]
 */
#ifdef ARF_CUDA

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "device/cuda/ahead.h"
#include "rules/candidates.h"

enum { KERNELS = 12, TURNS = 2 };

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void require(arfuse_status status, const arf_error *error)
{
    if (status == ARFUSE_OK)
        return;
    fprintf(stderr, "compile_bench: %s\n", error->text);
    exit(1);
}

/* Different kernels of the seeds of LL and BT, as verification comes to them. */
static int list(arf_step *step)
{
    static const arf_shape shape = {8, 6144, 10, ARF_ON, ARF_ON, ARF_ON};
    static arf_plans seeds;
    const arf_problem problem = {.set = ARF_SET_ARFUSE, .shape = shape, .sm_count = 132};
    int count = 0;
    for (int protocol = ARF_LL; protocol <= ARF_BT; protocol++) {
        arf_seeds(&problem, ARF_FINALIZE, (arf_protocol)protocol, &seeds);
        for (int i = 0; i < seeds.count; i++) {
            arf_recipe recipe;
            arf_error error = ARF_ERROR_INIT;
            require(arf_recipe_make(&shape, 8, ARF_FINALIZE, &seeds.plan[i], &recipe, &error),
                    &error);
            for (int s = 0; s < recipe.steps && count < KERNELS; s++) {
                bool known = false;
                for (int j = 0; j < count; j++)
                    known |= arf_step_digest(&step[j]) == arf_step_digest(&recipe.step[s]);
                if (!known)
                    step[count++] = recipe.step[s];
            }
        }
    }
    return count;
}

/* On a machine that does other work the wall tells little: the processor's seconds say whether
 * threads stand in each other's way. */
typedef struct cost {
    double wall, cpu;
} cost;

static void compile_all(const arf_step *step, int count, int threads, cost *spent)
{
    char folder[] = "/tmp/arfuse-bench-XXXXXX", command[64];
    arf_compiler compiler;
    arf_error error = ARF_ERROR_INIT;
    if (mkdtemp(folder) == NULL)
        exit(1);
    setenv("XDG_CACHE_HOME", folder, 1);
    require(arf_compiler_open(&compiler, 90, 13, arf_sources, NULL, &error), &error);
    const cost start = {seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID)};
    arf_compile_ahead(&compiler, step, count, threads);
    spent->wall += (seconds(CLOCK_MONOTONIC) - start.wall) / TURNS;
    spent->cpu += (seconds(CLOCK_PROCESS_CPUTIME_ID) - start.cpu) / TURNS;
    if (compiler.compiled != count)
        require(
            arf_fail(&error, ARFUSE_FAILURE, "%d of %d kernels compile", compiler.compiled, count),
            &error);
    arf_compiler_close(&compiler);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        fprintf(stderr, "compile_bench: %s is left\n", folder);
}

int main(int argc, char **argv)
{
    arf_step step[KERNELS];
    struct rusage before, after;
    arf_nvrtc nvrtc;
    arf_error error = ARF_ERROR_INIT;
    if (arf_nvrtc_open(&nvrtc, &error) != ARFUSE_OK) {
        printf("compile: not run: %s\n", error.text);
        return 0;
    }
    arf_nvrtc_close(&nvrtc);
    const int threads = argc > 1 ? atoi(argv[1]) : arf_ahead_threads(1);
    const int count = list(step);
    cost one = {0}, many = {0};
    for (int turn = 0; turn < TURNS; turn++) {
        compile_all(step, count, 1, &one);
        if (turn == 0)
            getrusage(RUSAGE_SELF, &before);
        compile_all(step, count, threads, &many);
    }
    getrusage(RUSAGE_SELF, &after);
    printf("compile: %d kernels: one thread %.2f s (%.2f s of a core), %d threads %.2f s (%.2f s), "
           "ratio %.2f; at most %ld MiB, then %ld MiB\n",
           count, one.wall, one.cpu, threads, many.wall, many.cpu, one.wall / many.wall,
           before.ru_maxrss / 1024, after.ru_maxrss / 1024);
    return 0;
}

#else

#include <stdio.h>

int main(void)
{
    printf("compile: not run: built without the CUDA device\n");
    return 0;
}

#endif
