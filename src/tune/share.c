/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/share.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "profile/read.h"

arfuse_status arf_first_says(const arf_tuner *tuner, arfuse_status status, arf_error *error)
{
    arf_error told = ARF_ERROR_INIT;
    if (tuner->group->rank == 0 && status != ARFUSE_OK) {
        told = *error;
        told.status = status;
    }
    ARF_TRY(arf_group_broadcast(tuner->group, &told, sizeof told, error));
    if (told.status == ARFUSE_OK)
        return ARFUSE_OK;
    arf_error_clear(error);
    return arf_fail(error, told.status, "%s", told.text);
}

arfuse_status arf_share_fit(const arf_tuner *tuner, arfuse_status status, bool *routes,
                            arf_error *error)
{
    /* Samples are equal on all ranks, but memory is each one's own. */
    status = arf_team_vote(&tuner->team, status, error);
    *routes = status == ARFUSE_OK;
    if (status != ARFUSE_NOT_SERVED)
        return status;
    arf_error_clear(error);
    return ARFUSE_OK;
}

arfuse_status arf_share_bytes(const arf_tuner *tuner, char **data, size_t *bytes, arf_error *error)
{
    int64_t count = (int64_t)*bytes;
    ARF_TRY(arf_tuner_decide(tuner, &count, error));
    arfuse_status status = ARFUSE_OK;
    if (tuner->group->rank != 0) {
        *bytes = (size_t)count;
        *data = malloc(*bytes + 1);
        if (*data == NULL)
            status = arf_fail(error, ARFUSE_FAILURE, "out of memory for %zu bytes", *bytes);
        else
            (*data)[*bytes] = '\0';
    }
    status = arf_team_vote(&tuner->team, status, error);
    if (status == ARFUSE_OK)
        status = arf_group_broadcast(tuner->group, *data, *bytes, error);
    return status;
}

arfuse_status arf_share_file(const arf_tuner *tuner, const char *path, size_t limit, char **text,
                             size_t *bytes, arf_error *error)
{
    *text = NULL;
    *bytes = 0;
    arfuse_status status = ARFUSE_OK;
    if (tuner->group->rank == 0)
        status = arf_read_file(path, limit, text, bytes, error);
    status = arf_first_says(tuner, status, error);
    if (status == ARFUSE_OK)
        status = arf_share_bytes(tuner, text, bytes, error);
    if (status != ARFUSE_OK) {
        free(*text);
        *text = NULL;
    }
    return status;
}

arfuse_status arf_share_profile(const arf_tuner *tuner, const char *path, arf_profile **profile,
                                arf_error *error)
{
    char *text;
    size_t bytes;
    ARF_TRY(arf_share_file(tuner, path, ARF_JSON_MAX_BYTES, &text, &bytes, error));
    arfuse_status status = arf_profile_parse(path, text, bytes, profile, error);
    free(text);
    return status;
}

arfuse_status arf_share_weights(const arf_tuner *tuner, arf_weights *weights, arf_error *error)
{
    *weights = (arf_weights){0};
    if (tuner->options->weights == NULL)
        return ARFUSE_OK;
    arfuse_status status = ARFUSE_OK;
    if (tuner->group->rank == 0)
        status = arf_weights_load(tuner->options->weights, weights, error);
    ARF_TRY(arf_first_says(tuner, status, error));
    char *tokens = (char *)weights->tokens, *weight = (char *)weights->weight;
    size_t token_bytes = (size_t)weights->count * sizeof *weights->tokens;
    size_t weight_bytes = (size_t)weights->count * sizeof *weights->weight;
    status = arf_share_bytes(tuner, &tokens, &token_bytes, error);
    if (status == ARFUSE_OK)
        status = arf_share_bytes(tuner, &weight, &weight_bytes, error);
    weights->tokens = (int64_t *)(void *)tokens;
    weights->weight = (double *)(void *)weight;
    weights->count = (int)(token_bytes / sizeof *weights->tokens);
    return status;
}
