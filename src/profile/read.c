/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/read.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "profile/parts.h"

#define FORMAT_VERSION 1

const char *const arf_evidence_members[] = {
    "method", "context",        "policy",     "tool",   "driver", "source_digest",
    "noise",  "regret_geomean", "regret_max", "routes", NULL};
const char *const arf_route_evidence_members[] = {"bound_interval", "runner_up", "margin", NULL};

/* ---- head -------------------------------------------------------------------------------------
 */

/* Before anything else: a file of another kind or version deserves to hear that, not which of its
 * members is unknown. */
static arfuse_status read_format(const arf_json_value *root, arf_error *error)
{
    arf_json_value value;
    char format[ARF_NAME_TEXT];
    int64_t version = 0;
    ARF_TRY(arf_json_object(root, NULL, error));
    ARF_TRY(arf_json_member(root, "format", &value, error));
    ARF_TRY(arf_json_string(&value, format, sizeof format, error));
    if (strcmp(format, "arfuse-profile") != 0)
        return arf_fail(error, ARFUSE_PROFILE, "%s: \"%s\", expected arfuse-profile", value.path,
                        format);
    ARF_TRY(arf_json_member(root, "version", &value, error));
    ARF_TRY(arf_json_integer(&value, 1, INT32_MAX, &version, error));
    if (version > FORMAT_VERSION)
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: %lld, expected at most %d (a newer arfuse wrote this file; this one "
                        "reads version %d)",
                        value.path, (long long)version, FORMAT_VERSION, FORMAT_VERSION);
    return ARFUSE_OK;
}

/* ---- routes ------------------------------------------------------------------------------------
 */

static arfuse_status read_route(const arf_json_value *object, arf_profile *profile,
                                arf_pattern pattern, int index, arf_error *error)
{
    static const char *const members[] = {"min_tokens", "max_tokens", "protocol", "finalize",
                                          "transport",  "numerics",   "tuning",   NULL};
    arf_routes *routes = &profile->routes[pattern];
    arf_route *route = &routes->route[index];
    arf_json_value value;
    ARF_TRY(arf_json_object(object, members, error));
    ARF_TRY(arf_json_optional(object, "min_tokens", &value, error));
    if (value.node != NULL && index > 0)
        return arf_fail(error, ARFUSE_PROFILE, "%s: expected in the first route alone", value.path);
    if (value.node != NULL) /* 1 is what it is without the member, and is not written */
        ARF_TRY(arf_json_integer(&value, 2, ARF_MAX_TOKENS, &routes->min_tokens, error));
    ARF_TRY(arf_json_member(object, "max_tokens", &value, error));
    if (arf_json_is_null(&value))
        route->max_tokens = ARF_OPEN_BOUND;
    else
        ARF_TRY(arf_json_integer(&value, 1, ARF_MAX_TOKENS, &route->max_tokens, error));
    return arf_read_plan(object, profile->set, pattern, &route->plan, error);
}

static arfuse_status read_routes(const arf_json_value *root, arf_profile *profile, arf_error *error)
{
    static const char *const members[] = {"allreduce", "finalize", NULL};
    arf_json_value object, list;
    ARF_TRY(arf_json_member(root, "routes", &object, error));
    ARF_TRY(arf_json_object(&object, members, error));
    for (int i = 0; i < ARF_PATTERNS; i++) {
        int count = 0;
        ARF_TRY(arf_json_member(&object, arf_pattern_name((arf_pattern)i), &list, error));
        ARF_TRY(arf_json_array(&list, &count, error));
        if (count > ARF_MAX_ROUTES)
            return arf_fail(error, ARFUSE_PROFILE, "%s: %d routes, expected at most %d", list.path,
                            count, ARF_MAX_ROUTES);
        profile->routes[i].count = count;
        arf_json_value route = {0};
        for (int j = 0; arf_json_next(&list, &route, NULL); j++)
            ARF_TRY(read_route(&route, profile, (arf_pattern)i, j, error));
    }
    return ARFUSE_OK;
}

/* ---- evidence
 * ------------------------------------------------------------------------------------ */

/* What is not in `known`, as the text of one object; NULL when there is nothing. */
static arfuse_status keep_unknown(const arf_json_value *object, const char *const *known,
                                  char **extra, arf_error *error)
{
    arf_text text = {0};
    arf_json_value member = {0};
    const char *name;
    while (arf_json_next(object, &member, &name)) {
        int i = 0;
        while (known[i] != NULL && strcmp(known[i], name) != 0)
            i++;
        if (known[i] != NULL)
            continue;
        char *value = arf_json_print(&member);
        arf_text_add(&text, text.bytes == 0 ? "{" : ",");
        arf_text_string(&text, name);
        arf_text_add(&text, ":%s", value != NULL ? value : "");
        text.failed |= value == NULL;
        free(value);
    }
    if (text.bytes > 0)
        arf_text_add(&text, "}");
    if (text.failed) {
        arf_text_free(&text);
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %s", object->path);
    }
    *extra = text.data;
    return ARFUSE_OK;
}

static arfuse_status read_ratio(const arf_json_value *object, const char *name, double low,
                                double *ratio, arf_error *error)
{
    arf_json_value value;
    ARF_TRY(arf_json_optional(object, name, &value, error));
    return value.node == NULL ? ARFUSE_OK
                              : arf_json_number(&value, low, ARF_MAX_RATIO, ratio, error);
}

static arfuse_status read_route_evidence(const arf_json_value *object, arf_route_evidence *route,
                                         char **extra, arf_error *error)
{
    arf_json_value value;
    ARF_TRY(arf_json_object(object, NULL, error));
    ARF_TRY(arf_json_optional(object, "bound_interval", &value, error));
    if (value.node != NULL) {
        int count = 0;
        ARF_TRY(arf_json_array(&value, &count, error));
        if (count != 2)
            return arf_fail(error, ARFUSE_PROFILE, "%s: %d numbers, expected 2", value.path, count);
        arf_json_value low = arf_json_element(&value, 0), high = arf_json_element(&value, 1);
        ARF_TRY(arf_json_integer(&low, 1, ARF_MAX_TOKENS, &route->bound_low, error));
        ARF_TRY(arf_json_integer(&high, 1, ARF_MAX_TOKENS, &route->bound_high, error));
    }
    ARF_TRY(arf_read_text(object, "runner_up", route->runner_up, error));
    ARF_TRY(read_ratio(object, "margin", -1.0, &route->margin, error));
    return keep_unknown(object, arf_route_evidence_members, extra, error);
}

static arfuse_status read_evidence_routes(const arf_json_value *object, arf_evidence *evidence,
                                          arf_error *error)
{
    static const char *const members[] = {"allreduce", "finalize", NULL};
    ARF_TRY(arf_json_object(object, members, error));
    for (int i = 0; i < ARF_PATTERNS; i++) {
        arf_json_value list, entry = {0};
        int count = 0;
        ARF_TRY(arf_json_optional(object, arf_pattern_name((arf_pattern)i), &list, error));
        if (list.node == NULL)
            continue;
        ARF_TRY(arf_json_array(&list, &count, error));
        if (count > ARF_MAX_ROUTES)
            return arf_fail(error, ARFUSE_PROFILE, "%s: %d entries, expected at most %d", list.path,
                            count, ARF_MAX_ROUTES);
        evidence->route_count[i] = count;
        for (int j = 0; arf_json_next(&list, &entry, NULL); j++)
            ARF_TRY(read_route_evidence(&entry, &evidence->route[i][j],
                                        &evidence->route_extra[i][j], error));
    }
    return ARFUSE_OK;
}

static arfuse_status read_evidence(const arf_json_value *root, arf_evidence *evidence,
                                   arf_error *error)
{
    arf_json_value object, value;
    char method[ARF_NAME_TEXT];
    ARF_TRY(arf_json_member(root, "evidence", &object, error));
    ARF_TRY(arf_json_object(&object, NULL, error));
    ARF_TRY(arf_json_member(&object, "method", &value, error));
    ARF_TRY(arf_json_string(&value, method, sizeof method, error));
    if (!arf_method_parse(method, &evidence->method))
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: \"%s\", expected measured, published, retargeted or default",
                        value.path, method);
    ARF_TRY(arf_read_text(&object, "context", evidence->context, error));
    ARF_TRY(arf_read_policy(&object, &evidence->policy, &evidence->has_policy, error));
    ARF_TRY(arf_read_text(&object, "tool", evidence->tool, error));
    ARF_TRY(arf_read_text(&object, "driver", evidence->driver, error));
    ARF_TRY(arf_read_text(&object, "source_digest", evidence->source_digest, error));
    ARF_TRY(read_ratio(&object, "noise", 0, &evidence->noise, error));
    ARF_TRY(read_ratio(&object, "regret_geomean", 0, &evidence->regret_geomean, error));
    ARF_TRY(read_ratio(&object, "regret_max", 0, &evidence->regret_max, error));
    ARF_TRY(arf_json_optional(&object, "routes", &value, error));
    if (value.node != NULL)
        ARF_TRY(read_evidence_routes(&value, evidence, error));
    return keep_unknown(&object, arf_evidence_members, &evidence->extra, error);
}

/* ---- whole files
 * ---------------------------------------------------------------------------------- */

static arfuse_status read_root(const arf_json_value *root, arf_profile *profile, arf_error *error)
{
    static const char *const members[] = {"format",   "version", "kernels",  "shape", "device",
                                          "numerics", "routes",  "evidence", NULL};
    arf_json_value value;
    ARF_TRY(read_format(root, error));
    ARF_TRY(arf_json_object(root, members, error));
    ARF_TRY(arf_read_kernels(root, &profile->set, profile->version, profile->variant, error));
    ARF_TRY(arf_read_shape(root, &profile->shape, error));
    ARF_TRY(arf_read_device(root, &profile->device, error));
    ARF_TRY(arf_json_member(root, "numerics", &value, error));
    ARF_TRY(arf_read_numerics(&value, &profile->numerics, error));
    ARF_TRY(read_routes(root, profile, error));
    ARF_TRY(read_evidence(root, &profile->evidence, error));
    return arf_profile_validate(profile, error);
}

arfuse_status arf_profile_parse(const char *name, const char *text, size_t bytes,
                                arf_profile **profile, arf_error *error)
{
    arf_json *json = NULL;
    arf_profile *made = arf_profile_new();
    if (made == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "%s: out of memory", name);
    arfuse_status status = arf_json_parse(text, bytes, &json, error);
    if (status == ARFUSE_OK) {
        arf_json_value root = arf_json_root(json);
        status = read_root(&root, made, error);
    }
    arf_json_free(json);
    if (status != ARFUSE_OK) {
        arf_error_prefix(error, "%s", name);
        arf_profile_free(made);
        return status;
    }
    *profile = made;
    return ARFUSE_OK;
}

arfuse_status arf_profile_load(const char *path, arf_profile **profile, arf_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    arf_error reading = ARF_ERROR_INIT;
    if (arf_read_file(path, ARF_JSON_MAX_BYTES, &text, &bytes, &reading) != ARFUSE_OK)
        return arf_fail(error, ARFUSE_PROFILE, "%s", reading.text);
    arfuse_status status = arf_profile_parse(path, text, bytes, profile, error);
    free(text);
    return status;
}
