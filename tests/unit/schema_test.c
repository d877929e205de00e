/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the JSON Schema that states knobs ("$defs"."knobs") says what the knob tables say.
 * When a table changed on purpose: ARFUSE_UPDATE=1 build/tests/schema_test writes it anew.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "rules/knobs.h"
#include "support/fixtures.h"

#define SCHEMA "profiles/schema/arfuse-profile-v1.schema.json"

static json_t *knob_schema(const arf_knob *knob)
{
    if (knob->kind == ARF_KNOB_BOOLEAN)
        return json_pack("{s:s, s:s}", "description", knob->help, "type", "boolean");
    json_t *type = knob->nullable ? json_pack("[s, s]", "integer", "null") : json_string("integer");
    return json_pack("{s:s, s:o, s:i, s:i}", "description", knob->help, "type", type, "minimum",
                     (int)knob->low, "maximum", (int)knob->high);
}

static json_t *tuning_schema(const arf_knob_table *table)
{
    json_t *properties = json_object(), *required = json_array();
    for (int i = 0; i < table->count; i++) {
        json_object_set_new(properties, table->knob[i].name, knob_schema(&table->knob[i]));
        json_array_append_new(required, json_string(table->knob[i].name));
    }
    return json_pack("{s:[s, s], s:o, s:b, s:o}", "type", "object", "null", "required", required,
                     "additionalProperties", 0, "properties", properties);
}

/* One branch: a route of this protocol has such a tuning. */
static json_t *route_schema(arf_protocol protocol, const arf_knob_table *table)
{
    const char *member = protocol == ARF_SEPARATE ? "finalize" : "protocol";
    json_t *tuning = table->supported ? tuning_schema(table) : json_false();
    return json_pack("{s:{s:[s], s:{s:{s:s}}}, s:{s:{s:o}}}", "if", "required", member,
                     "properties", member, "const", arf_protocol_name(protocol), "then",
                     "properties", "tuning", tuning);
}

static json_t *pattern_schema(arf_set set, arf_pattern pattern)
{
    json_t *branches = json_array();
    for (int i = 0; i < ARF_PROTOCOLS; i++)
        json_array_append_new(
            branches, route_schema((arf_protocol)i, arf_knobs(set, (arf_protocol)i, pattern)));
    return json_pack("{s:{s:o}}", "items", "allOf", branches);
}

static json_t *routes_schema(arf_set set)
{
    return json_pack("{s:{s:{s:{s:o, s:o}}}}", "properties", "routes", "properties", "allreduce",
                     pattern_schema(set, ARF_ALLREDUCE), "finalize",
                     pattern_schema(set, ARF_FINALIZE));
}

/* Kernel sets with the same knobs share one branch. */
static json_t *knobs_schema(void)
{
    json_t *branches = json_array(), *names = NULL, *before = NULL;
    for (int i = 0; i < ARF_SETS; i++) {
        json_t *routes = routes_schema((arf_set)i);
        if (before == NULL || !json_equal(before, routes)) {
            names = json_array();
            before = routes;
            json_array_append_new(branches, json_pack("{s:{s:{s:{s:{s:{s:o}}}}}, s:O}", "if",
                                                      "properties", "kernels", "properties", "set",
                                                      "enum", names, "then", routes));
        }
        json_array_append_new(names, json_string(arf_set_name((arf_set)i)));
        json_decref(routes); /* the branch, if it made one, has its own reference */
    }
    return json_pack("{s:s, s:o}", "$comment",
                     "Made from the knob tables; see tests/unit/schema_test.c.", "allOf", branches);
}

/* Only the value of "knobs", the last member of the file, is replaced; the rest is written by hand.
 */
static void update(const json_t *made)
{
    size_t bytes;
    char *text = fixture_text(SCHEMA, &bytes), *at = strstr(text, "\n    \"knobs\": ");
    char *knobs = json_dumps(made, JSON_INDENT(1));
    FILE *file = fopen(SCHEMA, "w");
    assert_non_null(at);
    assert_non_null(file);
    fprintf(file, "%.*s\n    \"knobs\": %s\n  }\n}\n", (int)(at - text), text, knobs);
    assert_int_equal(fclose(file), 0);
    print_message("# wrote " SCHEMA "\n");
    free(knobs);
    free(text);
}

static void the_schema_states_the_knob_tables(void **state)
{
    (void)state;
    json_error_t error;
    json_t *schema = json_load_file(SCHEMA, JSON_REJECT_DUPLICATES, &error);
    if (schema == NULL)
        fail_msg(SCHEMA ": line %d: %s", error.line, error.text);
    json_t *made = knobs_schema();
    assert_non_null(made);
    if (json_equal(json_object_get(json_object_get(schema, "$defs"), "knobs"), made) == 0) {
        if (getenv("ARFUSE_UPDATE") == NULL)
            fail_msg(SCHEMA " does not say what the knob tables say; if the tables changed on "
                            "purpose: ARFUSE_UPDATE=1 build/tests/schema_test");
        update(made);
    }
    json_decref(made);
    json_decref(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_schema_states_the_knob_tables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
