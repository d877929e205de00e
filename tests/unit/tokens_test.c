/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/tokens.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void expect(const char *text, int count, const int64_t *value)
{
    arf_tokens tokens;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_tokens_parse(text, &tokens, &error), ARFUSE_OK);
    assert_int_equal(tokens.count, count);
    assert_memory_equal(tokens.value, value, (size_t)count * sizeof *value);
}

static void test_lists_and_ranges(void **state)
{
    (void)state;
    expect("17", 1, (int64_t[]){17});
    expect("3,1,2", 3, (int64_t[]){1, 2, 3});
    expect("1-4", 4, (int64_t[]){1, 2, 3, 4});
    expect("16-64+16", 4, (int64_t[]){16, 32, 48, 64});
    expect("1-16*2", 5, (int64_t[]){1, 2, 4, 8, 16});
    expect("1-8*2,6,8", 5, (int64_t[]){1, 2, 4, 6, 8});
    expect("5-5", 1, (int64_t[]){5});
    expect("1048576", 1, (int64_t[]){1048576});
}

static void test_the_end_of_a_range_is_measured(void **state)
{
    (void)state;
    expect("1-100*2", 8, (int64_t[]){1, 2, 4, 8, 16, 32, 64, 100});
    expect("1-10+4", 4, (int64_t[]){1, 5, 9, 10});
}

static void test_default_ladder(void **state)
{
    (void)state;
    arf_tokens tokens;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_tokens_parse("1-8192*2", &tokens, &error), ARFUSE_OK);
    assert_int_equal(tokens.count, 14);
    for (int i = 0; i < tokens.count; i++)
        assert_int_equal(tokens.value[i], 1 << i);
}

static void test_refusals(void **state)
{
    (void)state;
    const char *bad[] = {"",        ",",
                         "1,,2",    "1,",
                         "64:1",    "64-1",
                         "1e3",     "0",
                         "0-8",     "-1",
                         "1-",      "1-8*1",
                         "1-8*0",   "1-8+0",
                         "1-8*",    "1-8+",
                         "1-8*2*2", "6k",
                         "1048577", " 1",
                         "1 ",      "1.5",
                         "01",      "1-8-16",
                         "1-4096",  "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        arf_tokens tokens = {.count = 7};
        arf_error error = ARF_ERROR_INIT;
        if (arf_tokens_parse(bad[i], &tokens, &error) != ARFUSE_USAGE)
            fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(tokens.count, 7);
        assert_true(error.text[0] != '\0');
    }
}

static void test_coarse_order_is_a_permutation(void **state)
{
    (void)state;
    for (int count = 1; count <= 200; count++) {
        arf_tokens tokens = {0};
        for (int i = 1; i <= count; i++)
            assert_true(arf_tokens_add(&tokens, i));
        int order[ARF_MAX_POINTS];
        bool seen[200] = {false};
        arf_tokens_coarse_first(&tokens, order);
        for (int i = 0; i < count; i++) {
            assert_in_range(order[i], 0, count - 1);
            assert_false(seen[order[i]]);
            seen[order[i]] = true;
        }
        assert_int_equal(order[0], 0);
        if (count > 1)
            assert_int_equal(order[1], count - 1);
    }
}

/* Small batches come as often as large ones, by octave, and none out of range. */
static void test_mixes(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    int64_t a[COUNT], b[COUNT], other[COUNT];
    int same = 0, octave[9] = {0};
    arf_tokens_mix(7, 256, a, COUNT);
    arf_tokens_mix(7, 256, b, COUNT);
    arf_tokens_mix(8, 256, other, COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(a[i], b[i]);
        assert_in_range(a[i], 1, 256);
        same += a[i] == other[i];
        int at = 0;
        while (a[i] >> (at + 1) > 0)
            at++;
        octave[at]++;
    }
    assert_true(same < COUNT / 2);
    for (int at = 0; at < 8; at++)
        assert_true(octave[at] > 0);
    arf_tokens_mix(1, 1, a, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(a[i], 1);
}

static void test_numbers(void **state)
{
    (void)state;
    int64_t number = -7;
    assert_true(arf_number_parse("0", 0, 9, &number));
    assert_int_equal(number, 0);
    assert_false(arf_number_parse("10", 0, 9, &number));
    assert_false(arf_number_parse("+1", 0, 9, &number));
    assert_false(arf_number_parse("", 0, 9, &number));
    assert_false(arf_number_parse("0x1", 0, 9, &number));
    assert_int_equal(number, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_and_ranges),
        cmocka_unit_test(test_the_end_of_a_range_is_measured),
        cmocka_unit_test(test_default_ladder),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_coarse_order_is_a_permutation),
        cmocka_unit_test(test_mixes),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
