/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces of the host device, with a profile that routes through every protocol, and calls whose
 * every bit is compared with the reference. */
#ifndef TESTS_SUPPORT_RUNTIME_CASE_H
#define TESTS_SUPPORT_RUNTIME_CASE_H

#include "device/trial.h"
#include "runtime/workspace.h"

/* A profile of the host device: allreduce ll to 4, bt to 12, ht to 24, unfused to 30; finalize ll
 * to 3, separate to 14, bt to 20, ht to 28. The caller frees it. */
arf_profile *case_profile(const arf_shape *shape);
/* Saves it under a new folder of the system's temporary one; `path` gets the file. */
void case_save(const arf_profile *profile, char path[256]);
/* Writes any text to a new file. */
void case_write(const char *text, char path[256]);
void case_remove(const char *path); /* the file and its folder */

/* Options of the host device for a shape whose ranks are all local. */
arfuse_options case_options(const arf_shape *shape, int64_t capacity);

/* One call with poisoned outputs on operands of a trial, compared with the reference. */
arfuse_status case_run(arfuse_workspace *workspace, arf_trial *trial, arfuse_pattern pattern,
                       arfuse_call call, arf_error *error);
/* The call of a trial: its epsilon, bias and scale. */
arfuse_call case_call_of(const arf_trial *trial, int64_t tokens);

/* A log that keeps its lines. */
typedef struct case_log {
    int lines;
    char line[64][1200];
} case_log;
void case_log_line(void *context, arfuse_log_level level, const char *line);
int case_log_count(const case_log *log, const char *part);

#endif
