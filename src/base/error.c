/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

arfuse_status arf_fail(arf_error *error, arfuse_status status, const char *format, ...)
{
    if (error == NULL)
        return status;
    if (error->status != ARFUSE_OK)
        return error->status;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return status;
}

void arf_error_prefix(arf_error *error, const char *format, ...)
{
    if (error == NULL || error->status == ARFUSE_OK)
        return;
    char joined[sizeof error->text];
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(joined, sizeof joined, format, arguments);
    va_end(arguments);
    if (used < 0 || (size_t)used >= sizeof joined)
        return;
    size_t room = sizeof joined - (size_t)used;
    if (snprintf(joined + used, room, ": %s", error->text) >= (int)room)
        memcpy(joined + sizeof joined - 4, "...", 4); /* cut, and says so */
    memcpy(error->text, joined, sizeof joined);
}

void arf_error_clear(arf_error *error)
{
    if (error == NULL)
        return;
    error->status = ARFUSE_OK;
    error->text[0] = '\0';
}
