/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void expect(int tp_size, int processes, const char *text)
{
    arf_placement placement;
    arf_error error = ARF_ERROR_INIT;
    char shown[256];
    assert_int_equal(arf_place(tp_size, processes, &placement, &error), ARFUSE_OK);
    arf_placement_text(&placement, shown, sizeof shown);
    assert_string_equal(shown, text);
    int sum = 0;
    for (int p = 0; p < processes; p++) {
        assert_true(placement.ranks_of[p] >= 1);
        sum += placement.ranks_of[p];
    }
    assert_int_equal(sum, placement.tp_size);
}

static void test_every_process_hosts_ranks(void **state)
{
    (void)state;
    expect(0, 8, "8 ranks on 8 processes");
    expect(0, 1, "1 rank on 1 process");
    expect(8, 1, "8 ranks on 1 process, 8 each");
    expect(8, 4, "8 ranks on 4 processes, 2 each");
    expect(8, 3, "8 ranks on 3 processes: 3, 3, 2");
    expect(72, 1, "72 ranks on 1 process, 72 each");
}

static void test_refusals(void **state)
{
    (void)state;
    arf_placement placement;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_place(2, 4, &placement, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "--tp 2 with 4 processes"));
    arf_error_clear(&error);
    assert_int_equal(arf_place(0, 73, &placement, &error), ARFUSE_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_process_hosts_ranks),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
