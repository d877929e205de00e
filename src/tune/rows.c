/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/rows.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "rules/knobs.h"
#include "tune/interval.h"

/* Raised when a column or member changes its meaning. */
#define RESULTS_VERSION 1

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

static const char *truth(bool value)
{
    return value ? "true" : "false";
}

/* ---- CSV ----------------------------------------------------------------------------------- */

static void csv_field(const char *text)
{
    if (text[0] == '\0')
        return;
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void csv_plan(arf_set set, const arf_sample *s)
{
    char text[768];
    arf_tuning_text(arf_knobs(set, s->plan.protocol, s->pattern), &s->plan.tuning, text,
                    sizeof text);
    printf("%s,%s,%s,", arf_protocol_name(s->plan.protocol), arf_transport_name(s->plan.transport),
           arf_numerics_name(s->plan.numerics));
    csv_field(text);
    putchar(',');
    if (s->has_then) {
        arf_plan_cell(set, ARF_ALLREDUCE, &s->then, text, sizeof text);
        csv_field(text);
    }
}

static void csv_times(const arf_sample *s)
{
    double low, high;
    if (s->outcome == ARF_SAMPLE_TIMED) {
        arf_median_interval(s->us, s->rounds, &low, &high);
        printf(",%.4f,%.4f,%.4f,%d,%d,", arf_median(s->us, s->rounds), low, high, s->rounds,
               s->calls);
    } else {
        printf(",,,,0,0,");
    }
    if (s->clock_mhz > 0)
        printf("%d", s->clock_mhz);
    putchar(',');
    csv_field(s->throttle);
}

void arf_rows_csv(const arf_samples *samples, const arf_profile *profile,
                  const arf_sample *const *order, bool head)
{
    const arf_samples_header *h = &samples->header;
    const arf_device_key *d = &h->device;
    if (head)
        puts("pattern,tp_size,hidden_size,top_k,dtype,rms_norm,residual,shared_expert,tokens,"
             "protocol,transport,numerics,tuning,then,median_us,low_us,high_us,rounds,calls,"
             "clock_mhz,throttle,policy,kernel_set,device,compute_capability,sm_count,link,nodes,"
             "ranks_per_gpu,outcome,reason,routed,format_version");
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *s = order[i];
        printf("%s,%d,%d,%d,bf16,%s,%s,%s,%" PRId64 ",", arf_pattern_name(s->pattern),
               h->shape.tp_size, h->shape.hidden_size, h->shape.top_k,
               truth(h->shape.rms_norm == ARF_ON), truth(h->shape.residual == ARF_ON),
               truth(h->shape.shared_expert == ARF_ON), s->tokens);
        csv_plan(h->set, s);
        csv_times(s);
        printf(",%s,%s,", arf_policy_name(h->policy), arf_set_name(h->set));
        csv_field(d->name);
        printf(",%d.%d,%d,%s,%d,%d,%s,", d->capability_major, d->capability_minor, d->sm_count,
               arf_link_name(d->link), d->nodes, d->ranks_per_gpu, outcome_name(s->outcome));
        csv_field(s->reason);
        printf(",%s,%d\n", truth(is_routed(samples, profile, s)), RESULTS_VERSION);
    }
}

/* ---- JSON lines ---------------------------------------------------------------------------- */

static void add_text(arf_text *line, const char *name, const char *value)
{
    if (value[0] == '\0')
        return;
    arf_text_add(line, ", \"%s\": ", name);
    arf_text_string(line, value);
}

/* The members of a plan, without braces. */
static void add_plan(arf_text *line, arf_set set, arf_pattern pattern, const arf_plan *plan)
{
    const arf_knob_table *knobs = arf_knobs(set, plan->protocol, pattern);
    arf_text_add(line,
                 "\"protocol\": \"%s\", \"transport\": \"%s\", \"numerics\": \"%s\", "
                 "\"tuning\": {",
                 arf_protocol_name(plan->protocol), arf_transport_name(plan->transport),
                 arf_numerics_name(plan->numerics));
    for (int k = 0; k < knobs->count; k++) {
        const int32_t value = plan->tuning.value[k];
        arf_text_add(line, "%s\"%s\": ", k == 0 ? "" : ", ", knobs->knob[k].name);
        if (knobs->knob[k].kind == ARF_KNOB_BOOLEAN)
            arf_text_add(line, "%s", truth(value));
        else
            arf_text_add(line, "%d", value);
    }
    arf_text_add(line, "}");
}

static void add_times(arf_text *line, const arf_sample *s)
{
    double low, high;
    arf_median_interval(s->us, s->rounds, &low, &high);
    arf_text_add(line, ", \"median_us\": ");
    arf_text_number(line, arf_median(s->us, s->rounds), 4);
    arf_text_add(line, ", \"low_us\": ");
    arf_text_number(line, low, 4);
    arf_text_add(line, ", \"high_us\": ");
    arf_text_number(line, high, 4);
    arf_text_add(line, ", \"rounds\": %d, \"calls\": %d", s->rounds, s->calls);
}

static void add_row(arf_text *line, const arf_samples_header *h, const arf_sample *s, bool routed)
{
    const arf_device_key *d = &h->device;
    arf_text_add(line,
                 "{\"format\": \"arfuse-results\", \"version\": %d, \"pattern\": \"%s\", "
                 "\"tp_size\": %d, \"hidden_size\": %d, \"top_k\": %d, \"dtype\": \"bf16\", "
                 "\"rms_norm\": %s, \"residual\": %s, \"shared_expert\": %s, "
                 "\"tokens\": %" PRId64 ", ",
                 RESULTS_VERSION, arf_pattern_name(s->pattern), h->shape.tp_size,
                 h->shape.hidden_size, h->shape.top_k, truth(h->shape.rms_norm == ARF_ON),
                 truth(h->shape.residual == ARF_ON), truth(h->shape.shared_expert == ARF_ON),
                 s->tokens);
    add_plan(line, h->set, s->pattern, &s->plan);
    if (s->has_then) {
        arf_text_add(line, ", \"then\": {");
        add_plan(line, h->set, ARF_ALLREDUCE, &s->then);
        arf_text_add(line, "}");
    }
    if (s->outcome == ARF_SAMPLE_TIMED)
        add_times(line, s);
    if (s->clock_mhz > 0)
        arf_text_add(line, ", \"clock_mhz\": %d", s->clock_mhz);
    add_text(line, "throttle", s->throttle);
    add_text(line, "policy", arf_policy_name(h->policy));
    add_text(line, "kernel_set", arf_set_name(h->set));
    add_text(line, "device", d->name);
    arf_text_add(line,
                 ", \"compute_capability\": \"%d.%d\", \"sm_count\": %d, \"link\": \"%s\", "
                 "\"nodes\": %d, \"ranks_per_gpu\": %d",
                 d->capability_major, d->capability_minor, d->sm_count, arf_link_name(d->link),
                 d->nodes, d->ranks_per_gpu);
    add_text(line, "outcome", outcome_name(s->outcome));
    add_text(line, "reason", s->reason);
    arf_text_add(line, ", \"routed\": %s}", truth(routed));
}

bool arf_rows_jsonl(const arf_samples *samples, const arf_profile *profile,
                    const arf_sample *const *order)
{
    for (int i = 0; i < samples->count; i++) {
        arf_text line = {0};
        add_row(&line, &samples->header, order[i], is_routed(samples, profile, order[i]));
        const bool whole = !line.failed;
        if (whole)
            puts(line.data);
        arf_text_free(&line);
        if (!whole)
            return false;
    }
    return true;
}
