/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/probe.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tune/job.h"
#include "tune/schedule.h"
#include "tune/voice.h"

/* The shape of the trial allocations when the options name none. */
#define PROBE_HIDDEN 6144
#define PROBE_TOP_K 10

static void print_software(const arf_tuner *tuner)
{
    char mpi[256];
    arf_group_library(tuner->group, mpi, sizeof mpi);
    printf("version arfuse-tune %s\n", arfuse_version());
#ifdef ARF_CUDA
    printf("build with the CUDA device\n");
#else
    printf("build without the CUDA device\n");
#endif
    printf("mpi %s\n", mpi);
    printf("driver %s\n", tuner->driver);
    printf("sources %s\n", tuner->source_digest);
}

static void print_machine(const arf_tuner *tuner)
{
    int processes, cores;
    char text[256];
    arf_group_cores(tuner->group, &processes, &cores);
    printf("node %d of %d processes, %d cores%s\n", processes, tuner->group->size, cores,
           processes > cores ? ", oversubscribed: host times are unreliable" : "");
    printf("page %ld bytes\n", sysconf(_SC_PAGESIZE));
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) == 0)
        printf("/dev/shm %" PRIu64 " bytes free of %" PRIu64
               " (used by MPI; buffers of the host device are memfd and do not need it)\n",
               (uint64_t)shm.f_bavail * shm.f_frsize, (uint64_t)shm.f_blocks * shm.f_frsize);
    glob_t nodes;
    int count = 0;
    if (glob("/dev/nvidia[0-9]*", 0, NULL, &nodes) == 0) {
        count = (int)nodes.gl_pathc;
        globfree(&nodes);
    }
    printf("nvidia %d device node%s\n", count, count == 1 ? "" : "s");
    arf_tuner_device_text(&tuner->key, text, sizeof text);
    printf("device %s\n", text);
    arf_placement_text(&tuner->placement, text, sizeof text);
    printf("placement %s\n", text);
}

/* Makes and drops the buffers of one protocol at the size that a tune would ask for. */
static arfuse_status try_buffers(const arf_tuner *tuner, const arf_schedule *schedule,
                                 arf_protocol protocol, arf_error *error)
{
    arf_space_spec spec = {.shape = schedule->problem.shape,
                           .numerics = ARF_FIXED,
                           .wait_limit_seconds = tuner->options->wait_limit_seconds};
    spec.capacity[protocol] = schedule->capacity[protocol];
    double before, after;
    arf_space *space = NULL;
    arf_error own = ARF_ERROR_INIT;
    ARF_TRY(arf_tuner_seconds(tuner, &before, error));
    arfuse_status status = tuner->device->ops->space_create(tuner->device, &spec, &space, &own);
    ARF_TRY(arf_tuner_seconds(tuner, &after, error));
    if (status == ARFUSE_OK)
        tuner->device->ops->space_destroy(space);
    if (tuner->group->rank != 0)
        return ARFUSE_OK;
    printf("buffers %s for %" PRId64 " tokens, %" PRId64 " bytes a rank: ",
           arf_protocol_name(protocol), spec.capacity[protocol], schedule->bytes[protocol]);
    if (status == ARFUSE_OK)
        printf("ok in %.3f s\n", after - before);
    else
        printf("refused: %s\n", own.text);
    return ARFUSE_OK;
}

arfuse_status arf_probe(arf_tuner *tuner, arf_error *error)
{
    arf_tune_options options = *tuner->options;
    if (options.hidden_count == 0) {
        options.hidden_count = options.topk_count = 1;
        options.hidden[0] = PROBE_HIDDEN;
        options.topk[0] = PROBE_TOP_K;
    }
    const arf_shape shape = arf_shape_at(&options, tuner->team.tp_size, 0);
    const arf_problem problem = arf_device_problem(tuner->device, &shape);
    arf_tokens tokens = options.tokens;
    if (tokens.count == 0)
        arf_schedule_ladder(tuner->key.link, &tokens);
    arf_schedule *schedule = NULL;
    ARF_TRY(arf_schedule_make(&problem, &tokens, &options, &schedule, error));
    if (tuner->group->rank == 0) {
        print_software(tuner);
        print_machine(tuner);
        printf("shape hidden_size %d, top_k %d\n", shape.hidden_size, shape.top_k);
    }
    arfuse_status status = ARFUSE_OK;
    for (int p = 0; p < ARF_PROTOCOLS && status == ARFUSE_OK; p++)
        if (schedule->capacity[p] > 0 && schedule->bytes[p] > 0)
            status = try_buffers(tuner, schedule, (arf_protocol)p, error);
    arf_schedule_free(schedule);
    if (status == ARFUSE_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = arf_fail(error, ARFUSE_FAILURE, "stdout does not take the report");
    return status;
}
