/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "device/probe.h"
#include "tune/job.h"
#include "tune/schedule.h"
#include "tune/voice.h"

/* The shape of the trial allocations when the options name none. */
#define PROBE_HIDDEN 6144
#define PROBE_TOP_K 10

/* ---- printing -------------------------------------------------------------------------------- */

static void print(const arf_tune_options *options, const arf_finding *finding)
{
    if (options->format != ARF_FORMAT_JSONL) {
        printf("%s%s%s %s\n", finding->topic, finding->item[0] != '\0' ? " " : "", finding->item,
               finding->value);
        return;
    }
    arf_text text = {0};
    arf_text_add(&text, "{\"topic\": ");
    arf_text_string(&text, finding->topic);
    arf_text_add(&text, ", \"item\": ");
    arf_text_string(&text, finding->item);
    arf_text_add(&text, ", \"value\": ");
    arf_text_string(&text, finding->value);
    arf_text_add(&text, "}");
    if (!text.failed)
        puts(text.data);
    arf_text_free(&text);
}

static void print_all(const arf_tune_options *options, const arf_findings *findings)
{
    for (int i = 0; i < findings->count; i++)
        print(options, &findings->finding[i]);
}

/* ---- before any device ------------------------------------------------------------------------
 */

static void find_software(const arf_group *group, arf_findings *findings)
{
    char mpi[256];
    int processes, cores;
    arf_group_library(group, mpi, sizeof mpi);
    arf_find(findings, "version", "", "arfuse-tune %s", arfuse_version());
#ifdef ARF_CUDA
    arf_find(findings, "build", "", "with the CUDA device");
#else
    arf_find(findings, "build", "", "without the CUDA device");
#endif
    arf_find(findings, "mpi", "", "%s", mpi);
    arf_group_cores(group, &processes, &cores);
    arf_find(findings, "node", "", "%d of %d process%s, %d core%s%s", processes, group->size,
             group->size == 1 ? "" : "es", cores, ARF_PLURAL(cores),
             processes > cores ? ", oversubscribed: host times are unreliable" : "");
}

void arf_probe_machine(const arf_tune_options *options, const arf_group *group)
{
    static arf_findings findings;
    if (group->rank != 0)
        return;
    findings.count = 0;
    find_software(group, &findings);
    arf_probe_system(&findings);
#ifdef ARF_CUDA
    if (strcmp(options->device, "cuda") == 0 || strcmp(options->device, "auto") == 0)
        arf_probe_cuda(&findings);
#endif
    print_all(options, &findings);
    fflush(stdout); /* whatever the device does then */
}

void arf_probe_verdict(const arf_tune_options *options, const arf_group *group, const char *stop)
{
    arf_findings one = {.count = 0};
    arf_find(&one, "verdict", "", "%s", stop != NULL ? stop : "nothing here stops a tune");
    if (group->rank == 0)
        print_all(options, &one);
    fflush(stdout);
}

/* ---- with the device ---------------------------------------------------------------------------
 */

static void find_team(const arf_tuner *tuner, const arf_shape *shape, arf_findings *findings)
{
    char text[256];
    arf_tuner_device_text(&tuner->key, text, sizeof text);
    arf_find(findings, "device", "", "%s", text);
    arf_find(findings, "driver", "", "%s", tuner->evidence.driver);
    arf_find(findings, "sources", "", "%s", tuner->evidence.source_digest);
    arf_placement_text(&tuner->placement, text, sizeof text);
    arf_find(findings, "placement", "", "%s", text);
    arf_find(findings, "shape", "", "hidden_size %d, top_k %d", shape->hidden_size, shape->top_k);
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
    const arf_device_ops *ops = tuner->device->ops;
    char verdict[200], taken[64] = "";
    if (status == ARFUSE_OK && ops->space_bytes != NULL)
        snprintf(taken, sizeof taken, " (%" PRId64 " taken: whole granules, control block)",
                 ops->space_bytes(space));
    if (status == ARFUSE_OK)
        ops->space_destroy(space);
    if (tuner->group->rank != 0)
        return ARFUSE_OK;
    if (status == ARFUSE_OK)
        snprintf(verdict, sizeof verdict, "ok in %.3f s", after - before);
    else
        snprintf(verdict, sizeof verdict, "refused: %.180s", own.text);
    arf_findings one = {.count = 0};
    arf_find(&one, "buffers", arf_protocol_name(protocol),
             "for %" PRId64 " tokens, %" PRId64 " bytes a rank%s: %s", spec.capacity[protocol],
             schedule->bytes[protocol], taken, verdict);
    print_all(tuner->options, &one);
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
        arf_findings findings = {.count = 0};
        find_team(tuner, &shape, &findings);
        print_all(tuner->options, &findings);
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
