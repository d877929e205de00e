/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/read.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "profile/evidence.h"
#include "profile/parts.h"

#define FORMAT_VERSION 1

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
    return arf_read_plan(object, profile->set, profile->version, pattern, &route->plan, error);
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
    ARF_TRY(arf_read_evidence(root, &profile->evidence, error));
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
    ARF_TRY(arf_read_file(path, ARF_JSON_MAX_BYTES, &text, &bytes, error));
    arfuse_status status = arf_profile_parse(path, text, bytes, profile, error);
    free(text);
    return status;
}
