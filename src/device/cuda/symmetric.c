/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/symmetric.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/reach.h"
#include "device/fd_exchange.h"

const char *arf_way_name(arf_way way)
{
    static const char *const names[] = {"none", "one process", "file descriptors",
                                        "fabric handles"};
    return names[way];
}

/* What is under way between two votes. */
typedef struct setting_up {
    const arf_driver *driver;
    CUdevice device;
    const arf_team *team;
    arf_symmetric *memory;
    int own[ARF_MAX_RANKS], all[ARF_MAX_RANKS]; /* descriptors; -1: none */
    arf_fabric_handle handle[ARF_MAX_RANKS];    /* of all ranks */
} setting_up;

static void close_all(int *descriptor, int count)
{
    for (int i = 0; i < count; i++) {
        if (descriptor[i] >= 0)
            close(descriptor[i]);
        descriptor[i] = -1;
    }
}

/* ---- steps, each local but exchange -----------------------------------------------------------
 */

static arfuse_status round_size(setting_up *at, arf_error *error)
{
    return arf_segment_round(at->driver, at->device, at->memory->way, at->memory->bytes,
                             &at->memory->mapped_bytes, error);
}

static arfuse_status allocate(setting_up *at, arf_error *error)
{
    for (int i = 0; i < at->team->local_ranks; i++) {
        int rank = at->team->first_rank + i;
        arfuse_status status =
            arf_segment_allocate(at->driver, at->device, at->memory->way, at->memory->mapped_bytes,
                                 &at->memory->segment[rank], error);
        if (status != ARFUSE_OK) {
            arf_error_prefix(error, "segment of rank %d, %llu bytes", rank,
                             (unsigned long long)at->memory->mapped_bytes);
            return status;
        }
    }
    return ARFUSE_OK;
}

static arfuse_status export_own(setting_up *at, arf_error *error)
{
    for (int i = 0; i < at->team->local_ranks; i++) {
        int rank = at->team->first_rank + i;
        const arf_segment *segment = &at->memory->segment[rank];
        if (at->memory->way == ARF_WAY_FABRIC)
            ARF_TRY(arf_segment_export_fabric(at->driver, segment, &at->handle[rank], error));
        else
            ARF_TRY(arf_segment_export_fd(at->driver, segment, &at->own[i], error));
    }
    return ARFUSE_OK;
}

/* Every process's handles to every process; processes may host unequal numbers of ranks. */
static arfuse_status gather_handles(setting_up *at, arf_error *error)
{
    const arf_team *team = at->team;
    const int size = team->bootstrap.size;
    int most = 0, hosted[ARF_MAX_RANKS] = {0};
    for (int r = 0; r < team->tp_size; r++)
        if (++hosted[team->process_of[r]] > most)
            most = hosted[team->process_of[r]];
    for (int turn = 0; turn < most; turn++) {
        arf_fabric_handle own = {{0}}, all[ARF_MAX_RANKS];
        if (turn < team->local_ranks)
            own = at->handle[team->first_rank + turn];
        ARF_TRY(arf_team_allgather(team, &own, all, sizeof own, error));
        for (int process = 0, rank = 0; process < size; rank += hosted[process++])
            if (turn < hosted[process])
                at->handle[rank + turn] = all[process];
    }
    return ARFUSE_OK;
}

static arfuse_status exchange(setting_up *at, arf_error *error)
{
    if (at->memory->way == ARF_WAY_FABRIC)
        return gather_handles(at, error);
    return arf_fd_exchange(at->team, at->own, at->all, ARF_EXCHANGE_SECONDS, error);
}

static arfuse_status map(setting_up *at, arf_error *error)
{
    arf_symmetric *memory = at->memory;
    for (int rank = 0; rank < at->team->tp_size; rank++) {
        arf_segment *segment = &memory->segment[rank];
        arfuse_status status = ARFUSE_OK;
        if (segment->held)
            ; /* one's own */
        else if (memory->way == ARF_WAY_FABRIC)
            status = arf_segment_import_fabric(at->driver, &at->handle[rank], memory->mapped_bytes,
                                               segment, error);
        else
            status = arf_segment_import_fd(at->driver, at->all[rank], memory->mapped_bytes, segment,
                                           error);
        if (status == ARFUSE_OK)
            status = arf_segment_map(at->driver, at->device, segment, error);
        if (status != ARFUSE_OK) {
            arf_error_prefix(error, "segment of rank %d", rank);
            return status;
        }
        memory->peer[rank] = segment->address;
    }
    return ARFUSE_OK;
}

/* ---- creation -------------------------------------------------------------------------------- */

static arfuse_status vote(setting_up *at, const char *step, arfuse_status status, arf_error *error)
{
    if (status != ARFUSE_OK)
        arf_error_prefix(error, "%s", step);
    return arf_team_vote(at->team, status, error);
}

static arfuse_status share(setting_up *at, arf_error *error)
{
    ARF_TRY(vote(at, "allocation granularity", round_size(at, error), error));
    /* Unequal granules would make unequal segments. */
    ARF_TRY(arf_team_agree(at->team, "size of a segment", at->memory->mapped_bytes, error));
    ARF_TRY(vote(at, "allocating shared memory", allocate(at, error), error));
    ARF_TRY(vote(at, "exporting shared memory", export_own(at, error), error));
    ARF_TRY(exchange(at, error)); /* equal on all ranks by itself */
    ARF_TRY(vote(at, "mapping shared memory", map(at, error), error));
    return arf_reach_check(at->driver, at->team, at->memory, error);
}

static arfuse_status allocate_local(setting_up *at, arf_error *error)
{
    for (int rank = 0; rank < at->team->tp_size; rank++) {
        CUdeviceptr *segment = &at->memory->peer[rank];
        arfuse_status status = ARF_CU(at->driver, error, cuMemAlloc, segment, at->memory->bytes);
        if (status != ARFUSE_OK) {
            *segment = 0;
            arf_error_prefix(error, "segment of rank %d, %llu bytes", rank,
                             (unsigned long long)at->memory->bytes);
            return status;
        }
    }
    at->memory->mapped_bytes = at->memory->bytes;
    return ARFUSE_OK;
}

/* Each rank has its own segment alone; other ranks' pointers lead to it as well, so that whoever
 * tells peers of a failure tells itself. */
static arfuse_status allocate_alone(setting_up *at, arf_error *error)
{
    CUdeviceptr *own = &at->memory->peer[at->team->first_rank];
    ARF_TRY(ARF_CU(at->driver, error, cuMemAlloc, own, at->memory->bytes));
    for (int rank = 0; rank < at->team->tp_size; rank++)
        at->memory->peer[rank] = *own;
    at->memory->mapped_bytes = at->memory->bytes;
    return ARFUSE_OK;
}

arfuse_status arf_symmetric_create(const arf_driver *driver, CUdevice device, const arf_team *team,
                                   arf_way way, uint64_t bytes, arf_symmetric *memory,
                                   arf_error *error)
{
    setting_up at = {.driver = driver, .device = device, .team = team, .memory = memory};
    memset(memory, 0, sizeof *memory);
    memset(at.own, -1, sizeof at.own);
    memset(at.all, -1, sizeof at.all);
    memory->way = way;
    memory->bytes = bytes;
    arfuse_status status;
    if (way == ARF_WAY_LOCAL)
        status = arf_team_vote(team, allocate_local(&at, error), error);
    else if (way == ARF_WAY_NONE)
        status = arf_team_vote(team, allocate_alone(&at, error), error);
    else
        status = share(&at, error);
    /* The mappings hold the memory; a running space needs no descriptor. */
    close_all(at.own, ARF_MAX_RANKS);
    close_all(at.all, ARF_MAX_RANKS);
    if (status != ARFUSE_OK)
        arf_symmetric_destroy(driver, team, memory);
    return status;
}

void arf_symmetric_destroy(const arf_driver *driver, const arf_team *team, arf_symmetric *memory)
{
    if (memory->way == ARF_WAY_NONE && memory->peer[team->first_rank] != 0)
        driver->cuMemFree(memory->peer[team->first_rank]);
    for (int rank = 0; rank < team->tp_size; rank++) {
        if (memory->way == ARF_WAY_LOCAL && memory->peer[rank] != 0)
            driver->cuMemFree(memory->peer[rank]);
        arf_segment_drop(driver, &memory->segment[rank]);
        memory->peer[rank] = 0;
    }
}

/* ---- the way that works ------------------------------------------------------------------------
 */

static arfuse_status try_way(const arf_driver *driver, CUdevice device, const arf_team *team,
                             arf_way way, arf_error *error)
{
    arf_symmetric *memory = malloc(sizeof *memory);
    arfuse_status status = arf_team_vote(
        team, memory != NULL ? ARFUSE_OK : arf_fail(error, ARFUSE_FAILURE, "out of memory"), error);
    if (status == ARFUSE_OK)
        status = arf_symmetric_create(driver, device, team, way, ARF_REACH_BYTES, memory, error);
    if (status == ARFUSE_OK) {
        /* Nobody unmaps while a peer still looks. */
        status = arf_team_barrier(team, error);
        arf_symmetric_destroy(driver, team, memory);
    }
    free(memory);
    return status;
}

arfuse_status arf_symmetric_choose(const arf_driver *driver, CUdevice device, const arf_team *team,
                                   bool one_node, const char *domain, arf_way *way,
                                   arf_error *error)
{
    arf_error fd = ARF_ERROR_INIT, fabric = ARF_ERROR_INIT;
    *way = ARF_WAY_LOCAL;
    if (team->bootstrap.size == 1)
        return ARFUSE_OK;
    *way = ARF_WAY_FD;
    if (one_node && try_way(driver, device, team, ARF_WAY_FD, &fd) == ARFUSE_OK)
        return ARFUSE_OK;
    if (!one_node)
        arf_fail(&fd, ARFUSE_HARDWARE, "the processes are on several nodes");
    *way = ARF_WAY_FABRIC;
    if (domain[0] == '\0' && try_way(driver, device, team, ARF_WAY_FABRIC, &fabric) == ARFUSE_OK)
        return ARFUSE_OK;
    if (domain[0] != '\0')
        arf_fail(&fabric, ARFUSE_HARDWARE, "%s", domain);
    *way = ARF_WAY_NONE;
    return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                    "the ranks cannot map each other's memory: by file descriptors: %.400s; by "
                    "fabric handles: %.400s",
                    fd.text, fabric.text);
}
