/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/group.h"

#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tune/stop.h"
#include "tune/tokens.h"
#include "tune/voice.h"

/* One group a process, as MPI itself. */
static MPI_Comm comm = MPI_COMM_NULL, node = MPI_COMM_NULL;
/* For the end alone: who comes to it must not meet those who are still in the middle of a step. */
static MPI_Comm last = MPI_COMM_NULL;
static MPI_Win window = MPI_WIN_NULL;
static arf_node_page own_page;

/* ---- before MPI -------------------------------------------------------------------------------
 */

bool arf_group_launcher(int *rank, int *size)
{
    static const char *const variable[][2] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMIX_RANK", NULL},
        {"PMI_RANK", "PMI_SIZE"},
    };
    *rank = 0;
    *size = 1;
    for (size_t i = 0; i < sizeof variable / sizeof *variable; i++) {
        const char *rank_text = getenv(variable[i][0]);
        const char *size_text = variable[i][1] != NULL ? getenv(variable[i][1]) : NULL;
        int64_t number;
        if (rank_text == NULL || !arf_number_parse(rank_text, 0, INT32_MAX, &number))
            continue;
        *rank = (int)number;
        if (size_text != NULL && arf_number_parse(size_text, 1, INT32_MAX, &number))
            *size = (int)number;
        return true;
    }
    return false;
}

static void sleep_seconds(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Longer than ranks of one job are apart when they start on a loaded machine, and well below the
 * ten seconds after which a user takes a job for hung. */
#define PATIENCE_SECONDS 4.0

_Noreturn void arf_group_leave_early(int code, const char *message)
{
    int rank, size;
    arf_group_launcher(&rank, &size);
    if (rank == 0) {
        arf_voice_error("%s", message);
    } else {
        sleep_seconds(PATIENCE_SECONDS);
        arf_voice_error_here("%s", message);
    }
    exit(code);
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

/*
 * MPI's own blocking calls spin. With more ranks than cores they would take the core from the rank
 * that everyone waits for, so waits are made here: poll a little, then yield, then sleep.
 */
#define POLLS_BEFORE_YIELD 64
#define POLLS_BEFORE_SLEEP 1024
#define NAP_SECONDS 50e-6

/* Until `seconds` have passed, if that is not 0; then *done stays 0. */
static int complete_within(MPI_Request *request, double seconds, int *done)
{
    const double start = MPI_Wtime();
    *done = 0;
    for (long polls = 0;; polls++) {
        int code = MPI_Test(request, done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS || *done || (seconds > 0 && MPI_Wtime() - start > seconds))
            return code;
        if (polls > POLLS_BEFORE_SLEEP)
            sleep_seconds(NAP_SECONDS);
        else if (polls > POLLS_BEFORE_YIELD)
            sched_yield();
    }
}

static int complete(MPI_Request *request)
{
    int done;
    return complete_within(request, 0, &done);
}

static arfuse_status mpi_failed(arf_error *error, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "no more is known";
    int length = 0, started = 0;
    MPI_Initialized(&started);
    if (started) /* before, this call would end the program */
        MPI_Error_string(code, text, &length);
    return arf_fail(error, ARFUSE_FAILURE, "%s failed: %s", call, text);
}

/* What a failed call leaves of a communicator cannot be voted about: the others wait in it. */
static _Noreturn void give_up(const char *call, int code)
{
    arf_group group = {.mpi = true};
    arf_error error = ARF_ERROR_INIT;
    mpi_failed(&error, call, code);
    arf_group_abort(&group, ARFUSE_FAILURE, error.text);
}

static int gather(void *context, const void *send, void *receive, size_t bytes)
{
    (void)context;
    MPI_Request request;
    if (bytes > INT32_MAX)
        return MPI_ERR_COUNT;
    int code =
        MPI_Iallgather(send, (int)bytes, MPI_BYTE, receive, (int)bytes, MPI_BYTE, comm, &request);
    if (code != MPI_SUCCESS || (code = complete(&request)) != MPI_SUCCESS)
        give_up("MPI_Iallgather", code);
    return 0;
}

static int barrier(void *context)
{
    (void)context;
    MPI_Request request;
    int code = MPI_Ibarrier(comm, &request);
    if (code != MPI_SUCCESS || (code = complete(&request)) != MPI_SUCCESS)
        give_up("MPI_Ibarrier", code);
    return 0;
}

/* ---- start ------------------------------------------------------------------------------------
 */

#define TRY_MPI(call)                               \
    do {                                            \
        int code_ = (call);                         \
        if (code_ != MPI_SUCCESS)                   \
            return mpi_failed(error, #call, code_); \
    } while (0)

/* The page of this node; its first process provides the memory. */
static arfuse_status share_page(arf_group *group, arf_error *error)
{
    TRY_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, group->rank, MPI_INFO_NULL, &node));
    TRY_MPI(MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN));
    int node_rank, node_size, unit;
    MPI_Aint bytes;
    void *memory;
    TRY_MPI(MPI_Comm_rank(node, &node_rank));
    TRY_MPI(MPI_Comm_size(node, &node_size));
    TRY_MPI(MPI_Win_allocate_shared(node_rank == 0 ? (MPI_Aint)sizeof(arf_node_page) : 0, 1,
                                    MPI_INFO_NULL, node, &memory, &window));
    TRY_MPI(MPI_Win_shared_query(window, 0, &bytes, &unit, &memory));
    group->page = memory;
    if (node_rank == 0)
        memset(memory, 0, sizeof(arf_node_page));
    int *member = calloc((size_t)node_size, sizeof *member);
    if (member == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d processes", node_size);
    int code = MPI_Allgather(&group->rank, 1, MPI_INT, member, 1, MPI_INT, node);
    for (int i = 0; i < node_size && code == MPI_SUCCESS; i++)
        group->on_node[member[i]] = true;
    free(member);
    return code == MPI_SUCCESS ? ARFUSE_OK : mpi_failed(error, "MPI_Allgather", code);
}

arfuse_status arf_group_start(arf_group *group, arf_error *error)
{
    *group = (arf_group){.size = 1, .page = &own_page, .on_node = {true}};
    int rank, size;
    if (!arf_group_launcher(&rank, &size))
        return ARFUSE_OK;
    int level;
    TRY_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level));
    group->mpi = true;
    /* Errors of a request are reported to the world's handler, whatever communicator it is of. */
    TRY_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &last));
    TRY_MPI(MPI_Comm_rank(comm, &group->rank));
    TRY_MPI(MPI_Comm_size(comm, &group->size));
    if (group->size > ARF_MAX_RANKS)
        return arf_fail(error, ARFUSE_USAGE, "%d processes; a team has at most %d ranks",
                        group->size, ARF_MAX_RANKS);
    group->on_node[0] = false;
    ARF_TRY(share_page(group, error));
    arf_voice_share(&group->page->claimed);
    return ARFUSE_OK;
}

arfuse_bootstrap arf_group_bootstrap(const arf_group *group)
{
    arfuse_bootstrap bootstrap = ARFUSE_BOOTSTRAP_INIT;
    bootstrap.rank = group->rank;
    bootstrap.size = group->size;
    if (group->mpi) {
        bootstrap.allgather = gather;
        bootstrap.barrier = barrier;
    }
    return bootstrap;
}

arfuse_status arf_group_broadcast(const arf_group *group, void *data, size_t bytes,
                                  arf_error *error)
{
    if (!group->mpi)
        return ARFUSE_OK;
    if (bytes > INT32_MAX)
        return arf_fail(error, ARFUSE_FAILURE, "%zu bytes are too many for one broadcast", bytes);
    MPI_Request request;
    int code = MPI_Ibcast(data, (int)bytes, MPI_BYTE, 0, comm, &request);
    if (code != MPI_SUCCESS || (code = complete(&request)) != MPI_SUCCESS)
        give_up("MPI_Ibcast", code);
    return ARFUSE_OK;
}

/* ---- the ways out -----------------------------------------------------------------------------
 */

/* Ranks that fail together come to the end within a moment, also on a loaded machine. One that has
 * waited for the others as long as this has failed alone, and they wait for it elsewhere. */
#define TOGETHER_SECONDS 8.0

int arf_group_finish(arf_group *group, int code, const char *message)
{
    if (!group->mpi)
        return code;
    int largest = code, done = 0;
    MPI_Request request;
    if (MPI_Iallreduce(&code, &largest, 1, MPI_INT, MPI_MAX, last, &request) != MPI_SUCCESS ||
        complete_within(&request, code != 0 ? TOGETHER_SECONDS : 0, &done) != MPI_SUCCESS || !done)
        arf_group_abort(group, code != 0 ? code : ARFUSE_FAILURE,
                        code != 0 ? message : "the ranks could not end together");
    /* From here on the launcher may end this process because another one has gone with a code. */
    arf_stop_ignore();
    arf_voice_share(NULL);
    MPI_Win_free(&window);
    MPI_Comm_free(&node);
    MPI_Comm_free(&last);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    *group = (arf_group){.size = 1, .page = &own_page, .on_node = {true}};
    return largest;
}

_Noreturn void arf_group_abort(const arf_group *group, int code, const char *message)
{
    arf_voice_error_here("%s", message);
    if (group->mpi)
        MPI_Abort(MPI_COMM_WORLD, code);
    _exit(code);
}

void arf_group_cores(const arf_group *group, int *processes, int *cores)
{
    *processes = 0;
    for (int i = 0; i < group->size; i++)
        *processes += group->on_node[i];
    /* What this process may run on says too little when the launcher bound it to one core. */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    *cores = online > 0 ? (int)online : 1;
}

void arf_group_library(const arf_group *group, char *text, size_t size)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (group->mpi)
        MPI_Get_library_version(version, &length);
    version[strcspn(version, "\r\n")] = '\0';
    snprintf(text, size, "%s", group->mpi ? version : "not in use (no launcher)");
}
