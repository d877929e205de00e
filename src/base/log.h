/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leveled log lines to a callback. There is no global sink: whoever makes a
 * long-lived object (workspace, tuner) gives it a log, and passes it down.
 */
#ifndef ARF_BASE_LOG_H
#define ARF_BASE_LOG_H

#include "arfuse.h"

typedef struct arf_log {
    arfuse_log_fn sink; /* NULL: nothing is logged */
    void *context;
    arfuse_log_level level; /* lines above this level are dropped */
} arf_log;

/* Formats one line (no newline) and hands it to the sink. Never used on a launch path. */
void arf_logf(const arf_log *log, arfuse_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
