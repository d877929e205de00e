/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decode loop as engines have it: one graph for each batch size, captured before serving starts,
 * replayed as the batch grows and shrinks; the status polled once a step.
 *
 * Usage: decode_loop [host|cuda [STEPS [PROFILE RANKS HIDDEN TOPK]]]
 *
 * 40 steps of 4 ranks at hidden size 2048, unless given. The host has no graphs: there every step
 * is a call. Without a profile the options ask for default routes, which stands before
 * ARFUSE_PROFILE and ARFUSE_ROUTES.
 *
 * Rank r adds 2^r to a token whose residual stream is 0, and takes it away from one whose stream is
 * not, in place, so a wrong sum stays wrong until the rank is looked at: one a step, all at the
 * end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arfuse.h"
#include "device_memory.h"

#define MOST_RANKS 8 /* 2^8 - 1 is exact in bf16, 2^9 - 1 is not */
#define LARGEST 64
#define SIZES 4

static const int batch_sizes[SIZES] = {1, 4, 16, LARGEST};

typedef struct loop {
    example_device device;
    arfuse_workspace *workspace;
    int ranks, hidden;
    arfuse_operands operands[MOST_RANKS];
    cuda_graph graph[SIZES];
    uint16_t *staging; /* [LARGEST, hidden] on the host */
} loop;

static uint16_t bf16(float value) /* exact values only */
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void check(arfuse_status status, const arfuse_error *error)
{
    if (status == ARFUSE_OK)
        return;
    fprintf(stderr, "decode_loop: %s\n", error->text);
    exit((int)status);
}

static void fill(loop *l, const void *tensor, size_t rows, float value)
{
    const size_t count = rows * (size_t)l->hidden;
    size_t i;
    for (i = 0; i < count; i++)
        l->staging[i] = bf16(value);
    device_upload(&l->device, (void *)(uintptr_t)tensor, l->staging, count * 2);
}

static void log_line(void *context, arfuse_log_level level, const char *line)
{
    (void)context, (void)level;
    fprintf(stderr, "decode_loop: %s\n", line);
}

/* ---- before serving -------------------------------------------------------------------------- */

static void set_up(loop *l, int cuda, const char *profile, int top_k)
{
    const size_t bytes = (size_t)LARGEST * (size_t)l->hidden * 2;
    arfuse_options options = ARFUSE_OPTIONS_INIT;
    arfuse_error error = ARFUSE_ERROR_INIT;
    int rank;
    device_open(&l->device, cuda);
    options.hidden_size = l->hidden;
    options.top_k = top_k;
    options.local_ranks = l->ranks; /* an engine has 1, and a bootstrap */
    options.capacity = LARGEST;
    options.device = cuda ? "cuda" : "host";
    options.profile = profile;
    if (profile == NULL)
        options.routes[ARFUSE_ALLREDUCE] = ARFUSE_ROUTES_DEFAULT;
    options.log = log_line;
    options.log_level = ARFUSE_LOG_INFO;
    check(arfuse_workspace_create(NULL, &options, &l->workspace, &error), &error);
    l->staging = malloc(bytes);
    if (l->staging == NULL)
        exit(1);
    for (rank = 0; rank < l->ranks; rank++) {
        arfuse_operands set = ARFUSE_OPERANDS_INIT;
        set.input = device_allocate(&l->device, bytes);
        set.residual = set.residual_out = device_allocate(&l->device, bytes);
        set.gamma = device_allocate(&l->device, (size_t)l->hidden * 2);
        set.norm_out = device_allocate(&l->device, bytes);
        fill(l, set.gamma, 1, 1.0f);
        fill(l, set.residual, LARGEST, 0.0f);
        l->operands[rank] = set;
    }
}

static void call(loop *l, int tokens)
{
    arfuse_call one = ARFUSE_CALL_INIT;
    arfuse_error error = ARFUSE_ERROR_INIT;
    one.tokens = tokens;
    one.stream = l->device.stream;
    check(arfuse_allreduce(l->workspace, &one, l->operands, &error), &error);
}

/* Nothing is set up lazily, so that even the first call may be captured. */
static void capture_all(loop *l)
{
    int i;
    for (i = 0; i < SIZES && l->device.cuda; i++) {
        device_begin_capture(&l->device);
        call(l, batch_sizes[i]);
        l->graph[i] = device_end_capture(&l->device);
    }
}

/* ---- serving --------------------------------------------------------------------------------- */

/* Stands for the model: what this rank adds to each token. */
static void make_input(loop *l, int rank, int tokens, const float *stream)
{
    int token, h;
    for (token = 0; token < tokens; token++)
        for (h = 0; h < l->hidden; h++)
            l->staging[token * l->hidden + h] =
                bf16((float)(stream[token] > 0 ? -(1 << rank) : 1 << rank));
    device_upload(&l->device, (void *)(uintptr_t)l->operands[rank].input, l->staging,
                  (size_t)tokens * (size_t)l->hidden * 2);
}

/* Values of a rank's residual stream that are not what they must be. */
static int look(loop *l, int rank, const float *stream)
{
    int token, h, wrong = 0;
    device_download(&l->device, l->staging, l->operands[rank].residual_out,
                    (size_t)LARGEST * (size_t)l->hidden * 2);
    for (token = 0; token < LARGEST; token++)
        for (h = 0; h < l->hidden; h++)
            wrong += l->staging[token * l->hidden + h] != bf16(stream[token]);
    return wrong;
}

static void step(loop *l, int size, float *stream)
{
    const int tokens = batch_sizes[size];
    arfuse_error error = ARFUSE_ERROR_INIT;
    arfuse_culprit culprit;
    int rank, i;
    for (rank = 0; rank < l->ranks; rank++)
        make_input(l, rank, tokens, stream);
    if (l->device.cuda)
        device_check(l->device.launch(l->graph[size], l->device.stream), "cuGraphLaunch");
    else
        call(l, tokens);
    for (i = 0; i < tokens; i++)
        stream[i] = (float)((1 << l->ranks) - 1) - stream[i];
    if (l->device.cuda)
        device_check(l->device.synchronize(l->device.stream), "cuStreamSynchronize");
    memset(&culprit, 0, sizeof culprit);
    culprit.struct_size = sizeof culprit;
    if (arfuse_workspace_status(l->workspace, &culprit) != ARFUSE_OK) {
        fprintf(stderr, "decode_loop: rank %d did not arrive\n", culprit.rank);
        exit(ARFUSE_TIMEOUT);
    }
    check(arfuse_end_step(l->workspace, &error), &error);
}

static void tear_down(loop *l)
{
    arfuse_error error = ARFUSE_ERROR_INIT;
    int i, rank;
    for (i = 0; i < SIZES; i++)
        if (l->graph[i] != NULL)
            l->device.drop(l->graph[i]); /* before the workspace that they use */
    for (rank = 0; rank < l->ranks; rank++) {
        device_release(&l->device, (void *)(uintptr_t)l->operands[rank].input);
        device_release(&l->device, l->operands[rank].residual_out);
        device_release(&l->device, (void *)(uintptr_t)l->operands[rank].gamma);
        device_release(&l->device, l->operands[rank].norm_out);
    }
    free(l->staging);
    check(arfuse_workspace_destroy(&l->workspace, &error), &error);
}

int main(int argc, char **argv)
{
    const char *device = argc > 1 ? argv[1] : "host", *profile = argc > 3 ? argv[3] : NULL;
    const int steps = argc > 2 ? atoi(argv[2]) : 40, top_k = argc > 6 ? atoi(argv[6]) : 0;
    static loop l;
    static float stream[LARGEST]; /* what the residual stream must be, by token */
    unsigned dice = 1;
    int i, rank, wrong = 0;
    l.ranks = argc > 4 ? atoi(argv[4]) : 4;
    l.hidden = argc > 5 ? atoi(argv[5]) : 2048;
    if ((argc > 3 && argc != 7) || argc > 7 || steps < 1 || l.ranks < 1 || l.ranks > MOST_RANKS ||
        (strcmp(device, "host") != 0 && strcmp(device, "cuda") != 0)) {
        fprintf(stderr,
                "usage: decode_loop [host|cuda [STEPS [PROFILE RANKS HIDDEN TOPK]]]\n"
                "RANKS at most %d\n",
                MOST_RANKS);
        return 2;
    }
    set_up(&l, strcmp(device, "cuda") == 0, profile, top_k);
    capture_all(&l);
    for (i = 0; i < steps && wrong == 0; i++) {
        dice = dice * 1664525 + 1013904223;
        step(&l, (int)(dice >> 16) % SIZES, stream);
        wrong = look(&l, i % l.ranks, stream);
        if (wrong != 0)
            fprintf(stderr, "decode_loop: step %d: %d values of rank %d are wrong\n", i, wrong,
                    i % l.ranks);
    }
    for (rank = 0; rank < l.ranks && wrong == 0; rank++) {
        wrong = look(&l, rank, stream);
        if (wrong != 0)
            fprintf(stderr, "decode_loop: at the end %d values of rank %d are wrong\n", wrong,
                    rank);
    }
    if (wrong == 0)
        printf("%d steps on %s: right\n", steps, device);
    tear_down(&l);
    return wrong == 0 ? 0 : ARFUSE_WRONG_RESULT;
}
