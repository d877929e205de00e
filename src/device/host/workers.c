/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host/workers.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct worker {
    arf_host_workers *all;
    int local;
    pthread_t thread;
} worker;

struct arf_host_workers {
    pthread_mutex_t lock;
    pthread_cond_t job_given, job_done;
    uint64_t job; /* counts up; a worker runs each job once */
    void (*work)(void *context, int local);
    void *context;
    int busy;
    bool stop;
    int started; /* threads: local ranks 1 .. started */
    worker worker[];
};

static void *serve(void *argument)
{
    const worker *me = argument;
    arf_host_workers *all = me->all;
    uint64_t seen = 0;
    pthread_mutex_lock(&all->lock);
    for (;;) {
        while (all->job == seen && !all->stop)
            pthread_cond_wait(&all->job_given, &all->lock);
        if (all->stop)
            break;
        seen = all->job;
        pthread_mutex_unlock(&all->lock);
        all->work(all->context, me->local);
        pthread_mutex_lock(&all->lock);
        if (--all->busy == 0)
            pthread_cond_signal(&all->job_done);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

arfuse_status arf_host_workers_start(int local_ranks, arf_host_workers **workers, arf_error *error)
{
    arf_host_workers *all = calloc(1, sizeof *all + (size_t)local_ranks * sizeof all->worker[0]);
    if (all == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d local ranks", local_ranks);
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->job_given, NULL);
    pthread_cond_init(&all->job_done, NULL);

    /* Signals belong to the program's own threads. */
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int code = 0;
    for (int local = 1; local < local_ranks && code == 0; local++) {
        worker *w = &all->worker[local];
        *w = (worker){.all = all, .local = local};
        code = pthread_create(&w->thread, NULL, serve, w);
        all->started += code == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        arf_host_workers_stop(all);
        return arf_fail(error, ARFUSE_FAILURE, "starting a thread for each of %d local ranks: %s",
                        local_ranks, strerror(code));
    }
    *workers = all;
    return ARFUSE_OK;
}

void arf_host_workers_stop(arf_host_workers *workers)
{
    if (workers == NULL)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->stop = true;
    pthread_cond_broadcast(&workers->job_given);
    pthread_mutex_unlock(&workers->lock);
    for (int local = 1; local <= workers->started; local++)
        pthread_join(workers->worker[local].thread, NULL);
    pthread_cond_destroy(&workers->job_done);
    pthread_cond_destroy(&workers->job_given);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}

void arf_host_workers_run(arf_host_workers *workers, void (*work)(void *context, int local),
                          void *context)
{
    if (workers->started == 0) {
        work(context, 0);
        return;
    }
    pthread_mutex_lock(&workers->lock);
    workers->work = work;
    workers->context = context;
    workers->busy = workers->started;
    workers->job++;
    pthread_cond_broadcast(&workers->job_given);
    pthread_mutex_unlock(&workers->lock);
    work(context, 0);
    pthread_mutex_lock(&workers->lock);
    while (workers->busy > 0)
        pthread_cond_wait(&workers->job_done, &workers->lock);
    pthread_mutex_unlock(&workers->lock);
}
