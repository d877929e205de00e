/* SPDX-License-Identifier: Apache-2.0 */
/* arfuse-tune: the order of the stages, and the exit code. */
#include <stdio.h>

#include "base/io.h"
#include "tune/compare.h"
#include "tune/job.h"
#include "tune/probe.h"
#include "tune/stop.h"
#include "tune/voice.h"

/* What needs no team. Rank 0 prints. */
static int answer_alone(const arf_tune_options *options, int rank)
{
    if (rank != 0)
        return 0;
    if (options->task == ARF_TASK_HELP)
        arf_options_help(stdout);
    else
        arf_options_version(stdout);
    if (fflush(stdout) != 0 || ferror(stdout))
        arf_group_leave_early(ARFUSE_FAILURE, "stdout does not take the text");
    return 0;
}

static arfuse_status run_task(const arf_tune_options *options, arf_group *group, int *code,
                              arf_error *error)
{
    arf_tuner tuner;
    if (options->task == ARF_TASK_DRY_RUN)
        return arf_dry_run(options, group, error);
    if (options->task == ARF_TASK_PROBE)
        arf_probe_machine(options, group);
    arfuse_status status = arf_tuner_open(&tuner, options, group, error);
    if (status == ARFUSE_OK) {
        if (options->task == ARF_TASK_PROBE)
            status = arf_probe(&tuner, error);
        else if (options->task == ARF_TASK_CHECK)
            status = arf_check(&tuner, code, error);
        else if (options->task == ARF_TASK_AB)
            status = arf_ab(&tuner, code, error);
        else
            status = arf_tune(&tuner, code, error);
        arf_tuner_close(&tuner);
    }
    if (options->task == ARF_TASK_PROBE)
        arf_probe_verdict(options, group, status == ARFUSE_OK ? NULL : error->text);
    return status;
}

static int work(const arf_tune_options *options, arf_group *group, arf_error *error)
{
    int code = 0;
    const arfuse_status status = run_task(options, group, &code, error);
    if (status == ARFUSE_OK)
        return code;
    arf_voice_error("%s", error->text);
    return arf_exit_code(status);
}

int main(int argc, char **argv)
{
    static arf_tune_options options;
    static arf_group group;
    arf_error error = ARF_ERROR_INIT;
    int rank, size;
    arf_group_launcher(&rank, &size);
    arf_voice_set(rank, ARF_NORMAL);
    if (arf_hold_standard(&error) != ARFUSE_OK)
        arf_group_leave_early(error.status, error.text);
    if (arf_options_parse(argc, argv, &options, &error) != ARFUSE_OK)
        arf_group_leave_early(error.status, error.text);
    if (options.task == ARF_TASK_HELP || options.task == ARF_TASK_VERSION)
        return answer_alone(&options, rank);
    arf_voice_set(rank, options.quiet ? ARF_QUIET : options.verbose ? ARF_VERBOSE : ARF_NORMAL);
    if (arf_group_start(&group, &error) != ARFUSE_OK)
        arf_group_abort(&group, arf_exit_code(error.status), error.text);
    /* Not before: until all ranks have one voice, an end from outside is told by the launcher. */
    arf_stop_install(&group);
    int code = work(&options, &group, &error);
    return arf_group_finish(&group, code, error.text);
}
