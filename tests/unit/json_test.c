/* SPDX-License-Identifier: Apache-2.0 */
/* The strict layer: what is refused and where it says so, what getters accept, what is printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <float.h>
#include <locale.h>
#include <math.h>
#include <time.h>

#include "base/json.h"
#include "support/german.h"

#define ALL(array) (sizeof(array) / sizeof *(array))

static arfuse_status parse_bytes(const char *text, size_t bytes, arf_json **json, arf_error *error)
{
    /* An exact copy on the heap: a read past the end is seen by the sanitizer. */
    char *copy = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, text, bytes);
    arfuse_status status = arf_json_parse(copy, bytes, json, error);
    free(copy);
    return status;
}

static arf_json *good(const char *text)
{
    arf_json *json = NULL;
    arf_error error = ARF_ERROR_INIT;
    if (parse_bytes(text, strlen(text), &json, &error) != ARFUSE_OK)
        fail_msg("%s: refused: %s", text, error.text);
    return json;
}

/* ---- texts ------------------------------------------------------------------------------------
 */

static const struct bad {
    const char *text;
    size_t bytes; /* 0: strlen */
    const char *message;
} bad_texts[] = {
    {"", 0, "line 1, column 1: the text is empty"},
    {" \n\t ", 0, "line 1, column 1: the text is empty"},
    {"\xef\xbb\xbf{}", 0, "line 1, column 1: a byte-order mark"},
    {"{\"a\":1}}}}", 0, "line 1, column 8: text after the document"},
    {"{\"a\":1}{\"a\":1}", 0, "line 1, column 8: text after the document"},
    {"{\"a\":1}\n\n 2", 0, "line 3, column 2: text after the document"},
    {"{}\0x", 4, "line 1, column 3: text after the document"},
    {"{\"a\":1,}", 0, "line 1, column 8: '}', expected a name in double quotes"},
    {"[1,]", 0, "line 1, column 4: ']', expected a value"},
    {"[,1]", 0, "line 1, column 2: ',', expected a value or ']'"},
    {"[1 2]", 0, "line 1, column 4: '2', expected ',' or ']'"},
    {"{\"a\" 1}", 0, "line 1, column 6: '1', expected ':'"},
    {"{\"a\":}", 0, "line 1, column 6: '}', expected a value"},
    {"{\"a\"}", 0, "line 1, column 5: '}', expected ':'"},
    {"{1:2}", 0, "line 1, column 2: '1', expected a name in double quotes or '}'"},
    {"{\"a\":1;}", 0, "line 1, column 7: ';', expected ',' or '}'"},
    {"]", 0, "line 1, column 1: ']', expected a value"},
    {"[[1]", 0,
     "line 1, column 5: the document has no end (a truncated file?), expected ',' or ']'"},
    {"{a:1}", 0, "line 1, column 2: 'a', expected a name in double quotes or '}'"},
    {"{'a':1}", 0, "line 1, column 2: ''', expected a name in double quotes or '}'"},
    {"{\"a\":[1,2", 0, "the document has no end"},
    {"{\"a\":", 0, "the document has no end (a truncated file?), expected a value"},
    {"{\"a", 0, "line 1, column 2: the string that begins here has no end"},
    {"[1}", 0, "line 1, column 3: '}', expected ',' or ']'"},
    {"[\"\x01\"]", 0, "line 1, column 3: control character 0x01 in a string"},
    {"[\"a\nb\"]", 0, "line 1, column 4: control character 0x0a in a string"},
    {"[\"a\0b\"]", 7, "control character 0x00 in a string"},
    {"[1,\v2]", 0, "line 1, column 4: byte 0x0b, expected a value"},
    {"[\"\\u0000\"]", 0, "line 1, column 3: an escaped NUL"},
    {"[\"\\x41\"]", 0, "not an escape of JSON"},
    {"[\"\\u12g4\"]", 0, "not an escape of JSON"},
    {"[\"\\u12", 0, "not an escape of JSON"},
    {"[\"\\ud800\"]", 0, "half of a surrogate pair"},
    {"[\"\\udc00\"]", 0, "half of a surrogate pair"},
    {"[\"\\ud800\\u0041\"]", 0, "half of a surrogate pair"},
    {"[\"\xc3\xa4\xff\"]", 0, "line 1, column 4: byte 0xff is not valid UTF-8"},
    {"[\"\xc0\xaf\"]", 0, "not valid UTF-8"},         /* overlong '/' */
    {"[\"\xed\xa0\x80\"]", 0, "not valid UTF-8"},     /* a surrogate */
    {"[\"\xf4\x90\x80\x80\"]", 0, "not valid UTF-8"}, /* beyond U+10FFFF */
    {"[\"\xe2\x82", 0, "not valid UTF-8"},            /* cut */
    {"[01]", 0, "line 1, column 2: not a number of JSON"},
    {"[-]", 0, "not a number of JSON"},
    {"[1.]", 0, "not a number of JSON"},
    {"[1e]", 0, "not a number of JSON"},
    {"[1e+]", 0, "not a number of JSON"},
    {"[-01]", 0, "not a number of JSON"},
    {"[+1]", 0, "'+', expected a value"},
    {"[.5]", 0, "'.', expected a value"},
    {"[0x10]", 0, "'x', expected ',' or ']'"},
    {"[NaN]", 0, "'N', expected a value"},
    {"[Infinity]", 0, "'I', expected a value"},
    {"[-Infinity]", 0, "not a number of JSON"},
    {"[True]", 0, "'T', expected a value"},
    {"[nul]", 0, "'n', expected a value"},
    {"[1e400]", 0, "1e400 is beyond the range of a double"},
    {"[-1e400]", 0, "-1e400 is beyond the range of a double"},
    {"[9007199254740993]", 0, "9007199254740993, expected an integer of at most 2^53 - 1"},
    {"[0.00000000000000000000000000000000000000000000000000000000000000001]", 0,
     "a number of 67 characters, expected at most 63"},
    {"{\"a\":1,\"b\":2,\"a\":3}", 0, "$: member \"a\" stands there twice"},
    {"{\"x\":[0,{\"y\":{\"k\":1,\"k\":1}}]}", 0, "$.x[1].y: member \"k\" stands there twice"},
    {"{\"a\\u0062\":1,\"ab\":2}", 0, "$: member \"ab\" stands there twice"},
    {"[1,2] // note", 0, "line 1, column 7: text after the document"},
};

static void bad_texts_are_refused_with_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < ALL(bad_texts); i++) {
        const struct bad *bad = &bad_texts[i];
        arf_json *json = NULL;
        arf_error error = ARF_ERROR_INIT;
        size_t bytes = bad->bytes > 0 ? bad->bytes : strlen(bad->text);
        arfuse_status status = parse_bytes(bad->text, bytes, &json, &error);
        if (status != ARFUSE_PROFILE || json != NULL || strstr(error.text, bad->message) == NULL)
            fail_msg("case %zu '%s': status %d, '%s', expected '%s'", i, bad->text, status,
                     error.text, bad->message);
    }
}

static void good_texts_are_accepted(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        " [ ] \r\n",
        "0",
        "-0",
        "\"x\"",
        "null",
        "[true,false,null]",
        "[1e3,1E+3,1.5e-3,-0.0,9007199254740991]",
        "{\"a\":1,\"A\":2}",
        "[\"\\ud83d\\ude00 \\u0001 \\/ \xf0\x9f\x98\x80 \xc3\xa4\"]",
        "{\"\":0}"};
    for (size_t i = 0; i < ALL(texts); i++)
        arf_json_free(good(texts[i]));
}

static void depth_and_size_are_bounded(void **state)
{
    (void)state;
    char text[5000];
    memset(text, '[', sizeof text);
    arf_json *json = NULL;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(parse_bytes(text, 2000, &json, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "line 1, column 17: depth 17, expected at most 16"));
    memset(text + 16, ']', 16);
    assert_int_equal(parse_bytes(text, 32, &json, NULL), ARFUSE_OK);
    arf_json_free(json);
    /* The sixteenth level from within a value, not only at the start. */
    strcpy(text, "{\"a\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}");
    arf_error_clear(&error);
    assert_int_equal(parse_bytes(text, strlen(text), &json, &error), ARFUSE_PROFILE);

    size_t bytes = ARF_JSON_MAX_BYTES + 1;
    char *large = malloc(bytes);
    memset(large, ' ', bytes);
    large[0] = '0';
    arf_error_clear(&error);
    assert_int_equal(arf_json_parse(large, bytes, &json, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "4194305 bytes, expected at most 4194304"));
    assert_int_equal(arf_json_parse(large, bytes - 1, &json, NULL), ARFUSE_OK);
    arf_json_free(json);
    free(large);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Reads an object of `count` members, walks them all, and says how long that took. */
static double time_members(int count)
{
    arf_text text = {0};
    arf_text_add(&text, "{\"last\":[");
    for (int i = 0; i < count; i++)
        arf_text_add(&text, "%s1", i > 0 ? "," : "");
    arf_text_add(&text, "]");
    for (int i = 0; i < count; i++)
        arf_text_add(&text, ",\"%d\":1", i);
    arf_text_add(&text, "}");
    assert_false(text.failed);
    double start = seconds();
    arf_json *json = NULL;
    assert_int_equal(arf_json_parse(text.data, text.bytes, &json, NULL), ARFUSE_OK);
    arf_json_value root = arf_json_root(json), child = {0};
    int seen = 0;
    while (arf_json_next(&root, &child, NULL))
        seen++;
    assert_int_equal(seen, count + 1);
    arf_json_free(json);
    double taken = seconds() - start;
    arf_text_free(&text);
    return taken;
}

static void reading_is_linear(void **state)
{
    (void)state;
    time_members(20000); /* pages touched */
    double small = time_members(25000), large = time_members(250000);
    /* Quadratic would be a hundred times; ten is linear, the rest is noise of a shared machine. */
    if (large > 40 * small && large > 1.0)
        fail_msg("25,000 members took %.3f s, 250,000 took %.3f s", small, large);
}

/* ---- getters ------------------------------------------------------------------------------ */

static void integers_are_exact_or_refused(void **state)
{
    (void)state;
    arf_json *json = good("{\"n\":[1,4294967296,9007199254740991,-3,1e3,32.0,-0],"
                          "\"bad\":[32.5,\"32\",true,null,-1,2147483648,{},[],1e300]}");
    arf_json_value root = arf_json_root(json), list;
    arf_error error = ARF_ERROR_INIT;
    const int64_t expected[] = {1, INT64_C(4294967296), INT64_C(9007199254740991), -3, 1000, 32, 0};
    assert_int_equal(arf_json_member(&root, "n", &list, &error), ARFUSE_OK);
    for (int i = 0; i < (int)ALL(expected); i++) {
        arf_json_value value = arf_json_element(&list, i);
        int64_t number = -99;
        assert_int_equal(arf_json_integer(&value, INT64_MIN, INT64_MAX, &number, &error),
                         ARFUSE_OK);
        assert_true(number == expected[i]);
    }
    const char *const shown[] = {"32.5",       "\"32\"",    "true",     "null",  "-1",
                                 "2147483648", "an object", "an array", "1e+300"};
    assert_int_equal(arf_json_member(&root, "bad", &list, &error), ARFUSE_OK);
    for (int i = 0; i < (int)ALL(shown); i++) {
        arf_json_value value = arf_json_element(&list, i);
        int64_t number = -99;
        char message[128];
        snprintf(message, sizeof message, "$.bad[%d]: %s, expected an integer from 1 to 65536", i,
                 shown[i]);
        arf_error_clear(&error);
        assert_int_equal(arf_json_integer(&value, 1, 65536, &number, &error), ARFUSE_PROFILE);
        assert_string_equal(error.text, message);
        assert_int_equal(number, -99);
    }
    arf_json_free(json);
}

static void other_getters_refuse_by_name(void **state)
{
    (void)state;
    arf_json *json = good("{\"a\":{\"x\":1},\"s\":\"abc\",\"d\":0.25,\"b\":true,\"z\":null}");
    arf_json_value root = arf_json_root(json), value;
    arf_error error = ARF_ERROR_INIT;
    char text[4];
    double number;
    bool truth;
    assert_int_equal(arf_json_member(&root, "s", &value, &error), ARFUSE_OK);
    assert_int_equal(arf_json_string(&value, text, 4, &error), ARFUSE_OK);
    assert_string_equal(text, "abc");
    assert_int_equal(arf_json_string(&value, text, 3, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text, "$.s: \"abc\", expected a string of at most 2 bytes");
    arf_error_clear(&error);
    assert_int_equal(arf_json_boolean(&value, &truth, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text, "$.s: \"abc\", expected true or false");
    assert_int_equal(arf_json_member(&root, "d", &value, NULL), ARFUSE_OK);
    assert_int_equal(arf_json_number(&value, 0, 1, &number, NULL), ARFUSE_OK);
    assert_true(number == 0.25);
    arf_error_clear(&error);
    assert_int_equal(arf_json_number(&value, 0.5, 1, &number, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text, "$.d: 0.25, expected a number from 0.5 to 1");
    arf_error_clear(&error);
    assert_int_equal(arf_json_member(&root, "S", &value, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text, "$: no member \"S\", expected one");
    assert_int_equal(arf_json_optional(&root, "S", &value, NULL), ARFUSE_OK);
    assert_null(value.node);
    assert_int_equal(arf_json_optional(&root, "z", &value, NULL), ARFUSE_OK);
    assert_true(
        arf_json_is_null(&value)); /* null is there; only the caller may take it for absent */
    arf_error_clear(&error);
    assert_int_equal(arf_json_boolean(&value, &truth, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text, "$.z: null, expected true or false");
    const char *const members[] = {"a", "s", "d", NULL};
    arf_error_clear(&error);
    assert_int_equal(arf_json_object(&root, members, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text, "$: unknown member \"b\", expected only a, s, d");
    assert_int_equal(arf_json_member(&root, "a", &value, NULL), ARFUSE_OK);
    const char *const none[] = {NULL};
    arf_error_clear(&error);
    assert_int_equal(arf_json_object(&value, none, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text, "$.a: unknown member \"x\", expected no member");
    arf_json_free(json);
}

static void paths_stay_readable(void **state)
{
    (void)state;
    arf_json *json = good("{\"a b\":{\"line\\n\":[5]}}");
    arf_json_value root = arf_json_root(json), child = {0}, inner = {0}, last = {0};
    const char *name;
    assert_true(arf_json_next(&root, &child, &name));
    assert_string_equal(name, "a b");
    assert_true(arf_json_next(&child, &inner, &name));
    assert_true(arf_json_next(&inner, &last, &name));
    assert_string_equal(last.path, "$[\"a b\"][\"line\\u000a\"][0]");
    assert_null(name);
    assert_false(arf_json_next(&inner, &last, NULL));
    arf_json_free(json);

    /* Long names at full depth: the path is cut, the message still comes. */
    arf_text text = {0};
    for (int i = 0; i < 15; i++)
        arf_text_add(&text, "{\"%040d\":", i);
    arf_text_add(&text, "{\"k\":1,\"k\":2}");
    for (int i = 0; i < 15; i++)
        arf_text_add(&text, "}");
    arf_error error = ARF_ERROR_INIT;
    json = NULL;
    assert_int_equal(arf_json_parse(text.data, text.bytes, &json, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "member \"k\" stands there twice"));
    arf_text_free(&text);
}

/* ---- printing ------------------------------------------------------------------------------ */

static void printing_back_is_exact(void **state)
{
    (void)state;
    const char *text = "{\"a\":[1,-2.5,2.5e+300,0.30000000000000004,9007199254740991,5e-324],"
                       "\"b\":{\"c\":\"x\\\"\\\\\\u0009\xc3\xa4\",\"d\":null,\"e\":true},\"f\":{}}";
    arf_json *json = good(text);
    arf_json_value root = arf_json_root(json);
    char *printed = arf_json_print(&root);
    assert_string_equal(
        printed,
        "{\"a\":[1,-2.5,2.5e+300,0.30000000000000004,9007199254740991,4.94065645841247e-324],"
        "\"b\":{\"c\":\"x\\\"\\\\\\u0009\xc3\xa4\",\"d\":null,\"e\":true},\"f\":{}}");
    free(printed);
    arf_json_free(json);
}

static void check_number(double number, int decimals, const char *expected)
{
    arf_text text = {0};
    arf_text_number(&text, number, decimals);
    assert_false(text.failed);
    if (expected != NULL)
        assert_string_equal(text.data, expected);
    if (decimals < 0) {
        arf_json *json = good(text.data);
        arf_json_value root = arf_json_root(json);
        double back = NAN;
        assert_int_equal(arf_json_number(&root, -INFINITY, INFINITY, &back, NULL), ARFUSE_OK);
        assert_true(back == number);
        arf_json_free(json);
    }
    arf_text_free(&text);
}

static void numbers_read_back_equal(void **state)
{
    (void)state;
    check_number(3.75, 3, "3.75");
    check_number(4.0, 3, "4");
    check_number(0.0004, 3, "0");
    check_number(-0.0004, 3, "0");
    check_number(-0.0, -1, "0");
    check_number(1234.5678, 1, "1234.6");
    check_number(100.0, 0, "100");
    check_number(0.1, -1, "0.1");
    check_number(0.1 + 0.2, -1, "0.30000000000000004");
    check_number(DBL_MAX, -1, NULL);
    check_number(-DBL_MAX, 17, NULL);
    check_number(DBL_TRUE_MIN, -1, NULL);
    uint64_t state64 = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        state64 ^= state64 << 13, state64 ^= state64 >> 7, state64 ^= state64 << 17;
        double number;
        memcpy(&number, &state64, sizeof number);
        if (isfinite(number))
            check_number(number, -1, NULL);
    }
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < ALL(bad); i++) {
        arf_text text = {0};
        arf_text_number(&text, bad[i], 3);
        assert_true(text.failed);
        arf_text_free(&text);
    }
}

static void strings_are_always_valid_json(void **state)
{
    (void)state;
    arf_text text = {0};
    arf_text_string(&text, "a\x01\"\\\xc3\xa4\xc3(\xe2\x82");
    assert_string_equal(text.data, "\"a\\u0001\\\"\\\\\xc3\xa4?(??\"");
    arf_json_free(good(text.data));
    arf_text_free(&text);
}

/* ---- locale ------------------------------------------------------------------------------- */

static void numbers_do_not_depend_on_the_locale(void **state)
{
    (void)state;
    if (!german_on())
        skip();
    char comma[16];
    snprintf(comma, sizeof comma, "%.1f", 0.5);
    assert_string_equal(comma, "0,5"); /* the locale is what this test is about */

    arf_json *json = good("{\"us\":3.75,\"m\":[1,2],\"e\":[1.5e3]}");
    arf_json_value root = arf_json_root(json), value;
    double us = 0;
    int count = 0;
    assert_int_equal(arf_json_member(&root, "us", &value, NULL), ARFUSE_OK);
    assert_int_equal(arf_json_number(&value, 0, 10, &us, NULL), ARFUSE_OK);
    assert_true(us == 3.75);
    assert_int_equal(arf_json_member(&root, "m", &value, NULL), ARFUSE_OK);
    assert_int_equal(arf_json_array(&value, &count, NULL), ARFUSE_OK);
    assert_int_equal(count, 2);
    char *printed = arf_json_print(&root);
    assert_string_equal(printed, "{\"us\":3.75,\"m\":[1,2],\"e\":[1500]}");
    free(printed);
    check_number(3.75, 3, "3.75");
    check_number(0.1, -1, "0.1");
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_json_member(&root, "us", &value, NULL), ARFUSE_OK);
    assert_int_equal(arf_json_number(&value, 0, 0.5, &us, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text, "$.us: 3.75, expected a number from 0 to 0.5");
    arf_json_free(json);

    /* The host's locale is as it was. */
    assert_string_equal(setlocale(LC_NUMERIC, NULL), "de_DE.UTF-8");
    snprintf(comma, sizeof comma, "%.1f", 0.5);
    assert_string_equal(comma, "0,5");
    german_off();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_texts_are_refused_with_their_place),
        cmocka_unit_test(good_texts_are_accepted),
        cmocka_unit_test(depth_and_size_are_bounded),
        cmocka_unit_test(reading_is_linear),
        cmocka_unit_test(integers_are_exact_or_refused),
        cmocka_unit_test(other_getters_refuse_by_name),
        cmocka_unit_test(paths_stay_readable),
        cmocka_unit_test(printing_back_is_exact),
        cmocka_unit_test(numbers_read_back_equal),
        cmocka_unit_test(strings_are_always_valid_json),
        cmocka_unit_test(numbers_do_not_depend_on_the_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
