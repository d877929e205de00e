/* SPDX-License-Identifier: Apache-2.0 */
/* What the format demands of the values as a whole; parts_check.c judges the pieces. */
#include <stdio.h>
#include <string.h>

#include "profile/evidence.h"
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
    return arf_check_evidence(profile, error);
}
