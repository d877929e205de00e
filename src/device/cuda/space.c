/* SPDX-License-Identifier: Apache-2.0 */
/* Spaces: segments, their first contents, the view that kernels get, the sticky status. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "device/cuda/cuda_device.h"

/* What only this process needs: scratch, time stamps, the mirror words, a stream. */
static arfuse_status allocate_own(arf_cuda_space *space, arf_error *error)
{
    const arf_cuda *device = (const arf_cuda *)space->base.device;
    const arf_driver *driver = &device->driver;
    int ranks = space->base.device->team->local_ranks;
    space->plan = calloc(ARF_MAX_READY_PLANS, sizeof *space->plan);
    if (space->plan == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the plan table");
    for (int r = 0; r < ranks && space->layout.scratch_bytes > 0; r++)
        ARF_TRY(ARF_CU(driver, error, cuMemAlloc, &space->scratch[r], space->layout.scratch_bytes));
    ARF_TRY(ARF_CU(driver, error, cuMemAlloc, &space->stamps,
                   ARF_STAMPS * (size_t)ranks * sizeof(arf_word)));
    void *mirror;
    CUdeviceptr address;
    ARF_TRY(ARF_CU(driver, error, cuMemHostAlloc, &mirror, ARF_MIRROR_WORDS * sizeof(arf_word),
                   CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    space->mirror = mirror;
    for (int i = 0; i < ARF_MIRROR_WORDS; i++)
        space->mirror[i] = 0;
    ARF_TRY(ARF_CU(driver, error, cuMemHostGetDevicePointer, &address, mirror, 0));
    space->view.mirror = (arf_word *)(uintptr_t)address;
    return ARF_CU(driver, error, cuStreamCreate, &space->stream, CU_STREAM_NON_BLOCKING);
}

static arfuse_status fill(const arf_driver *driver, CUdeviceptr segment, arf_range range,
                          arf_error *error)
{
    if (range.bytes == 0)
        return ARFUSE_OK;
    return ARF_CU(driver, error, cuMemsetD16, segment + range.offset, ARF_SENTINEL_BITS,
                  range.bytes / 2);
}

static arfuse_status zero(const arf_driver *driver, CUdeviceptr segment, arf_range range,
                          arf_error *error)
{
    if (range.bytes == 0)
        return ARFUSE_OK;
    return ARF_CU(driver, error, cuMemsetD8, segment + range.offset, 0, range.bytes);
}

/* Fills are asynchronous to the host: without the synchronise a late one could erase a peer's first
 * message, and without the barrier behind it a peer's message could come before the fill. */
static arfuse_status fill_segments(const arf_cuda_space *space, arf_error *error)
{
    const arf_driver *driver = &((const arf_cuda *)space->base.device)->driver;
    const arf_team *team = space->base.device->team;
    for (int r = team->first_rank; r < team->first_rank + team->local_ranks; r++) {
        CUdeviceptr segment = space->memory.peer[r];
        ARF_TRY(ARF_CU(driver, error, cuMemsetD8, segment, 0, ARF_CONTROL_BYTES));
        ARF_TRY(fill(driver, segment, space->layout.ll, error));
        ARF_TRY(fill(driver, segment, space->layout.bt_contribution, error));
        ARF_TRY(fill(driver, segment, space->layout.bt_row, error));
        ARF_TRY(zero(driver, segment, space->layout.ht_ready, error));
        ARF_TRY(zero(driver, segment, space->layout.ht_arrived, error));
    }
    return ARF_CU(driver, error, cuCtxSynchronize);
}

static void make_view(arf_cuda_space *space)
{
    const arf_team *team = space->base.device->team;
    arf_team_view *view = &space->view;
    view->first_rank = team->first_rank;
    view->wait_limit_ns = (arf_word)(space->base.spec.wait_limit_seconds * 1e9);
    arf_layout_view(&space->layout, &space->base.spec, view);
    for (int r = 0; r < team->tp_size; r++)
        view->peer[r] = (char *)(uintptr_t)space->memory.peer[r];
}

static arfuse_status watch_gpu(arf_cuda_space *space, arf_error *error)
{
    arf_step step;
    ARF_TRY(arf_busy_join(space, &space->busy, &space->busy_number, error));
    arf_recipe_plain(&space->base.spec.shape, 1, "order", 32, &step);
    return arf_cuda_ready(space, &step, &space->order, error);
}

/* What the host enqueues, and what then runs on the GPU. */
static arfuse_status watch_order(arf_cuda_space *space, arf_error *error)
{
    const arf_cuda *device = (const arf_cuda *)space->base.device;
    const uint64_t gpu = arf_hash(ARF_HASH_INIT, &device->uuid, sizeof device->uuid);
    ARF_TRY(arf_team_vote(device->base.team, watch_gpu(space, error), error));
    return arf_order_join(&space->seat, &space->base, gpu, arf_cuda_fail, error);
}

/* Every step is voted on, so that all ranks go on to the next or none does. */
static arfuse_status create_steps(arf_cuda_space *space, arf_error *error)
{
    const arf_cuda *device = (const arf_cuda *)space->base.device;
    const arf_team *team = space->base.device->team;
    arf_space_spec spec = space->base.spec;
    if (device->way == ARF_WAY_NONE) /* nobody could send into mailboxes */
        spec.capacity[ARF_LL] = spec.capacity[ARF_BT] = spec.capacity[ARF_HT] = 0;
    ARF_TRY(arf_team_vote(team, arf_layout_make(&spec, &space->layout, error), error));
    ARF_TRY(arf_symmetric_create(&device->driver, device->device, team, device->way,
                                 space->layout.segment_bytes, &space->memory, error));
    arf_logf(&device->base.log, ARFUSE_LOG_DEBUG, "segments of %llu bytes, mapped as %llu by %s",
             (unsigned long long)space->memory.bytes,
             (unsigned long long)space->memory.mapped_bytes, arf_way_name(space->memory.way));
    ARF_TRY(arf_team_vote(team, allocate_own(space, error), error));
    make_view(space);
    ARF_TRY(arf_team_vote(team, fill_segments(space, error), error));
    ARF_TRY(arf_team_barrier(team, error));
    if (device->way == ARF_WAY_NONE || spec.numerics != ARF_FIXED)
        ARF_TRY(arf_library_create(space, error));
    return spec.check_order ? watch_order(space, error) : ARFUSE_OK;
}

arfuse_status arf_cuda_space_create(arf_device *device, const arf_space_spec *spec,
                                    arf_space **created, arf_error *error)
{
    arf_cuda_space *space = calloc(1, sizeof *space);
    arfuse_status status = ARFUSE_OK;
    if (space == NULL)
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for a space");
    else {
        space->base = (arf_space){.device = device, .spec = *spec};
        space->holds = arf_graph_holds_new();
        status = space->holds == NULL ? arf_fail(error, ARFUSE_FAILURE, "out of memory for a space")
                                      : arf_cuda_enter((arf_cuda *)device, error);
    }
    bool entered = status == ARFUSE_OK;
    status = arf_team_vote(device->team, status, error);
    if (status == ARFUSE_OK)
        status = create_steps(space, error);
    if (entered)
        arf_cuda_leave((arf_cuda *)device);
    if (status == ARFUSE_OK)
        *created = &space->base;
    else if (space != NULL)
        arf_cuda_space_destroy(&space->base);
    return status;
}

void arf_cuda_space_destroy(arf_space *base)
{
    arf_cuda_space *space = (arf_cuda_space *)base;
    const arf_cuda *device = (const arf_cuda *)base->device;
    const arf_driver *driver = &device->driver;
    arf_order_leave(&space->seat);
    if (arf_cuda_enter(device, NULL) == ARFUSE_OK) {
        /* Kernels of the caller's streams may still read the mailboxes. */
        driver->cuCtxSynchronize();
        arf_timed_drop(&space->timed, driver);
        arf_library_destroy(space); /* its watch reads the mirror */
        for (int i = 0; i < space->kernels; i++)
            driver->cuModuleUnload(space->kernel[i].module);
        if (space->stream != NULL)
            driver->cuStreamDestroy(space->stream);
        if (space->mirror != NULL)
            driver->cuMemFreeHost((void *)(uintptr_t)space->mirror);
        if (space->stamps != 0)
            driver->cuMemFree(space->stamps);
        for (int r = 0; r < ARF_VIEW_LOCAL_RANKS; r++)
            if (space->scratch[r] != 0)
                driver->cuMemFree(space->scratch[r]);
        arf_busy_leave(space, space->busy);
        arf_symmetric_destroy(driver, base->device->team, &space->memory);
        arf_cuda_leave(device);
    }
    free(space->kernel);
    arf_graph_holds_release(space->holds);
    free(space->plan);
    free(space);
}

arfuse_status arf_cuda_state(const arf_space *base, arfuse_culprit *culprit)
{
    const arf_cuda_space *space = (const arf_cuda_space *)base;
    arf_word word = space->mirror[ARF_MIRROR_CULPRIT];
    if (word == 0)
        return arf_busy_state(space->busy, space->busy_number, NULL);
    if (culprit != NULL) {
        culprit->stage = ARF_CULPRIT_STAGE(word);
        culprit->rank = culprit->stage == ARF_STAGE_LIBRARY ? -1 : ARF_CULPRIT_RANK(word);
        culprit->token = ARF_CULPRIT_TOKEN(word);
        culprit->epoch = ARF_CULPRIT_EPOCH(word);
    }
    return ARFUSE_TIMEOUT;
}

arfuse_status arf_cuda_expired(const arf_cuda_space *space, arf_error *error)
{
    arfuse_culprit culprit;
    ARF_TRY(arf_order_state(&space->seat, error));
    ARF_TRY(arf_busy_state(space->busy, space->busy_number, error));
    if (arf_cuda_state(&space->base, &culprit) == ARFUSE_OK)
        return ARFUSE_OK;
    const char *remedy =
        space->base.spec.remedy != NULL ? space->base.spec.remedy : "this workspace has failed";
    if (culprit.stage == ARF_STAGE_LIBRARY)
        return arf_fail(error, ARFUSE_TIMEOUT, "%s; rows not finished are NaN; %s",
                        arf_library_end_text(space->library.watch), remedy);
    if (culprit.stage == ARF_STAGE_LAUNCH)
        return arf_fail(error, ARFUSE_TIMEOUT,
                        "rank %d gave a call up half way; rows not finished are NaN; %s",
                        culprit.rank, remedy);
    return arf_fail(error, ARFUSE_TIMEOUT,
                    "a wait for rank %d expired (stage %d, token %lld, call %llu of its mailbox); "
                    "rows not finished are NaN; %s",
                    culprit.rank, culprit.stage, (long long)culprit.token,
                    (unsigned long long)culprit.epoch, remedy);
}
