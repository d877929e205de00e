/* SPDX-License-Identifier: Apache-2.0 */
#include "support/threads_bootstrap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 72 };

typedef struct meeting {
    pthread_barrier_t barrier;
    const void *send[MOST];
} meeting;

typedef struct member {
    pthread_t thread;
    meeting *meeting;
    arfuse_bootstrap bootstrap;
    void (*process)(const arfuse_bootstrap *, void *);
    void *context;
} member;

static int allgather(void *context, const void *send, void *receive, size_t bytes)
{
    member *m = context;
    m->meeting->send[m->bootstrap.rank] = send;
    pthread_barrier_wait(&m->meeting->barrier);
    for (int i = 0; i < m->bootstrap.size; i++)
        memcpy((char *)receive + (size_t)i * bytes, m->meeting->send[i], bytes);
    pthread_barrier_wait(&m->meeting->barrier); /* nobody's `send` ends before all have read it */
    return 0;
}

static int barrier(void *context)
{
    member *m = context;
    pthread_barrier_wait(&m->meeting->barrier);
    return 0;
}

static void *run(void *context)
{
    member *m = context;
    m->process(&m->bootstrap, m->context);
    return NULL;
}

void threads_bootstrap_run(int size, void (*process)(const arfuse_bootstrap *, void *),
                           void *context)
{
    meeting common;
    member all[MOST];
    if (size < 1 || size > MOST || pthread_barrier_init(&common.barrier, NULL, (unsigned)size))
        abort();
    for (int i = 0; i < size; i++) {
        all[i] = (member){.meeting = &common, .process = process, .context = context};
        all[i].bootstrap =
            (arfuse_bootstrap){sizeof(arfuse_bootstrap), &all[i], i, size, allgather, barrier};
        if (pthread_create(&all[i].thread, NULL, run, &all[i]) != 0)
            abort();
    }
    for (int i = 0; i < size; i++)
        pthread_join(all[i].thread, NULL);
    pthread_barrier_destroy(&common.barrier);
}
