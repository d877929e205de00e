/* SPDX-License-Identifier: Apache-2.0 */
/* Both patterns into one profile. */
#include <math.h>
#include <string.h>

#include "fit/fit.h"

static bool has_samples(const arf_samples *samples, arf_pattern pattern)
{
    for (int i = 0; i < samples->count; i++)
        if (samples->sample[i].pattern == pattern)
            return true;
    return false;
}

/* The larger of two where either may be NaN, "not measured". */
static double worse(double a, double b)
{
    return isnan(a) ? b : isnan(b) ? a : fmax(a, b);
}

static void take_header(const arf_samples_header *header, arf_profile *profile)
{
    profile->set = header->set;
    memcpy(profile->version, header->version, sizeof profile->version);
    profile->shape = header->shape;
    profile->device = header->device;
    profile->numerics = ARF_FIXED;
    arf_evidence *evidence = &profile->evidence;
    /* What was imported was timed by others, with kernels that are not ours. */
    evidence->method = arf_set_public(header->set) ? ARF_PUBLISHED : ARF_MEASURED;
    strcpy(evidence->context, "isolated");
    evidence->policy = header->policy;
    evidence->has_policy = true;
    memcpy(evidence->tool, header->tool, sizeof evidence->tool);
    memcpy(evidence->driver, header->driver, sizeof evidence->driver);
    memcpy(evidence->source_digest, header->source_digest, sizeof evidence->source_digest);
    memcpy(evidence->library, header->library, sizeof evidence->library);
    evidence->noise = evidence->regret_geomean = evidence->regret_max = NAN;
}

static void take_fit(const arf_fit_result *fit, arf_pattern pattern, arf_profile *profile)
{
    profile->routes[pattern] = fit->routes;
    arf_evidence *evidence = &profile->evidence;
    evidence->route_count[pattern] = fit->routes.count;
    memcpy(evidence->route[pattern], fit->evidence, sizeof fit->evidence);
    evidence->noise = worse(evidence->noise, fit->noise);
    evidence->regret_geomean = worse(evidence->regret_geomean, fit->regret_geomean);
    evidence->regret_max = worse(evidence->regret_max, fit->regret_max);
    for (int i = 0; i < fit->routes.count; i++) {
        const arf_plan *plan = &fit->routes.route[i].plan;
        if (plan->numerics > profile->numerics)
            profile->numerics = plan->numerics;
    }
}

arfuse_status arf_fit_profile(const arf_samples *samples, const arf_fit_options *options,
                              arf_profile **profile, arf_error *error)
{
    arf_profile *made = arf_profile_new();
    if (made == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory while fitting");
    take_header(&samples->header, made);
    arfuse_status status = ARFUSE_OK;
    int fitted = 0;
    for (int pattern = 0; pattern < ARF_PATTERNS && status == ARFUSE_OK; pattern++) {
        /* A pattern that nobody tuned has no routes; whether the shape may do without it is for
         * arf_profile_validate to say. */
        made->routes[pattern].min_tokens = 1;
        if (!has_samples(samples, (arf_pattern)pattern))
            continue;
        arf_fit_result fit;
        status = arf_fit(samples, (arf_pattern)pattern, options, &fit, error);
        if (status == ARFUSE_OK) {
            take_fit(&fit, (arf_pattern)pattern, made);
            fitted++;
        }
    }
    if (status == ARFUSE_NOT_SERVED) { /* who wants a profile has none, whatever the reason */
        status = ARFUSE_FAILURE;
        if (error != NULL)
            error->status = status;
    }
    if (status == ARFUSE_OK && fitted == 0)
        status = arf_fail(error, ARFUSE_FAILURE, "there is no sample to fit");
    if (status == ARFUSE_OK)
        *profile = made;
    else
        arf_profile_free(made);
    return status;
}
