/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/sizing.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static arf_shape shape_of(int hidden, int ranks)
{
    return (arf_shape){ranks, hidden, 10, ARF_ON, ARF_ON, ARF_ON};
}

static int64_t mailbox(int hidden, int ranks, arf_protocol protocol, int64_t capacity)
{
    arf_error error = ARF_ERROR_INIT;
    arf_shape shape = shape_of(hidden, ranks);
    int64_t bytes = -1;
    assert_int_equal(arf_mailbox_bytes(&shape, protocol, capacity, &bytes, &error), ARFUSE_OK);
    return bytes;
}

static void mailboxes_are_exact_in_64_bits(void **state)
{
    (void)state;
    assert_true(mailbox(6144, 8, ARF_LL, 131072) == 38654705664LL);
    /* On both sides of 2^31 bytes, and of 2^31 elements. */
    assert_true(mailbox(6144, 8, ARF_LL, 7281) == 2147254272LL);
    assert_true(mailbox(6144, 8, ARF_LL, 7282) == 2147549184LL);
    assert_true(mailbox(6144, 8, ARF_LL, 21846) == 6442647552LL);
    assert_true(mailbox(6144, 8, ARF_LL, 349526) == 349526 * 294912LL);
    /* By hand: 3 generations of 8 sources of 12 tokens of 12288 bytes. */
    assert_true(mailbox(6144, 8, ARF_LL, 12) == 3538944);
    /* 13 tokens over 8 ranks: 2 owned by the first, 8 sources; and 13 rows. */
    assert_true(mailbox(6144, 8, ARF_BT, 13) == 3LL * (2 * 8 + 13) * 12288);
    assert_true(mailbox(6144, 8, ARF_UNFUSED, 13) == (2LL * 8 + 13) * 12288);
    /* HT besides: a word for each of 8 sources of 2 tokens, and of 64 shards of 13. */
    assert_true(mailbox(6144, 8, ARF_HT, 13) == (2LL * 8 + 13) * 12288 + 8 * (2 * 8 + 13 * 64));
    /* A token of 3 packs has no more shards than those. */
    assert_true(mailbox(24, 2, ARF_HT, 2) == (2LL + 2) * 48 + 8 * (2 + 2 * 3));
    assert_true(mailbox(6144, 8, ARF_SEPARATE, 13) == 0);
    assert_true(mailbox(6144, 8, ARF_LL, 0) == 0);
    /* The corner of the reader's ranges: 3 * 2^20 * 72 * 2^17. */
    assert_true(mailbox(65536, 72, ARF_LL, 1 << 20) == 29686813949952LL);
}

/* Of 2 MiB, three generations of eight slots hold 7 tokens of 12288 bytes: neither the 170 of one
 * copy nor the 56 of one slot. */
static void every_generation_and_slot_counts(void **state)
{
    (void)state;
    assert_true(mailbox(6144, 8, ARF_LL, 7) <= 2 << 20);
    assert_true(mailbox(6144, 8, ARF_LL, 8) > 2 << 20);
    assert_true(mailbox(6144, 1, ARF_LL, 56) <= 2 << 20);
    assert_true(mailbox(6144, 1, ARF_LL, 57) > 2 << 20);
}

static void slices_fit_into_the_contributions_of_whole_tokens(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 16; ranks++)
        for (int64_t capacity = 0; capacity < 100; capacity++) {
            int hidden = 8 * ranks * 3;
            int64_t rows = capacity * hidden * 2;
            int64_t slices = capacity * ranks * (hidden / ranks) * 2;
            assert_true(mailbox(hidden, ranks, ARF_UNFUSED, capacity) - rows >= slices);
        }
}

static void arguments_out_of_range_are_named(void **state)
{
    (void)state;
    static const struct {
        int hidden, ranks;
        int64_t capacity;
        const char *text;
    } cases[] = {{6144, 8, (1 << 20) + 1, "capacity 1048577: expected 0 to 1048576"},
                 {6144, 8, -1, "capacity -1: expected 0 to 1048576"},
                 {0, 8, 1, "hidden_size 0: expected 8 to 65536"},
                 {6144, 73, 1, "tp_size 73: expected 1 to 72"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arf_error error = ARF_ERROR_INIT;
        arf_shape shape = shape_of(cases[i].hidden, cases[i].ranks);
        int64_t bytes = -1;
        assert_int_equal(arf_mailbox_bytes(&shape, ARF_LL, cases[i].capacity, &bytes, &error),
                         ARFUSE_USAGE);
        assert_string_equal(error.text, cases[i].text);
        assert_true(bytes == -1);
    }
    arf_error error = ARF_ERROR_INIT;
    arf_shape shape = shape_of(6144, 8);
    int64_t bytes;
    assert_int_equal(arf_published_bytes(&shape, ARF_UNFUSED, 1, &bytes, &error), ARFUSE_USAGE);
}

/* The worked examples, in MiB as printed: LL, BT, HT and their sum at a workspace capacity of 8192.
 * Source: formulas of FlashInfer pull request 4358, worked for published bounds. */
static void published_workspaces_have_the_worked_sizes(void **state)
{
    (void)state;
    static const struct {
        int hidden, ranks;
        int64_t capacity[3];
        double mib[3], sum;
    } rows[] = {
        {8192, 8, {23, 1024, 8192}, {8.63, 96, 256}, 360.7},
        {8192, 16, {7, 959, 8192}, {5.25, 89.95, 256}, 351.3},
        {6144, 4, {28, 1536, 8192}, {3.94, 108, 192}, 304.0},
        {6144, 8, {12, 1024, 8192}, {3.38, 72, 192}, 267.4},
        {6144, 8, {64, 1024, 8192}, {18, 72, 192}, 282.1},
        {5120, 4, {42, 2048, 8192}, {4.92, 120, 160}, 285.0},
        {5120, 8, {24, 8192, 0}, {5.63, 480, 0}, 485.6},
        {3584, 8, {32, 1024, 8192}, {5.25, 42, 112}, 159.3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arf_shape shape = shape_of(rows[i].hidden, rows[i].ranks);
        double sum = 0;
        for (int protocol = ARF_LL; protocol <= ARF_HT; protocol++) {
            int64_t bytes;
            assert_int_equal(arf_published_bytes(&shape, (arf_protocol)protocol,
                                                 rows[i].capacity[protocol], &bytes, NULL),
                             ARFUSE_OK);
            if (rows[i].capacity[protocol] == 0)
                continue;
            double mib = (double)bytes / (1 << 20);
            sum += mib;
            /* Printed to two digits or to whole MiB, without HT's 150 KiB of counters. */
            assert_true(fabs(mib - rows[i].mib[protocol]) < (protocol == ARF_HT ? 0.16 : 0.006));
        }
        assert_true(fabs(sum - rows[i].sum) < 0.051);
    }
    /* LL alone at 8192 tokens, H=8192: 3 GiB with 8 ranks, 6 GiB with 16. */
    arf_shape shape = shape_of(8192, 8);
    int64_t bytes;
    assert_int_equal(arf_published_bytes(&shape, ARF_LL, 8192, &bytes, NULL), ARFUSE_OK);
    assert_true(bytes == 3LL * (1 << 30) + 8);
    shape.tp_size = 16;
    assert_int_equal(arf_published_bytes(&shape, ARF_LL, 8192, &bytes, NULL), ARFUSE_OK);
    assert_true(bytes == 6LL * (1 << 30) + 8);
}

static void a_protocols_capacity_is_its_last_bound_or_the_capacity(void **state)
{
    (void)state;
    static arf_routes routes[ARF_PATTERNS];
    routes[ARF_ALLREDUCE].count = 2;
    routes[ARF_ALLREDUCE].route[0] = (arf_route){.max_tokens = 15, .plan = {.protocol = ARF_LL}};
    routes[ARF_ALLREDUCE].route[1] = (arf_route){.max_tokens = 1024, .plan = {.protocol = ARF_BT}};
    routes[ARF_FINALIZE].count = 3;
    routes[ARF_FINALIZE].route[0] = (arf_route){.max_tokens = 23, .plan = {.protocol = ARF_LL}};
    routes[ARF_FINALIZE].route[1] = (arf_route){.max_tokens = 703, .plan = {.protocol = ARF_BT}};
    routes[ARF_FINALIZE].route[2] =
        (arf_route){.max_tokens = ARF_OPEN_BOUND, .plan = {.protocol = ARF_HT}};
    assert_int_equal(arf_protocol_capacity(routes, ARF_LL, 8192), 23);
    assert_int_equal(arf_protocol_capacity(routes, ARF_BT, 8192), 1024);
    assert_int_equal(arf_protocol_capacity(routes, ARF_HT, 8192), 8192);
    assert_int_equal(arf_protocol_capacity(routes, ARF_BT, 512), 512);
    assert_int_equal(arf_protocol_capacity(routes, ARF_UNFUSED, 8192), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mailboxes_are_exact_in_64_bits),
        cmocka_unit_test(every_generation_and_slot_counts),
        cmocka_unit_test(slices_fit_into_the_contributions_of_whole_tokens),
        cmocka_unit_test(arguments_out_of_range_are_named),
        cmocka_unit_test(published_workspaces_have_the_worked_sizes),
        cmocka_unit_test(a_protocols_capacity_is_its_last_bound_or_the_capacity),
    };
    return cmocka_run_group_tests_name("sizing", tests, NULL, NULL);
}
