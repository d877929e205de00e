/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

/* Room for an error message (arfuse_error) with a little context around it. */
#define LINE_MAX_BYTES 2048

void arf_logf(const arf_log *log, arfuse_log_level level, const char *format, ...)
{
    if (log == NULL || log->sink == NULL || level > log->level)
        return;
    char line[LINE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    log->sink(log->context, level, line);
}
