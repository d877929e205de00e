/* SPDX-License-Identifier: Apache-2.0 */
/* A model from its file: the built-in one, with what the file says in its place. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "device/model/truth.h"
#include "rules/knobs.h"

#define MODEL_MAX_BYTES ((size_t)1 << 20)

/* The numbers at the top of a file, which a device option may override by the same names. */
static const struct {
    const char *name;
    size_t offset;
    double low, high;
} numbers[] = {
    {"noise", offsetof(arf_model, noise), 0.0, 1.0},
    {"placement", offsetof(arf_model, placement), 0.0, 1.0},
    {"outlier_rate", offsetof(arf_model, outlier_rate), 0.0, 1.0},
    {"outlier_factor", offsetof(arf_model, outlier_factor), 1.0, 1e6},
    {"graph_us", offsetof(arf_model, graph_us), 0.0, 1e6},
    {"prepare_seconds", offsetof(arf_model, prepare_seconds), 0.0, 1e6},
    {"pause_seconds", offsetof(arf_model, pause_seconds), 0.0, 60.0},
};
#define NUMBERS ((int)(sizeof numbers / sizeof numbers[0]))

static arfuse_status take_number(const arf_json_value *object, const char *name, double low,
                                 double high, double *number, arf_error *error)
{
    arf_json_value value;
    ARF_TRY(arf_json_optional(object, name, &value, error));
    return value.node == NULL ? ARFUSE_OK : arf_json_number(&value, low, high, number, error);
}

static arfuse_status take_integer(const arf_json_value *object, const char *name, int64_t low,
                                  int64_t high, int64_t *number, arf_error *error)
{
    arf_json_value value;
    ARF_TRY(arf_json_optional(object, name, &value, error));
    return value.node == NULL ? ARFUSE_OK : arf_json_integer(&value, low, high, number, error);
}

static arfuse_status take_text(const arf_json_value *object, const char *name, char *text,
                               size_t size, arf_error *error)
{
    arf_json_value value;
    ARF_TRY(arf_json_optional(object, name, &value, error));
    return value.node == NULL ? ARFUSE_OK : arf_json_string(&value, text, size, error);
}

static arfuse_status read_knobs(const arf_json_value *curve_value, arf_pattern pattern,
                                arf_protocol protocol, arf_model_curve *curve, arf_error *error)
{
    static const char *const members[] = {"best", "per_octave", "cost", NULL};
    arf_json_value knobs, entry;
    ARF_TRY(arf_json_optional(curve_value, "knobs", &knobs, error));
    if (knobs.node == NULL)
        return ARFUSE_OK;
    ARF_TRY(arf_json_object(&knobs, NULL, error));
    const arf_knob_table *table = arf_knobs(ARF_SET_ARFUSE, protocol, pattern);
    const char *name;
    for (int i = 0; arf_json_member_at(&knobs, i, &name, &entry); i++) {
        int index = arf_knob_index(table, name);
        if (index < 0)
            return arf_fail(error, ARFUSE_PROFILE, "%s: no knob of %s for %s has this name",
                            entry.path, arf_protocol_name(protocol), arf_pattern_name(pattern));
        arf_model_knob *knob = &curve->knob[index];
        ARF_TRY(arf_json_object(&entry, members, error));
        ARF_TRY(take_number(&entry, "best", 0.0, 1e9, &knob->best, error));
        ARF_TRY(take_number(&entry, "per_octave", -4.0, 4.0, &knob->per_octave, error));
        ARF_TRY(take_number(&entry, "cost", 0.0, 100.0, &knob->cost, error));
    }
    return ARFUSE_OK;
}

static arfuse_status read_curve(const arf_json_value *value, arf_pattern pattern,
                                arf_protocol protocol, arf_model_curve *curve, arf_error *error)
{
    static const char *const members[] = {"floor_us",  "link_us_per_mib", "memory_us_per_mib",
                                          "decode_us", "stair_tokens",    "knobs",
                                          NULL};
    ARF_TRY(arf_json_object(value, members, error));
    ARF_TRY(take_number(value, "floor_us", 1e-3, 1e9, &curve->floor_us, error));
    ARF_TRY(take_number(value, "link_us_per_mib", 0.0, 1e9, &curve->link_us_per_mib, error));
    ARF_TRY(take_number(value, "memory_us_per_mib", 0.0, 1e9, &curve->memory_us_per_mib, error));
    ARF_TRY(take_number(value, "decode_us", 0.0, 1e9, &curve->decode_us, error));
    ARF_TRY(take_integer(value, "stair_tokens", 1, ARF_MAX_TOKENS, &curve->stair_tokens, error));
    return read_knobs(value, pattern, protocol, curve, error);
}

static arfuse_status read_curves(const arf_json_value *root, arf_model *model, arf_error *error)
{
    arf_json_value curves, of_pattern, of_protocol;
    ARF_TRY(arf_json_optional(root, "curves", &curves, error));
    if (curves.node == NULL)
        return ARFUSE_OK;
    ARF_TRY(arf_json_object(&curves, NULL, error));
    const char *name;
    for (int i = 0; arf_json_member_at(&curves, i, &name, &of_pattern); i++) {
        arf_pattern pattern;
        if (!arf_pattern_parse(name, &pattern))
            return arf_fail(error, ARFUSE_PROFILE, "%s: expected allreduce or finalize",
                            of_pattern.path);
        ARF_TRY(arf_json_object(&of_pattern, NULL, error));
        for (int j = 0; arf_json_member_at(&of_pattern, j, &name, &of_protocol); j++) {
            arf_protocol protocol;
            if (!arf_protocol_parse(name, &protocol) ||
                !arf_knobs(ARF_SET_ARFUSE, protocol, pattern)->supported)
                return arf_fail(error, ARFUSE_PROFILE, "%s: %s has no such protocol",
                                of_protocol.path, arf_pattern_name(pattern));
            ARF_TRY(read_curve(&of_protocol, pattern, protocol, &model->curve[pattern][protocol],
                               error));
        }
    }
    return ARFUSE_OK;
}

static arfuse_status read_fault_tuning(const arf_json_value *value, arf_model_fault *fault,
                                       arf_error *error)
{
    arf_json_value tuning, entry;
    ARF_TRY(arf_json_optional(value, "tuning", &tuning, error));
    if (tuning.node == NULL)
        return ARFUSE_OK;
    ARF_TRY(arf_json_object(&tuning, NULL, error));
    const char *name;
    for (int i = 0; arf_json_member_at(&tuning, i, &name, &entry); i++) {
        if (i == ARF_FAULT_KNOBS || strlen(name) >= ARF_NAME_TEXT)
            return arf_fail(error, ARFUSE_PROFILE, "%s: a fault names at most %d knobs", entry.path,
                            ARF_FAULT_KNOBS);
        int64_t number;
        ARF_TRY(arf_json_integer(&entry, INT32_MIN + 1, INT32_MAX, &number, error));
        strcpy(fault->knob_name[i], name);
        fault->knob_value[i] = (int32_t)number;
        fault->knob_count = i + 1;
    }
    return ARFUSE_OK;
}

static arfuse_status read_fault(const arf_json_value *value, arf_model_fault *fault,
                                arf_error *error)
{
    static const char *const members[] = {
        "kind",       "rank",         "pattern",       "protocol", "tuning", "min_tokens",
        "max_tokens", "from_seconds", "until_seconds", "factor",   NULL};
    static const char *const kinds[ARF_FAULT_KINDS] = {"wrong",  "absent", "launch",  "prepare",
                                                       "memory", "slow",   "timeless"};
    *fault = (arf_model_fault){.rank = -1,
                               .min_tokens = 1,
                               .max_tokens = ARF_MAX_TOKENS,
                               .until_seconds = INFINITY,
                               .factor = 1.0};
    ARF_TRY(arf_json_object(value, members, error));

    arf_json_value kind;
    char name[ARF_NAME_TEXT] = "";
    ARF_TRY(arf_json_member(value, "kind", &kind, error));
    ARF_TRY(arf_json_string(&kind, name, sizeof name, error));
    int found = 0;
    while (found < ARF_FAULT_KINDS && strcmp(name, kinds[found]) != 0)
        found++;
    if (found == ARF_FAULT_KINDS)
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: \"%s\": expected wrong, absent, launch, prepare, memory, slow or "
                        "timeless",
                        kind.path, name);
    fault->kind = (arf_model_fault_kind)found;

    int64_t rank = -1;
    ARF_TRY(take_integer(value, "rank", 0, ARF_MAX_RANKS - 1, &rank, error));
    fault->rank = (int)rank;
    name[0] = '\0';
    ARF_TRY(take_text(value, "pattern", name, sizeof name, error));
    fault->has_pattern = name[0] != '\0';
    if (fault->has_pattern && !arf_pattern_parse(name, &fault->pattern))
        return arf_fail(error, ARFUSE_PROFILE, "%s.pattern: \"%s\": expected allreduce or finalize",
                        value->path, name);
    name[0] = '\0';
    ARF_TRY(take_text(value, "protocol", name, sizeof name, error));
    fault->has_protocol = name[0] != '\0';
    if (fault->has_protocol && !arf_protocol_parse(name, &fault->protocol))
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s.protocol: \"%s\": expected ll, bt, ht, unfused or separate",
                        value->path, name);
    ARF_TRY(read_fault_tuning(value, fault, error));
    ARF_TRY(take_integer(value, "min_tokens", 1, ARF_MAX_TOKENS, &fault->min_tokens, error));
    ARF_TRY(take_integer(value, "max_tokens", 1, ARF_MAX_TOKENS, &fault->max_tokens, error));
    ARF_TRY(take_number(value, "from_seconds", 0.0, 1e9, &fault->from_seconds, error));
    ARF_TRY(take_number(value, "until_seconds", 0.0, 1e9, &fault->until_seconds, error));
    return take_number(value, "factor", 1e-3, 1e6, &fault->factor, error);
}

static arfuse_status read_faults(const arf_json_value *root, arf_model *model, arf_error *error)
{
    arf_json_value faults;
    ARF_TRY(arf_json_optional(root, "faults", &faults, error));
    if (faults.node == NULL)
        return ARFUSE_OK;
    ARF_TRY(arf_json_array(&faults, &model->fault_count, error));
    if (model->fault_count > ARF_MODEL_FAULTS) {
        int count = model->fault_count;
        model->fault_count = 0;
        return arf_fail(error, ARFUSE_PROFILE, "%s: %d faults: at most %d", faults.path, count,
                        ARF_MODEL_FAULTS);
    }
    for (int i = 0; i < model->fault_count; i++) {
        arf_json_value entry = arf_json_element(&faults, i);
        ARF_TRY(read_fault(&entry, &model->fault[i], error));
    }
    return ARFUSE_OK;
}

static arfuse_status read_model(const arf_json_value *root, arf_model *model, arf_error *error)
{
    static const char *const members[] = {
        "format", "version",      "name",           "sm_count",        "seed",
        "noise",  "outlier_rate", "graph_us",       "prepare_seconds", "pause_seconds",
        "curves", "faults",       "outlier_factor", "placement",       NULL};
    ARF_TRY(arf_json_object(root, members, error));
    arf_json_value value;
    char format[ARF_NAME_TEXT];
    ARF_TRY(arf_json_member(root, "format", &value, error));
    ARF_TRY(arf_json_string(&value, format, sizeof format, error));
    if (strcmp(format, "arfuse-model") != 0)
        return arf_fail(error, ARFUSE_PROFILE, "%s: \"%s\": expected \"arfuse-model\"", value.path,
                        format);
    int64_t version, sm_count = model->sm_count, seed = (int64_t)model->seed;
    ARF_TRY(arf_json_member(root, "version", &value, error));
    ARF_TRY(arf_json_integer(&value, 1, 1, &version, error));
    ARF_TRY(take_text(root, "name", model->name, sizeof model->name, error));
    ARF_TRY(take_integer(root, "sm_count", 1, 4096, &sm_count, error));
    ARF_TRY(take_integer(root, "seed", 0, INT64_C(1) << 53, &seed, error));
    model->sm_count = (int)sm_count;
    model->seed = (uint64_t)seed;
    for (int i = 0; i < NUMBERS; i++)
        ARF_TRY(take_number(root, numbers[i].name, numbers[i].low, numbers[i].high,
                            (double *)((char *)model + numbers[i].offset), error));
    ARF_TRY(read_curves(root, model, error));
    return read_faults(root, model, error);
}

static arfuse_status read_file(const char *path, arf_model *model, arf_error *error)
{
    char *text;
    size_t bytes;
    ARF_TRY(arf_read_file(path, MODEL_MAX_BYTES, &text, &bytes, error));
    arf_json *json = NULL;
    arfuse_status status = arf_json_parse(text, bytes, &json, error);
    if (status == ARFUSE_OK) {
        arf_json_value root = arf_json_root(json);
        status = read_model(&root, model, error);
    }
    if (status != ARFUSE_OK)
        arf_error_prefix(error, "%s", path);
    arf_json_free(json);
    free(text);
    return status;
}

/* "seed=7": the value is read as JSON, like the same member of a file. */
static arfuse_status override(const char *text, size_t length, arf_model *model, arf_error *error)
{
    char name[ARF_NAME_TEXT] = "";
    const char *equals = memchr(text, '=', length);
    size_t name_length = equals == NULL ? length : (size_t)(equals - text);
    if (name_length < sizeof name)
        memcpy(name, text, name_length);
    int index = 0;
    while (index < NUMBERS && strcmp(name, numbers[index].name) != 0)
        index++;
    bool is_seed = strcmp(name, "seed") == 0;
    if (equals == NULL || (index == NUMBERS && !is_seed))
        return arf_fail(error, ARFUSE_USAGE,
                        "model: \"%.*s\": expected seed=N, or noise, placement, outlier_rate, "
                        "outlier_factor, graph_us, prepare_seconds or pause_seconds with a number",
                        (int)length, text);

    arf_json *json = NULL;
    arfuse_status status = arf_json_parse(equals + 1, length - name_length - 1, &json, error);
    if (status == ARFUSE_OK) {
        arf_json_value value = arf_json_root(json);
        int64_t seed = 0;
        if (is_seed) {
            status = arf_json_integer(&value, 0, INT64_C(1) << 53, &seed, error);
            model->seed = (uint64_t)seed;
        } else {
            status = arf_json_number(&value, numbers[index].low, numbers[index].high,
                                     (double *)((char *)model + numbers[index].offset), error);
        }
    }
    arf_json_free(json);
    if (status == ARFUSE_OK)
        return ARFUSE_OK;
    arf_error_prefix(error, "model: %.*s", (int)length, text);
    if (error != NULL)
        error->status = ARFUSE_USAGE;
    return ARFUSE_USAGE;
}

arfuse_status arf_model_load(const char *spec, arf_model *model, arf_error *error)
{
    arf_model_default(model);
    size_t name_length = strcspn(spec, ",");
    if (name_length == 0)
        return arf_fail(error, ARFUSE_USAGE,
                        "device \"model:%s\": expected model:default or model:FILE", spec);
    if (name_length != strlen("default") || strncmp(spec, "default", name_length) != 0) {
        char *path = strndup(spec, name_length);
        if (path == NULL)
            return arf_fail(error, ARFUSE_FAILURE, "out of memory");
        arfuse_status status = read_file(path, model, error);
        free(path);
        ARF_TRY(status);
    }
    const char *rest = spec + name_length;
    while (*rest == ',') {
        size_t length = strcspn(++rest, ",");
        ARF_TRY(override(rest, length, model, error));
        rest += length;
    }
    return ARFUSE_OK;
}
