/* SPDX-License-Identifier: Apache-2.0 */
/* Files whole or not at all, seen from outside: contents, modes, what is left in the folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "support/scratch.h"

static char folder[SCRATCH_PATH];
static char path[2 * SCRATCH_PATH];

static int make(void **state)
{
    (void)state;
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

static int entries(void)
{
    int count = 0;
    DIR *open_folder = opendir(folder);
    assert_non_null(open_folder);
    for (struct dirent *entry; (entry = readdir(open_folder)) != NULL;)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(open_folder);
    return count;
}

static void expect_text(const char *expected)
{
    char *text = NULL;
    size_t bytes = 0;
    arf_error error = ARF_ERROR_INIT;
    if (arf_read_file(path, 1 << 20, &text, &bytes, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    assert_int_equal(bytes, strlen(expected));
    assert_string_equal(text, expected);
    free(text);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_write_file(path, "one\n", 4, &error), ARFUSE_OK);
    expect_text("one\n");
    assert_int_equal(arf_write_file(path, "second", 6, &error), ARFUSE_OK);
    expect_text("second");
    assert_int_equal(arf_write_file(path, "", 0, &error), ARFUSE_OK);
    expect_text("");
    assert_int_equal(entries(), 1);
}

static void the_umask_decides_the_mode(void **state)
{
    (void)state;
    struct stat about;
    mode_t before = umask(027);
    assert_int_equal(arf_write_file(path, "x", 1, NULL), ARFUSE_OK);
    umask(before);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
}

static void reading_is_bounded_and_plain(void **state)
{
    (void)state;
    char *text = (char *)"untouched";
    size_t bytes = 77;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_write_file(path, "12345", 5, &error), ARFUSE_OK);
    assert_int_equal(arf_read_file(path, 4, &text, &bytes, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "/file: 5 bytes, expected at most 4"));
    arf_error_clear(&error);
    assert_int_equal(arf_read_file(folder, 4096, &text, &bytes, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "is a folder, expected a regular file"));
    arf_error_clear(&error);
    assert_int_equal(arf_read_file("/dev/zero", 4096, &text, &bytes, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "is not a regular file"));
    char pipe_path[300];
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    arf_error_clear(&error); /* a pipe without a writer must not hang us */
    assert_int_equal(arf_read_file(pipe_path, 4096, &text, &bytes, &error), ARFUSE_PROFILE);
    arf_error_clear(&error);
    assert_int_equal(arf_read_file("/nonexistent/x", 10, &text, &bytes, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "/nonexistent/x: cannot open: No such file"));
    assert_string_equal(text, "untouched");
    assert_int_equal(bytes, 77);
    assert_int_equal(arf_read_file(path, 5, &text, &bytes, NULL), ARFUSE_OK);
    assert_int_equal(text[bytes], '\0');
    free(text);
}

static void failures_leave_everything_as_it_was(void **state)
{
    (void)state;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_write_file(path, "old", 3, &error), ARFUSE_OK);

    /* No room: the file system stops us in the middle of the write. */
    struct rlimit before, small = {1000, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    char *large = calloc(1, 100000);
    arfuse_status status = arf_write_file(path, large, 100000, &error);
    setrlimit(RLIMIT_FSIZE, &before);
    free(large);
    assert_int_equal(status, ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "cannot write: File too large"));
    expect_text("old");
    assert_int_equal(entries(), 1);

    /* The target is a folder. */
    char inner[300];
    snprintf(inner, sizeof inner, "%s/inner", folder);
    assert_int_equal(mkdir(inner, 0700), 0);
    arf_error_clear(&error);
    assert_int_equal(arf_write_file(inner, "x", 1, &error), ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "inner: cannot replace"));
    assert_int_equal(entries(), 2);

    /* The folder is not there, or is a file. */
    char below[320];
    snprintf(below, sizeof below, "%s/file/x", folder);
    arf_error_clear(&error);
    assert_int_equal(arf_write_file(below, "x", 1, &error), ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "file/x: cannot create a file beside it"));
    expect_text("old");
}

static void writers_do_not_disturb_each_other(void **state)
{
    (void)state;
    enum { WRITERS = 4, TIMES = 25, BYTES = 5000 };
    for (int writer = 0; writer < WRITERS; writer++)
        if (fork() == 0) {
            char text[BYTES];
            memset(text, 'a' + writer, sizeof text);
            for (int i = 0; i < TIMES; i++)
                if (arf_write_file(path, text, sizeof text, NULL) != ARFUSE_OK)
                    _exit(1);
            _exit(0);
        }
    bool mixed = false;
    for (int ended = 0; ended < WRITERS;) {
        int status;
        if (waitpid(-1, &status, WNOHANG) > 0) {
            assert_int_equal(status, 0);
            ended++;
        }
        char *text;
        size_t bytes;
        if (arf_read_file(path, BYTES, &text, &bytes, NULL) != ARFUSE_OK)
            continue; /* not yet there */
        mixed |= bytes != BYTES;
        for (size_t i = 1; i < bytes; i++)
            mixed |= text[i] != text[0];
        free(text);
    }
    assert_false(mixed);
    assert_int_equal(entries(), 1);
}

static void lines_are_appended_whole(void **state)
{
    (void)state;
    arf_error error = ARF_ERROR_INIT;
    int file = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(arf_append_line(file, path, "first", &error), ARFUSE_OK);
    assert_int_equal(arf_append_line(file, path, "", &error), ARFUSE_OK);
    assert_int_equal(arf_append_line(file, path, "third", &error), ARFUSE_OK);
    expect_text("first\n\nthird\n");
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 20; /* in the middle of the next line */
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    arfuse_status status = arf_append_line(file, path, "a fourth line that is longer", &error);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "cannot append"));
    expect_text("first\n\nthird\n");
    close(file);
}

static void judge_descriptor(int signal)
{
    (void)signal;
    _exit(fcntl(STDERR_FILENO, F_GETFD) == -1 ? 0 : 1);
}

/* Where a process has closed its stderr, what it prints there must not come into a file of ours.
 * The signal of a file too large comes while the file is being written. */
static void a_file_takes_no_closed_stream(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit little = {10, 10};
        signal(SIGXFSZ, judge_descriptor);
        close(STDERR_FILENO);
        if (setrlimit(RLIMIT_FSIZE, &little) == 0)
            arf_write_file(path, "more than ten bytes", 19, NULL);
        _exit(2); /* no signal came */
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 0);
}

static void folders_are_made_with_their_parents(void **state)
{
    (void)state;
    char deep[300];
    arf_error error = ARF_ERROR_INIT;
    snprintf(deep, sizeof deep, "%s/a//b/c/", folder);
    assert_int_equal(arf_make_folder(deep, &error), ARFUSE_OK);
    assert_int_equal(arf_make_folder(deep, &error), ARFUSE_OK);
    struct stat about;
    assert_int_equal(stat(deep, &about), 0);
    assert_int_equal(arf_write_file(path, "x", 1, NULL), ARFUSE_OK);
    snprintf(deep, sizeof deep, "%s/file/a", folder);
    assert_int_equal(arf_make_folder(deep, &error), ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "file: is a file, expected a folder"));
}

static void paths_are_joined_or_refused(void **state)
{
    (void)state;
    char joined[12];
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_join_path(joined, sizeof joined, "ab", "cd", NULL), ARFUSE_OK);
    assert_string_equal(joined, "ab/cd");
    assert_int_equal(arf_join_path(joined, sizeof joined, "/", "cd", NULL), ARFUSE_OK);
    assert_string_equal(joined, "/cd");
    assert_int_equal(arf_join_path(joined, sizeof joined, "", "cd", NULL), ARFUSE_OK);
    assert_string_equal(joined, "cd");
    assert_int_equal(arf_join_path(joined, sizeof joined, "abcdef", "ghijk", &error),
                     ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "the path is too long"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read, make, clean),
        cmocka_unit_test_setup_teardown(the_umask_decides_the_mode, make, clean),
        cmocka_unit_test_setup_teardown(reading_is_bounded_and_plain, make, clean),
        cmocka_unit_test_setup_teardown(failures_leave_everything_as_it_was, make, clean),
        cmocka_unit_test_setup_teardown(writers_do_not_disturb_each_other, make, clean),
        cmocka_unit_test_setup_teardown(a_file_takes_no_closed_stream, make, clean),
        cmocka_unit_test_setup_teardown(lines_are_appended_whole, make, clean),
        cmocka_unit_test_setup_teardown(folders_are_made_with_their_parents, make, clean),
        cmocka_unit_test(paths_are_joined_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
