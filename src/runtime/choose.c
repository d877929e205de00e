/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/choose.h"

#include <stdio.h>
#include <string.h>

#include "profile/read.h"
#include "rules/candidates.h"
#include "rules/knobs.h"
#include "rules/retarget.h"
#include "runtime/environment.h"

/* Routes that were not measured close here at the latest (design section 7). */
#define RETARGET_END 8192

static bool has_pattern(const arf_choice_request *request, int pattern)
{
    return pattern == ARF_ALLREDUCE || request->key.shape.top_k > 0;
}

/* Says where a pattern's routes are from. */
static void set_source(arf_choice *choice, int pattern, arf_method method, const char *source)
{
    choice->method[pattern] = method;
    snprintf(choice->source[pattern], sizeof choice->source[pattern], "%.*s", ARF_PATH_TEXT - 1,
             source);
}

/* An empty profile of the key. */
static arfuse_status new_profile(const arf_choice_request *request, arf_profile **profile,
                                 arf_error *error)
{
    *profile = arf_profile_new();
    if (*profile == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for a profile");
    (*profile)->set = request->key.set;
    (*profile)->shape = request->key.shape;
    (*profile)->device = request->key.device;
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        (*profile)->version[p] = arf_protocol_version(request->key.set, (arf_protocol)p);
    return ARFUSE_OK;
}

/* Routes by the rules, for a pattern that nobody measured. */
static void default_routes(const arf_choice_request *request, int pattern, arf_choice *choice)
{
    arf_routes *routes = &choice->profile->routes[pattern];
    *routes = (arf_routes){0};
    if (has_pattern(request, pattern))
        arf_default_routes(&request->problem, (arf_pattern)pattern, request->capacity, routes);
    set_source(choice, pattern, ARF_DEFAULT, "default routes of the rules, unmeasured");
}

static arfuse_status named_profile(const arf_choice_request *request, const char *path,
                                   arf_choice *choice, arf_error *error)
{
    ARF_TRY(arf_profile_load(path, &choice->profile, error));
    char reason[ARF_REASON_TEXT];
    if (!arf_profile_matches(choice->profile, &request->key, reason))
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s is not usable here: %s; name the profile of this shape and machine, or "
                        "none to search for it",
                        path, reason);
    for (int p = 0; p < ARF_PATTERNS; p++)
        set_source(choice, p, choice->profile->evidence.method, path);
    return ARFUSE_OK;
}

/* The command that would measure what is missing. */
static void command_text(const arf_choice_request *request, char *text, size_t size)
{
    const arf_shape *shape = &request->key.shape;
    char topk[24] = "";
    if (shape->top_k > 0)
        snprintf(topk, sizeof topk, " --topk %d", shape->top_k);
    snprintf(text, size, "mpirun -n %d arfuse-tune --hidden %d%s%s%s%s%s", shape->tp_size,
             shape->hidden_size, topk, shape->rms_norm == ARF_ON ? "" : " --no-norm",
             shape->residual == ARF_ON ? "" : " --no-residual",
             shape->shared_expert == ARF_ON ? "" : " --no-shared-expert",
             request->key.set == ARF_SET_HOST ? " --device host" : "");
}

/* What was not simply carried over, a sentence a line. */
static void log_notes(const arf_log *log, const char *path, const char *notes)
{
    while (*notes != '\0') {
        size_t length = strcspn(notes, "\n");
        arf_logf(log, ARFUSE_LOG_INFO, "from %s: %.*s", path, (int)length, notes);
        notes += length + (notes[length] == '\n');
    }
}

/* The routes of another shape carried over; false when no rule can, with the reason logged. */
static bool retarget(const arf_choice_request *request, const arf_profile *nearest,
                     const char *path, arf_choice *choice)
{
    const arf_problem from = arf_profile_problem(nearest);
    const int64_t end = request->capacity < RETARGET_END ? request->capacity : RETARGET_END;
    char notes[ARF_RETARGET_NOTES], source[ARF_PATH_TEXT + 64];
    arf_error error = ARF_ERROR_INIT;
    arf_routes *routes = choice->profile->routes;
    if (arf_retarget(&from, nearest->routes, &request->problem, ARF_RETARGET_SCALED, end, routes,
                     notes, &error) != ARFUSE_OK) {
        arf_logf(request->log, ARFUSE_LOG_INFO, "%s cannot be carried over: %s", path, error.text);
        return false;
    }
    log_notes(request->log, path, notes);
    snprintf(source, sizeof source, "routes of %s carried over, unmeasured", path);
    for (int p = 0; p < ARF_PATTERNS; p++) {
        if (!has_pattern(request, p))
            routes[p] = (arf_routes){0};
        set_source(choice, p, ARF_RETARGETED, source);
    }
    return true;
}

/* No profile of this key: the nearest one's routes carried over, or those of the rules. */
static arfuse_status make_up(const arf_choice_request *request, const arf_profile *nearest,
                             const char *path, arf_choice *choice, arf_error *error)
{
    ARF_TRY(new_profile(request, &choice->profile, error));
    if (nearest != NULL && retarget(request, nearest, path, choice))
        return ARFUSE_OK;
    for (int p = 0; p < ARF_PATTERNS; p++)
        default_routes(request, p, choice);
    return ARFUSE_OK;
}

static arfuse_status searched_profile(const arf_choice_request *request, arf_choice *choice,
                                      arf_error *error)
{
    char folders[ARF_PATH_TEXT], path[ARF_PATH_TEXT];
    arf_found found;
    arf_profile *profile = NULL;
    ARF_TRY(arf_profile_folders(request->profile_path, folders, sizeof folders, error));
    ARF_TRY(arf_profile_find(&request->key, folders, request->log, &found, &profile, path,
                             sizeof path, error));
    if (found == ARF_FOUND_EXACT) {
        choice->profile = profile;
        for (int p = 0; p < ARF_PATTERNS; p++)
            set_source(choice, p, profile->evidence.method, path);
        return ARFUSE_OK;
    }

    char key[512], command[256];
    arf_profile_key_text(&request->key, key, sizeof key);
    command_text(request, command, sizeof command);
    /* One that was refused, for its version too, has a warning of its own with the reason. */
    const char *nearest =
        found == ARF_FOUND_NEAREST ? path : "none of the same link that can be used";
    arfuse_status status;
    if (request->strict)
        status = arf_fail(error, ARFUSE_PROFILE,
                          "no profile for %s in %s (nearest: %s); measure one with: %s", key,
                          folders, nearest, command);
    else
        status = make_up(request, found == ARF_FOUND_NEAREST ? profile : NULL, path, choice, error);
    if (status == ARFUSE_OK)
        arf_logf(request->log, ARFUSE_LOG_WARNING,
                 "no profile for %s in %s (nearest: %s); measure one with: %s; until then: %s", key,
                 folders, nearest, command, choice->source[ARF_ALLREDUCE]);
    arf_profile_free(profile);
    return status;
}

arfuse_status arf_choose(const arf_choice_request *request, arf_choice *choice, arf_error *error)
{
    memset(choice, 0, sizeof *choice);
    bool from_profile = false, from_rules = false;
    for (int p = 0; p < ARF_PATTERNS; p++)
        if (has_pattern(request, p)) {
            from_profile = from_profile || request->routes[p] == ARFUSE_ROUTES_PROFILE;
            from_rules = from_rules || request->routes[p] == ARFUSE_ROUTES_DEFAULT;
        }
    if (from_profile) {
        bool named = request->profile != NULL && request->profile[0] != '\0';
        const char *path = named ? request->profile : arf_environment("ARFUSE_PROFILE");
        ARF_TRY(path != NULL ? named_profile(request, path, choice, error)
                             : searched_profile(request, choice, error));
    } else if (from_rules) {
        ARF_TRY(new_profile(request, &choice->profile, error));
    }
    for (int p = 0; p < ARF_PATTERNS; p++) {
        if (request->routes[p] == ARFUSE_ROUTES_DEFAULT && choice->profile != NULL)
            default_routes(request, p, choice);
        if (request->routes[p] != ARFUSE_ROUTES_UNFUSED)
            continue;
        if (choice->profile != NULL)
            choice->profile->routes[p].count = 0;
        set_source(choice, p, ARF_DEFAULT, "the switch that turns these routes off");
    }
    return ARFUSE_OK;
}

void arf_choice_clear(arf_choice *choice)
{
    arf_profile_free(choice->profile);
    memset(choice, 0, sizeof *choice);
}
