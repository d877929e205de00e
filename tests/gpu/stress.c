/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/stress.h"

#include <time.h>

#include "gpu/helpers.h"

enum {
    MOST_TOKENS = 4,
    SEQUENCES = 16,
    CALLS = 64, /* of a sequence */
    BATCH = 32, /* sequences between two looks of the host ... */
    BURST = 16  /* ... and eager calls behind them */
};
#define MOST_HOLD_UP_NS 20000
#define MOST_NAP_NS 200000 /* of the host */

typedef struct stress {
    peer *at;
    gpu_helpers helpers;
    arf_launch launch[PEER_FORMS]; /* the forms that run here */
    int forms;
    CUgraphExec graph[SEQUENCES];
    int compared[SEQUENCES];
    uint64_t common, own; /* states of chance: of the team, of this process */
} stress;

static CUstream stream_of(const stress *s)
{
    return s->at->space->stream;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* One call at random on the stream: a graph is captured from it, or it runs. */
static arfuse_status enqueue(stress *s, bool last, int *compared, arf_error *error)
{
    arf_launch launch = s->launch[gpu_pick(&s->common, s->forms)];
    launch.tokens = 1 + gpu_pick(&s->common, MOST_TOKENS);
    launch.stream = (arfuse_stream)stream_of(s);
    const bool looked_at = gpu_pick(&s->common, 2) == 0 || last;
    if (gpu_pick(&s->own, 4) == 0)
        ARF_TRY(gpu_hold_up(&s->helpers, (unsigned long long)gpu_pick(&s->own, MOST_HOLD_UP_NS),
                            stream_of(s), error));
    ARF_TRY(arf_cuda_launch(&s->at->space->base, &launch, error));
    *compared += looked_at;
    if (!looked_at)
        return ARFUSE_OK;
    const gpu_outputs outputs = {launch.pattern, launch.tokens, launch.operands,
                                 s->at->team.local_ranks, (unsigned)launch.plan};
    return gpu_compare(&s->helpers, &outputs, stream_of(s), error);
}

static arfuse_status record(stress *s, int which, arf_error *error)
{
    const arf_driver *driver = s->helpers.driver;
    arfuse_status status = ARF_CU(driver, error, cuStreamBeginCapture, stream_of(s),
                                  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (int i = 0; i < CALLS && status == ARFUSE_OK; i++)
        status = enqueue(s, i == CALLS - 1, &s->compared[which], error);
    status = gpu_end_capture(driver, stream_of(s), status, &s->graph[which], error);
    /* A first launch uploads, and may wait for kernels that wait for this rank. */
    if (status == ARFUSE_OK)
        status = ARF_CU(driver, error, cuGraphUpload, s->graph[which], stream_of(s));
    return status;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* What a rank does not support none does. */
static arfuse_status prepare(stress *s, arf_error *error)
{
    for (int form = 0; form < PEER_FORMS; form++) {
        const char *name;
        arfuse_status status = peer_prepare(s->at, form, 1, &s->launch[s->forms], &name, error);
        s->forms += status == ARFUSE_OK;
        if (status == ARFUSE_NOT_SUPPORTED)
            arf_error_clear(error);
        else
            ARF_TRY(status);
    }
    return ARFUSE_OK;
}

static arfuse_status set_up(stress *s, arf_error *error)
{
    arfuse_status status =
        gpu_helpers_make(s->at->space, s->at->trial, MOST_TOKENS, &s->helpers, error);
    ARF_TRY(arf_team_vote(&s->at->team, status, error));
    ARF_TRY(prepare(s, error));
    for (int i = 0; i < SEQUENCES && status == ARFUSE_OK; i++)
        status = record(s, i, error);
    if (status == ARFUSE_OK)
        status = ARF_CU(s->helpers.driver, error, cuCtxSynchronize);
    return arf_team_vote(&s->at->team, status, error);
}

static void tear_down(stress *s)
{
    for (int i = 0; i < SEQUENCES; i++)
        gpu_drop(s->at->space, s->graph[i]);
    if (s->helpers.driver != NULL)
        gpu_helpers_drop(&s->helpers);
}

/* ---- running --------------------------------------------------------------------------------- */

static arfuse_status run_batch(stress *s, int sequences, long *calls, long *compared,
                               arf_error *error)
{
    for (int i = 0; i < sequences; i++) {
        const int which = gpu_pick(&s->common, SEQUENCES);
        if (gpu_pick(&s->own, 8) == 0)
            nanosleep(&(struct timespec){.tv_nsec = gpu_pick(&s->own, MOST_NAP_NS)}, NULL);
        ARF_TRY(ARF_CU(s->helpers.driver, error, cuGraphLaunch, s->graph[which], stream_of(s)));
        *calls += CALLS;
        *compared += s->compared[which];
    }
    int looked_at = 0;
    gpu_difference first;
    for (int i = 0; i < BURST; i++)
        ARF_TRY(enqueue(s, i == BURST - 1, &looked_at, error));
    *calls += BURST;
    *compared += looked_at;
    ARF_TRY(gpu_finish(s->at->space, error));
    return gpu_differences(&s->helpers, &first, error);
}

/* The clock of process 0 decides for all. */
static arfuse_status goes_on(stress *s, const stress_end *end, double start, long calls, bool *more,
                             arf_error *error)
{
    int64_t all[ARF_MAX_RANKS];
    int64_t own = end->calls > 0 ? calls < end->calls : gpu_seconds() - start < end->seconds;
    ARF_TRY(arf_team_allgather(&s->at->team, &own, all, sizeof own, error));
    *more = all[0] != 0;
    return ARFUSE_OK;
}

static arfuse_status run(stress *s, const stress_end *end, long *calls, long *compared,
                         double *seconds, arf_error *error)
{
    /* Processes that take turns spend milliseconds on each wait. */
    const int sequences = peer_side_by_side(s->at) ? BATCH : 1;
    const double start = gpu_seconds();
    for (bool more = true; more;) {
        arfuse_status status = run_batch(s, sequences, calls, compared, error);
        *seconds = gpu_seconds() - start;
        ARF_TRY(arf_team_vote(&s->at->team, status, error));
        ARF_TRY(goes_on(s, end, start, *calls, &more, error));
    }
    return ARFUSE_OK;
}

arfuse_status peer_stress(peer *at, const stress_end *end, long *calls, long *compared,
                          double *seconds, arf_error *error)
{
    static stress s;
    s = (stress){.at = at, .common = 77, .own = 1001 + 2 * (uint64_t)at->team.bootstrap.rank};
    ARF_TRY(arf_team_vote(&at->team, arf_cuda_enter(at->cuda, error), error));
    arfuse_status status = set_up(&s, error);
    if (status == ARFUSE_OK)
        status = run(&s, end, calls, compared, seconds, error);
    tear_down(&s);
    arf_cuda_leave(at->cuda);
    return status;
}
