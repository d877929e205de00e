/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong arithmetic that the data of a trial must bring to light, already at one token. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/trial_data.h"
#include "device/trial_expected.h"
#include "support/trial_case.h"

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
        const arf_shape shape = trial_shape(4, 512, 8);
        int seen = 0, seeds = 40;
        for (int seed = 0; seed < seeds; seed++) {
            arf_trial *trial = trial_make(&shape, 1, m->kind, (uint64_t)seed);
            const arf_reference_call call = trial_call(trial, &shape, m->pattern, 1);
            trial_run(trial, &call);
            trial_right(trial, m->pattern, 1);
            m->make(&call, arf_trial_operands(trial)[0].residual_out);
            seen += arf_trial_check(trial, m->pattern, 1, &trial_error) == ARFUSE_WRONG_RESULT;
            arf_error_clear(&trial_error);
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
    trial_team = (arf_team){.tp_size = 2, .first_rank = 0, .local_ranks = 1};
    const arf_shape shape = trial_shape(2, HIDDEN, 0);
    for (int kind = ARF_TRIAL_RANDOM; kind <= ARF_TRIAL_ADVERSARIAL; kind++) {
        arf_trial *trial = trial_make(&shape, TOKENS, (arf_trial_kind)kind, 1);
        const arfuse_operands *operands = arf_trial_operands(trial);
        const arf_launch launch = arf_trial_launch(trial, ARF_ALLREDUCE, TOKENS);
        const arf_trial_data data = arf_trial_data_of(&shape, TOKENS, (arf_trial_kind)kind, 1);
        assert_true(arf_trial_expect(&data, ARF_ALLREDUCE, 0, TOKENS, operands->residual_out,
                                     operands->norm_out));
        trial_right(trial, ARF_ALLREDUCE, TOKENS);
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
            arf_error_clear(&trial_error);
            if (arf_trial_check(trial, ARF_ALLREDUCE, TOKENS, &trial_error) != ARFUSE_WRONG_RESULT)
                fail_msg("%s passed on %s data", mistakes[i].name,
                         arf_trial_kind_name((arf_trial_kind)kind));
            arf_error_clear(&trial_error);
        }
        arf_trial_destroy(trial);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRIAL_TEST(mistakes_show),
        TRIAL_TEST(nearly_right_norms_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
