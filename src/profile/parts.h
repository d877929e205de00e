/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces of JSON that profile and samples files share: kernels, shape,
 * device and plan. Reading checks types, names and ranges; check_* judge values,
 * whoever made them, so that a writer refuses what a reader would.
 */
#ifndef ARF_PROFILE_PARTS_H
#define ARF_PROFILE_PARTS_H

#include "base/json.h"
#include "profile/profile.h"

/* Ranges of the format that words.h does not already state. */
#define ARF_MAX_CAPABILITY 99 /* each part of "10.3" */
#define ARF_MAX_SM_COUNT 4096
#define ARF_MAX_MHZ 100000
#define ARF_MAX_US 1e9 /* of one call: more than a thousand seconds is a mistake */

/* ---- reading: `document` is the object that holds the member of that name ----------------------
 */

/* Judged too: what is read after it leans on the versions. */
arfuse_status arf_read_kernels(const arf_json_value *document, arf_set *set,
                               int version[ARF_PROTOCOLS], char variant[ARF_NAME_TEXT],
                               arf_error *error);
arfuse_status arf_read_shape(const arf_json_value *document, arf_shape *shape, arf_error *error);
arfuse_status arf_read_device(const arf_json_value *document, arf_device_key *device,
                              arf_error *error);
arfuse_status arf_read_policy(const arf_json_value *document, arf_policy *policy, bool *present,
                              arf_error *error);
/* Protocol (or "finalize": "separate"), transport, numerics and tuning of an object whose members
 * the caller has checked. A null tuning or knob is read; check_plan judges it. */
arfuse_status arf_read_plan(const arf_json_value *object, arf_set set,
                            const int version[ARF_PROTOCOLS], arf_pattern pattern, arf_plan *plan,
                            arf_error *error);
/* A string that may be absent: then "". */
arfuse_status arf_read_text(const arf_json_value *object, const char *name,
                            char text[ARF_NAME_TEXT], arf_error *error);
arfuse_status arf_read_note(const arf_json_value *object, const char *name,
                            char text[ARF_NOTE_TEXT], arf_error *error);
arfuse_status arf_read_numerics(const arf_json_value *value, arf_numerics *numerics,
                                arf_error *error);

/* "one, two or three": for messages that list what is allowed. */
void arf_choices(const char *(*name)(int index), int count, char *text, size_t size);

/* ---- judging: `path` is where the value stands or would stand ----------------------------------
 */

arfuse_status arf_check_kernels(arf_set set, const int version[ARF_PROTOCOLS], arf_error *error);
/* A protocol that is used: its tuning means here what it meant to whoever wrote it. What no route
 * or sample uses may have another version. */
arfuse_status arf_check_version(arf_set set, const int version[ARF_PROTOCOLS],
                                arf_protocol protocol, const char *path, arf_error *error);
arfuse_status arf_check_shape(const arf_shape *shape, bool published, arf_error *error);
arfuse_status arf_check_device(const arf_device_key *device, const arf_shape *shape, bool published,
                               arf_error *error);
arfuse_status arf_check_plan(const arf_problem *problem, const int version[ARF_PROTOCOLS],
                             arf_pattern pattern, const arf_plan *plan, bool published,
                             const char *path, arf_error *error);
/* A short text for people: valid UTF-8, no control characters. */
arfuse_status arf_check_text(const char *path, const char *text, arf_error *error);

/* ---- writing: `"name": { ... }` without a comma behind ------------------------------------------
 */

void arf_write_kernels(arf_text *text, arf_set set, const int version[ARF_PROTOCOLS],
                       const char *variant);
void arf_write_shape(arf_text *text, const arf_shape *shape);
void arf_write_device(arf_text *text, const arf_device_key *device);
/* The members of a plan, without braces. */
void arf_write_plan(arf_text *text, arf_set set, arf_pattern pattern, const arf_plan *plan);

#endif
