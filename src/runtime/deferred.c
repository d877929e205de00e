/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/deferred.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/workspace.h"

/* Materialising is for the odd place where no norm follows, not for speed: pieces of so many tokens
 * keep its scratch small (64 rows of H=6144 are 768 KiB). */
#define PIECE_TOKENS 64

/* ---- making ---------------------------------------------------------------------------------- */

/* Device memory of `bytes` zeros for a local rank. */
static arfuse_status zeros(arfuse_workspace *workspace, int local, size_t bytes, void **memory,
                           arf_error *error)
{
    const arf_device_ops *ops = workspace->device->ops;
    void *from = calloc(1, bytes);
    *memory = from == NULL ? NULL : ops->allocate(workspace->device, local, bytes);
    arfuse_status status =
        *memory == NULL ? arf_fail(error, ARFUSE_FAILURE,
                                   "out of memory for materialising: %zu bytes a rank", bytes)
                        : ops->upload(workspace->device, local, *memory, from, bytes, error);
    free(from);
    return status;
}

arfuse_status arf_deferred_create(arfuse_workspace *workspace, arf_error *error)
{
    arf_deferred *deferred = &workspace->deferred;
    const arf_shape *shape = &workspace->space->spec.shape;
    const size_t ranks = (size_t)workspace->team.local_ranks,
                 room = (size_t)workspace->options.deferred;
    const size_t row = (size_t)shape->hidden_size * 2;
    if (room == 0)
        return ARFUSE_OK;
    deferred->room = (int)room;
    deferred->chunk =
        workspace->options.capacity < PIECE_TOKENS ? workspace->options.capacity : PIECE_TOKENS;
    deferred->place = calloc(room, sizeof *deferred->place);
    deferred->operands = calloc(room * ranks, sizeof *deferred->operands);
    deferred->zeros = calloc(ranks, sizeof *deferred->zeros);
    deferred->gamma = calloc(ranks, sizeof *deferred->gamma);
    deferred->norm = calloc(ranks, sizeof *deferred->norm);
    if (deferred->place == NULL || deferred->operands == NULL || deferred->zeros == NULL ||
        deferred->gamma == NULL || deferred->norm == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %zu tickets", room);
    for (size_t i = 0; i < room; i++)
        deferred->place[i].operands = deferred->operands + i * ranks;
    for (int i = 0; i < (int)ranks; i++) {
        const size_t rows = (size_t)deferred->chunk * row;
        if (shape->residual == ARF_ON)
            ARF_TRY(zeros(workspace, i, rows, &deferred->zeros[i], error));
        if (shape->rms_norm == ARF_ON) {
            ARF_TRY(zeros(workspace, i, row, &deferred->gamma[i], error));
            ARF_TRY(zeros(workspace, i, rows, &deferred->norm[i], error));
        }
    }
    return ARFUSE_OK;
}

static void release(arfuse_workspace *workspace, void **memory)
{
    for (int i = 0; memory != NULL && i < workspace->team.local_ranks; i++)
        if (memory[i] != NULL)
            workspace->device->ops->release(workspace->device, i, memory[i]);
    free(memory);
}

void arf_deferred_free(arfuse_workspace *workspace)
{
    arf_deferred *deferred = &workspace->deferred;
    release(workspace, deferred->zeros);
    release(workspace, deferred->gamma);
    release(workspace, deferred->norm);
    free(deferred->place);
    free(deferred->operands);
    *deferred = (arf_deferred){0};
}

/* ---- what is owed ---------------------------------------------------------------------------- */

static void forget(arfuse_workspace *workspace, arf_owed *place)
{
    place->owed = false;
    arf_site_of(&workspace->sites, place->site)->counters.dropped++;
}

/* The labels of all that is owed: "layer 3 moe", "final". */
static int owed_text(const arf_deferred *deferred, char *text, size_t size)
{
    int count = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < deferred->room; i++)
        if (deferred->place[i].owed) {
            if (used < size)
                used += (size_t)snprintf(text + used, size - used, "%s\"%s\"", count ? ", " : "",
                                         deferred->place[i].label);
            count++;
        }
    return count;
}

arfuse_status arf_deferred_drop(arfuse_workspace *workspace, const char *when, arf_error *error)
{
    arf_deferred *deferred = &workspace->deferred;
    char labels[640];
    int count = owed_text(deferred, labels, sizeof labels);
    if (count == 0)
        return ARFUSE_OK;
    for (int i = 0; i < deferred->room; i++)
        if (deferred->place[i].owed)
            forget(workspace, &deferred->place[i]);
    return arf_fail(error, ARFUSE_OWED,
                    "%d deferred reduction%s never consumed: %s; what was computed without %s is "
                    "wrong (%s)",
                    count, count == 1 ? " was" : "s were", labels, count == 1 ? "it" : "them",
                    when);
}

arfuse_status arfuse_end_step(arfuse_workspace *workspace, arfuse_error *error)
{
    arf_error_clear(error);
    if (workspace == NULL)
        return arf_fail(error, ARFUSE_USAGE, "workspace is NULL");
    return arf_deferred_drop(workspace, "found at the end of the step", error);
}

/* ---- deferring ------------------------------------------------------------------------------- */

static arfuse_status take_place(arfuse_workspace *workspace, const char *label, arf_owed **taken,
                                arf_error *error)
{
    arf_deferred *deferred = &workspace->deferred;
    *taken = NULL;
    for (int i = 0; i < deferred->room; i++) {
        arf_owed *place = &deferred->place[i];
        if (place->owed && strcmp(place->label, label) == 0) {
            forget(workspace, place);
            return arf_fail(error, ARFUSE_OWED,
                            "the last deferred reduction of \"%s\" (ticket %" PRIu64 ", %" PRId64
                            " tokens) was never consumed; what was computed without it is wrong",
                            label, place->number, place->tokens);
        }
        if (!place->owed && *taken == NULL)
            *taken = place;
    }
    if (*taken != NULL)
        return ARFUSE_OK;
    char labels[640];
    owed_text(deferred, labels, sizeof labels);
    return arf_fail(error, ARFUSE_IN_USE,
                    "all %d places for deferred reductions are taken (%s); consume some, or set "
                    "options.deferred higher",
                    deferred->room, labels);
}

arfuse_status arfuse_defer(arfuse_workspace *workspace, arfuse_pattern pattern,
                           const arfuse_call *call, const arfuse_operands *operands,
                           const char *label, arfuse_ticket *ticket, arfuse_error *error)
{
    arf_error_clear(error);
    if (workspace == NULL || ticket == NULL)
        return arf_fail(error, ARFUSE_USAGE, "%s is NULL",
                        workspace == NULL ? "workspace" : "ticket");
    if (pattern != ARFUSE_ALLREDUCE && pattern != ARFUSE_FINALIZE)
        return arf_fail(error, ARFUSE_USAGE, "pattern is %d, expected 0 or 1", (int)pattern);
    if (workspace->deferred.room == 0)
        return arf_fail(error, ARFUSE_USAGE,
                        "this workspace was made with options.deferred 0, without room for "
                        "deferred reductions");
    ARF_TRY(arf_check_call(workspace, (arf_pattern)pattern, call, error));
    char name[ARF_LABEL_TEXT] = {0};
    const char *whole = label != NULL ? label : arf_site_of(&workspace->sites, call->site)->name;
    for (size_t i = 0; i < sizeof name - 1 && whole[i] != '\0'; i++)
        name[i] = whole[i];
    arf_owed *place;
    ARF_TRY(take_place(workspace, name, &place, error));
    ARF_TRY(arf_take_operands(workspace, (arf_pattern)pattern, ARF_PRODUCER, operands,
                              place->operands, error));
    memcpy(place->label, name, sizeof name);
    place->number = ++workspace->deferred.last;
    place->owed = true;
    place->pattern = (arf_pattern)pattern;
    place->tokens = call->tokens;
    place->routed_scale = call->routed_scale;
    place->early_shared = call->early_shared != 0;
    place->site = call->site;
    arf_site_of(&workspace->sites, call->site)->counters.deferred++;
    *ticket = (arfuse_ticket){workspace, place->number};
    return ARFUSE_OK;
}

/* ---- paying ---------------------------------------------------------------------------------- */

/* The place of a ticket that is still owed. */
static arfuse_status redeem(arfuse_workspace *workspace, arfuse_ticket ticket,
                            const arfuse_call *call, arf_owed **owed, arf_error *error)
{
    const arf_deferred *deferred = &workspace->deferred;
    if (ticket.workspace != workspace || ticket.number == 0 || ticket.number > deferred->last)
        return arf_fail(error, ARFUSE_USAGE, "ticket %" PRIu64 " was not given by this workspace",
                        ticket.number);
    arf_owed *place = NULL;
    for (int i = 0; i < deferred->room; i++)
        if (deferred->place[i].number == ticket.number)
            place = &deferred->place[i];
    if (place == NULL || !place->owed)
        return arf_fail(error, ARFUSE_USAGE,
                        "ticket %" PRIu64 "%s%s%s was consumed, materialised or dropped before",
                        ticket.number, place ? " (\"" : "", place ? place->label : "",
                        place ? "\")" : "");
    *owed = place;
    if (call != NULL && call->struct_size >= sizeof *call && call->tokens != place->tokens)
        return arf_fail(error, ARFUSE_USAGE,
                        "call.tokens is %" PRId64 ", but \"%s\" was deferred with %" PRId64,
                        call->tokens, place->label, place->tokens);
    return ARFUSE_OK;
}

/* The call that pays: the consumer's, with what the producer said about its own half. */
static arfuse_call paying_call(const arfuse_call *call, const arf_owed *owed)
{
    arfuse_call paying = *call;
    paying.struct_size = sizeof paying;
    paying.routed_scale = owed->routed_scale;
    paying.early_shared = call->early_shared && owed->early_shared;
    if (call->site == ARFUSE_SITE_NONE)
        paying.site = owed->site;
    return paying;
}

typedef struct payment {
    arf_owed *owed;
    arf_pattern pattern;
    arfuse_call call;
} payment;

static arfuse_status begin_payment(arfuse_workspace *workspace, arfuse_ticket ticket,
                                   const arfuse_call *call, payment *p, arfuse_error *error)
{
    *p = (payment){.pattern = ARF_ALLREDUCE, .call = ARFUSE_CALL_INIT};
    ARF_TRY(redeem(workspace, ticket, call, &p->owed, error));
    p->pattern = p->owed->pattern;
    ARF_TRY(arf_check_call(workspace, p->pattern, call, error));
    p->call = paying_call(call, p->owed);
    return ARFUSE_OK;
}

/* Runs what was owed, or, where `status` says that it cannot be, what that means for the team.
 * *paid: also when the call went out and only its comparison failed. */
static arfuse_status pay(arfuse_workspace *workspace, const payment *p, bool materialise,
                         arfuse_status status, bool *paid, arfuse_error *error)
{
    const uint64_t calls = workspace->calls;
    status = arf_run(workspace, p->pattern, &p->call, materialise, status, error);
    *paid = status == ARFUSE_OK || workspace->calls != calls;
    if (*paid)
        p->owed->owed = false;
    return status;
}

arfuse_status arfuse_consume(arfuse_workspace *workspace, arfuse_ticket ticket,
                             const arfuse_call *call, const arfuse_operands *operands,
                             arfuse_error *error)
{
    payment p;
    bool paid;
    arf_error_clear(error);
    if (workspace == NULL)
        return arf_fail(error, ARFUSE_USAGE, "workspace is NULL");
    arfuse_status status = begin_payment(workspace, ticket, call, &p, error);
    if (status == ARFUSE_OK) {
        memcpy(workspace->operands, p.owed->operands,
               (size_t)workspace->team.local_ranks * sizeof *p.owed->operands);
        status = arf_take_operands(workspace, p.pattern, ARF_CONSUMER, operands,
                                   workspace->operands, error);
    }
    if (status == ARFUSE_OK)
        status = arf_check_operands(workspace, p.pattern, p.call.tokens, false, error);
    return pay(workspace, &p, false, status, &paid, error);
}

arfuse_status arfuse_materialise(arfuse_workspace *workspace, arfuse_ticket ticket,
                                 const arfuse_call *call, void *const *sum, arfuse_error *error)
{
    payment p;
    bool paid;
    arf_error_clear(error);
    if (workspace == NULL)
        return arf_fail(error, ARFUSE_USAGE, "workspace is NULL");
    arfuse_status status = begin_payment(workspace, ticket, call, &p, error);
    if (status == ARFUSE_OK && sum == NULL)
        status = arf_fail(error, ARFUSE_USAGE, "sum is NULL");
    if (status == ARFUSE_OK) {
        for (int i = 0; i < workspace->team.local_ranks; i++) {
            workspace->operands[i] = p.owed->operands[i];
            workspace->operands[i].residual_out = sum[i];
        }
        status = arf_check_operands(workspace, p.pattern, p.call.tokens, true, error);
    }
    status = pay(workspace, &p, true, status, &paid, error);
    if (paid)
        arf_site_of(&workspace->sites, p.call.site)->counters.materialised++;
    return status;
}

int64_t arf_deferred_lend(arfuse_workspace *workspace)
{
    const arf_deferred *deferred = &workspace->deferred;
    for (int i = 0; i < workspace->team.local_ranks; i++) {
        workspace->operands[i].residual = deferred->zeros[i];
        workspace->operands[i].gamma = deferred->gamma[i];
        workspace->operands[i].norm_out = deferred->norm[i];
    }
    return deferred->chunk;
}
