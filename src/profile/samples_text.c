/* SPDX-License-Identifier: Apache-2.0 */
/* Samples to lines and back: one JSON document a line, the first the header. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/scan.h"
#include "profile/parts.h"
#include "profile/samples.h"

#define FORMAT_VERSION 1
#define MAX_CALLS 1000000

static const char *const outcome_names[] = {"timed", "wrong", "failed"};

/* ---- writing
 * -------------------------------------------------------------------------------------- */

static arfuse_status finish(arf_text *text, char **line, arf_error *error)
{
    if (text->failed) {
        arf_text_free(text);
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for a line of samples");
    }
    *line = text->data;
    return ARFUSE_OK;
}

static void write_text(arf_text *text, const char *name, const char *value)
{
    if (value[0] == '\0')
        return;
    arf_text_add(text, ", \"%s\": ", name);
    arf_text_string(text, value);
}

arfuse_status arf_samples_header_line(const arf_samples_header *header, char **line,
                                      arf_error *error)
{
    arf_text text = {0};
    if (header->seed > (uint64_t)ARF_JSON_MAX_INTEGER)
        return arf_fail(error, ARFUSE_USAGE,
                        "seed %llu, expected at most 2^53 - 1 (more is not exact in a file)",
                        (unsigned long long)header->seed);
    ARF_TRY(arf_check_kernels(header->set, header->version, error));
    ARF_TRY(arf_check_shape(&header->shape, false, error));
    ARF_TRY(arf_check_device(&header->device, &header->shape, false, error));
    arf_text_add(&text, "{ \"format\": \"arfuse-samples\", \"version\": %d, ", FORMAT_VERSION);
    arf_write_kernels(&text, header->set, header->version, "");
    arf_text_add(&text, ", ");
    arf_write_shape(&text, &header->shape);
    arf_text_add(&text, ", ");
    arf_write_device(&text, &header->device);
    arf_text_add(&text, ", \"policy\": \"%s\", \"seed\": %llu", arf_policy_name(header->policy),
                 (unsigned long long)header->seed);
    write_text(&text, "tool", header->tool);
    write_text(&text, "driver", header->driver);
    write_text(&text, "source_digest", header->source_digest);
    write_text(&text, "library", header->library);
    arf_text_add(&text, " }");
    return finish(&text, line, error);
}

arfuse_status arf_sample_line(const arf_samples_header *header, const arf_sample *sample,
                              char **line, arf_error *error)
{
    arf_text text = {0};
    arf_text_add(&text, "{ \"pattern\": \"%s\", \"tokens\": %lld, ",
                 arf_pattern_name(sample->pattern), (long long)sample->tokens);
    arf_write_plan(&text, header->set, sample->pattern, &sample->plan);
    if (sample->has_then) {
        arf_text_add(&text, ", \"then\": { ");
        arf_write_plan(&text, header->set, ARF_ALLREDUCE, &sample->then);
        arf_text_add(&text, " }");
    }
    if (sample->outcome != ARF_SAMPLE_TIMED) {
        arf_text_add(&text, ", \"outcome\": \"%s\"", outcome_names[sample->outcome]);
        write_text(&text, "reason", sample->reason);
    }
    arf_text_add(&text, ", \"calls\": %d", sample->calls);
    if (sample->clock_mhz > 0)
        arf_text_add(&text, ", \"clock_mhz\": %d", sample->clock_mhz);
    write_text(&text, "throttle", sample->throttle);
    arf_text_add(&text, ", \"us\": [");
    for (int i = 0; i < sample->rounds; i++) {
        arf_text_add(&text, i > 0 ? ", " : "");
        arf_text_number(&text, sample->us[i], 4); /* as arf_sample_round */
    }
    arf_text_add(&text, "] }");
    return finish(&text, line, error);
}

/* ---- reading
 * -------------------------------------------------------------------------------------- */

static arfuse_status read_header(const arf_json_value *root, arf_samples_header *header,
                                 arf_error *error)
{
    static const char *const members[] = {"format", "version",       "kernels", "shape",
                                          "device", "policy",        "seed",    "tool",
                                          "driver", "source_digest", "library", NULL};
    arf_json_value value;
    char format[ARF_NAME_TEXT], variant[ARF_NAME_TEXT];
    int64_t number = 0;
    bool present = false;
    ARF_TRY(arf_json_object(root, NULL, error));
    ARF_TRY(arf_json_member(root, "format", &value, error));
    ARF_TRY(arf_json_string(&value, format, sizeof format, error));
    if (strcmp(format, "arfuse-samples") != 0)
        return arf_fail(error, ARFUSE_PROFILE, "%s: \"%s\", expected arfuse-samples", value.path,
                        format);
    ARF_TRY(arf_json_member(root, "version", &value, error));
    ARF_TRY(arf_json_integer(&value, 1, FORMAT_VERSION, &number, error));
    ARF_TRY(arf_json_object(root, members, error));
    ARF_TRY(arf_read_kernels(root, &header->set, header->version, variant, error));
    if (variant[0] != '\0')
        return arf_fail(error, ARFUSE_PROFILE, "$.kernels.variant: \"%s\", expected none", variant);
    ARF_TRY(arf_read_shape(root, &header->shape, error));
    ARF_TRY(arf_read_device(root, &header->device, error));
    ARF_TRY(arf_read_policy(root, &header->policy, &present, error));
    if (!present)
        return arf_fail(error, ARFUSE_PROFILE, "$: no member \"policy\", expected one");
    ARF_TRY(arf_json_member(root, "seed", &value, error));
    ARF_TRY(arf_json_integer(&value, 0, ARF_JSON_MAX_INTEGER, &number, error));
    header->seed = (uint64_t)number;
    ARF_TRY(arf_read_text(root, "tool", header->tool, error));
    ARF_TRY(arf_read_text(root, "driver", header->driver, error));
    ARF_TRY(arf_read_text(root, "source_digest", header->source_digest, error));
    ARF_TRY(arf_read_note(root, "library", header->library, error));
    ARF_TRY(arf_check_shape(&header->shape, false, error));
    return arf_check_device(&header->device, &header->shape, false, error);
}

static arfuse_status read_outcome(const arf_json_value *root, arf_sample *sample, arf_error *error)
{
    arf_json_value value;
    char name[ARF_NAME_TEXT] = "";
    ARF_TRY(arf_read_text(root, "outcome", name, error));
    sample->outcome = ARF_SAMPLE_TIMED;
    if (strcmp(name, outcome_names[ARF_SAMPLE_WRONG]) == 0)
        sample->outcome = ARF_SAMPLE_WRONG;
    else if (strcmp(name, outcome_names[ARF_SAMPLE_FAILED]) == 0)
        sample->outcome = ARF_SAMPLE_FAILED;
    else if (name[0] != '\0')
        return arf_fail(error, ARFUSE_PROFILE, "$.outcome: \"%s\", expected wrong or failed", name);
    ARF_TRY(arf_json_optional(root, "reason", &value, error));
    return value.node == NULL
               ? ARFUSE_OK
               : arf_json_string(&value, sample->reason, sizeof sample->reason, error);
}

static arfuse_status read_times(const arf_json_value *root, arf_sample *sample, double *us,
                                arf_error *error)
{
    arf_json_value list, element = {0};
    ARF_TRY(arf_json_member(root, "us", &list, error));
    ARF_TRY(arf_json_array(&list, &sample->rounds, error));
    bool timed = sample->outcome == ARF_SAMPLE_TIMED;
    if (timed ? sample->rounds < 1 || sample->rounds > ARF_MAX_ROUNDS : sample->rounds != 0)
        return arf_fail(error, ARFUSE_PROFILE, "$.us: %d times, expected %s", sample->rounds,
                        timed ? "1 to 256" : "none (it was not timed)");
    for (int i = 0; arf_json_next(&list, &element, NULL); i++)
        ARF_TRY(arf_json_number(&element, 0, ARF_MAX_US, &us[i], error));
    sample->us = us;
    return ARFUSE_OK;
}

static arfuse_status read_clock(const arf_json_value *root, arf_sample *sample, arf_error *error)
{
    arf_json_value value;
    int64_t mhz = 0;
    ARF_TRY(arf_json_optional(root, "clock_mhz", &value, error));
    if (value.node != NULL)
        ARF_TRY(arf_json_integer(&value, 1, ARF_MAX_MHZ, &mhz, error));
    sample->clock_mhz = (int)mhz;
    return arf_read_text(root, "throttle", sample->throttle, error);
}

static arfuse_status read_then(const arf_json_value *root, const arf_samples_header *header,
                               arf_sample *sample, arf_error *error)
{
    static const char *const members[] = {"protocol", "transport", "numerics", "tuning", NULL};
    arf_problem problem = {
        .set = header->set, .shape = header->shape, .sm_count = header->device.sm_count};
    arf_json_value value;
    ARF_TRY(arf_json_optional(root, "then", &value, error));
    sample->has_then = value.node != NULL;
    if (sample->has_then != (sample->plan.protocol == ARF_SEPARATE))
        return arf_fail(error, ARFUSE_PROFILE, "$.then: %s, expected %s",
                        sample->has_then ? "there" : "nothing",
                        sample->has_then ? "none (only behind a separate finalize)"
                                         : "the allreduce plan behind the separate finalize");
    if (!sample->has_then)
        return ARFUSE_OK;
    ARF_TRY(arf_json_object(&value, members, error));
    ARF_TRY(
        arf_read_plan(&value, header->set, header->version, ARF_ALLREDUCE, &sample->then, error));
    return arf_check_plan(&problem, header->version, ARF_ALLREDUCE, &sample->then,
                          arf_set_public(header->set), "$.then", error);
}

static arfuse_status read_sample(const arf_json_value *root, arf_samples *samples, arf_error *error)
{
    static const char *const members[] = {
        "pattern", "tokens", "protocol", "finalize",  "transport", "numerics", "tuning", "then",
        "outcome", "reason", "calls",    "clock_mhz", "throttle",  "us",       NULL};
    const arf_samples_header *header = &samples->header;
    arf_problem problem = {
        .set = header->set, .shape = header->shape, .sm_count = header->device.sm_count};
    arf_json_value value;
    arf_sample sample = {0};
    double us[ARF_MAX_ROUNDS];
    char pattern[ARF_NAME_TEXT];
    int64_t calls = 0;
    ARF_TRY(arf_json_object(root, members, error));
    ARF_TRY(arf_json_member(root, "pattern", &value, error));
    ARF_TRY(arf_json_string(&value, pattern, sizeof pattern, error));
    if (!arf_pattern_parse(pattern, &sample.pattern))
        return arf_fail(error, ARFUSE_PROFILE, "%s: \"%s\", expected allreduce or finalize",
                        value.path, pattern);
    ARF_TRY(arf_json_member(root, "tokens", &value, error));
    ARF_TRY(arf_json_integer(&value, 1, ARF_MAX_TOKENS, &sample.tokens, error));
    ARF_TRY(arf_read_plan(root, header->set, header->version, sample.pattern, &sample.plan, error));
    /* Imported times of public kernels may come without their launch parameters. */
    ARF_TRY(arf_check_plan(&problem, header->version, sample.pattern, &sample.plan,
                           arf_set_public(header->set), "$", error));
    ARF_TRY(read_then(root, header, &sample, error));
    ARF_TRY(read_outcome(root, &sample, error));
    ARF_TRY(arf_json_member(root, "calls", &value, error));
    ARF_TRY(arf_json_integer(&value, 0, MAX_CALLS, &calls, error));
    sample.calls = (int)calls;
    ARF_TRY(read_clock(root, &sample, error));
    ARF_TRY(read_times(root, &sample, us, error));
    return arf_samples_add(samples, &sample, error);
}

/* One whole line; the first is the header and makes *samples. */
static arfuse_status read_line(const char *line, size_t bytes, arf_samples **samples,
                               arf_error *error)
{
    arf_json *json = NULL;
    ARF_TRY(arf_json_parse(line, bytes, &json, error));
    arf_json_value root = arf_json_root(json);
    arfuse_status status;
    if (*samples == NULL) {
        arf_samples_header header = {0};
        status = read_header(&root, &header, error);
        if (status == ARFUSE_OK && (*samples = arf_samples_new(&header)) == NULL)
            status = arf_fail(error, ARFUSE_FAILURE, "out of memory");
    } else {
        status = read_sample(&root, *samples, error);
    }
    arf_json_free(json);
    return status;
}

arfuse_status arf_samples_parse(const char *name, const char *text, size_t bytes,
                                arf_samples **samples, bool *truncated, arf_error *error)
{
    arf_samples *made = NULL;
    arfuse_status status = ARFUSE_OK;
    size_t at = 0;
    int line = 0;
    *truncated = false;
    if (bytes > ARF_SAMPLES_MAX_BYTES)
        return arf_fail(error, ARFUSE_PROFILE, "%s: %zu bytes, expected at most %zu", name, bytes,
                        ARF_SAMPLES_MAX_BYTES);
    while (status == ARFUSE_OK && at < bytes) {
        const char *end = memchr(text + at, '\n', bytes - at);
        if (end == NULL) { /* the writer was stopped in the middle of it */
            *truncated = true;
            break;
        }
        line++;
        arf_error local = ARF_ERROR_INIT;
        status = read_line(text + at, (size_t)(end - text) - at, &made, &local);
        if (status != ARFUSE_OK) {
            /* A fault of the text names its place; the line there is always the first. */
            const char *first = "line 1, ";
            bool placed = strncmp(local.text, first, strlen(first)) == 0;
            arf_fail(error, status, "%s: line %d%s%s", name, line, placed ? ", " : ": ",
                     local.text + (placed ? strlen(first) : 0));
        }
        at = (size_t)(end - text) + 1;
    }
    if (status == ARFUSE_OK && made == NULL)
        status = arf_fail(error, ARFUSE_PROFILE, "%s: no whole line, expected a header", name);
    if (status != ARFUSE_OK) {
        arf_samples_free(made);
        return status;
    }
    *samples = made;
    return ARFUSE_OK;
}

arfuse_status arf_samples_load(const char *path, arf_samples **samples, bool *truncated,
                               arf_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    ARF_TRY(arf_read_file(path, ARF_SAMPLES_MAX_BYTES, &text, &bytes, error));
    arfuse_status status = arf_samples_parse(path, text, bytes, samples, truncated, error);
    free(text);
    return status;
}
