/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launch path down to the seam: it allocates nothing, takes no lock, reads no environment,
 * makes no system call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/recorded_case.h"
#include "support/recording_device.h"

static long forbidden; /* calls of what follows, since the last reset */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define INTERPOSED 1
/* These stand in front of the C library's, for everything linked into this program. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void __libc_free(void *memory);

void *malloc(size_t bytes)
{
    forbidden++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    forbidden++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    forbidden++;
    return __libc_realloc(memory, bytes);
}

void free(void *memory)
{
    forbidden++;
    __libc_free(memory);
}

char *getenv(const char *name)
{
    extern char **environ;
    const size_t length = strlen(name);
    forbidden++;
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

/* No test of this program has two threads, so that doing nothing locks well enough. */
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    (void)mutex;
    forbidden++;
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    (void)mutex;
    forbidden++;
    return 0;
}
#else
#define INTERPOSED 0
#endif

/* Everything an engine calls between two steps; false when a call failed. */
static bool work(arfuse_workspace *workspace)
{
    arfuse_call call = ARFUSE_CALL_INIT;
    const arfuse_operands operands = recorded_operands();
    void *sum[] = {recorded_tensor[0]};
    arfuse_error error = ARFUSE_ERROR_INIT;
    bool fine = true;
    for (int64_t tokens = 0; tokens <= 64; tokens++) {
        arfuse_ticket ticket[2];
        call.tokens = tokens;
        call.site = (int)(tokens % 3) - 1;
        fine = fine && !arfuse_allreduce(workspace, &call, &operands, &error) &&
               !arfuse_finalize(workspace, &call, &operands, &error) &&
               arfuse_would_fuse(workspace, ARFUSE_FINALIZE, &call) == (tokens <= 48) &&
               !arfuse_defer(workspace, ARFUSE_FINALIZE, &call, &operands, "moe", &ticket[0],
                             &error) &&
               !arfuse_defer(workspace, ARFUSE_ALLREDUCE, &call, &operands, NULL, &ticket[1],
                             &error) &&
               !arfuse_consume(workspace, ticket[0], &call, &operands, &error) &&
               !arfuse_materialise(workspace, ticket[1], &call, sum, &error) &&
               !arfuse_end_step(workspace, &error) && !arfuse_workspace_status(workspace, NULL);
    }
    return fine;
}

static void the_launch_path_allocates_locks_and_reads_nothing(void **state)
{
    (void)state;
    if (!INTERPOSED)
        skip();
    recording_reset();
    const arfuse_options options = recorded_options();
    forbidden = 0;
    arfuse_workspace *workspace = recorded_open(&options);
    assert_true(forbidden > 0); /* the net catches what creation does */
    forbidden = 0;
    assert_true(work(workspace));
    assert_int_equal(forbidden, 0);
    assert_true(recorded.launches > 4 * 64);
    assert_int_equal(recorded.waits, 3); /* zeros of creation: residual, gamma, norm */
    arfuse_workspace_destroy(&workspace, NULL);
    assert_int_equal(recorded.allocations, recorded.releases);
}

static int locked_in(arfuse_workspace *workspace, bool slip)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* From here on read, write, exit and sigreturn are the only system calls: anything else
         * kills. */
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
            _exit(77);
        bool fine = work(workspace);
        if (slip)
            syscall(SYS_getpid);
        syscall(SYS_exit, fine ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void the_launch_path_makes_no_system_call(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* its own thread lives on in the child, where strict mode ends one thread alone */
#endif
    arfuse_workspace *workspace = recorded_usual();
    int status = locked_in(workspace, true);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        arfuse_workspace_destroy(&workspace, NULL);
        skip(); /* the container forbids it */
    }
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* the net catches getpid */
    status = locked_in(workspace, false);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    arfuse_workspace_destroy(&workspace, NULL);
}

/* Even then the library's own part of a call allocates and locks nothing. */
static void ranges_allocate_nothing(void **state)
{
    (void)state;
    if (!INTERPOSED)
        skip();
    recording_reset();
    recorded.profiled = true;
    const arfuse_options options = recorded_options();
    arfuse_workspace *workspace = recorded_open(&options);
    forbidden = 0;
    assert_true(work(workspace));
    assert_int_equal(forbidden, 0);
    assert_true(recorded.ranges > 4 * 64);
    arfuse_workspace_destroy(&workspace, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_launch_path_allocates_locks_and_reads_nothing),
        cmocka_unit_test(the_launch_path_makes_no_system_call),
        cmocka_unit_test(ranges_allocate_nothing),
    };
    return cmocka_run_group_tests_name("runtime_path", tests, NULL, NULL);
}
