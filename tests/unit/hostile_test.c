/* SPDX-License-Identifier: Apache-2.0 */
/* Folders that somebody else could fill: searches end, links are not written through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "profile/lookup.h"
#include "profile/read.h"
#include "profile/samples.h"
#include "profile/write.h"
#include "rules/knobs.h"
#include "support/fixtures.h"
#include "support/scratch.h"

#define GOOD FIXTURES "profiles/good/measured.json"

static char folder[SCRATCH_PATH];

static const char *at(const char *name)
{
    static char path[8][SCRATCH_PATH + 64];
    static int next;
    char *made = path[next = (next + 1) % 8];
    snprintf(made, sizeof path[0], "%s/%s", folder, name);
    return made;
}

static void put(const char *name, const char *text)
{
    arf_error error = ARF_ERROR_INIT;
    if (arf_write_file(at(name), text, strlen(text), &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
}

static void is(const char *name, const char *text)
{
    size_t bytes;
    char *found = fixture_text(at(name), &bytes);
    assert_string_equal(found, text);
    free(found);
}

static int make_scratch(void **state)
{
    (void)state;
    scratch_make(folder);
    return 0;
}
static int remove_scratch(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

/* ---- searching ---------------------------------------------------------------------------------
 */

static int warnings;
static void count(void *context, arfuse_log_level level, const char *text)
{
    (void)context, (void)text;
    warnings += level <= ARFUSE_LOG_WARNING;
}

static void a_search_ends_whatever_lies_in_the_folder(void **state)
{
    (void)state;
    arf_error error = ARF_ERROR_INIT;
    arf_profile *good = NULL, *found_profile = NULL;
    assert_int_equal(arf_profile_load(GOOD, &good, &error), ARFUSE_OK);
    arf_profile_key key = arf_profile_key_of(good);

    assert_int_equal(mkfifo(at("pipe.json"), 0600), 0); /* an open that waited would never end */
    assert_int_equal(symlink("/dev/zero", at("zero.json")), 0); /* nor would a read */
    assert_int_equal(symlink("loop.json", at("loop.json")), 0);
    assert_int_equal(symlink("/nowhere/at/all", at("dangling.json")), 0);
    assert_int_equal(symlink(".", at("self")), 0);
    assert_int_equal(mkdir(at("folder.json"), 0700), 0);
    put("broken.json", "{\"format\": \"arfuse-profile\"");
    put("empty.json", "");
    put("\033[2J\n%s%n.json", "not a profile");
    assert_int_equal(truncate(at("empty.json"), (off_t)5 << 30), 0); /* sparse, 5 GiB */

    arf_found found;
    char path[4096];
    arf_log log = {count, NULL, ARFUSE_LOG_WARNING};
    assert_int_equal(
        arf_profile_find(&key, folder, &log, &found, &found_profile, path, sizeof path, &error),
        ARFUSE_OK);
    assert_int_equal(found, ARF_FOUND_NONE);
    assert_null(found_profile);
    /* The pipe, zero, the loop, the folder, broken, empty, the odd name: here, and once more each
     * through `self`. */
    assert_int_equal(warnings, 14);

    /* Behind all of it the right one is still found; rubbish in the list of folders is no matter.
     */
    char list[3 * SCRATCH_PATH];
    size_t bytes;
    char *text = fixture_text(GOOD, &bytes);
    put("zz.json", text);
    free(text);
    snprintf(list, sizeof list, "::/nowhere:\xff\xfe:%s/pipe.json:%s:", folder, folder);
    assert_int_equal(
        arf_profile_find(&key, list, &log, &found, &found_profile, path, sizeof path, &error),
        ARFUSE_OK);
    assert_int_equal(found, ARF_FOUND_EXACT);
    assert_string_equal(path, at("zz.json"));
    arf_profile_free(found_profile);
    arf_profile_free(good);
}

/* ---- writing -----------------------------------------------------------------------------------
 */

static arf_samples_header header_of(const arf_profile *profile)
{
    arf_samples_header header = {.set = profile->set, .shape = profile->shape};
    header.device = profile->device;
    memcpy(header.version, profile->version, sizeof header.version);
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        header.version[p] = arf_protocol_version(header.set, (arf_protocol)p);
    return header;
}

static void links_are_not_written_through(void **state)
{
    (void)state;
    arf_error error = ARF_ERROR_INIT;
    arf_profile *profile = NULL;
    arf_samples_writer *writer = NULL;
    assert_int_equal(arf_profile_load(GOOD, &profile, &error), ARFUSE_OK);
    arf_samples_header header = header_of(profile);
    put("precious", "mine");

    /* Samples empty their file: a link is refused, and what it points to stands. */
    assert_int_equal(symlink("precious", at("a.samples.jsonl")), 0);
    for (int resume = 0; resume < 2; resume++) {
        assert_int_equal(arf_samples_open(at("a.samples.jsonl"), &header, resume, &writer, &error),
                         ARFUSE_FAILURE);
        assert_non_null(strstr(error.text, "is a link"));
        arf_error_clear(&error);
    }
    assert_int_equal(mkfifo(at("b.samples.jsonl"), 0600), 0);
    assert_int_equal(arf_samples_open(at("b.samples.jsonl"), &header, false, &writer, &error),
                     ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "not a regular file"));
    arf_error_clear(&error);
    is("precious", "mine");

    /* A profile is renamed into place: the link goes, what it points to stands. One that is no
     * profile is refused before. */
    assert_int_equal(symlink("precious", at("p.json")), 0);
    assert_int_equal(arf_profile_save(profile, at("p.json"), &error), ARFUSE_PROFILE);
    arf_error_clear(&error);
    is("precious", "mine");
    size_t bytes;
    char *text = fixture_text(GOOD, &bytes);
    put("other.json", text);
    assert_int_equal(symlink("other.json", at("q.json")), 0);
    profile->evidence.noise = 0.5;
    assert_int_equal(arf_profile_save(profile, at("q.json"), &error), ARFUSE_OK);
    is("other.json", text);
    struct stat about;
    assert_int_equal(lstat(at("q.json"), &about), 0);
    assert_true(S_ISREG(about.st_mode));
    free(text);
    arf_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_search_ends_whatever_lies_in_the_folder, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(links_are_not_written_through, make_scratch,
                                        remove_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
