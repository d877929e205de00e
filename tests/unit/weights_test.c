/* SPDX-License-Identifier: Apache-2.0 */
/* The three forms of a weights file, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fit/fit.h"
#include "support/german.h"
#include "support/scratch.h"

static char folder[SCRATCH_PATH], path[2 * SCRATCH_PATH];

static int make_file(void **state)
{
    (void)state;
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/weights", folder);
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

static arfuse_status load(const char *text, arf_weights *weights, arf_error *error)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    *error = (arf_error)ARF_ERROR_INIT;
    return arf_weights_load(path, weights, error);
}

static void expect(const char *text, int count, const int64_t *tokens, const double *weight)
{
    arf_weights weights;
    arf_error error;
    if (load(text, &weights, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    assert_int_equal(weights.count, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(weights.tokens[i], tokens[i]);
        assert_true(weights.weight[i] == weight[i]);
    }
    arf_weights_free(&weights);
    assert_null(weights.tokens);
}

static void refuse(const char *text, const char *line, const char *why)
{
    arf_weights weights;
    arf_error error;
    assert_int_equal(load(text, &weights, &error), ARFUSE_PROFILE);
    if (strstr(error.text, path) == NULL || strstr(error.text, line) == NULL ||
        strstr(error.text, why) == NULL)
        fail_msg("\"%s\" should name %s and %s", error.text, line, why);
}

static void test_one_count_a_line(void **state)
{
    (void)state;
    expect("17\n1\n17\n\n# a note\n0\n17", 3, (const int64_t[]){0, 1, 17},
           (const double[]){1.0, 1.0, 3.0});
}

static void test_two_columns(void **state)
{
    (void)state;
    const int64_t tokens[] = {1, 64, 1048576};
    const double weight[] = {2.5, 120.0, 1.0};
    expect("64,100\n1,2.5\n64,20 # again\n8,0\n1048576,1\n", 3, tokens, weight);
    expect("64 100\r\n1\t2.5\r\n64 20\r\n1048576 , 1\r\n", 3, tokens, weight);
}

static void test_named_columns(void **state)
{
    (void)state;
    expect("site,pattern,tokens,count\nmoe_out,finalize,8,3\nattn_out,allreduce,8,4\n"
           "attn_out,allreduce,1,1e2\n",
           2, (const int64_t[]){1, 8}, (const double[]){100.0, 7.0});
    expect("count,tokens\n3,8\n", 1, (const int64_t[]){8}, (const double[]){3.0});
}

/* The host's locale decides nothing. */
static void test_decimal_comma_locale(void **state)
{
    (void)state;
    if (!german_on())
        skip();
    expect("8 2.5\n", 1, (const int64_t[]){8}, (const double[]){2.5});
    german_off();
}

static void test_refusals(void **state)
{
    (void)state;
    refuse("", path, "no token count");
    refuse("# nothing\n\n", path, "no token count");
    refuse("8,0\n", path, "no token count");
    refuse("8,1\n9\n", "line 2", "columns");
    refuse("8\n9,1\n", "line 2", "columns");
    refuse("1,2,3\n", "line 1", "3 columns");
    refuse("5,1e308\n4,1\n5,1e308\n", "line 3", "more than a number holds");
    refuse("8,1\n-1,1\n", "line 2", "-1");
    refuse("8,1\n1.5,1\n", "line 2", "1.5");
    refuse("1048577\n", "line 1", "1048577");
    refuse("99999999999999999999\n", "line 1", "99999999999999999999");
    refuse("8,-1\n", "line 1", "-1");
    refuse("8,nan\n", "line 1", "nan");
    refuse("8,1e999\n", "line 1", "1e999");
    refuse("8,1x\n", "line 1", "1x");
    refuse("tokens,number\n8,1\n", "line 1", "count");
    refuse("tokens,count\n8,1,4\n", "line 2", "columns");
    refuse("tokens,count\n", path, "no token count");
}

static void test_missing_file(void **state)
{
    (void)state;
    arf_weights weights;
    arf_error error = ARF_ERROR_INIT;
    assert_int_not_equal(arf_weights_load("/nonexistent/weights", &weights, &error), ARFUSE_OK);
    assert_non_null(strstr(error.text, "/nonexistent/weights"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_count_a_line),     cmocka_unit_test(test_two_columns),
        cmocka_unit_test(test_named_columns),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_decimal_comma_locale), cmocka_unit_test(test_missing_file),
    };
    return cmocka_run_group_tests_name("weights", tests, make_file, remove_file);
}
