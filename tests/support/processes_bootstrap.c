/* SPDX-License-Identifier: Apache-2.0 */
#include "support/processes_bootstrap.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16, ROOM = 8192 };

typedef struct meeting {
    pthread_barrier_t barrier;
    unsigned char send[MOST][ROOM];
} meeting;

typedef struct member {
    meeting *meeting;
    int rank, size;
} member;

static int allgather(void *context, const void *send, void *receive, size_t bytes)
{
    member *m = context;
    if (bytes > ROOM)
        return -1;
    memcpy(m->meeting->send[m->rank], send, bytes);
    pthread_barrier_wait(&m->meeting->barrier);
    for (int i = 0; i < m->size; i++)
        memcpy((char *)receive + (size_t)i * bytes, m->meeting->send[i], bytes);
    pthread_barrier_wait(&m->meeting->barrier);
    return 0;
}

static int barrier(void *context)
{
    member *m = context;
    pthread_barrier_wait(&m->meeting->barrier);
    return 0;
}

void *processes_share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

void processes_unshare(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

void processes_start(processes *all, int size, int (*process)(const arfuse_bootstrap *, void *),
                     void *context)
{
    meeting *common = processes_share(sizeof *common);
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (size < 1 || size > MOST ||
        pthread_barrier_init(&common->barrier, &attributes, (unsigned)size) != 0)
        abort();
    *all = (processes){.size = size, .meeting = common};
    fflush(NULL);
    for (int rank = 0; rank < size; rank++) {
        all->pid[rank] = fork();
        if (all->pid[rank] < 0)
            abort();
        if (all->pid[rank] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            member self = {common, rank, size};
            arfuse_bootstrap bootstrap = {sizeof bootstrap, &self, rank, size, allgather, barrier};
            int code = process(&bootstrap, context);
            fflush(NULL);
            _exit(code);
        }
    }
}

void processes_wait(processes *all, int *status, double seconds)
{
    int running = all->size;
    for (int ticks = 0; running > 0; ticks++) {
        bool over = ticks * 0.01 > seconds;
        for (int i = 0; i < all->size; i++) {
            if (all->pid[i] == 0)
                continue;
            if (over)
                kill(all->pid[i], SIGKILL);
            if (waitpid(all->pid[i], &status[i], over ? 0 : WNOHANG) == all->pid[i]) {
                all->pid[i] = 0;
                running--;
            }
        }
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    munmap(all->meeting, sizeof(meeting));
}
