/* SPDX-License-Identifier: Apache-2.0 */
/* The same routing, in words. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rules/knobs.h"
#include "runtime/explain.h"

/* Why a call is not fused, or which rule brought it to its route. */
static void reason_text(const arfuse_workspace *workspace, arf_pattern pattern,
                        const arfuse_call *call, const arf_service *service, char *text,
                        size_t size)
{
    const arf_routes *routes = arf_routes_of(workspace, pattern);
    text[0] = '\0';
    if (service->declined)
        snprintf(text, size, "site %s is switched off",
                 arf_site_of(&workspace->sites, call->site)->name);
    else if (call->route == ARFUSE_ROUTE_UNFUSED)
        snprintf(text, size, "the call asks for it");
    else if (routes == NULL || routes->count == 0)
        snprintf(text, size, "there are no routes");
    else if (service->beyond && call->tokens > workspace->options.capacity)
        snprintf(text, size, "capacity is %" PRId64 " tokens", workspace->options.capacity);
    else if (service->beyond)
        snprintf(text, size, "the last route ends at %" PRId64 " tokens",
                 routes->route[routes->count - 1].max_tokens);
    else if (service->route >= 0 && workspace->plans[pattern].lacking >> service->route & 1)
        snprintf(text, size, "this device lacks what its route needs");
    else if (call->route >= 0)
        snprintf(text, size, "the call asks for it");
}

static size_t plan_text(const arfuse_workspace *workspace, arf_pattern pattern, int route,
                        char *text, size_t size)
{
    const arf_plan *plan = &arf_routes_of(workspace, pattern)->route[route].plan;
    char tuning[512];
    arf_tuning_text(arf_knobs(workspace->choice.profile->set, plan->protocol, pattern),
                    &plan->tuning, tuning, sizeof tuning);
    int written = snprintf(text, size, "%s%s%s%s", arf_protocol_name(plan->protocol),
                           tuning[0] ? " (" : "", tuning, tuning[0] ? ")" : "");
    return (size_t)written < size ? (size_t)written : size - 1;
}

/* What runs, and behind a separate finalize what runs then. */
static void route_text(const arfuse_workspace *workspace, arf_pattern pattern,
                       const arf_service *service, char *text, size_t size)
{
    size_t used = plan_text(workspace, pattern, service->route, text, size);
    if (service->then < 0)
        return;
    used += (size_t)snprintf(text + used, size - used, ", then allreduce by ");
    if (used >= size)
        return;
    if (service->then_route < 0)
        snprintf(text + used, size - used, "unfused");
    else
        plan_text(workspace, ARF_ALLREDUCE, service->then_route, text + used, size - used);
}

arfuse_status arfuse_explain(const arfuse_workspace *workspace, arfuse_pattern pattern,
                             const arfuse_call *call, char *text, size_t size)
{
    if (workspace == NULL || text == NULL || size == 0 ||
        (pattern != ARFUSE_ALLREDUCE && pattern != ARFUSE_FINALIZE))
        return ARFUSE_USAGE;
    arf_pattern own = pattern == ARFUSE_FINALIZE ? ARF_FINALIZE : ARF_ALLREDUCE;
    arf_error error = ARF_ERROR_INIT;
    if (arf_check_call(workspace, own, call, &error) != ARFUSE_OK) {
        snprintf(text, size, "refused: %s", error.text);
        return error.status;
    }
    const arf_service service = arf_serve(workspace, own, call);
    const arf_routes *routes = arf_routes_of(workspace, own);
    char what[80], why[160], plan[1200], pieces[64] = "";
    snprintf(what, sizeof what, "%s of %" PRId64 " tokens", arf_pattern_name(own), call->tokens);
    reason_text(workspace, own, call, &service, why, sizeof why);
    if (call->tokens > service.chunk)
        snprintf(pieces, sizeof pieces, ", in pieces of %" PRId64, service.chunk);
    int written;
    if (service.route < 0 || workspace->plans[own].lacking >> service.route & 1) {
        written = snprintf(text, size, "%s: unfused%s, since %s; routes from %s", what, pieces, why,
                           workspace->choice.source[own]);
    } else {
        route_text(workspace, own, &service, plan, sizeof plan);
        written = snprintf(
            text, size,
            "%s: %s%s%s%s, route %d of %d for %" PRId64 " to %" PRId64 " tokens, %s, from %s", what,
            plan, pieces, why[0] ? ", since " : "", why, service.route + 1, routes->count,
            arf_route_first(routes, service.route), routes->route[service.route].max_tokens,
            arf_method_name(workspace->choice.method[own]), workspace->choice.source[own]);
    }
    return written >= 0 && (size_t)written < size ? ARFUSE_OK : ARFUSE_USAGE;
}

void arf_map_text(const arfuse_workspace *workspace, arf_pattern pattern, char *text, size_t size)
{
    const arf_routes *routes = arf_routes_of(workspace, pattern);
    size_t used = (size_t)snprintf(text, size, "%s: ", arf_pattern_name(pattern));
    for (int i = 0; routes != NULL && i < routes->count && used < size; i++) {
        bool lacking = workspace->plans[pattern].lacking >> i & 1;
        used += (size_t)snprintf(text + used, size - used, "%s%s to %" PRId64 ", ",
                                 arf_protocol_name(routes->route[i].plan.protocol),
                                 lacking ? " (lacking here: unfused)" : "",
                                 routes->route[i].max_tokens);
    }
    if (used < size)
        snprintf(text + used, size - used, "unfused%s (%s)",
                 routes == NULL || routes->count == 0 ? "" : " beyond",
                 workspace->choice.source[pattern]);
}

void arf_range_text(const arfuse_workspace *workspace, arf_pattern pattern, const arfuse_call *call,
                    const arf_service *service, char text[ARF_RANGE_TEXT])
{
    const arf_routes *routes = arf_routes_of(workspace, pattern);
    int used = snprintf(text, ARF_RANGE_TEXT, "%s %s M=%" PRId64 " ", arf_pattern_name(pattern),
                        arf_site_of(&workspace->sites, call->site)->name, call->tokens);
    if (service->fused)
        snprintf(text + used, ARF_RANGE_TEXT - (size_t)used, "%s, route %d of %d",
                 arf_protocol_name(routes->route[service->route].plan.protocol), service->route + 1,
                 routes->count);
    else
        snprintf(text + used, ARF_RANGE_TEXT - (size_t)used, "unfused");
}
