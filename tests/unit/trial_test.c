/* SPDX-License-Identifier: Apache-2.0 */
/* Trials on a device that is nothing but host memory; calls are computed by the reference. */
#include "device/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device/reference.h"
#include "device/trial_data.h"
#include "device/trial_expected.h"

/* ---- the device -------------------------------------------------------------------------------
 */

static int live_blocks, allocations_left;

static void *plain_allocate(arf_device *device, int local_rank, size_t bytes)
{
    (void)device;
    (void)local_rank;
    if (allocations_left == 0)
        return NULL;
    allocations_left--;
    live_blocks++;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void plain_release(arf_device *device, int local_rank, void *memory)
{
    (void)device;
    (void)local_rank;
    live_blocks--;
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
static arf_team team;
static arf_device device = {.ops = &plain_ops, .team = &team};
static arf_error error;

static arf_shape shape_of(int ranks, int hidden, int top_k)
{
    return (arf_shape){.tp_size = ranks,
                       .hidden_size = hidden,
                       .top_k = top_k,
                       .rms_norm = ARF_ON,
                       .residual = ARF_ON,
                       .shared_expert = ARF_ON};
}

static arf_trial *make(const arf_shape *shape, int64_t tokens, arf_trial_kind kind, uint64_t seed)
{
    arf_trial *trial = NULL;
    arfuse_status status = arf_trial_create(&device, shape, tokens, kind, seed, &trial, &error);
    if (status != ARFUSE_OK)
        fail_msg("%s", error.text);
    return trial;
}

static int set_up(void **state)
{
    (void)state;
    live_blocks = 0;
    allocations_left = 1000000;
    arf_error_clear(&error);
    team = (arf_team){.tp_size = 4, .first_rank = 0, .local_ranks = 4};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return live_blocks; /* everything was given back */
}

/* The call that a test changes before it runs: all ranks, from their operands in memory. */
static arf_reference_call call_of(const arf_trial *trial, const arf_shape *shape,
                                  arf_pattern pattern, int64_t tokens)
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

/* Leaves the call's results on every local rank. */
static void run(const arf_trial *trial, const arf_reference_call *call)
{
    const arfuse_operands *operands = arf_trial_operands(trial);
    const size_t bytes = (size_t)call->tokens * (size_t)call->shape.hidden_size * sizeof(arf_bf16);
    assert_true(arf_reference(call, operands[0].residual_out, operands[0].norm_out, NULL));
    for (int r = 1; r < team.local_ranks; r++) {
        memcpy(operands[r].residual_out, operands[0].residual_out, bytes);
        if (operands[0].norm_out)
            memcpy(operands[r].norm_out, operands[0].norm_out, bytes);
    }
}

static void poison(arf_trial *trial)
{
    assert_int_equal(arf_trial_poison(trial, &error), ARFUSE_OK);
}

static void assert_right(arf_trial *trial, arf_pattern pattern, int64_t tokens)
{
    const arfuse_status status = arf_trial_check(trial, pattern, tokens, &error);
    if (status != ARFUSE_OK)
        fail_msg("%s", error.text);
}

static void assert_wrong(arf_trial *trial, arf_pattern pattern, int64_t tokens, const char *words)
{
    arf_error_clear(&error);
    assert_int_equal(arf_trial_check(trial, pattern, tokens, &error), ARFUSE_WRONG_RESULT);
    if (!strstr(error.text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, error.text);
    arf_error_clear(&error);
}

/* ---- right calls ------------------------------------------------------------------------------
 */

static void right_results_pass_at_every_length(void **state)
{
    (void)state;
    static const int64_t lengths[] = {3, 0, 1, 130, 64, 65, 129};
    for (int kind = 0; kind < ARF_TRIAL_KINDS; kind++) {
        const arf_shape shape = shape_of(4, 72, 5);
        arf_trial *trial = make(&shape, 130, (arf_trial_kind)kind, 11);
        for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
            for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
                poison(trial);
                const arf_reference_call call =
                    call_of(trial, &shape, (arf_pattern)pattern, lengths[i]);
                run(trial, &call);
                assert_right(trial, (arf_pattern)pattern, lengths[i]);
            }
        }
        arf_trial_destroy(trial);
    }
}

static void switches_of_the_shape_are_kept(void **state)
{
    (void)state;
    for (int bits = 0; bits < 16; bits++) {
        arf_shape shape = shape_of(4, 40, bits & 8 ? 3 : 0);
        shape.rms_norm = bits & 1 ? ARF_ON : ARF_OFF;
        shape.residual = bits & 2 ? ARF_ON : ARF_OFF;
        shape.shared_expert = bits & 4 ? ARF_ON : ARF_OFF;
        arf_trial *trial = make(&shape, 9, ARF_TRIAL_ADVERSARIAL, (uint64_t)bits);
        const arfuse_operands *operands = arf_trial_operands(trial);
        assert_int_equal(operands->norm_out != NULL, bits & 1);
        assert_int_equal(operands->gamma != NULL, bits & 1);
        assert_int_equal(operands->residual != NULL, bits >> 1 & 1);
        assert_int_equal(operands->shared != NULL, (bits & 12) == 12);
        assert_int_equal(operands->routed != NULL, bits >> 3 & 1);
        for (int pattern = 0; pattern < (shape.top_k ? 2 : 1); pattern++) {
            poison(trial);
            const arf_reference_call call = call_of(trial, &shape, (arf_pattern)pattern, 9);
            run(trial, &call);
            assert_right(trial, (arf_pattern)pattern, 9);
        }
        arf_trial_destroy(trial);
    }
}

/* A process that hosts ranks 2 and 3 of four makes the same operands and expects the same bits as
 * one that hosts all. */
static void any_split_of_the_team_agrees(void **state)
{
    (void)state;
    const arf_shape shape = shape_of(4, 64, 4);
    arf_trial *all = make(&shape, 20, ARF_TRIAL_RANDOM, 5);
    const arf_reference_call call = call_of(all, &shape, ARF_FINALIZE, 20);
    run(all, &call);
    const arfuse_operands *full = arf_trial_operands(all);

    team.first_rank = 2;
    team.local_ranks = 2;
    arf_trial *part = make(&shape, 20, ARF_TRIAL_RANDOM, 5);
    const arfuse_operands *some = arf_trial_operands(part);
    for (int r = 0; r < 2; r++) {
        assert_memory_equal(some[r].input, full[2 + r].input, 20 * 64 * 2);
        assert_memory_equal(some[r].shared, full[2 + r].shared, 20 * 64 * 2);
        assert_memory_equal(some[r].residual, full[0].residual, 20 * 64 * 2);
        assert_memory_equal(some[r].indices, full[2 + r].indices, 20 * 4 * 4);
        assert_memory_equal(some[r].weights, full[2 + r].weights, 20 * 4 * 4);
        memcpy(some[r].residual_out, full[0].residual_out, 20 * 64 * 2);
        memcpy(some[r].norm_out, full[0].norm_out, 20 * 64 * 2);
    }
    assert_memory_not_equal(full[0].input, full[1].input, 20 * 64 * 2);
    assert_right(part, ARF_FINALIZE, 20);
    arf_trial_destroy(part);

    /* Another seed, other operands. */
    arf_trial *other = make(&shape, 20, ARF_TRIAL_RANDOM, 6);
    assert_memory_not_equal(arf_trial_operands(other)[0].input, full[2].input, 20 * 64 * 2);
    arf_trial_destroy(other);
    team.first_rank = 0;
    team.local_ranks = 4;
    arf_trial_destroy(all);
}

static void ranks_are_counted(void **state)
{
    (void)state;
    team = (arf_team){.tp_size = 8, .first_rank = 0, .local_ranks = 8};
    for (int with_shared = 0; with_shared < 2; with_shared++) {
        for (int top_k = 1; top_k <= 10; top_k += 3) {
            arf_shape shape = shape_of(8, 256, top_k);
            shape.shared_expert = with_shared ? ARF_ON : ARF_OFF;
            arf_trial *trial = make(&shape, 4, ARF_TRIAL_COUNT_RANKS, 1);
            for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
                poison(trial);
                const arf_reference_call call = call_of(trial, &shape, (arf_pattern)pattern, 4);
                run(trial, &call);
                assert_right(trial, (arf_pattern)pattern, 4);
                const arfuse_operands *operands = arf_trial_operands(trial);
                for (int i = 0; i < 4 * 256; i++)
                    assert_int_equal(((arf_bf16 *)operands[7].residual_out)[i], 0x437f); /* 255 */
            }
            arf_trial_destroy(trial);
        }
    }
}

/* ---- wrong calls ------------------------------------------------------------------------------
 */

static void one_wrong_bit_is_named(void **state)
{
    (void)state;
    const arf_shape shape = shape_of(4, 64, 0);
    arf_trial *trial = make(&shape, 100, ARF_TRIAL_COUNT_RANKS, 3);
    const arf_reference_call call = call_of(trial, &shape, ARF_ALLREDUCE, 90);
    run(trial, &call);
    const arfuse_operands *operands = arf_trial_operands(trial);
    arf_bf16 *norm = operands[2].norm_out, *x = operands[3].residual_out;

    norm[70 * 64 + 17] ^= 1;
    assert_wrong(trial, ARF_ALLREDUCE, 90,
                 "allreduce of 90 tokens on count-ranks data: rank 2, norm_out, token 70, element "
                 "17 is 1.0078125 (0x3f81), expected 1 (0x3f80) (1 elements");
    norm[70 * 64 + 17] ^= 1;
    assert_right(trial, ARF_ALLREDUCE, 90);

    x[89 * 64 + 63] = 0x7fc1;
    assert_wrong(trial, ARF_ALLREDUCE, 90,
                 "rank 3, residual_out, token 89, element 63 is not written, expected 15 (0x4170)");
    x[89 * 64 + 63] = 0x4170;

    x[90 * 64 + 1] = 0; /* behind the call */
    assert_wrong(trial, ARF_ALLREDUCE, 90,
                 "rank 3, residual_out, token 90, element 1 is 0 (0x0000), but the call ends");
    arf_trial_destroy(trial);
}

static void another_nan_is_wrong(void **state)
{
    (void)state;
    const arf_shape shape = shape_of(4, 256, 0);
    arf_trial *trial = make(&shape, 64, ARF_TRIAL_ADVERSARIAL, 3);
    const arf_reference_call call = call_of(trial, &shape, ARF_ALLREDUCE, 64);
    run(trial, &call);
    arf_bf16 *x = arf_trial_operands(trial)[1].residual_out;
    int at = 0;
    while (at < 64 * 256 && x[at] != 0x7fff)
        at++;
    assert_true(at < 64 * 256);
    x[at] = 0x7fc0;
    assert_wrong(trial, ARF_ALLREDUCE, 64, "expected nan (0x7fff)");
    arf_trial_destroy(trial);
}

/* ---- wrong arithmetic: what the data must bring to light, already at one token ----------------
 */

typedef struct mistake {
    const char *name;
    arf_pattern pattern;
    arf_trial_kind kind;
    void (*make)(const arf_reference_call *call, arf_bf16 *x);
} mistake;

static const arf_bf16 *input_of(const arf_reference_call *call, int rank)
{
    return call->operands[rank].input;
}

static float residual_of(const arf_reference_call *call, int h)
{
    return arf_bf16_to_float(((const arf_bf16 *)call->operands[0].residual)[h]);
}

static void ranks_in_a_row(const arf_reference_call *call, arf_bf16 *x)
{
    for (int h = 0; h < call->shape.hidden_size; h++) {
        float sum = 0.0f;
        for (int r = 0; r < call->shape.tp_size; r++)
            sum += arf_bf16_to_float(arf_contribution(input_of(call, r)[h]));
        x[h] = arf_float_to_bf16(sum + residual_of(call, h));
    }
}

static void residual_first(const arf_reference_call *call, arf_bf16 *x)
{
    for (int h = 0; h < call->shape.hidden_size; h++) {
        float term[ARF_MAX_RANKS];
        for (int r = 0; r < call->shape.tp_size; r++)
            term[r] = arf_bf16_to_float(arf_contribution(input_of(call, r)[h]));
        term[0] += residual_of(call, h);
        x[h] = arf_float_to_bf16(arf_tree_sum(term, call->shape.tp_size));
    }
}

static void bf16_partial_sums(const arf_reference_call *call, arf_bf16 *x)
{
    for (int h = 0; h < call->shape.hidden_size; h++) {
        arf_bf16 sum = 0;
        for (int r = 0; r < call->shape.tp_size; r++)
            sum = arf_float_to_bf16(arf_bf16_to_float(sum) +
                                    arf_bf16_to_float(arf_contribution(input_of(call, r)[h])));
        x[h] = arf_float_to_bf16(arf_bf16_to_float(sum) + residual_of(call, h));
    }
}

/* Finalize with the mistake in each rank's contribution; the rest is right. */
static void finalize_with(const arf_reference_call *call, arf_bf16 *x,
                          void (*change)(arfuse_operands *operands, const arf_shape *shape))
{
    const int top_k = call->shape.top_k;
    arfuse_operands operands[8];
    int32_t indices[8][16];
    float weights[8][16];
    for (int r = 0; r < call->shape.tp_size; r++) {
        operands[r] = call->operands[r];
        memcpy(indices[r], operands[r].indices, (size_t)top_k * sizeof indices[r][0]);
        memcpy(weights[r], operands[r].weights,
               (size_t)top_k * (operands[r].weights_type == ARFUSE_WEIGHTS_FP32 ? 4 : 2));
        operands[r].indices = indices[r];
        operands[r].weights = weights[r];
        change(&operands[r], &call->shape);
    }
    arf_reference_call changed = *call;
    changed.operands = operands;
    assert_true(arf_reference(&changed, x, NULL, NULL));
}

static void reverse(arfuse_operands *operands, const arf_shape *shape)
{
    int32_t *indices = (int32_t *)(uintptr_t)operands->indices;
    float *weights = (float *)(uintptr_t)operands->weights;
    for (int k = 0; k < shape->top_k / 2; k++) {
        const int other = shape->top_k - 1 - k;
        const int32_t index = indices[k];
        const float weight = weights[k];
        indices[k] = indices[other];
        weights[k] = weights[other];
        indices[other] = index;
        weights[other] = weight;
    }
}

static void slots_backwards(const arf_reference_call *call, arf_bf16 *x)
{
    finalize_with(call, x, reverse);
}

static void clamp(arfuse_operands *operands, const arf_shape *shape)
{
    int32_t *indices = (int32_t *)(uintptr_t)operands->indices;
    for (int k = 0; k < shape->top_k; k++)
        indices[k] = indices[k] < 0 ? 0 : indices[k];
}

static void dropped_is_row_0(const arf_reference_call *call, arf_bf16 *x)
{
    finalize_with(call, x, clamp);
}

static void wrap(arfuse_operands *operands, const arf_shape *shape)
{
    int32_t *indices = (int32_t *)(uintptr_t)operands->indices;
    for (int k = 0; k < shape->top_k; k++)
        indices[k] = indices[k] < 0 ? (int32_t)operands->routed_rows - 1 : indices[k];
}

static void dropped_is_the_last_row(const arf_reference_call *call, arf_bf16 *x)
{
    finalize_with(call, x, wrap);
}

/* Reads routed[-1], which must be readable and NaN. */
static void step_back(arfuse_operands *operands, const arf_shape *shape)
{
    int32_t *indices = (int32_t *)(uintptr_t)operands->indices;
    operands->routed = (const arf_bf16 *)operands->routed - shape->hidden_size;
    for (int k = 0; k < shape->top_k; k++)
        indices[k]++;
}

static void dropped_is_the_row_before(const arf_reference_call *call, arf_bf16 *x)
{
    finalize_with(call, x, step_back);
}

static void skip_zero(arfuse_operands *operands, const arf_shape *shape)
{
    int32_t *indices = (int32_t *)(uintptr_t)operands->indices;
    for (int k = 0; k < shape->top_k; k++)
        if ((((const arf_bf16 *)operands->weights)[k] & 0x7fff) == 0)
            indices[k] = -1;
}

static void weight_0_is_skipped(const arf_reference_call *call, arf_bf16 *x)
{
    finalize_with(call, x, skip_zero);
}

static void mistakes_show(void **state)
{
    (void)state;
    static const mistake mistakes[] = {
        {"ranks in a row", ARF_ALLREDUCE, ARF_TRIAL_RANDOM, ranks_in_a_row},
        {"ranks in a row", ARF_ALLREDUCE, ARF_TRIAL_ADVERSARIAL, ranks_in_a_row},
        {"residual first", ARF_ALLREDUCE, ARF_TRIAL_RANDOM, residual_first},
        {"bf16 partial sums", ARF_ALLREDUCE, ARF_TRIAL_RANDOM, bf16_partial_sums},
        {"slots backwards", ARF_FINALIZE, ARF_TRIAL_RANDOM, slots_backwards},
        {"dropped is row 0", ARF_FINALIZE, ARF_TRIAL_ADVERSARIAL, dropped_is_row_0},
        {"dropped is the last", ARF_FINALIZE, ARF_TRIAL_ADVERSARIAL, dropped_is_the_last_row},
        {"dropped is the one before", ARF_FINALIZE, ARF_TRIAL_ADVERSARIAL,
         dropped_is_the_row_before},
        {"weight 0 is skipped", ARF_FINALIZE, ARF_TRIAL_ADVERSARIAL, weight_0_is_skipped},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        const mistake *m = &mistakes[i];
        const arf_shape shape = shape_of(4, 512, 8);
        int seen = 0, seeds = 40;
        for (int seed = 0; seed < seeds; seed++) {
            arf_trial *trial = make(&shape, 1, m->kind, (uint64_t)seed);
            const arf_reference_call call = call_of(trial, &shape, m->pattern, 1);
            run(trial, &call);
            assert_right(trial, m->pattern, 1);
            m->make(&call, arf_trial_operands(trial)[0].residual_out);
            seen += arf_trial_check(trial, m->pattern, 1, &error) == ARFUSE_WRONG_RESULT;
            arf_error_clear(&error);
            arf_trial_destroy(trial);
        }
        /* Random data bring a wrong order to light each time. Adversarial ones of one token have a
         * theme, and most mistakes need a particular one. */
        const int enough = m->kind == ARF_TRIAL_RANDOM ? seeds : 2;
        if (seen < enough)
            fail_msg("%s: seen with %d of %d seeds", m->name, seen, seeds);
    }
}

/* Norms that are nearly right, from the right x. A last bit of inv turns over about one norm in
 * 2^16, so it takes a large call to see it. */

static float pack_squares_at(const arf_bf16 *x, int pack)
{
    return arf_pack_squares(x + pack * ARF_PACK);
}

static float packs_in_a_row(const arf_bf16 *x, int hidden)
{
    float sum = 0.0f;
    for (int pack = 0; pack < hidden / ARF_PACK; pack++)
        sum += pack_squares_at(x, pack);
    return sum;
}

/* As 32 threads would that each take every 32nd pack. */
static float packs_by_stripes(const arf_bf16 *x, int hidden)
{
    float stripe[32] = {0.0f};
    for (int pack = 0; pack < hidden / ARF_PACK; pack++)
        stripe[pack % 32] += pack_squares_at(x, pack);
    return arf_tree_sum(stripe, 32);
}

static float right_squares(const arf_bf16 *x, int hidden)
{
    return arf_squares_row(x, hidden);
}

static float right_inverse(float sum, int hidden, float epsilon)
{
    return arf_inverse_rms(sum, hidden, epsilon);
}

static float fused_inverse(float sum, int hidden, float epsilon)
{
    return (float)(1.0 / sqrt((double)(sum / (float)hidden + epsilon)));
}

static float by_reciprocal_of_hidden(float sum, int hidden, float epsilon)
{
    return 1.0f / sqrtf(sum * (1.0f / (float)hidden) + epsilon);
}

static void nearly_right_norms_show(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        arf_trial_kind kind; /* which shows it */
        float (*squares)(const arf_bf16 *x, int hidden);
        float (*inverse)(float sum, int hidden, float epsilon);
    } mistakes[] = {
        {"packs in a row", ARF_TRIAL_ADVERSARIAL, packs_in_a_row, right_inverse},
        {"packs by stripes", ARF_TRIAL_ADVERSARIAL, packs_by_stripes, right_inverse},
        {"fused reciprocal square root", ARF_TRIAL_RANDOM, right_squares, fused_inverse},
        {"reciprocal of H", ARF_TRIAL_RANDOM, right_squares, by_reciprocal_of_hidden},
    };
    enum { HIDDEN = 6144, TOKENS = 256 };
    team = (arf_team){.tp_size = 2, .first_rank = 0, .local_ranks = 1};
    const arf_shape shape = shape_of(2, HIDDEN, 0);
    for (int kind = ARF_TRIAL_RANDOM; kind <= ARF_TRIAL_ADVERSARIAL; kind++) {
        arf_trial *trial = make(&shape, TOKENS, (arf_trial_kind)kind, 1);
        const arfuse_operands *operands = arf_trial_operands(trial);
        const arf_launch launch = arf_trial_launch(trial, ARF_ALLREDUCE, TOKENS);
        const arf_trial_data data = arf_trial_data_of(&shape, TOKENS, (arf_trial_kind)kind, 1);
        assert_true(arf_trial_expect(&data, ARF_ALLREDUCE, 0, TOKENS, operands->residual_out,
                                     operands->norm_out));
        assert_right(trial, ARF_ALLREDUCE, TOKENS);
        for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
            if ((int)mistakes[i].kind != kind)
                continue;
            for (int token = 0; token < TOKENS; token++) {
                const arf_bf16 *x = (arf_bf16 *)operands->residual_out + token * HIDDEN;
                const float sum = mistakes[i].squares(x, HIDDEN);
                arf_normalise_row(x, mistakes[i].inverse(sum, HIDDEN, launch.epsilon),
                                  operands->gamma, launch.weight_bias, HIDDEN,
                                  (arf_bf16 *)operands->norm_out + token * HIDDEN);
            }
            arf_error_clear(&error);
            if (arf_trial_check(trial, ARF_ALLREDUCE, TOKENS, &error) != ARFUSE_WRONG_RESULT)
                fail_msg("%s passed on %s data", mistakes[i].name,
                         arf_trial_kind_name((arf_trial_kind)kind));
            arf_error_clear(&error);
        }
        arf_trial_destroy(trial);
    }
}

/* ---- what the data holds ----------------------------------------------------------------------
 */

static void adversarial_data_are_what_they_claim(void **state)
{
    (void)state;
    const arf_shape shape = shape_of(4, 512, 8);
    const arf_trial_data data = arf_trial_data_of(&shape, 64, ARF_TRIAL_ADVERSARIAL, 1);
    int sentinel = 0, subnormal = 0, tiny_one = 0, nan = 0, infinite = 0, cancel = 0;
    arf_bf16 row[512];
    for (int rank = 0; rank < 4; rank++) {
        for (int64_t token = 0; token < 64; token++) {
            arf_trial_input(&data, rank, token, row);
            for (int h = 0; h < 512; h++) {
                const unsigned size = row[h] & 0x7fffu;
                sentinel += row[h] == ARF_SENTINEL;
                subnormal += size > 0 && size < 0x80;
                tiny_one += row[h] == 0x8001;
                nan += size > 0x7f80;
                infinite += size == 0x7f80;
                cancel += size == 0x4b80;
            }
        }
    }
    assert_true(sentinel > 1000 && subnormal > 1000 && tiny_one > 100);
    assert_true(nan > 100 && infinite > 100 && cancel > 1000);

    int dropped = 0, all_dropped = 0, repeated = 0, zero = 0;
    for (int64_t token = 0; token < 64; token++) {
        int32_t indices[8];
        arf_bf16 weights[8];
        arf_trial_slots(&data, 0, token, indices, weights);
        int drops = 0, repeats = 0;
        for (int k = 0; k < 8; k++) {
            assert_true(indices[k] == -1 || (indices[k] >= 1 && indices[k] < data.routed_rows - 1));
            drops += indices[k] == -1;
            repeats += indices[k] == indices[0] && indices[0] >= 0;
            zero += weights[k] == 0;
        }
        dropped += drops;
        all_dropped += drops == 8;
        repeated += repeats == 8;
    }
    assert_true(dropped > 50 && all_dropped > 0 && repeated > 0 && zero > 5);
    arf_trial_routed(&data, 0, 0, row);
    assert_true((row[5] & 0x7fff) > 0x7f80);
    arf_trial_routed(&data, 0, data.routed_rows - 1, row);
    assert_true((row[5] & 0x7fff) > 0x7f80);
}

/* The norm of most adversarial tokens must say something: not NaN or zero throughout. */
static void most_norms_are_finite(void **state)
{
    (void)state;
    const arf_shape shape = shape_of(4, 256, 8);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        arf_trial *trial = make(&shape, 64, ARF_TRIAL_ADVERSARIAL, 2);
        const arf_reference_call call = call_of(trial, &shape, (arf_pattern)pattern, 64);
        run(trial, &call);
        int telling = 0;
        for (int token = 0; token < 64; token++) {
            const arf_bf16 *norm =
                (const arf_bf16 *)arf_trial_operands(trial)[0].norm_out + token * 256;
            int finite = 0;
            for (int h = 0; h < 256; h++)
                finite += (norm[h] & 0x7fff) != 0 && (norm[h] & 0x7fff) < 0x7f80;
            telling += finite > 64;
        }
        if (telling < 24)
            fail_msg("pattern %d: %d of 64 tokens", pattern, telling);
        arf_trial_destroy(trial);
    }
}

static void memory_is_modest(void **state)
{
    (void)state;
    const arf_shape shape = shape_of(8, 6144, 10);
    assert_int_equal(arf_trial_data_of(&shape, 256, ARF_TRIAL_RANDOM, 1).routed_rows, 4 * 256 + 2);
    const arf_shape narrow = shape_of(8, 6144, 2);
    assert_int_equal(arf_trial_data_of(&narrow, 256, ARF_TRIAL_RANDOM, 1).routed_rows, 2 * 256 + 2);
}

/* ---- refusals ---------------------------------------------------------------------------------
 */

static void refusals_leave_nothing_behind(void **state)
{
    (void)state;
    const arf_shape shape = shape_of(4, 64, 4);
    arf_trial *trial = NULL;
    assert_int_equal(arf_trial_create(&device, &shape, 0, ARF_TRIAL_RANDOM, 1, &trial, &error),
                     ARFUSE_USAGE);
    arf_error_clear(&error);
    for (int left = 0; left < 36; left++) { /* nine tensors of four ranks */
        allocations_left = left;
        assert_int_equal(arf_trial_create(&device, &shape, 8, ARF_TRIAL_RANDOM, 1, &trial, &error),
                         ARFUSE_FAILURE);
        assert_non_null(strstr(error.text, left < 9 ? "rank 0: no memory" : "no memory"));
        assert_null(trial);
        assert_int_equal(live_blocks, 0);
        arf_error_clear(&error);
    }
    allocations_left = 36;
    trial = make(&shape, 8, ARF_TRIAL_RANDOM, 1);
    assert_int_equal(arf_trial_check(trial, ARF_ALLREDUCE, 9, &error), ARFUSE_USAGE);
    arf_error_clear(&error);
    assert_wrong(trial, ARF_ALLREDUCE, 8,
                 "rank 0, residual_out, token 0, element 0 is not written");
    arf_trial_destroy(trial);
    arf_trial_destroy(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(right_results_pass_at_every_length),
        TEST(switches_of_the_shape_are_kept),
        TEST(any_split_of_the_team_agrees),
        TEST(ranks_are_counted),
        TEST(one_wrong_bit_is_named),
        TEST(another_nan_is_wrong),
        TEST(mistakes_show),
        TEST(nearly_right_norms_show),
        TEST(adversarial_data_are_what_they_claim),
        TEST(most_norms_are_finite),
        TEST(memory_is_modest),
        TEST(refusals_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
