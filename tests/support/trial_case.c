/* SPDX-License-Identifier: Apache-2.0 */
#include "support/trial_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

int trial_live_blocks, trial_allocations_left;

static void *plain_allocate(arf_device *device, int local_rank, size_t bytes)
{
    (void)device;
    (void)local_rank;
    if (trial_allocations_left == 0)
        return NULL;
    trial_allocations_left--;
    trial_live_blocks++;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void plain_release(arf_device *device, int local_rank, void *memory)
{
    (void)device;
    (void)local_rank;
    trial_live_blocks--;
    free(memory);
}

static arfuse_status plain_copy(arf_device *device, int local_rank, void *to, const void *from,
                                size_t bytes, arf_error *error)
{
    (void)device;
    (void)local_rank;
    (void)error;
    memcpy(to, from, bytes);
    return ARFUSE_OK;
}

static const arf_device_ops plain_ops = {
    .name = "plain",
    .allocate = plain_allocate,
    .release = plain_release,
    .upload = plain_copy,
    .download = plain_copy,
};
arf_team trial_team;
arf_device trial_device = {.ops = &plain_ops, .team = &trial_team};
arf_error trial_error;

arf_shape trial_shape(int ranks, int hidden, int top_k)
{
    return (arf_shape){.tp_size = ranks,
                       .hidden_size = hidden,
                       .top_k = top_k,
                       .rms_norm = ARF_ON,
                       .residual = ARF_ON,
                       .shared_expert = ARF_ON};
}

arf_trial *trial_make(const arf_shape *shape, int64_t tokens, arf_trial_kind kind, uint64_t seed)
{
    arf_trial *trial = NULL;
    arfuse_status status =
        arf_trial_create(&trial_device, shape, tokens, kind, seed, &trial, &trial_error);
    if (status != ARFUSE_OK)
        fail_msg("%s", trial_error.text);
    return trial;
}

int trial_set_up(void **state)
{
    (void)state;
    trial_live_blocks = 0;
    trial_allocations_left = 1000000;
    arf_error_clear(&trial_error);
    trial_team = (arf_team){.tp_size = 4, .first_rank = 0, .local_ranks = 4};
    return 0;
}

int trial_tear_down(void **state)
{
    (void)state;
    return trial_live_blocks; /* everything was given back */
}

arf_reference_call trial_call(const arf_trial *trial, const arf_shape *shape, arf_pattern pattern,
                              int64_t tokens)
{
    const arf_launch launch = arf_trial_launch(trial, pattern, tokens);
    return (arf_reference_call){.pattern = pattern,
                                .shape = *shape,
                                .tokens = tokens,
                                .epsilon = launch.epsilon,
                                .weight_bias = launch.weight_bias,
                                .routed_scale = launch.routed_scale,
                                .operands = launch.operands};
}

void trial_run(const arf_trial *trial, const arf_reference_call *call)
{
    const arfuse_operands *operands = arf_trial_operands(trial);
    const size_t bytes = (size_t)call->tokens * (size_t)call->shape.hidden_size * sizeof(arf_bf16);
    assert_true(arf_reference(call, operands[0].residual_out, operands[0].norm_out, NULL));
    for (int r = 1; r < trial_team.local_ranks; r++) {
        memcpy(operands[r].residual_out, operands[0].residual_out, bytes);
        if (operands[0].norm_out)
            memcpy(operands[r].norm_out, operands[0].norm_out, bytes);
    }
}

void trial_poison(arf_trial *trial)
{
    assert_int_equal(arf_trial_poison(trial, &trial_error), ARFUSE_OK);
}

void trial_right(arf_trial *trial, arf_pattern pattern, int64_t tokens)
{
    const arfuse_status status = arf_trial_check(trial, pattern, tokens, &trial_error);
    if (status != ARFUSE_OK)
        fail_msg("%s", trial_error.text);
}

void trial_wrong(arf_trial *trial, arf_pattern pattern, int64_t tokens, const char *words)
{
    arf_error_clear(&trial_error);
    assert_int_equal(arf_trial_check(trial, pattern, tokens, &trial_error), ARFUSE_WRONG_RESULT);
    if (!strstr(trial_error.text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, trial_error.text);
    arf_error_clear(&trial_error);
}
