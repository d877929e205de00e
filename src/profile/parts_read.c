/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/parts.h"
#include "rules/knobs.h"

/* ---- words ----------------------------------------------------------------------------------- */

void arf_choices(const char *(*name)(int index), int count, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < count && used < size; i++) {
        const char *gap = i == 0 ? "" : i + 1 < count ? ", " : " or ";
        int more = snprintf(text + used, size - used, "%s%s", gap, name(i));
        used += more > 0 ? (size_t)more : 0;
    }
}

static const char *set_at(int index)
{
    return arf_set_name((arf_set)index);
}
static const char *link_at(int index)
{
    return arf_link_name((arf_link)index);
}
static const char *policy_at(int index)
{
    return arf_policy_name((arf_policy)index);
}
static const char *numerics_at(int index)
{
    return arf_numerics_name((arf_numerics)index);
}
static const char *transport_at(int index)
{
    return arf_transport_name((arf_transport)index);
}
/* Separate is no protocol of the format: such a route says "finalize": "separate". */
static const char *protocol_at(int index)
{
    return arf_protocol_name((arf_protocol)index);
}

/* One of a list of words. */
static arfuse_status read_choice(const arf_json_value *value, const char *(*name)(int index),
                                 int count, int *choice, arf_error *error)
{
    char text[ARF_NAME_TEXT], allowed[256];
    ARF_TRY(arf_json_string(value, text, sizeof text, error));
    for (int i = 0; i < count; i++)
        if (strcmp(text, name(i)) == 0) {
            *choice = i;
            return ARFUSE_OK;
        }
    arf_choices(name, count, allowed, sizeof allowed);
    return arf_fail(error, ARFUSE_PROFILE, "%s: \"%s\", expected %s", value->path, text, allowed);
}

static arfuse_status read_choice_member(const arf_json_value *object, const char *member,
                                        const char *(*name)(int index), int count, int *choice,
                                        arf_error *error)
{
    arf_json_value value;
    ARF_TRY(arf_json_member(object, member, &value, error));
    return read_choice(&value, name, count, choice, error);
}

arfuse_status arf_read_numerics(const arf_json_value *value, arf_numerics *numerics,
                                arf_error *error)
{
    int choice = 0;
    ARF_TRY(read_choice(value, numerics_at, ARF_NUMERICS, &choice, error));
    *numerics = (arf_numerics)choice;
    return ARFUSE_OK;
}

arfuse_status arf_read_policy(const arf_json_value *document, arf_policy *policy, bool *present,
                              arf_error *error)
{
    arf_json_value value;
    int choice = 0;
    ARF_TRY(arf_json_optional(document, "policy", &value, error));
    *present = value.node != NULL;
    if (*present)
        ARF_TRY(read_choice(&value, policy_at, ARF_POLICIES, &choice, error));
    *policy = (arf_policy)choice;
    return ARFUSE_OK;
}

/* ---- small members --------------------------------------------------------------------------- */

static arfuse_status read_int(const arf_json_value *object, const char *name, int low, int high,
                              int *number, arf_error *error)
{
    arf_json_value value;
    int64_t wide = 0;
    ARF_TRY(arf_json_member(object, name, &value, error));
    ARF_TRY(arf_json_integer(&value, low, high, &wide, error));
    *number = (int)wide;
    return ARFUSE_OK;
}

static arfuse_status read_switch(const arf_json_value *object, const char *name, bool nullable,
                                 arf_switch *state, arf_error *error)
{
    arf_json_value value;
    bool truth = false;
    ARF_TRY(arf_json_member(object, name, &value, error));
    if (nullable && arf_json_is_null(&value)) {
        *state = ARF_EITHER;
        return ARFUSE_OK;
    }
    ARF_TRY(arf_json_boolean(&value, &truth, error));
    *state = truth ? ARF_ON : ARF_OFF;
    return ARFUSE_OK;
}

static arfuse_status read_text(const arf_json_value *object, const char *name, char *text,
                               size_t size, arf_error *error)
{
    arf_json_value value;
    text[0] = '\0';
    ARF_TRY(arf_json_optional(object, name, &value, error));
    if (value.node == NULL)
        return ARFUSE_OK;
    ARF_TRY(arf_json_string(&value, text, size, error));
    if (text[0] == '\0') /* it means absent in memory, and is not written */
        return arf_fail(error, ARFUSE_PROFILE, "%s: \"\", expected a text, or no such member",
                        value.path);
    return ARFUSE_OK;
}

arfuse_status arf_read_text(const arf_json_value *object, const char *name,
                            char text[ARF_NAME_TEXT], arf_error *error)
{
    return read_text(object, name, text, ARF_NAME_TEXT, error);
}

arfuse_status arf_read_note(const arf_json_value *object, const char *name,
                            char text[ARF_NOTE_TEXT], arf_error *error)
{
    return read_text(object, name, text, ARF_NOTE_TEXT, error);
}

/* ---- kernels, shape, device -------------------------------------------------------------------
 */

arfuse_status arf_read_kernels(const arf_json_value *document, arf_set *set,
                               int version[ARF_PROTOCOLS], char variant[ARF_NAME_TEXT],
                               arf_error *error)
{
    static const char *const members[] = {"set",     "ll",       "bt",      "ht",
                                          "unfused", "separate", "variant", NULL};
    arf_json_value kernels, value;
    int choice = 0;
    ARF_TRY(arf_json_member(document, "kernels", &kernels, error));
    ARF_TRY(arf_json_object(&kernels, members, error));
    ARF_TRY(read_choice_member(&kernels, "set", set_at, ARF_SETS, &choice, error));
    *set = (arf_set)choice;
    for (int i = 0; i < ARF_PROTOCOLS; i++) {
        int64_t number = 0;
        ARF_TRY(arf_json_optional(&kernels, protocol_at(i), &value, error));
        if (value.node != NULL)
            ARF_TRY(arf_json_integer(&value, 1, INT32_MAX, &number, error));
        version[i] = (int)number;
    }
    ARF_TRY(arf_read_text(&kernels, "variant", variant, error));
    return arf_check_kernels(*set, version, error);
}

arfuse_status arf_read_shape(const arf_json_value *document, arf_shape *shape, arf_error *error)
{
    static const char *const members[] = {"tp_size",  "hidden_size", "top_k",         "dtype",
                                          "rms_norm", "residual",    "shared_expert", NULL};
    arf_json_value object, value;
    char dtype[ARF_NAME_TEXT];
    ARF_TRY(arf_json_member(document, "shape", &object, error));
    ARF_TRY(arf_json_object(&object, members, error));
    ARF_TRY(read_int(&object, "tp_size", 1, ARF_MAX_RANKS, &shape->tp_size, error));
    ARF_TRY(read_int(&object, "hidden_size", ARF_MIN_HIDDEN, ARF_MAX_HIDDEN, &shape->hidden_size,
                     error));
    ARF_TRY(read_int(&object, "top_k", 0, ARF_MAX_TOP_K, &shape->top_k, error));
    ARF_TRY(arf_json_member(&object, "dtype", &value, error));
    ARF_TRY(arf_json_string(&value, dtype, sizeof dtype, error));
    if (strcmp(dtype, "bf16") != 0)
        return arf_fail(error, ARFUSE_PROFILE, "%s: \"%s\", expected bf16", value.path, dtype);
    ARF_TRY(read_switch(&object, "rms_norm", true, &shape->rms_norm, error));
    ARF_TRY(read_switch(&object, "residual", false, &shape->residual, error));
    return read_switch(&object, "shared_expert", false, &shape->shared_expert, error);
}

/* "10.3": two decimal numbers without leading zeros. */
static bool parse_capability(const char *text, int *major, int *minor)
{
    char back[32];
    if (sscanf(text, "%2d.%2d", major, minor) != 2 || *major < 0 || *minor < 0)
        return false;
    snprintf(back, sizeof back, "%d.%d", *major, *minor);
    return strcmp(back, text) == 0;
}

arfuse_status arf_read_device(const arf_json_value *document, arf_device_key *device,
                              arf_error *error)
{
    static const char *const members[] = {"name",  "compute_capability", "sm_count", "link",
                                          "nodes", "ranks_per_gpu",      NULL};
    arf_json_value object, value;
    char capability[ARF_NAME_TEXT];
    int choice = 0;
    ARF_TRY(arf_json_member(document, "device", &object, error));
    ARF_TRY(arf_json_object(&object, members, error));
    ARF_TRY(arf_json_member(&object, "name", &value, error));
    ARF_TRY(arf_json_string(&value, device->name, sizeof device->name, error));
    ARF_TRY(arf_json_member(&object, "compute_capability", &value, error));
    ARF_TRY(arf_json_string(&value, capability, sizeof capability, error));
    if (!parse_capability(capability, &device->capability_major, &device->capability_minor))
        return arf_fail(error, ARFUSE_PROFILE, "%s: \"%s\", expected MAJOR.MINOR, as \"10.3\"",
                        value.path, capability);
    ARF_TRY(read_int(&object, "sm_count", 0, ARF_MAX_SM_COUNT, &device->sm_count, error));
    ARF_TRY(read_choice_member(&object, "link", link_at, ARF_LINKS, &choice, error));
    device->link = (arf_link)choice;
    ARF_TRY(read_int(&object, "nodes", 1, ARF_MAX_RANKS, &device->nodes, error));
    return read_int(&object, "ranks_per_gpu", 1, ARF_MAX_RANKS, &device->ranks_per_gpu, error);
}

/* ---- plan ------------------------------------------------------------------------------------ */

static arfuse_status read_knob(const arf_json_value *tuning, const arf_knob *knob, int32_t *number,
                               arf_error *error)
{
    arf_json_value value;
    int64_t wide = 0;
    bool truth = false;
    ARF_TRY(arf_json_member(tuning, knob->name, &value, error));
    if (knob->nullable && arf_json_is_null(&value)) {
        *number = ARF_KNOB_NULL;
        return ARFUSE_OK;
    }
    if (knob->kind == ARF_KNOB_BOOLEAN) {
        ARF_TRY(arf_json_boolean(&value, &truth, error));
        *number = truth;
        return ARFUSE_OK;
    }
    ARF_TRY(arf_json_integer(&value, knob->low, knob->high, &wide, error));
    *number = (int32_t)wide;
    return ARFUSE_OK;
}

static arfuse_status read_tuning(const arf_json_value *object, const arf_knob_table *table,
                                 arf_plan *plan, arf_error *error)
{
    const char *members[ARF_MAX_KNOBS + 1] = {NULL};
    arf_json_value tuning;
    ARF_TRY(arf_json_member(object, "tuning", &tuning, error));
    plan->tuning_null = arf_json_is_null(&tuning);
    if (plan->tuning_null)
        return ARFUSE_OK;
    for (int i = 0; i < table->count; i++)
        members[i] = table->knob[i].name;
    ARF_TRY(arf_json_object(&tuning, members, error));
    for (int i = 0; i < table->count; i++)
        ARF_TRY(read_knob(&tuning, &table->knob[i], &plan->tuning.value[i], error));
    return ARFUSE_OK;
}

/* `"finalize": "separate"`: no protocol, transport or numerics of its own; those are the allreduce
 * route's behind it. */
static arfuse_status read_separate(const arf_json_value *object, const arf_json_value *finalize,
                                   arf_plan *plan, arf_error *error)
{
    static const char *const others[] = {"protocol", "transport", "numerics"};
    char text[ARF_NAME_TEXT];
    ARF_TRY(arf_json_string(finalize, text, sizeof text, error));
    if (strcmp(text, "separate") != 0)
        return arf_fail(error, ARFUSE_PROFILE, "%s: \"%s\", expected separate", finalize->path,
                        text);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        arf_json_value value;
        ARF_TRY(arf_json_optional(object, others[i], &value, error));
        if (value.node != NULL)
            return arf_fail(error, ARFUSE_PROFILE,
                            "%s: %s beside \"finalize\": \"separate\", expected neither protocol, "
                            "transport nor numerics (the allreduce route has them)",
                            value.path, others[i]);
    }
    plan->protocol = ARF_SEPARATE;
    return ARFUSE_OK;
}

static arfuse_status read_fused(const arf_json_value *object, arf_plan *plan, arf_error *error)
{
    arf_json_value value;
    int choice = 0;
    ARF_TRY(read_choice_member(object, "protocol", protocol_at, ARF_SEPARATE, &choice, error));
    plan->protocol = (arf_protocol)choice;
    ARF_TRY(read_choice_member(object, "transport", transport_at, ARF_TRANSPORTS, &choice, error));
    plan->transport = (arf_transport)choice;
    ARF_TRY(arf_json_optional(object, "numerics", &value, error));
    return value.node == NULL ? ARFUSE_OK : arf_read_numerics(&value, &plan->numerics, error);
}

arfuse_status arf_read_plan(const arf_json_value *object, arf_set set,
                            const int version[ARF_PROTOCOLS], arf_pattern pattern, arf_plan *plan,
                            arf_error *error)
{
    arf_json_value finalize;
    *plan = (arf_plan){.transport = ARF_UNICAST, .numerics = ARF_FIXED};
    ARF_TRY(arf_json_optional(object, "finalize", &finalize, error));
    if (finalize.node != NULL)
        ARF_TRY(read_separate(object, &finalize, plan, error));
    else
        ARF_TRY(read_fused(object, plan, error));
    const arf_knob_table *table = arf_knobs(set, plan->protocol, pattern);
    if (!table->supported)
        return arf_fail(error, ARFUSE_PROFILE, "%s: %s, which kernel set %s does not have for %s",
                        object->path, arf_protocol_name(plan->protocol), arf_set_name(set),
                        arf_pattern_name(pattern));
    /* Before the tuning, whose knobs are those of another version. */
    ARF_TRY(arf_check_version(set, version, plan->protocol, object->path, error));
    return read_tuning(object, table, plan, error);
}
