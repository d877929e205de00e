/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/agree.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "runtime/workspace.h"

void arf_field(arf_fields *fields, const char *name, int64_t value)
{
    assert(fields->count < ARF_MAX_FIELDS);
    fields->name[fields->count] = name;
    fields->bits[fields->count] = false;
    fields->value[fields->count++] = value;
}

void arf_field_bits(arf_fields *fields, const char *name, uint64_t digest)
{
    arf_field(fields, name, (int64_t)digest);
    fields->bits[fields->count - 1] = true;
}

/* "5 on rank 0 and 6 on ranks 1-3": each value with the ranks of the processes that gave it. */
static void values_text(const arf_team *team, const arf_fields *fields, int field,
                        int64_t (*all)[ARF_MAX_FIELDS], char *text, size_t size)
{
    bool told[ARF_MAX_RANKS] = {false};
    size_t used = 0;
    for (int first = 0; first < team->bootstrap.size && used < size; first++) {
        if (told[first])
            continue;
        bool member[ARF_MAX_RANKS] = {false};
        int count = 0;
        for (int rank = 0; rank < team->tp_size; rank++) {
            int process = team->process_of[rank];
            if (all[process][field] != all[first][field])
                continue;
            told[process] = member[rank] = true;
            count++;
        }
        char set[400];
        arf_rank_set_text(member, team->tp_size, set, sizeof set);
        const char *joint = first == 0 ? "" : " and ", *ranks = count == 1 ? "rank" : "ranks";
        int n = fields->bits[field]
                    ? snprintf(text + used, size - used, "%s%016" PRIx64 " on %s %s", joint,
                               (uint64_t)all[first][field], ranks, set)
                    : snprintf(text + used, size - used, "%s%" PRId64 " on %s %s", joint,
                               all[first][field], ranks, set);
        used += (size_t)n;
    }
}

arfuse_status arf_agree(const arf_team *team, const char *what, const arf_fields *fields,
                        arf_error *error)
{
    if (team->bootstrap.size == 1)
        return ARFUSE_OK;
    int64_t all[ARF_MAX_RANKS][ARF_MAX_FIELDS];
    ARF_TRY(arf_team_allgather(team, fields->value, all, sizeof fields->value, error));
    for (int field = 0; field < fields->count; field++)
        for (int process = 1; process < team->bootstrap.size; process++)
            if (all[process][field] != all[0][field]) {
                char text[600];
                values_text(team, fields, field, all, text, sizeof text);
                return arf_fail(error, ARFUSE_DISAGREE,
                                "%s: %s is %s; it must be the same on all ranks", what,
                                fields->name[field], text);
            }
    return ARFUSE_OK;
}

/* ---- checked mode ---------------------------------------------------------------------------- */

static int64_t float_bits(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The bits of a tensor of `rows` rows, equal on all local ranks or refused by name. */
static arfuse_status digest_of(arfuse_workspace *workspace, const char *name, size_t offset,
                               int64_t rows, uint64_t *digest, arf_error *error)
{
    size_t bytes = (size_t)workspace->options.hidden_size * 2;
    for (int local = 0; local < workspace->team.local_ranks; local++) {
        const char *tensor;
        memcpy(&tensor, (const char *)&workspace->operands[local] + offset, sizeof tensor);
        uint64_t hash = ARF_HASH_INIT;
        for (int64_t row = 0; tensor != NULL && row < rows; row++) {
            ARF_TRY(workspace->device->ops->download(workspace->device, local, workspace->row,
                                                     tensor + (size_t)row * bytes, bytes, error));
            hash = arf_hash(hash, workspace->row, bytes);
        }
        if (local > 0 && hash != *digest)
            return arf_fail(error, ARFUSE_DISAGREE,
                            "operands.%s has other bits on rank %d than on rank %d; it must be "
                            "bit-equal on all ranks",
                            name, workspace->team.first_rank + local, workspace->team.first_rank);
        *digest = hash;
    }
    return ARFUSE_OK;
}

/* Kernels check no index: one out of range has them read what is not theirs. */
static arfuse_status check_indices(arfuse_workspace *workspace, int64_t tokens, arf_error *error)
{
    const int64_t slots = tokens * workspace->options.top_k;
    const int64_t most = (int64_t)workspace->options.hidden_size * 2 / (int64_t)sizeof(int32_t);
    for (int local = 0; local < workspace->team.local_ranks; local++) {
        const arfuse_operands *set = &workspace->operands[local];
        for (int64_t begin = 0; begin < slots; begin += most) {
            const int64_t count = slots - begin < most ? slots - begin : most;
            ARF_TRY(workspace->device->ops->download(workspace->device, local, workspace->row,
                                                     set->indices + begin,
                                                     (size_t)count * sizeof(int32_t), error));
            for (int64_t i = 0; i < count; i++) {
                int32_t index;
                memcpy(&index, (const char *)workspace->row + i * (int64_t)sizeof index,
                       sizeof index);
                if (index < -1 || index >= set->routed_rows)
                    return arf_fail(
                        error, ARFUSE_USAGE,
                        "rank %d: operands.indices of token %" PRId64 ", slot %" PRId64
                        ", is %" PRId32 ", expected -1 (dropped) or a row of routed, "
                        "which has %" PRId64,
                        workspace->team.first_rank + local, (begin + i) / workspace->options.top_k,
                        (begin + i) % workspace->options.top_k, index, set->routed_rows);
            }
        }
    }
    return ARFUSE_OK;
}

static arfuse_status digests(arfuse_workspace *workspace, arf_pattern pattern,
                             const arfuse_call *call, uint64_t *residual, uint64_t *gamma,
                             arf_error *error)
{
    const arf_device_ops *ops = workspace->device->ops;
    if (ops->capturing != NULL && ops->capturing(workspace->space, call->stream))
        return arf_fail(error, ARFUSE_USAGE,
                        "checked mode waits for the stream, which is being captured; make the "
                        "workspace with options.checked 0 to capture its calls");
    ARF_TRY(ops->synchronize(workspace->space, call->stream, error));
    if (pattern == ARF_FINALIZE)
        ARF_TRY(check_indices(workspace, call->tokens, error));
    ARF_TRY(digest_of(workspace, "residual", offsetof(arfuse_operands, residual), call->tokens,
                      residual, error));
    return digest_of(workspace, "gamma", offsetof(arfuse_operands, gamma), call->tokens > 0 ? 1 : 0,
                     gamma, error);
}

/* Ranks that are in calls of different workspaces meet here when those share a bootstrap. */
static arfuse_status agree_workspace(const arfuse_workspace *workspace, arf_error *error)
{
    const arf_team *team = &workspace->team;
    char all[ARF_MAX_RANKS][ARF_LABEL_TEXT];
    ARF_TRY(arf_team_allgather(team, workspace->label, all, ARF_LABEL_TEXT, error));
    for (int rank = 0; rank < team->tp_size; rank++) {
        const char *label = all[team->process_of[rank]];
        if (strcmp(label, all[0]) != 0)
            return arf_fail(error, ARFUSE_DISAGREE,
                            "checked mode: rank 0 is in a call of workspace %s and rank %d in one "
                            "of %s; calls of all workspaces that share a GPU run in the same order "
                            "on every rank",
                            all[0], rank, label);
    }
    return ARFUSE_OK;
}

arfuse_status arf_agree_call(arfuse_workspace *workspace, arf_pattern pattern,
                             const arfuse_call *call, arfuse_status status, arf_error *error)
{
    uint64_t residual = 0, gamma = 0;
    if (status == ARFUSE_OK)
        status = digests(workspace, pattern, call, &residual, &gamma, error);
    ARF_TRY(arf_team_vote(&workspace->team, status, error));

    ARF_TRY(agree_workspace(workspace, error));
    /* The number first and alone: it is part of the message about everything else. */
    arf_fields number = {0};
    arf_field(&number, "the number of the call", (int64_t)workspace->calls);
    ARF_TRY(arf_agree(&workspace->team, "checked mode", &number, error));
    char what[64];
    snprintf(what, sizeof what, "checked mode, call %" PRIu64, workspace->calls);
    arf_fields fields = {0};
    arf_field(&fields, "the pattern (0 allreduce, 1 finalize)", pattern);
    arf_field(&fields, "tokens", call->tokens);
    arf_field(&fields, "site", call->site);
    arf_field(&fields, "whether the site is on", arf_site_of(&workspace->sites, call->site)->on);
    arf_field(&fields, "route", call->route);
    arf_field(&fields, "fallback", (int64_t)call->fallback);
    arf_field_bits(&fields, "epsilon", (uint64_t)float_bits(call->epsilon));
    arf_field_bits(&fields, "weight_bias", (uint64_t)float_bits(call->weight_bias));
    arf_field_bits(&fields, "routed_scale", (uint64_t)float_bits(call->routed_scale));
    arf_field_bits(&fields, "residual's digest", residual);
    arf_field_bits(&fields, "gamma's digest", gamma);
    return arf_agree(&workspace->team, what, &fields, error);
}
