/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jansson as an oracle: whatever our strict layer accepts, a strict parser of other people's making
 * accepts too, and reads the same numbers and strings. Texts are good profiles with random edits.
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

#include "base/json.h"
#include "support/fixtures.h"
#include "support/random.h"

/* Pieces that sit at the edges of the grammar. */
static const char *const pieces[] = {
    "0",    "-",        "1e400",    "01",          "1.",       ".5",
    "e5",   "1E+2",     "\"",       "\\",          "\\u00",    "\\ud83d",
    "\x01", "{",        "}",        "[",           "]",        ",",
    ":",    " ",        "\n",       "\t",          "null",     "nul",
    "/",    "\\u0000",  "\xc3\xa4", "\xc3",        "\xf0\x9f", "true",
    "-0",   "NaN",      "+1",       "\v",          "'",        "99999999999999999999",
    "0x1",  "\"a\":1,", "[[[[",     "\xef\xbb\xbf"};

/* One to three edits: a piece put in, bytes taken out, a byte changed, a part repeated. */
static size_t edit(char *text, size_t bytes, size_t room)
{
    for (uint64_t edits = 1 + random_below(3); edits > 0; edits--) {
        size_t at = (size_t)random_below(bytes + 1), rest = bytes - at;
        const char *piece = pieces[random_below(sizeof pieces / sizeof *pieces)];
        size_t size = strlen(piece), cut = (size_t)random_below(8);
        switch (random_below(4)) {
        case 0:
            if (bytes + size < room) {
                memmove(text + at + size, text + at, rest);
                memcpy(text + at, piece, size);
                bytes += size;
            }
            break;
        case 1:
            cut = cut < rest ? cut : rest;
            memmove(text + at, text + at + cut, rest - cut);
            bytes -= cut;
            break;
        case 2:
            if (rest > 0)
                text[at] = (char)random_below(256);
            break;
        default:
            if (rest > size)
                memcpy(text + at, piece, size);
        }
    }
    return bytes;
}

static void compare(const arf_json_value *ours, const json_t *theirs)
{
    if (json_is_object(theirs)) {
        arf_json_value child = {0};
        const char *name;
        size_t count = 0;
        while (arf_json_next(ours, &child, &name)) {
            assert_non_null(json_object_get(theirs, name));
            compare(&child, json_object_get(theirs, name));
            count++;
        }
        assert_int_equal(count, json_object_size(theirs));
    } else if (json_is_array(theirs)) {
        arf_json_value child = {0};
        size_t count = 0;
        while (arf_json_next(ours, &child, NULL))
            compare(&child, json_array_get(theirs, count++));
        assert_int_equal(count, json_array_size(theirs));
    } else if (json_is_number(theirs)) {
        double number = 0;
        assert_int_equal(arf_json_number(ours, -1e308 * 10, 1e308 * 10, &number, NULL), ARFUSE_OK);
        assert_true(number == json_number_value(theirs));
    } else if (json_is_string(theirs)) {
        static char text[8192];
        assert_int_equal(arf_json_string(ours, text, sizeof text, NULL), ARFUSE_OK);
        assert_string_equal(text, json_string_value(theirs));
    } else if (json_is_boolean(theirs)) {
        bool truth = false;
        assert_int_equal(arf_json_boolean(ours, &truth, NULL), ARFUSE_OK);
        assert_int_equal(truth, json_is_true(theirs));
    } else {
        assert_true(arf_json_is_null(ours));
    }
}

static int accepted, refused;

static void try(const char *text, size_t bytes)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
    arf_json *json = NULL;
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = arf_json_parse(text, bytes, &json, &error);
    /* Never "out of memory": that is what a text would look like that only cJSON refuses. */
    if (status != ARFUSE_OK && status != ARFUSE_PROFILE)
        fail_msg("status %d: %s: %.*s", status, error.text, (int)bytes, text);
    if (status != ARFUSE_OK) {
        refused++;
        return;
    }
    json_error_t oracle;
    json_t *theirs = json_loadb(text, bytes, flags, &oracle);
    if (theirs == NULL)
        fail_msg("accepted, but jansson says: %s: %.*s", oracle.text, (int)bytes, text);
    arf_json_value root = arf_json_root(json);
    compare(&root, theirs);
    accepted++;
    json_decref(theirs);
    arf_json_free(json);
}

static void edited_profiles_are_no_more_than_json(void **state)
{
    (void)state;
    static const char *const files[] = {"host", "published", "retargeted_unknown_evidence"};
    int times = getenv("ARFUSE_TEST_LONG") != NULL ? 300000 : 15000;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[128];
        size_t bytes;
        snprintf(path, sizeof path, FIXTURES "profiles/good/%s.json", files[i]);
        char *good = fixture_text(path, &bytes);
        try(good, bytes);
        for (int seed = 1; seed <= times; seed++) {
            random_seed((uint64_t)seed);
            size_t room = bytes + 256;
            char *text = malloc(room);
            memcpy(text, good, bytes);
            size_t edited = edit(text, bytes, room);
            char *exact = malloc(edited > 0 ? edited : 1); /* the sanitizer sees a read behind it */
            memcpy(exact, text, edited);
            try(exact, edited);
            free(exact);
            free(text);
        }
        free(good);
    }
    /* Both kinds must have come up, or the test shows nothing. */
    assert_true(accepted > times / 10);
    assert_true(refused > times / 10);
}

/* What jansson refuses of the bad fixtures we refuse for the same reason; see bad.tsv. */
static int seen;
static void never_stricter_than_us(const char *path)
{
    size_t bytes;
    char *text = fixture_text(path, &bytes);
    arf_json *json = NULL;
    json_error_t oracle;
    json_t *theirs = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &oracle);
    arfuse_status status = arf_json_parse(text, bytes, &json, NULL);
    if (theirs == NULL && status == ARFUSE_OK)
        fail_msg("%s: accepted, but jansson says: %s", path, oracle.text);
    seen += theirs == NULL;
    json_decref(theirs);
    arf_json_free(json);
    free(text);
}

static void bad_fixtures_too(void **state)
{
    (void)state;
    assert_true(fixture_each(FIXTURES "profiles/bad", ".json", never_stricter_than_us) >= 60);
    assert_true(seen >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(edited_profiles_are_no_more_than_json),
                                       cmocka_unit_test(bad_fixtures_too)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
