/* SPDX-License-Identifier: Apache-2.0 */
/* A table of routes, as `export --to csv` writes one, back to the profile. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"
#include "cli/import.h"
#include "cli/plan_text.h"
#include "rules/knobs.h"

/* A number of evidence; NaN of an empty cell: not measured. */
static arfuse_status take_number(const arf_import *import, int row, arf_column column,
                                 double *number, arf_error *error)
{
    const char *cell = arf_import_cell(import, row, column);
    char *end = NULL;
    *number = NAN;
    if (cell[0] == '\0')
        return ARFUSE_OK;
    *number = strtod(cell, &end);
    if (cell[strspn(cell, "0123456789.eE+-")] != '\0' || *end != '\0' || !isfinite(*number))
        return arf_import_refuse(import, row, error, "%s '%s', expected a number",
                                 arf_column_names[column][0], cell);
    return ARFUSE_OK;
}

static arfuse_status take_evidence(const arf_import *import, int row, arf_route_evidence *evidence,
                                   arf_error *error)
{
    ARF_TRY(arf_import_integer(import, row, ARF_COL_BOUND_LOW, 1, ARF_MAX_TOKENS,
                               &evidence->bound_low, error));
    ARF_TRY(arf_import_integer(import, row, ARF_COL_BOUND_HIGH, 1, ARF_MAX_TOKENS,
                               &evidence->bound_high, error));
    snprintf(evidence->runner_up, sizeof evidence->runner_up, "%s",
             arf_import_cell(import, row, ARF_COL_RUNNER_UP));
    ARF_TRY(take_number(import, row, ARF_COL_MARGIN, &evidence->margin, error));
    ARF_TRY(arf_import_integer(import, row, ARF_COL_SHIFT_TOKENS, 1, ARF_MAX_TOKENS,
                               &evidence->shift_tokens, error));
    ARF_TRY(take_number(import, row, ARF_COL_WARM_US, &evidence->policy_us[ARF_WARM], error));
    return take_number(import, row, ARF_COL_DECODE_US, &evidence->policy_us[ARF_DECODE], error);
}

static bool says_something(const arf_route_evidence *evidence)
{
    return evidence->bound_high != 0 || evidence->runner_up[0] != '\0' ||
           !isnan(evidence->margin) || evidence->shift_tokens != 0;
}

static arfuse_status take_route(const arf_import *import, int row, arf_profile *profile,
                                arf_error *error)
{
    arf_pattern pattern;
    bool known = false;
    int64_t bound = ARF_OPEN_BOUND, first = 1;
    ARF_TRY(arf_import_pattern(import, row, &pattern, error));
    arf_routes *routes = &profile->routes[pattern];
    if (routes->count == ARF_MAX_ROUTES)
        return arf_import_refuse(import, row, error, "more than %d routes of one pattern",
                                 ARF_MAX_ROUTES);
    arf_route *route = &routes->route[routes->count];
    ARF_TRY(arf_import_integer(import, row, ARF_COL_MAX, 1, ARF_MAX_TOKENS, &bound, error));
    ARF_TRY(arf_import_integer(import, row, ARF_COL_MIN, 1, ARF_MAX_TOKENS, &first, error));
    if (routes->count > 0 && routes->route[routes->count - 1].max_tokens == ARF_OPEN_BOUND)
        return arf_import_refuse(import, row, error, "a route behind one without an upper bound");
    if (routes->count == 0)
        routes->min_tokens = first;
    else if (arf_import_cell(import, row, ARF_COL_MIN)[0] != '\0' &&
             first != routes->route[routes->count - 1].max_tokens + 1)
        return arf_import_refuse(import, row, error,
                                 "min_tokens %lld, expected %lld, where the "
                                 "route before ends",
                                 (long long)first,
                                 (long long)routes->route[routes->count - 1].max_tokens + 1);
    ARF_TRY(arf_import_plan(import, row, pattern, first, &route->plan, &known, error));
    if (!known)
        return arf_import_refuse(import, row, error,
                                 "protocol '%s', which kernel set %s does not "
                                 "have for %s",
                                 arf_import_cell(import, row, ARF_COL_PROTOCOL),
                                 arf_set_name(import->key.set), arf_pattern_name(pattern));
    route->max_tokens = bound;
    arf_route_evidence *evidence = &profile->evidence.route[pattern][routes->count++];
    ARF_TRY(take_evidence(import, row, evidence, error));
    if (says_something(evidence))
        profile->evidence.route_count[pattern] = -1; /* settled when all rows are in */
    if (route->plan.numerics > profile->numerics)
        profile->numerics = route->plan.numerics;
    return ARFUSE_OK;
}

static arfuse_status take_method(const arf_import *import, int row, arf_profile *profile,
                                 arf_error *error)
{
    const char *cell = arf_import_cell(import, row, ARF_COL_METHOD);
    if (cell[0] == '\0' && arf_set_public(import->key.set)) {
        profile->evidence.method = ARF_PUBLISHED;
        return ARFUSE_OK;
    }
    if (!arf_method_parse(cell, &profile->evidence.method))
        return arf_import_refuse(import, row, error,
                                 "method '%s', expected measured, published, "
                                 "retargeted or default",
                                 cell);
    if (profile->evidence.method == ARF_MEASURED && arf_set_public(import->key.set))
        return arf_import_refuse(import, row, error,
                                 "method 'measured' of kernel set %s, expected published: arfuse "
                                 "measures its own kernels only",
                                 arf_set_name(import->key.set));
    return ARFUSE_OK;
}

static arfuse_status fill(const arf_import *import, arf_profile *profile, arf_error *error)
{
    int first = -1;
    for (int i = 0; i < import->csv.rows; i++) {
        if (!import->wanted[i])
            continue;
        if (first < 0)
            ARF_TRY(take_method(import, i, profile, error));
        first = first < 0 ? i : first;
        ARF_TRY(take_route(import, i, profile, error));
    }
    snprintf(profile->variant, sizeof profile->variant, "%s",
             arf_import_cell(import, first, ARF_COL_VARIANT));
    if (strcasecmp(arf_import_cell(import, first, ARF_COL_NORM), "either") == 0)
        profile->shape.rms_norm = ARF_EITHER;
    for (int i = 0; i < ARF_PATTERNS; i++)
        if (profile->evidence.route_count[i] != 0)
            profile->evidence.route_count[i] = profile->routes[i].count;
    return ARFUSE_OK;
}

/* What a table leaves open stays open: an empty cell is not the default. */
static bool says_policy(const arf_import *import)
{
    bool said = import->options->policy != NULL;
    for (int row = 0; row < import->csv.rows; row++)
        said |= import->wanted[row] && arf_import_cell(import, row, ARF_COL_POLICY)[0] != '\0';
    return said;
}

arfuse_status arf_import_routes(arf_import *import, arf_profile **profile, arf_error *error)
{
    arf_profile *made = arf_profile_new();
    if (made == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory");
    arf_evidence *evidence = &made->evidence;
    made->set = import->key.set;
    memcpy(made->version, import->key.version, sizeof made->version);
    made->shape = import->key.shape;
    made->device = import->key.device;
    made->numerics = ARF_FIXED;
    made->routes[ARF_ALLREDUCE].min_tokens = made->routes[ARF_FINALIZE].min_tokens = 1;
    evidence->noise = evidence->regret_geomean = evidence->regret_max = NAN;
    evidence->policy = import->key.policy;
    evidence->has_policy = says_policy(import);
    memcpy(evidence->tool, import->key.tool, sizeof evidence->tool);
    memcpy(evidence->driver, import->key.driver, sizeof evidence->driver);
    memcpy(evidence->source_digest, import->key.source_digest, sizeof evidence->source_digest);
    arfuse_status status = fill(import, made, error);
    if (status == ARFUSE_OK)
        *profile = made;
    else
        arf_profile_free(made);
    return status;
}
