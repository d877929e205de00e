/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/knobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Calls `check` for every table that exists. */
static int each_table(void (*check)(arf_set, arf_protocol, arf_pattern, const arf_knob_table *))
{
    int tables = 0;
    for (int set = 0; set < ARF_SETS; set++)
        for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
            for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
                const arf_knob_table *table =
                    arf_knobs((arf_set)set, (arf_protocol)protocol, (arf_pattern)pattern);
                if (!table->supported)
                    continue;
                check((arf_set)set, (arf_protocol)protocol, (arf_pattern)pattern, table);
                tables++;
            }
    return tables;
}

static void check_knobs(arf_set set, arf_protocol protocol, arf_pattern pattern,
                        const arf_knob_table *table)
{
    (void)pattern;
    assert_in_range(table->count, 1, ARF_MAX_KNOBS);
    assert_int_equal(table->version, arf_protocol_version(set, protocol));
    for (int i = 0; i < table->count; i++) {
        const arf_knob *knob = &table->knob[i];
        assert_int_equal(arf_knob_index(table, knob->name), i); /* also: no name twice */
        assert_non_null(knob->help);
        assert_true(knob->low < knob->high);
        if (knob->kind == ARF_KNOB_BOOLEAN)
            assert_true(knob->low == 0 && knob->high == 1);
        if (knob->fallback == ARF_KNOB_NULL)
            assert_true(knob->nullable);
        else
            assert_true(knob->low <= knob->fallback && knob->fallback <= knob->high);
        for (int step = 0; knob->ladder && knob->ladder[step] != -1; step++) {
            assert_true(knob->low <= knob->ladder[step] && knob->ladder[step] <= knob->high);
            assert_true(step == 0 || knob->ladder[step - 1] < knob->ladder[step]);
        }
        if (knob->published)
            for (int other = 0; other < i; other++)
                if (table->knob[other].published)
                    assert_string_not_equal(knob->published, table->knob[other].published);
    }
}

static void every_table_is_sound(void **state)
{
    (void)state;
    /* Our two sets: 3 fused protocols and unfused in both patterns, separate
     * in one; three public sets: 3 fused protocols in both patterns. */
    assert_int_equal(each_table(check_knobs), 2 * 9 + 3 * 6);
}

static void check_published(arf_set set, arf_protocol protocol, arf_pattern pattern,
                            const arf_knob_table *table)
{
    (void)protocol;
    (void)pattern;
    bool public = set != ARF_SET_ARFUSE && set != ARF_SET_HOST;
    for (int i = 0; public && i < table->count; i++)
        assert_non_null(table->knob[i].published);
    for (int i = 0; !public && i < table->count; i++)
        assert_false(table->knob[i].nullable); /* a measured profile knows what it ran */
}

static void public_knobs_map_to_their_configurations(void **state)
{
    (void)state;
    each_table(check_published);
    const arf_knob_table *table = arf_knobs(ARF_SET_FLASHINFER, ARF_LL, ARF_ALLREDUCE);
    assert_string_equal(table->knob[arf_knob_index(table, "collect_threads")].published,
                        "collective.threads");
    assert_string_equal(table->knob[arf_knob_index(table, "threads")].published, "publish_threads");
}

static void sets_lack_what_they_do_not_have(void **state)
{
    (void)state;
    assert_false(arf_knobs(ARF_SET_FLASHINFER, ARF_UNFUSED, ARF_ALLREDUCE)->supported);
    assert_false(arf_knobs(ARF_SET_ARFUSE, ARF_SEPARATE, ARF_ALLREDUCE)->supported);
    assert_true(arf_knobs(ARF_SET_HOST, ARF_SEPARATE, ARF_FINALIZE)->supported);
    assert_int_equal(arf_protocol_version(ARF_SET_SGLANG, ARF_SEPARATE), 0);
    assert_int_equal(arf_protocol_version(ARF_SET_ARFUSE, ARF_SEPARATE), 2);
}

static void text_names_every_knob(void **state)
{
    (void)state;
    const arf_knob_table *table = arf_knobs(ARF_SET_FLASHINFER, ARF_HT, ARF_ALLREDUCE);
    arf_tuning tuning = arf_tuning_fallback(table);
    char text[512];
    arf_tuning_text(table, &tuning, text, sizeof text);
    assert_string_equal(text, "persistent_ctas=null consumer_threads=512 vectors_per_thread=2 "
                              "stages=2 reduction_warps=2 reduction_cta_groups=null "
                              "rms_token_groups=2 rms_pipeline_stages=1 rms_shard_major=false "
                              "enable_pdl=true");
    assert_int_equal(
        arf_knob_value(ARF_SET_FLASHINFER, ARF_HT, ARF_ALLREDUCE, &tuning, "consumer_threads"),
        512);
    char little[20]; /* cut, closed, and nothing written behind it */
    memset(little, 'x', sizeof little);
    arf_tuning_text(table, &tuning, little, 10);
    assert_string_equal(little, "persisten");
    assert_int_equal(little[10], 'x');
    assert_int_equal(arf_knob_index(table, "stage"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_is_sound),
        cmocka_unit_test(public_knobs_map_to_their_configurations),
        cmocka_unit_test(sets_lack_what_they_do_not_have),
        cmocka_unit_test(text_names_every_knob),
    };
    return cmocka_run_group_tests_name("knobs", tests, NULL, NULL);
}
