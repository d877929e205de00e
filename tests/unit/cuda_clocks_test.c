/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks as libnvidia-ml tells them, against a stand-in (tests/fakenvml), and what is said of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "tune/clocks.h"

#ifdef ARF_CUDA

#include <dlfcn.h>

#include "device/cuda/nvml.h"
#include "support/standin.h"

static void (*set)(unsigned mhz, unsigned long long reasons);
static const CUuuid here;

static int load_stand_in(void **state)
{
    (void)state;
    void *library = standin_load("fakenvml/libnvidia-ml.so.1");
    *(void **)&set = library != NULL ? dlsym(library, "fakenvml_set") : NULL;
    return set == NULL;
}

static void test_clock_and_reasons_are_read(void **state)
{
    (void)state;
    static const struct {
        unsigned long long reasons;
        unsigned throttle;
    } cases[] = {
        {0x0, 0},
        {0x1, 0},   /* idle */
        {0x2, 0},   /* set by an administrator */
        {0x100, 0}, /* a display */
        {0x4, ARF_THROTTLE_POWER},
        {0x80 | 0x8, ARF_THROTTLE_POWER},
        {0x20, ARF_THROTTLE_HEAT},
        {0x40 | 0x8, ARF_THROTTLE_HEAT},
        {0x8, ARF_THROTTLE_HARDWARE},
        {0x10 | 0x1, ARF_THROTTLE_SYNC},
        {0x4 | 0x20, ARF_THROTTLE_POWER | ARF_THROTTLE_HEAT},
    };
    arf_nvml nvml = {0};
    arf_nvml_open(&nvml);
    assert_non_null(nvml.library);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        set(1980, cases[i].reasons);
        const arf_clocks clocks = arf_nvml_clocks(&nvml, &here);
        assert_int_equal(clocks.mhz, 1980);
        assert_int_equal(clocks.throttle, cases[i].throttle);
    }
    arf_nvml_close(&nvml);
}

static void test_what_is_not_told_is_unknown(void **state)
{
    (void)state;
    arf_nvml nvml = {0};
    CUuuid other = {{1}};
    arf_clocks clocks = arf_nvml_clocks(&nvml, &here); /* no library */
    assert_int_equal(clocks.mhz, 0);
    arf_nvml_open(&nvml);
    set(0, 0x4); /* not supported by this GPU */
    clocks = arf_nvml_clocks(&nvml, &here);
    assert_int_equal(clocks.mhz, 0);
    assert_int_equal(clocks.throttle, 0);
    set(1980, 0x4);
    clocks = arf_nvml_clocks(&nvml, &other);
    assert_int_equal(clocks.mhz, 0);
    arf_nvml_close(&nvml);
}

#endif

static void test_the_slowest_gpu_counts(void **state)
{
    (void)state;
    const arf_clocks fast = {1980, 0}, slow = {1410, ARF_THROTTLE_HEAT}, unknown = {0, 0};
    arf_clocks both = arf_clocks_join(fast, slow);
    assert_int_equal(both.mhz, 1410);
    assert_int_equal(both.throttle, ARF_THROTTLE_HEAT);
    assert_int_equal(arf_clocks_join(unknown, fast).mhz, 1980);
    assert_int_equal(arf_clocks_join(slow, unknown).mhz, 1410);
    assert_int_equal(arf_clocks_join(unknown, unknown).mhz, 0);
}

static void test_reasons_have_names(void **state)
{
    (void)state;
    char text[64];
    arf_throttle_text(0, text, sizeof text);
    assert_string_equal(text, "");
    arf_throttle_text(ARF_THROTTLE_POWER | ARF_THROTTLE_HEAT | ARF_THROTTLE_HARDWARE |
                          ARF_THROTTLE_SYNC,
                      text, sizeof text);
    assert_string_equal(text, "power, heat, hardware, sync");
}

static void trouble_of(const arf_clocks *reading, int count, char text[256])
{
    arf_clock_watch watch = {0};
    for (int i = 0; i < count; i++)
        arf_clocks_note(&watch, reading[i]);
    arf_clocks_trouble(&watch, text, 256);
}

static void test_only_trouble_is_told(void **state)
{
    (void)state;
    char text[256];
    trouble_of(NULL, 0, text);
    assert_string_equal(text, "");
    trouble_of((arf_clocks[]){{0, 0}, {0, 0}}, 2, text);
    assert_string_equal(text, "");
    trouble_of((arf_clocks[]){{2000, 0}, {2100, 0}}, 2, text); /* 5 % */
    assert_string_equal(text, "");
    trouble_of((arf_clocks[]){{2000, 0}, {2115, 0}, {0, 0}}, 3, text);
    assert_non_null(strstr(text, "between 2000 and 2115 MHz"));
    trouble_of((arf_clocks[]){{1980, 0}, {1975, ARF_THROTTLE_POWER}, {1980, 0}}, 3, text);
    assert_non_null(strstr(text, "held down at 1 of 3 points (power)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef ARF_CUDA
        cmocka_unit_test_setup(test_clock_and_reasons_are_read, load_stand_in),
        cmocka_unit_test_setup(test_what_is_not_told_is_unknown, load_stand_in),
#endif
        cmocka_unit_test(test_the_slowest_gpu_counts),
        cmocka_unit_test(test_reasons_have_names),
        cmocka_unit_test(test_only_trouble_is_told),
    };
    return cmocka_run_group_tests_name("clocks", tests, NULL, NULL);
}
