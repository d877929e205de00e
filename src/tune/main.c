/* SPDX-License-Identifier: Apache-2.0 */
/* arfuse-tune: the order of the stages, and the exit code. */
#include <stdio.h>

#include "tune/group.h"
#include "tune/options.h"
#include "tune/stop.h"
#include "tune/voice.h"

int main(int argc, char **argv)
{
    int rank, size;
    arf_group_launcher(&rank, &size);
    static arf_tune_options options;
    arf_error error = ARF_ERROR_INIT;
    if (arf_options_parse(argc, argv, &options, &error) != ARFUSE_OK)
        arf_group_leave_early(error.status, error.text);
    if (options.task == ARF_TASK_HELP || options.task == ARF_TASK_VERSION) {
        if (rank == 0 && options.task == ARF_TASK_HELP)
            arf_options_help(stdout);
        else if (rank == 0)
            arf_options_version(stdout);
        return fflush(stdout) == 0 ? 0 : ARFUSE_FAILURE;
    }
    arf_group_leave_early(ARFUSE_FAILURE, "this build has no tuning yet");
}
