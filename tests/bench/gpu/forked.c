/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/forked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/processes_bootstrap.h"
#include "tune/group.h"
#include "tune/voice.h"

/* One group a process, as in group.c. */
static arfuse_bootstrap own = ARFUSE_BOOTSTRAP_INIT;
static arf_node_page alone, *page = &alone;

/* ---- starting ----------------------------------------------------------------------------------
 */

typedef struct job {
    int (*work)(void *);
    void *context;
} job;

static int join(const arfuse_bootstrap *bootstrap, void *context)
{
    const job *mine = context;
    own = *bootstrap;
    return mine->work(mine->context);
}

/* Longer than it takes to leave, shorter than anybody's patience. */
#define GRACE_SECONDS 10.0

/* Until all have ended, one has failed, or the time is over. They stay to be waited for. */
static void watch(const processes *all, double seconds)
{
    const struct timespec nap = {0, 50000000};
    for (double waited = 0; waited < seconds; waited += 0.05) {
        int ended = 0;
        for (int i = 0; i < all->size; i++) {
            siginfo_t info = {0};
            waitid(P_PID, (id_t)all->pid[i], &info, WEXITED | WNOHANG | WNOWAIT);
            if (info.si_pid != 0 && (info.si_code != CLD_EXITED || info.si_status != 0))
                return;
            ended += info.si_pid != 0;
        }
        if (ended == all->size)
            return;
        nanosleep(&nap, NULL);
    }
}

int forked_run(int count, double seconds, int (*work)(void *), void *context)
{
    job mine = {work, context};
    processes all;
    int status[ARF_MAX_RANKS], code = 0;
    own.size = 1;
    if (count == 1)
        return work(context);
    page = processes_share(sizeof *page);
    processes_start(&all, count, join, &mine);
    watch(&all, seconds);
    processes_wait(&all, status, GRACE_SECONDS);
    for (int i = 0; i < count; i++) {
        const int ended = WIFEXITED(status[i]) ? WEXITSTATUS(status[i]) : ARFUSE_FAILURE;
        code = ended > code ? ended : code;
    }
    return code;
}

/* ---- tune/group.h -----------------------------------------------------------------------------
 */

bool arf_group_launcher(int *rank, int *size)
{
    *rank = own.rank;
    *size = own.size;
    return own.size > 1;
}

_Noreturn void arf_group_leave_early(int code, const char *message)
{
    arf_voice_error("%s", message);
    exit(code);
}

arfuse_status arf_group_start(arf_group *group, arf_error *error)
{
    (void)error;
    *group = (arf_group){.rank = own.rank, .size = own.size, .page = page};
    for (int i = 0; i < own.size; i++)
        group->on_node[i] = true;
    arf_voice_share(&page->claimed);
    return ARFUSE_OK;
}

arfuse_bootstrap arf_group_bootstrap(const arf_group *group)
{
    (void)group;
    return own;
}

arfuse_status arf_group_broadcast(const arf_group *group, void *data, size_t bytes,
                                  arf_error *error)
{
    enum { PART = 4096 };
    unsigned char all[ARF_MAX_RANKS * PART], part[PART];
    for (size_t at = 0; at < bytes && group->size > 1; at += PART) {
        const size_t count = bytes - at < PART ? bytes - at : PART;
        memcpy(part, (const char *)data + at, count);
        if (own.allgather(own.context, part, all, count) != 0)
            return arf_fail(error, ARFUSE_FAILURE, "the processes do not meet");
        memcpy((char *)data + at, all, count);
    }
    return ARFUSE_OK;
}

int arf_group_finish(arf_group *group, int code, const char *message)
{
    (void)group, (void)message;
    return code;
}

_Noreturn void arf_group_abort(const arf_group *group, int code, const char *message)
{
    (void)group;
    arf_voice_error_here("%s", message);
    fflush(NULL);
    _exit(code);
}

void arf_group_library(const arf_group *group, char *text, size_t size)
{
    (void)group;
    snprintf(text, size, "not in use (forked)");
}

void arf_group_cores(const arf_group *group, int *count, int *cores)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    *count = group->size;
    *cores = online > 0 ? (int)online : 1;
}
