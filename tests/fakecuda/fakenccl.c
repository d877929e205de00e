/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libnccl that moves nothing and writes down what it was asked for.
 * FAKENCCL_VERSION=N is the version that it tells (22800); FAKENCCL_FAIL=NAME makes one call fail.
 */
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

static int note(const char *call, size_t count, int peer)
{
    const char *fail = getenv("FAKENCCL_FAIL");
    if (used < sizeof text)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s %zu %d; ", call, count, peer);
    return fail != NULL && strcmp(fail, call) == 0 ? 3 : 0; /* ncclInternalError */
}

int ncclGetVersion(int *version);
const char *ncclGetErrorString(int result);
int ncclGetUniqueId(unique_id *id);
int ncclCommInitRank(void **comm, int ranks, unique_id id, int rank);
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
    return result == 3 ? "internal error" : "no error";
}
SHOWN int ncclGetUniqueId(unique_id *id)
{
    memset(id, 7, sizeof *id);
    return note("id", 0, 0);
}
SHOWN int ncclCommInitRank(void **comm, int ranks, unique_id id, int rank)
{
    if (id.data[0] != 7)
        return 4; /* ncclInvalidArgument: not the id of rank 0 */
    *comm = malloc(1);
    return note("init", (size_t)ranks, rank);
}
SHOWN int ncclCommAbort(void *comm)
{
    free(comm);
    return 0;
}
SHOWN int ncclCommGetAsyncError(void *comm, int *result)
{
    (void)comm;
    *result = 0;
    return 0;
}
SHOWN int ncclGroupStart(void)
{
    return note("begin", 0, 0);
}
SHOWN int ncclGroupEnd(void)
{
    return note("end", 0, 0);
}
SHOWN int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)from, (void)type, (void)comm, (void)stream;
    return note("send", count, peer);
}
SHOWN int ncclRecv(void *to, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)to, (void)type, (void)comm, (void)stream;
    return note("receive", count, peer);
}
SHOWN int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm,
                        void *stream)
{
    (void)to, (void)type, (void)comm, (void)stream, (void)from;
    return note("gather", count, 0);
}
SHOWN int ncclAllReduce(const void *from, void *to, size_t count, int type, int how, void *comm,
                        void *stream)
{
    (void)to, (void)type, (void)comm, (void)stream, (void)from, (void)how;
    return note("sum", count, 0);
}
