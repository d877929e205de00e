/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan_text.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "rules/knobs.h"

#define REFUSE(...) arf_fail(error, ARFUSE_PROFILE, __VA_ARGS__)

void arf_plan_tuning_text(arf_set set, arf_pattern pattern, const arf_plan *plan,
                          char text[ARF_PLAN_TEXT])
{
    text[0] = '\0';
    if (!plan->tuning_null)
        arf_tuning_text(arf_knobs(set, plan->protocol, pattern), &plan->tuning, text,
                        ARF_PLAN_TEXT);
}

static arfuse_status read_value(const arf_knob *knob, const char *text, int32_t *value,
                                arf_error *error)
{
    int64_t number = 0;
    if (knob->kind == ARF_KNOB_BOOLEAN) {
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return REFUSE("%s=%s, expected true or false", knob->name, text);
        *value = text[0] == 't';
        return ARFUSE_OK;
    }
    if (knob->nullable && strcmp(text, "null") == 0) {
        *value = ARF_KNOB_NULL;
        return ARFUSE_OK;
    }
    if (!arf_cli_number(text, knob->low, knob->high, &number))
        return REFUSE("%s=%s, expected a whole number from %d to %d", knob->name, text, knob->low,
                      knob->high);
    *value = (int32_t)number;
    return ARFUSE_OK;
}

arfuse_status arf_plan_tuning_parse(arf_set set, arf_pattern pattern, const char *text,
                                    arf_plan *plan, arf_error *error)
{
    const arf_knob_table *table = arf_knobs(set, plan->protocol, pattern);
    bool seen[ARF_MAX_KNOBS] = {false};
    char copy[ARF_PLAN_TEXT], *rest = NULL;
    plan->tuning_null = text[0] == '\0' && table->count > 0;
    if (plan->tuning_null)
        return ARFUSE_OK;
    if (strlen(text) >= sizeof copy)
        return REFUSE("a tuning of %zu characters, expected at most %zu", strlen(text),
                      sizeof copy - 1);
    strcpy(copy, text);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        if (value == NULL)
            return REFUSE("'%s' in a tuning, expected name=value", word);
        *value++ = '\0';
        int index = arf_knob_index(table, word);
        if (index < 0)
            return REFUSE("knob '%s', which %s of kernel set %s does not have for %s", word,
                          arf_protocol_name(plan->protocol), arf_set_name(set),
                          arf_pattern_name(pattern));
        if (seen[index])
            return REFUSE("knob '%s' twice", word);
        seen[index] = true;
        ARF_TRY(read_value(&table->knob[index], value, &plan->tuning.value[index], error));
    }
    for (int i = 0; i < table->count; i++)
        if (!seen[i])
            return REFUSE("no knob '%s' in the tuning, expected all %d of %s", table->knob[i].name,
                          table->count, arf_protocol_name(plan->protocol));
    return ARFUSE_OK;
}

arfuse_status arf_plan_parse(arf_set set, arf_pattern pattern, const char *text, arf_plan *plan,
                             arf_error *error)
{
    char protocol[32], transport[32], numerics[32];
    int used = 0;
    *plan = (arf_plan){0};
    if (sscanf(text, "%31s %31s %31s %n", protocol, transport, numerics, &used) < 3 ||
        !arf_protocol_parse(protocol, &plan->protocol) ||
        !arf_transport_parse(transport, &plan->transport) ||
        !arf_numerics_parse(numerics, &plan->numerics))
        return REFUSE("'%.60s', expected protocol, transport, numerics and a tuning", text);
    if (!arf_knobs(set, plan->protocol, pattern)->supported)
        return REFUSE("%s, which kernel set %s does not have for %s", protocol, arf_set_name(set),
                      arf_pattern_name(pattern));
    return arf_plan_tuning_parse(set, pattern, text + used, plan, error);
}
