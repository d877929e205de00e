/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a call to what runs: the one place that decides. The launch, arfuse_would_fuse and
 * arfuse_explain all ask arf_serve, so a gate and the call behind it cannot disagree.
 */
#include "runtime/workspace.h"

static arf_service by_no_route(const arfuse_workspace *workspace, arf_pattern pattern)
{
    return (arf_service){.route = -1,
                         .plan = workspace->plans[pattern].unfused,
                         .then = -1,
                         .then_route = -1,
                         .fixed = true,
                         .chunk = workspace->space->spec.capacity[ARF_UNFUSED]};
}

/* A route of the pattern for a call of `tokens`, cut where its protocol has no more room. */
static arf_service by_route(const arfuse_workspace *workspace, arf_pattern pattern, int route,
                            int64_t tokens)
{
    const int64_t *capacity = workspace->space->spec.capacity;
    const arf_pattern_plans *plans = &workspace->plans[pattern];
    const arf_plan *plan = &arf_routes_of(workspace, pattern)->route[route].plan;
    const arf_protocol protocol = plan->protocol;
    arf_service service = by_no_route(workspace, pattern);
    service.route = route;
    if (plans->lacking >> route & 1)
        return service;
    service.plan = plans->plan[route];
    service.chunk = capacity[protocol];
    service.fused = protocol != ARF_UNFUSED;
    service.fixed = plan->numerics == ARF_FIXED;
    if (protocol != ARF_SEPARATE)
        return service;

    /* Behind a separate finalize stands what the allreduce pattern has for as many tokens. */
    arf_service then = by_no_route(workspace, ARF_ALLREDUCE);
    const arf_routes *routes = arf_routes_of(workspace, ARF_ALLREDUCE);
    int next = arf_route_of(routes, tokens < service.chunk ? tokens : service.chunk);
    if (next >= 0)
        then = by_route(workspace, ARF_ALLREDUCE, next, tokens);
    service.then = then.plan;
    service.then_route = then.fused ? next : -1;
    service.fused = then.fused;
    service.fixed = service.fixed && then.fixed;
    if (then.chunk < service.chunk)
        service.chunk = then.chunk;
    return service;
}

static int last_fused(const arfuse_workspace *workspace, arf_pattern pattern,
                      const arf_routes *routes)
{
    for (int i = routes->count - 1; i >= 0; i--)
        if (by_route(workspace, pattern, i, 1).fused)
            return i;
    return -1;
}

arf_service arf_serve(const arfuse_workspace *workspace, arf_pattern pattern,
                      const arfuse_call *call)
{
    arf_service service = by_no_route(workspace, pattern);
    const arf_routes *routes = arf_routes_of(workspace, pattern);
    /* 0 tokens keep the ranks in step by the route of 1 token. */
    const int64_t tokens = call->tokens > 0 ? call->tokens : 1;
    service.declined = !arf_site_of(&workspace->sites, call->site)->on;
    if (service.declined || call->route == ARFUSE_ROUTE_UNFUSED || routes == NULL)
        return service;
    if (call->route >= 0)
        return by_route(workspace, pattern, call->route, tokens);

    int route = tokens <= workspace->options.capacity ? arf_route_of(routes, tokens) : -1;
    if (route >= 0)
        return by_route(workspace, pattern, route, tokens);
    arfuse_fallback fallback =
        call->fallback != ARFUSE_FALLBACK_AUTO ? call->fallback : workspace->options.fallback;
    route = fallback == ARFUSE_FALLBACK_SERVED ? last_fused(workspace, pattern, routes) : -1;
    if (route >= 0)
        service = by_route(workspace, pattern, route, tokens);
    service.beyond = routes->count > 0;
    return service;
}

int arfuse_would_fuse(const arfuse_workspace *workspace, arfuse_pattern pattern,
                      const arfuse_call *call)
{
    if (workspace == NULL || (pattern != ARFUSE_ALLREDUCE && pattern != ARFUSE_FINALIZE) ||
        arf_check_call(workspace, (arf_pattern)pattern, call, NULL) != ARFUSE_OK)
        return 0;
    return arf_serve(workspace, (arf_pattern)pattern, call).fused;
}
