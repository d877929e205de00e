/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/read.h"
#include "rules/candidates.h"
#include "rules/knobs.h"

/* An option beats the environment; empty means "not set" in both. */
static const char *option_or_environment(const char *option, const char *variable)
{
    const char *value = option != NULL && option[0] != '\0' ? option : getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static arfuse_status routes_mode(arfuse_routes option, arfuse_routes *mode, arf_error *error)
{
    *mode = option;
    if (option != ARFUSE_ROUTES_AUTO)
        return ARFUSE_OK;
    const char *value = option_or_environment(NULL, "ARFUSE_ROUTES");
    if (value == NULL || strcmp(value, "profile") == 0)
        *mode = ARFUSE_ROUTES_PROFILE;
    else if (strcmp(value, "default") == 0)
        *mode = ARFUSE_ROUTES_DEFAULT;
    else if (strcmp(value, "unfused") == 0)
        *mode = ARFUSE_ROUTES_UNFUSED;
    else
        return arf_fail(error, ARFUSE_USAGE,
                        "environment ARFUSE_ROUTES is \"%s\", expected profile, default or unfused",
                        value);
    return ARFUSE_OK;
}

static arfuse_status named_profile(const arf_choice_request *request, const char *path,
                                   arf_choice *choice, arf_error *error)
{
    ARF_TRY(arf_profile_load(path, &choice->profile, error));
    char reason[ARF_REASON_TEXT];
    if (arf_profile_matches(choice->profile, &request->key, reason)) {
        snprintf(choice->source, sizeof choice->source, "%s", path);
        return ARFUSE_OK;
    }
    arf_choice_clear(choice);
    return arf_fail(error, ARFUSE_PROFILE,
                    "%s is not usable here: %s; name the profile of this shape and machine, or none"
                    " to search for it",
                    path, reason);
}

/* Routes by the rules for a shape that nobody measured. */
static arfuse_status synthesise(const arf_choice_request *request, arf_choice *choice,
                                arf_error *error)
{
    arf_profile *profile = arf_profile_new();
    if (profile == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for a profile");
    profile->set = request->key.set;
    profile->shape = request->key.shape;
    profile->device = request->key.device;
    profile->evidence.method = ARF_DEFAULT;
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        profile->version[p] = arf_protocol_version(profile->set, (arf_protocol)p);
    for (int p = 0; p < ARF_PATTERNS; p++)
        if (p == ARF_ALLREDUCE || profile->shape.top_k > 0)
            arf_default_routes(&request->problem, (arf_pattern)p, request->capacity,
                               &profile->routes[p]);
    choice->profile = profile;
    snprintf(choice->source, sizeof choice->source, "default routes of the rules, unmeasured");
    return ARFUSE_OK;
}

static arfuse_status searched_profile(const arf_choice_request *request, arf_choice *choice,
                                      arf_error *error)
{
    char folders[ARF_PATH_TEXT], key[512];
    arf_found found;
    ARF_TRY(arf_profile_folders(request->profile_path, folders, sizeof folders, error));
    ARF_TRY(arf_profile_find(&request->key, folders, request->log, &found, &choice->profile,
                             choice->source, sizeof choice->source, error));
    if (found == ARF_FOUND_EXACT)
        return ARFUSE_OK;

    char nearest[ARF_PATH_TEXT + 32] = "none of the same link";
    if (found == ARF_FOUND_NEAREST)
        snprintf(nearest, sizeof nearest, "%s", choice->source);
    arf_choice_clear(choice);
    arf_profile_key_text(&request->key, key, sizeof key);
    const arf_shape *shape = &request->key.shape;
    char message[2 * ARF_PATH_TEXT];
    snprintf(message, sizeof message,
             "no profile for %s in %s (nearest: %s); measure one with: mpirun -n %d arfuse-tune "
             "--hidden %d --topk %d",
             key, folders, nearest, shape->tp_size, shape->hidden_size, shape->top_k);
    if (request->strict)
        return arf_fail(error, ARFUSE_PROFILE, "%s", message);
    arf_logf(request->log, ARFUSE_LOG_WARNING, "%s; until then default routes are used", message);
    return synthesise(request, choice, error);
}

arfuse_status arf_choose(const arf_choice_request *request, arf_choice *choice, arf_error *error)
{
    arfuse_routes mode;
    ARF_TRY(routes_mode(request->routes, &mode, error));
    memset(choice, 0, sizeof *choice);
    if (mode == ARFUSE_ROUTES_UNFUSED) {
        snprintf(choice->source, sizeof choice->source, "the switch that turns all routes off");
        return ARFUSE_OK;
    }
    if (mode == ARFUSE_ROUTES_DEFAULT)
        return synthesise(request, choice, error);
    const char *path = option_or_environment(request->profile, "ARFUSE_PROFILE");
    return path != NULL ? named_profile(request, path, choice, error)
                        : searched_profile(request, choice, error);
}

void arf_choice_clear(arf_choice *choice)
{
    arf_profile_free(choice->profile);
    memset(choice, 0, sizeof *choice);
}
