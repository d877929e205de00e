/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/library.h"

#include <stdio.h>
#include <string.h>

#include "device/cuda/cuda_device.h"

#define REDUCE_THREADS 256

#define TRY_NCCL(nccl, error, function, ...) \
    ARF_TRY(arf_nccl_check((nccl), (nccl)->function(__VA_ARGS__), "NCCL " #function, (error)))

static const arf_cuda *device_of(const arf_cuda_space *space)
{
    return (const arf_cuda *)space->base.device;
}

static int64_t shard_of(int64_t tokens, int ranks)
{
    return (tokens + ranks - 1) / ranks;
}

/* ---- creation -------------------------------------------------------------------------------- */

void arf_library_possible(const arf_cuda *device, char *why, size_t size)
{
    const arf_team *team = device->base.team;
    why[0] = '\0';
    if (device->key.ranks_per_gpu > 1)
        snprintf(why, size,
                 "%d ranks share a GPU, and NCCL takes one rank a GPU: with one GPU only a team of "
                 "one rank can use it",
                 device->key.ranks_per_gpu);
    else if (team->local_ranks > 1)
        snprintf(why, size, "a process hosts %d ranks, and NCCL is used with one a process",
                 team->local_ranks);
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
    status = arf_nccl_check(
        &library->nccl,
        library->nccl.comm_init(&library->comm, team->tp_size, all[0], team->first_rank),
        "ncclCommInitRank", error);
    return arf_team_vote(team, status, error);
}

static arfuse_status exchange(arf_cuda_space *space, const void *input, int64_t tokens,
                              CUstream stream, arf_error *error)
{
    const arf_library *library = &space->library;
    const arf_nccl *nccl = &library->nccl;
    const int ranks = space->base.spec.shape.tp_size, self = space->view.first_rank;
    const int64_t row = space->base.spec.shape.hidden_size, shard = shard_of(tokens, ranks);
    TRY_NCCL(nccl, error, group_start);
    int result = 0;
    for (int peer = 0; peer < ranks && result == 0; peer++) {
        int64_t theirs = tokens - peer * shard, ours = tokens - self * shard;
        theirs = theirs < 0 ? 0 : theirs > shard ? shard : theirs;
        ours = ours < 0 ? 0 : ours > shard ? shard : ours;
        if (theirs > 0)
            result = nccl->send((const char *)input + peer * shard * row * 2,
                                (size_t)(theirs * row), ARF_NCCL_BF16, peer, library->comm, stream);
        if (ours > 0 && result == 0)
            result =
                nccl->receive((char *)(uintptr_t)library->contributions + peer * shard * row * 2,
                              (size_t)(ours * row), ARF_NCCL_BF16, peer, library->comm, stream);
    }
    int ended = nccl->group_end();
    ARF_TRY(arf_nccl_check(nccl, result, "ncclSend or ncclRecv", error));
    return arf_nccl_check(nccl, ended, "ncclGroupEnd", error);
}

static arfuse_status gather(arf_cuda_space *space, int64_t tokens, CUstream stream,
                            arf_error *error)
{
    const arf_library *library = &space->library;
    const arf_shape *shape = &space->base.spec.shape;
    const size_t count = (size_t)shard_of(tokens, shape->tp_size) * (size_t)shape->hidden_size;
    char *rows = (char *)(uintptr_t)library->rows;
    TRY_NCCL(&library->nccl, error, all_gather, rows + (size_t)space->view.first_rank * count * 2,
             rows, count, ARF_NCCL_BF16, library->comm, stream);
    return ARFUSE_OK;
}

static arfuse_status sum(arf_cuda_space *space, const void *input, int64_t tokens, CUstream stream,
                         arf_error *error)
{
    const arf_library *library = &space->library;
    TRY_NCCL(&library->nccl, error, all_reduce, input, (void *)(uintptr_t)library->rows,
             (size_t)(tokens * space->base.spec.shape.hidden_size), ARF_NCCL_BF16, ARF_NCCL_SUM,
             library->comm, stream);
    return ARFUSE_OK;
}

/* NCCL connects peers at the first call of each kind, which may take long and fail. */
static arfuse_status warm_up(arf_cuda_space *space, arf_error *error)
{
    const void *input = (const void *)(uintptr_t)space->library.rows;
    const int64_t tokens = space->base.spec.capacity[ARF_UNFUSED];
    if (tokens == 0)
        return ARFUSE_OK;
    ARF_TRY(exchange(space, input, tokens, space->stream, error));
    ARF_TRY(gather(space, tokens, space->stream, error));
    ARF_TRY(sum(space, input, tokens, space->stream, error));
    return ARF_CU(&device_of(space)->driver, error, cuStreamSynchronize, space->stream);
}

arfuse_status arf_library_create(arf_cuda_space *space, arf_error *error)
{
    const arf_team *team = space->base.device->team;
    arf_library *library = &space->library;
    arf_error own = ARF_ERROR_INIT;
    arf_library_possible(device_of(space), library->why, sizeof library->why);
    arfuse_status status = library->why[0] != '\0'
                               ? arf_fail(&own, ARFUSE_NOT_SUPPORTED, "%s", library->why)
                               : arf_nccl_open(&library->nccl, &own);
    if (arf_team_vote(team, status, &own) != ARFUSE_OK) {
        snprintf(library->why, sizeof library->why, "%.250s", own.text);
        return ARFUSE_OK;
    }
    ARF_TRY(arf_team_vote(team, allocate(space, error), error));
    ARF_TRY(connect(space, error));
    char text[256];
    arf_nccl_text(&library->nccl, text, sizeof text);
    arf_logf(&space->base.device->log, ARFUSE_LOG_INFO, "unfused by %s", text);
    return arf_team_vote(team, warm_up(space, error), error);
}

void arf_library_destroy(arf_cuda_space *space)
{
    const arf_driver *driver = &device_of(space)->driver;
    arf_library *library = &space->library;
    if (library->comm != NULL)
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
    const arf_shape *shape = &space->base.spec.shape;
    if (space->library.comm == NULL)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "unfused by NCCL: %s",
                        space->library.why[0] != '\0' ? space->library.why
                                                      : "the space was made for fixed numerics");
    arf_plan kernels = *plan; /* the finalize kernel and the norm's threads are those of unfused */
    kernels.numerics = ARF_FIXED;
    arf_recipe own;
    ARF_TRY(arf_recipe_make(shape, 1, pattern, &kernels, &own, error));
    *recipe = (arf_recipe){.steps = 0};
    if (pattern == ARF_FINALIZE)
        recipe->step[recipe->steps++] = own.step[0];
    if (plan->numerics == ARF_FIXED) {
        arf_step *reduce = &recipe->step[recipe->steps++];
        arf_recipe_plain(shape, 1, "library_reduce", REDUCE_THREADS, reduce);
        reduce->rule = ARF_GRID_OWNED;
    }
    arf_step *norm = &recipe->step[recipe->steps++];
    *norm = own.step[own.steps - 1];
    norm->kernel = "library_norm";
    snprintf(norm->define[norm->defines++], ARF_DEFINE_TEXT, "-DARF_SUMMED=%d",
             plan->numerics != ARF_FIXED);
    for (int i = 0; i < recipe->steps; i++) {
        recipe->step[i].dependent = false; /* NCCL's kernels do not take part in it */
        recipe->step[i].from_scratch = false;
    }
    return ARFUSE_OK;
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

arfuse_status arf_library_enqueue(arf_cuda_space *space, const arf_ready_plan *plan, arf_call *call,
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
    const void *input = own->input;
    own->contribution = (void *)(uintptr_t)space->library.rows;
    if (plan->plan.numerics == ARF_FIXED) {
        ARF_TRY(exchange(space, input, call->tokens, stream, error));
        ++*enqueued;
        own->input = (const void *)(uintptr_t)space->library.contributions;
        ARF_TRY(launch(space, step++, call, table, stream, error));
        ARF_TRY(gather(space, call->tokens, stream, error));
    } else {
        ARF_TRY(sum(space, input, call->tokens, stream, error));
        ++*enqueued;
    }
    return launch(space, step, call, table, stream, error);
}
