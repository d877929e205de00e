/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/parts.h"
#include "rules/knobs.h"

void arf_write_kernels(arf_text *text, arf_set set, const int version[ARF_PROTOCOLS],
                       const char *variant)
{
    arf_text_add(text, "\"kernels\": { \"set\": \"%s\"", arf_set_name(set));
    for (int i = 0; i < ARF_PROTOCOLS; i++)
        if (version[i] != 0)
            arf_text_add(text, ", \"%s\": %d", arf_protocol_name((arf_protocol)i), version[i]);
    if (variant[0] != '\0') {
        arf_text_add(text, ", \"variant\": ");
        arf_text_string(text, variant);
    }
    arf_text_add(text, " }");
}

static const char *switch_text(arf_switch state)
{
    return state == ARF_EITHER ? "null" : state == ARF_ON ? "true" : "false";
}

void arf_write_shape(arf_text *text, const arf_shape *shape)
{
    arf_text_add(text,
                 "\"shape\": { \"tp_size\": %d, \"hidden_size\": %d, \"top_k\": %d, "
                 "\"dtype\": \"bf16\", \"rms_norm\": %s, \"residual\": %s, \"shared_expert\": %s }",
                 shape->tp_size, shape->hidden_size, shape->top_k, switch_text(shape->rms_norm),
                 switch_text(shape->residual), switch_text(shape->shared_expert));
}

void arf_write_device(arf_text *text, const arf_device_key *device)
{
    arf_text_add(text, "\"device\": { \"name\": ");
    arf_text_string(text, device->name);
    arf_text_add(text,
                 ", \"compute_capability\": \"%d.%d\", \"sm_count\": %d, \"link\": \"%s\", "
                 "\"nodes\": %d, \"ranks_per_gpu\": %d }",
                 device->capability_major, device->capability_minor, device->sm_count,
                 arf_link_name(device->link), device->nodes, device->ranks_per_gpu);
}

static void write_tuning(arf_text *text, const arf_knob_table *table, const arf_tuning *tuning)
{
    arf_text_add(text, table->count > 0 ? "{ " : "{");
    for (int i = 0; i < table->count; i++) {
        const arf_knob *knob = &table->knob[i];
        int32_t value = tuning->value[i];
        arf_text_add(text, "%s\"%s\": ", i > 0 ? ", " : "", knob->name);
        if (value == ARF_KNOB_NULL)
            arf_text_add(text, "null");
        else if (knob->kind == ARF_KNOB_BOOLEAN)
            arf_text_add(text, value ? "true" : "false");
        else
            arf_text_add(text, "%d", value);
    }
    arf_text_add(text, table->count > 0 ? " }" : "}");
}

void arf_write_plan(arf_text *text, arf_set set, arf_pattern pattern, const arf_plan *plan)
{
    if (plan->protocol == ARF_SEPARATE)
        arf_text_add(text, "\"finalize\": \"separate\", ");
    else
        arf_text_add(text, "\"protocol\": \"%s\", \"transport\": \"%s\", ",
                     arf_protocol_name(plan->protocol), arf_transport_name(plan->transport));
    if (plan->numerics != ARF_FIXED)
        arf_text_add(text, "\"numerics\": \"%s\", ", arf_numerics_name(plan->numerics));
    arf_text_add(text, "\"tuning\": ");
    if (plan->tuning_null)
        arf_text_add(text, "null");
    else
        write_tuning(text, arf_knobs(set, plan->protocol, pattern), &plan->tuning);
}
