/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One error: a status and the message of the first place that knew the cause.
 *
 * Every function that can fail returns an arfuse_status and takes an arf_error.
 * A message says what was wrong, where (file, JSON path, rank, token), what was
 * expected, and what to do. It has no program name and no trailing newline: the
 * program that prints it adds both.
 */
#ifndef ARF_BASE_ERROR_H
#define ARF_BASE_ERROR_H

#include "arfuse.h"

typedef arfuse_error arf_error;
#define ARF_ERROR_INIT ARFUSE_ERROR_INIT

/*
 * Writes status and message, and returns the error's status. A first error is kept: what fails
 * while cleaning up after it must not hide its cause. `error` may be NULL, then the status alone
 * is returned.
 */
arfuse_status arf_fail(arf_error *error, arfuse_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "PREFIX: " before the message, for a caller that knows where (a file, a rank). */
void arf_error_prefix(arf_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Forgets an error that was handled, so that the object can be used again. */
void arf_error_clear(arf_error *error);

/* Returns from the caller with a failing status. The message is already in the error object. */
#define ARF_TRY(expression)                                                                        \
    do {                                                                                           \
        arfuse_status arf_try_status_ = (expression);                                              \
        if (arf_try_status_ != ARFUSE_OK)                                                          \
            return arf_try_status_;                                                                \
    } while (0)

/* As ARF_TRY, for a function with something to release: sets `status` and goes to `label`. */
#define ARF_TRY_GOTO(status, expression, label)                                                    \
    do {                                                                                           \
        (status) = (expression);                                                                   \
        if ((status) != ARFUSE_OK)                                                                 \
            goto label;                                                                            \
    } while (0)

#endif
