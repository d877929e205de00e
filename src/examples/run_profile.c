/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs both operations by a profile and checks the bits. All ranks of the team live in this process
 * (local ranks); an engine has one process a rank and passes its own allgather and barrier.
 *
 * Usage: run_profile PROFILE [TP HIDDEN TOPK]      (8 6144 10)
 *
 * Rank r contributes 2^r to every element, so the sum is 2^TP - 1 and any other value would name
 * the rank that is missing or counted twice.
 */
#include <stdio.h>
#include <stdlib.h>

#include "arfuse.h"

#define TOKENS 4
#define MOST_RANKS 8 /* 2^8 - 1 is exact in bf16, 2^9 - 1 is not */

static uint16_t bf16(float value) /* exact values only */
{
    union {
        float value;
        uint32_t bits;
    } u;
    u.value = value;
    return (uint16_t)(u.bits >> 16);
}

static void *filled(size_t count, float value)
{
    uint16_t *tensor = aligned_alloc(64, (count * 2 + 63) / 64 * 64);
    size_t i;
    if (tensor == NULL) {
        fprintf(stderr, "run_profile: out of memory\n");
        exit(1);
    }
    for (i = 0; i < count; i++)
        tensor[i] = bf16(value);
    return tensor;
}

static int all_equal(const uint16_t *tensor, size_t count, uint16_t bits)
{
    size_t i;
    for (i = 0; i < count; i++)
        if (tensor[i] != bits)
            return 0;
    return 1;
}

int main(int argc, char **argv)
{
    int tp = argc > 2 ? atoi(argv[2]) : 8, rank, k, operation;
    size_t hidden = argc > 3 ? (size_t)atoi(argv[3]) : 6144, row = TOKENS * hidden;
    int top_k = argc > 4 ? atoi(argv[4]) : 10;
    static int32_t indices[TOKENS * 64]; /* every slot but the first of a token is dropped */
    arfuse_bootstrap alone = ARFUSE_BOOTSTRAP_INIT;
    arfuse_options options = ARFUSE_OPTIONS_INIT;
    arfuse_operands operands[MOST_RANKS];
    arfuse_call call = ARFUSE_CALL_INIT;
    arfuse_workspace *workspace;
    arfuse_error error = ARFUSE_ERROR_INIT;
    char why[1024];

    if (argc < 2 || argc > 5 || argv[1][0] == '-' || tp < 1 || tp > MOST_RANKS) {
        fprintf(stderr, "usage: run_profile PROFILE [TP HIDDEN TOPK], TP at most %d\n", MOST_RANKS);
        return 2;
    }
    options.profile = argv[1];
    options.hidden_size = (int)hidden;
    options.top_k = top_k;
    options.capacity = 64;
    options.local_ranks = tp;
    options.device = "host";
    if (arfuse_workspace_create(&alone, &options, &workspace, &error) != ARFUSE_OK) {
        fprintf(stderr, "run_profile: %s\n", error.text);
        return error.status;
    }

    for (k = 0; k < TOKENS * top_k; k++)
        indices[k] = k % top_k == 0 ? k / top_k : -1;
    for (rank = 0; rank < tp; rank++) {
        arfuse_operands set = ARFUSE_OPERANDS_INIT;
        set.input = set.routed = filled(row, (float)(1 << rank));
        set.routed_rows = TOKENS;
        set.weights = filled((size_t)TOKENS * 64, 1.0f);
        set.indices = indices;
        set.shared = set.residual = filled(row, 0.0f);
        set.gamma = filled(hidden, 1.0f);
        set.residual_out = filled(row, -1.0f);
        set.norm_out = filled(row, -1.0f);
        operands[rank] = set;
    }

    call.tokens = TOKENS;
    for (operation = ARFUSE_ALLREDUCE; operation <= (top_k > 0 ? ARFUSE_FINALIZE : 0);
         operation++) {
        if ((operation == ARFUSE_FINALIZE ? arfuse_finalize : arfuse_allreduce)(
                workspace, &call, operands, &error) != ARFUSE_OK) {
            fprintf(stderr, "run_profile: %s\n", error.text);
            return error.status;
        }
        for (rank = 0; rank < tp; rank++)
            if (!all_equal(operands[rank].residual_out, row, bf16((float)((1 << tp) - 1))) ||
                !all_equal(operands[rank].norm_out, row, bf16(1.0f))) {
                fprintf(stderr, "run_profile: rank %d has wrong bits\n", rank);
                return ARFUSE_WRONG_RESULT;
            }
        arfuse_explain(workspace, (arfuse_pattern)operation, &call, why, sizeof why);
        printf("%s: right on %d ranks\n", why, tp);
    }
    for (rank = 0; rank < tp; rank++) {
        free((void *)operands[rank].input); /* and routed */
        free((void *)operands[rank].weights);
        free((void *)operands[rank].residual); /* and shared */
        free((void *)operands[rank].gamma);
        free(operands[rank].residual_out);
        free(operands[rank].norm_out);
    }
    return arfuse_workspace_destroy(&workspace, &error);
}
