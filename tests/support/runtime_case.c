/* SPDX-License-Identifier: Apache-2.0 */
#include "support/runtime_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/write.h"
#include "rules/knobs.h"
#include "support/device_case.h"
#include "support/scratch.h"

static void add(arf_profile *profile, arf_pattern pattern, arf_protocol protocol, int64_t bound)
{
    arf_routes *routes = &profile->routes[pattern];
    routes->min_tokens = 1;
    routes->route[routes->count++] = (arf_route){
        bound, case_plan(profile->set, &profile->shape, pattern, protocol, routes->count % 2)};
}

arf_profile *case_profile(const arf_shape *shape)
{
    arf_profile *profile = arf_profile_new();
    if (profile == NULL)
        abort();
    profile->set = ARF_SET_HOST;
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        profile->version[p] = arf_protocol_version(profile->set, (arf_protocol)p);
    profile->shape = *shape;
    profile->device =
        (arf_device_key){.name = "host", .link = ARF_LINK_SHM, .nodes = 1, .ranks_per_gpu = 1};
    profile->evidence.method = ARF_MEASURED;
    add(profile, ARF_ALLREDUCE, ARF_LL, 4);
    add(profile, ARF_ALLREDUCE, ARF_BT, 12);
    add(profile, ARF_ALLREDUCE, ARF_HT, 24);
    add(profile, ARF_ALLREDUCE, ARF_UNFUSED, 30);
    if (shape->top_k == 0)
        return profile;
    add(profile, ARF_FINALIZE, ARF_LL, 3);
    add(profile, ARF_FINALIZE, ARF_SEPARATE, 14);
    add(profile, ARF_FINALIZE, ARF_BT, 20);
    add(profile, ARF_FINALIZE, ARF_HT, 28);
    return profile;
}

void case_save(const arf_profile *profile, char path[256])
{
    arf_error error = ARF_ERROR_INIT;
    scratch_make(path);
    strcat(path, "/profile.json");
    if (arf_profile_save(profile, path, &error) != ARFUSE_OK) {
        fprintf(stderr, "%s\n", error.text);
        abort();
    }
}

void case_write(const char *text, char path[256])
{
    scratch_make(path);
    strcat(path, "/profile.json");
    FILE *file = fopen(path, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
        abort();
}

void case_remove(const char *path)
{
    char folder[256];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    scratch_remove(folder);
}

arfuse_options case_options(const arf_shape *shape, int64_t capacity)
{
    arfuse_options options = ARFUSE_OPTIONS_INIT;
    options.hidden_size = shape->hidden_size;
    options.top_k = shape->top_k;
    options.rms_norm = shape->rms_norm == ARF_ON;
    options.residual = shape->residual == ARF_ON;
    options.shared_expert = shape->shared_expert == ARF_ON;
    options.local_ranks = shape->tp_size;
    options.capacity = capacity;
    options.device = "host";
    options.wait_limit_seconds = 30;
    return options;
}

arfuse_call case_call_of(const arf_trial *trial, int64_t tokens)
{
    arf_launch launch = arf_trial_launch(trial, ARF_ALLREDUCE, tokens);
    arfuse_call call = ARFUSE_CALL_INIT;
    call.tokens = tokens;
    call.epsilon = launch.epsilon;
    call.weight_bias = launch.weight_bias;
    call.routed_scale = launch.routed_scale;
    return call;
}

arfuse_status case_run(arfuse_workspace *workspace, arf_trial *trial, arfuse_pattern pattern,
                       arfuse_call call, arf_error *error)
{
    ARF_TRY(arf_trial_poison(trial, error));
    ARF_TRY((pattern == ARFUSE_FINALIZE ? arfuse_finalize : arfuse_allreduce)(
        workspace, &call, arf_trial_operands(trial), error));
    return arf_trial_check(trial, (arf_pattern)pattern, call.tokens, error);
}

void case_log_line(void *context, arfuse_log_level level, const char *line)
{
    case_log *log = context;
    (void)level;
    if (log->lines < 64)
        snprintf(log->line[log->lines++], sizeof log->line[0], "%s", line);
}

int case_log_count(const case_log *log, const char *part)
{
    int count = 0;
    for (int i = 0; i < log->lines; i++)
        count += strstr(log->line[i], part) != NULL;
    return count;
}
