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
#include "tune/schedule.h"
#include "tune/voice.h"

/* Of the columns of CSV and JSON lines; raised when one changes its meaning. */
#define RESULTS_VERSION 1

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

static bool is_routed(const arf_samples *samples, const arf_profile *profile, const arf_sample *s)
{
    if (profile == NULL)
        return false;
    const arf_routes *routes = &profile->routes[s->pattern];
    const int at = arf_route_of(routes, s->tokens);
    return at >= 0 &&
           arf_plan_equal(samples->header.set, s->pattern, &routes->route[at].plan, &s->plan);
}

static const char *outcome_name(arf_sample_outcome outcome)
{
    return outcome == ARF_SAMPLE_TIMED ? "timed" : outcome == ARF_SAMPLE_WRONG ? "wrong" : "failed";
}

static void tuning_of(const arf_samples *samples, const arf_sample *s, char text[512])
{
    arf_tuning_text(arf_knobs(samples->header.set, s->plan.protocol, s->pattern), &s->plan.tuning,
                    text, 512);
}

/* ---- one row a sample: CSV and JSON lines ------------------------------------------------------
 */

static void csv_field(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_csv(const arf_samples *samples, const arf_profile *profile,
                      const arf_sample *const *order, bool first)
{
    const arf_samples_header *h = &samples->header;
    if (first)
        puts("pattern,tp_size,hidden_size,top_k,dtype,tokens,protocol,tuning,median_us,low_us,"
             "high_us,rounds,calls,policy,device,link,outcome,reason,routed,format_version");
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *s = order[i];
        char tuning[512];
        double low, high;
        tuning_of(samples, s, tuning);
        printf("%s,%d,%d,%d,bf16,%" PRId64 ",%s,", arf_pattern_name(s->pattern), h->shape.tp_size,
               h->shape.hidden_size, h->shape.top_k, s->tokens,
               arf_protocol_name(s->plan.protocol));
        csv_field(tuning);
        if (s->outcome == ARF_SAMPLE_TIMED) {
            arf_median_interval(s->us, s->rounds, &low, &high);
            printf(",%.4f,%.4f,%.4f,%d,%d,", arf_median(s->us, s->rounds), low, high, s->rounds,
                   s->calls);
        } else {
            printf(",,,,0,0,");
        }
        printf("%s,", arf_policy_name(h->policy));
        csv_field(h->device.name);
        printf(",%s,%s,", arf_link_name(h->device.link), outcome_name(s->outcome));
        csv_field(s->reason);
        printf(",%s,%d\n", is_routed(samples, profile, s) ? "true" : "false", RESULTS_VERSION);
    }
}

static bool print_jsonl(const arf_samples *samples, const arf_profile *profile,
                        const arf_sample *const *order)
{
    const arf_samples_header *h = &samples->header;
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *s = order[i];
        const arf_knob_table *knobs = arf_knobs(h->set, s->plan.protocol, s->pattern);
        arf_text line = {0};
        arf_text_add(&line,
                     "{\"format\": \"arfuse-results\", \"version\": %d, \"pattern\": \"%s\", "
                     "\"tp_size\": %d, \"hidden_size\": %d, \"top_k\": %d, \"dtype\": "
                     "\"bf16\", \"tokens\": %" PRId64 ", \"protocol\": \"%s\", \"tuning\": {",
                     RESULTS_VERSION, arf_pattern_name(s->pattern), h->shape.tp_size,
                     h->shape.hidden_size, h->shape.top_k, s->tokens,
                     arf_protocol_name(s->plan.protocol));
        for (int k = 0; k < knobs->count; k++) {
            const char *gap = k == 0 ? "" : ", ";
            const int32_t value = s->plan.tuning.value[k];
            if (knobs->knob[k].kind == ARF_KNOB_BOOLEAN)
                arf_text_add(&line, "%s\"%s\": %s", gap, knobs->knob[k].name,
                             value ? "true" : "false");
            else
                arf_text_add(&line, "%s\"%s\": %d", gap, knobs->knob[k].name, value);
        }
        arf_text_add(&line, "}, ");
        if (s->outcome == ARF_SAMPLE_TIMED) {
            double low, high;
            arf_median_interval(s->us, s->rounds, &low, &high);
            arf_text_add(&line, "\"median_us\": ");
            arf_text_number(&line, arf_median(s->us, s->rounds), 4);
            arf_text_add(&line, ", \"low_us\": ");
            arf_text_number(&line, low, 4);
            arf_text_add(&line, ", \"high_us\": ");
            arf_text_number(&line, high, 4);
            arf_text_add(&line, ", \"rounds\": %d, \"calls\": %d, ", s->rounds, s->calls);
        }
        arf_text_add(&line, "\"policy\": \"%s\", \"device\": ", arf_policy_name(h->policy));
        arf_text_string(&line, h->device.name);
        arf_text_add(&line, ", \"link\": \"%s\", \"outcome\": \"%s\", ",
                     arf_link_name(h->device.link), outcome_name(s->outcome));
        if (s->reason[0] != '\0') {
            arf_text_add(&line, "\"reason\": ");
            arf_text_string(&line, s->reason);
            arf_text_add(&line, ", ");
        }
        arf_text_add(&line, "\"routed\": %s}", is_routed(samples, profile, s) ? "true" : "false");
        const bool whole = !line.failed;
        if (whole)
            puts(line.data);
        arf_text_free(&line);
        if (!whole)
            return false;
    }
    return true;
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
        print_csv(samples, profile, order, first);
    } else if (format == ARF_FORMAT_JSONL) {
        whole = print_jsonl(samples, profile, order);
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
