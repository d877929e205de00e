/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A team without MPI: the two callbacks of arfuse_bootstrap over sockets between forked processes.
 * Any launcher that can gather bytes will do the same: a store, a broker, the engine's own.
 *
 * Usage: no_mpi [TP [HIDDEN]]        (4 6144)
 *
 * Every process hosts one rank, contributes 2^rank, and checks that the sum is 2^TP - 1. It asks
 * for default routes in its options, which stand before ARFUSE_PROFILE and ARFUSE_ROUTES.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arfuse.h"

#define MOST 8 /* 2^8 - 1 is exact in bf16, 2^9 - 1 is not */
#define TOKENS 5

/* Process 0 has a socket to every other one; the others have one, to process 0. */
typedef struct star {
    int rank, size;
    int socket[MOST];
} star;

static int send_all(int to, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = send(to, data, bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return -1;
        data += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int receive_all(int from, char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = recv(from, data, bytes, 0);
        if (n <= 0)
            return -1; /* the other end is gone: the callback fails, and creation with it */
        data += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int allgather(void *context, const void *send, void *receive, size_t bytes)
{
    const star *s = context;
    int i, failed = 0;
    if (s->rank != 0)
        return send_all(s->socket[0], send, bytes) ||
               receive_all(s->socket[0], receive, bytes * (size_t)s->size);
    memcpy(receive, send, bytes);
    for (i = 1; i < s->size; i++)
        failed |= receive_all(s->socket[i], (char *)receive + (size_t)i * bytes, bytes);
    for (i = 1; i < s->size; i++)
        failed |= send_all(s->socket[i], receive, bytes * (size_t)s->size);
    return failed;
}

static int barrier(void *context)
{
    char mine = 0, all[MOST];
    return allgather(context, &mine, all, 1);
}

/* ---- the work of one rank -------------------------------------------------------------------- */

static uint16_t bf16(float value) /* exact values only */
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static uint16_t *filled(size_t count, float value)
{
    uint16_t *tensor = aligned_alloc(64, (count * 2 + 63) / 64 * 64);
    size_t i;
    for (i = 0; tensor != NULL && i < count; i++)
        tensor[i] = bf16(value);
    return tensor;
}

static int fail(const arfuse_error *error)
{
    fprintf(stderr, "no_mpi: %s\n", error->text);
    return (int)error->status;
}

/* Creation fails on all ranks with one message: it is enough that one of them says it. */
static int fail_alike(const star *s, const arfuse_error *error)
{
    return s->rank == 0 ? fail(error) : (int)error->status;
}

static int work(star *s, int hidden)
{
    const size_t row = TOKENS * (size_t)hidden;
    const uint16_t sum = bf16((float)((1 << s->size) - 1));
    arfuse_bootstrap bootstrap = ARFUSE_BOOTSTRAP_INIT;
    arfuse_options options = ARFUSE_OPTIONS_INIT;
    arfuse_call call = ARFUSE_CALL_INIT;
    arfuse_operands operands = ARFUSE_OPERANDS_INIT;
    arfuse_workspace *workspace = NULL;
    arfuse_error error = ARFUSE_ERROR_INIT;
    uint16_t *out;
    size_t i, wrong = 0;

    bootstrap.context = s;
    bootstrap.rank = s->rank;
    bootstrap.size = s->size;
    bootstrap.allgather = allgather;
    bootstrap.barrier = barrier;
    options.hidden_size = hidden;
    options.capacity = 64;
    options.device = "host";
    options.routes[ARFUSE_ALLREDUCE] = ARFUSE_ROUTES_DEFAULT; /* needs no profile */
    if (arfuse_workspace_create(&bootstrap, &options, &workspace, &error) != ARFUSE_OK)
        return fail_alike(s, &error);

    call.tokens = TOKENS;
    operands.input = filled(row, (float)(1 << s->rank));
    operands.residual = filled(row, 0.0f);
    operands.gamma = filled((size_t)hidden, 1.0f);
    operands.residual_out = out = filled(row, 0.0f);
    operands.norm_out = filled(row, 0.0f);
    if (!operands.input || !operands.residual || !operands.gamma || !out || !operands.norm_out)
        return 1;
    if (arfuse_allreduce(workspace, &call, &operands, &error) != ARFUSE_OK)
        return fail(&error);
    for (i = 0; i < row; i++)
        wrong += out[i] != sum;
    /* One line each, whole even when processes write at once. */
    printf("rank %d of %d: %s\n", s->rank, s->size, wrong == 0 ? "right" : "WRONG");
    fflush(stdout);
    free((void *)operands.input);
    free((void *)operands.residual);
    free((void *)operands.gamma);
    free(operands.norm_out);
    free(out);
    if (arfuse_workspace_destroy(&workspace, &error) != ARFUSE_OK)
        return fail(&error);
    return wrong == 0 ? 0 : ARFUSE_WRONG_RESULT;
}

int main(int argc, char **argv)
{
    star s = {0, argc > 1 ? atoi(argv[1]) : 4, {0}};
    int hidden = argc > 2 ? atoi(argv[2]) : 6144, rank, i, code, status;
    if (argc > 3 || s.size < 1 || s.size > MOST) {
        fprintf(stderr, "usage: no_mpi [TP [HIDDEN]], TP 1 to %d\n", MOST);
        return 2;
    }
    for (rank = 1; rank < s.size; rank++) {
        int pair[2];
        pid_t child;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || (child = fork()) < 0)
            return 1;
        if (child == 0) {
            for (i = 1; i < rank; i++)
                close(s.socket[i]); /* process 0's, inherited */
            close(pair[0]);
            s.rank = rank;
            s.socket[0] = pair[1];
            return work(&s, hidden);
        }
        close(pair[1]);
        s.socket[rank] = pair[0];
    }
    code = work(&s, hidden);
    while (wait(&status) > 0)
        if (code == 0)
            code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return code;
}
