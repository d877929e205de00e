/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unfused by NCCL, a GPU a process: the contract's bits by shards, the tree and an all-gather; sums
 * of the library, whose bits are the contract's for one rank alone and within rounding for more; a
 * rank that is lost, which NCCL waits for without a limit of its own.
 *
 *     gpu_library_test [--ranks N]
 *
 * With one rank (the default) nobody can be lost.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/peers.h"
#include "support/processes_bootstrap.h"

enum { MOST = 8 };
#define LOST_LIMIT_SECONDS 3.0

static int ranks = 1;

typedef struct verdict {
    int checks;
    double seconds; /* that survivors waited for a lost rank */
    bool absent;    /* NCCL is not here */
    char text[400];
} verdict;

typedef struct test_part {
    const char *name;
    arfuse_status (*run)(peer *at, verdict *own, arf_error *error);
    double limit;
    verdict *all; /* shared, by process */
} test_part;

/* ---- bits ------------------------------------------------------------------------------------ */

static arfuse_status one_call(peer *at, arf_pattern pattern, arf_numerics numerics, int tokens,
                              bool in_graph, arf_error *error)
{
    arf_launch launch = arf_trial_launch(at->trial, pattern, tokens);
    arf_plan plan = gpu_plan(ARF_UNFUSED, pattern);
    plan.numerics = numerics;
    ARF_TRY(arf_team_vote(&at->team, gpu_prepare(at->space, &plan, &launch, error), error));
    ARF_TRY(peer_call(at, &launch, in_graph, error));
    /* The library's own order of sums has the contract's bits where there is one rank. */
    if (at->team.tp_size == 1)
        numerics = ARF_FIXED;
    return arf_trial_check_numerics(at->trial, pattern, tokens, numerics, error);
}

static arfuse_status run_bits(peer *at, verdict *own, arf_error *error)
{
    static const int tokens[] = {PEER_TOKENS, 1, 5};
    for (int i = 0; i < 3 * 8; i++) {
        const arf_pattern pattern = (arf_pattern)(i % 2);
        const arf_numerics numerics = i / 2 % 2 ? ARF_LIBRARY : ARF_FIXED;
        const bool in_graph = i / 4 % 2;
        arfuse_status status = one_call(at, pattern, numerics, tokens[i / 8], in_graph, error);
        if (status != ARFUSE_OK)
            arf_error_prefix(error, "%s, numerics %s, %d tokens, %s", arf_pattern_name(pattern),
                             arf_numerics_name(numerics), tokens[i / 8],
                             in_graph ? "graph" : "eager");
        ARF_TRY(arf_team_vote(&at->team, status, error));
        own->checks++;
    }
    arf_nccl_text(&at->space->library.nccl, own->text, sizeof own->text);
    return ARFUSE_OK;
}

/* ---- times ----------------------------------------------------------------------------------- */

static arfuse_status run_times(peer *at, verdict *own, arf_error *error)
{
    size_t used = 0;
    for (int i = 0; i < 2; i++) {
        double us = 0;
        const arf_timing timing = {.calls = 20, .policy = ARF_WARM};
        arf_launch launch = arf_trial_launch(at->trial, ARF_ALLREDUCE, 1);
        arf_plan plan = gpu_plan(ARF_UNFUSED, ARF_ALLREDUCE);
        plan.numerics = i == 0 ? ARF_FIXED : ARF_LIBRARY;
        arfuse_status status = gpu_prepare(at->space, &plan, &launch, error);
        if (status == ARFUSE_OK)
            status = arf_cuda_time(&at->space->base, &launch, &timing, &us, error);
        if (status == ARFUSE_OK && !(us > 0))
            status = arf_fail(error, ARFUSE_FAILURE, "a call takes %g us", us);
        ARF_TRY(arf_team_vote(&at->team, status, error));
        used += (size_t)snprintf(own->text + used, sizeof own->text - used, "%s %.2f us; ",
                                 arf_numerics_name(plan.numerics), us);
        own->checks++;
    }
    return ARFUSE_OK;
}

/* ---- a lost rank ----------------------------------------------------------------------------- */

/* No vote once the victim is gone: it would wait for it. */
static arfuse_status run_lost(peer *at, verdict *own, arf_error *error)
{
    arf_launch launch = arf_trial_launch(at->trial, ARF_ALLREDUCE, 1);
    arf_plan plan = gpu_plan(ARF_UNFUSED, ARF_ALLREDUCE);
    arf_error expiry = ARF_ERROR_INIT;
    bool nan = false;
    ARF_TRY(arf_team_vote(&at->team, gpu_prepare(at->space, &plan, &launch, error), error));
    ARF_TRY(arf_team_vote(&at->team, peer_call(at, &launch, false, error), error));
    if (at->team.bootstrap.rank == at->team.bootstrap.size - 1)
        raise(SIGKILL);
    const double start = gpu_seconds();
    arfuse_status status = arf_cuda_launch(&at->space->base, &launch, &expiry);
    if (status == ARFUSE_OK)
        status = arf_cuda_synchronize(&at->space->base, NULL, &expiry);
    own->seconds = gpu_seconds() - start;
    snprintf(own->text, sizeof own->text, "%.390s", expiry.text);
    if (status != ARFUSE_TIMEOUT)
        return arf_fail(error, ARFUSE_FAILURE, "the call ended with %d", (int)status);
    ARF_TRY(peer_all_nan(at, &launch, &nan, error));
    own->checks++;
    return nan ? ARFUSE_OK : arf_fail(error, ARFUSE_WRONG_RESULT, "outputs are not NaN");
}

/* ---- the parent ------------------------------------------------------------------------------ */

static int process(const arfuse_bootstrap *bootstrap, void *context)
{
    const test_part *part = context;
    verdict *own = &part->all[bootstrap->rank];
    peer at;
    arf_error error = ARF_ERROR_INIT;
    arf_nccl nccl;
    if (arf_nccl_open(&nccl, &error) != ARFUSE_OK) {
        own->absent = true;
        snprintf(own->text, sizeof own->text, "%.390s", error.text);
        return 0;
    }
    arf_nccl_close(&nccl);
    arfuse_status status = peer_open_device(bootstrap, 1, &at, &error);
    if (status == ARFUSE_OK) {
        at.cuda->way = ARF_WAY_NONE; /* as if no memory could be mapped */
        status = peer_open_space(&at, ARF_LIBRARY, part->limit, &error);
    }
    if (status == ARFUSE_OK)
        status = part->run(&at, own, &error);
    peer_close(&at);
    if (status != ARFUSE_OK)
        snprintf(own->text, sizeof own->text, "%.390s", error.text);
    return status != ARFUSE_OK;
}

static bool run_part(test_part *part)
{
    processes all;
    int status[16];
    const bool lost = part->run == run_lost;
    bool passed = true;
    part->all = processes_share(MOST * sizeof *part->all);
    processes_start(&all, ranks, process, part);
    processes_wait(&all, status, 60);
    const bool absent = part->all[0].absent;
    for (int p = 0; p < ranks - lost; p++)
        passed = passed && status[p] == 0 && part->all[p].checks > 0;
    if (absent)
        gpu_skip("%s", part->all[0].text);
    else
        gpu_ok(passed, "%s (%d ranks)", part->name, ranks);
    for (int p = 0; p < ranks - lost && !absent; p++)
        if (p == 0 || status[p] != 0 || lost)
            gpu_note("  process %d: status %d, %d checks, waited %.3f s; %s", p, status[p],
                     part->all[p].checks, part->all[p].seconds, part->all[p].text);
    processes_unshare(part->all, MOST * sizeof *part->all);
    return !absent;
}

int main(int argc, char **argv)
{
    test_part parts[] = {
        {.name = "bits by NCCL", .run = run_bits, .limit = 20},
        {.name = "times", .run = run_times, .limit = 20},
        {.name = "a lost rank", .run = run_lost, .limit = LOST_LIMIT_SECONDS},
    };
    if (argc == 3 && strcmp(argv[1], "--ranks") == 0)
        ranks = atoi(argv[2]);
    if ((argc != 1 && argc != 3) || ranks < 1 || ranks > MOST)
        return fprintf(stderr, "usage: gpu_library_test [--ranks 1..%d]\n", MOST), 2;
    peer_spread = true;
    if (!gpu_present())
        gpu_skip("no NVIDIA device here");
    else
        for (int i = 0; i < (ranks > 1 ? 3 : 2); i++)
            if (!run_part(&parts[i]))
                break;
    return gpu_done();
}
