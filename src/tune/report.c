/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "rules/knobs.h"
#include "tune/measure.h"
#include "tune/rows.h"
#include "tune/schedule.h"
#include "tune/voice.h"

/* ---- samples in order --------------------------------------------------------------------------
 */

static int by_point(const void *a, const void *b)
{
    const arf_sample *x = *(const arf_sample *const *)a, *y = *(const arf_sample *const *)b;
    if (x->pattern != y->pattern)
        return x->pattern < y->pattern ? -1 : 1;
    if (x->tokens != y->tokens)
        return x->tokens < y->tokens ? -1 : 1;
    if (x->plan.protocol != y->plan.protocol)
        return x->plan.protocol < y->plan.protocol ? -1 : 1;
    return x < y ? -1 : x > y; /* as measured */
}

static const arf_sample **sorted(const arf_samples *samples)
{
    const arf_sample **order = malloc(((size_t)samples->count + 1) * sizeof(*order));
    if (order == NULL)
        return NULL;
    for (int i = 0; i < samples->count; i++)
        order[i] = &samples->sample[i];
    qsort(order, (size_t)samples->count, sizeof(*order), by_point);
    return order;
}

/* ---- for people: table and markdown ------------------------------------------------------------
 */

/* The best of each protocol at one (pattern, M): indices i .. end of `order` hold that point. */
static void point_row(const arf_samples *samples, const arf_profile *profile,
                      const arf_sample *const *order, int i, int end, const bool *column, bool md)
{
    double us[ARF_PROTOCOLS], best = INFINITY;
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        us[p] = INFINITY;
    for (int k = i; k < end; k++)
        if (order[k]->outcome == ARF_SAMPLE_TIMED) {
            double *own = &us[order[k]->plan.protocol];
            *own = fmin(*own, arf_median(order[k]->us, order[k]->rounds));
            best = fmin(best, *own);
        }
    printf(md ? "| %" PRId64 " |" : "  %8" PRId64, order[i]->tokens);
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        char cell[32] = "-";
        if (!column[p])
            continue;
        if (isfinite(us[p]))
            snprintf(cell, sizeof cell, "%.2f%s", us[p], us[p] == best ? "*" : " ");
        printf(md ? " %s |" : "  %11s", cell);
    }
    const char *route = "-";
    if (profile != NULL && isfinite(best)) { /* no time, no word on who serves it best */
        const arf_routes *routes = &profile->routes[order[i]->pattern];
        const int at = arf_route_of(routes, order[i]->tokens);
        if (at >= 0)
            route = arf_protocol_name(routes->route[at].plan.protocol);
    }
    printf(md ? " %s |\n" : "  %s\n", route);
    (void)samples;
}

static void print_points(const arf_samples *samples, const arf_profile *profile,
                         const arf_sample *const *order, arf_pattern pattern, bool md)
{
    const arf_samples_header *h = &samples->header;
    bool column[ARF_PROTOCOLS] = {false}, any = false;
    for (int i = 0; i < samples->count; i++)
        if (order[i]->pattern == pattern && order[i]->outcome == ARF_SAMPLE_TIMED)
            any = column[order[i]->plan.protocol] = true;
    if (!any)
        return;
    printf("%s%s, %d rank%s, H %d", md ? "### " : "", arf_pattern_name(pattern), h->shape.tp_size,
           ARF_PLURAL(h->shape.tp_size), h->shape.hidden_size);
    if (pattern == ARF_FINALIZE)
        printf(", top-k %d", h->shape.top_k);
    printf(" on %s (%s): microseconds a call, %s; * fastest%s", h->device.name,
           arf_link_name(h->device.link), arf_policy_name(h->policy), md ? "\n\n" : "\n");
    printf(md ? "| tokens |" : "  %8s", "tokens");
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        if (column[p])
            printf(md ? " %s |" : "  %10s ", arf_protocol_name((arf_protocol)p));
    printf(md ? " route |\n|---|" : "  route\n");
    for (int p = 0; p < ARF_PROTOCOLS && md; p++)
        if (column[p])
            printf("---|");
    if (md)
        printf("---|\n");
    for (int i = 0, end; i < samples->count; i = end) {
        for (end = i + 1; end < samples->count && order[end]->pattern == order[i]->pattern &&
                          order[end]->tokens == order[i]->tokens;)
            end++;
        if (order[i]->pattern == pattern)
            point_row(samples, profile, order, i, end, column, md);
    }
    printf("\n");
}

static void print_routes(const arf_profile *profile, arf_pattern pattern, bool md)
{
    const arf_routes *routes = &profile->routes[pattern];
    int64_t first = 1;
    for (int i = 0; i < routes->count; i++) {
        const arf_route *route = &routes->route[i];
        const arf_route_evidence *e = &profile->evidence.route[pattern][i];
        const bool has = profile->evidence.route_count[pattern] == routes->count;
        char plan[512], range[48];
        arf_plan_text(profile->set, pattern, &route->plan, plan, sizeof plan);
        snprintf(range, sizeof range, "%" PRId64 "..%" PRId64, first, route->max_tokens);
        printf("%s%-9s  %-12s %s", md ? "- " : "  ", arf_pattern_name(pattern), range, plan);
        if (has && i + 1 < routes->count && e->bound_high > 0)
            printf("  (bound in %" PRId64 "..%" PRId64 ")", e->bound_low, e->bound_high);
        if (has && e->runner_up[0] != '\0' && isfinite(e->margin))
            printf("  (next %s, %+.1f %%)", e->runner_up, e->margin * 100);
        printf("\n");
        first = route->max_tokens + 1;
    }
}

arfuse_status arf_report(const arf_samples *samples, const arf_profile *profile, arf_format format,
                         bool first, arf_error *error)
{
    const arf_sample **order = sorted(samples);
    if (order == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the results");
    bool whole = true;
    const bool md = format == ARF_FORMAT_MARKDOWN;
    errno = 0;
    if (format == ARF_FORMAT_CSV) {
        arf_rows_csv(samples, profile, order, first);
    } else if (format == ARF_FORMAT_JSONL) {
        whole = arf_rows_jsonl(samples, profile, order);
    } else {
        for (int p = 0; p < ARF_PATTERNS; p++)
            print_points(samples, profile, order, (arf_pattern)p, md);
        for (int p = 0; p < ARF_PATTERNS && profile != NULL; p++)
            print_routes(profile, (arf_pattern)p, md);
    }
    free(order);
    if (!whole)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the results");
    if (fflush(stdout) != 0 || ferror(stdout))
        return arf_fail(error, ARFUSE_FAILURE, "stdout does not take the results: %s",
                        strerror(errno));
    return ARFUSE_OK;
}
