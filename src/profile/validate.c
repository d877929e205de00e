/* SPDX-License-Identifier: Apache-2.0 */
/* What the format demands of the values as a whole; parts_check.c judges the pieces. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "profile/parts.h"

#define REFUSE(...) arf_fail(error, ARFUSE_PROFILE, __VA_ARGS__)

enum { PATH = 64 };

/* ---- routes
 * -------------------------------------------------------------------------------------- */

static arfuse_status check_bound(const arf_routes *routes, int index, bool published,
                                 const char *path, arf_error *error)
{
    int64_t bound = routes->route[index].max_tokens;
    if (bound == ARF_OPEN_BOUND) {
        if (!published)
            return REFUSE("%s.max_tokens: null, expected a bound (an open one only where "
                          "evidence.method is published)",
                          path);
        if (index + 1 < routes->count)
            return REFUSE("%s.max_tokens: null, expected a bound (only the last may be open)",
                          path);
        return ARFUSE_OK;
    }
    if (bound < 1 || bound > ARF_MAX_TOKENS)
        return REFUSE("%s.max_tokens: %lld, expected an integer from 1 to %d", path,
                      (long long)bound, ARF_MAX_TOKENS);
    if (index > 0 && bound <= routes->route[index - 1].max_tokens)
        return REFUSE("%s.max_tokens: %lld, expected more than %lld, the bound before it", path,
                      (long long)bound, (long long)routes->route[index - 1].max_tokens);
    if (bound < routes->min_tokens)
        return REFUSE("%s.max_tokens: %lld, expected at least min_tokens, which is %lld", path,
                      (long long)bound, (long long)routes->min_tokens);
    return ARFUSE_OK;
}

static arfuse_status check_routes(const arf_profile *profile, arf_pattern pattern, bool published,
                                  arf_error *error)
{
    const arf_routes *routes = &profile->routes[pattern];
    const arf_problem problem = arf_profile_problem(profile);
    const char *name = arf_pattern_name(pattern);
    char path[PATH];
    if (routes->count < 0 || routes->count > ARF_MAX_ROUTES)
        return REFUSE("$.routes.%s: %d routes, expected at most %d", name, routes->count,
                      ARF_MAX_ROUTES);
    if (pattern == ARF_FINALIZE && profile->shape.top_k == 0 && routes->count > 0)
        return REFUSE(
            "$.routes.finalize: %d routes, expected none where top_k is 0 (a dense model)",
            routes->count);
    bool dense = pattern == ARF_FINALIZE && profile->shape.top_k == 0;
    if (routes->count == 0 && !published && !dense)
        return REFUSE("$.routes.%s: no route, expected at least one (none only where "
                      "evidence.method is published%s)",
                      name, pattern == ARF_FINALIZE ? " or top_k is 0" : "");
    if (routes->min_tokens < 1 || routes->min_tokens > ARF_MAX_TOKENS)
        return REFUSE("$.routes.%s[0].min_tokens: %lld, expected an integer from 1 to %d", name,
                      (long long)routes->min_tokens, ARF_MAX_TOKENS);
    if (routes->min_tokens != 1 && (!published || routes->count == 0))
        return REFUSE("$.routes.%s[0].min_tokens: %lld, expected none (only where evidence.method "
                      "is published)",
                      name, (long long)routes->min_tokens);
    for (int i = 0; i < routes->count; i++) {
        snprintf(path, sizeof path, "$.routes.%s[%d]", name, i);
        ARF_TRY(check_bound(routes, i, published, path, error));
        ARF_TRY(arf_check_plan(&problem, profile->version, pattern, &routes->route[i].plan,
                               published, path, error));
    }
    return ARFUSE_OK;
}

static arfuse_status check_numerics(const arf_profile *profile, arf_error *error)
{
    arf_numerics weakest = ARF_FIXED;
    for (int i = 0; i < ARF_PATTERNS; i++)
        for (int j = 0; j < profile->routes[i].count; j++)
            if (profile->routes[i].route[j].plan.numerics > weakest)
                weakest = profile->routes[i].route[j].plan.numerics;
    if (profile->numerics != weakest)
        return REFUSE("$.numerics: \"%s\", expected \"%s\", the weakest of the routes",
                      arf_numerics_name(profile->numerics), arf_numerics_name(weakest));
    return ARFUSE_OK;
}

/* ---- evidence
 * ------------------------------------------------------------------------------------- */

/* Unknown members, as text: an object none of whose members the writer prints itself. */
static arfuse_status check_extra(const char *path, const char *extra, const char *const *known,
                                 arf_error *error)
{
    arf_json *json = NULL;
    if (extra == NULL)
        return ARFUSE_OK;
    arfuse_status status = arf_json_parse(extra, strlen(extra), &json, error);
    if (status == ARFUSE_OK) {
        arf_json_value root = arf_json_root(json), member = {0};
        const char *name;
        status = arf_json_object(&root, NULL, error);
        while (status == ARFUSE_OK && arf_json_next(&root, &member, &name))
            for (int i = 0; known[i] != NULL; i++)
                if (strcmp(known[i], name) == 0)
                    status = REFUSE("member \"%s\" is known, expected unknown ones only", name);
    }
    if (status != ARFUSE_OK)
        arf_error_prefix(error, "%s: kept members", path);
    arf_json_free(json);
    return status;
}

/* NaN: not measured. */
static arfuse_status check_ratio(const char *path, double value, double low, arf_error *error)
{
    if (isnan(value) || (value >= low && value <= ARF_MAX_RATIO))
        return ARFUSE_OK;
    return REFUSE("%s: %g, expected a number from %g to %g", path, value, low, ARF_MAX_RATIO);
}

static arfuse_status check_route_evidence(const arf_route_evidence *route, int64_t bound,
                                          const char *path, arf_error *error)
{
    char member[PATH + 16];
    arf_protocol protocol;
    bool unknown = route->bound_low == 0 && route->bound_high == 0;
    if (!unknown && (route->bound_low < 1 || route->bound_high < route->bound_low ||
                     route->bound_high > ARF_MAX_TOKENS))
        return REFUSE("%s.bound_interval: [%lld, %lld], expected two token counts in ascending "
                      "order",
                      path, (long long)route->bound_low, (long long)route->bound_high);
    /* An edited bound would else carry the measurement of another. */
    if (!unknown && bound != ARF_OPEN_BOUND &&
        (bound < route->bound_low || bound > route->bound_high))
        return REFUSE("%s.bound_interval: [%lld, %lld], expected one that holds the route's "
                      "max_tokens, which is %lld",
                      path, (long long)route->bound_low, (long long)route->bound_high,
                      (long long)bound);
    if (route->runner_up[0] != '\0' && !arf_protocol_parse(route->runner_up, &protocol))
        return REFUSE("%s.runner_up: \"%.40s\", expected a protocol or separate", path,
                      route->runner_up);
    snprintf(member, sizeof member, "%s.margin", path);
    return check_ratio(member, route->margin, -1.0, error);
}

static arfuse_status check_evidence(const arf_profile *profile, arf_error *error)
{
    const arf_evidence *evidence = &profile->evidence;
    char path[PATH];
    ARF_TRY(arf_check_text("$.evidence.context", evidence->context, error));
    ARF_TRY(arf_check_text("$.evidence.tool", evidence->tool, error));
    ARF_TRY(arf_check_text("$.evidence.driver", evidence->driver, error));
    ARF_TRY(arf_check_text("$.evidence.source_digest", evidence->source_digest, error));
    ARF_TRY(check_ratio("$.evidence.noise", evidence->noise, 0, error));
    ARF_TRY(check_ratio("$.evidence.regret_geomean", evidence->regret_geomean, 0, error));
    ARF_TRY(check_ratio("$.evidence.regret_max", evidence->regret_max, 0, error));
    ARF_TRY(check_extra("$.evidence", evidence->extra, arf_evidence_members, error));
    for (int i = 0; i < ARF_PATTERNS; i++) {
        const char *name = arf_pattern_name((arf_pattern)i);
        int count = evidence->route_count[i];
        if (count != 0 && count != profile->routes[i].count)
            return REFUSE("$.evidence.routes.%s: %d entries, expected %d, one a route", name, count,
                          profile->routes[i].count);
        for (int j = 0; j < count; j++) {
            snprintf(path, sizeof path, "$.evidence.routes.%s[%d]", name, j);
            ARF_TRY(check_route_evidence(&evidence->route[i][j],
                                         profile->routes[i].route[j].max_tokens, path, error));
            ARF_TRY(
                check_extra(path, evidence->route_extra[i][j], arf_route_evidence_members, error));
        }
    }
    return ARFUSE_OK;
}

arfuse_status arf_profile_validate(const arf_profile *profile, arf_error *error)
{
    bool published = profile->evidence.method == ARF_PUBLISHED;
    ARF_TRY(arf_check_kernels(profile->set, profile->version, error));
    ARF_TRY(arf_check_text("$.kernels.variant", profile->variant, error));
    if (profile->variant[0] != '\0' && !published)
        return REFUSE("$.kernels.variant: \"%s\", expected none (only where evidence.method is "
                      "published)",
                      profile->variant);
    ARF_TRY(arf_check_shape(&profile->shape, published, error));
    ARF_TRY(arf_check_device(&profile->device, &profile->shape, published, error));
    for (int i = 0; i < ARF_PATTERNS; i++)
        ARF_TRY(check_routes(profile, (arf_pattern)i, published, error));
    if (profile->routes[ARF_ALLREDUCE].count + profile->routes[ARF_FINALIZE].count == 0)
        return REFUSE("$.routes: no route in either pattern, expected at least one");
    ARF_TRY(check_numerics(profile, error));
    return check_evidence(profile, error);
}
