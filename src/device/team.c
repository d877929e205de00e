/* SPDX-License-Identifier: Apache-2.0 */
#include "device/team.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the bootstrap's callbacks --------------------------------------------------------------- */

arfuse_status arf_team_allgather(const arf_team *team, const void *send, void *receive,
                                 size_t bytes, arf_error *error)
{
    const arfuse_bootstrap *b = &team->bootstrap;
    if (b->size == 1 && b->allgather == NULL) {
        memcpy(receive, send, bytes);
        return ARFUSE_OK;
    }
    int code = b->allgather(b->context, send, receive, bytes);
    if (code != 0)
        return arf_fail(error, ARFUSE_FAILURE,
                        "process %d of %d: the bootstrap's allgather of %zu bytes failed with %d",
                        b->rank, b->size, bytes, code);
    return ARFUSE_OK;
}

arfuse_status arf_team_barrier(const arf_team *team, arf_error *error)
{
    const arfuse_bootstrap *b = &team->bootstrap;
    if (b->size == 1 && b->barrier == NULL)
        return ARFUSE_OK;
    int code = b->barrier(b->context);
    if (code != 0)
        return arf_fail(error, ARFUSE_FAILURE,
                        "process %d of %d: the bootstrap's barrier failed with %d", b->rank,
                        b->size, code);
    return ARFUSE_OK;
}

/* ---- creation -------------------------------------------------------------------------------- */

arfuse_status arf_team_create(const arfuse_bootstrap *bootstrap, int local_ranks, arf_team *team,
                              arf_error *error)
{
    memset(team, 0, sizeof *team);
    team->bootstrap = *bootstrap;
    const int size = bootstrap->size;
    /* What one process can see about itself is told before anything collective: a bootstrap that
     * is wrong in itself cannot be used to vote about it. */
    if (size < 1 || size > ARF_MAX_RANKS || bootstrap->rank < 0 || bootstrap->rank >= size)
        return arf_fail(error, ARFUSE_USAGE,
                        "bootstrap: rank %d of size %d; expected a size of 1 to %d and a rank "
                        "below it",
                        bootstrap->rank, size, ARF_MAX_RANKS);
    if (size > 1 && (bootstrap->allgather == NULL || bootstrap->barrier == NULL))
        return arf_fail(error, ARFUSE_USAGE,
                        "bootstrap: %d processes need both callbacks, allgather and barrier", size);

    int hosted[ARF_MAX_RANKS];
    ARF_TRY(arf_team_allgather(team, &local_ranks, hosted, sizeof local_ranks, error));
    /* Every process judges the same numbers, so no vote is needed. */
    for (int process = 0; process < size; process++) {
        if (hosted[process] < 1 || hosted[process] > ARF_MAX_RANKS - team->tp_size)
            return arf_fail(error, ARFUSE_USAGE,
                            "local_ranks: process %d hosts %d ranks behind the %d before it; "
                            "expected at least 1, and at most %d in all",
                            process, hosted[process], team->tp_size, ARF_MAX_RANKS);
        if (process == bootstrap->rank)
            team->first_rank = team->tp_size;
        for (int i = 0; i < hosted[process]; i++)
            team->process_of[team->tp_size++] = process;
    }
    team->local_ranks = local_ranks;
    return ARFUSE_OK;
}

/* ---- votes ----------------------------------------------------------------------------------- */

void arf_rank_set_text(const bool *member, int count, char *text, size_t size)
{
    size_t used = 0;
    if (size > 0)
        text[0] = '\0';
    for (int first = 0; first < count && used < size; first++) {
        if (!member[first])
            continue;
        int last = first;
        while (last + 1 < count && member[last + 1])
            last++;
        int n = snprintf(text + used, size - used, first == last ? "%s%d" : "%s%d-%d",
                         used ? "," : "", first, last);
        used += (size_t)n;
        first = last;
    }
}

/* "rank 3" or "ranks 0-2,7": the ranks of the processes that are marked. */
#define RANKS_TEXT 400 /* 36 lone ranks of two digits and a comma need far less */
static void ranks_text(const arf_team *team, const bool *process, char text[RANKS_TEXT])
{
    bool member[ARF_MAX_RANKS] = {false};
    int count = 0;
    for (int rank = 0; rank < team->tp_size; rank++)
        count += member[rank] = process[team->process_of[rank]];
    char set[RANKS_TEXT - 8];
    arf_rank_set_text(member, team->tp_size, set, sizeof set);
    snprintf(text, RANKS_TEXT, "rank%s %s", count == 1 ? "" : "s", set);
}

/* Leaves `error` with this message, whatever this process had said before. */
static arfuse_status settle(arf_error *error, arfuse_status status, const char *text)
{
    arf_error_clear(error);
    return arf_fail(error, status, "%s", text);
}

arfuse_status arf_team_vote(const arf_team *team, arfuse_status status, arf_error *error)
{
    const int size = team->bootstrap.size;
    arf_error own = ARF_ERROR_INIT;
    own.status = status;
    if (status != ARFUSE_OK)
        snprintf(own.text, sizeof own.text, "%s",
                 error && error->text[0] ? error->text : arfuse_status_text(status));

    /* 72 KiB of stack: a process that was out of memory for a vote would leave the others in it. */
    arf_error vote[ARF_MAX_RANKS];
    ARF_TRY(arf_team_allgather(team, &own, vote, sizeof own, error));

    /* One clause for each different message, in the order of its first process. */
    char text[sizeof own.text];
    size_t used = 0;
    bool told[ARF_MAX_RANKS] = {false};
    arfuse_status result = ARFUSE_OK;
    for (int first = 0; first < size; first++) {
        if (vote[first].status == ARFUSE_OK || told[first])
            continue;
        bool same[ARF_MAX_RANKS] = {false};
        int count = 0;
        for (int p = first; p < size; p++) {
            vote[p].text[sizeof vote[p].text - 1] = '\0';
            if (vote[p].status != ARFUSE_OK && strcmp(vote[p].text, vote[first].text) == 0) {
                same[p] = told[p] = true;
                count++;
            }
        }
        if (result == ARFUSE_OK)
            result = vote[first].status;
        char who[RANKS_TEXT];
        ranks_text(team, same, who);
        /* What all say alike needs no names, and often names ranks already (an earlier vote). */
        int n = count == size ? snprintf(text, sizeof text, "%s", vote[first].text)
                              : snprintf(text + used, sizeof text - used, "%s%s: %s",
                                         used ? "; " : "", who, vote[first].text);
        used += (size_t)n;
        if (used >= sizeof text)
            break;
    }
    return result == ARFUSE_OK ? ARFUSE_OK : settle(error, result, text);
}

arfuse_status arf_team_agree(const arf_team *team, const char *what, uint64_t digest,
                             arf_error *error)
{
    const int size = team->bootstrap.size;
    uint64_t all[ARF_MAX_RANKS];
    ARF_TRY(arf_team_allgather(team, &digest, all, sizeof digest, error));

    char text[sizeof((arf_error *)0)->text];
    size_t used = 0;
    bool told[ARF_MAX_RANKS] = {false};
    int kinds = 0;
    for (int first = 0; first < size && used < sizeof text; first++) {
        if (told[first])
            continue;
        bool same[ARF_MAX_RANKS] = {false};
        for (int p = first; p < size; p++)
            if (all[p] == all[first])
                same[p] = told[p] = true;
        char who[RANKS_TEXT];
        ranks_text(team, same, who);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%016" PRIx64 " on %s",
                                 kinds++ ? ", " : "", all[first], who);
    }
    if (kinds == 1)
        return ARFUSE_OK;
    arf_error_clear(error);
    return arf_fail(error, ARFUSE_DISAGREE,
                    "%s: the ranks disagree: digest %s; start every rank with the same", what,
                    text);
}
