/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of a team are threads here: descriptors travel all the same. */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/fd_exchange.h"
#include "support/scratch.h"
#include "support/threads_bootstrap.h"

static int count_entries(const char *folder)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    int count = 0;
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

typedef struct outcome {
    int hosted;       /* ranks of this process */
    bool own_network; /* in a network namespace of its own */
    bool broken;      /* brings no descriptor */
    void (*before)(void);
    double limit;
    bool could_not; /* the system does not allow what the case needs */
    arfuse_status status;
    arf_error error;
    int wrong; /* descriptors that are not what they should be */
} outcome;

/* The memory of rank r has r + 1 bytes: that tells whose a descriptor is. */
static void run_process(const arfuse_bootstrap *bootstrap, void *context)
{
    outcome *o = (outcome *)context + bootstrap->rank;
    arf_team team;
    int own[ARF_MAX_RANKS], all[ARF_MAX_RANKS];
    if (o->own_network && unshare(CLONE_NEWNET) != 0)
        o->could_not = true;
    if (arf_team_create(bootstrap, o->hosted, &team, NULL) != ARFUSE_OK)
        abort();
    for (int i = 0; i < o->hosted; i++) {
        own[i] = o->broken ? -1 : memfd_create("test", MFD_CLOEXEC);
        if (!o->broken && ftruncate(own[i], team.first_rank + i + 1) != 0)
            abort();
    }
    if (o->before)
        o->before();
    o->status = arf_fd_exchange(&team, own, all, o->limit, &o->error);
    for (int rank = 0; rank < team.tp_size; rank++) {
        struct stat status = {0};
        bool there = all[rank] >= 0;
        if (there != (o->status == ARFUSE_OK))
            o->wrong++;
        if (!there)
            continue;
        if (fstat(all[rank], &status) != 0 || status.st_size != rank + 1 ||
            fcntl(all[rank], F_GETFD) != FD_CLOEXEC)
            o->wrong++;
        close(all[rank]);
    }
    for (int i = 0; i < o->hosted; i++)
        if (own[i] >= 0 && close(own[i]) != 0) /* still ours */
            o->wrong++;
}

static void all_passed(const outcome *seen, int count)
{
    for (int p = 0; p < count; p++) {
        if (seen[p].status != ARFUSE_OK)
            fail_msg("process %d: %s", p, seen[p].error.text);
        assert_int_equal(seen[p].wrong, 0);
    }
}

static void everyone_gets_everything(void **state)
{
    (void)state;
    int before = count_entries("/proc/self/fd");
    outcome seen[4] = {{.hosted = 1}, {.hosted = 3}, {.hosted = 1}, {.hosted = 2}};
    for (int p = 0; p < 4; p++)
        seen[p].limit = 20;
    for (int i = 0; i < 10; i++) {
        threads_bootstrap_run(4, run_process, seen);
        all_passed(seen, 4);
    }
    assert_int_equal(count_entries("/proc/self/fd"), before);
}

static void twenty_processes(void **state)
{
    (void)state;
    int before = count_entries("/proc/self/fd");
    outcome seen[20];
    memset(seen, 0, sizeof seen);
    for (int p = 0; p < 20; p++)
        seen[p].hosted = 1, seen[p].limit = 20;
    threads_bootstrap_run(20, run_process, seen);
    all_passed(seen, 20);
    assert_int_equal(count_entries("/proc/self/fd"), before);
}

static void one_process_needs_no_socket(void **state)
{
    (void)state;
    outcome seen[1] = {{.hosted = 5, .limit = 0}};
    threads_bootstrap_run(1, run_process, seen);
    all_passed(seen, 1);
}

static void a_missing_descriptor_is_named_and_nothing_leaks(void **state)
{
    (void)state;
    int before = count_entries("/proc/self/fd");
    outcome seen[3] = {{.hosted = 1}, {.hosted = 2, .broken = true}, {.hosted = 1}};
    for (int p = 0; p < 3; p++)
        seen[p].limit = 0.3;
    threads_bootstrap_run(3, run_process, seen);
    for (int p = 0; p < 3; p++) {
        assert_int_not_equal(seen[p].status, ARFUSE_OK);
        assert_int_equal(seen[p].wrong, 0);
        assert_string_equal(seen[p].error.text, seen[0].error.text);
        assert_non_null(strstr(seen[p].error.text, "ranks 1-2: duplicating a descriptor"));
        assert_non_null(strstr(seen[p].error.text, "ranks 0,3: no descriptor of rank(s) 1-2"));
    }
    assert_int_equal(count_entries("/proc/self/fd"), before);
}

/* ---- a folder instead of abstract names ------------------------------------------------------ */

static void namespaces_meet_in_a_folder(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH];
    scratch_make(folder);
    setenv("ARFUSE_SOCKET_FOLDER", folder, 1);
    int before = count_entries("/proc/self/fd");
    outcome seen[3] = {{.hosted = 1}, {.hosted = 1, .own_network = true}, {.hosted = 2}};
    for (int p = 0; p < 3; p++)
        seen[p].limit = 20;
    threads_bootstrap_run(3, run_process, seen);
    unsetenv("ARFUSE_SOCKET_FOLDER");
    assert_int_equal(count_entries(folder), 2); /* . and .. */
    scratch_remove(folder);
    if (seen[1].could_not)
        skip(); /* making a network namespace needs a privilege */
    all_passed(seen, 3);
    assert_int_equal(count_entries("/proc/self/fd"), before);
}

static void a_folder_that_cannot_be_used_is_named(void **state)
{
    (void)state;
    char longest[200];
    memset(longest, 'x', sizeof longest - 1);
    longest[0] = '/';
    longest[sizeof longest - 1] = '\0';
    const char *folder[] = {"/nonexistent/arfuse", longest};
    const char *words[] = {"binding a socket", "too long"};
    for (int i = 0; i < 2; i++) {
        setenv("ARFUSE_SOCKET_FOLDER", folder[i], 1);
        outcome seen[2] = {{.hosted = 1, .limit = 5},
                           {.hosted = 1, .own_network = true, .limit = 5}};
        threads_bootstrap_run(2, run_process, seen);
        unsetenv("ARFUSE_SOCKET_FOLDER");
        if (seen[1].could_not)
            skip();
        for (int p = 0; p < 2; p++) {
            assert_int_not_equal(seen[p].status, ARFUSE_OK);
            assert_non_null(strstr(seen[p].error.text, "different network namespaces"));
            assert_non_null(strstr(seen[p].error.text, words[i]));
            assert_int_equal(seen[p].wrong, 0);
        }
    }
}

/* ---- strangers ------------------------------------------------------------------------------- */

/* Connects to every listening abstract socket with a name as the kernel picks them, and sends a
 * packet of the right size and the wrong secret, with a descriptor. */
static int disturb(void)
{
    FILE *file = fopen("/proc/net/unix", "r");
    char line[256], name[64];
    unsigned flags, type;
    int count = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%*s %*x %*x %x %x %*x %*d @%63s", &flags, &type, name) != 3 ||
            flags != 0x10000 || type != SOCK_SEQPACKET || strlen(name) != 5)
            continue;
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        memcpy(to.sun_path + 1, name, 5);
        int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (connect(s, (struct sockaddr *)&to, sizeof to.sun_family + 6) == 0) {
            uint64_t packet[2] = {0, 0};
            union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(2 * sizeof(int))];
            } control = {0};
            struct iovec data = {packet, sizeof packet};
            struct msghdr message = {NULL, 0, &data, 1, control.bytes, sizeof control.bytes, 0};
            control.header = (struct cmsghdr){CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
            int two[2] = {0, 0};
            memcpy(CMSG_DATA(&control.header), two, sizeof two);
            count += sendmsg(s, &message, 0) == (ssize_t)sizeof packet;
            count += send(s, "x", 1, 0) == 1;
        }
        close(s);
    }
    if (file)
        fclose(file);
    return count;
}

static int disturbed;
static void come_late_and_disturb(void)
{
    usleep(200000); /* the others listen by then, and wait for this one's vote */
    disturbed = disturb();
}

static void strangers_change_nothing(void **state)
{
    (void)state;
    int before = count_entries("/proc/self/fd");
    outcome seen[3] = {
        {.hosted = 1}, {.hosted = 1}, {.hosted = 1, .before = come_late_and_disturb}};
    for (int p = 0; p < 3; p++)
        seen[p].limit = 20;
    threads_bootstrap_run(3, run_process, seen);
    all_passed(seen, 3);
    assert_true(disturbed >= 4);
    assert_int_equal(count_entries("/proc/self/fd"), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everyone_gets_everything),
        cmocka_unit_test(twenty_processes),
        cmocka_unit_test(one_process_needs_no_socket),
        cmocka_unit_test(a_missing_descriptor_is_named_and_nothing_leaks),
        cmocka_unit_test(namespaces_meet_in_a_folder),
        cmocka_unit_test(a_folder_that_cannot_be_used_is_named),
        cmocka_unit_test(strangers_change_nothing),
    };
    return cmocka_run_group_tests_name("fd_exchange", tests, NULL, NULL);
}
