/* SPDX-License-Identifier: Apache-2.0 */
/* Our tables: the variables of a row first, then its numbers, then where they come from. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/columns.h"
#include "cli/csv.h"
#include "cli/export.h"
#include "cli/plan_text.h"
#include "fit/stats.h"
#include "rules/knobs.h"

/* A row under construction: cells by role, so that their order stands in columns.h alone. */
typedef struct row {
    arf_text cell[ARF_COLUMNS];
} row;

static void put(row *r, arf_column column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void put(row *r, arf_column column, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    arf_text_add(&r->cell[column], "%s", text);
}

static bool in_table(arf_column column, bool samples)
{
    bool of_samples =
        column == ARF_COL_TOKENS || (column >= ARF_COL_THEN && column <= ARF_COL_THROTTLE);
    bool of_routes = column == ARF_COL_MIN || column == ARF_COL_MAX ||
                     (column >= ARF_COL_BOUND_LOW && column <= ARF_COL_VARIANT);
    return samples ? !of_routes : !of_samples;
}

static arfuse_status finish(row *r, bool samples, arf_text *text, arf_error *error)
{
    bool failed = false;
    for (int c = 0; c < ARF_COLUMNS; c++) {
        failed |= r->cell[c].failed;
        if (in_table((arf_column)c, samples))
            arf_csv_add(text, c == 0, r->cell[c].data != NULL ? r->cell[c].data : "");
        arf_text_free(&r->cell[c]);
    }
    arf_text_add(text, "\n");
    return failed ? arf_fail(error, ARFUSE_FAILURE, "out of memory for a row") : ARFUSE_OK;
}

static void add_header(bool samples, arf_text *text)
{
    for (int c = 0; c < ARF_COLUMNS; c++)
        if (in_table((arf_column)c, samples))
            arf_csv_add(text, c == 0, arf_column_names[c][0]);
    arf_text_add(text, "\n");
}

/* ---- what both kinds of row have ----------------------------------------------------------------
 */

static const char *switch_text(arf_switch value)
{
    return value == ARF_EITHER ? "either" : value == ARF_ON ? "true" : "false";
}

static void put_key(row *r, arf_set set, const arf_shape *shape, const arf_device_key *device)
{
    put(r, ARF_COL_TP, "%d", shape->tp_size);
    put(r, ARF_COL_HIDDEN, "%d", shape->hidden_size);
    put(r, ARF_COL_TOP_K, "%d", shape->top_k);
    put(r, ARF_COL_DTYPE, "bf16");
    put(r, ARF_COL_NORM, "%s", switch_text(shape->rms_norm));
    put(r, ARF_COL_RESIDUAL, "%s", switch_text(shape->residual));
    put(r, ARF_COL_SHARED, "%s", switch_text(shape->shared_expert));
    put(r, ARF_COL_SET, "%s", arf_set_name(set));
    put(r, ARF_COL_DEVICE, "%s", device->name);
    put(r, ARF_COL_CAPABILITY, "%d.%d", device->capability_major, device->capability_minor);
    put(r, ARF_COL_SMS, "%d", device->sm_count);
    put(r, ARF_COL_LINK, "%s", arf_link_name(device->link));
    put(r, ARF_COL_NODES, "%d", device->nodes);
    put(r, ARF_COL_RANKS_PER_GPU, "%d", device->ranks_per_gpu);
}

static void put_plan(row *r, arf_set set, const int version[ARF_PROTOCOLS], arf_pattern pattern,
                     const arf_plan *plan)
{
    char tuning[ARF_PLAN_TEXT];
    arf_plan_tuning_text(set, pattern, plan, tuning);
    put(r, ARF_COL_PATTERN, "%s", arf_pattern_name(pattern));
    put(r, ARF_COL_PROTOCOL, "%s", arf_protocol_name(plan->protocol));
    put(r, ARF_COL_TRANSPORT, "%s", arf_transport_name(plan->transport));
    put(r, ARF_COL_NUMERICS, "%s", arf_numerics_name(plan->numerics));
    put(r, ARF_COL_TUNING, "%s", tuning);
    put(r, ARF_COL_VERSION, "%d", version[plan->protocol]);
}

/* ---- samples ------------------------------------------------------------------------------------
 */

static void put_times(row *r, const arf_sample *sample)
{
    arf_estimate estimate;
    put(r, ARF_COL_ROUNDS, "%d", sample->rounds);
    put(r, ARF_COL_CALLS, "%d", sample->calls);
    for (int i = 0; i < sample->rounds; i++) {
        if (i > 0)
            arf_text_add(&r->cell[ARF_COL_ROUNDS_US], " ");
        arf_text_number(&r->cell[ARF_COL_ROUNDS_US], sample->us[i], 4);
    }
    if (!arf_estimate_median(sample->us, sample->rounds, 1, &estimate))
        return;
    arf_text_number(&r->cell[ARF_COL_US], estimate.median, 4);
    arf_text_number(&r->cell[ARF_COL_SPREAD], arf_estimate_noise(&estimate), 4);
}

static arfuse_status add_sample(const arf_samples_header *header, const arf_sample *sample,
                                arf_text *text, arf_error *error)
{
    static const char *const outcome[] = {"timed", "wrong", "failed"};
    row r = {0};
    char then[ARF_PLAN_TEXT];
    put(&r, ARF_COL_FORMAT, ARF_CSV_SAMPLES);
    put_key(&r, header->set, &header->shape, &header->device);
    put_plan(&r, header->set, header->version, sample->pattern, &sample->plan);
    put(&r, ARF_COL_TOKENS, "%lld", (long long)sample->tokens);
    if (sample->has_then) {
        arf_plan_cell(header->set, ARF_ALLREDUCE, &sample->then, then, sizeof then);
        put(&r, ARF_COL_THEN, "%s", then);
    }
    put(&r, ARF_COL_OUTCOME, "%s", outcome[sample->outcome]);
    put(&r, ARF_COL_REASON, "%s", sample->reason);
    put_times(&r, sample);
    if (sample->clock_mhz > 0)
        put(&r, ARF_COL_CLOCK, "%d", sample->clock_mhz);
    put(&r, ARF_COL_THROTTLE, "%s", sample->throttle);
    put(&r, ARF_COL_POLICY, "%s", arf_policy_name(header->policy));
    put(&r, ARF_COL_SEED, "%llu", (unsigned long long)header->seed);
    put(&r, ARF_COL_TOOL, "%s", header->tool);
    put(&r, ARF_COL_DRIVER, "%s", header->driver);
    put(&r, ARF_COL_DIGEST, "%s", header->source_digest);
    return finish(&r, true, text, error);
}

arfuse_status arf_export_samples_csv(const arf_samples *samples, bool header, arf_text *text,
                                     arf_error *error)
{
    if (header)
        add_header(true, text);
    for (int i = 0; i < samples->count; i++)
        ARF_TRY(add_sample(&samples->header, &samples->sample[i], text, error));
    return ARFUSE_OK;
}

/* ---- routes -------------------------------------------------------------------------------------
 */

static void put_evidence(row *r, const arf_route_evidence *evidence)
{
    if (evidence->bound_high != 0) {
        put(r, ARF_COL_BOUND_LOW, "%lld", (long long)evidence->bound_low);
        put(r, ARF_COL_BOUND_HIGH, "%lld", (long long)evidence->bound_high);
    }
    put(r, ARF_COL_RUNNER_UP, "%s", evidence->runner_up);
    if (!isnan(evidence->margin))
        arf_text_number(&r->cell[ARF_COL_MARGIN], evidence->margin, -1);
    if (evidence->shift_tokens != 0) {
        put(r, ARF_COL_SHIFT_TOKENS, "%lld", (long long)evidence->shift_tokens);
        arf_text_number(&r->cell[ARF_COL_WARM_US], evidence->policy_us[ARF_WARM], -1);
        arf_text_number(&r->cell[ARF_COL_DECODE_US], evidence->policy_us[ARF_DECODE], -1);
    }
}

static arfuse_status add_route(const arf_profile *profile, arf_pattern pattern, int index,
                               arf_text *text, arf_error *error)
{
    const arf_routes *routes = &profile->routes[pattern];
    const arf_evidence *evidence = &profile->evidence;
    const arf_route *route = &routes->route[index];
    row r = {0};
    put(&r, ARF_COL_FORMAT, ARF_CSV_ROUTES);
    put_key(&r, profile->set, &profile->shape, &profile->device);
    put_plan(&r, profile->set, profile->version, pattern, &route->plan);
    put(&r, ARF_COL_MIN, "%lld", (long long)arf_route_first(routes, index));
    if (route->max_tokens != ARF_OPEN_BOUND)
        put(&r, ARF_COL_MAX, "%lld", (long long)route->max_tokens);
    if (evidence->route_count[pattern] > 0)
        put_evidence(&r, &evidence->route[pattern][index]);
    put(&r, ARF_COL_METHOD, "%s", arf_method_name(evidence->method));
    put(&r, ARF_COL_VARIANT, "%s", profile->variant);
    if (evidence->has_policy)
        put(&r, ARF_COL_POLICY, "%s", arf_policy_name(evidence->policy));
    put(&r, ARF_COL_TOOL, "%s", evidence->tool);
    put(&r, ARF_COL_DRIVER, "%s", evidence->driver);
    put(&r, ARF_COL_DIGEST, "%s", evidence->source_digest);
    return finish(&r, false, text, error);
}

arfuse_status arf_export_routes_csv(const arf_profile *profile, bool header, arf_text *text,
                                    arf_error *error)
{
    if (header)
        add_header(false, text);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        for (int i = 0; i < profile->routes[pattern].count; i++)
            ARF_TRY(add_route(profile, (arf_pattern)pattern, i, text, error));
    return ARFUSE_OK;
}
