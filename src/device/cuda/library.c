/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/library.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/library_recipe.h"

static const arf_cuda *device_of(const arf_cuda_space *space)
{
    return (const arf_cuda *)space->base.device;
}

static int64_t shard_of(int64_t tokens, int ranks)
{
    return (tokens + ranks - 1) / ranks;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Open, for this team. */
static arfuse_status open_library(const arf_cuda *device, arf_nccl *nccl, arf_error *error)
{
    const arf_team *team = device->base.team;
    *nccl = (arf_nccl){.library = NULL};
    if (device->key.ranks_per_gpu > 1) /* equal on all ranks */
        return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                        "%d ranks share a GPU, and NCCL takes one rank a GPU: with one GPU only a "
                        "team of one rank can use it",
                        device->key.ranks_per_gpu);
    return arf_team_vote(team, arf_nccl_open(nccl, error), error);
}

arfuse_status arf_library_look(arf_cuda *device, arf_error *error)
{
    arf_nccl nccl;
    arfuse_status status = open_library(device, &nccl, error);
    if (status == ARFUSE_OK)
        arf_nccl_text(&nccl, device->library, sizeof device->library);
    arf_nccl_close(&nccl);
    return status;
}

static arfuse_status allocate(arf_cuda_space *space, arf_error *error)
{
    const arf_driver *driver = &device_of(space)->driver;
    const arf_shape *shape = &space->base.spec.shape;
    int64_t shard = shard_of(space->base.spec.capacity[ARF_UNFUSED], shape->tp_size);
    size_t bytes = (size_t)shard * (size_t)shape->tp_size * (size_t)shape->hidden_size * 2;
    if (bytes == 0)
        return ARFUSE_OK;
    ARF_TRY(ARF_CU(driver, error, cuMemAlloc, &space->library.contributions, bytes));
    ARF_TRY(ARF_CU(driver, error, cuMemAlloc, &space->library.rows, bytes));
    ARF_TRY(ARF_CU(driver, error, cuMemsetD8, space->library.contributions, 0, bytes));
    return ARF_CU(driver, error, cuMemsetD8, space->library.rows, 0, bytes);
}

/* The communicator does not block: a rank that does not come shall not hold this one. */
static arfuse_status join(arf_cuda_space *space, arf_nccl_id id, arf_error *error)
{
    static const char call[] = "ncclCommInitRankConfig";
    const arf_team *team = space->base.device->team;
    const double limit = space->base.spec.wait_limit_seconds;
    const arf_nccl_config config = {sizeof config, ARF_NCCL_MAGIC, ARF_NCCL_CONFIG_VERSION, 0};
    arf_library *library = &space->library;
    const arf_nccl *nccl = &library->nccl;
    const double start = space->base.device->ops->now(space->base.device);
    int result = nccl->comm_init(&library->comm, team->tp_size, id, team->first_rank, &config);
    while (result == ARF_NCCL_IN_PROGRESS) {
        if (limit > 0 && space->base.device->ops->now(space->base.device) - start > limit)
            return arf_fail(error, ARFUSE_TIMEOUT,
                            "%s: not all ranks have come after %g s (NCCL does not tell which)",
                            call, limit);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        int state = 0;
        result = nccl->comm_error(library->comm, &state);
        if (result == 0)
            result = state;
    }
    return arf_nccl_check(nccl, result, call, error);
}

static arfuse_status connect(arf_cuda_space *space, arf_error *error)
{
    const arf_team *team = space->base.device->team;
    arf_library *library = &space->library;
    arf_nccl_id own = {{0}}, all[ARF_MAX_RANKS];
    arfuse_status status = ARFUSE_OK;
    if (team->bootstrap.rank == 0)
        status =
            arf_nccl_check(&library->nccl, library->nccl.get_id(&own), "ncclGetUniqueId", error);
    ARF_TRY(arf_team_vote(team, status, error));
    ARF_TRY(arf_team_allgather(team, &own, all, sizeof own, error));
    return arf_team_vote(team, join(space, all[0], error), error);
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* What came back "in progress" goes on in a thread of NCCL: after set-up that is rare. */
static arfuse_status settle(const arf_library *library, int result, const char *call,
                            arf_error *error)
{
    while (result == ARF_NCCL_IN_PROGRESS) {
        int state = 0;
        if (arf_library_ends(library->watch))
            return arf_fail(error, ARFUSE_TIMEOUT, "%s", arf_library_end_text(library->watch));
        result = library->nccl.comm_error(library->comm, &state);
        if (result == 0)
            result = state;
    }
    return arf_nccl_check(&library->nccl, result, call, error);
}

static bool goes_on(int result)
{
    return result == 0 || result == ARF_NCCL_IN_PROGRESS;
}

static arfuse_status exchange(arf_cuda_space *space, const void *input, int64_t tokens,
                              CUstream stream, arf_error *error)
{
    const arf_library *library = &space->library;
    const arf_nccl *nccl = &library->nccl;
    const int ranks = space->base.spec.shape.tp_size, self = space->view.first_rank;
    const int64_t row = space->base.spec.shape.hidden_size, shard = shard_of(tokens, ranks);
    ARF_TRY(arf_nccl_check(nccl, nccl->group_start(), "ncclGroupStart", error));
    int result = 0;
    for (int peer = 0; peer < ranks && goes_on(result); peer++) {
        int64_t theirs = tokens - peer * shard, ours = tokens - self * shard;
        theirs = theirs < 0 ? 0 : theirs > shard ? shard : theirs;
        ours = ours < 0 ? 0 : ours > shard ? shard : ours;
        if (theirs > 0)
            result = nccl->send((const char *)input + peer * shard * row * 2,
                                (size_t)(theirs * row), ARF_NCCL_BF16, peer, library->comm, stream);
        if (ours > 0 && goes_on(result))
            result =
                nccl->receive((char *)(uintptr_t)library->contributions + peer * shard * row * 2,
                              (size_t)(ours * row), ARF_NCCL_BF16, peer, library->comm, stream);
    }
    const int ended = nccl->group_end();
    if (!goes_on(result))
        return arf_nccl_check(nccl, result, "ncclSend or ncclRecv", error);
    return settle(library, ended, "ncclGroupEnd", error);
}

static arfuse_status gather(arf_cuda_space *space, int64_t tokens, CUstream stream,
                            arf_error *error)
{
    const arf_library *library = &space->library;
    const arf_shape *shape = &space->base.spec.shape;
    const size_t count = (size_t)shard_of(tokens, shape->tp_size) * (size_t)shape->hidden_size;
    char *rows = (char *)(uintptr_t)library->rows;
    const int result = library->nccl.all_gather(rows + (size_t)space->view.first_rank * count * 2,
                                                rows, count, ARF_NCCL_BF16, library->comm, stream);
    return settle(library, result, "ncclAllGather", error);
}

static arfuse_status sum(arf_cuda_space *space, const void *input, int64_t values, CUstream stream,
                         arf_error *error)
{
    const arf_library *library = &space->library;
    const int result =
        library->nccl.all_reduce(input, (void *)(uintptr_t)library->rows, (size_t)values,
                                 ARF_NCCL_BF16, ARF_NCCL_SUM, library->comm, stream);
    return settle(library, result, "ncclAllReduce", error);
}

/* For the watch: a call begins here, or ends. */
static arfuse_status mark(const arf_cuda_space *space, unsigned flags, CUstream stream,
                          arf_error *error)
{
    static const arf_operand_table nothing; /* it looks at none */
    arf_call call = {.tokens = 1, .flags = flags};
    CUresult result = arf_cuda_launch_step(space, &space->mark, &call, &nothing, true, stream);
    return arf_driver_check(&device_of(space)->driver, result, "cuLaunchKernelEx", error);
}

static arfuse_status meet(arf_cuda_space *space, CUstream stream, arf_error *error)
{
    const void *any = (const void *)(uintptr_t)space->library.rows;
    ARF_TRY(mark(space, 0, stream, error));
    ARF_TRY(sum(space, any, 1, stream, error));
    return mark(space, ARF_MARK_ENDED, stream, error);
}

arfuse_status arf_library_barrier(arf_cuda_space *space, CUstream stream, arf_error *error)
{
    ARF_TRY(arf_library_enter(space->library.watch, error));
    arfuse_status status = meet(space, stream, error);
    arf_library_leave(space->library.watch);
    return status;
}

/* ---- life ------------------------------------------------------------------------------------ */

static arfuse_status enqueue_each(arf_cuda_space *space, arf_error *error)
{
    const void *input = (const void *)(uintptr_t)space->library.rows;
    const int64_t tokens = space->base.spec.capacity[ARF_UNFUSED];
    ARF_TRY(exchange(space, input, tokens, space->stream, error));
    ARF_TRY(gather(space, tokens, space->stream, error));
    return sum(space, input, tokens * space->base.spec.shape.hidden_size, space->stream, error);
}

/* NCCL connects peers at the first call of each kind, which may take long and fail. No kernel marks
 * it: the watch is told by hand. */
static arfuse_status warm_up(arf_cuda_space *space, arf_error *error)
{
    arf_library_watch *watch = space->library.watch;
    if (space->base.spec.capacity[ARF_UNFUSED] == 0)
        return ARFUSE_OK;
    ARF_TRY(arf_library_enter(watch, error));
    space->mirror[ARF_MIRROR_BEGUN] = 1;
    arfuse_status status = enqueue_each(space, error);
    arf_library_leave(watch);
    if (status == ARFUSE_OK)
        status = ARF_CU(&device_of(space)->driver, error, cuStreamSynchronize, space->stream);
    space->mirror[ARF_MIRROR_BEGUN] = 0;
    const char *ended = arf_library_end_text(watch);
    return status == ARFUSE_OK && ended[0] != '\0' ? arf_fail(error, ARFUSE_TIMEOUT, "%s", ended)
                                                   : status;
}

static arfuse_status ready_mark(arf_cuda_space *space, arf_error *error)
{
    arf_step step;
    arf_recipe_mark(&space->base.spec.shape, &step);
    return arf_cuda_ready(space, &step, &space->mark, error);
}

arfuse_status arf_library_create(arf_cuda_space *space, arf_error *error)
{
    const arf_team *team = space->base.device->team;
    arf_library *library = &space->library;
    arf_error own = ARF_ERROR_INIT;
    if (open_library(device_of(space), &library->nccl, &own) != ARFUSE_OK) {
        snprintf(library->why, sizeof library->why, "%.250s", own.text);
        return ARFUSE_OK;
    }
    ARF_TRY(arf_team_vote(team, allocate(space, error), error));
    ARF_TRY(arf_team_vote(team, ready_mark(space, error), error));
    ARF_TRY(connect(space, error));
    ARF_TRY(arf_team_vote(team, arf_library_watch_start(space, &library->watch, error), error));
    char text[ARF_NOTE_TEXT];
    arf_nccl_text(&library->nccl, text, sizeof text);
    arf_logf(&space->base.device->log, ARFUSE_LOG_INFO, "unfused by %s", text);
    return arf_team_vote(team, warm_up(space, error), error);
}

void arf_library_destroy(arf_cuda_space *space)
{
    const arf_driver *driver = &device_of(space)->driver;
    arf_library *library = &space->library;
    const bool gone = arf_library_watch_stop(library->watch);
    if (library->comm != NULL && !gone)
        library->nccl.comm_abort(library->comm); /* destroy would wait for peers */
    if (library->contributions != 0)
        driver->cuMemFree(library->contributions);
    if (library->rows != 0)
        driver->cuMemFree(library->rows);
    arf_nccl_close(&library->nccl);
    *library = (arf_library){.comm = NULL};
}

/* ---- plans ----------------------------------------------------------------------------------- */

bool arf_library_serves(const arf_cuda_space *space, const arf_plan *plan)
{
    if (plan->protocol != ARF_UNFUSED || plan->transport != ARF_UNICAST)
        return false;
    return plan->numerics == ARF_LIBRARY ||
           (plan->numerics == ARF_FIXED && device_of(space)->way == ARF_WAY_NONE);
}

arfuse_status arf_library_recipe(const arf_cuda_space *space, arf_pattern pattern,
                                 const arf_plan *plan, arf_recipe *recipe, arf_error *error)
{
    if (space->library.comm == NULL)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "unfused by NCCL: %s",
                        space->library.why[0] != '\0' ? space->library.why
                                                      : "the space was made for fixed numerics");
    return arf_recipe_library(&space->base.spec.shape, pattern, plan, recipe, error);
}

static arfuse_status launch(arf_cuda_space *space, const arf_ready_step *step, arf_call *call,
                            arf_operand_table *table, CUstream stream, arf_error *error)
{
    const unsigned common = call->flags;
    call->flags |= step->recipe.flags;
    CUresult result = arf_cuda_launch_step(space, step, call, table, true, stream);
    call->flags = common;
    arfuse_status status =
        arf_driver_check(&device_of(space)->driver, result, "cuLaunchKernelEx", error);
    if (status != ARFUSE_OK)
        arf_error_prefix(error, "%s", step->recipe.kernel);
    return status;
}

static arfuse_status enqueue(arf_cuda_space *space, const arf_ready_plan *plan, arf_call *call,
                             arf_operand_table *table, int *enqueued, CUstream stream,
                             arf_error *error)
{
    const arf_ready_step *step = plan->step;
    arf_operand_view *own = &table->of[0];
    if (plan->pattern == ARF_FINALIZE) {
        ARF_TRY(launch(space, step++, call, table, stream, error));
        own->input = own->contribution;
        ++*enqueued;
    }
    ARF_TRY(mark(space, 0, stream, error)); /* the norm marks the end */
    const void *input = own->input;
    own->contribution = (void *)(uintptr_t)space->library.rows;
    if (plan->plan.numerics == ARF_FIXED) {
        ARF_TRY(exchange(space, input, call->tokens, stream, error));
        ++*enqueued;
        own->input = (const void *)(uintptr_t)space->library.contributions;
        ARF_TRY(launch(space, step++, call, table, stream, error));
        ARF_TRY(gather(space, call->tokens, stream, error));
    } else {
        ARF_TRY(
            sum(space, input, call->tokens * space->base.spec.shape.hidden_size, stream, error));
        ++*enqueued;
    }
    return launch(space, step, call, table, stream, error);
}

arfuse_status arf_library_enqueue(arf_cuda_space *space, const arf_ready_plan *plan, arf_call *call,
                                  arf_operand_table *table, int *enqueued, CUstream stream,
                                  arf_error *error)
{
    ARF_TRY(arf_library_enter(space->library.watch, error));
    arfuse_status status = enqueue(space, plan, call, table, enqueued, stream, error);
    if (status != ARFUSE_OK && *enqueued == 0)
        mark(space, ARF_MARK_ENDED, stream, NULL); /* as if there had been no call */
    arf_library_leave(space->library.watch);
    return status;
}
