/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that do not run in step. Each rank has a stream and kernels compiled for one
 * local rank, as if it were a process of its own; all share one GPU, and between
 * calls each is held up at random. Graphs of many calls (pattern, protocol and M at
 * random) are replayed in random order. Outputs are compared on the GPU, by bits,
 * after about every second call; the others run back to back.
 *
 * A rank that is a process of its own has its GPU for itself. Here what waits for one
 * rank could fill the GPU that it needs, so calls and blocks are small: all kernels
 * of all ranks fit at once, with those that dependent launch starts early. The test
 * counts it (all_fit): HT as it is tuned, a block a multiprocessor, would not fit
 * beside the others. And all kernels divide a multiprocessor's first-level memory
 * alike, as those of processes that share a GPU do (divide_alike in prepare.c).
 *
 *     gpu_skew_test [--seconds N] [--calls N] [--seed N] [--only PLAN]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/helpers.h"

enum {
    HIDDEN = 4096,
    RANKS = 8,
    TOP_K = 8,
    MOST_TOKENS = 4,
    HT_PLAN = 11, /* from here on, but for the last */
    PLANS = 14,
    SEQUENCES = 16,
    CALLS = 64 /* of a sequence */
};
#define WAIT_LIMIT_SECONDS 2.0

/* A rank: a view of the shared space, and a stream. */
typedef struct skew_rank {
    arf_cuda_space space; /* a copy with a view, plans and scratch of its own; owns nothing */
    CUstream stream;
    CUgraphExec graph[SEQUENCES];
} skew_rank;

typedef struct skew_team {
    gpu_team gpu;
    arf_cuda_space *space; /* owns everything */
    arf_trial *trial;
    arf_ready_plan plan[PLANS + 1]; /* for one local rank; the last: LL behind separate */
    skew_rank rank[RANKS];
    gpu_helpers helpers;
    uint64_t state;
    int only; /* the plan that all calls use; -1: any */
} skew_team;

static const arf_driver *driver_of(const skew_team *skew)
{
    return &skew->gpu.cuda->driver;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* HT in blocks of which a multiprocessor holds three. */
static arf_plan small_ht(arf_pattern pattern)
{
    arf_plan plan = gpu_plan(ARF_HT, pattern);
    gpu_set(&plan, pattern, "consumer_threads", pattern == ARF_ALLREDUCE ? 128 : 64);
    gpu_set(&plan, pattern, "vectors_per_thread", pattern == ARF_ALLREDUCE ? 4 : 8);
    gpu_set(&plan, pattern, "stages", 2);
    gpu_set(&plan, pattern, "reduction_warps", pattern == ARF_ALLREDUCE ? 2 : 1);
    gpu_set(&plan, pattern, "shards", 4);
    gpu_set(&plan, pattern, "rms_token_groups", 1);
    gpu_set(&plan, pattern, "rms_pipeline_stages", 1);
    return plan;
}

static arf_plan plan_of(int index, arf_pattern *pattern)
{
    static const arf_protocol protocols[] = {ARF_LL, ARF_LL, ARF_BT, ARF_BT, ARF_BT, ARF_UNFUSED};
    *pattern = (arf_pattern)(index % ARF_PATTERNS);
    if (index == PLANS - 1) { /* in place of unfused finalize, which is its first part anyway */
        *pattern = ARF_FINALIZE;
        return gpu_plan(ARF_SEPARATE, ARF_FINALIZE);
    }
    if (index >= HT_PLAN && index < PLANS) {
        *pattern = (arf_pattern)((index - HT_PLAN) % ARF_PATTERNS);
        return small_ht(*pattern);
    }
    int form = index < PLANS ? index / ARF_PATTERNS : 0;
    if (index == PLANS)
        *pattern = ARF_ALLREDUCE;
    arf_plan plan = gpu_plan(protocols[form], *pattern);
    if (form == 1 || form == 4)
        gpu_set(&plan, *pattern, "kernels", 1);
    gpu_set(&plan, *pattern, "owner", form == 3);
    gpu_set(&plan, *pattern, "release_before_store", form == 3);
    gpu_set(&plan, *pattern, "collect_cluster", 4);
    gpu_set(&plan, *pattern, "rms_cluster", form == 4 ? 2 : 1);
    gpu_set(&plan, *pattern, "rms_threads", form == 4 ? 128 : 256); /* all_fit */
    return plan;
}

/*
 * A rank's grid is counted as if the GPU were its own. Here all ranks' grids must be on it at once,
 * and with each the one that dependent launch has started behind it.
 */
static void share_room(arf_ready_step *step)
{
    int64_t rows = step->most_rows / (2 * RANKS);
    gpu_note("%s: %d rows of blocks fit, a rank gets %d", step->recipe.kernel, (int)step->most_rows,
             rows > 0 ? (int)rows : 1);
    step->most_rows = rows > 0 ? rows : 1;
}

static arfuse_status prepare_plans(skew_team *skew, arf_error *error)
{
    const arf_shape *shape = &skew->space->base.spec.shape;
    for (int i = 0; i <= PLANS; i++) {
        arf_pattern pattern;
        arf_recipe recipe;
        arf_plan plan = plan_of(i, &pattern);
        ARF_TRY(arf_recipe_make(shape, 1, pattern, &plan, &recipe, error));
        skew->plan[i] = (arf_ready_plan){.pattern = pattern, .plan = plan, .steps = recipe.steps};
        for (int s = 0; s < recipe.steps; s++) {
            arf_ready_step *step = &skew->plan[i].step[s];
            ARF_TRY(arf_cuda_ready(skew->space, &recipe.step[s], step, error));
            ARF_TRY(ARF_CU(driver_of(skew), error, cuFuncSetAttribute, step->function,
                           CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                           CU_SHAREDMEM_CARVEOUT_MAX_SHARED));
            if (step->recipe.resident)
                share_room(step);
        }
    }
    return ARFUSE_OK;
}

/* ---- room ------------------------------------------------------------------------------------ */

enum { REGISTERS, THREADS, SHARED_BYTES, BLOCKS, ROOMS };

/* What a multiprocessor has. */
static arfuse_status room_of_gpu(const skew_team *skew, int room[ROOMS], arf_error *error)
{
    static const CUdevice_attribute of[ROOMS] = {
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR};
    for (int i = 0; i < ROOMS; i++)
        ARF_TRY(ARF_CU(driver_of(skew), error, cuDeviceGetAttribute, &room[i], of[i],
                       skew->gpu.cuda->device));
    return ARFUSE_OK;
}

/* What a block of a step takes of it. */
static arfuse_status room_of_block(const skew_team *skew, const arf_ready_step *step,
                                   int room[ROOMS], arf_error *error)
{
    enum { WARP_UNIT = 256 }; /* registers are given out by so many a warp (occupancy tables) */
    int registers, fixed, reserved;
    ARF_TRY(ARF_CU(driver_of(skew), error, cuFuncGetAttribute, &registers,
                   CU_FUNC_ATTRIBUTE_NUM_REGS, step->function));
    ARF_TRY(ARF_CU(driver_of(skew), error, cuFuncGetAttribute, &fixed,
                   CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, step->function));
    ARF_TRY(ARF_CU(driver_of(skew), error, cuDeviceGetAttribute, &reserved,
                   CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, skew->gpu.cuda->device));
    room[REGISTERS] =
        step->recipe.threads / 32 * ((registers * 32 + WARP_UNIT - 1) / WARP_UNIT * WARP_UNIT);
    room[THREADS] = step->recipe.threads;
    room[SHARED_BYTES] = fixed + (int)step->recipe.shared_bytes + reserved;
    room[BLOCKS] = 1;
    return ARFUSE_OK;
}

static int64_t most_blocks(const arf_ready_step *step, const arf_shape *shape)
{
    int64_t rows = arf_step_rows(&step->recipe, shape, MOST_TOKENS);
    return (rows < step->most_rows ? rows : step->most_rows) * step->recipe.parts;
}

/*
 * A rank has two grids at a time: one that waits, and the next, started early. Blocks spread over
 * all multiprocessors, so a block finds no room when too little is left on each, not when nothing
 * is left: there is room for it while all grids together take less than that. A cluster moreover
 * needs its blocks in one GPU processing cluster, which has 8 multiprocessors at least, since
 * clusters of 8 are portable. Delays and comparisons end by themselves.
 */
static arfuse_status all_fit(const skew_team *skew, arf_error *error)
{
    static const char *const name[ROOMS] = {"registers", "threads", "bytes of shared memory",
                                            "blocks"};
    const arf_shape *shape = &skew->space->base.spec.shape;
    const int64_t sms = skew->gpu.cuda->sm_count;
    int has[ROOMS], block[ROOMS];
    int64_t largest[ROOMS] = {0};
    ARF_TRY(room_of_gpu(skew, has, error));
    for (int check = 0; check <= 1; check++)
        for (int i = 0; i <= PLANS; i++)
            for (int s = 0; s < skew->plan[i].steps; s++) {
                const arf_ready_step *step = &skew->plan[i].step[s];
                const int64_t blocks = most_blocks(step, shape);
                ARF_TRY(room_of_block(skew, step, block, error));
                for (int r = 0; r < ROOMS; r++) {
                    const int64_t taken = 2 * RANKS * largest[r];
                    const int64_t room =
                        sms * (has[r] - block[r]) - sms / 8 * (step->recipe.cluster - 1) * block[r];
                    if (check && taken > room)
                        return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                                        "plan %d, %s: %lld %s of the grids of %d ranks may leave "
                                        "no room for a block; this GPU bears %lld",
                                        i, step->recipe.kernel, (long long)taken, name[r], RANKS,
                                        (long long)room);
                    if (!check && largest[r] < blocks * block[r])
                        largest[r] = blocks * block[r];
                }
            }
    return ARFUSE_OK;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static arfuse_status make_ranks(skew_team *skew, arf_error *error)
{
    for (int r = 0; r < RANKS; r++) {
        skew_rank *rank = &skew->rank[r];
        rank->space = *skew->space;
        rank->space.plan = skew->plan;
        rank->space.plans = PLANS + 1;
        rank->space.view.first_rank = r;
        rank->space.scratch[0] = skew->space->scratch[r];
        ARF_TRY(
            ARF_CU(driver_of(skew), error, cuStreamCreate, &rank->stream, CU_STREAM_NON_BLOCKING));
    }
    return ARFUSE_OK;
}

/* ---- sequences ------------------------------------------------------------------------------- */

/* What every rank does at one place of a sequence; the hold-up is each rank's own. */
typedef struct skew_call {
    int plan;
    int64_t tokens;
    bool compared;
} skew_call;

static arfuse_status record_call(skew_team *skew, int r, const skew_call *call, arf_error *error)
{
    skew_rank *rank = &skew->rank[r];
    arf_ready_plan *plan = &skew->plan[call->plan];
    const arfuse_operands *own = &arf_trial_operands(skew->trial)[r];
    if (gpu_pick(&skew->state, 4) == 0)
        ARF_TRY(gpu_hold_up(&skew->helpers, (unsigned long long)gpu_pick(&skew->state, 20000),
                            rank->stream, error));
    arf_launch launch = arf_trial_launch(skew->trial, plan->pattern, call->tokens);
    launch.operands = own;
    launch.plan = call->plan;
    launch.then = plan->plan.protocol == ARF_SEPARATE ? PLANS : -1;
    ARF_TRY(arf_cuda_enqueue(&rank->space, &launch, rank->stream, error));
    if (!call->compared)
        return ARFUSE_OK;
    const gpu_outputs outputs = {plan->pattern, call->tokens, own, 1, (unsigned)call->plan};
    return gpu_compare(&skew->helpers, &outputs, rank->stream, error);
}

static arfuse_status record_sequence(skew_team *skew, int which, arf_error *error)
{
    skew_call call[CALLS];
    for (int i = 0; i < CALLS; i++)
        call[i] = (skew_call){.plan = skew->only < 0 ? gpu_pick(&skew->state, PLANS) : skew->only,
                              .tokens = 1 + gpu_pick(&skew->state, MOST_TOKENS),
                              .compared = i == CALLS - 1 || gpu_pick(&skew->state, 2) == 0};
    for (int r = 0; r < RANKS; r++) {
        CUgraph graph = NULL;
        ARF_TRY(ARF_CU(driver_of(skew), error, cuStreamBeginCapture, skew->rank[r].stream,
                       CU_STREAM_CAPTURE_MODE_RELAXED));
        for (int i = 0; i < CALLS; i++)
            ARF_TRY(record_call(skew, r, &call[i], error));
        ARF_TRY(ARF_CU(driver_of(skew), error, cuStreamEndCapture, skew->rank[r].stream, &graph));
        ARF_TRY(ARF_CU(driver_of(skew), error, cuGraphInstantiateWithFlags,
                       &skew->rank[r].graph[which], graph, 0));
        driver_of(skew)->cuGraphDestroy(graph);
        /* A first launch uploads, and may wait for kernels that wait for this rank. */
        ARF_TRY(ARF_CU(driver_of(skew), error, cuGraphUpload, skew->rank[r].graph[which],
                       skew->rank[r].stream));
    }
    return ARFUSE_OK;
}

/* Hands all ranks the same sequences, in random order of ranks, and waits for them. */
static arfuse_status replay(skew_team *skew, int sequences, arf_error *error)
{
    for (int i = 0; i < sequences; i++) {
        int which = gpu_pick(&skew->state, SEQUENCES), first = gpu_pick(&skew->state, RANKS);
        for (int r = 0; r < RANKS; r++) {
            skew_rank *rank = &skew->rank[(first + r) % RANKS];
            ARF_TRY(
                ARF_CU(driver_of(skew), error, cuGraphLaunch, rank->graph[which], rank->stream));
        }
    }
    for (int r = 0; r < RANKS; r++)
        ARF_TRY(ARF_CU(driver_of(skew), error, cuStreamSynchronize, skew->rank[r].stream));
    return gpu_finish(skew->space, error);
}

/* ---- the test -------------------------------------------------------------------------------- */

static arfuse_status set_up(skew_team *skew, arf_error *error)
{
    ARF_TRY(gpu_helpers_make(skew->space, skew->trial, MOST_TOKENS, &skew->helpers, error));
    ARF_TRY(prepare_plans(skew, error));
    ARF_TRY(all_fit(skew, error));
    ARF_TRY(make_ranks(skew, error));
    /* The one-grid calls above moved the mailboxes' epochs alike on all ranks: ranks go on from
     * there. */
    for (int i = 0; i < SEQUENCES; i++)
        ARF_TRY(record_sequence(skew, i, error));
    return ARF_CU(driver_of(skew), error, cuCtxSynchronize);
}

static arfuse_status stress(skew_team *skew, double until, long most, long *calls, arf_error *error)
{
    enum { BATCH = 32 };
    gpu_difference first;
    do { /* at least once, however long the set-up took: none would be none wrong */
        ARF_TRY(replay(skew, BATCH, error));
        *calls += BATCH * CALLS;
        ARF_TRY(gpu_differences(&skew->helpers, &first, error));
    } while (gpu_seconds() < until && *calls < most);
    return ARFUSE_OK;
}

static void tear_down(skew_team *skew)
{
    const arf_driver *driver = driver_of(skew);
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < SEQUENCES; i++)
            if (skew->rank[r].graph[i] != NULL)
                driver->cuGraphExecDestroy(skew->rank[r].graph[i]);
        if (skew->rank[r].stream != NULL)
            driver->cuStreamDestroy(skew->rank[r].stream);
    }
    gpu_helpers_drop(&skew->helpers);
}

static arfuse_status test(double seconds, long most, uint64_t seed, int only, long *calls,
                          arf_error *error)
{
    static skew_team skew;
    arf_space *space = NULL;
    arf_shape shape = {RANKS, HIDDEN, TOP_K, ARF_ON, ARF_ON, ARF_ON};
    arf_space_spec spec = {.shape = shape, .wait_limit_seconds = WAIT_LIMIT_SECONDS};
    double start = gpu_seconds();
    skew.state = seed * 2 + 1;
    skew.only = only;
    spec.capacity[ARF_LL] = spec.capacity[ARF_BT] = spec.capacity[ARF_HT] = MOST_TOKENS;
    spec.capacity[ARF_UNFUSED] = spec.capacity[ARF_SEPARATE] = MOST_TOKENS;
    arfuse_status status = gpu_open(&skew.gpu, RANKS, error);
    if (status == ARFUSE_OK)
        status = arf_cuda_space_create(&skew.gpu.cuda->base, &spec, &space, error);
    skew.space = (arf_cuda_space *)space;
    if (status == ARFUSE_OK)
        status = arf_trial_create(&skew.gpu.cuda->base, &shape, MOST_TOKENS, ARF_TRIAL_ADVERSARIAL,
                                  seed, &skew.trial, error);
    if (status == ARFUSE_OK)
        status = arf_cuda_enter(skew.gpu.cuda, error);
    if (status == ARFUSE_OK) {
        status = set_up(&skew, error);
        if (status == ARFUSE_OK)
            status = stress(&skew, start + seconds, most, calls, error);
        tear_down(&skew);
        arf_cuda_leave(skew.gpu.cuda);
    }
    arf_trial_destroy(skew.trial);
    if (space != NULL)
        arf_cuda_space_destroy(space);
    gpu_close(&skew.gpu);
    return status;
}

int main(int argc, char **argv)
{
    double seconds = 30;
    long most = 1000000, calls = 0;
    uint64_t seed = 1;
    int only = -1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--calls") == 0)
            most = strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--only") == 0)
            only = atoi(argv[i + 1]) % PLANS;
        else
            return fprintf(stderr, "gpu_skew_test: unknown option %s\n", argv[i]), 2;
    }
    if (!gpu_present()) {
        gpu_skip("no NVIDIA device here");
        return gpu_done();
    }
    /* A stream that shares a hardware queue would stand behind another rank's waiting kernel. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = test(seconds, most, seed, only, &calls, &error);
    gpu_ok(status == ARFUSE_OK, "%d ranks out of step: %ld calls, seed %llu", RANKS, calls,
           (unsigned long long)seed);
    if (status != ARFUSE_OK)
        gpu_note("  %s", error.text);
    return gpu_done();
}
