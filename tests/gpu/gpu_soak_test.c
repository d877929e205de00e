/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays for as long as asked: two workspaces of one team, of different shapes, whose graphs take
 * turns on one stream in random order. A graph holds one to four calls of either or both, of any
 * protocol, pattern and M; after every few replays one graph gives way to a new one. The stream is
 * held up at random, between graphs and inside them, operands change in place, and every call is
 * compared with the reference on the GPU, by bits.
 *
 *     gpu_soak_test [--seconds N] [--seed N] [--compile]
 *
 * Exit: 0 all right, 1 not, 2 usage. What differs is named by workspace, call, replay and seed; a
 * wait that expires likewise; what hangs in spite of the limit on waits ends the program.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu/helpers.h"

enum {
    RANKS = 8,
    SIDES = 2,
    MOST_TOKENS = 128,
    SETS =
        5, /* of data: adversarial tokens take their themes in turn with the seed, five of them */
    MOST_CALLS = 4, /* of a graph */
    GRAPHS = 96,
    BATCH = 64 /* replays between two looks of the host */
};
#define WAIT_LIMIT_SECONDS 5.0
/* Of a batch: both workspaces may come to the limit, every later wait ends at once. Of the set-up:
 * expected results are made on one core. */
#define HANG_SECONDS 30
#define HANG_SET_UP_SECONDS 120
#define MOST_HOLD_UP_NS 200000
#define MOST_NAP_NS 200000 /* of the host: the stream runs dry */
/* What drivers keep for graphs comes and goes. A leak of one word a replay is larger in minutes. */
#define MOST_GROWTH ((int64_t)64 << 20)

/* One workspace, its data, and what its calls work on. */
typedef struct soak_side {
    const char *name;
    arf_cuda_space *space;
    arf_trial *set[SETS];
    gpu_helpers expected[SETS];
    arf_trial *work;     /* what calls read; a set is copied over it */
    gpu_helpers helpers; /* what they must leave then */
    CUgraphExec refill[SETS];
    void *out[MOST_CALLS][RANKS][2]; /* of each place of a graph */
    arfuse_operands operands[MOST_CALLS][RANKS];
    arf_launch launch[GPU_FORMS];
    int now; /* the set that calls read */
    long calls, of_protocol[ARF_PROTOCOLS];
    unsigned long long bad; /* elements */
} soak_side;

typedef struct soak_call {
    int side, form;
    int64_t tokens;
} soak_call;

typedef struct soak_graph {
    CUgraphExec graph;
    int calls;
    soak_call call[MOST_CALLS];
} soak_graph;

/* What a replay was, until the host has looked. */
typedef struct soak_replay {
    int graph, set[SIDES];
} soak_replay;

typedef struct soak {
    gpu_team gpu;
    CUstream stream;
    soak_side side[SIDES];
    soak_graph graph[GRAPHS];
    soak_replay replay[BATCH];
    long replays;
    uint64_t seed, state;
} soak;

static arf_shape shape_of(int side)
{
    static const arf_shape shapes[SIDES] = {{RANKS, 6144, 10, ARF_ON, ARF_ON, ARF_ON},
                                            {RANKS, 5120, 8, ARF_ON, ARF_ON, ARF_OFF}};
    return shapes[side];
}

static const arf_trial_kind kinds[SIDES] = {ARF_TRIAL_ADVERSARIAL, ARF_TRIAL_RANDOM};

static const arf_driver *driver_of(const soak *at)
{
    return &at->gpu.cuda->driver;
}

static bool by_chance(soak *at, int one_of)
{
    return gpu_pick(&at->state, one_of) == 0;
}

/* ---- what hangs ------------------------------------------------------------------------------ */

static char hang_text[160];

static void hung(int number)
{
    (void)number;
    ssize_t written = write(STDOUT_FILENO, hang_text, strlen(hang_text));
    _exit(written < 0 ? 3 : 1);
}

/* alarm(0) ends it. */
static void watch(const soak *at, unsigned seconds)
{
    snprintf(hang_text, sizeof hang_text,
             "not ok - the GPU hangs: %u s behind replay %ld, seed %llu, and no wait has expired\n",
             seconds, at->replays, (unsigned long long)at->seed);
    signal(SIGALRM, hung);
    alarm(seconds);
}

/* ---- captures -------------------------------------------------------------------------------- */

static arfuse_status begin(soak *at, arf_error *error)
{
    return ARF_CU(driver_of(at), error, cuStreamBeginCapture, at->stream,
                  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static arfuse_status end(soak *at, arfuse_status status, CUgraphExec *graph, arf_error *error)
{
    return gpu_end_capture(driver_of(at), at->stream, status, graph, error);
}

/* ---- data ------------------------------------------------------------------------------------ */

static arfuse_status copy(soak *at, const void *to, const void *from, size_t bytes,
                          arf_error *error)
{
    if (from == NULL)
        return ARFUSE_OK;
    return ARF_CU(driver_of(at), error, cuMemcpyDtoDAsync, (CUdeviceptr)(uintptr_t)to,
                  (CUdeviceptr)(uintptr_t)from, bytes, at->stream);
}

/* Operands of a set, and what calls on them must leave, take the place of those before. */
static arfuse_status copy_set(soak *at, soak_side *side, int set, arf_error *error)
{
    const arf_shape *shape = &side->space->base.spec.shape;
    const size_t row = (size_t)shape->hidden_size * 2, rows = MOST_TOKENS * row;
    const size_t slots = (size_t)MOST_TOKENS * (size_t)shape->top_k;
    for (int r = 0; r < RANKS; r++) {
        const arfuse_operands *to = &arf_trial_operands(side->work)[r];
        const arfuse_operands *from = &arf_trial_operands(side->set[set])[r];
        const size_t width = from->weights_type == ARFUSE_WEIGHTS_FP32 ? 4 : 2;
        ARF_TRY(copy(at, to->input, from->input, rows, error));
        ARF_TRY(copy(at, to->routed, from->routed, (size_t)from->routed_rows * row, error));
        ARF_TRY(copy(at, to->weights, from->weights, slots * width, error));
        ARF_TRY(copy(at, to->indices, from->indices, slots * sizeof *from->indices, error));
        ARF_TRY(copy(at, to->shared, from->shared, rows, error));
        ARF_TRY(copy(at, to->residual, from->residual, rows, error));
        ARF_TRY(copy(at, to->gamma, from->gamma, row, error));
    }
    for (int p = 0; p < ARF_PATTERNS; p++)
        for (int t = 0; t < 2; t++)
            ARF_TRY(copy(at, (void *)(uintptr_t)side->helpers.expected[p][t],
                         (void *)(uintptr_t)side->expected[set].expected[p][t], rows, error));
    return ARFUSE_OK;
}

static arfuse_status make_data(soak *at, soak_side *side, int which, arf_error *error)
{
    arf_device *device = &at->gpu.cuda->base;
    const arf_shape shape = shape_of(which);
    for (int s = 0; s <= SETS; s++) { /* the last is worked on; it is like the first */
        arf_trial **trial = s < SETS ? &side->set[s] : &side->work;
        ARF_TRY(arf_trial_create(device, &shape, MOST_TOKENS, kinds[which],
                                 at->seed * SETS + (uint64_t)(s % SETS), trial, error));
        ARF_TRY(gpu_helpers_make(side->space, *trial, MOST_TOKENS,
                                 s < SETS ? &side->expected[s] : &side->helpers, error));
    }
    for (int s = 0; s < SETS; s++) {
        ARF_TRY(begin(at, error));
        ARF_TRY(end(at, copy_set(at, side, s, error), &side->refill[s], error));
    }
    return ARFUSE_OK;
}

/* Each place of a graph has outputs of its own, so that a call can be compared after later ones. */
static arfuse_status make_outputs(soak *at, soak_side *side, arf_error *error)
{
    const size_t bytes = MOST_TOKENS * side->helpers.row_bytes;
    for (int i = 0; i < MOST_CALLS; i++)
        for (int r = 0; r < RANKS; r++) {
            for (int t = 0; t < 2; t++) {
                void **out = &side->out[i][r][t];
                *out = arf_cuda_device.allocate(&at->gpu.cuda->base, r, bytes);
                if (*out == NULL)
                    return arf_fail(error, ARFUSE_FAILURE, "no memory for outputs");
                ARF_TRY(ARF_CU(driver_of(at), error, cuMemsetD16, (CUdeviceptr)(uintptr_t)*out,
                               0x7fc1, bytes / 2));
            }
            side->operands[i][r] = arf_trial_operands(side->work)[r];
            side->operands[i][r].residual_out = side->out[i][r][0];
            side->operands[i][r].norm_out = side->out[i][r][1];
        }
    return ARFUSE_OK;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static arfuse_status compare(soak *at, const soak_graph *graph, int place, arf_error *error)
{
    const soak_call *call = &graph->call[place];
    const soak_side *side = &at->side[call->side];
    const gpu_outputs outputs = {side->launch[call->form].pattern, call->tokens,
                                 side->operands[place], RANKS, (unsigned)place};
    return gpu_compare(&side->helpers, &outputs, at->stream, error);
}

static arfuse_status hold_up(soak *at, arf_error *error)
{
    const unsigned long long ns = (unsigned long long)gpu_pick(&at->state, MOST_HOLD_UP_NS);
    return by_chance(at, 4) ? gpu_hold_up(&at->side[0].helpers, ns, at->stream, error) : ARFUSE_OK;
}

/* Some calls are compared at once, the others behind the last, so that calls of both workspaces
 * also follow one another with nothing between. */
static arfuse_status enqueue(soak *at, const soak_graph *graph, arf_error *error)
{
    bool compared[MOST_CALLS] = {false};
    for (int i = 0; i < graph->calls; i++) {
        const soak_call *call = &graph->call[i];
        soak_side *side = &at->side[call->side];
        arf_launch launch = side->launch[call->form];
        launch.tokens = call->tokens;
        launch.operands = side->operands[i];
        launch.stream = (arfuse_stream)at->stream;
        ARF_TRY(hold_up(at, error));
        ARF_TRY(arf_cuda_launch(&side->space->base, &launch, error));
        compared[i] = by_chance(at, 4);
        if (compared[i])
            ARF_TRY(compare(at, graph, i, error));
    }
    for (int i = 0; i < graph->calls; i++)
        if (!compared[i])
            ARF_TRY(compare(at, graph, i, error));
    return ARFUSE_OK;
}

static arfuse_status make_graph(soak *at, soak_graph *graph, arf_error *error)
{
    enum { SCALES = 8 }; /* 2^7 tokens are the most */
    gpu_drop(at->side[0].space, graph->graph);
    *graph = (soak_graph){.calls = by_chance(at, 2) ? 1 : 2 + gpu_pick(&at->state, MOST_CALLS - 1)};
    for (int i = 0; i < graph->calls; i++)
        graph->call[i] =
            (soak_call){.side = gpu_pick(&at->state, SIDES),
                        .form = gpu_pick(&at->state, GPU_FORMS),
                        .tokens = 1 + gpu_pick(&at->state, 1 << gpu_pick(&at->state, SCALES))};
    ARF_TRY(begin(at, error));
    return end(at, enqueue(at, graph, error), &graph->graph, error);
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* Adds to a message which call it is about. */
static void name_call(const soak *at, const soak_side *side, const gpu_difference *first,
                      arf_error *error)
{
    const soak_replay *replay = &at->replay[(first->replay - 1) % BATCH];
    const soak_graph *graph = &at->graph[replay->graph];
    const soak_call *call = &graph->call[first->call];
    const int which = (int)(side - at->side);
    arf_pattern pattern;
    const arf_shape shape = shape_of(which);
    const arf_plan plan = gpu_form(&shape, call->form, &pattern);
    char cell[200];
    arf_plan_cell(ARF_SET_ARFUSE, pattern, &plan, cell, sizeof cell);
    arf_error_prefix(error,
                     "workspace %s, %s of %d tokens by %s, call %u of %d in a graph, replay %u, "
                     "seed %llu, data set %d",
                     side->name, arf_pattern_name(pattern), (int)call->tokens, cell,
                     first->call + 1, graph->calls, first->replay, (unsigned long long)at->seed,
                     replay->set[which]);
}

/* Whether a wait of this workspace has expired, and whether all its calls were right. */
static arfuse_status judge_side(soak *at, soak_side *side, arf_error *error)
{
    gpu_difference first = {0};
    arf_error wrong = ARF_ERROR_INIT;
    const arfuse_status expired = arf_cuda_expired(side->space, error);
    if (expired != ARFUSE_OK)
        arf_error_prefix(error, "workspace %s, replays up to %ld, seed %llu", side->name,
                         at->replays, (unsigned long long)at->seed);
    const arfuse_status status = gpu_differences(&side->helpers, &first, &wrong);
    if (status == ARFUSE_OK)
        return expired;
    if (first.elements > 0) {
        side->bad = first.elements;
        name_call(at, side, &first, &wrong);
    }
    /* The rows that an expired wait left show which call it was. */
    if (expired != ARFUSE_OK)
        gpu_note("  the first call with wrong rows: %s", wrong.text);
    return expired != ARFUSE_OK ? expired : arf_fail(error, status, "%s", wrong.text);
}

static arfuse_status judge(soak *at, arf_error *error)
{
    const CUresult ended = driver_of(at)->cuStreamSynchronize(at->stream);
    ARF_TRY(arf_driver_check(driver_of(at), ended, "cuStreamSynchronize", error));
    arfuse_status status = ARFUSE_OK;
    for (int w = 0; w < SIDES; w++) {
        arf_error own = ARF_ERROR_INIT;
        const arfuse_status judged = judge_side(at, &at->side[w], &own);
        if (judged == ARFUSE_OK)
            continue;
        if (status == ARFUSE_OK)
            status = arf_fail(error, judged, "%s", own.text);
        else
            gpu_note("  moreover: %s", own.text);
    }
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static arfuse_status one_replay(soak *at, arf_error *error)
{
    const int which = gpu_pick(&at->state, GRAPHS);
    const soak_graph *graph = &at->graph[which];
    soak_replay *replay = &at->replay[at->replays++ % BATCH];
    replay->graph = which;
    for (int w = 0; w < SIDES; w++) {
        soak_side *side = &at->side[w];
        if (by_chance(at, 8)) {
            side->now = gpu_pick(&at->state, SETS);
            ARF_TRY(
                ARF_CU(driver_of(at), error, cuGraphLaunch, side->refill[side->now], at->stream));
        }
        replay->set[w] = side->now;
        ARF_TRY(gpu_number(&side->helpers, (unsigned)at->replays, at->stream, error));
    }
    ARF_TRY(hold_up(at, error));
    ARF_TRY(ARF_CU(driver_of(at), error, cuGraphLaunch, graph->graph, at->stream));
    for (int i = 0; i < graph->calls; i++) {
        soak_side *side = &at->side[graph->call[i].side];
        const arf_launch *launch = &side->launch[graph->call[i].form];
        side->calls++;
        side->of_protocol[side->space->plan[launch->plan].plan.protocol]++;
    }
    if (by_chance(at, 8))
        nanosleep(&(struct timespec){.tv_nsec = gpu_pick(&at->state, MOST_NAP_NS)}, NULL);
    return ARFUSE_OK;
}

static arfuse_status batch(soak *at, arf_error *error)
{
    arfuse_status status = ARFUSE_OK;
    watch(at, HANG_SECONDS);
    for (int i = 0; i < BATCH && status == ARFUSE_OK; i++)
        status = one_replay(at, error);
    if (status == ARFUSE_OK)
        status = judge(at, error);
    alarm(0);
    if (status != ARFUSE_OK)
        return status;
    return make_graph(at, &at->graph[gpu_pick(&at->state, GRAPHS)], error);
}

/* Bytes in use, of the GPU and of this process. */
typedef struct soak_memory {
    int64_t device, host;
} soak_memory;

static arfuse_status memory_of(const soak *at, soak_memory *memory, arf_error *error)
{
    size_t left, all;
    long pages = 0;
    ARF_TRY(ARF_CU(driver_of(at), error, cuMemGetInfo, &left, &all));
    FILE *file = fopen("/proc/self/statm", "r");
    const bool told = file != NULL && fscanf(file, "%*d %ld", &pages) == 1;
    if (file != NULL)
        fclose(file);
    if (!told)
        return arf_fail(error, ARFUSE_FAILURE, "/proc/self/statm: expected two numbers");
    *memory = (soak_memory){(int64_t)(all - left), pages * sysconf(_SC_PAGESIZE)};
    return ARFUSE_OK;
}

/* `first` is taken after an eighth of the time, when drivers and libraries have what they keep. */
static arfuse_status run(soak *at, double seconds, soak_memory *first, soak_memory *last,
                         arf_error *error)
{
    const double start = gpu_seconds();
    bool settled = false;
    for (double now = 0; now < seconds; now = gpu_seconds() - start) {
        ARF_TRY(batch(at, error));
        if (!settled && now >= seconds / 8) {
            settled = true;
            ARF_TRY(memory_of(at, first, error));
        }
    }
    ARF_TRY(memory_of(at, last, error));
    return settled ? ARFUSE_OK
                   : arf_fail(error, ARFUSE_USAGE, "%g s are too short to see memory", seconds);
}

/* ---- what differs is found ------------------------------------------------------------------- */

/* One element of one rank, changed behind a right call: without this, no difference would mean
 * little. */
static arfuse_status plant(soak *at, soak_side *side, arf_error *error)
{
    enum { FORM = 0, TOKENS = 3, RANK = 5, TOKEN = 2, ELEMENT = 77, REPLAY = 123, PLACE = 1 };
    const soak_graph graph = {.calls = 2,
                              .call = {[PLACE] = {(int)(side - at->side), FORM, TOKENS}}};
    arf_launch launch = side->launch[FORM];
    launch.tokens = TOKENS;
    launch.operands = side->operands[PLACE];
    launch.stream = (arfuse_stream)at->stream;
    const size_t element = (size_t)TOKEN * side->helpers.row_bytes / 2 + ELEMENT;
    const CUdeviceptr changed = (CUdeviceptr)(uintptr_t)side->out[PLACE][RANK][1] + 2 * element;
    gpu_difference first;
    arf_bf16 right;
    arf_error found = ARF_ERROR_INIT;
    ARF_TRY(arf_cuda_launch(&side->space->base, &launch, error));
    ARF_TRY(arf_cuda_synchronize(&side->space->base, launch.stream, error));
    ARF_TRY(ARF_CU(driver_of(at), error, cuMemcpyDtoH, &right, changed, sizeof right));
    const arf_bf16 wrong = right ^ 1;
    ARF_TRY(ARF_CU(driver_of(at), error, cuMemcpyHtoD, changed, &wrong, sizeof wrong));
    ARF_TRY(gpu_number(&side->helpers, REPLAY, at->stream, error));
    ARF_TRY(compare(at, &graph, PLACE, error));
    ARF_TRY(arf_cuda_synchronize(&side->space->base, launch.stream, error));
    if (gpu_differences(&side->helpers, &first, &found) != ARFUSE_WRONG_RESULT)
        return arf_fail(error, ARFUSE_FAILURE, "a changed element is not seen %s", found.text);
    if (first.elements != 1 || first.replay != REPLAY || first.call != PLACE ||
        first.rank != RANK || !first.norm || first.token != TOKEN || first.element != ELEMENT ||
        first.got != wrong || first.expected != right)
        return arf_fail(error, ARFUSE_FAILURE,
                        "one changed element of rank %d, norm_out, token %d, element %d is seen as "
                        "replay %u, call %u, %s",
                        RANK, TOKEN, ELEMENT, first.replay, first.call, found.text);
    return gpu_forget(&side->helpers, error);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static arfuse_status make_side(soak *at, int which, arf_error *error)
{
    soak_side *side = &at->side[which];
    arf_space *space = NULL;
    const arf_shape shape = shape_of(which);
    arf_space_spec spec = {.shape = shape, .wait_limit_seconds = WAIT_LIMIT_SECONDS};
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        spec.capacity[p] = MOST_TOKENS;
    side->name = which == 0 ? "alpha" : "beta";
    snprintf(spec.label, sizeof spec.label, "%s", side->name);
    ARF_TRY(arf_cuda_space_create(&at->gpu.cuda->base, &spec, &space, error));
    side->space = (arf_cuda_space *)space;
    ARF_TRY(make_data(at, side, which, error));
    ARF_TRY(make_outputs(at, side, error));
    for (int f = 0; f < GPU_FORMS; f++) {
        arf_pattern pattern;
        const arf_plan plan = gpu_form(&shape, f, &pattern);
        side->launch[f] = arf_trial_launch(side->work, pattern, 1);
        ARF_TRY(gpu_prepare(side->space, &plan, &side->launch[f], error));
    }
    return ARFUSE_OK;
}

/* The context is current. */
static arfuse_status set_up(soak *at, arf_error *error)
{
    ARF_TRY(ARF_CU(driver_of(at), error, cuStreamCreate, &at->stream, CU_STREAM_NON_BLOCKING));
    for (int w = 0; w < SIDES; w++)
        ARF_TRY(make_side(at, w, error));
    for (int i = 0; i < GRAPHS; i++)
        ARF_TRY(make_graph(at, &at->graph[i], error));
    return ARFUSE_OK;
}

static void drop_side(soak *at, soak_side *side)
{
    for (int s = 0; s < SETS; s++) {
        gpu_drop(side->space, side->refill[s]);
        if (side->expected[s].driver != NULL)
            gpu_helpers_drop(&side->expected[s]);
        arf_trial_destroy(side->set[s]);
    }
    if (side->helpers.driver != NULL)
        gpu_helpers_drop(&side->helpers);
    arf_trial_destroy(side->work);
    for (int i = 0; i < MOST_CALLS; i++)
        for (int r = 0; r < RANKS; r++)
            for (int t = 0; t < 2; t++)
                arf_cuda_device.release(&at->gpu.cuda->base, r, side->out[i][r][t]);
    if (side->space != NULL)
        arf_cuda_space_destroy(&side->space->base);
}

static void tear_down(soak *at)
{
    for (int i = 0; i < GRAPHS; i++)
        gpu_drop(at->side[0].space, at->graph[i].graph);
    for (int w = 0; w < SIDES; w++)
        drop_side(at, &at->side[w]);
    if (at->stream != NULL)
        driver_of(at)->cuStreamDestroy(at->stream);
}

/* ---- the test -------------------------------------------------------------------------------- */

static void tell(const soak *at, double seconds, arfuse_status status, const arf_error *error)
{
    for (int w = 0; w < SIDES; w++) {
        const soak_side *side = &at->side[w];
        const arf_shape shape = shape_of(w);
        gpu_ok(side->bad == 0 && side->calls > 0,
               "workspace %s (H %d, K %d): %ld calls in %ld replays of both, %.1f s, bad = %llu",
               side->name, shape.hidden_size, shape.top_k, side->calls, at->replays, seconds,
               side->bad);
        gpu_note("  ll %ld, ht %ld, bt %ld, unfused %ld, separate %ld", side->of_protocol[ARF_LL],
                 side->of_protocol[ARF_HT], side->of_protocol[ARF_BT],
                 side->of_protocol[ARF_UNFUSED], side->of_protocol[ARF_SEPARATE]);
    }
    gpu_report(status, error, "no wait expires, nothing differs");
    gpu_note("seen: %ld replays, %ld calls compared, %.1f s, seed %llu", at->replays,
             at->side[0].calls + at->side[1].calls, seconds, (unsigned long long)at->seed);
}

/* The context is current. */
static void run_entered(soak *at, double seconds)
{
    arf_error error = ARF_ERROR_INIT;
    soak_memory first, last;
    double start = gpu_seconds();
    watch(at, HANG_SET_UP_SECONDS);
    arfuse_status status = set_up(at, &error);
    gpu_report(status, &error, "two workspaces of one team, and their graphs");
    gpu_note("set-up: %.1f s", gpu_seconds() - start);
    for (int w = 0; w < SIDES && status == ARFUSE_OK; w++) {
        status = plant(at, &at->side[w], &error);
        gpu_report(status, &error, "one changed element is found and named");
    }
    alarm(0);
    if (status != ARFUSE_OK)
        return;
    start = gpu_seconds();
    status = run(at, seconds, &first, &last, &error);
    tell(at, gpu_seconds() - start, status, &error);
    if (status != ARFUSE_OK)
        return;
    gpu_ok(last.device - first.device < MOST_GROWTH && last.host - first.host < MOST_GROWTH,
           "memory is flat: the GPU's grew by %lld KiB, the process's by %lld KiB",
           (long long)(last.device - first.device) / 1024,
           (long long)(last.host - first.host) / 1024);
}

static void run_all(double seconds, uint64_t seed)
{
    static soak at;
    arf_error error = ARF_ERROR_INIT;
    at.seed = seed;
    at.state = seed * 2 + 1;
    arfuse_status status = gpu_open(&at.gpu, RANKS, &error);
    if (status == ARFUSE_OK)
        status = arf_cuda_enter(at.gpu.cuda, &error);
    if (status == ARFUSE_OK) {
        run_entered(&at, seconds);
        tear_down(&at);
        arf_cuda_leave(at.gpu.cuda);
    } else
        gpu_report(status, &error, "eight ranks of one process open the GPU");
    gpu_close(&at.gpu);
}

static void compile_all(void)
{
    arf_compiler compiler;
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = arf_compiler_open(&compiler, 90, 13, arf_sources, NULL, &error);
    for (int i = 0; status == ARFUSE_OK && i < SIDES * GPU_FORMS; i++) {
        arf_pattern pattern;
        const arf_shape shape = shape_of(i % SIDES);
        const arf_plan plan = gpu_form(&shape, i / SIDES, &pattern);
        status = gpu_compile_plan(&compiler, &shape, RANKS, pattern, &plan, &error);
    }
    if (status == ARFUSE_OK)
        status = gpu_helpers_compile(90, 13, &error);
    gpu_report(status, &error, "every kernel of both workspaces compiles");
    arf_compiler_close(&compiler);
}

int main(int argc, char **argv)
{
    double seconds = 10;
    uint64_t seed = 1;
    bool compile = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--compile") == 0)
            compile = true;
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else
            return fprintf(stderr, "gpu_soak_test: unknown option %s\n", argv[i]), 2;
    }
    if (compile)
        compile_all();
    else if (!gpu_present())
        gpu_skip("no NVIDIA device here");
    else
        run_all(seconds, seed);
    return gpu_done();
}
