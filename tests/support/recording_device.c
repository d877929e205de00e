/* SPDX-License-Identifier: Apache-2.0 */
#include "support/recording_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rules/words.h"

recording recorded;

void recording_reset(void)
{
    memset(&recorded, 0, sizeof recorded);
    recorded.unsupported = ARF_PROTOCOLS;
}

const recorded_launch *recorded_last(int k)
{
    return &recorded.launch[(recorded.launches - 1 - k) % RECORDED_LAUNCHES];
}

static void record_close(arf_device *device)
{
    free(device);
}

const arf_device_key recorded_key = {.name = "recorder",
                                     .capability_major = 9,
                                     .sm_count = 132,
                                     .link = ARF_LINK_NVLINK,
                                     .nodes = 1,
                                     .ranks_per_gpu = 1};

static void record_describe(const arf_device *device, arf_device_key *key)
{
    (void)device;
    *key = recorded_key;
}

static void record_evidence(const arf_device *device, arf_device_evidence *evidence)
{
    (void)device;
    snprintf(evidence->driver, ARF_NAME_TEXT, "none");
    snprintf(evidence->source_digest, ARF_NAME_TEXT, "none");
}

static arfuse_status record_space_create(arf_device *device, const arf_space_spec *spec,
                                         arf_space **space, arf_error *error)
{
    *space = calloc(1, sizeof **space);
    if (*space == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory");
    **space = (arf_space){.device = device, .spec = *spec};
    return ARFUSE_OK;
}

static void record_space_destroy(arf_space *space)
{
    free(space);
}

static arfuse_status record_prepare(arf_space *space, arf_pattern pattern, const arf_plan *plan,
                                    int *id, arf_error *error)
{
    (void)space, (void)pattern;
    if (plan->protocol == recorded.unsupported || recorded.lacks >> plan->protocol & 1)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "the recorder was told to lack %s",
                        arf_protocol_name(plan->protocol));
    if (recorded.plans == RECORDED_PLANS)
        abort();
    recorded.plan[recorded.plans] = *plan;
    *id = recorded.plans++;
    return ARFUSE_OK;
}

static arfuse_status record_launch(arf_space *space, const arf_launch *launch, arf_error *error)
{
    (void)space;
    recorded_launch *entry = &recorded.launch[recorded.launches++ % RECORDED_LAUNCHES];
    entry->launch = *launch;
    recorded.launched_in_range = recorded.open_ranges == 1;
    entry->plan = recorded.plan[launch->plan];
    entry->operands = launch->operands[0];
    if (recorded.launches == recorded.fail_launch)
        return arf_fail(error, ARFUSE_FAILURE, "the recorder was told to fail");
    return ARFUSE_OK;
}

static void record_abandon(arf_space *space, const arf_launch *launch)
{
    (void)space, (void)launch;
    recorded.abandoned++;
}

static arfuse_status record_synchronize(arf_space *space, arfuse_stream stream, arf_error *error)
{
    (void)space, (void)stream, (void)error;
    recorded.waits++;
    return ARFUSE_OK;
}

static arfuse_status record_state(const arf_space *space, arfuse_culprit *culprit)
{
    (void)space, (void)culprit;
    return ARFUSE_OK;
}

static void *record_allocate(arf_device *device, int local_rank, size_t bytes)
{
    (void)device, (void)local_rank;
    recorded.allocations++;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void record_release(arf_device *device, int local_rank, void *memory)
{
    (void)device, (void)local_rank;
    recorded.releases++;
    free(memory);
}

static arfuse_status record_copy(arf_device *device, int local_rank, void *to, const void *from,
                                 size_t bytes, arf_error *error)
{
    (void)device, (void)local_rank, (void)error;
    recorded.waits++;
    memcpy(to, from, bytes);
    return ARFUSE_OK;
}

static double record_now(const arf_device *device)
{
    (void)device;
    return 0;
}

static bool record_capturing(const arf_space *space, arfuse_stream stream)
{
    (void)space, (void)stream;
    return recorded.capturing;
}

static bool record_profiled(const arf_device *device)
{
    (void)device;
    return recorded.profiled;
}

static void record_range_begin(const arf_device *device, const char *text)
{
    (void)device;
    recorded.ranges++;
    recorded.open_ranges++;
    snprintf(recorded.range, sizeof recorded.range, "%s", text);
}

static void record_range_end(const arf_device *device)
{
    (void)device;
    recorded.open_ranges--;
}

static int record_graphs(const arf_space *space)
{
    (void)space;
    return recorded.graphs;
}

static const arf_device_ops recording_device = {
    .name = "recorder",
    .open = recording_open,
    .close = record_close,
    .describe = record_describe,
    .evidence = record_evidence,
    .space_create = record_space_create,
    .space_destroy = record_space_destroy,
    .prepare = record_prepare,
    .launch = record_launch,
    .abandon = record_abandon,
    .synchronize = record_synchronize,
    .state = record_state,
    .allocate = record_allocate,
    .release = record_release,
    .upload = record_copy,
    .download = record_copy,
    .now = record_now,
    .capturing = record_capturing,
    .graphs = record_graphs,
    .profiled = record_profiled,
    .range_begin = record_range_begin,
    .range_end = record_range_end,
};

arfuse_status recording_open(const arf_device_options *options, const arf_team *team,
                             arf_device **device, arf_error *error)
{
    *device = calloc(1, sizeof **device);
    if (*device == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory");
    static arf_device_ops lacking;
    lacking = recording_device;
    lacking.lacks = recorded.lacks;
    **device = (arf_device){.ops = &lacking, .team = team};
    if (options->log != NULL)
        (*device)->log = *options->log;
    return ARFUSE_OK;
}
