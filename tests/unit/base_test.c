/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, log, status texts and hashes: the small parts of base. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"

static void the_first_error_is_kept(void **state)
{
    (void)state;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_fail(&error, ARFUSE_PROFILE, "cause %d", 1), ARFUSE_PROFILE);
    assert_int_equal(arf_fail(&error, ARFUSE_TIMEOUT, "cleaning up"), ARFUSE_PROFILE);
    assert_string_equal(error.text, "cause 1");
    arf_error_clear(&error);
    assert_int_equal(error.status, ARFUSE_OK);
    assert_int_equal(arf_fail(&error, ARFUSE_TIMEOUT, "new"), ARFUSE_TIMEOUT);
    assert_string_equal(error.text, "new");
    assert_int_equal(arf_fail(NULL, ARFUSE_USAGE, "nobody listens"), ARFUSE_USAGE);
}

static void prefixes_come_before(void **state)
{
    (void)state;
    arf_error error = ARF_ERROR_INIT;
    arf_error_prefix(&error, "nothing failed");
    assert_string_equal(error.text, "");
    arf_fail(&error, ARFUSE_FAILURE, "cause");
    arf_error_prefix(&error, "rank %d", 3);
    arf_error_prefix(&error, "file");
    assert_string_equal(error.text, "file: rank 3: cause");
    /* A message of full length keeps its status and stays a string. */
    char longest[sizeof error.text];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    arf_error_clear(&error);
    arf_fail(&error, ARFUSE_FAILURE, "%s", longest);
    arf_error_prefix(&error, "file");
    assert_true(strlen(error.text) < sizeof error.text);
    assert_int_equal(error.status, ARFUSE_FAILURE);
    assert_true(strncmp(error.text, "file: xxx", 9) == 0);
}

static char heard[256];
static void hear(void *context, arfuse_log_level level, const char *line)
{
    snprintf(heard, sizeof heard, "%s%d:%s", (const char *)context, (int)level, line);
}

static void log_lines_have_a_level(void **state)
{
    (void)state;
    arf_log log = {hear, (void *)"c", ARFUSE_LOG_WARNING};
    arf_logf(&log, ARFUSE_LOG_WARNING, "%s %d", "one", 1);
    assert_string_equal(heard, "c2:one 1");
    arf_logf(&log, ARFUSE_LOG_INFO, "dropped");
    assert_string_equal(heard, "c2:one 1");
    arf_logf(NULL, ARFUSE_LOG_ERROR, "nobody");
    arf_logf(&(arf_log){0}, ARFUSE_LOG_ERROR, "nobody");
}

static void every_status_has_its_own_text(void **state)
{
    (void)state;
    const arfuse_status all[] = {ARFUSE_OK,         ARFUSE_FAILURE,  ARFUSE_USAGE,
                                 ARFUSE_PROFILE,    ARFUSE_HARDWARE, ARFUSE_WRONG_RESULT,
                                 ARFUSE_TIMEOUT,    ARFUSE_DISAGREE, ARFUSE_FAILED,
                                 ARFUSE_NOT_SERVED, ARFUSE_IN_USE,   ARFUSE_NOT_SUPPORTED,
                                 (arfuse_status)99};
    const size_t count = sizeof all / sizeof *all;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(arfuse_status_text(all[i]), arfuse_status_text(all[j]));
    assert_string_equal(arfuse_status_text((arfuse_status)99), "unknown status");
}

static void hashes_are_fnv1a(void **state)
{
    (void)state;
    /* Test vectors of the FNV reference (draft-eastlake-fnv, 64-bit FNV-1a). */
    assert_true(arf_hash(ARF_HASH_INIT, "", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(arf_hash(ARF_HASH_INIT, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(arf_hash(ARF_HASH_INIT, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    uint64_t split = arf_hash_text(arf_hash_text(ARF_HASH_INIT, "ab"), "c");
    assert_true(split != arf_hash_text(arf_hash_text(ARF_HASH_INIT, "a"), "bc"));
    assert_true(arf_hash_number(ARF_HASH_INIT, -1) ==
                arf_hash(ARF_HASH_INIT, "\xff\xff\xff\xff\xff\xff\xff\xff", 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_error_is_kept), cmocka_unit_test(prefixes_come_before),
        cmocka_unit_test(log_lines_have_a_level),  cmocka_unit_test(every_status_has_its_own_text),
        cmocka_unit_test(hashes_are_fnv1a),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
