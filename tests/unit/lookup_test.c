/* SPDX-License-Identifier: Apache-2.0 */
/* Which profile a key finds, and the reason where it finds none. */
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
#include "profile/write.h"
#include "rules/knobs.h"
#include "support/fixtures.h"
#include "support/scratch.h"

#define GOOD FIXTURES "profiles/good/"

static arf_profile *load(const char *name)
{
    char path[512];
    arf_profile *profile = NULL;
    arf_error error = ARF_ERROR_INIT;
    snprintf(path, sizeof path, GOOD "%s.json", name);
    if (arf_profile_load(path, &profile, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return profile;
}

/* ---- matching ---------------------------------------------------------------------------------
 */

static void each_part_of_the_key_counts(void **state)
{
    (void)state;
    arf_profile *profile = load("measured");
    arf_profile_key key = arf_profile_key_of(profile), right = key;
    char reason[ARF_REASON_TEXT];
    assert_true(arf_profile_matches(profile, &key, reason));
    assert_string_equal(reason, "");

#define DIFFERS(change, why)                                      \
    do {                                                          \
        change;                                                   \
        assert_false(arf_profile_matches(profile, &key, reason)); \
        assert_string_equal(reason, why);                         \
        assert_false(arf_profile_key_equal(&key, &right));        \
        key = right;                                              \
    } while (0)
    DIFFERS(key.set = ARF_SET_HOST, "kernel set is arfuse, arfuse-host is needed");
    DIFFERS(key.shape.tp_size = 16, "tp_size is 8, 16 is needed");
    DIFFERS(key.shape.tp_size = 4, "tp_size is 8, 4 is needed");
    DIFFERS(key.shape.hidden_size = 12288, "hidden_size is 6144, 12288 is needed");
    DIFFERS(key.shape.top_k = 8, "top_k is 10, 8 is needed");
    DIFFERS(key.shape.top_k = 0, "top_k is 10, 0 is needed");
    DIFFERS(key.shape.rms_norm = ARF_OFF, "rms_norm is on, off is needed");
    DIFFERS(key.shape.residual = ARF_OFF, "residual is on, off is needed");
    DIFFERS(key.shape.shared_expert = ARF_OFF, "shared_expert is on, off is needed");
    DIFFERS(strcpy(key.device.name, "NVIDIA B300 SXM6 AC"),
            "device name is NVIDIA B300, NVIDIA B300 SXM6 AC is needed");
    DIFFERS(key.device.capability_minor = 0, "compute_capability is 10.3, 10.0 is needed");
    DIFFERS(key.device.sm_count = 152, "sm_count is 148, 152 is needed");
    DIFFERS(key.device.link = ARF_LINK_SHARED_GPU, "link is nvlink, shared-gpu is needed");
    DIFFERS(key.device.nodes = 2, "nodes is 1, 2 is needed");
    DIFFERS(key.device.ranks_per_gpu = 2, "ranks_per_gpu is 1, 2 is needed");

    /* Spelling does not tell devices apart. */
    const char *const alike[] = {"NVIDIA-B300", "NVIDIA B300 ", "nvidia  b300"};
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        strcpy(key.device.name, alike[i]);
        assert_true(arf_profile_matches(profile, &key, reason));
        assert_true(arf_profile_key_equal(&key, &right));
    }
    arf_profile_free(profile);
}

static void tuning_versions_count_where_they_are_used(void **state)
{
    (void)state;
    arf_profile *profile = load("dense"); /* uses ll and bt */
    arf_profile_key key = arf_profile_key_of(profile);
    char reason[ARF_REASON_TEXT];
    profile->version[ARF_HT] = 7;
    assert_true(arf_profile_matches(profile, &key, reason));
    profile->version[ARF_BT] = 7;
    assert_false(arf_profile_matches(profile, &key, reason));
    assert_string_equal(reason, "tuning version of bt is 7, the kernels here have 2");
    arf_profile_free(profile);
}

static void published_profiles_match_what_they_contain(void **state)
{
    (void)state;
    arf_profile *profile = load("published");
    arf_profile_key key = arf_profile_key_of(profile);
    char reason[ARF_REASON_TEXT];
    key.shape.rms_norm = ARF_OFF; /* the profile says either */
    assert_false(arf_profile_matches(profile, &key, reason));
    assert_string_equal(reason, "the tuning of allreduce route 0 (ll) is not known");
    profile->routes[0].route[0] = profile->routes[0].route[1];
    assert_true(arf_profile_matches(profile, &key, reason));
    arf_profile_free(profile);
}

static void keys_are_said_in_words(void **state)
{
    (void)state;
    arf_profile *profile = load("switches_off");
    arf_profile_key key = arf_profile_key_of(profile);
    char text[ARF_REASON_TEXT];
    arf_profile_key_text(&key, text, sizeof text);
    assert_string_equal(text, "tp_size 4, hidden_size 6144, top_k 8, bf16, no rms_norm, no "
                              "residual, no shared_expert on NVIDIA H200 (9.0, 132 SMs, "
                              "shared-gpu, 1 node, 4 ranks a GPU)");
    arf_profile_free(profile);
}

/* ---- folders ----------------------------------------------------------------------------------
 */

static void folders_come_in_order(void **state)
{
    (void)state;
    char folders[512], expected[512];
    arf_error error = ARF_ERROR_INIT;
    setenv("ARFUSE_PROFILE_PATH", "/a:/b", 1);
    setenv("XDG_CONFIG_HOME", "/c", 1);
    assert_int_equal(arf_profile_folders(NULL, folders, sizeof folders, &error), ARFUSE_OK);
    snprintf(expected, sizeof expected, "/a:/b:/c/arfuse/profiles:%s/arfuse/profiles", ARF_DATADIR);
    assert_string_equal(folders, expected);
    setenv("XDG_CONFIG_HOME", "relative", 1); /* to be ignored */
    setenv("HOME", "/home/u", 1);
    unsetenv("ARFUSE_PROFILE_PATH");
    assert_int_equal(arf_profile_folders(NULL, folders, sizeof folders, &error), ARFUSE_OK);
    snprintf(expected, sizeof expected, "/home/u/.config/arfuse/profiles:%s/arfuse/profiles",
             ARF_DATADIR);
    assert_string_equal(folders, expected);
    assert_int_equal(arf_profile_folders("/only", folders, sizeof folders, &error), ARFUSE_OK);
    assert_string_equal(folders, "/only");
    assert_int_equal(arf_profile_folders("/a::/b:", folders, sizeof folders, &error), ARFUSE_OK);
    assert_string_equal(folders, "/a:/b");
    assert_int_equal(arf_profile_folders("::", folders, sizeof folders, &error), ARFUSE_OK);
    assert_string_equal(folders, "");
    assert_int_equal(arf_profile_folders("/longer", folders, 5, &error), ARFUSE_USAGE);
}

/* ---- searching --------------------------------------------------------------------------------
 */

static char root[SCRATCH_PATH], second[SCRATCH_PATH + 16], warnings[4096];
static int warned;

static void hear(void *context, arfuse_log_level level, const char *line)
{
    (void)context;
    if (level != ARFUSE_LOG_WARNING)
        return;
    warned++;
    size_t used = strlen(warnings);
    snprintf(warnings + used, sizeof warnings - used, "%s\n", line);
}

static int make(void **state)
{
    (void)state;
    scratch_make(root);
    snprintf(second, sizeof second, "%s/second", root);
    warned = 0;
    warnings[0] = '\0';
    return 0;
}

static int clean(void **state)
{
    (void)state;
    scratch_remove(root);
    return 0;
}

static void store(const arf_profile *profile, const char *folder)
{
    char path[512];
    arf_error error = ARF_ERROR_INIT;
    if (arf_profile_store(profile, folder, path, sizeof path, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
}

/* A profile like the dense one, for another shape. */
static void store_shape(const char *folder, int tp_size, int hidden_size)
{
    arf_profile *profile = load("dense");
    profile->shape.tp_size = tp_size;
    profile->shape.hidden_size = hidden_size;
    store(profile, folder);
    arf_profile_free(profile);
}

static arf_found find(const arf_profile_key *key, const char *folders, arf_profile **profile,
                      char path[512])
{
    arf_found found;
    arf_error error = ARF_ERROR_INIT;
    const arf_log log = {hear, NULL, ARFUSE_LOG_DEBUG};
    if (arf_profile_find(key, folders, &log, &found, profile, path, 512, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return found;
}

static arf_profile_key dense_key(int tp_size, int hidden_size)
{
    arf_profile *profile = load("dense");
    arf_profile_key key = arf_profile_key_of(profile);
    arf_profile_free(profile);
    key.shape.tp_size = tp_size;
    key.shape.hidden_size = hidden_size;
    return key;
}

static void the_exact_one_is_found_whatever_its_name(void **state)
{
    (void)state;
    arf_profile *profile = NULL;
    char path[512], wanted[512];
    arf_profile_key key = dense_key(8, 6144);
    assert_int_equal(find(&key, root, &profile, path), ARF_FOUND_NONE);
    assert_null(profile);
    store_shape(root, 8, 7168);
    snprintf(wanted, sizeof wanted, "%s/my favourite.json", root);
    size_t bytes;
    char *text = fixture_text(GOOD "dense.json", &bytes);
    assert_int_equal(arf_write_file(wanted, text, bytes, NULL), ARFUSE_OK);
    free(text);
    assert_int_equal(find(&key, root, &profile, path), ARF_FOUND_EXACT);
    assert_string_equal(path, wanted);
    assert_int_equal(profile->shape.hidden_size, 6144);
    arf_profile_free(profile);
    assert_int_equal(warned, 0);
}

static void the_first_folder_wins(void **state)
{
    (void)state;
    arf_profile *profile = NULL;
    char path[512], folders[1024];
    arf_profile_key key = dense_key(8, 6144);
    store_shape(root, 8, 6144);
    store_shape(second, 8, 6144);
    snprintf(folders, sizeof folders, "/nonexistent:%s:%s", second, root);
    assert_int_equal(find(&key, folders, &profile, path), ARF_FOUND_EXACT);
    assert_true(strncmp(path, second, strlen(second)) == 0);
    arf_profile_free(profile);
    assert_int_equal(warned, 0); /* that is what several folders are for */
}

static void copy_dense(const char *path)
{
    size_t bytes;
    char *text = fixture_text(GOOD "dense.json", &bytes);
    assert_int_equal(arf_write_file(path, text, bytes, NULL), ARFUSE_OK);
    free(text);
}

static void several_of_one_key_in_a_folder_are_one_warning(void **state)
{
    (void)state;
    static const char *const names[] = {"c", "a", "b"};
    arf_profile *profile = NULL;
    char path[512], wanted[1200];
    arf_profile_key key = dense_key(8, 6144);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s.json", root, names[i]);
        copy_dense(path);
    }
    assert_int_equal(find(&key, root, &profile, path), ARF_FOUND_EXACT);
    arf_profile_free(profile);
    snprintf(wanted, sizeof wanted,
             "%s/a.json and %s/b.json are profiles of the same key; the first is used", root, root);
    assert_non_null(strstr(warnings, wanted));
    assert_int_equal(warned, 1);
    assert_string_equal(path + strlen(root), "/a.json");
}

/* Whoever may run the tests: a file in place of a folder, a link to itself. */
static void what_cannot_be_searched_is_a_warning_each(void **state)
{
    (void)state;
    arf_profile *profile = NULL;
    char path[512], file[SCRATCH_PATH + 32], loop[SCRATCH_PATH + 32], folders[2048], wanted[1200];
    arf_profile_key key = dense_key(8, 6144);
    snprintf(file, sizeof file, "%s/dense.json", root);
    snprintf(loop, sizeof loop, "%s/loop", root);
    copy_dense(file);
    assert_int_equal(symlink("loop", loop), 0);
    snprintf(folders, sizeof folders, "%s:%s/below:%s/absent:%s", file, file, root, root);
    assert_int_equal(find(&key, folders, &profile, path), ARF_FOUND_EXACT);
    arf_profile_free(profile);
    snprintf(wanted, sizeof wanted,
             "%s: cannot search for profiles: Not a directory; skipped\n"
             "%s: cannot search for profiles: Too many levels of symbolic links; skipped\n",
             file, loop);
    assert_string_equal(warnings, wanted);
}

static void folders_further_down_are_not_searched(void **state)
{
    (void)state;
    arf_profile *profile = NULL;
    char path[512];
    arf_profile_key key = dense_key(8, 6144);
    snprintf(path, sizeof path, "%s/one/two", root);
    assert_int_equal(arf_make_folder(path, NULL), ARFUSE_OK);
    snprintf(path, sizeof path, "%s/one/two/x.json", root);
    copy_dense(path);
    assert_int_equal(find(&key, root, &profile, path), ARF_FOUND_NONE);
    key.shape.hidden_size = 7168; /* nor for the nearest */
    assert_int_equal(find(&key, root, &profile, path), ARF_FOUND_NONE);
    assert_null(profile);
}

static void the_nearest_shape_of_the_link_is_found(void **state)
{
    (void)state;
    arf_profile *profile = NULL;
    char path[512];
    store_shape(root, 8, 6144);
    store_shape(root, 8, 8192);
    store_shape(root, 16, 7168);
    arf_profile_key key = dense_key(8, 7168);
    assert_int_equal(find(&key, root, &profile, path), ARF_FOUND_NEAREST);
    assert_int_equal(profile->shape.hidden_size, 8192); /* log2: 0.19 against 0.22 to 6144 */
    assert_int_equal(profile->shape.tp_size, 8);
    arf_profile_free(profile);
    /* Never over another link, nor for another kernel set. */
    key.device.link = ARF_LINK_SHARED_GPU;
    key.device.ranks_per_gpu = 8;
    assert_int_equal(find(&key, root, &profile, path), ARF_FOUND_NONE);
    key = dense_key(8, 6144);
    key.set = ARF_SET_HOST;
    assert_int_equal(find(&key, root, &profile, path), ARF_FOUND_NONE);
    /* A profile without finalize routes is no source for a shape that has them. */
    key = dense_key(8, 6144);
    key.shape.top_k = 10;
    assert_int_equal(find(&key, root, &profile, path), ARF_FOUND_NONE);
    assert_null(profile);
    assert_string_equal(path, "");
    assert_int_equal(warned, 0);
}

static void corrupt_files_are_one_warning_each(void **state)
{
    (void)state;
    static const char *const bad[] = {"empty", "cut_in_half", "bad_utf8", "byte_order_mark"};
    arf_profile *profile = NULL;
    char path[512];
    store_shape(root, 8, 6144);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char from[256], to[512];
        size_t bytes;
        snprintf(from, sizeof from, FIXTURES "profiles/bad/%s.json", bad[i]);
        snprintf(to, sizeof to, "%s/a_%s.json", root, bad[i]);
        char *text = fixture_text(from, &bytes);
        assert_int_equal(arf_write_file(to, text, bytes, NULL), ARFUSE_OK);
        free(text);
    }
    snprintf(path, sizeof path, "%s/folder.json", root);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/arfuse-profile-v1.schema.json", root);
    assert_int_equal(arf_write_file(path, "{}", 2, NULL), ARFUSE_OK); /* no profile at all */

    arf_profile_key key = dense_key(8, 6144);
    assert_int_equal(find(&key, root, &profile, path), ARF_FOUND_EXACT);
    arf_profile_free(profile);
    assert_int_equal(warned, 5);
    assert_non_null(strstr(warnings, "folder.json: is a folder, expected a regular file; skipped"));
    assert_non_null(strstr(warnings, "a_empty.json: line 1, column 1: the text is empty"));
    assert_non_null(strstr(warnings, "; skipped\n"));
}

/* Stores the dense profile with another version of a protocol's tuning. */
static void store_version(const char *path, const char *now, const char *older)
{
    size_t bytes;
    char *text = fixture_text(GOOD "dense.json", &bytes);
    char *at = strstr(text, now);
    assert_non_null(at);
    assert_int_equal(strlen(now), strlen(older));
    memcpy(at, older, strlen(older));
    assert_int_equal(arf_write_file(path, text, bytes, NULL), ARFUSE_OK);
    free(text);
}

static void one_of_another_version_is_passed_over_with_the_reason(void **state)
{
    (void)state;
    arf_profile *profile = NULL;
    char path[512], file[SCRATCH_PATH + 32], wanted[1200];
    arf_profile_key key = dense_key(8, 6144);
    snprintf(file, sizeof file, "%s/old.json", root);
    store_version(file, "\"bt\": 2", "\"bt\": 1");
    assert_int_equal(find(&key, root, &profile, path), ARF_FOUND_NONE);
    snprintf(wanted, sizeof wanted,
             "%s: $.kernels.bt: 1, expected 2 (the kernels here have version 2 of bt's tuning; "
             "measure again with arfuse-tune); skipped\n",
             file);
    assert_string_equal(warnings, wanted);
    store_version(file, "\"separate\": 2", "\"separate\": 1"); /* which no route of it uses */
    assert_int_equal(find(&key, root, &profile, path), ARF_FOUND_EXACT);
    arf_profile_free(profile);
    assert_int_equal(warned, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_of_the_key_counts),
        cmocka_unit_test(tuning_versions_count_where_they_are_used),
        cmocka_unit_test(published_profiles_match_what_they_contain),
        cmocka_unit_test(keys_are_said_in_words),
        cmocka_unit_test(folders_come_in_order),
        cmocka_unit_test_setup_teardown(the_exact_one_is_found_whatever_its_name, make, clean),
        cmocka_unit_test_setup_teardown(the_first_folder_wins, make, clean),
        cmocka_unit_test_setup_teardown(several_of_one_key_in_a_folder_are_one_warning, make,
                                        clean),
        cmocka_unit_test_setup_teardown(what_cannot_be_searched_is_a_warning_each, make, clean),
        cmocka_unit_test_setup_teardown(folders_further_down_are_not_searched, make, clean),
        cmocka_unit_test_setup_teardown(the_nearest_shape_of_the_link_is_found, make, clean),
        cmocka_unit_test_setup_teardown(corrupt_files_are_one_warning_each, make, clean),
        cmocka_unit_test_setup_teardown(one_of_another_version_is_passed_over_with_the_reason, make,
                                        clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
