/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating and destroying a workspace. Every step that can fail on one rank ends in a vote, so that
 * all ranks have the workspace or none, with the same status and message.
 */
#include "runtime/workspace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "rules/knobs.h"
#include "rules/sizing.h"
#include "runtime/agree.h"
#include "runtime/environment.h"
#include "runtime/explain.h"
#include "runtime/options.h"

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

/* ---- routes ---------------------------------------------------------------------------------- */

/* Every rank must run by the same routes; the message names both digests, their files and ranks. */
static arfuse_status agree_routes(const arfuse_workspace *workspace, arf_error *error)
{
    const arf_profile *profile = workspace->choice.profile;
    const uint64_t digest = profile == NULL ? 0 : arf_profile_digest(profile);
    arfuse_status status = arf_team_agree(&workspace->team, "profile", digest, error);
    if (status != ARFUSE_DISAGREE)
        return status;
    arf_error_clear(error);
    arf_fail(error, status, "routes %016" PRIx64 " from %s", digest,
             workspace->choice.source[ARF_ALLREDUCE]);
    status = arf_team_vote(&workspace->team, status, error);
    arf_error_prefix(error, "profile: the ranks disagree");
    return status;
}

/* Ranks that would run different kernels would give each other nothing that fits. */
static arfuse_status agree_device(const arfuse_workspace *workspace, arf_error *error)
{
    arf_device_evidence evidence = {.driver = ""};
    arf_device_key key;
    workspace->device->ops->describe(workspace->device, &key);
    workspace->device->ops->evidence(workspace->device, &evidence);
    arf_fields fields = {0};
    arf_field_bits(&fields, "the digest of its name", arf_hash_text(ARF_HASH_INIT, key.name));
    arf_field_bits(&fields, "the digest of its kernels",
                   arf_hash_text(ARF_HASH_INIT, evidence.source_digest));
    return arf_agree(&workspace->team, "device", &fields, error);
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
        .routes = {options->routes[0], options->routes[1]},
        .strict = options->strict != 0,
        .log = workspace->team.bootstrap.rank == 0 ? &workspace->log : &silent,
    };
    workspace->device->ops->describe(workspace->device, &request.key.device);
    arfuse_status status = arf_choose(&request, &workspace->choice, error);
    ARF_TRY(arf_team_vote(&workspace->team, status, error));
    return agree_routes(workspace, error);
}

/* ---- space and plans ------------------------------------------------------------------------- */

/* The weakest numerics of the routes, and the room that each protocol's routes ask for. */
static void ask_of_routes(const arf_routes routes[ARF_PATTERNS], int64_t capacity,
                          arf_space_spec *spec)
{
    for (int p = 0; p < ARF_PATTERNS; p++)
        for (int i = 0; i < routes[p].count; i++)
            if (routes[p].route[i].plan.numerics > spec->numerics)
                spec->numerics = routes[p].route[i].plan.numerics;
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        spec->capacity[p] = arf_protocol_capacity(routes, (arf_protocol)p, capacity);
}

static arfuse_status make_space(arfuse_workspace *workspace, const arf_shape *shape,
                                arf_error *error)
{
    arf_space_spec spec = {
        .shape = *shape,
        .numerics = ARF_FIXED,
        .wait_limit_seconds = workspace->options.wait_limit_seconds,
        .check_order = workspace->options.check_order != 0,
    };
    memcpy(spec.label, workspace->label, sizeof spec.label);
    if (workspace->choice.profile != NULL)
        ask_of_routes(workspace->choice.profile->routes, workspace->options.capacity, &spec);
    /* Unfused serves what no route does, whatever the profile says, in pieces of the capacity. */
    spec.capacity[ARF_UNFUSED] = workspace->options.capacity;
    return workspace->device->ops->space_create(workspace->device, &spec, &workspace->space, error);
}

/* Which routes any rank cannot run goes for all of them. */
static arfuse_status agree_lacking(arfuse_workspace *workspace, arf_pattern pattern,
                                   const char *reason, arf_error *error)
{
    arf_pattern_plans *plans = &workspace->plans[pattern];
    uint64_t all[ARF_MAX_RANKS];
    ARF_TRY(
        arf_team_allgather(&workspace->team, &plans->lacking, all, sizeof plans->lacking, error));
    const uint64_t own = plans->lacking;
    for (int process = 0; process < workspace->team.bootstrap.size; process++)
        plans->lacking |= all[process];
    if (plans->lacking != 0 && workspace->team.bootstrap.rank == 0)
        arf_logf(&workspace->log, ARFUSE_LOG_WARNING,
                 "%s: some routes run unfused, since this device lacks what they need: %s",
                 arf_pattern_name(pattern), own != 0 ? reason : "another rank says so");
    return ARFUSE_OK;
}

static arfuse_status prepare_pattern(arfuse_workspace *workspace, arf_pattern pattern,
                                     arf_error *error)
{
    const arf_device_ops *ops = workspace->device->ops;
    arf_pattern_plans *plans = &workspace->plans[pattern];
    const arf_set set = arf_device_set(workspace->device);
    const arf_plan unfused = {
        .protocol = ARF_UNFUSED,
        .tuning = arf_tuning_fallback(arf_knobs(set, ARF_UNFUSED, pattern)),
    };
    const arf_routes *routes = arf_routes_of(workspace, pattern);
    const int count = routes == NULL ? 0 : routes->count;
    arf_error lacks = ARF_ERROR_INIT;
    arfuse_status status =
        ops->prepare(workspace->space, pattern, &unfused, &plans->unfused, error);
    for (int i = 0; i < count && status == ARFUSE_OK; i++) {
        arf_error own = ARF_ERROR_INIT;
        const arf_plan *plan = &routes->route[i].plan;
        arfuse_status prepared =
            ops->prepare(workspace->space, pattern, plan, &plans->plan[i], &own);
        if (prepared == ARFUSE_NOT_SUPPORTED) {
            plans->lacking |= UINT64_C(1) << i;
            lacks = own;
        } else if (prepared != ARFUSE_OK) {
            status = arf_fail(error, prepared, "%s, %s route %d (%s): %s",
                              workspace->choice.source[pattern], arf_pattern_name(pattern), i,
                              arf_protocol_name(plan->protocol), own.text);
        }
    }
    ARF_TRY(arf_team_vote(&workspace->team, status, error));
    return agree_lacking(workspace, pattern, lacks.text, error);
}

/* ---- create ---------------------------------------------------------------------------------- */

/* What this process has for itself: sites, tickets, scratch of checks. */
static arfuse_status make_own(arfuse_workspace *workspace, arf_error *error)
{
    const arfuse_options *options = &workspace->options;
    if (options->checked) {
        workspace->row = malloc((size_t)options->hidden_size * 2);
        if (workspace->row == NULL)
            return arf_fail(error, ARFUSE_FAILURE, "out of memory for checked mode");
    }
    ARF_TRY(arf_sites_create(options->sites, options->site_count,
                             arf_environment("ARFUSE_SITES_OFF"), &workspace->sites, error));
    ARF_TRY(arf_deferred_create(workspace, error));
    return arf_shadow_create(workspace, error);
}

static void release(arfuse_workspace *workspace)
{
    if (workspace->device != NULL) {
        arf_shadow_free(workspace);
        arf_deferred_free(workspace);
    }
    arf_sites_free(&workspace->sites);
    free(workspace->row);
    if (workspace->space != NULL)
        workspace->device->ops->space_destroy(workspace->space);
    arf_device_close(workspace->device);
    arf_choice_clear(&workspace->choice);
    free(workspace);
}

/* `status` is what taking the options gave: voted on, so that no rank waits for one that left. */
static arfuse_status build(arfuse_workspace *workspace, const arfuse_bootstrap *bootstrap,
                           arf_open_device open, arfuse_status status, arf_error *error)
{
    arfuse_options *options = &workspace->options;
    arf_team *team = &workspace->team;
    ARF_TRY(
        arf_team_create(bootstrap, status == ARFUSE_OK ? options->local_ranks : 1, team, error));
    if (status == ARFUSE_OK)
        status = arf_options_complete(options, error);
    ARF_TRY(arf_team_vote(team, status, error));
    arf_options_label(options, workspace->label);
    ARF_TRY(arf_options_agree(team, options, error));
    if (team->bootstrap.rank == 0)
        arf_environment_warn(&workspace->log);

    arf_device_options device = {
        .spec = options->device != NULL ? options->device : "auto",
        .cuda_ordinal = options->cuda_ordinal,
        .gpu_sharing = options->gpu_sharing || options->local_ranks > 1,
        .log = &workspace->log,
    };
    ARF_TRY(open(&device, team, &workspace->device, error));
    workspace->profiled = workspace->device->ops->profiled != NULL &&
                          workspace->device->ops->profiled(workspace->device);
    ARF_TRY(agree_device(workspace, error));
    const arf_shape shape = shape_of(options, team->tp_size);
    ARF_TRY(choose_routes(workspace, &shape, error));
    ARF_TRY(make_space(workspace, &shape, error));
    ARF_TRY(prepare_pattern(workspace, ARF_ALLREDUCE, error));
    if (options->top_k > 0)
        ARF_TRY(prepare_pattern(workspace, ARF_FINALIZE, error));
    return arf_team_vote(team, make_own(workspace, error), error);
}

static void log_map(const arfuse_workspace *workspace)
{
    char map[ARF_PATTERNS][ARF_PATH_TEXT] = {{0}};
    if (workspace->team.bootstrap.rank != 0 || workspace->log.level < ARFUSE_LOG_INFO)
        return;
    arf_map_text(workspace, ARF_ALLREDUCE, map[0], sizeof map[0]);
    if (workspace->options.top_k > 0)
        arf_map_text(workspace, ARF_FINALIZE, map[1], sizeof map[1]);
    arf_logf(&workspace->log, ARFUSE_LOG_INFO, "%s: %d ranks, hidden size %d, on %s: %s%s%s",
             workspace->label, workspace->team.tp_size, workspace->options.hidden_size,
             workspace->device->ops->name, map[0], map[1][0] != '\0' ? "; " : "", map[1]);
}

static arfuse_status check_bootstrap(const arfuse_bootstrap *bootstrap, arf_error *error)
{
    if (bootstrap == NULL || bootstrap->struct_size >= sizeof *bootstrap)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_USAGE,
                    "bootstrap.struct_size is %zu, expected at least %zu; start from "
                    "ARFUSE_BOOTSTRAP_INIT",
                    bootstrap->struct_size, sizeof *bootstrap);
}

arfuse_status arf_workspace_make(const arfuse_bootstrap *bootstrap, const arfuse_options *options,
                                 arf_open_device open, arfuse_workspace **workspace,
                                 arf_error *error)
{
    static const arfuse_bootstrap alone = ARFUSE_BOOTSTRAP_INIT;
    arf_error_clear(error);
    if (workspace == NULL)
        return arf_fail(error, ARFUSE_USAGE, "workspace is NULL, expected where to put the handle");
    ARF_TRY(check_bootstrap(bootstrap, error));
    arfuse_workspace *made = calloc(1, sizeof *made);
    if (made == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for a workspace");
    arf_error own = ARF_ERROR_INIT; /* votes carry messages even when the caller wants none */
    arfuse_status status = arf_options_take(options, &made->options, &own);
    made->log = (arf_log){made->options.log, made->options.log_context, made->options.log_level};
    status = build(made, bootstrap != NULL ? bootstrap : &alone, open, status, &own);
    if (status != ARFUSE_OK) {
        release(made);
        if (error != NULL)
            *error = own;
        return status;
    }
    log_map(made);
    /* The strings are the caller's and may go away now. */
    made->options.device = made->options.profile = made->options.profile_path = NULL;
    made->options.label = NULL;
    made->options.sites = NULL;
    *workspace = made;
    return ARFUSE_OK;
}

arfuse_status arfuse_workspace_create(const arfuse_bootstrap *bootstrap,
                                      const arfuse_options *options, arfuse_workspace **workspace,
                                      arfuse_error *error)
{
    return arf_workspace_make(bootstrap, options, arf_device_open, workspace, error);
}

arfuse_status arfuse_workspace_destroy(arfuse_workspace **workspace, arfuse_error *error)
{
    arf_error_clear(error);
    if (workspace == NULL || *workspace == NULL)
        return ARFUSE_OK;
    const arf_device_ops *ops = (*workspace)->device->ops;
    const int graphs = ops->graphs != NULL ? ops->graphs((*workspace)->space) : 0;
    if (graphs > 0)
        return arf_fail(
            error, ARFUSE_IN_USE,
            "%d captured graph%s of calls of this workspace still exist%s; destroy them "
            "and what was instantiated from them first",
            graphs, graphs == 1 ? "" : "s", graphs == 1 ? "s" : "");
    arfuse_status status = arf_deferred_drop(*workspace, "found when it was destroyed", error);
    release(*workspace);
    *workspace = NULL;
    return status;
}

/* ---- asking ---------------------------------------------------------------------------------- */

arfuse_status arfuse_workspace_status(const arfuse_workspace *workspace, arfuse_culprit *culprit)
{
    if (workspace == NULL)
        return ARFUSE_USAGE;
    arfuse_status status = workspace->device->ops->state(workspace->space, culprit);
    return status == ARFUSE_OK && workspace->failed ? ARFUSE_FAILED : status;
}

arfuse_status arfuse_workspace_use_stream(arfuse_workspace *workspace, arfuse_stream stream,
                                          arfuse_error *error)
{
    arf_error_clear(error);
    if (workspace == NULL)
        return arf_fail(error, ARFUSE_USAGE, "workspace is NULL");
    ARF_TRY(arf_check_stream(workspace, "stream", stream, error));
    workspace->stream = stream;
    workspace->has_stream = true;
    return ARFUSE_OK;
}

/* Above the last fused route nothing is both fused and whole. */
static int64_t fused_tokens(const arfuse_workspace *workspace, arf_pattern pattern)
{
    const arf_routes *routes = arf_routes_of(workspace, pattern);
    for (int i = routes == NULL ? -1 : routes->count - 1; i >= 0; i--) {
        int64_t most = routes->route[i].max_tokens;
        arfuse_call call = ARFUSE_CALL_INIT;
        call.tokens = most < workspace->options.capacity ? most : workspace->options.capacity;
        arf_service service = arf_serve(workspace, pattern, &call);
        if (service.fused && service.chunk >= call.tokens)
            return call.tokens;
    }
    return 0;
}

arfuse_status arfuse_workspace_info(const arfuse_workspace *workspace, arfuse_info *info)
{
    if (workspace == NULL || info == NULL || info->struct_size < sizeof info->struct_size)
        return ARFUSE_USAGE;
    arf_device_key key;
    workspace->device->ops->describe(workspace->device, &key);
    arfuse_info full = ARFUSE_INFO_INIT;
    full.tp_size = workspace->team.tp_size;
    full.first_rank = workspace->team.first_rank;
    full.local_ranks = workspace->team.local_ranks;
    snprintf(full.device, sizeof full.device, "%s", key.name);
    for (int p = 0; p < ARF_PATTERNS; p++) {
        const arf_routes *routes = arf_routes_of(workspace, (arf_pattern)p);
        full.routes[p] = routes == NULL ? 0 : routes->count;
        full.fused_tokens[p] = fused_tokens(workspace, (arf_pattern)p);
    }
    const size_t size = info->struct_size;
    memcpy(info, &full, size < sizeof full ? size : sizeof full);
    info->struct_size = size;
    return ARFUSE_OK;
}
