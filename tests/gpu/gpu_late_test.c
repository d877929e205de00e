/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that launches 200 us after the others, each time: no reported time moves by more than
 * 5 %, and times grow with the token count.
 *
 *     gpu_late_test [--ranks N] [--spread] [--compile]
 *
 * On one GPU the processes must run side by side (CUDA MPS, see gpu_processes_test); --spread takes
 * a GPU for each where there are enough. --compile needs no GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/peers.h"
#include "support/processes_bootstrap.h"

enum { MOST = 16, POINTS = 8, ROUNDS = 11, CALLS = 100 };
#define LATE_NS 200000
#define MOST_CHANGE 0.05
#define PART_SECONDS 60

static const int tokens[POINTS / 2] = {1, 2, 4, 8}, forms[2] = {0, 4}; /* LL, BT */

/* What process 0 found; the parent prints. */
typedef struct findings {
    int points;
    double us[POINTS][2]; /* all at once, one late */
    char name[POINTS][32];
    char refused[300], failed[MOST][300];
} findings;

static CUresult (*launch_graph)(CUgraphExec graph, CUstream stream);

static CUresult launch_late(CUgraphExec graph, CUstream stream)
{
    nanosleep(&(struct timespec){0, LATE_NS}, NULL);
    return launch_graph(graph, stream);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* As the tuner reads it: the maximum over the ranks. */
static arfuse_status time_all(peer *at, const arf_launch *launch, double *us, arf_error *error)
{
    const arf_timing timing = {.calls = CALLS, .policy = ARF_WARM};
    double own = 0, all[MOST];
    arfuse_status status = arf_cuda_time(&at->space->base, launch, &timing, &own, error);
    ARF_TRY(arf_team_vote(&at->team, status, error));
    ARF_TRY(arf_team_allgather(&at->team, &own, all, sizeof own, error));
    *us = 0;
    for (int p = 0; p < at->team.bootstrap.size; p++)
        *us = all[p] > *us ? all[p] : *us;
    return ARFUSE_OK;
}

/* Medians of rounds in turns; the two graph launches of a timing are both late. */
static arfuse_status time_both(peer *at, const arf_launch *launch, bool late, double us[2],
                               arf_error *error)
{
    double round[2][ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        for (int side = 0; side < 2; side++) {
            at->cuda->driver.cuGraphLaunch = late && side == 1 ? launch_late : launch_graph;
            ARF_TRY(time_all(at, launch, &round[side][i], error));
        }
    for (int side = 0; side < 2; side++) {
        qsort(round[side], ROUNDS, sizeof round[side][0], ascending);
        us[side] = round[side][ROUNDS / 2];
    }
    return ARFUSE_OK;
}

static arfuse_status measure(const arfuse_bootstrap *bootstrap, findings *found, arf_error *error)
{
    peer at;
    arfuse_status status = peer_open(bootstrap, 1, 20, &at, error);
    if (status == ARFUSE_OK && !peer_side_by_side(&at)) {
        snprintf(found->refused, sizeof found->refused, "%s", at.cuda->timing);
        peer_close(&at);
        return ARFUSE_OK;
    }
    if (status == ARFUSE_OK)
        launch_graph = at.cuda->driver.cuGraphLaunch;
    for (int i = 0; status == ARFUSE_OK && i < POINTS; i++) {
        arf_launch launch;
        const char *name;
        double us[2];
        const int m = tokens[i % (POINTS / 2)];
        status = peer_prepare(&at, forms[i / (POINTS / 2)], m, &launch, &name, error);
        if (status == ARFUSE_OK)
            status = time_both(&at, &launch, bootstrap->rank == bootstrap->size - 1, us, error);
        if (status != ARFUSE_OK || bootstrap->rank != 0)
            continue;
        memcpy(found->us[i], us, sizeof us);
        snprintf(found->name[i], sizeof found->name[i], "%s, M %d", name, m);
        found->points = i + 1;
    }
    peer_close(&at);
    return status;
}

static int process(const arfuse_bootstrap *bootstrap, void *context)
{
    findings *found = context;
    arf_error error = ARF_ERROR_INIT;
    if (measure(bootstrap, found, &error) == ARFUSE_OK)
        return 0;
    snprintf(found->failed[bootstrap->rank], sizeof found->failed[0], "%.290s", error.text);
    return 1;
}

static void judge(const findings *found)
{
    for (int i = 0; i < found->points; i++) {
        const double *us = found->us[i], change = us[1] / us[0] - 1;
        gpu_ok(change <= MOST_CHANGE && change >= -MOST_CHANGE,
               "%s: %.2f us, with a rank 200 us late %.2f us (%+.1f %%)", found->name[i], us[0],
               us[1], change * 100);
        if (i % (POINTS / 2) > 0)
            gpu_ok(us[1] >= found->us[i - 1][1] * (1 - MOST_CHANGE),
                   "%s: not faster than fewer tokens", found->name[i]);
    }
}

static void run(int ranks)
{
    processes all;
    int status[MOST];
    findings *found = processes_share(sizeof *found);
    processes_start(&all, ranks, process, found);
    processes_wait(&all, status, PART_SECONDS);
    bool ended = true;
    for (int p = 0; p < ranks; p++) {
        ended = ended && status[p] == 0;
        if (status[p] != 0)
            gpu_note("process %d: status %d: %s", p, status[p], found->failed[p]);
    }
    gpu_ok(ended, "%d processes come to their end", ranks);
    if (found->refused[0] != '\0')
        gpu_skip("times are refused: %s", found->refused);
    judge(found);
    processes_unshare(found, sizeof *found);
}

static void compile_all(int ranks)
{
    arf_compiler compiler;
    arf_error error = ARF_ERROR_INIT;
    arf_shape of = peer_shape(ranks);
    arfuse_status status = arf_compiler_open(&compiler, 90, 13, arf_sources, NULL, &error);
    for (int i = 0; status == ARFUSE_OK && i < 2; i++) {
        arf_pattern pattern;
        const char *name;
        arf_plan plan = peer_form(forms[i], &pattern, &name);
        status = gpu_compile_plan(&compiler, &of, 1, pattern, &plan, &error);
    }
    gpu_report(status, &error, "every kernel compiles");
    arf_compiler_close(&compiler);
}

int main(int argc, char **argv)
{
    int ranks = 2;
    bool compile = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--compile") == 0)
            compile = true;
        else if (strcmp(argv[i], "--spread") == 0)
            peer_spread = true;
        else if (strcmp(argv[i], "--ranks") == 0 && i + 1 < argc)
            ranks = atoi(argv[++i]);
        else
            return fprintf(stderr, "gpu_late_test: unknown option %s\n", argv[i]), 2;
    }
    if (ranks < 2 || ranks > MOST)
        return fprintf(stderr, "gpu_late_test: 2 to %d processes\n", MOST), 2;
    if (compile)
        compile_all(ranks);
    else if (!gpu_present())
        gpu_skip("no NVIDIA device here");
    else
        run(ranks);
    return gpu_done();
}
