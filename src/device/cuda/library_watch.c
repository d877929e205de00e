/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/library_watch.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "device/cuda/cuda_device.h"

/* A look is two loads and a question to NCCL about its own state; a limit is seconds. */
#define LOOK_MS 20
/* For a launch that is inside NCCL to come out. It may not: where the stream is full of calls that
 * wait, only the abort frees it. */
#define GRACE_MS 1000

struct arf_library_watch {
    arf_cuda_space *space;
    CUstream stream; /* of its own: the others may be stuck */
    arf_word *word;  /* page-locked: what is copied must outlive the copy */
    pthread_t thread;
    bool running;
    bool aborted; /* by the thread, read behind it */
    atomic_bool stop, ends;
    atomic_int inside;
    char text[400]; /* written before `ends` */
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void rest(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Through a stream of its own: the legacy one waits for those that are stuck. */
static void write_sticky_word(arf_library_watch *watch, arf_word culprit)
{
    const arf_cuda_space *space = watch->space;
    const arf_driver *driver = &((const arf_cuda *)space->base.device)->driver;
    const CUdeviceptr control = space->memory.peer[space->view.first_rank];
    *watch->word = culprit;
    if (driver->cuMemcpyHtoDAsync(control + offsetof(arf_control, culprit), watch->word,
                                  sizeof *watch->word, watch->stream) == CUDA_SUCCESS)
        driver->cuStreamSynchronize(watch->stream);
}

/* The sticky word first: kernels that the abort lets go must find it. */
static void end(arf_library_watch *watch, arf_word begun)
{
    arf_cuda_space *space = watch->space;
    const arf_word culprit = ARF_CULPRIT(space->view.first_rank, ARF_STAGE_LIBRARY, 0, begun);
    atomic_store(&watch->ends, true);
    write_sticky_word(watch, culprit);
    space->mirror[ARF_MIRROR_CULPRIT] = culprit;
    for (int ms = 0; atomic_load(&watch->inside) != 0 && ms < GRACE_MS; ms += LOOK_MS)
        rest(LOOK_MS);
    space->library.nccl.comm_abort(space->library.comm);
    watch->aborted = true;
}

static bool tells_error(arf_library_watch *watch)
{
    const arf_library *library = &watch->space->library;
    int state = 0;
    const int asked = library->nccl.comm_error(library->comm, &state);
    if (asked != 0)
        state = asked;
    if (state == 0 || state == ARF_NCCL_IN_PROGRESS)
        return false;
    snprintf(watch->text, sizeof watch->text, "NCCL: %.80s (%d): %.280s",
             library->nccl.error_text(state), state, library->nccl.last_error(library->comm));
    return true;
}

static void *look(void *context)
{
    arf_library_watch *watch = context;
    const arf_cuda_space *space = watch->space;
    const double limit = space->base.spec.wait_limit_seconds;
    double since = seconds();
    arf_word begun = 0, ended = 0;
    if (arf_cuda_enter((const arf_cuda *)space->base.device, NULL) != ARFUSE_OK) {
        snprintf(watch->text, sizeof watch->text,
                 "the thread that bounds the waits of NCCL cannot use the GPU's context");
        atomic_store(&watch->ends, true); /* no call may begin that nobody watches */
        return NULL;
    }
    for (bool over = false; !over && !atomic_load(&watch->stop); rest(LOOK_MS)) {
        const arf_word now_ended = space->mirror[ARF_MIRROR_ENDED];
        const arf_word now_begun = space->mirror[ARF_MIRROR_BEGUN];
        const double now = seconds();
        if (now_begun == now_ended || now_begun != begun || now_ended != ended)
            since = now;
        begun = now_begun;
        ended = now_ended;
        over = tells_error(watch);
        if (!over && limit > 0 && now - since > limit) {
            snprintf(watch->text, sizeof watch->text,
                     "a wait in NCCL expired after %g s (it does not tell which rank it waits for)",
                     limit);
            over = true;
        }
        if (over)
            end(watch, begun);
    }
    arf_cuda_leave((const arf_cuda *)space->base.device);
    return NULL;
}

/* ---- for the space --------------------------------------------------------------------------- */

static arfuse_status start(arf_library_watch *watch, arf_error *error)
{
    const arf_driver *driver = &((const arf_cuda *)watch->space->base.device)->driver;
    void *word;
    sigset_t all, before;
    ARF_TRY(ARF_CU(driver, error, cuStreamCreate, &watch->stream, CU_STREAM_NON_BLOCKING));
    ARF_TRY(ARF_CU(driver, error, cuMemHostAlloc, &word, sizeof *watch->word,
                   CU_MEMHOSTALLOC_PORTABLE));
    watch->word = word;
    /* Signals are for the program's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    watch->running = pthread_create(&watch->thread, NULL, look, watch) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return watch->running ? ARFUSE_OK
                          : arf_fail(error, ARFUSE_FAILURE,
                                     "cannot start the thread that bounds the waits of NCCL");
}

arfuse_status arf_library_watch_start(arf_cuda_space *space, arf_library_watch **watch,
                                      arf_error *error)
{
    arf_library_watch *made = calloc(1, sizeof *made);
    if (made == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the watch over NCCL");
    made->space = space;
    *watch = made; /* stopped with the space, however far it came */
    return start(made, error);
}

bool arf_library_watch_stop(arf_library_watch *watch)
{
    if (watch == NULL)
        return false;
    const arf_driver *driver = &((const arf_cuda *)watch->space->base.device)->driver;
    atomic_store(&watch->stop, true);
    if (watch->running)
        pthread_join(watch->thread, NULL);
    if (watch->word != NULL)
        driver->cuMemFreeHost(watch->word);
    if (watch->stream != NULL)
        driver->cuStreamDestroy(watch->stream);
    const bool aborted = watch->aborted;
    free(watch);
    return aborted;
}

/* ---- for who uses the communicator ----------------------------------------------------------- */

bool arf_library_ends(const arf_library_watch *watch)
{
    return atomic_load(&watch->ends);
}

arfuse_status arf_library_enter(arf_library_watch *watch, arf_error *error)
{
    /* Sequentially consistent: either this sees the end, or the end sees this. */
    atomic_store(&watch->inside, 1);
    if (!arf_library_ends(watch))
        return ARFUSE_OK;
    arf_library_leave(watch);
    return arf_fail(error, ARFUSE_TIMEOUT, "%s; %s", watch->text,
                    watch->space->base.spec.remedy != NULL ? watch->space->base.spec.remedy
                                                           : "this workspace has failed");
}

void arf_library_leave(arf_library_watch *watch)
{
    atomic_store(&watch->inside, 0);
}

const char *arf_library_end_text(const arf_library_watch *watch)
{
    return watch != NULL && arf_library_ends(watch) ? watch->text : "";
}
