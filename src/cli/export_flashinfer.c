/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python module that FlashInfer's MNNVL backend reads. Class and field names are those of
 * flashinfer/comm/mnnvl_cutedsl/{config,kernel_ll/protocol,kernel_bt/protocol,kernel_ht/protocol}.py
 * (https://github.com/flashinfer-ai/flashinfer/pull/4358). Its rules: bounds ascend strictly, only
 * the last may be open, a pattern has at least one range, ranges begin at 1, and the (tp_size,
 * hidden_size, top_k, dtype) of profiles are unique.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/export.h"
#include "profile/lookup.h"
#include "rules/knobs.h"

#define REFUSE(...) arf_fail(error, ARFUSE_PROFILE, __VA_ARGS__)
#define NAME 96

/* The module in parts, put together at the end. */
typedef struct module {
    arf_text about;                      /* comment lines: what from, what for */
    arf_text profiles;                   /* the expressions of the static profiles */
    arf_text parameters;                 /* of config(), for what the profiles do not know */
    bool used[ARF_HT + 1][ARF_PATTERNS]; /* classes that must be imported */
    bool hints;
} module;

static const char *const class_of[ARF_HT + 1][ARF_PATTERNS] = {
    {"LLAllReduceTuning", "LLFinalizeTuning"},
    {"BTAllReduceTuning", "BTFinalizeTuning"},
    {"HTAllReduceTuning", "HTFinalizeTuning"}};
static const char *const kind_of[ARF_HT + 1] = {"LL", "BT", "HT"};
static const char *const routes_of[ARF_PATTERNS] = {"all_reduce_routes", "finalize_routes"};

static void add_hole(module *m, const char *name, const char *why)
{
    arf_text_add(&m->parameters, "    # %s\n    %s,\n", why, name);
}

/* ---- tunings ------------------------------------------------------------------------------------
 */

static void add_value(arf_text *text, const arf_knob *knob, int32_t value, bool *first)
{
    const char *dot = strrchr(knob->published, '.');
    arf_text_add(text, "%s%s=", *first ? "" : ", ", dot != NULL ? dot + 1 : knob->published);
    *first = false;
    if (value == ARF_KNOB_NULL)
        arf_text_add(text, "None");
    else if (knob->kind == ARF_KNOB_BOOLEAN)
        arf_text_add(text, value != 0 ? "True" : "False");
    else
        arf_text_add(text, "%d", value);
}

/* "LLFinalizeTuning(threads=128, ..., collective=LLCollectiveTuning(...))" */
static void add_tuning(module *m, arf_pattern pattern, const arf_plan *plan)
{
    const arf_knob_table *table = arf_knobs(ARF_SET_FLASHINFER, plan->protocol, pattern);
    arf_text *text = &m->profiles;
    bool first = true, nested = false;
    arf_text_add(text, "%s(", class_of[plan->protocol][pattern]);
    for (int i = 0; i < table->count; i++) {
        if (strchr(table->knob[i].published, '.') == NULL)
            add_value(text, &table->knob[i], plan->tuning.value[i], &first);
        else
            nested = true;
    }
    if (nested) {
        arf_text_add(text, "%scollective=%sCollectiveTuning(", first ? "" : ", ",
                     kind_of[plan->protocol]);
        first = true;
        for (int i = 0; i < table->count; i++)
            if (strchr(table->knob[i].published, '.') != NULL)
                add_value(text, &table->knob[i], plan->tuning.value[i], &first);
        arf_text_add(text, ")");
    }
    arf_text_add(text, ")");
    m->used[plan->protocol][pattern] = true;
}

/*
 * The same launch parameters in the terms of the public kernels. Knobs that only the other set has
 * are dropped, those it lacks keep the public default; 0 of ours stands for what null means there.
 */
static arf_plan translate(arf_set set, arf_pattern pattern, const arf_plan *plan)
{
    const arf_knob_table *from = arf_knobs(set, plan->protocol, pattern);
    const arf_knob_table *to = arf_knobs(ARF_SET_FLASHINFER, plan->protocol, pattern);
    arf_plan made = arf_least_plan(ARF_SET_FLASHINFER, pattern, plan->protocol);
    made.tuning = arf_tuning_fallback(to);
    for (int i = 0; i < to->count; i++)
        for (int j = 0; j < from->count; j++) {
            if (from->knob[j].published == NULL ||
                strcmp(from->knob[j].published, to->knob[i].published) != 0)
                continue;
            int32_t value = plan->tuning.value[j];
            made.tuning.value[i] = to->knob[i].nullable && value == 0 ? ARF_KNOB_NULL : value;
        }
    return made;
}

/* ---- routes -------------------------------------------------------------------------------------
 */

/* A name for what config() must be given: "tp8_h6144_k8_finalize_2_ht". */
static void hole_name(const arf_profile *profile, arf_pattern pattern, const char *what,
                      char name[NAME])
{
    snprintf(name, NAME, "tp%d_h%d_k%d_%s%s%s", profile->shape.tp_size, profile->shape.hidden_size,
             profile->shape.top_k, arf_pattern_name(pattern), what[0] != '\0' ? "_" : "", what);
}

static arfuse_status add_target(module *m, const arf_profile *profile, arf_pattern pattern,
                                int index, arf_error *error)
{
    const arf_plan *plan = &profile->routes[pattern].route[index].plan;
    const arf_problem problem = {
        .set = ARF_SET_FLASHINFER, .shape = profile->shape, .sm_count = profile->device.sm_count};
    char what[32], name[NAME], why[2 * ARF_REASON_TEXT], reason[ARF_REASON_TEXT];
    if (plan->protocol > ARF_HT)
        return REFUSE("routes.%s[%d] is %s, which the public configuration cannot name, expected "
                      "ll, bt or ht",
                      arf_pattern_name(pattern), index, arf_protocol_name(plan->protocol));
    snprintf(what, sizeof what, "%d_%s", index, arf_protocol_name(plan->protocol));
    hole_name(profile, pattern, what, name);
    arf_text_add(&m->profiles, "                    KernelTarget(ProtocolKind.%s, ",
                 kind_of[plan->protocol]);
    arf_plan public = *plan;
    if (!plan->tuning_null && profile->set != ARF_SET_FLASHINFER)
    public = translate(profile->set, pattern, plan);
    bool known = !plan->tuning_null;
    if (!known) {
        snprintf(why, sizeof why, "%s: the source gives no launch parameters",
                 class_of[plan->protocol][pattern]);
    } else if (profile->set != ARF_SET_FLASHINFER &&
               !arf_legal(&problem, pattern, &public, reason)) {
        snprintf(why, sizeof why, "%s: those of kernel set %s are not legal here: %s",
                 class_of[plan->protocol][pattern], arf_set_name(profile->set), reason);
        known = false;
    }
    if (known)
        add_tuning(m, pattern, &public);
    else
        arf_text_add(&m->profiles, "%s", name);
    if (!known)
        add_hole(m, name, why);
    arf_text_add(&m->profiles, "),\n");
    return ARFUSE_OK;
}

static void add_bounds(module *m, const arf_routes *routes)
{
    arf_text_add(&m->profiles, "                upper_bounds=(");
    if (routes->min_tokens > 1)
        arf_text_add(&m->profiles, "%lld, ", (long long)routes->min_tokens - 1);
    for (int i = 0; i < routes->count; i++) {
        const char *gap = i + 1 < routes->count ? ", " : "";
        if (routes->route[i].max_tokens == ARF_OPEN_BOUND)
            arf_text_add(&m->profiles, "None%s", gap);
        else
            arf_text_add(&m->profiles, "%lld%s", (long long)routes->route[i].max_tokens, gap);
    }
    arf_text_add(&m->profiles, "%s),\n", routes->count == 1 && routes->min_tokens == 1 ? "," : "");
}

static arfuse_status add_routes(module *m, const arf_profile *profile, arf_pattern pattern,
                                arf_error *error)
{
    const arf_routes *routes = &profile->routes[pattern];
    char what[32], name[NAME], why[128];
    if (routes->count == 0) {
        hole_name(profile, pattern, "routes", name);
        add_hole(m, name, "MRangeDispatch: the profile has no route for this pattern");
        arf_text_add(&m->profiles, "            %s=%s,\n", routes_of[pattern], name);
        return ARFUSE_OK;
    }
    arf_text_add(&m->profiles, "            %s=MRangeDispatch(\n", routes_of[pattern]);
    add_bounds(m, routes);
    arf_text_add(&m->profiles, "                targets=(\n");
    if (routes->min_tokens > 1) {
        snprintf(what, sizeof what, "below_%lld", (long long)routes->min_tokens);
        snprintf(why, sizeof why, "KernelTarget: the profile begins at %lld tokens",
                 (long long)routes->min_tokens);
        hole_name(profile, pattern, what, name);
        add_hole(m, name, why);
        arf_text_add(&m->profiles, "                    %s,\n", name);
    }
    for (int i = 0; i < routes->count; i++)
        ARF_TRY(add_target(m, profile, pattern, i, error));
    arf_text_add(&m->profiles, "                ),\n            ),\n");
    return ARFUSE_OK;
}

/* ---- profiles -----------------------------------------------------------------------------------
 */

/* One comment line, whatever is in the text. */
static void add_comment(arf_text *text, const char *before, const char *line)
{
    arf_text_add(text, "# %s", before);
    for (; *line != '\0'; line++)
        arf_text_add(text, "%c", (unsigned char)*line < 0x20 ? '?' : *line);
    arf_text_add(text, "\n");
}

static void add_about(module *m, const char *path, const arf_profile *profile)
{
    const arf_profile_key key = arf_profile_key_of(profile);
    char text[ARF_REASON_TEXT];
    arf_profile_key_text(&key, text, sizeof text);
    arf_text_add(&m->about, "#\n");
    add_comment(&m->about, "", path);
    add_comment(&m->about, "  for      ", text);
    add_comment(&m->about, "  method   ", arf_method_name(profile->evidence.method));
    add_comment(&m->about, "  kernels  ", arf_set_name(profile->set));
    if (profile->set != ARF_SET_FLASHINFER) {
        add_comment(&m->about, "  HINTS: bounds and launch parameters are those of the kernel set ",
                    arf_set_name(profile->set));
        arf_text_add(&m->about, "#   and were not measured with the kernels that this module "
                                "configures.\n");
        m->hints = true;
    }
}

static arfuse_status add_profile(module *m, const char *path, const arf_profile *profile,
                                 bool hints, arf_error *error)
{
    if (profile->set == ARF_SET_HOST)
        return REFUSE("routes of kernel set arfuse-host, which runs on no GPU and has no launch "
                      "parameters to hint at");
    if (profile->set != ARF_SET_FLASHINFER && !hints)
        return REFUSE("measurements of kernel set %s, expected flashinfer: they are not "
                      "FlashInfer's; --as-hints writes them, named as hints",
                      arf_set_name(profile->set));
    if (profile->shape.top_k == 0)
        return REFUSE("top_k 0, but the public configuration has both patterns in every profile");
    add_about(m, path, profile);
    arf_text_add(&m->profiles,
                 "        StaticProfile(\n            tp_size=%d,\n            hidden_size=%d,\n"
                 "            top_k=%d,\n            dtype=torch.bfloat16,\n",
                 profile->shape.tp_size, profile->shape.hidden_size, profile->shape.top_k);
    ARF_TRY(add_routes(m, profile, ARF_FINALIZE, error));
    ARF_TRY(add_routes(m, profile, ARF_ALLREDUCE, error));
    arf_text_add(&m->profiles, "        ),\n");
    return ARFUSE_OK;
}

/* One configuration has one norm switch and each static shape once. */
static arfuse_status check_together(char *const *path, arf_profile *const *profile, int count,
                                    arf_error *error)
{
    for (int i = 1; i < count; i++) {
        const arf_shape *shape = &profile[i]->shape;
        if (shape->rms_norm != profile[0]->shape.rms_norm)
            return REFUSE("%s: rms_norm differs from %s, expected equal: one configuration has one",
                          path[i], path[0]);
        for (int j = 0; j < i; j++) {
            const arf_shape *other = &profile[j]->shape;
            if (shape->tp_size == other->tp_size && shape->hidden_size == other->hidden_size &&
                shape->top_k == other->top_k)
                return REFUSE("%s: tp_size %d, hidden_size %d, top_k %d as in %s, expected each "
                              "shape once",
                              path[i], shape->tp_size, shape->hidden_size, shape->top_k, path[j]);
        }
    }
    return ARFUSE_OK;
}

/* ---- the module ---------------------------------------------------------------------------------
 */

static void add_imports(const module *m, arf_text *text)
{
    static const char *const folder[] = {"kernel_bt", "kernel_ht", "kernel_ll"};
    static const arf_protocol protocol[] = {ARF_BT, ARF_HT, ARF_LL};
    arf_text_add(text, "import torch\n\n"
                       "from flashinfer.comm.mnnvl_cutedsl.config import (\n    KernelTarget,\n"
                       "    MNNVLCuteDSLConfig,\n    MRangeDispatch,\n    ProtocolKind,\n"
                       "    StaticProfile,\n)\n");
    for (int i = 0; i < 3; i++) {
        const bool *used = m->used[protocol[i]];
        if (!used[ARF_ALLREDUCE] && !used[ARF_FINALIZE])
            continue;
        arf_text_add(text, "from flashinfer.comm.mnnvl_cutedsl.%s.protocol import (\n", folder[i]);
        if (used[ARF_ALLREDUCE])
            arf_text_add(text, "    %s,\n", class_of[protocol[i]][ARF_ALLREDUCE]);
        if (protocol[i] != ARF_HT)
            arf_text_add(text, "    %sCollectiveTuning,\n", kind_of[protocol[i]]);
        if (used[ARF_FINALIZE])
            arf_text_add(text, "    %s,\n", class_of[protocol[i]][ARF_FINALIZE]);
        arf_text_add(text, ")\n");
    }
}

static void indent(arf_text *text, const char *lines, const char *by)
{
    while (*lines != '\0') {
        size_t length = strcspn(lines, "\n") + 1;
        arf_text_add(text, "%s%.*s", by, (int)length, lines);
        lines += length;
    }
}

static void add_config(const module *m, arf_switch norm, arf_text *text)
{
    const char *applies = norm == ARF_EITHER ? "None" : norm == ARF_ON ? "True" : "False";
    bool holes = m->parameters.bytes > 0;
    const char *by = holes ? "    " : "";
    if (holes)
        arf_text_add(text,
                     "\n\n# What the profiles do not know has to be given; nothing is guessed.\n"
                     "def config(\n    *,\n%s):\n    return MNNVLCuteDSLConfig(\n",
                     m->parameters.data);
    else
        arf_text_add(text, "\nCONFIG = MNNVLCuteDSLConfig(\n");
    arf_text_add(text, "%s    profiles=(\n", by);
    indent(text, m->profiles.data, by);
    arf_text_add(text, "%s    ),\n%s    applies_rms_norm=%s,\n%s)\n", by, by, applies, by);
}

arfuse_status arf_export_flashinfer(char *const *path, arf_profile *const *profile, int count,
                                    bool hints, arf_text *text, arf_error *error)
{
    module m = {0};
    arfuse_status status = check_together(path, profile, count, error);
    for (int i = 0; i < count && status == ARFUSE_OK; i++) {
        status = add_profile(&m, path[i], profile[i], hints, error);
        if (status != ARFUSE_OK)
            arf_error_prefix(error, "%s", path[i]);
    }
    if (status == ARFUSE_OK) {
        arf_text_add(text, ARF_FLASHINFER_HEAD ", written by arfuse-profile %s.\n%s",
                     arfuse_version(), m.about.data);
        if (m.hints)
            arf_complain("note: written as hints: not measured with FlashInfer's kernels");
        arf_text_add(text, "\n");
        add_imports(&m, text);
        add_config(&m, profile[0]->shape.rms_norm, text);
        text->failed |= m.about.failed || m.profiles.failed || m.parameters.failed;
    }
    arf_text_free(&m.about);
    arf_text_free(&m.profiles);
    arf_text_free(&m.parameters);
    return status;
}
