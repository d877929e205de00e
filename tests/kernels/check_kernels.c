/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles every kernel that default and published plans need, without a GPU, and prints what each
 * takes of a multiprocessor: registers, shared memory, spills. Fails when one does not compile or
 * when a default plan's kernel spills.
 *
 *   check_kernels [--hidden N,N..] [--topk N] [--arch NN,NN..] [--share I/N]
 *
 * Plans become compilations by the same recipe as in production, so this list cannot drift from
 * what runs. --share takes every N-th one, so that several processes share the work.
 */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/compile.h"
#include "device/cuda/library_recipe.h"
#include "profile/read.h"
#include "rules/candidates.h"

#define MAX_JOBS 4096
#define MAX_NUMBERS 16
#define MAX_OPTIONS 48
#define PRODUCTION_SMS 148 /* B300 and B200, as design section 11 takes it */

/* Whose plan needs a compilation: of several, the last. */
typedef enum plan_origin {
    PUBLISHED,
    SEED,   /* in one kernel */
    DEFAULT /* runs where nobody measured: it must not spill */
} plan_origin;

typedef struct job {
    arf_step step;
    plan_origin origin;
} job;

static job jobs[MAX_JOBS];
static int job_count;
static int hidden_sizes[MAX_NUMBERS] = {4096, 5120, 6144, 7168, 8192}, hidden_count = 5;
static int top_k = 10; /* of default plans; published ones have their own */
static int architectures[MAX_NUMBERS] = {90, 100, 103}, architecture_count = 3;
static int share_index = 0, share_count = 1;
static int refused; /* plans that the recipes refuse */

/* ---- the list of compilations --------------------------------------------------------------- */

static bool same_compilation(const arf_step *a, const arf_step *b)
{
    if (strcmp(a->kernel, b->kernel) != 0 || a->defines != b->defines)
        return false;
    for (int i = 0; i < a->defines; i++)
        if (strcmp(a->define[i], b->define[i]) != 0)
            return false;
    return true;
}

static void add_step(const arf_step *step, plan_origin origin)
{
    for (int i = 0; i < job_count; i++)
        if (same_compilation(&jobs[i].step, step)) {
            if (jobs[i].origin < origin)
                jobs[i].origin = origin;
            return;
        }
    if (job_count == MAX_JOBS) {
        fprintf(stderr, "check_kernels: more than %d compilations\n", MAX_JOBS);
        exit(1);
    }
    jobs[job_count++] = (job){.step = *step, .origin = origin};
}

static void add_plan(const arf_shape *shape, int local_ranks, arf_pattern pattern,
                     const arf_plan *plan, plan_origin origin)
{
    arf_recipe recipe;
    arf_error error = ARFUSE_ERROR_INIT;
    if (arf_recipe_make(shape, local_ranks, pattern, plan, &recipe, &error) != ARFUSE_OK) {
        refused++;
        return;
    }
    for (int i = 0; i < recipe.steps; i++)
        add_step(&recipe.step[i], origin);
}

/* Around NCCL's collectives, which take one rank a process. */
static void add_library(const arf_shape *shape, arf_pattern pattern, arf_plan plan)
{
    static const arf_numerics numerics[] = {ARF_FIXED, ARF_LIBRARY};
    for (int i = 0; i < 2; i++) {
        arf_recipe recipe;
        arf_error error = ARFUSE_ERROR_INIT;
        plan.numerics = numerics[i];
        if (arf_recipe_library(shape, pattern, &plan, &recipe, &error) != ARFUSE_OK) {
            fprintf(stderr, "check_kernels: unfused by NCCL: %s\n", error.text);
            exit(1);
        }
        for (int s = 0; s < recipe.steps; s++)
            add_step(&recipe.step[s], DEFAULT);
    }
    arf_step mark;
    arf_recipe_mark(shape, &mark);
    add_step(&mark, DEFAULT);
}

/* Publishes, waits and finishes rows in one kernel: no other form needs as many registers. */
static bool is_single(arf_protocol protocol, arf_pattern pattern, const arf_plan *plan)
{
    int kernels = arf_knob_index(arf_knobs(ARF_SET_ARFUSE, protocol, pattern), "kernels");
    return kernels >= 0 && plan->tuning.value[kernels] == 1;
}

/* What runs where nothing was measured, every protocol's best guess, and all of is_single. */
static void add_defaults(int hidden_size, int local_ranks)
{
    arf_problem problem = {.set = ARF_SET_ARFUSE,
                           .shape = {.tp_size = 8,
                                     .hidden_size = hidden_size,
                                     .top_k = top_k,
                                     .rms_norm = ARF_ON,
                                     .residual = ARF_ON,
                                     .shared_expert = ARF_ON},
                           .sm_count = PRODUCTION_SMS};
    arf_step barrier, order;
    arf_recipe_plain(&problem.shape, local_ranks, "team_barrier", 32, &barrier);
    add_step(&barrier, DEFAULT);
    arf_recipe_plain(&problem.shape, local_ranks, "order", 32, &order);
    add_step(&order, DEFAULT);
    arf_plans *seeds = malloc(sizeof *seeds);
    arf_routes *routes = malloc(sizeof *routes);
    if (!seeds || !routes)
        exit(1);
    for (int p = 0; p < ARF_PATTERNS; p++) {
        arf_default_routes(&problem, (arf_pattern)p, 8192, routes);
        for (int i = 0; i < routes->count; i++)
            add_plan(&problem.shape, local_ranks, (arf_pattern)p, &routes->route[i].plan, DEFAULT);
        for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++) {
            if (!arf_knobs(ARF_SET_ARFUSE, (arf_protocol)protocol, (arf_pattern)p)->supported)
                continue;
            arf_seeds(&problem, (arf_pattern)p, (arf_protocol)protocol, seeds);
            for (int i = 0; i < seeds->count; i++)
                if (i == 0 || is_single((arf_protocol)protocol, (arf_pattern)p, &seeds->plan[i]))
                    add_plan(&problem.shape, local_ranks, (arf_pattern)p, &seeds->plan[i],
                             i == 0 ? DEFAULT : SEED);
            if (protocol == ARF_UNFUSED && local_ranks == 1)
                add_library(&problem.shape, (arf_pattern)p, seeds->plan[0]);
        }
    }
    free(routes);
    free(seeds);
}

/* A published plan in our own table: knobs of the same name keep their value. */
static arf_plan translate(arf_set set, arf_pattern pattern, const arf_plan *plan)
{
    const arf_knob_table *from = arf_knobs(set, plan->protocol, pattern);
    const arf_knob_table *to = arf_knobs(ARF_SET_ARFUSE, plan->protocol, pattern);
    arf_plan ours = {.protocol = plan->protocol,
                     .transport = ARF_UNICAST,
                     .numerics = ARF_FIXED,
                     .tuning = arf_tuning_fallback(to)};
    for (int i = 0; i < from->count && !plan->tuning_null; i++) {
        int index = arf_knob_index(to, from->knob[i].name);
        if (index >= 0 && plan->tuning.value[i] != ARF_KNOB_NULL)
            ours.tuning.value[index] = plan->tuning.value[i];
    }
    return ours;
}

static int add_published(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)walk;
    size_t length = strlen(path);
    if (type != FTW_F || length < 5 || strcmp(path + length - 5, ".json") != 0)
        return 0;
    arf_error error = ARFUSE_ERROR_INIT;
    arf_profile *profile;
    if (arf_profile_load(path, &profile, &error) != ARFUSE_OK) {
        fprintf(stderr, "check_kernels: %s\n", error.text);
        return 1;
    }
    arf_shape shape = profile->shape;
    if (shape.rms_norm == ARF_EITHER)
        shape.rms_norm = ARF_ON;
    bool wanted = false;
    for (int i = 0; i < hidden_count; i++)
        wanted |= hidden_sizes[i] == shape.hidden_size;
    for (int p = 0; wanted && p < ARF_PATTERNS; p++)
        for (int i = 0; i < profile->routes[p].count; i++) {
            arf_plan plan =
                translate(profile->set, (arf_pattern)p, &profile->routes[p].route[i].plan);
            add_plan(&shape, 1, (arf_pattern)p, &plan, PUBLISHED);
        }
    arf_profile_free(profile);
    return 0;
}

/* ---- one compilation ------------------------------------------------------------------------ */

typedef struct usage {
    long registers, shared_bytes, spill_bytes;
} usage;

/* Reads the assembler's verbose lines: "Used 80 registers, ..., 208 bytes smem", and for every
 * function "N bytes spill stores". */
static bool read_usage(const char *log, usage *used)
{
    *used = (usage){-1, 0, 0};
    for (const char *at = log; (at = strstr(at, "Used ")) != NULL; at += 5) {
        used->registers = strtol(at + 5, NULL, 10);
        const char *end = strchr(at, '\n'), *smem = strstr(at, " bytes smem");
        if (smem && (!end || smem < end)) {
            while (smem > at && smem[-1] >= '0' && smem[-1] <= '9')
                smem--;
            used->shared_bytes = strtol(smem, NULL, 10);
        }
    }
    for (const char *at = log; (at = strstr(at, " bytes spill stores")) != NULL; at++) {
        const char *number = at;
        while (number > log && number[-1] >= '0' && number[-1] <= '9')
            number--;
        used->spill_bytes += strtol(number, NULL, 10);
    }
    return used->registers >= 0;
}

static bool compile(const arf_nvrtc *nvrtc, int architecture, const arf_step *step, usage *used)
{
    const char *options[MAX_OPTIONS], *texts[64], *names[64], *source = NULL;
    char file[64], target[32];
    int count = 0, headers = 0;
    snprintf(file, sizeof file, "%s.cu", step->kernel);
    snprintf(target, sizeof target, "--gpu-architecture=sm_%d", architecture);
    options[count++] = target;
    options[count++] = "--ptxas-options=-v";
    for (const char *const *option = arf_compile_options; *option; option++)
        options[count++] = *option;
    for (int i = 0; i < step->defines; i++)
        options[count++] = step->define[i];
    for (const arf_source *s = arf_sources; s->name; s++) {
        if (strcmp(s->name, file) == 0)
            source = s->text;
        else
            texts[headers] = s->text, names[headers++] = s->name;
    }
    nvrtcProgram program;
    if (!source || nvrtc->nvrtcCreateProgram(&program, source, file, headers, texts, names)) {
        fprintf(stderr, "check_kernels: no program of %s\n", file);
        return false;
    }
    nvrtcResult result = nvrtc->nvrtcCompileProgram(program, count, options);
    size_t bytes = 0;
    nvrtc->nvrtcGetProgramLogSize(program, &bytes);
    char *log = calloc(1, bytes + 1);
    if (log)
        nvrtc->nvrtcGetProgramLog(program, log);
    nvrtc->nvrtcDestroyProgram(&program);
    bool fine = result == NVRTC_SUCCESS && log && read_usage(log, used);
    if (!fine)
        fprintf(stderr, "check_kernels: %s for sm_%d: %s\n", file, architecture,
                log ? log : "out of memory");
    free(log);
    return fine;
}

static void print_row(int architecture, const job *work, const usage *used)
{
    char macros[512] = "";
    for (int i = 0; i < work->step.defines; i++) {
        size_t end = strlen(macros);
        /* "-DARF_H=6144" as "H=6144" */
        snprintf(macros + end, sizeof macros - end, " %s", work->step.define[i] + 6);
    }
    static const char *const origins[] = {"published", "seed", "default"};
    printf("%-16s sm_%-4d %4ld registers %6ld B shared %5ld B spilled %-9s %s\n", work->step.kernel,
           architecture, used->registers, used->shared_bytes, used->spill_bytes,
           origins[work->origin], macros);
}

/* ---- command line --------------------------------------------------------------------------- */

static int read_numbers(const char *text, int *number)
{
    int count = 0;
    for (char *end; *text && count < MAX_NUMBERS; text = *end == ',' ? end + 1 : end) {
        number[count] = (int)strtol(text, &end, 10);
        if (end == text || number[count++] <= 0)
            return 0;
    }
    return count;
}

static bool read_options(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--hidden") == 0)
            hidden_count = read_numbers(argv[i + 1], hidden_sizes);
        else if (strcmp(argv[i], "--topk") == 0)
            top_k = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--arch") == 0)
            architecture_count = read_numbers(argv[i + 1], architectures);
        else if (strcmp(argv[i], "--share") == 0) {
            if (sscanf(argv[i + 1], "%d/%d", &share_index, &share_count) != 2)
                return false;
        } else
            return false;
    }
    return argc % 2 == 1 && hidden_count > 0 && top_k > 0 && architecture_count > 0 &&
           share_count > 0 && share_index >= 0 && share_index < share_count;
}

int main(int argc, char **argv)
{
    if (!read_options(argc, argv)) {
        fprintf(stderr, "usage: check_kernels [--hidden N,N..] [--topk N] [--arch NN,NN..] "
                        "[--share I/N]\n");
        return 2;
    }
    arf_nvrtc nvrtc = {0};
    arf_error error = ARFUSE_ERROR_INIT;
    if (arf_nvrtc_open(&nvrtc, &error) != ARFUSE_OK) {
        fprintf(stderr, "check_kernels: %s\n", error.text);
        return 4;
    }
    for (int i = 0; i < hidden_count; i++) {
        add_defaults(hidden_sizes[i], 1);
        add_defaults(hidden_sizes[i], 8); /* a team on one GPU */
    }
    if (nftw("profiles/published", add_published, 8, FTW_PHYS) != 0)
        return 1;

    int compiled = 0, broken = 0, spilling[DEFAULT + 1] = {0}, work = 0;
    for (int a = 0; a < architecture_count; a++)
        for (int i = 0; i < job_count; i++) {
            if (work++ % share_count != share_index)
                continue;
            usage used;
            if (!compile(&nvrtc, architectures[a], &jobs[i].step, &used)) {
                broken++;
                continue;
            }
            compiled++;
            spilling[jobs[i].origin] += used.spill_bytes > 0;
            print_row(architectures[a], &jobs[i], &used);
        }
    arf_nvrtc_close(&nvrtc);
    printf(
        "share %d of %d: %d compiled, %d broken, of seeds in one kernel %d and of default plans %d "
        "spill; the recipes refuse %d plans\n",
        share_index + 1, share_count, compiled, broken, spilling[SEED], spilling[DEFAULT], refused);
    return broken > 0 || spilling[DEFAULT] > 0;
}
