/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating and destroying a workspace. Every step that can fail on one rank ends in a vote, so that
 * all ranks have the workspace or none, with the same status and message.
 */
#include "runtime/workspace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "rules/knobs.h"
#include "rules/sizing.h"

/* The library's first option struct; a caller built against it passes this size or a larger one. */
#define OPTIONS_FIRST_SIZE sizeof(arfuse_options)

/* Copies what the caller's version knows over this version's defaults. */
static arfuse_status take_options(const arfuse_options *from, arfuse_options *to, arf_error *error)
{
    *to = (arfuse_options)ARFUSE_OPTIONS_INIT;
    if (from == NULL)
        return arf_fail(error, ARFUSE_USAGE, "options is NULL, expected ARFUSE_OPTIONS_INIT");
    if (from->struct_size < OPTIONS_FIRST_SIZE)
        return arf_fail(error, ARFUSE_USAGE,
                        "options.struct_size is %zu, expected at least %zu; start from "
                        "ARFUSE_OPTIONS_INIT",
                        from->struct_size, (size_t)OPTIONS_FIRST_SIZE);
    size_t known = from->struct_size < sizeof *to ? from->struct_size : sizeof *to;
    memcpy(to, from, known);
    to->struct_size = sizeof *to;
    return ARFUSE_OK;
}

static arfuse_status in_range(const char *name, int64_t value, int64_t low, int64_t high,
                              arf_error *error)
{
    if (value >= low && value <= high)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_USAGE,
                    "options.%s is %" PRId64 ", expected %" PRId64 " to %" PRId64, name, value, low,
                    high);
}

static arfuse_status check_options(const arfuse_options *options, arf_error *error)
{
    ARF_TRY(in_range("hidden_size", options->hidden_size, ARF_MIN_HIDDEN, ARF_MAX_HIDDEN, error));
    if (options->hidden_size % 8 != 0)
        return arf_fail(error, ARFUSE_USAGE, "options.hidden_size is %d, expected a multiple of 8",
                        options->hidden_size);
    ARF_TRY(in_range("top_k", options->top_k, 0, ARF_MAX_TOP_K, error));
    ARF_TRY(in_range("rms_norm", options->rms_norm, 0, 1, error));
    ARF_TRY(in_range("residual", options->residual, 0, 1, error));
    ARF_TRY(in_range("shared_expert", options->shared_expert, 0, 1, error));
    ARF_TRY(in_range("local_ranks", options->local_ranks, 1, ARF_MAX_RANKS, error));
    ARF_TRY(in_range("capacity", options->capacity, 1, ARF_MAX_TOKENS, error));
    ARF_TRY(in_range("strict", options->strict, 0, 1, error));
    ARF_TRY(
        in_range("routes", (int)options->routes, ARFUSE_ROUTES_AUTO, ARFUSE_ROUTES_UNFUSED, error));
    ARF_TRY(in_range("fallback", (int)options->fallback, ARFUSE_FALLBACK_UNFUSED,
                     ARFUSE_FALLBACK_ERROR, error));
    if (!(options->wait_limit_seconds >= 0) || isinf(options->wait_limit_seconds))
        return arf_fail(error, ARFUSE_USAGE,
                        "options.wait_limit_seconds is %g, expected 0 (none) or a positive number",
                        options->wait_limit_seconds);
    return ARFUSE_OK;
}

static arf_shape shape_of(const arfuse_options *options, int tp_size)
{
    return (arf_shape){
        .tp_size = tp_size,
        .hidden_size = options->hidden_size,
        .top_k = options->top_k,
        .rms_norm = options->rms_norm ? ARF_ON : ARF_OFF,
        .residual = options->residual ? ARF_ON : ARF_OFF,
        .shared_expert = options->shared_expert ? ARF_ON : ARF_OFF,
    };
}

/* What all ranks must have passed alike, besides the profile. */
static uint64_t options_digest(const arfuse_options *options)
{
    uint64_t hash = ARF_HASH_INIT;
    hash = arf_hash_number(hash, options->hidden_size);
    hash = arf_hash_number(hash, options->top_k);
    hash = arf_hash_number(hash, options->rms_norm);
    hash = arf_hash_number(hash, options->residual);
    hash = arf_hash_number(hash, options->shared_expert);
    hash = arf_hash_number(hash, options->capacity);
    return arf_hash_number(hash, (int64_t)options->fallback);
}

static arfuse_status choose_routes(arfuse_workspace *workspace, const arf_shape *shape,
                                   arf_error *error)
{
    const arfuse_options *options = &workspace->options;
    arf_log silent = {NULL, NULL, ARFUSE_LOG_ERROR};
    arf_choice_request request = {
        .key = {.set = arf_device_set(workspace->device), .shape = *shape},
        .problem = arf_device_problem(workspace->device, shape),
        .capacity = options->capacity,
        .profile = options->profile,
        .profile_path = options->profile_path,
        .routes = options->routes,
        .strict = options->strict != 0,
        .log = workspace->team.bootstrap.rank == 0 ? &workspace->log : &silent,
    };
    workspace->device->ops->describe(workspace->device, &request.key.device);
    arfuse_status status = arf_choose(&request, &workspace->choice, error);
    ARF_TRY(arf_team_vote(&workspace->team, status, error));
    const arf_profile *profile = workspace->choice.profile;
    return arf_team_agree(&workspace->team, "profile",
                          profile == NULL ? 0 : arf_profile_digest(profile), error);
}

static arfuse_status make_space(arfuse_workspace *workspace, const arf_shape *shape,
                                arf_error *error)
{
    arf_space_spec spec = {
        .shape = *shape,
        .numerics = ARF_FIXED,
        .wait_limit_seconds = workspace->options.wait_limit_seconds,
    };
    const arf_profile *profile = workspace->choice.profile;
    if (profile != NULL) {
        spec.numerics = profile->numerics;
        for (int p = 0; p < ARF_PROTOCOLS; p++)
            spec.capacity[p] = arf_protocol_capacity(profile->routes, (arf_protocol)p,
                                                     workspace->options.capacity);
    }
    /* Unfused serves what no route does, whatever the profile says, in chunks of the capacity. */
    workspace->chunk = workspace->options.capacity;
    spec.capacity[ARF_UNFUSED] = workspace->chunk;
    return workspace->device->ops->space_create(workspace->device, &spec, &workspace->space, error);
}

static arfuse_status prepare_pattern(arfuse_workspace *workspace, arf_pattern pattern,
                                     arf_error *error)
{
    const arf_device_ops *ops = workspace->device->ops;
    arf_pattern_plans *plans = &workspace->plans[pattern];
    arf_set set = arf_device_set(workspace->device);
    arf_plan unfused = {
        .protocol = ARF_UNFUSED,
        .tuning = arf_tuning_fallback(arf_knobs(set, ARF_UNFUSED, pattern)),
    };
    ARF_TRY(ops->prepare(workspace->space, pattern, &unfused, &plans->unfused, error));
    const arf_profile *profile = workspace->choice.profile;
    if (profile == NULL)
        return ARFUSE_OK;
    const arf_routes *routes = &profile->routes[pattern];
    for (int i = 0; i < routes->count; i++)
        ARF_TRY(ops->prepare(workspace->space, pattern, &routes->route[i].plan, &plans->plan[i],
                             error));
    return ARFUSE_OK;
}

static arfuse_status prepare_plans(arfuse_workspace *workspace, arf_error *error)
{
    arfuse_status status = prepare_pattern(workspace, ARF_ALLREDUCE, error);
    if (status == ARFUSE_OK && workspace->options.top_k > 0)
        status = prepare_pattern(workspace, ARF_FINALIZE, error);
    return arf_team_vote(&workspace->team, status, error);
}

static void release(arfuse_workspace *workspace)
{
    if (workspace->space != NULL)
        workspace->device->ops->space_destroy(workspace->space);
    arf_device_close(workspace->device);
    arf_choice_clear(&workspace->choice);
    free(workspace);
}

static arfuse_status build(arfuse_workspace *workspace, const arfuse_bootstrap *bootstrap,
                           arf_error *error)
{
    const arfuse_options *options = &workspace->options;
    arf_team *team = &workspace->team;
    ARF_TRY(arf_team_create(bootstrap, options->local_ranks, team, error));
    ARF_TRY(arf_team_vote(team, check_options(options, error), error));
    ARF_TRY(arf_team_agree(team, "shape, switches and capacity", options_digest(options), error));

    arf_device_options device = {
        .spec = options->device != NULL ? options->device : "auto",
        .cuda_ordinal = options->cuda_ordinal,
        .gpu_sharing = options->local_ranks > 1,
        .log = &workspace->log,
    };
    ARF_TRY(arf_device_open(&device, team, &workspace->device, error));
    arf_shape shape = shape_of(options, team->tp_size);
    ARF_TRY(choose_routes(workspace, &shape, error));
    ARF_TRY(make_space(workspace, &shape, error));
    return prepare_plans(workspace, error);
}

arfuse_status arfuse_workspace_create(const arfuse_bootstrap *bootstrap,
                                      const arfuse_options *options, arfuse_workspace **workspace,
                                      arfuse_error *error)
{
    arf_error_clear(error);
    if (workspace == NULL)
        return arf_fail(error, ARFUSE_USAGE, "workspace is NULL, expected where to put the handle");
    arfuse_workspace *made = calloc(1, sizeof *made);
    if (made == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for a workspace");
    arf_error own = ARF_ERROR_INIT; /* votes carry messages even when the caller wants none */
    arfuse_status status = take_options(options, &made->options, &own);
    if (status == ARFUSE_OK) {
        made->log =
            (arf_log){made->options.log, made->options.log_context, made->options.log_level};
        status = build(made, bootstrap, &own);
    }
    if (status != ARFUSE_OK) {
        release(made);
        if (error != NULL)
            *error = own;
        return status;
    }
    /* The strings are the caller's and may go away now. */
    made->options.device = made->options.profile = made->options.profile_path = NULL;
    if (made->team.bootstrap.rank == 0)
        arf_logf(&made->log, ARFUSE_LOG_INFO, "routes by %s", made->choice.source);
    *workspace = made;
    return ARFUSE_OK;
}

arfuse_status arfuse_workspace_destroy(arfuse_workspace *workspace, arfuse_error *error)
{
    arf_error_clear(error);
    if (workspace != NULL)
        release(workspace);
    return ARFUSE_OK;
}

arfuse_status arfuse_workspace_status(const arfuse_workspace *workspace, arfuse_culprit *culprit)
{
    if (workspace == NULL)
        return ARFUSE_USAGE;
    return workspace->device->ops->state(workspace->space, culprit);
}
