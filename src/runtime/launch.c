/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launch path: no allocation, no lock, no log, no environment. A call enqueues the whole
 * operation or returns an error with nothing enqueued.
 */
#include "runtime/agree.h"
#include "runtime/explain.h"
#include "runtime/workspace.h"

static arfuse_status check_served(const arfuse_workspace *workspace, arf_pattern pattern,
                                  const arfuse_call *call, const arf_service *service,
                                  arf_error *error)
{
    if (workspace->failed)
        return arf_fail(error, ARFUSE_FAILED,
                        "an earlier call of this workspace failed half way; destroy it on all "
                        "ranks and make a new one");
    arfuse_fallback fallback =
        call->fallback != ARFUSE_FALLBACK_AUTO ? call->fallback : workspace->options.fallback;
    if (service->fused || fallback != ARFUSE_FALLBACK_ERROR)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_NOT_SERVED,
                    "%s of %lld tokens%s%s has no fused route, and the fallback asks for an error",
                    arf_pattern_name(pattern), (long long)call->tokens,
                    call->site >= 0 ? " at " : "",
                    call->site >= 0 ? arf_site_of(&workspace->sites, call->site)->name : "");
}

static void count(arf_counters *counters, const arfuse_call *call, const arf_service *service,
                  uint64_t launches, bool shadowed)
{
    counters->calls++;
    counters->tokens += (uint64_t)call->tokens;
    counters->fused += service->fused;
    counters->unfused += !service->fused;
    counters->declined += service->declined;
    counters->beyond += service->beyond;
    counters->launches += launches;
    counters->shadowed += shadowed;
}

static void abandon(arfuse_workspace *workspace, const arf_launch *launch)
{
    workspace->failed = true;
    if (workspace->device->ops->abandon != NULL)
        workspace->device->ops->abandon(workspace->space, launch);
}

/* Launching on a space that has failed fills rows with NaN: the rest of a call must not keep what
 * stood there before, which may look like a result. */
static void poison(arfuse_workspace *workspace, arf_launch *launch, int64_t tokens, int64_t chunk,
                   bool sum_alone)
{
    const arf_device_ops *ops = workspace->device->ops;
    while (tokens > 0 && ops->state(workspace->space, NULL) != ARFUSE_OK) {
        launch->tokens = tokens < chunk ? tokens : chunk;
        if (ops->launch(workspace->space, launch, NULL) == ARFUSE_FAILED)
            return; /* this device takes nothing more */
        tokens -= launch->tokens;
        arf_advance_operands(workspace, launch->tokens, sum_alone);
    }
}

static arfuse_status enqueue(arfuse_workspace *workspace, arf_pattern pattern,
                             const arfuse_call *call, const arf_service *service, bool sum_alone,
                             arf_error *error)
{
    const arf_device_ops *ops = workspace->device->ops;
    arf_site *site = arf_site_of(&workspace->sites, call->site);
    arf_launch launch = {
        .pattern = pattern,
        .plan = service->plan,
        .then = service->then,
        .operands = workspace->operands,
        .epsilon = call->epsilon,
        .weight_bias = call->weight_bias,
        .routed_scale = call->routed_scale,
        .stream = call->stream,
        .plain = call->plain_launch != 0,
        .early_shared = call->early_shared != 0,
    };
    int64_t chunk = service->chunk;
    if (sum_alone) {
        int64_t lent = arf_deferred_lend(workspace);
        chunk = lent < chunk ? lent : chunk;
    }
    const bool shadowed = service->fixed && arf_shadow_due(workspace, call->stream);
    arfuse_status compared = ARFUSE_OK;
    uint64_t launches = 0;
    int64_t done = 0;
    do {
        const int64_t left = call->tokens - done;
        launch.tokens = left < chunk ? left : chunk;
        arfuse_status status = ARFUSE_OK;
        if (shadowed)
            status = arf_shadow_before(workspace, &launch, error);
        if (status == ARFUSE_OK)
            status = ops->launch(workspace->space, &launch, error);
        if (status != ARFUSE_OK) {
            /* Rows before this piece are reduced already: the call cannot be undone, and peers
             * wait for the rest of it. */
            if (launches > 0 || shadowed)
                abandon(workspace, &launch);
            poison(workspace, &launch, left, chunk, sum_alone);
            return status;
        }
        if (shadowed && compared == ARFUSE_OK)
            compared = arf_shadow_after(workspace, &launch, done, site->name, error);
        launches++;
        done += launch.tokens;
        if (done < call->tokens)
            arf_advance_operands(workspace, launch.tokens, sum_alone);
    } while (done < call->tokens);

    workspace->calls++;
    workspace->stream = call->stream;
    workspace->has_stream = true;
    count(&site->counters, call, service, launches, shadowed);
    count(&workspace->routes[pattern][1 + service->route], call, service, launches, shadowed);
    site->histogram[arf_bucket_of(call->tokens)]++;
    return compared;
}

arfuse_status arf_run(arfuse_workspace *workspace, arf_pattern pattern, const arfuse_call *call,
                      bool sum_alone, arfuse_status status, arf_error *error)
{
    arf_service service = {.route = -1};
    if (status == ARFUSE_OK) {
        service = arf_serve(workspace, pattern, call);
        status = check_served(workspace, pattern, call, &service, error);
    }
    if (workspace->options.checked)
        status = arf_agree_call(workspace, pattern, call, status, error);
    ARF_TRY(status);
    if (!workspace->profiled)
        return enqueue(workspace, pattern, call, &service, sum_alone, error);
    const arf_device *device = workspace->device;
    char text[ARF_RANGE_TEXT];
    arf_range_text(workspace, pattern, call, &service, text);
    device->ops->range_begin(device, text);
    status = enqueue(workspace, pattern, call, &service, sum_alone, error);
    device->ops->range_end(device);
    return status;
}

static arfuse_status run(arfuse_workspace *workspace, arf_pattern pattern, const arfuse_call *call,
                         const arfuse_operands *operands, arf_error *error)
{
    arf_error_clear(error);
    if (workspace == NULL)
        return arf_fail(error, ARFUSE_USAGE, "workspace is NULL");
    arfuse_status status = arf_check_call(workspace, pattern, call, error);
    if (status == ARFUSE_OK)
        status =
            arf_take_operands(workspace, pattern, ARF_WHOLE, operands, workspace->operands, error);
    if (status == ARFUSE_OK)
        status = arf_check_operands(workspace, pattern, call->tokens, false, error);
    return arf_run(workspace, pattern, call, false, status, error);
}

arfuse_status arfuse_allreduce(arfuse_workspace *workspace, const arfuse_call *call,
                               const arfuse_operands *operands, arfuse_error *error)
{
    return run(workspace, ARF_ALLREDUCE, call, operands, error);
}

arfuse_status arfuse_finalize(arfuse_workspace *workspace, const arfuse_call *call,
                              const arfuse_operands *operands, arfuse_error *error)
{
    return run(workspace, ARF_FINALIZE, call, operands, error);
}
