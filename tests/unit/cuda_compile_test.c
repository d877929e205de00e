/* SPDX-License-Identifier: Apache-2.0 */
/* Run-time libraries, compiling and the cache of compiled kernels. No GPU is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef ARF_CUDA

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda/ahead.h"
#include "device/cuda/compile.h"
#include "device/cuda/driver.h"
#include "support/scratch.h"

/* clang-format off */
#define SOURCE(name, text) {name, text, sizeof text - 1}
/* clang-format on */
static const arf_source sources[] = {
    SOURCE("twice.cuh", "#define TWICE(x) (2 * (x))\n"),
    SOURCE("fill.cu",
           "#include \"twice.cuh\"\n"
           "extern \"C\" __global__ void fill(int *to) { to[threadIdx.x] = TWICE(VALUE); }\n"),
    SOURCE("wrong.cu", "this is no kernel\n"),
    {NULL, NULL, 0},
};

static char folder[SCRATCH_PATH]; /* this test's cache base */

static int make_base(void **state)
{
    (void)state;
    scratch_make(folder);
    setenv("XDG_CACHE_HOME", folder, 1);
    return 0;
}

static int remove_base(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

static void entry_of(char *path, size_t size)
{
    char cache[128];
    snprintf(cache, sizeof cache, "%s/arfuse", folder);
    DIR *stream = opendir(cache);
    assert_non_null(stream);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
        if (entry->d_name[0] != '.') {
            snprintf(path, size, "%s/%s", cache, entry->d_name);
            found++;
        }
    closedir(stream);
    assert_int_equal(found, 1);
}

static void open_compiler(arf_compiler *compiler, int capability)
{
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = arf_compiler_open(compiler, capability, 13, sources, NULL, &error);
    if (status == ARFUSE_HARDWARE && strstr(error.text, "cannot open libnvrtc") != NULL)
        skip();
    if (status != ARFUSE_OK)
        fail_msg("%s", error.text);
}

static void compile_value(arf_compiler *compiler, const char *define, arf_image *image)
{
    arf_error error = ARF_ERROR_INIT;
    if (arf_compile(compiler, "fill.cu", &define, 1, image, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
}

/* Compiles with one define and says whether the image came from the cache. */
static bool reused(arf_compiler *compiler, const char *define)
{
    int before = compiler->reused;
    arf_image image;
    compile_value(compiler, define, &image);
    assert_true(image.bytes > 0);
    arf_image_free(&image);
    return compiler->reused > before;
}

static void test_machine_code(void **state)
{
    (void)state;
    arf_compiler compiler;
    open_compiler(&compiler, 90);
    assert_true(compiler.target.binary);
    arf_image image;
    compile_value(&compiler, "-DVALUE=1", &image);
    assert_memory_equal(image.data, "\177ELF", 4);
    arf_image_free(&image);
    arf_compiler_close(&compiler);
}

static void test_newer_gpu_gets_ptx(void **state)
{
    (void)state;
    arf_compiler compiler;
    open_compiler(&compiler, 999);
    assert_false(compiler.target.binary);
    assert_true(compiler.target.architecture >= 90);
    arf_image image;
    compile_value(&compiler, "-DVALUE=1", &image);
    assert_non_null(strstr(image.data, ".target sm_"));
    arf_image_free(&image);
    arf_compiler_close(&compiler);
}

static void test_old_gpu_is_refused(void **state)
{
    (void)state;
    arf_compiler compiler;
    open_compiler(&compiler, 90);
    arf_compiler_close(&compiler);
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_compiler_open(&compiler, 80, 13, sources, NULL, &error), ARFUSE_HARDWARE);
    assert_non_null(strstr(error.text, "compute capability 8.0"));
}

static void test_complaint_names_source_and_line(void **state)
{
    (void)state;
    arf_compiler compiler;
    open_compiler(&compiler, 90);
    arf_image image;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_compile(&compiler, "wrong.cu", NULL, 0, &image, &error), ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "wrong.cu"));
    assert_non_null(strstr(error.text, "(1)"));
    assert_int_equal(compiler.compiled, 0);
    arf_error_clear(&error);
    assert_int_equal(arf_compile(&compiler, "none.cu", NULL, 0, &image, &error), ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "none.cu"));
    arf_compiler_close(&compiler);
}

static void test_second_start_compiles_nothing(void **state)
{
    (void)state;
    arf_compiler compiler;
    open_compiler(&compiler, 90);
    assert_false(reused(&compiler, "-DVALUE=1"));
    arf_compiler_close(&compiler);
    open_compiler(&compiler, 90);
    assert_true(reused(&compiler, "-DVALUE=1"));
    assert_int_equal(compiler.compiled, 0);
    arf_compiler_close(&compiler);
}

static void test_key_holds_everything_that_matters(void **state)
{
    (void)state;
    arf_compiler compiler;
    open_compiler(&compiler, 90);
    assert_false(reused(&compiler, "-DVALUE=1"));
    assert_false(reused(&compiler, "-DVALUE=2"));
    compiler.driver_major++;
    assert_false(reused(&compiler, "-DVALUE=1"));
    compiler.driver_major--;
    compiler.source_digest ^= 1;
    assert_false(reused(&compiler, "-DVALUE=1"));
    compiler.source_digest ^= 1;
    compiler.nvrtc.minor++;
    assert_false(reused(&compiler, "-DVALUE=1"));
    compiler.nvrtc.minor--;
    assert_true(reused(&compiler, "-DVALUE=1"));
    arf_compiler_close(&compiler);
    open_compiler(&compiler, 100);
    assert_false(reused(&compiler, "-DVALUE=1"));
    arf_compiler_close(&compiler);
}

static void test_modes_are_private(void **state)
{
    (void)state;
    arf_compiler compiler;
    open_compiler(&compiler, 90);
    reused(&compiler, "-DVALUE=1");
    char path[512];
    entry_of(path, sizeof path);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    snprintf(path, sizeof path, "%s/arfuse", folder);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    arf_compiler_close(&compiler);
}

static void change_byte(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
    int byte = fgetc(file);
    fseek(file, -1, SEEK_CUR);
    fputc(byte ^ 0x40, file);
    fclose(file);
}

static void test_bad_entries_are_replaced(void **state)
{
    (void)state;
    arf_compiler compiler;
    open_compiler(&compiler, 90);
    reused(&compiler, "-DVALUE=1");
    char path[512], other[512];
    entry_of(path, sizeof path);
    snprintf(other, sizeof other, "%s.other", folder);

    const long damaged[] = {0, 16, 32, 40, 60, -1};
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        change_byte(path, damaged[i]);
        assert_false(reused(&compiler, "-DVALUE=1"));
        assert_true(reused(&compiler, "-DVALUE=1"));
    }
    assert_int_equal(truncate(path, 100), 0);
    assert_false(reused(&compiler, "-DVALUE=1"));
    assert_int_equal(truncate(path, 0), 0);
    assert_false(reused(&compiler, "-DVALUE=1"));

    assert_int_equal(rename(path, other), 0); /* the same bytes behind a link */
    assert_int_equal(symlink(other, path), 0);
    assert_false(reused(&compiler, "-DVALUE=1"));
    assert_true(reused(&compiler, "-DVALUE=1"));
    struct stat status;
    assert_int_equal(lstat(path, &status), 0);
    assert_true(S_ISREG(status.st_mode));
    unlink(other);

    assert_int_equal(chmod(path, 0666), 0);
    assert_false(reused(&compiler, "-DVALUE=1"));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* must not hang */
    assert_false(reused(&compiler, "-DVALUE=1"));
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 12345), 0);
        assert_false(reused(&compiler, "-DVALUE=1"));
    }
    assert_true(reused(&compiler, "-DVALUE=1"));
    arf_compiler_close(&compiler);
}

static void keep_line(void *context, arfuse_log_level level, const char *line)
{
    (void)level;
    snprintf(context, 256, "%s", line);
}

static void test_unsafe_folder_is_not_used(void **state)
{
    (void)state;
    char path[128], line[256] = "";
    arf_log log = {keep_line, line, ARFUSE_LOG_INFO};
    arf_cache cache;
    snprintf(path, sizeof path, "%s/arfuse", folder);
    mkdir(path, 0700);
    assert_int_equal(chmod(path, 0777), 0);
    arf_cache_open(&cache, &log);
    assert_string_equal(cache.folder, "");
    assert_non_null(strstr(line, "others may write"));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/tmp", path), 0);
    arf_cache_open(&cache, &log);
    assert_string_equal(cache.folder, "");
    assert_non_null(strstr(line, "not a folder"));
    assert_int_equal(unlink(path), 0);
    if (geteuid() == 0) {
        assert_int_equal(mkdir(path, 0700), 0);
        assert_int_equal(chown(path, 12345, 12345), 0);
        arf_cache_open(&cache, &log);
        assert_string_equal(cache.folder, "");
        assert_non_null(strstr(line, "belongs to another user"));
    }
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", folder, 1);
    arf_cache_open(&cache, &log);
    assert_non_null(strstr(cache.folder, "/.cache/arfuse"));
    void *data;
    size_t bytes;
    arf_cache_key key = {{1, 2}};
    assert_false(arf_cache_read(&cache, key, &data, &bytes));
    arf_cache_write(&cache, key, "abc", 3, &log);
    assert_true(arf_cache_read(&cache, key, &data, &bytes));
    assert_int_equal(bytes, 3);
    assert_string_equal(data, "abc");
    free(data);
}

static arf_step step_of(const char *kernel, int value)
{
    arf_step step = {.kernel = kernel, .defines = 1};
    snprintf(step.define[0], sizeof step.define[0], "-DVALUE=%d", value);
    return step;
}

/* By several threads at once: all that compiles is in the cache, one that does not is its own. */
static void test_many_are_compiled_ahead(void **state)
{
    (void)state;
    enum { COUNT = 9, WRONG = 4 };
    arf_step step[COUNT];
    arf_compiler compiler;
    open_compiler(&compiler, 90);
    for (int i = 0; i < COUNT; i++)
        step[i] = step_of(i == WRONG ? "wrong" : "fill", i);
    arf_compile_ahead(&compiler, step, COUNT, 4);
    assert_int_equal(compiler.compiled, COUNT - 1);
    arf_compile_ahead(&compiler, step, COUNT, 4);
    assert_int_equal(compiler.compiled, COUNT - 1);
    for (int i = 0; i < COUNT; i++)
        if (i != WRONG)
            assert_true(reused(&compiler, step[i].define[0]));
    arf_image image;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_compile(&compiler, "wrong.cu", NULL, 0, &image, &error), ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "(1)"));

    /* Nowhere to keep them: no work for nothing. */
    compiler.cache.folder[0] = '\0';
    step[0] = step_of("fill", 77);
    arf_compile_ahead(&compiler, step, 1, 4);
    assert_int_equal(compiler.compiled, COUNT - 1);
    arf_compiler_close(&compiler);
}

static void test_threads_are_bounded(void **state)
{
    (void)state;
    assert_in_range(arf_ahead_threads(1), 1, ARF_AHEAD_THREADS);
    assert_int_equal(arf_ahead_threads(100000), 1);
    assert_int_equal(arf_ahead_threads(0), arf_ahead_threads(1));
}

/* Several writers of one key, several readers: each read gives nothing or the whole entry. */
static void test_writers_at_once(void **state)
{
    (void)state;
    enum { PROCESSES = 6, ROUNDS = 40, BYTES = 40000 };
    static char block[BYTES];
    pid_t child[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        assert_true(child[p] >= 0);
        if (child[p] != 0)
            continue;
        arf_cache cache;
        arf_cache_key key = {{7, 9}};
        int bad = 0;
        memset(block, 'a' + p, sizeof block);
        arf_cache_open(&cache, &(arf_log){0});
        for (int i = 0; i < ROUNDS; i++) {
            arf_cache_write(&cache, key, block, sizeof block, &(arf_log){0});
            char *data = NULL;
            size_t bytes = 0;
            if (!arf_cache_read(&cache, key, (void **)&data, &bytes) || bytes != BYTES ||
                memcmp(data, data + 1, BYTES - 1) != 0)
                bad = 1;
            free(data);
        }
        _exit(bad);
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        assert_int_equal(waitpid(child[p], &status, 0), child[p]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    char path[512];
    entry_of(path, sizeof path); /* and no temporary file is left */
}

static void test_absent_driver_is_explained(void **state)
{
    (void)state;
    arf_driver driver;
    arf_error error = ARF_ERROR_INIT;
    if (arf_driver_open(&driver, &error) == ARFUSE_OK) {
        arf_driver_close(&driver);
        skip();
    }
    assert_int_equal(error.status, ARFUSE_HARDWARE);
    assert_non_null(strstr(error.text, "cu"));
    if (strstr(error.text, "libcuda") != NULL)
        assert_non_null(strstr(error.text, "--device host"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_base, remove_base)
    const struct CMUnitTest tests[] = {
        TEST(test_machine_code),
        TEST(test_newer_gpu_gets_ptx),
        TEST(test_old_gpu_is_refused),
        TEST(test_complaint_names_source_and_line),
        TEST(test_second_start_compiles_nothing),
        TEST(test_key_holds_everything_that_matters),
        TEST(test_modes_are_private),
        TEST(test_bad_entries_are_replaced),
        TEST(test_unsafe_folder_is_not_used),
        TEST(test_many_are_compiled_ahead),
        TEST(test_threads_are_bounded),
        TEST(test_writers_at_once),
        TEST(test_absent_driver_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/no_cuda.h"
#endif
