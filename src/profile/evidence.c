/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/evidence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/parts.h"

#define REFUSE(...) arf_fail(error, ARFUSE_PROFILE, __VA_ARGS__)

#define MAX_RATIO 1e6 /* noise, regret, margin, change: anything beyond is a mistake */

enum { PATH = 64 };

/* What this version knows; any other member is kept as it was. */
static const char *const members[] = {
    "method",        "context", "policy", "tool",           "driver",
    "source_digest", "library", "noise",  "regret_geomean", "regret_max",
    "mixed",         "routes",  NULL};
static const char *const mix_members[] = {"tokens", "median_us", "change", "change_interval", NULL};
static const char *const route_members[] = {"bound_interval", "runner_up", "margin", "shift_tokens",
                                            "warm_us",        "decode_us", NULL};

/* The member of a route's entry that holds its time under a policy. */
static const char *const policy_members[ARF_POLICIES] = {"warm_us", "decode_us"};
static const char *const pattern_members[] = {"allreduce", "finalize", NULL};

/* ---- reading ------------------------------------------------------------------------------- */

/* What is not in `known`, as the text of one object; NULL when there is nothing. */
static arfuse_status keep_unknown(const arf_json_value *object, const char *const *known,
                                  char **extra, arf_error *error)
{
    arf_text text = {0};
    arf_json_value member = {0};
    const char *name;
    while (arf_json_next(object, &member, &name)) {
        int i = 0;
        while (known[i] != NULL && strcmp(known[i], name) != 0)
            i++;
        if (known[i] != NULL)
            continue;
        char *value = arf_json_print(&member);
        arf_text_add(&text, text.bytes == 0 ? "{" : ",");
        arf_text_string(&text, name);
        arf_text_add(&text, ":%s", value != NULL ? value : "");
        text.failed |= value == NULL;
        free(value);
    }
    if (text.bytes > 0)
        arf_text_add(&text, "}");
    if (text.failed) {
        arf_text_free(&text);
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %s", object->path);
    }
    *extra = text.data;
    return ARFUSE_OK;
}

static arfuse_status read_ratio(const arf_json_value *object, const char *name, double low,
                                double *ratio, arf_error *error)
{
    arf_json_value value;
    ARF_TRY(arf_json_optional(object, name, &value, error));
    return value.node == NULL ? ARFUSE_OK : arf_json_number(&value, low, MAX_RATIO, ratio, error);
}

static arfuse_status read_pair(const arf_json_value *list, arf_json_value end[2], arf_error *error)
{
    int count = 0;
    ARF_TRY(arf_json_array(list, &count, error));
    if (count != 2)
        return arf_fail(error, ARFUSE_PROFILE, "%s: %d numbers, expected 2", list->path, count);
    end[0] = arf_json_element(list, 0);
    end[1] = arf_json_element(list, 1);
    return ARFUSE_OK;
}

/* All three members or none. */
static arfuse_status read_shift(const arf_json_value *object, arf_route_evidence *route,
                                arf_error *error)
{
    arf_json_value value;
    ARF_TRY(arf_json_optional(object, "shift_tokens", &value, error));
    if (value.node != NULL)
        ARF_TRY(arf_json_integer(&value, 1, ARF_MAX_TOKENS, &route->shift_tokens, error));
    for (int i = 0; i < ARF_POLICIES; i++) {
        ARF_TRY(arf_json_optional(object, policy_members[i], &value, error));
        if ((value.node != NULL) != (route->shift_tokens != 0))
            return arf_fail(error, ARFUSE_PROFILE,
                            "%s: expected shift_tokens, warm_us and decode_us together, or none",
                            object->path);
        if (value.node != NULL)
            ARF_TRY(arf_json_number(&value, 0, ARF_MAX_US, &route->policy_us[i], error));
    }
    return ARFUSE_OK;
}

static arfuse_status read_route(const arf_json_value *object, arf_route_evidence *route,
                                char **extra, arf_error *error)
{
    arf_json_value value;
    ARF_TRY(arf_json_object(object, NULL, error));
    ARF_TRY(arf_json_optional(object, "bound_interval", &value, error));
    if (value.node != NULL) {
        arf_json_value end[2];
        ARF_TRY(read_pair(&value, end, error));
        ARF_TRY(arf_json_integer(&end[0], 1, ARF_MAX_TOKENS, &route->bound_low, error));
        ARF_TRY(arf_json_integer(&end[1], 1, ARF_MAX_TOKENS, &route->bound_high, error));
    }
    ARF_TRY(arf_read_text(object, "runner_up", route->runner_up, error));
    ARF_TRY(read_ratio(object, "margin", -1.0, &route->margin, error));
    ARF_TRY(read_shift(object, route, error));
    return keep_unknown(object, route_members, extra, error);
}

static arfuse_status read_routes(const arf_json_value *object, arf_evidence *evidence,
                                 arf_error *error)
{
    ARF_TRY(arf_json_object(object, pattern_members, error));
    for (int i = 0; i < ARF_PATTERNS; i++) {
        arf_json_value list, entry = {0};
        int count = 0;
        ARF_TRY(arf_json_optional(object, arf_pattern_name((arf_pattern)i), &list, error));
        if (list.node == NULL)
            continue;
        ARF_TRY(arf_json_array(&list, &count, error));
        if (count > ARF_MAX_ROUTES)
            return arf_fail(error, ARFUSE_PROFILE, "%s: %d entries, expected at most %d", list.path,
                            count, ARF_MAX_ROUTES);
        evidence->route_count[i] = count;
        for (int j = 0; arf_json_next(&list, &entry, NULL); j++)
            ARF_TRY(
                read_route(&entry, &evidence->route[i][j], &evidence->route_extra[i][j], error));
    }
    return ARFUSE_OK;
}

static arfuse_status read_mix(const arf_json_value *object, arf_mix_evidence *mix, char **extra,
                              arf_error *error)
{
    arf_json_value value, tokens = {0}, end[2];
    ARF_TRY(arf_json_object(object, NULL, error));
    ARF_TRY(arf_json_member(object, "tokens", &value, error));
    ARF_TRY(arf_json_array(&value, &mix->count, error));
    if (mix->count < 2 || mix->count > ARF_MAX_MIX)
        return arf_fail(error, ARFUSE_PROFILE, "%s: %d token counts, expected 2 to %d", value.path,
                        mix->count, ARF_MAX_MIX);
    for (int i = 0; arf_json_next(&value, &tokens, NULL); i++)
        ARF_TRY(arf_json_integer(&tokens, 1, ARF_MAX_TOKENS, &mix->tokens[i], error));
    ARF_TRY(arf_json_member(object, "median_us", &value, error));
    ARF_TRY(arf_json_number(&value, 0, ARF_MAX_US, &mix->median_us, error));
    ARF_TRY(arf_json_member(object, "change", &value, error));
    ARF_TRY(arf_json_number(&value, -1, MAX_RATIO, &mix->change, error));
    ARF_TRY(arf_json_member(object, "change_interval", &value, error));
    ARF_TRY(read_pair(&value, end, error));
    ARF_TRY(arf_json_number(&end[0], -1, MAX_RATIO, &mix->change_low, error));
    ARF_TRY(arf_json_number(&end[1], -1, MAX_RATIO, &mix->change_high, error));
    return keep_unknown(object, mix_members, extra, error);
}

static arfuse_status read_mixed(const arf_json_value *object, arf_evidence *evidence,
                                arf_error *error)
{
    ARF_TRY(arf_json_object(object, pattern_members, error));
    for (int i = 0; i < ARF_PATTERNS; i++) {
        arf_json_value mix;
        ARF_TRY(arf_json_optional(object, arf_pattern_name((arf_pattern)i), &mix, error));
        if (mix.node != NULL)
            ARF_TRY(read_mix(&mix, &evidence->mix[i], &evidence->mix_extra[i], error));
    }
    return ARFUSE_OK;
}

arfuse_status arf_read_evidence(const arf_json_value *root, arf_evidence *evidence,
                                arf_error *error)
{
    arf_json_value object, value;
    char method[ARF_NAME_TEXT];
    ARF_TRY(arf_json_member(root, "evidence", &object, error));
    ARF_TRY(arf_json_object(&object, NULL, error));
    ARF_TRY(arf_json_member(&object, "method", &value, error));
    ARF_TRY(arf_json_string(&value, method, sizeof method, error));
    if (!arf_method_parse(method, &evidence->method))
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: \"%s\", expected measured, published, retargeted or default",
                        value.path, method);
    ARF_TRY(arf_read_text(&object, "context", evidence->context, error));
    ARF_TRY(arf_read_policy(&object, &evidence->policy, &evidence->has_policy, error));
    ARF_TRY(arf_read_text(&object, "tool", evidence->tool, error));
    ARF_TRY(arf_read_text(&object, "driver", evidence->driver, error));
    ARF_TRY(arf_read_text(&object, "source_digest", evidence->source_digest, error));
    ARF_TRY(arf_read_note(&object, "library", evidence->library, error));
    ARF_TRY(read_ratio(&object, "noise", 0, &evidence->noise, error));
    ARF_TRY(read_ratio(&object, "regret_geomean", 0, &evidence->regret_geomean, error));
    ARF_TRY(read_ratio(&object, "regret_max", 0, &evidence->regret_max, error));
    ARF_TRY(arf_json_optional(&object, "mixed", &value, error));
    if (value.node != NULL)
        ARF_TRY(read_mixed(&value, evidence, error));
    ARF_TRY(arf_json_optional(&object, "routes", &value, error));
    if (value.node != NULL)
        ARF_TRY(read_routes(&value, evidence, error));
    return keep_unknown(&object, members, &evidence->extra, error);
}

/* ---- judging ------------------------------------------------------------------------------- */

/* Unknown members, as text: an object none of whose members the writer prints itself. */
static arfuse_status check_extra(const char *path, const char *extra, const char *const *known,
                                 arf_error *error)
{
    arf_json *json = NULL;
    if (extra == NULL)
        return ARFUSE_OK;
    arfuse_status status = arf_json_parse(extra, strlen(extra), &json, error);
    if (status == ARFUSE_OK) {
        arf_json_value root = arf_json_root(json), member = {0};
        const char *name;
        status = arf_json_object(&root, NULL, error);
        while (status == ARFUSE_OK && arf_json_next(&root, &member, &name))
            for (int i = 0; known[i] != NULL; i++)
                if (strcmp(known[i], name) == 0)
                    status = REFUSE("member \"%s\" is known, expected unknown ones only", name);
    }
    if (status != ARFUSE_OK)
        arf_error_prefix(error, "%s: kept members", path);
    arf_json_free(json);
    return status;
}

/* NaN: not measured. */
static arfuse_status check_ratio(const char *path, double value, double low, arf_error *error)
{
    if (isnan(value) || (value >= low && value <= MAX_RATIO))
        return ARFUSE_OK;
    return REFUSE("%s: %g, expected a number from %g to %g", path, value, low, MAX_RATIO);
}

static arfuse_status check_us(const char *path, const char *member, double us, arf_error *error)
{
    if (us >= 0 && us <= ARF_MAX_US)
        return ARFUSE_OK;
    return REFUSE("%s.%s: %g, expected microseconds from 0 to %g", path, member, us, ARF_MAX_US);
}

static arfuse_status check_mix(const arf_mix_evidence *mix, const char *path, arf_error *error)
{
    if (mix->count < 0 || mix->count == 1 || mix->count > ARF_MAX_MIX)
        return REFUSE("%s.tokens: %d token counts, expected 2 to %d", path, mix->count,
                      ARF_MAX_MIX);
    if (mix->count == 0)
        return ARFUSE_OK;
    for (int i = 0; i < mix->count; i++)
        if (mix->tokens[i] < 1 || mix->tokens[i] > ARF_MAX_TOKENS)
            return REFUSE("%s.tokens[%d]: %lld, expected an integer from 1 to %d", path, i,
                          (long long)mix->tokens[i], ARF_MAX_TOKENS);
    if (!(mix->change_low >= -1 && mix->change_low <= mix->change &&
          mix->change <= mix->change_high && mix->change_high <= MAX_RATIO))
        return REFUSE("%s.change_interval: [%g, %g], expected two numbers from -1 to %g around "
                      "change, which is %g",
                      path, mix->change_low, mix->change_high, MAX_RATIO, mix->change);
    return check_us(path, "median_us", mix->median_us, error);
}

static arfuse_status check_route(const arf_route_evidence *route, int64_t bound, const char *path,
                                 arf_error *error)
{
    char member[PATH + 16];
    arf_protocol protocol;
    bool unknown = route->bound_low == 0 && route->bound_high == 0;
    if (!unknown && (route->bound_low < 1 || route->bound_high < route->bound_low ||
                     route->bound_high > ARF_MAX_TOKENS))
        return REFUSE("%s.bound_interval: [%lld, %lld], expected two token counts in ascending "
                      "order",
                      path, (long long)route->bound_low, (long long)route->bound_high);
    /* An edited bound would else carry the measurement of another. */
    if (!unknown && bound != ARF_OPEN_BOUND &&
        (bound < route->bound_low || bound > route->bound_high))
        return REFUSE("%s.bound_interval: [%lld, %lld], expected one that holds the route's "
                      "max_tokens, which is %lld",
                      path, (long long)route->bound_low, (long long)route->bound_high,
                      (long long)bound);
    if (route->runner_up[0] != '\0' && !arf_protocol_parse(route->runner_up, &protocol))
        return REFUSE("%s.runner_up: \"%.40s\", expected a protocol or separate", path,
                      route->runner_up);
    snprintf(member, sizeof member, "%s.margin", path);
    ARF_TRY(check_ratio(member, route->margin, -1.0, error));
    if (route->shift_tokens == 0)
        return ARFUSE_OK;
    if (route->shift_tokens < 1 || route->shift_tokens > ARF_MAX_TOKENS)
        return REFUSE("%s.shift_tokens: %lld, expected an integer from 1 to %d", path,
                      (long long)route->shift_tokens, ARF_MAX_TOKENS);
    for (int i = 0; i < ARF_POLICIES; i++)
        ARF_TRY(check_us(path, policy_members[i], route->policy_us[i], error));
    return ARFUSE_OK;
}

arfuse_status arf_check_evidence(const arf_profile *profile, arf_error *error)
{
    const arf_evidence *evidence = &profile->evidence;
    char path[PATH];
    ARF_TRY(arf_check_text("$.evidence.context", evidence->context, error));
    ARF_TRY(arf_check_text("$.evidence.tool", evidence->tool, error));
    ARF_TRY(arf_check_text("$.evidence.driver", evidence->driver, error));
    ARF_TRY(arf_check_text("$.evidence.source_digest", evidence->source_digest, error));
    ARF_TRY(arf_check_text("$.evidence.library", evidence->library, error));
    ARF_TRY(check_ratio("$.evidence.noise", evidence->noise, 0, error));
    ARF_TRY(check_ratio("$.evidence.regret_geomean", evidence->regret_geomean, 0, error));
    ARF_TRY(check_ratio("$.evidence.regret_max", evidence->regret_max, 0, error));
    ARF_TRY(check_extra("$.evidence", evidence->extra, members, error));
    for (int i = 0; i < ARF_PATTERNS; i++) {
        const char *name = arf_pattern_name((arf_pattern)i);
        snprintf(path, sizeof path, "$.evidence.mixed.%s", name);
        ARF_TRY(check_mix(&evidence->mix[i], path, error));
        ARF_TRY(check_extra(path, evidence->mix_extra[i], mix_members, error));
        int count = evidence->route_count[i];
        if (count != 0 && count != profile->routes[i].count)
            return REFUSE("$.evidence.routes.%s: %d entries, expected %d, one a route", name, count,
                          profile->routes[i].count);
        for (int j = 0; j < count; j++) {
            snprintf(path, sizeof path, "$.evidence.routes.%s[%d]", name, j);
            ARF_TRY(check_route(&evidence->route[i][j], profile->routes[i].route[j].max_tokens,
                                path, error));
            ARF_TRY(check_extra(path, evidence->route_extra[i][j], route_members, error));
        }
    }
    return ARFUSE_OK;
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Each member of evidence begins with this; `gap` is what stands before the first. */
static void begin_member(arf_text *text, const char **gap, const char *next, const char *name)
{
    arf_text_add(text, "%s", *gap);
    *gap = next;
    arf_text_string(text, name);
    arf_text_add(text, ": ");
}

static void write_text(arf_text *text, const char **gap, const char *next, const char *name,
                       const char *value)
{
    if (value[0] == '\0')
        return;
    begin_member(text, gap, next, name);
    arf_text_string(text, value);
}

/* NaN: not measured. */
static void write_number(arf_text *text, const char **gap, const char *next, const char *name,
                         double value)
{
    if (isnan(value))
        return;
    begin_member(text, gap, next, name);
    arf_text_number(text, value, -1);
}

/* Members that this version does not know, as they were. */
static void write_extra(arf_text *text, const char **gap, const char *next, const char *extra)
{
    arf_json *json = NULL;
    const char *name;
    if (extra == NULL)
        return;
    if (arf_json_parse(extra, strlen(extra), &json, NULL) != ARFUSE_OK) {
        text->failed = true; /* it was validated before: memory ran out */
        return;
    }
    arf_json_value root = arf_json_root(json), member = {0};
    while (arf_json_next(&root, &member, &name)) {
        char *value = arf_json_print(&member);
        begin_member(text, gap, next, name);
        arf_text_add(text, "%s", value != NULL ? value : "");
        text->failed |= value == NULL;
        free(value);
    }
    arf_json_free(json);
}

static void write_route(arf_text *text, const arf_evidence *evidence, int pattern, int index)
{
    const arf_route_evidence *route = &evidence->route[pattern][index];
    const char *gap = "{ ", *next = ", ";
    arf_text_add(text, "        ");
    if (route->bound_high != 0) {
        begin_member(text, &gap, next, "bound_interval");
        arf_text_add(text, "[%lld, %lld]", (long long)route->bound_low,
                     (long long)route->bound_high);
    }
    write_text(text, &gap, next, "runner_up", route->runner_up);
    write_number(text, &gap, next, "margin", route->margin);
    if (route->shift_tokens != 0) {
        begin_member(text, &gap, next, "shift_tokens");
        arf_text_add(text, "%lld", (long long)route->shift_tokens);
        for (int i = 0; i < ARF_POLICIES; i++)
            write_number(text, &gap, next, policy_members[i], route->policy_us[i]);
    }
    write_extra(text, &gap, next, evidence->route_extra[pattern][index]);
    arf_text_add(text, gap == next ? " }" : "{}");
    arf_text_add(text, "%s\n", index + 1 < evidence->route_count[pattern] ? "," : "");
}

static void write_routes(arf_text *text, const arf_evidence *evidence)
{
    const char *gap = "{\n      ";
    for (int i = 0; i < ARF_PATTERNS; i++) {
        if (evidence->route_count[i] == 0)
            continue;
        begin_member(text, &gap, ",\n      ", arf_pattern_name((arf_pattern)i));
        arf_text_add(text, "[\n");
        for (int j = 0; j < evidence->route_count[i]; j++)
            write_route(text, evidence, i, j);
        arf_text_add(text, "      ]");
    }
    arf_text_add(text, "\n    }");
}

static void write_mix(arf_text *text, const arf_mix_evidence *mix, const char *extra)
{
    const char *gap = "{ ", *next = ", ";
    begin_member(text, &gap, next, "tokens");
    for (int i = 0; i < mix->count; i++)
        arf_text_add(text, "%s%lld", i == 0 ? "[" : ", ", (long long)mix->tokens[i]);
    arf_text_add(text, "]");
    write_number(text, &gap, next, "median_us", mix->median_us);
    write_number(text, &gap, next, "change", mix->change);
    begin_member(text, &gap, next, "change_interval");
    arf_text_add(text, "[");
    arf_text_number(text, mix->change_low, -1);
    arf_text_add(text, ", ");
    arf_text_number(text, mix->change_high, -1);
    arf_text_add(text, "]");
    write_extra(text, &gap, next, extra);
    arf_text_add(text, " }");
}

static void write_mixed(arf_text *text, const arf_evidence *evidence)
{
    const char *gap = "{\n      ";
    for (int i = 0; i < ARF_PATTERNS; i++) {
        if (evidence->mix[i].count == 0)
            continue;
        begin_member(text, &gap, ",\n      ", arf_pattern_name((arf_pattern)i));
        write_mix(text, &evidence->mix[i], evidence->mix_extra[i]);
    }
    arf_text_add(text, "\n    }");
}

void arf_write_evidence(arf_text *text, const arf_evidence *evidence)
{
    const char *gap = "    ", *next = ",\n    ";
    arf_text_add(text, "  \"evidence\": {\n");
    write_text(text, &gap, next, "method", arf_method_name(evidence->method));
    write_text(text, &gap, next, "context", evidence->context);
    if (evidence->has_policy)
        write_text(text, &gap, next, "policy", arf_policy_name(evidence->policy));
    write_text(text, &gap, next, "tool", evidence->tool);
    write_text(text, &gap, next, "driver", evidence->driver);
    write_text(text, &gap, next, "source_digest", evidence->source_digest);
    write_text(text, &gap, next, "library", evidence->library);
    write_number(text, &gap, next, "noise", evidence->noise);
    write_number(text, &gap, next, "regret_geomean", evidence->regret_geomean);
    write_number(text, &gap, next, "regret_max", evidence->regret_max);
    write_extra(text, &gap, next, evidence->extra);
    if (evidence->mix[ARF_ALLREDUCE].count + evidence->mix[ARF_FINALIZE].count > 0) {
        begin_member(text, &gap, next, "mixed");
        write_mixed(text, evidence);
    }
    if (evidence->route_count[ARF_ALLREDUCE] + evidence->route_count[ARF_FINALIZE] > 0) {
        begin_member(text, &gap, next, "routes");
        write_routes(text, evidence);
    }
    arf_text_add(text, "\n  }\n");
}
