/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening the cuda device of a process: driver, seat on a GPU, context, compiler, links, the way
 * that memory travels. A vote after each step, so that no rank waits for one that has left.
 */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "device/cuda/cuda_device.h"

/* What opening knows between its steps. */
typedef struct opening {
    arf_cuda *device;
    const arf_device_options *options;
    const arf_team *team;
    arf_seat_claim claim[ARF_MAX_RANKS]; /* by process */
    arf_seat seat[ARF_MAX_RANKS];
} opening;

static arfuse_status attribute(const arf_cuda *device, CUdevice_attribute which, int *value,
                               arf_error *error)
{
    return ARF_CU(&device->driver, error, cuDeviceGetAttribute, value, which, device->device);
}

/* ---- seat ------------------------------------------------------------------------------------ */

/* What the caller must have: the GPU that it names, or that of its current context. */
static int fixed_ordinal(const arf_driver *driver, int named)
{
    CUcontext context = NULL;
    CUdevice current;
    if (named >= 0)
        return named;
    if (driver->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != NULL &&
        driver->cuCtxGetDevice(&current) == CUDA_SUCCESS)
        return (int)current; /* a CUdevice is its ordinal */
    return -1;
}

static arfuse_status claim(const opening *at, arf_seat_claim *own, arf_error *error)
{
    const arf_driver *driver = &at->device->driver;
    int count = 0;
    arf_node_here(&own->node);
    ARF_TRY(ARF_CU(driver, error, cuDeviceGetCount, &count));
    own->fixed = fixed_ordinal(driver, at->options->cuda_ordinal);
    if (own->fixed >= count || own->fixed >= ARF_MAX_GPUS)
        return arf_fail(error, ARFUSE_HARDWARE, "CUDA device %d: this process sees %d devices",
                        own->fixed, count);
    own->gpus = count < ARF_MAX_GPUS ? count : ARF_MAX_GPUS;
    for (int i = 0; i < own->gpus; i++) {
        CUdevice device;
        ARF_TRY(ARF_CU(driver, error, cuDeviceGet, &device, i));
        ARF_TRY(ARF_CU(driver, error, cuDeviceGetUuid, &own->gpu[i], device));
    }
    return ARFUSE_OK;
}

static arfuse_status open_driver(opening *at, arf_seat_claim *own, arf_error *error)
{
    ARF_TRY(arf_driver_open(&at->device->driver, error));
    arf_nvml_open(&at->device->nvml);
    return claim(at, own, error);
}

/* Before any context exists: a refused job leaves nothing on a GPU that others may use. */
static arfuse_status sit(opening *at, arf_error *error)
{
    arf_seat_claim own = {.fixed = -1};
    ARF_TRY(arf_team_vote(at->team, open_driver(at, &own, error), error));
    ARF_TRY(arf_team_allgather(at->team, &own, at->claim, sizeof own, error));
    arf_seats(at->team, at->claim, at->seat);
    /* gpu_sharing may differ by process where a library is used: hence the vote. */
    ARF_TRY(arf_team_vote(at->team,
                          arf_seats_judge(at->team, at->claim, at->seat, at->options->gpu_sharing,
                                          at->options->command, error),
                          error));
    char map[800];
    arf_seats_text(at->team, at->claim, at->seat, map, sizeof map);
    if (at->team->bootstrap.rank == 0)
        arf_logf(&at->device->base.log, ARFUSE_LOG_INFO, "GPUs: %s", map);
    return ARFUSE_OK;
}

/* ---- GPU ------------------------------------------------------------------------------------- */

static arfuse_status describe_gpu(arf_cuda *device, arf_error *error)
{
    arf_device_key *key = &device->key;
    char raw[256];
    int l2 = 0;
    ARF_TRY(ARF_CU(&device->driver, error, cuDeviceGetName, raw, sizeof raw, device->device));
    arf_device_name(raw, key->name);
    ARF_TRY(attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &key->capability_major,
                      error));
    ARF_TRY(attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &key->capability_minor,
                      error));
    ARF_TRY(attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &key->sm_count, error));
    ARF_TRY(attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2, error));
    device->l2_bytes = (uint64_t)l2;
    device->sm_count = key->sm_count;
    return ARFUSE_OK;
}

/* "CUDA 13.0, NVRTC 13.0, driver 580.159.04"; the last only where the system tells it. */
static void describe_driver(arf_cuda *device)
{
    char module[24] = "";
    arf_nvml_driver(&device->nvml, module, sizeof module);
    FILE *file = module[0] == '\0' ? fopen("/sys/module/nvidia/version", "re") : NULL;
    if (file != NULL) {
        if (fscanf(file, "%23s", module) != 1)
            module[0] = '\0';
        fclose(file);
    }
    snprintf(device->driver_text, sizeof device->driver_text, "CUDA %d.%d, NVRTC %d.%d%s%s",
             device->driver.version / 1000, device->driver.version % 1000 / 10,
             device->compiler.nvrtc.major, device->compiler.nvrtc.minor,
             module[0] != '\0' ? ", driver " : "", module);
}

static arfuse_status open_gpu(opening *at, arf_error *error)
{
    arf_cuda *device = at->device;
    const int self = at->team->bootstrap.rank;
    device->seat = at->seat[self];
    for (int p = 0; p < at->team->bootstrap.size; p++) {
        const bool here = arf_node_same(&at->claim[p].node, &at->claim[self].node);
        device->node_index += here && p < self;
        device->node_processes += here;
    }
    device->uuid = at->claim[self].gpu[device->seat.ordinal];
    ARF_TRY(ARF_CU(&device->driver, error, cuDeviceGet, &device->device, device->seat.ordinal));
    ARF_TRY(
        ARF_CU(&device->driver, error, cuDevicePrimaryCtxRetain, &device->context, device->device));
    ARF_TRY(describe_gpu(device, error));
    ARF_TRY(arf_compiler_open(
        &device->compiler, device->key.capability_major * 10 + device->key.capability_minor,
        device->driver.version / 1000, arf_sources, &device->base.log, error));
    describe_driver(device);
    return ARFUSE_OK;
}

/* ---- team ------------------------------------------------------------------------------------ */

static arfuse_status judge_sharing(opening *at, arf_error *error)
{
    arf_cuda *device = at->device;
    arf_share all[ARF_MAX_RANKS];
    const int known = arf_nvml_sm_count(&device->nvml, &device->uuid, device->key.capability_major);
    const arf_share own = arf_mps_look(&device->driver, device->device, device->sm_count, known);
    device->sm_count = device->key.sm_count = own.sm_seen;
    device->sm_all = own.sm_all;
    ARF_TRY(arf_team_allgather(at->team, &own, all, sizeof own, error));
    return arf_mps_judge(at->team, at->claim, at->seat, all, device->timing, error);
}

static arfuse_status judge_links(opening *at, arf_error *error)
{
    arf_cuda *device = at->device;
    arf_pair pair[ARF_MAX_RANKS];
    bool guessed;
    arf_links_look(&device->driver, &device->nvml, at->team, at->claim, at->seat, pair);
    ARF_TRY(
        arf_links_agree(at->team, at->claim, at->seat, pair, &device->key.link, &guessed, error));
    if (guessed && at->team->bootstrap.rank == 0)
        arf_logf(&device->base.log, ARFUSE_LOG_WARNING,
                 "nothing here tells how some GPUs reach each other (their UUIDs are hidden and "
                 "libnvidia-ml is not usable): the link is taken for pcie");
    return ARFUSE_OK;
}

/* "" or why the team is not within one NVLink domain. Equal on all ranks. */
static arfuse_status judge_domain(const opening *at, char *reason, size_t size, arf_error *error)
{
    struct {
        arf_fabric_domain domain;
        bool known;
    } own, all[ARF_MAX_RANKS];
    memset(&own, 0, sizeof own);
    own.known = arf_nvml_fabric(&at->device->nvml, &at->device->uuid, &own.domain);
    ARF_TRY(arf_team_allgather(at->team, &own, all, sizeof own, error));
    reason[0] = '\0';
    for (int p = 1; p < at->team->bootstrap.size; p++) {
        /* Where nobody can tell, the trial decides. */
        if (!all[0].known || !all[p].known)
            continue;
        if (memcmp(all[0].domain.cluster, all[p].domain.cluster, sizeof own.domain.cluster) != 0)
            snprintf(reason, size, "processes 0 and %d are in different NVLink domains", p);
        else if (all[0].domain.clique != all[p].domain.clique)
            snprintf(reason, size,
                     "processes 0 and %d are in cliques %u and %u of one NVLink domain", p,
                     all[0].domain.clique, all[p].domain.clique);
    }
    return ARFUSE_OK;
}

/* No way for memory: NCCL alone can reduce, if all ranks have it. `error` says why there is none.
 */
static arfuse_status go_unfused(opening *at, arf_error *error)
{
    arf_cuda *device = at->device;
    arf_error own = ARF_ERROR_INIT;
    snprintf(device->no_way, sizeof device->no_way, "%.790s", error->text);
    arf_error_clear(error);
    if (arf_library_look(device, &own) != ARFUSE_OK)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "%.700s; nor can NCCL reduce: %.250s",
                        device->no_way, own.text);
    if (at->team->bootstrap.rank == 0)
        arf_logf(&device->base.log, ARFUSE_LOG_WARNING, "all calls go unfused, by NCCL: %s",
                 device->no_way);
    return ARFUSE_OK;
}

static arfuse_status find_way(opening *at, arf_error *error)
{
    arf_cuda *device = at->device;
    char domain[200];
    ARF_TRY(judge_domain(at, domain, sizeof domain, error));
    bool one_node = arf_seat_nodes(at->claim, at->team->bootstrap.size) == 1;
    arfuse_status entered = arf_cuda_enter(device, error);
    arfuse_status status = arf_team_vote(at->team, entered, error);
    if (status == ARFUSE_OK)
        status = arf_symmetric_choose(&device->driver, device->device, at->team, one_node, domain,
                                      &device->way, error);
    if (entered == ARFUSE_OK)
        arf_cuda_leave(device);
    return status == ARFUSE_NOT_SUPPORTED && device->way == ARF_WAY_NONE ? go_unfused(at, error)
                                                                         : status;
}

/* Plans may ask for the library's own sums: whether it can serve this team shows before anyone
 * plans with it. */
static arfuse_status find_library(opening *at, arf_error *error)
{
    arf_cuda *device = at->device;
    if (at->options->numerics != ARF_LIBRARY || device->library[0] != '\0')
        return ARFUSE_OK;
    if (arf_library_look(device, error) != ARFUSE_OK) {
        snprintf(device->no_library, sizeof device->no_library, "%.250s", error->text);
        arf_error_clear(error);
    }
    return ARFUSE_OK;
}

static uint64_t key_digest(const arf_device_key *key)
{
    uint64_t hash = arf_hash_text(ARF_HASH_INIT, key->name);
    hash = arf_hash_number(hash, key->capability_major * 10 + key->capability_minor);
    hash = arf_hash_number(hash, key->sm_count);
    hash = arf_hash_number(hash, key->link);
    return arf_hash_number(hash, key->ranks_per_gpu);
}

static void describe_team(opening *at)
{
    arf_device_key *key = &at->device->key;
    key->nodes = arf_seat_nodes(at->claim, at->team->bootstrap.size);
    key->ranks_per_gpu = 1;
    for (int p = 0; p < at->team->bootstrap.size; p++)
        if (at->seat[p].ranks > key->ranks_per_gpu)
            key->ranks_per_gpu = at->seat[p].ranks;
}

arfuse_status arf_cuda_open_steps(arf_cuda *device, const arf_device_options *options,
                                  arf_error *error)
{
    const arf_team *team = device->base.team;
    opening at = {.device = device, .options = options, .team = team};
    ARF_TRY(sit(&at, error));
    ARF_TRY(arf_team_vote(team, open_gpu(&at, error), error));
    ARF_TRY(judge_sharing(&at, error));
    ARF_TRY(judge_links(&at, error));
    describe_team(&at);
    ARF_TRY(arf_team_agree(team, "GPU and link", key_digest(&device->key), error));
    ARF_TRY(arf_team_agree(team, "kernel sources", device->compiler.source_digest, error));
    ARF_TRY(find_way(&at, error));
    return find_library(&at, error);
}
