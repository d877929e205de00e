/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/hash.h"
#include "device/host/space.h"
#include "rules/knobs.h"

static void host_close(arf_device *device)
{
    arf_host_instance *host = (arf_host_instance *)device;
    arf_host_workers_stop(host->workers);
    free(host);
}

static arfuse_status host_open(const arf_device_options *options, const arf_team *team,
                               arf_device **device, arf_error *error)
{
    arf_host_instance *host = calloc(1, sizeof *host);
    arfuse_status status = ARFUSE_OK;
    if (host == NULL) {
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for the host device");
    } else {
        host->base.ops = &arf_host_device;
        host->base.team = team;
        if (options->log)
            host->base.log = *options->log;
        status = arf_host_workers_start(team->local_ranks, &host->workers, error);
    }
    status = arf_team_vote(team, status, error);
    if (status == ARFUSE_OK)
        *device = &host->base;
    else if (host)
        host_close(&host->base);
    return status;
}

static void host_describe(const arf_device *device, arf_device_key *key)
{
    (void)device;
    *key = (arf_device_key){.name = "host", .link = ARF_LINK_SHM, .nodes = 1, .ranks_per_gpu = 1};
}

static void host_evidence(const arf_device *device, arf_device_evidence *evidence)
{
    (void)device;
    struct utsname system;
    if (uname(&system) == 0)
        snprintf(evidence->driver, ARF_NAME_TEXT, "%.20s %.24s %.12s", system.sysname,
                 system.release, system.machine);
    else
        snprintf(evidence->driver, ARF_NAME_TEXT, "unknown");
    /* The protocols are compiled in: this library and its tuning schemas are the sources. */
    uint64_t digest = arf_hash_text(ARF_HASH_INIT, ARF_VERSION);
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
        digest = arf_hash_number(digest, arf_protocol_version(ARF_SET_HOST, protocol));
    snprintf(evidence->source_digest, ARF_NAME_TEXT, "%016" PRIx64, digest);
}

static arfuse_status host_synchronize(arf_space *space, arfuse_stream stream, arf_error *error)
{
    (void)space, (void)stream, (void)error; /* a launch returns when its call has ended */
    return ARFUSE_OK;
}

/* ---- memory: the process's own ----------------------------------------------------------------
 */

static void *host_allocate(arf_device *device, int local_rank, size_t bytes)
{
    (void)device, (void)local_rank;
    const size_t line = sizeof(arf_line); /* also more than the 16 bytes that operands need */
    return aligned_alloc(line, (bytes + line) / line * line);
}

static void host_release(arf_device *device, int local_rank, void *memory)
{
    (void)device, (void)local_rank;
    free(memory);
}

static arfuse_status host_copy(arf_device *device, int local_rank, void *to, const void *from,
                               size_t bytes, arf_error *error)
{
    (void)device, (void)local_rank, (void)error;
    memcpy(to, from, bytes);
    return ARFUSE_OK;
}

static double host_now(const arf_device *device)
{
    (void)device;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const arf_device_ops arf_host_device = {
    .name = "host",
    .open = host_open,
    .close = host_close,
    .describe = host_describe,
    .evidence = host_evidence,
    .space_create = arf_host_space_create,
    .space_destroy = arf_host_space_destroy,
    .space_fits = arf_host_space_fits,
    .prepare = arf_host_prepare,
    .launch = arf_host_launch,
    .abandon = arf_host_abandon,
    .synchronize = host_synchronize,
    .time = arf_host_time,
    .state = arf_host_state,
    .allocate = host_allocate,
    .release = host_release,
    .upload = host_copy,
    .download = host_copy,
    .now = host_now,
};
