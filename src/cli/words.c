/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

const char *arf_protocol_words(arf_protocol protocol)
{
    switch (protocol) {
    case ARF_LL:
        return "ll (low latency)";
    case ARF_BT:
        return "bt (balanced)";
    case ARF_HT:
        return "ht (high throughput)";
    case ARF_UNFUSED:
        return "unfused (separate kernels)";
    case ARF_SEPARATE:
        return "separate finalize, then the allreduce route";
    default:
        return "?";
    }
}

void arf_pattern_words(arf_pattern pattern, const arf_shape *shape, char *text, size_t size)
{
    const char *norm = shape->rms_norm == ARF_OFF      ? ""
                       : shape->rms_norm == ARF_EITHER ? " (+ RMSNorm)"
                                                       : " + RMSNorm";
    snprintf(text, size, "%s%sall-reduce%s%s", pattern == ARF_FINALIZE ? "MoE finalize + " : "",
             pattern == ARF_FINALIZE && shape->shared_expert == ARF_ON ? "shared expert + " : "",
             shape->residual == ARF_ON ? " + residual" : "", norm);
}

void arf_range_words(int64_t low, int64_t high, char *text, size_t size)
{
    if (high == ARF_OPEN_BOUND)
        snprintf(text, size, "%lld and more", (long long)low);
    else if (low == high)
        snprintf(text, size, "%lld", (long long)low);
    else
        snprintf(text, size, "%lld-%lld", (long long)low, (long long)high);
}

void arf_route_words(const arf_routes *routes, int index, char *text, size_t size)
{
    arf_range_words(arf_route_first(routes, index), routes->route[index].max_tokens, text, size);
}

void arf_shift_words(const arf_route_evidence *route, char *text, size_t size)
{
    const double warm = route->policy_us[ARF_WARM], decode = route->policy_us[ARF_DECODE];
    snprintf(text, size, "warm %.2f us, decode %.2f us (%+.1f %%) at %lld token%s", warm, decode,
             (decode / warm - 1) * 100, (long long)route->shift_tokens,
             route->shift_tokens == 1 ? "" : "s");
}

void arf_promise_words(const arf_plan *plan, char *text, size_t size)
{
    const char *numerics = arf_numerics_name(plan->numerics);
    snprintf(text, size, "%s%s%s", plan->transport == ARF_UNICAST ? "" : ", multicast-store",
             plan->numerics == ARF_FIXED ? "" : ", numerics ",
             plan->numerics == ARF_FIXED ? "" : numerics);
}
