/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check of a whole JSON text before cJSON sees it. It refuses what cJSON
 * would let pass or lose (bad UTF-8, control characters, an escaped NUL, leading
 * zeros, numbers that overflow, a byte-order mark, unbounded depth, trailing
 * text), and names the place of every fault in one voice. Linear in the text.
 */
#ifndef ARF_BASE_SCAN_H
#define ARF_BASE_SCAN_H

#include <stddef.h>

#include "base/error.h"

/* cJSON copies a number into a buffer of this many characters and drops the rest. */
#define ARF_SCAN_NUMBER_CHARACTERS 63

/* Integers beyond are not exact in a double, so they would change when a file is rewritten. */
#define ARF_JSON_MAX_INTEGER ((INT64_C(1) << 53) - 1)

/* The deepest nesting that may be asked for. */
#define ARF_SCAN_MAX_DEPTH 64

/* Call it in the C locale: numbers are converted to see whether they overflow. */
arfuse_status arf_scan_json(const char *text, size_t bytes, int max_depth, arf_error *error);

/* "line 3, column 14: " and the message: where `offset` lies, counted in characters from 1. */
arfuse_status arf_scan_fail(const char *text, size_t offset, arf_error *error, const char *format,
                            ...) __attribute__((format(printf, 4, 5)));

/* Bytes of the UTF-8 character at text[0], of at most `bytes`; 0 when it is not valid: overlong,
 * a surrogate, beyond U+10FFFF or cut. */
size_t arf_utf8_length(const char *text, size_t bytes);

#endif
