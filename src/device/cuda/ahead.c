/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/ahead.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/hash.h"

/* The compiler recurses; the default of a thread is 2 MiB where stacks are not limited. */
#define STACK_BYTES ((size_t)16 << 20)

typedef struct crew {
    const arf_compiler *compiler;
    const arf_step *step;
    int count;
    atomic_int next, compiled;
} crew;

uint64_t arf_step_digest(const arf_step *step)
{
    uint64_t hash = arf_hash_text(ARF_HASH_INIT, step->kernel);
    for (int i = 0; i < step->defines; i++)
        hash = arf_hash_text(hash, step->define[i]);
    return hash;
}

arfuse_status arf_compile_step(arf_compiler *compiler, const arf_step *step, arf_image *image,
                               arf_error *error)
{
    const char *defines[ARF_MAX_DEFINES];
    char name[64];
    for (int i = 0; i < step->defines; i++)
        defines[i] = step->define[i];
    snprintf(name, sizeof name, "%s.cu", step->kernel);
    return arf_compile(compiler, name, defines, step->defines, image, error);
}

int arf_ahead_threads(int processes)
{
    cpu_set_t cores;
    int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    count /= processes > 0 ? processes : 1;
    return count < 1 ? 1 : count > ARF_AHEAD_THREADS ? ARF_AHEAD_THREADS : count;
}

static void *work(void *context)
{
    crew *all = context;
    /* A compiler of its own: counters and log are not made for several threads. NVRTC is. */
    arf_compiler own = *all->compiler;
    own.log = (arf_log){0};
    own.compiled = 0;
    for (int at; (at = atomic_fetch_add(&all->next, 1)) < all->count;) {
        arf_image image = {0};
        arf_error unheard = ARF_ERROR_INIT; /* prepare compiles it again and says so */
        if (arf_compile_step(&own, &all->step[at], &image, &unheard) == ARFUSE_OK)
            arf_image_free(&image);
    }
    atomic_fetch_add(&all->compiled, own.compiled);
    return NULL;
}

/* Signals are for the threads that the program made itself. */
static int start(crew *all, pthread_t *thread, int threads)
{
    pthread_attr_t attributes;
    sigset_t everything, before;
    int started = 0;
    if (pthread_attr_init(&attributes) != 0)
        return 0;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&everything);
    pthread_sigmask(SIG_SETMASK, &everything, &before);
    while (started < threads && pthread_create(&thread[started], &attributes, work, all) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

void arf_compile_ahead(arf_compiler *compiler, const arf_step *step, int count, int threads)
{
    crew all = {.compiler = compiler, .step = step, .count = count};
    pthread_t thread[ARF_AHEAD_THREADS];
    if (compiler->cache.folder[0] == '\0')
        return;
    threads = threads > count ? count : threads;
    threads = threads > ARF_AHEAD_THREADS ? ARF_AHEAD_THREADS : threads;
    /* Where no thread can be had, this one does it all. */
    const int started = start(&all, thread, threads - 1);
    work(&all);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    compiler->compiled += atomic_load(&all.compiled);
}
