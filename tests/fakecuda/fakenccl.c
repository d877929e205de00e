/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libnccl that moves nothing and writes down what it was asked for. Of the
 * environment, read at each call:
 *
 *   FAKENCCL_VERSION=N  the version that it tells (22800)
 *   FAKENCCL_FAIL=NAME  one call that fails
 *   FAKENCCL_SLOW=N     each call is in progress for N questions after its state (0)
 *   FAKENCCL_STATE=N    the state of the communicator (0)
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakecuda.h"

#define SHOWN __attribute__((visibility("default")))

typedef struct unique_id {
    char data[128];
} unique_id;

static char text[8192];
static size_t used;

SHOWN const char *fakenccl_log(void)
{
    return text;
}
SHOWN void fakenccl_forget(void)
{
    used = 0;
    text[0] = '\0';
}

enum { SUCCESS = 0, INTERNAL_ERROR = 3, INVALID_ARGUMENT = 4, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
static atomic_int questions; /* that are still answered with "in progress" */

static int number(const char *name)
{
    const char *told = getenv(name);
    return told != NULL ? atoi(told) : 0;
}

static int note(const char *call, size_t count, int peer)
{
    const char *fail = getenv("FAKENCCL_FAIL");
    if (used < sizeof text)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s %zu %d; ", call, count, peer);
    return fail != NULL && strcmp(fail, call) == 0 ? INTERNAL_ERROR : SUCCESS;
}

/* Of a communicator that does not block. */
static int take(const char *call, size_t count, int peer)
{
    int result = note(call, count, peer);
    questions = number("FAKENCCL_SLOW");
    return result == SUCCESS && questions > 0 ? IN_PROGRESS : result;
}

int ncclGetVersion(int *version);
const char *ncclGetErrorString(int result);
int ncclGetUniqueId(unique_id *id);
int ncclCommInitRankConfig(void **comm, int ranks, unique_id id, int rank, const void *config);
const char *ncclGetLastError(void *comm);
int ncclCommAbort(void *comm);
int ncclCommGetAsyncError(void *comm, int *result);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream);
int ncclRecv(void *to, size_t count, int type, int peer, void *comm, void *stream);
int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int how, void *comm,
                  void *stream);

SHOWN int ncclGetVersion(int *version)
{
    const char *told = getenv("FAKENCCL_VERSION");
    *version = told != NULL ? atoi(told) : 22800;
    return 0;
}
SHOWN const char *ncclGetErrorString(int result)
{
    return result == INTERNAL_ERROR ? "internal error"
           : result == REMOTE_ERROR ? "remote error"
                                    : "no error";
}
SHOWN const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "closed by node7<40001>";
}
SHOWN int ncclGetUniqueId(unique_id *id)
{
    memset(id, 7, sizeof *id);
    return note("id", 0, 0);
}
SHOWN int ncclCommInitRankConfig(void **comm, int ranks, unique_id id, int rank, const void *config)
{
    size_t size;
    memcpy(&size, config, sizeof size);
    if (id.data[0] != 7 || size != 24) /* the id is not of rank 0; another ncclConfig_t */
        return INVALID_ARGUMENT;
    *comm = malloc(1);
    return take("init", (size_t)ranks, rank);
}
SHOWN int ncclCommAbort(void *comm)
{
    free(comm);
    note("abort", 0, 0);
    return SUCCESS;
}
SHOWN int ncclCommGetAsyncError(void *comm, int *result)
{
    (void)comm;
    const bool more = atomic_fetch_sub(&questions, 1) > 0;
    *result = more ? IN_PROGRESS : number("FAKENCCL_STATE");
    return SUCCESS;
}
SHOWN int ncclGroupStart(void)
{
    return note("begin", 0, 0);
}
SHOWN int ncclGroupEnd(void)
{
    return take("end", 0, 0);
}
SHOWN int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)from, (void)type, (void)comm, (void)stream;
    return take("send", count, peer);
}
SHOWN int ncclRecv(void *to, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)to, (void)type, (void)comm, (void)stream;
    return take("receive", count, peer);
}
SHOWN int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm,
                        void *stream)
{
    (void)to, (void)type, (void)comm, (void)stream, (void)from;
    return take("gather", count, 0);
}
SHOWN int ncclAllReduce(const void *from, void *to, size_t count, int type, int how, void *comm,
                        void *stream)
{
    (void)to, (void)type, (void)comm, (void)stream, (void)from, (void)how;
    return take("sum", count, 0);
}
