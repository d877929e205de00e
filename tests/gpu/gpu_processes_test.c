/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Teams of several processes on one GPU, which reach each other's memory through file descriptors:
 * bits, times, a stress, injected failures, dead and stopped ranks.
 *
 *     gpu_processes_test [--ranks N] [--local N] [--stress SECONDS] [--only PART] [--spread]
 *                        [--compile]
 *
 * Under CUDA MPS (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE at most 100 / N) the processes run side by
 * side. Without, they take turns: less is run, and times must be refused. --spread takes a GPU for
 * each process where there are enough. --compile needs no GPU.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu/peers.h"
#include "support/processes_bootstrap.h"

enum { MOST = 16 };
#define WRITTEN_NAN 0x7fff
#define DEAD_LIMIT_SECONDS 1.0

static int ranks = 2, local_ranks = 1; /* processes, and ranks that each hosts */
static double stress_seconds = 5;

/* What a process tells its parent; the parent prints, so that TAP lines stay whole. */
typedef struct verdict {
    int passed, failed;
    double seconds;
    long calls;
    int culprit, stage;
    bool done, nan;
    char text[400];
} verdict;

typedef struct test_part {
    const char *name;
    arfuse_status (*run)(const arfuse_bootstrap *bootstrap, const struct test_part *part,
                         verdict *own, arf_error *error);
    int form, tokens; /* of dead and stopped ranks */
    bool stopped;
    verdict *all; /* shared, by process */
} test_part;

/* ---- bits ---------------------------------------------------------------------------------------
 */

static arfuse_status one_call(peer *at, const arf_launch *launch, bool in_graph, arf_error *error)
{
    CUgraphExec graph = NULL;
    ARF_TRY(arf_trial_poison(at->trial, error));
    arfuse_status status = in_graph ? gpu_capture(at->space, launch, &graph, error)
                                    : arf_cuda_launch(&at->space->base, launch, error);
    if (status == ARFUSE_OK && in_graph)
        status = gpu_replay(at->space, graph, error);
    if (status == ARFUSE_OK)
        status = gpu_finish(at->space, error);
    gpu_drop(at->space, graph);
    if (status != ARFUSE_OK)
        return status;
    return arf_trial_check(at->trial, launch->pattern, launch->tokens, error);
}

static arfuse_status run_bits(const arfuse_bootstrap *bootstrap, const test_part *part,
                              verdict *own, arf_error *error)
{
    static const int tokens[] = {PEER_TOKENS, 1, 5, 2};
    peer at;
    (void)part;
    arfuse_status status = peer_open(bootstrap, local_ranks, 20, &at, error);
    int sizes = status == ARFUSE_OK && peer_side_by_side(&at) ? 4 : 2;
    for (int form = 0; status == ARFUSE_OK && form < PEER_FORMS; form++)
        for (int i = 0; status == ARFUSE_OK && i < 2 * sizes; i++) {
            arf_launch launch;
            const char *name;
            status = peer_prepare(&at, form, tokens[i / 2], &launch, &name, error);
            if (status == ARFUSE_NOT_SUPPORTED) {
                arf_error_clear(error);
                status = ARFUSE_OK;
                continue;
            }
            if (status == ARFUSE_OK)
                status = one_call(&at, &launch, i % 2 == 1, error);
            if (status != ARFUSE_OK)
                arf_error_prefix(error, "%s %s, %d tokens, %s", name,
                                 arf_pattern_name(launch.pattern), tokens[i / 2],
                                 i % 2 ? "graph" : "eager");
            status = arf_team_vote(&at.team, status, error);
            own->passed += status == ARFUSE_OK;
        }
    snprintf(
        own->text, sizeof own->text, "%d SMs seen, link %s, %d ranks a GPU, by %s",
        at.cuda ? at.cuda->sm_count : 0, at.cuda ? arf_link_name(at.cuda->key.link) : "unknown",
        at.cuda ? at.cuda->key.ranks_per_gpu : 0, at.cuda ? arf_way_name(at.cuda->way) : "nothing");
    peer_close(&at);
    return status;
}

/* ---- times --------------------------------------------------------------------------------------
 */

static arfuse_status run_times(const arfuse_bootstrap *bootstrap, const test_part *part,
                               verdict *own, arf_error *error)
{
    peer at;
    arf_launch launch;
    const char *name;
    (void)part;
    arfuse_status status = peer_open(bootstrap, local_ranks, 20, &at, error);
    size_t used = 0;
    for (int form = 0; status == ARFUSE_OK && form < PEER_FORMS; form += 2) {
        double us[MOST] = {0};
        const arf_timing timing = {.calls = 100, .policy = ARF_WARM};
        arf_error refusal = ARF_ERROR_INIT;
        status = peer_prepare(&at, form, 1, &launch, &name, error);
        if (status != ARFUSE_OK)
            break;
        status = arf_cuda_time(&at.space->base, &launch, &timing, us, &refusal);
        if (peer_side_by_side(&at) && status == ARFUSE_OK && us[0] > 0) {
            used += (size_t)snprintf(own->text + used, sizeof own->text - used, "%s %.2f us; ",
                                     name, us[0]);
            own->passed++;
        } else if (!peer_side_by_side(&at) && status == ARFUSE_HARDWARE) {
            snprintf(own->text, sizeof own->text, "%.350s", refusal.text);
            own->passed++;
            status = ARFUSE_OK;
        } else
            status = arf_fail(error, ARFUSE_FAILURE, "timing %s: status %d, %g us: %s", name,
                              (int)status, us[0], refusal.text);
        status = arf_team_vote(&at.team, status, error);
    }
    peer_close(&at);
    return status;
}

/* ---- stress -------------------------------------------------------------------------------------
 */

/* A graph of many calls, replayed; at random places the outputs are checked. */
static arfuse_status run_stress(const arfuse_bootstrap *bootstrap, const test_part *part,
                                verdict *own, arf_error *error)
{
    enum { CALLS = 300 };
    peer at;
    (void)part;
    arfuse_status status = peer_open(bootstrap, local_ranks, 20, &at, error);
    arf_launch launch[PEER_FORMS];
    int forms = 0;
    for (int form = 0; status == ARFUSE_OK && form < PEER_FORMS; form++) {
        const char *name;
        status = peer_prepare(&at, form, 1, &launch[forms], &name, error);
        forms += status == ARFUSE_OK;
        if (status == ARFUSE_NOT_SUPPORTED) {
            arf_error_clear(error);
            status = ARFUSE_OK;
        }
    }
    /* Processes that take turns spend milliseconds on each wait. */
    const int replays = status == ARFUSE_OK && peer_side_by_side(&at) ? 20 : 1;
    uint64_t state = 77;
    double start = gpu_seconds();
    for (int64_t more = 1; status == ARFUSE_OK && more != 0;) {
        CUgraph captured = NULL;
        CUgraphExec graph = NULL;
        const arf_driver *driver = &at.cuda->driver;
        arf_launch last = launch[0];
        status = arf_trial_poison(at.trial, error);
        if (status == ARFUSE_OK)
            status = arf_cuda_enter(at.cuda, error);
        if (status != ARFUSE_OK)
            break;
        status = ARF_CU(driver, error, cuStreamBeginCapture, at.space->stream,
                        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        for (int i = 0; status == ARFUSE_OK && i < CALLS; i++) {
            last = launch[gpu_pick(&state, forms)];
            last.tokens = 1 + gpu_pick(&state, 4);
            last.stream = (arfuse_stream)at.space->stream;
            status = arf_cuda_launch(&at.space->base, &last, error);
        }
        driver->cuStreamEndCapture(at.space->stream, &captured);
        if (status == ARFUSE_OK)
            status = ARF_CU(driver, error, cuGraphInstantiateWithFlags, &graph, captured, 0);
        if (captured != NULL)
            driver->cuGraphDestroy(captured);
        for (int i = 0; status == ARFUSE_OK && i < replays; i++)
            status = ARF_CU(driver, error, cuGraphLaunch, graph, at.space->stream);
        arf_cuda_leave(at.cuda);
        if (status == ARFUSE_OK)
            status = gpu_finish(at.space, error);
        own->calls += CALLS * replays;
        gpu_drop(at.space, graph);
        /* The last call alone after a poison: what the replays left behind must not show. */
        if (status == ARFUSE_OK) {
            last.stream = NULL;
            status = one_call(&at, &last, false, error);
        }
        status = arf_team_vote(&at.team, status, error);
        more = gpu_seconds() - start < stress_seconds;
        int64_t all[MOST];
        bootstrap->allgather(bootstrap->context, &more, all, sizeof more);
        more = all[0];
    }
    own->seconds = gpu_seconds() - start;
    peer_close(&at);
    return status;
}

/* ---- injected failures --------------------------------------------------------------------------
 */

static CUresult broken(void)
{
    return CUDA_ERROR_UNKNOWN;
}

static arfuse_status fail_once(peer *at, int which, bool victim, size_t *free_bytes,
                               arf_error *error)
{
    arf_driver whole = at->cuda->driver, *driver = &at->cuda->driver;
    void **function[] = {
        (void **)&driver->cuMemGetAllocationGranularity,
        (void **)&driver->cuMemCreate,
        (void **)&driver->cuMemExportToShareableHandle,
        (void **)&driver->cuMemImportFromShareableHandle,
        (void **)&driver->cuMemAddressReserve,
        (void **)&driver->cuMemMap,
        (void **)&driver->cuMemSetAccess,
        (void **)&driver->cuMemcpyHtoD,
        (void **)&driver->cuMemcpyDtoH,
        (void **)&driver->cuMemsetD16,
    };
    arf_space *space = NULL;
    arf_space_spec spec = peer_spec(at->team.tp_size, 5);
    arf_error refusal = ARF_ERROR_INIT;
    size_t total;
    if (victim)
        *function[which] = (void *)broken;
    arfuse_status status = arf_cuda_space_create(&at->cuda->base, &spec, &space, &refusal);
    at->cuda->driver = whole;
    if (status == ARFUSE_OK) {
        arf_cuda_space_destroy(space);
        return arf_fail(error, ARFUSE_FAILURE, "failure %d changed nothing", which);
    }
    if (strstr(refusal.text, "(999)") == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "failure %d: the message is %s", which,
                        refusal.text);
    ARF_TRY(arf_cuda_space_create(&at->cuda->base, &spec, &space, error));
    arf_cuda_space_destroy(space);
    ARF_TRY(arf_cuda_enter(at->cuda, error));
    status = ARF_CU(driver, error, cuMemGetInfo, free_bytes, &total);
    arf_cuda_leave(at->cuda);
    return status;
}

static arfuse_status run_failures(const arfuse_bootstrap *bootstrap, const test_part *part,
                                  verdict *own, arf_error *error)
{
    peer at;
    size_t first = 0, last = 0;
    (void)part;
    arfuse_status status = peer_open_device(bootstrap, local_ranks, &at, error);
    for (int victim = 0; status == ARFUSE_OK && victim < 2; victim++)
        for (int which = 0; status == ARFUSE_OK && which < 10; which++) {
            status = fail_once(&at, which, victim == bootstrap->rank,
                               own->passed == 1 ? &first : &last, error);
            status = arf_team_vote(&at.team, status, error);
            own->passed += status == ARFUSE_OK;
        }
    /* A peer may be between its two readings: whole segments would show, some MiB do not. */
    snprintf(own->text, sizeof own->text, "%zu MiB free after the second failure, %zu at the end",
             first >> 20, last >> 20);
    peer_close(&at);
    return status;
}

/* ---- dead and stopped ranks
 * ---------------------------------------------------------------------- */

static arfuse_status all_nan(peer *at, const arf_launch *launch, bool *yes, arf_error *error)
{
    static uint16_t row[PEER_TOKENS * PEER_HIDDEN];
    const arfuse_operands *operands = arf_trial_operands(at->trial);
    size_t values = (size_t)launch->tokens * PEER_HIDDEN;
    *yes = true;
    ARF_TRY(arf_cuda_device.download(&at->cuda->base, 0, row, operands[0].norm_out,
                                     values * sizeof row[0], error));
    for (size_t i = 0; i < values; i++)
        *yes = *yes && row[i] == WRITTEN_NAN;
    return ARFUSE_OK;
}

/* No vote once the victim is gone: it would wait for it. */
static arfuse_status run_lost(const arfuse_bootstrap *bootstrap, const test_part *part,
                              verdict *own, arf_error *error)
{
    peer at;
    arf_launch launch;
    const char *name;
    ARF_TRY(peer_open(bootstrap, local_ranks, DEAD_LIMIT_SECONDS, &at, error));
    ARF_TRY(peer_prepare(&at, part->form, part->tokens, &launch, &name, error));
    ARF_TRY(arf_team_vote(&at.team, one_call(&at, &launch, false, error), error));
    ARF_TRY(arf_team_vote(&at.team, arf_trial_poison(at.trial, error), error));
    if (bootstrap->rank == bootstrap->size - 1)
        raise(part->stopped ? SIGSTOP : SIGKILL);
    arfuse_culprit culprit = {.rank = -1};
    double start = gpu_seconds();
    arf_error expiry = ARF_ERROR_INIT;
    arfuse_status status = arf_cuda_launch(&at.space->base, &launch, error);
    if (status == ARFUSE_OK)
        status = gpu_finish(at.space, &expiry);
    own->seconds = gpu_seconds() - start;
    if (status == ARFUSE_TIMEOUT) {
        status = arf_cuda_state(&at.space->base, &culprit);
        own->culprit = culprit.rank;
        own->stage = culprit.stage;
        status = all_nan(&at, &launch, &own->nan, error);
    } else
        status =
            arf_fail(error, ARFUSE_FAILURE, "the call ended with %d: %s", (int)status, expiry.text);
    own->done = true;
    peer_close(&at);
    return status;
}

/* ---- the parent ---------------------------------------------------------------------------------
 */

static int process(const arfuse_bootstrap *bootstrap, void *context)
{
    const test_part *part = context;
    verdict *own = &part->all[bootstrap->rank];
    arf_error error = ARF_ERROR_INIT;
    own->culprit = -1;
    arfuse_status status = part->run(bootstrap, part, own, &error);
    if (status != ARFUSE_OK)
        snprintf(own->text, sizeof own->text, "%.390s", error.text);
    own->failed = status != ARFUSE_OK;
    return own->failed;
}

/* The victim goes when the survivors have done their part, or have had their time. */
static void wait_for_survivors(processes *all, const test_part *part, double seconds)
{
    double start = gpu_seconds();
    for (bool done = false; !done && gpu_seconds() - start < seconds;) {
        done = true;
        for (int p = 0; p < ranks - 1; p++)
            done = done && (part->all[p].done || part->all[p].failed);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    kill(all->pid[ranks - 1], SIGKILL);
}

static void run_part(test_part *part, double seconds)
{
    processes all;
    int status[MOST];
    part->all = processes_share(MOST * sizeof *part->all);
    double start = gpu_seconds();
    processes_start(&all, ranks, process, part);
    bool lost = part->run == run_lost;
    if (lost)
        wait_for_survivors(&all, part, seconds - 5);
    processes_wait(&all, status, seconds);
    int survivors = lost ? ranks - 1 : ranks;
    bool passed = true;
    for (int p = 0; p < survivors; p++) {
        const verdict *v = &part->all[p];
        bool right = status[p] == 0;
        if (lost)
            right = right && v->done && v->nan && v->culprit == ranks * local_ranks - local_ranks;
        passed = passed && right;
    }
    gpu_ok(passed, "%s (%d processes of %d ranks, %.1f s)", part->name, ranks, local_ranks,
           gpu_seconds() - start);
    for (int p = 0; p < survivors; p++) {
        const verdict *v = &part->all[p];
        if (lost)
            gpu_note("  process %d names rank %d, stage %d, after %.3f s; outputs %s %s", p,
                     v->culprit, v->stage, v->seconds, v->nan ? "are NaN" : "ARE NOT NaN", v->text);
        else if (p == 0 || status[p] != 0)
            gpu_note("  process %d: status %d, %d checks, %ld calls in %.1f s; %s", p, status[p],
                     v->passed, v->calls, v->seconds, v->text);
    }
    processes_unshare(part->all, MOST * sizeof *part->all);
    /* The MPS server cleans up behind a client that was killed. */
    if (lost)
        nanosleep(&(struct timespec){3, 0}, NULL);
}

static void run_all(const char *only)
{
    test_part parts[] = {
        {.name = "bits", .run = run_bits},
        {.name = "times", .run = run_times},
        {.name = "failures", .run = run_failures},
        {.name = "stress", .run = run_stress},
        {.name = "stopped rank, ll", .run = run_lost, .form = 0, .tokens = 5, .stopped = true},
        {.name = "stopped rank, bt", .run = run_lost, .form = 4, .tokens = 1, .stopped = true},
        {.name = "stopped rank, ht", .run = run_lost, .form = 10, .tokens = 5, .stopped = true},
        {.name = "dead rank, ll", .run = run_lost, .form = 0, .tokens = 5},
        {.name = "dead rank, bt", .run = run_lost, .form = 4, .tokens = 1},
        {.name = "dead rank, unfused", .run = run_lost, .form = 8, .tokens = 1},
        {.name = "dead rank, ht", .run = run_lost, .form = 10, .tokens = 5},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (only == NULL || strncmp(parts[i].name, only, strlen(only)) == 0)
            run_part(&parts[i], parts[i].run == run_stress ? stress_seconds + 40 : 40);
}

static void compile_all(void)
{
    arf_compiler compiler;
    arf_error error = ARF_ERROR_INIT;
    arf_shape of = peer_shape(ranks * local_ranks);
    arfuse_status status = arf_compiler_open(&compiler, 90, 13, arf_sources, NULL, &error);
    for (int form = 0; status == ARFUSE_OK && form < PEER_FORMS; form++) {
        arf_pattern pattern;
        const char *name;
        arf_plan plan = peer_form(form, &pattern, &name);
        status = gpu_compile_plan(&compiler, &of, local_ranks, pattern, &plan, &error);
    }
    arf_step barrier;
    arf_recipe_plain(&of, local_ranks, "team_barrier", 32, &barrier);
    if (status == ARFUSE_OK)
        status = gpu_compile(&compiler, &barrier, &error);
    gpu_report(status, &error, "every kernel compiles");
    arf_compiler_close(&compiler);
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    bool compile = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--compile") == 0)
            compile = true;
        else if (strcmp(argv[i], "--spread") == 0)
            peer_spread = true;
        else if (strcmp(argv[i], "--ranks") == 0 && i + 1 < argc)
            ranks = atoi(argv[++i]);
        else if (strcmp(argv[i], "--local") == 0 && i + 1 < argc)
            local_ranks = atoi(argv[++i]);
        else if (strcmp(argv[i], "--stress") == 0 && i + 1 < argc)
            stress_seconds = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
        else
            return fprintf(stderr, "gpu_processes_test: unknown option %s\n", argv[i]), 2;
    }
    if (ranks < 2 || ranks > MOST || local_ranks < 1 || local_ranks > MOST)
        return fprintf(stderr, "gpu_processes_test: 2 to %d processes\n", MOST), 2;
    if (compile)
        compile_all();
    else if (!gpu_present())
        gpu_skip("no NVIDIA device here");
    else
        run_all(only);
    return gpu_done();
}
