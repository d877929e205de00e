/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Teams of several processes on one GPU, which reach each other's memory through file descriptors:
 * bits, times, a stress, injected failures, dead and stopped ranks.
 *
 *     gpu_processes_test [--ranks N] [--local N] [--stress SECONDS | --stress-calls N]
 *                        [--only PART,PART..] [--spread] [--compile]
 *
 * Under CUDA MPS (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE at most 100 / N) the processes run side by
 * side. Without, they take turns: less is run, and times must be refused.
 * --only takes beginnings of names: "bits,stress". --spread takes a GPU for each process where
 * there are enough. --compile needs no GPU.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu/failures.h"
#include "gpu/stress.h"
#include "support/processes_bootstrap.h"

enum { MOST = 16 };
#define DEAD_LIMIT_SECONDS 1.0
#define PAUSE_SECONDS 3

static int ranks = 2, local_ranks = 1; /* processes, and ranks that each hosts */
static stress_end stress = {.seconds = 5};

/* What a process tells its parent; the parent prints, so that TAP lines stay whole. */
typedef struct verdict {
    int passed, failed;
    double seconds;
    long calls, compared;
    int culprit, stage;
    bool ready, done, nan; /* to fall out; with its part; its outputs are */
    char text[400];
} verdict;

typedef struct test_part {
    const char *name;
    arfuse_status (*run)(const arfuse_bootstrap *bootstrap, const struct test_part *part,
                         verdict *own, arf_error *error);
    int form, tokens; /* of dead and stopped ranks */
    bool stopped, in_graph;
    verdict *all; /* shared, by process */
} test_part;

/* ---- bits ---------------------------------------------------------------------------------------
 */

static arfuse_status checked_call(peer *at, const arf_launch *launch, bool in_graph,
                                  arf_error *error)
{
    ARF_TRY(peer_call(at, launch, in_graph, error));
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
                status = checked_call(&at, &launch, i % 2 == 1, error);
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

static arfuse_status run_stress(const arfuse_bootstrap *bootstrap, const test_part *part,
                                verdict *own, arf_error *error)
{
    peer at;
    (void)part;
    arfuse_status status = peer_open(bootstrap, local_ranks, 20, &at, error);
    if (status == ARFUSE_OK)
        status = peer_stress(&at, &stress, &own->calls, &own->compared, &own->seconds, error);
    own->passed = status == ARFUSE_OK;
    peer_close(&at);
    return status;
}

/* ---- injected failures --------------------------------------------------------------------------
 */

static arfuse_status run_failures(const arfuse_bootstrap *bootstrap, const test_part *part,
                                  verdict *own, arf_error *error)
{
    peer at;
    (void)part;
    arfuse_status status = peer_open_device(bootstrap, local_ranks, &at, error);
    if (status == ARFUSE_OK)
        status = peer_failures(&at, &own->passed, own->text, sizeof own->text, error);
    peer_close(&at);
    return status;
}

/* ---- dead and stopped ranks
 * ---------------------------------------------------------------------- */

/* A pause below the limit is no failure. */
static arfuse_status run_pause(const arfuse_bootstrap *bootstrap, const test_part *part,
                               verdict *own, arf_error *error)
{
    peer at;
    arf_launch launch;
    const char *name;
    ARF_TRY(peer_open(bootstrap, local_ranks, 20, &at, error));
    arfuse_status status = peer_prepare(&at, part->form, part->tokens, &launch, &name, error);
    if (status == ARFUSE_OK)
        status = arf_team_vote(&at.team, checked_call(&at, &launch, false, error), error);
    own->ready = true;
    if (status == ARFUSE_OK && bootstrap->rank == bootstrap->size - 1)
        raise(SIGSTOP);
    const double start = gpu_seconds();
    if (status == ARFUSE_OK)
        status = arf_team_vote(&at.team, checked_call(&at, &launch, false, error), error);
    own->seconds = gpu_seconds() - start;
    own->passed = status == ARFUSE_OK;
    peer_close(&at);
    return status;
}

/* Both end here: a dead rank for good, with nothing of its own on the GPU, since what a client of
 * MPS leaves there may take others with it; a stopped one until it is let go on. */
static arfuse_status fall_out(const peer *at, bool stopped, arf_error *error)
{
    ARF_TRY(arf_cuda_enter(at->cuda, error));
    arfuse_status status = ARF_CU(&at->cuda->driver, error, cuCtxSynchronize);
    arf_cuda_leave(at->cuda);
    if (status == ARFUSE_OK)
        raise(stopped ? SIGSTOP : SIGKILL);
    return status;
}

/* No vote once the victim is gone: it would wait for it. A rank that was stopped makes its call
 * when the others have given it up, and is told so. */
static arfuse_status run_lost(const arfuse_bootstrap *bootstrap, const test_part *part,
                              verdict *own, arf_error *error)
{
    peer at;
    arf_launch launch;
    const char *name;
    CUgraphExec graph = NULL;
    ARF_TRY(peer_open(bootstrap, local_ranks, DEAD_LIMIT_SECONDS, &at, error));
    ARF_TRY(peer_prepare(&at, part->form, part->tokens, &launch, &name, error));
    ARF_TRY(arf_team_vote(&at.team, peer_call(&at, &launch, false, error), error));
    if (part->in_graph)
        ARF_TRY(arf_team_vote(&at.team, gpu_capture(at.space, &launch, &graph, error), error));
    ARF_TRY(arf_team_vote(&at.team, arf_trial_poison(at.trial, error), error));
    if (bootstrap->rank == bootstrap->size - 1)
        ARF_TRY(fall_out(&at, part->stopped, error));
    arfuse_culprit culprit = {.rank = -1};
    double start = gpu_seconds();
    arf_error expiry = ARF_ERROR_INIT;
    arfuse_status status = part->in_graph ? gpu_replay(at.space, graph, error)
                                          : arf_cuda_launch(&at.space->base, &launch, error);
    if (status == ARFUSE_OK)
        status = gpu_finish(at.space, &expiry);
    own->seconds = gpu_seconds() - start;
    if (status == ARFUSE_TIMEOUT) {
        status = arf_cuda_state(&at.space->base, &culprit);
        own->culprit = culprit.rank;
        own->stage = culprit.stage;
        status = peer_all_nan(&at, &launch, &own->nan, error);
    } else
        status =
            arf_fail(error, ARFUSE_FAILURE, "the call ended with %d: %s", (int)status, expiry.text);
    own->done = true;
    gpu_drop(at.space, graph);
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

/* Until the survivors have done their part, or have had their time. */
static void wait_for_survivors(const test_part *part, double seconds)
{
    double start = gpu_seconds();
    for (bool done = false; !done && gpu_seconds() - start < seconds;) {
        done = true;
        for (int p = 0; p < ranks - 1; p++)
            done = done && (part->all[p].done || part->all[p].failed);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
}

static void tell(const test_part *part, int p, int status)
{
    const verdict *v = &part->all[p];
    if (part->run == run_lost)
        gpu_note("  process %d names rank %d, stage %d, after %.3f s; outputs %s %s", p, v->culprit,
                 v->stage, v->seconds, v->nan ? "are NaN" : "ARE NOT NaN", v->text);
    else if (part->run == run_stress)
        gpu_note("  process %d: status %d, %ld calls, %ld of them compared, in %.1f s; %s", p,
                 status, v->calls, v->compared, v->seconds, v->text);
    else
        gpu_note("  process %d: status %d, %d checks, %.1f s; %s", p, status, v->passed, v->seconds,
                 v->text);
}

static void run_part(test_part *part, double seconds)
{
    processes all;
    int status[MOST];
    part->all = processes_share(MOST * sizeof *part->all);
    double start = gpu_seconds();
    processes_start(&all, ranks, process, part);
    const bool lost = part->run == run_lost;
    if (lost)
        wait_for_survivors(part, seconds - 5);
    if (part->run == run_pause) {
        while (!part->all[ranks - 1].ready && gpu_seconds() - start < seconds - 10)
            nanosleep(&(struct timespec){0, 20000000}, NULL);
        nanosleep(&(struct timespec){PAUSE_SECONDS, 0}, NULL);
    }
    if (part->stopped)
        kill(all.pid[ranks - 1], SIGCONT);
    processes_wait(&all, status, seconds);
    /* A rank that was stopped comes back, and must hear that it is out. */
    const int judged = lost && !part->stopped ? ranks - 1 : ranks;
    bool passed = true;
    for (int p = 0; p < judged; p++) {
        const verdict *v = &part->all[p];
        bool right = status[p] == 0;
        if (lost)
            right = right && v->done && v->nan && v->culprit == ranks * local_ranks - local_ranks;
        passed = passed && right;
    }
    gpu_ok(passed, "%s (%d processes of %d ranks, %.1f s)", part->name, ranks, local_ranks,
           gpu_seconds() - start);
    for (int p = 0; p < judged; p++)
        if (lost || p == 0 || status[p] != 0)
            tell(part, p, status[p]);
    processes_unshare(part->all, MOST * sizeof *part->all);
}

/* ---- the server of MPS --------------------------------------------------------------------------
 */

static arfuse_status run_nothing(const arfuse_bootstrap *bootstrap, const test_part *part,
                                 verdict *own, arf_error *error)
{
    peer at;
    (void)part;
    arfuse_status status = peer_open_device(bootstrap, 1, &at, error);
    own->passed = status == ARFUSE_OK;
    peer_close(&at);
    return status;
}

/* It cleans up behind a client that was killed, and may refuse others meanwhile. */
static bool takes_clients(double seconds)
{
    test_part part = {.run = run_nothing};
    const double start = gpu_seconds();
    bool takes = false;
    part.all = processes_share(MOST * sizeof *part.all);
    while (!takes && gpu_seconds() - start < seconds) {
        processes all;
        int status[MOST];
        processes_start(&all, 1, process, &part);
        processes_wait(&all, status, 10);
        takes = status[0] == 0;
        if (!takes)
            nanosleep(&(struct timespec){1, 0}, NULL);
    }
    processes_unshare(part.all, MOST * sizeof *part.all);
    return takes;
}

/* Names of parts, or beginnings of them, with commas between. */
static bool is_wanted(const char *only, const char *name)
{
    if (only == NULL)
        return true;
    for (const char *word = only; *word != '\0'; word += strcspn(word, ",")) {
        word += *word == ',';
        const size_t length = strcspn(word, ",");
        if (length > 0 && strncmp(name, word, length) == 0)
            return true;
    }
    return false;
}

/* Ranks die last: what they take with them costs no other part. */
static void run_all(const char *only)
{
    enum { LL = 0, LL_SINGLE = 2, BT = 4, UNFUSED = 8, HT = 10, BT_SINGLE = 12 }; /* of peer_form */
    test_part parts[] = {
        {.name = "bits", .run = run_bits},
        {.name = "times", .run = run_times},
        {.name = "failures", .run = run_failures},
        {.name = "stress", .run = run_stress},
        {.name = "paused rank", .run = run_pause, .form = LL, .tokens = 5, .stopped = true},
        {.name = "stopped rank, ll", .run = run_lost, .form = LL, .tokens = 5, .stopped = true},
        {.name = "stopped rank, bt", .run = run_lost, .form = BT, .tokens = 1, .stopped = true},
        {.name = "stopped rank, unfused",
         .run = run_lost,
         .form = UNFUSED,
         .tokens = 5,
         .stopped = true},
        {.name = "stopped rank, ht", .run = run_lost, .form = HT, .tokens = 5, .stopped = true},
        {.name = "dead rank, ll", .run = run_lost, .form = LL, .tokens = 5},
        {.name = "dead rank, ll in one kernel", .run = run_lost, .form = LL_SINGLE, .tokens = 5},
        {.name = "dead rank, bt", .run = run_lost, .form = BT, .tokens = 1},
        {.name = "dead rank, bt in one kernel", .run = run_lost, .form = BT_SINGLE, .tokens = 5},
        {.name = "dead rank, bt in a graph",
         .run = run_lost,
         .form = BT,
         .tokens = 5,
         .in_graph = true},
        {.name = "dead rank, unfused", .run = run_lost, .form = UNFUSED, .tokens = 1},
        {.name = "dead rank, ht", .run = run_lost, .form = HT, .tokens = 5},
    };
    const double most = stress.calls > 0 ? 300 : stress.seconds;
    bool killed = false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!is_wanted(only, parts[i].name))
            continue;
        if (killed && !takes_clients(30)) {
            gpu_ok(false, "%s: since a rank was killed nobody can open the GPU", parts[i].name);
            break;
        }
        run_part(&parts[i], parts[i].run == run_stress ? most + 40 : 40);
        killed = killed || (parts[i].run == run_lost && !parts[i].stopped);
    }
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
            stress = (stress_end){.seconds = strtod(argv[++i], NULL)};
        else if (strcmp(argv[i], "--stress-calls") == 0 && i + 1 < argc)
            stress = (stress_end){.calls = strtol(argv[++i], NULL, 10)};
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
