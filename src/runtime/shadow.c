/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/shadow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/workspace.h"

/* Whoever asks for the check shall not believe that it looks at these. */
static void tell_left_out(const arfuse_workspace *workspace)
{
    for (int p = 0; p < ARF_PATTERNS && workspace->team.bootstrap.rank == 0; p++) {
        const arf_routes *routes = arf_routes_of(workspace, (arf_pattern)p);
        for (int i = 0; routes != NULL && i < routes->count; i++)
            if (routes->route[i].plan.numerics != ARF_FIXED)
                arf_logf(&workspace->log, ARFUSE_LOG_WARNING,
                         "the shadow check leaves out %s route %d: numerics %s has bits of its own",
                         arf_pattern_name((arf_pattern)p), i,
                         arf_numerics_name(routes->route[i].plan.numerics));
    }
}

arfuse_status arf_shadow_create(arfuse_workspace *workspace, arf_error *error)
{
    arf_shadow *shadow = &workspace->shadow;
    const int ranks = workspace->team.local_ranks;
    const size_t row = (size_t)workspace->options.hidden_size * 2;
    const size_t rows = (size_t)workspace->space->spec.capacity[ARF_UNFUSED] * row;
    shadow->every = workspace->options.shadow_every;
    shadow->until = (uint64_t)shadow->every;
    if (shadow->every == 0)
        return ARFUSE_OK;
    tell_left_out(workspace);
    shadow->operands = calloc((size_t)ranks, sizeof *shadow->operands);
    shadow->x = calloc((size_t)ranks, sizeof *shadow->x);
    shadow->norm = calloc((size_t)ranks, sizeof *shadow->norm);
    shadow->seen = malloc(row);
    shadow->wanted = malloc(row);
    bool whole = shadow->operands != NULL && shadow->x != NULL && shadow->norm != NULL &&
                 shadow->seen != NULL && shadow->wanted != NULL;
    for (int i = 0; whole && i < ranks; i++) {
        shadow->x[i] = workspace->device->ops->allocate(workspace->device, i, rows);
        shadow->norm[i] = workspace->device->ops->allocate(workspace->device, i, rows);
        whole = shadow->x[i] != NULL && shadow->norm[i] != NULL;
    }
    if (!whole)
        return arf_fail(error, ARFUSE_FAILURE,
                        "out of memory for the shadow check: 2 x %zu bytes a rank", rows);
    return ARFUSE_OK;
}

void arf_shadow_free(arfuse_workspace *workspace)
{
    arf_shadow *shadow = &workspace->shadow;
    for (int i = 0; i < workspace->team.local_ranks; i++) {
        if (shadow->x != NULL && shadow->x[i] != NULL)
            workspace->device->ops->release(workspace->device, i, shadow->x[i]);
        if (shadow->norm != NULL && shadow->norm[i] != NULL)
            workspace->device->ops->release(workspace->device, i, shadow->norm[i]);
    }
    free(shadow->x);
    free(shadow->norm);
    free(shadow->operands);
    free(shadow->seen);
    free(shadow->wanted);
    *shadow = (arf_shadow){0};
}

bool arf_shadow_due(arfuse_workspace *workspace, arfuse_stream stream)
{
    arf_shadow *shadow = &workspace->shadow;
    const arf_device_ops *ops = workspace->device->ops;
    if (shadow->every == 0 || --shadow->until > 0)
        return false;
    shadow->until = (uint64_t)shadow->every;
    return ops->capturing == NULL || !ops->capturing(workspace->space, stream);
}

arfuse_status arf_shadow_before(arfuse_workspace *workspace, const arf_launch *launch,
                                arf_error *error)
{
    arf_shadow *shadow = &workspace->shadow;
    arf_launch unfused = *launch;
    /* The outputs may be the inputs, so this comes first. */
    for (int i = 0; i < workspace->team.local_ranks; i++) {
        shadow->operands[i] = launch->operands[i];
        shadow->operands[i].residual_out = shadow->x[i];
        if (launch->operands[i].norm_out != NULL)
            shadow->operands[i].norm_out = shadow->norm[i];
    }
    unfused.operands = shadow->operands;
    unfused.plan = workspace->plans[launch->pattern].unfused;
    unfused.then = -1;
    return workspace->device->ops->launch(workspace->space, &unfused, error);
}

/* One output of one local rank. */
typedef struct output {
    const char *name;
    int local;
    const char *seen, *wanted; /* [tokens, H] on the device */
} output;

static arfuse_status compare(arfuse_workspace *workspace, const output *out, int64_t tokens,
                             int64_t first, const char *site, arf_error *error)
{
    const arf_shadow *shadow = &workspace->shadow;
    const arf_device_ops *ops = workspace->device->ops;
    const size_t row = (size_t)workspace->options.hidden_size * 2;
    for (int64_t token = 0; token < tokens; token++) {
        size_t at = (size_t)token * row;
        ARF_TRY(
            ops->download(workspace->device, out->local, shadow->seen, out->seen + at, row, error));
        ARF_TRY(ops->download(workspace->device, out->local, shadow->wanted, out->wanted + at, row,
                              error));
        for (size_t i = 0; i < row; i += 2) {
            uint16_t seen, wanted;
            memcpy(&seen, shadow->seen + i, 2);
            memcpy(&wanted, shadow->wanted + i, 2);
            if (seen != wanted)
                return arf_fail(error, ARFUSE_WRONG_RESULT,
                                "shadow check at site %s, call %" PRIu64 ": rank %d has %s[%" PRId64
                                ",%zu] = 0x%04x, unfused gives 0x%04x",
                                site, workspace->calls, workspace->team.first_rank + out->local,
                                out->name, first + token, i / 2, seen, wanted);
        }
    }
    return ARFUSE_OK;
}

arfuse_status arf_shadow_after(arfuse_workspace *workspace, const arf_launch *launch, int64_t first,
                               const char *site, arf_error *error)
{
    const arf_shadow *shadow = &workspace->shadow;
    ARF_TRY(workspace->device->ops->synchronize(workspace->space, launch->stream, error));
    for (int i = 0; i < workspace->team.local_ranks; i++) {
        const arfuse_operands *o = &launch->operands[i];
        const output x = {"residual_out", i, o->residual_out, shadow->x[i]};
        const output norm = {"norm_out", i, o->norm_out, shadow->norm[i]};
        if (x.seen != NULL)
            ARF_TRY(compare(workspace, &x, launch->tokens, first, site, error));
        if (norm.seen != NULL)
            ARF_TRY(compare(workspace, &norm, launch->tokens, first, site, error));
    }
    return ARFUSE_OK;
}
