/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "rules/knobs.h"
#include "runtime/workspace.h"

/* Why a call of so many tokens runs unfused. */
static void unfused_reason(const arfuse_workspace *workspace, arf_pattern pattern, int64_t tokens,
                           char *text, size_t size)
{
    const arf_profile *profile = workspace->choice.profile;
    if (profile == NULL || profile->routes[pattern].count == 0)
        snprintf(text, size, "there are no routes");
    else if (tokens > workspace->options.capacity)
        snprintf(text, size, "capacity is %" PRId64 " tokens", workspace->options.capacity);
    else
        snprintf(text, size, "the last route ends at %" PRId64 " tokens",
                 profile->routes[pattern].route[profile->routes[pattern].count - 1].max_tokens);
}

arfuse_status arfuse_explain(const arfuse_workspace *workspace, arfuse_pattern pattern,
                             int64_t tokens, char *text, size_t size)
{
    if (workspace == NULL || text == NULL || size == 0 || tokens < 0 ||
        (pattern != ARFUSE_ALLREDUCE && pattern != ARFUSE_FINALIZE))
        return ARFUSE_USAGE;
    arf_pattern own = pattern == ARFUSE_FINALIZE ? ARF_FINALIZE : ARF_ALLREDUCE;
    arf_service service = arf_serve(workspace, own, tokens);
    int written;
    if (service.route < 0) {
        char reason[96];
        unfused_reason(workspace, own, tokens, reason, sizeof reason);
        written = snprintf(text, size, "%s of %" PRId64 " tokens: unfused, since %s (%s)",
                           arf_pattern_name(own), tokens, reason, workspace->choice.source);
    } else {
        const arf_profile *profile = workspace->choice.profile;
        const arf_routes *routes = &profile->routes[own];
        const arf_route *route = &routes->route[service.route];
        int64_t from = service.route == 0 ? routes->min_tokens
                                          : routes->route[service.route - 1].max_tokens + 1;
        char tuning[512];
        arf_tuning_text(arf_knobs(profile->set, route->plan.protocol, own), &route->plan.tuning,
                        tuning, sizeof tuning);
        written = snprintf(text, size,
                           "%s of %" PRId64 " tokens: %s (%s), route %d of %d for %" PRId64
                           " to %" PRId64 " tokens, %s, from %s",
                           arf_pattern_name(own), tokens, arf_protocol_name(route->plan.protocol),
                           tuning, service.route + 1, routes->count, from, route->max_tokens,
                           arf_method_name(profile->evidence.method), workspace->choice.source);
    }
    return written >= 0 && (size_t)written < size ? ARFUSE_OK : ARFUSE_USAGE;
}
