/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strict layer over cJSON, and the only file pair that includes it.
 *
 * cJSON alone accepts duplicate keys, trailing text, bad UTF-8, control
 * characters, an escaped NUL, a byte-order mark, numbers that overflow, and
 * looks keys up without regard to case. Here none of that passes: a document is
 * checked whole before any value is read, and every refusal names the JSON path,
 * the value, and what was expected.
 *
 * Reading style: open an object with the list of members it may have, then take
 * each member by a typed getter. A getter on a wrong type or range fails with
 * ARFUSE_PROFILE; callers add the file name with arf_error_prefix.
 */
#ifndef ARF_BASE_JSON_H
#define ARF_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct arf_json arf_json; /* a whole document, owned */

/* A value inside a document, with the path that led to it ("$.routes.allreduce[2].max_tokens"). */
typedef struct arf_json_value {
    const void *node; /* NULL: absent (an optional member) */
    int index;        /* place in its array or object; kept for arf_json_next */
    char path[192];
} arf_json_value;

/* design.md section 11, item 4: reader limits. */
#define ARF_JSON_MAX_BYTES ((size_t)4 << 20)
#define ARF_JSON_MAX_DEPTH 16

/*
 * Parses and checks a whole text: UTF-8 without byte-order mark, control characters, depth, number
 * grammar and range, duplicate keys at any depth, nothing but white space after the value. Errors
 * carry line and column. Does not depend on the host's locale.
 */
arfuse_status arf_json_parse(const char *text, size_t bytes, arf_json **json, arf_error *error);
void arf_json_free(arf_json *json);
arf_json_value arf_json_root(const arf_json *json);

/* Checks that a value is an object and has no member outside the NULL-terminated list `members`
 * (NULL: any member). */
arfuse_status arf_json_object(const arf_json_value *object, const char *const *members,
                              arf_error *error);
/* A member that must be there / that may be absent (then value->node is NULL). A null is a value
 * like any other: the typed getters refuse it, arf_json_is_null asks for it. */
arfuse_status arf_json_member(const arf_json_value *object, const char *name, arf_json_value *value,
                              arf_error *error);
arfuse_status arf_json_optional(const arf_json_value *object, const char *name,
                                arf_json_value *value, arf_error *error);
/* The i-th member of an object, for those whose names are data; `name` points into the document. */
bool arf_json_member_at(const arf_json_value *object, int index, const char **name,
                        arf_json_value *value);

arfuse_status arf_json_array(const arf_json_value *array, int *count, arf_error *error);
arf_json_value arf_json_element(const arf_json_value *array, int index);

/*
 * Walks members or elements in order, each step in constant time (the two functions above take a
 * list's length): start with *child zeroed, until false. `name`, of a member, may be NULL.
 */
bool arf_json_next(const arf_json_value *container, arf_json_value *child, const char **name);

bool arf_json_is_null(const arf_json_value *value);
bool arf_json_is_object(const arf_json_value *value);

/* An integer in [low, high]; 32.5, "32", true, 1e400 and anything beyond 2^53 are refused. */
arfuse_status arf_json_integer(const arf_json_value *value, int64_t low, int64_t high,
                               int64_t *number, arf_error *error);
arfuse_status arf_json_number(const arf_json_value *value, double low, double high, double *number,
                              arf_error *error);
arfuse_status arf_json_boolean(const arf_json_value *value, bool *truth, arf_error *error);
/* A string that fits in `size` with its NUL. */
arfuse_status arf_json_string(const arf_json_value *value, char *text, size_t size,
                              arf_error *error);

/* The value printed back as compact JSON text; the caller frees it. NULL when memory ran out. */
char *arf_json_print(const arf_json_value *value);

/*
 * Writing: text grows in a buffer; the caller lays out members and lines, the buffer escapes
 * strings and prints numbers so that they read back equal, in the C locale whatever the host's.
 */
typedef struct arf_text {
    char *data; /* NUL-terminated, owned */
    size_t bytes, room;
    bool failed; /* memory ran out: checked once, at the end */
} arf_text;

void arf_text_add(arf_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void arf_text_string(arf_text *text, const char *string); /* quoted and escaped */
/* A finite number with at most `decimals` digits after the point and no trailing zeros, or, with
 * `decimals` -1, with the fewest digits that read back equal. NaN and infinity are a programming
 * error that marks the text as failed. */
void arf_text_number(arf_text *text, double number, int decimals);
void arf_text_free(arf_text *text);

#endif
