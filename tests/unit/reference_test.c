/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference against a second implementation that shares no arithmetic with it, and against
 * results worked out by hand. Where a case comes from a public report, its address stands there.
 */
#include "device/reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/floats.h"

enum { MAX_RANKS = 9, MAX_TOKENS = 8, MAX_HIDDEN = 6144, MAX_TOP_K = 10, ROWS = 24 };

/* Host operands of one call; every buffer is the largest any test needs. */
typedef struct bench {
    arf_bf16 input[MAX_RANKS][MAX_TOKENS * MAX_HIDDEN];
    arf_bf16 routed[MAX_RANKS][ROWS * MAX_HIDDEN];
    arf_bf16 shared[MAX_RANKS][MAX_TOKENS * MAX_HIDDEN];
    float weights[MAX_RANKS][MAX_TOKENS * MAX_TOP_K];
    arf_bf16 narrow_weights[MAX_RANKS][MAX_TOKENS * MAX_TOP_K];
    int32_t indices[MAX_RANKS][MAX_TOKENS * MAX_TOP_K];
    arf_bf16 residual[MAX_TOKENS * MAX_HIDDEN], gamma[MAX_HIDDEN];
    arf_bf16 x[MAX_TOKENS * MAX_HIDDEN], norm[MAX_TOKENS * MAX_HIDDEN];
    float inv[MAX_TOKENS];
    /* Longer than the library's struct, as a caller built against a newer header has it. */
    struct {
        arfuse_operands known;
        char newer[24];
    } operands[MAX_RANKS];
    arf_reference_call call;
} bench;

static bench *b; /* made anew for each test */

static int set_up(void **state)
{
    (void)state;
    b = calloc(1, sizeof *b);
    return b ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(b);
    return 0;
}

static void fill(arf_bf16 *to, int count, float value)
{
    for (int i = 0; i < count; i++)
        to[i] = second_bf16(value);
}

static void fill_bits(arf_bf16 *to, int count, arf_bf16 bits)
{
    for (int i = 0; i < count; i++)
        to[i] = bits;
}

/* A call with gamma 1, residual 0, weights 1, every index 0 and everything else 0. */
static void make_call(arf_pattern pattern, int ranks, int tokens, int hidden, int top_k)
{
    for (int r = 0; r < ranks; r++) {
        arfuse_operands *o = &b->operands[r].known;
        *o = (arfuse_operands)ARFUSE_OPERANDS_INIT;
        o->struct_size = sizeof b->operands[0];
        o->input = b->input[r];
        o->routed = b->routed[r];
        o->routed_rows = ROWS;
        o->weights = b->weights[r];
        o->weights_type = ARFUSE_WEIGHTS_FP32;
        o->indices = b->indices[r];
        o->shared = b->shared[r];
        o->residual = b->residual;
        o->gamma = b->gamma;
        for (int i = 0; i < tokens * top_k; i++) {
            b->weights[r][i] = 1.0f;
            b->narrow_weights[r][i] = 0x3f80;
        }
    }
    fill(b->gamma, hidden, 1.0f);
    b->call = (arf_reference_call){
        .pattern = pattern,
        .shape = {.tp_size = ranks,
                  .hidden_size = hidden,
                  .top_k = top_k,
                  .rms_norm = ARF_ON,
                  .residual = ARF_ON,
                  .shared_expert = ARF_ON},
        .tokens = tokens,
        .epsilon = 1e-6f,
        .routed_scale = 1.0f,
        .operands = &b->operands[0].known,
    };
}

static void run(void)
{
    assert_true(arf_reference(&b->call, b->x, b->norm, b->inv));
}

static void assert_all(const arf_bf16 *row, int count, arf_bf16 bits)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(row[i], bits);
}

/* ---- the second implementation -------------------------------------------------------------- */

static float wide(arf_bf16 bits)
{
    const uint32_t shifted = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &shifted, sizeof value);
    return value;
}

static arf_bf16 second_contribution(int rank, int token, int h)
{
    const arf_shape *shape = &b->call.shape;
    const arfuse_operands *o = &b->operands[rank].known;
    float sum;
    if (b->call.pattern == ARF_ALLREDUCE) {
        sum = wide(b->input[rank][token * shape->hidden_size + h]);
    } else {
        sum = 0.0f;
        for (int k = 0; k < shape->top_k; k++) {
            const int slot = token * shape->top_k + k, index = b->indices[rank][slot];
            const float w = o->weights_type == ARFUSE_WEIGHTS_FP32
                                ? b->weights[rank][slot]
                                : wide(b->narrow_weights[rank][slot]);
            if (index != -1)
                sum = second_fmaf(w * b->call.routed_scale,
                                  wide(b->routed[rank][index * shape->hidden_size + h]), sum);
        }
        if (shape->shared_expert)
            sum = sum + wide(b->shared[rank][token * shape->hidden_size + h]);
    }
    const arf_bf16 rounded = second_bf16(sum);
    return rounded == 0x8000 ? 0x0000 : rounded;
}

static void check_against_second(void)
{
    const arf_shape *shape = &b->call.shape;
    const int hidden = shape->hidden_size;
    arf_bf16 *x = calloc((size_t)hidden, sizeof *x);
    float *packs = calloc((size_t)hidden, sizeof *packs);
    for (int token = 0; token < b->call.tokens; token++) {
        for (int h = 0; h < hidden; h++) {
            float term[MAX_RANKS];
            for (int r = 0; r < shape->tp_size; r++)
                term[r] = wide(second_contribution(r, token, h));
            float sum = second_tree(term, shape->tp_size);
            if (shape->residual)
                sum = sum + wide(b->residual[token * hidden + h]);
            x[h] = second_bf16(sum);
            assert_int_equal(b->x[token * hidden + h], x[h]);
            packs[h / 8] = second_fmaf(wide(x[h]), wide(x[h]), h % 8 ? packs[h / 8] : 0.0f);
        }
        if (!shape->rms_norm)
            continue;
        const float inv = second_inverse(second_tree(packs, hidden / 8), hidden, b->call.epsilon);
        assert_true(memcmp(&inv, &b->inv[token], sizeof inv) == 0 ||
                    (isnan(inv) && isnan(b->inv[token])));
        for (int h = 0; h < hidden; h++) {
            const float factor = wide(b->gamma[h]) + b->call.weight_bias;
            const float scaled = wide(x[h]) * inv;
            assert_int_equal(b->norm[token * hidden + h], second_bf16(scaled * factor));
        }
    }
    free(packs);
    free(x);
}

static arf_bf16 random_bf16(int kind, uint64_t *seed)
{
    const uint32_t bits = next_random(seed);
    switch (kind) {
    case 0: /* any finite pattern of moderate size */
        return (arf_bf16)((bits & 0x87ff) | 0x3800);
    case 1: /* close together: every addition rounds */
        return (arf_bf16)((bits & 0x81ff) | 0x3e00);
    case 2: /* subnormals and zeros of both signs */
        return (arf_bf16)(bits & 0x807f & (bits & 0x10000 ? 0xffff : 0x8001));
    default: /* anything, rarely NaN or Inf */
        return (arf_bf16)bits;
    }
}

static void fill_random(int kind, uint64_t *seed)
{
    const arf_shape *shape = &b->call.shape;
    const int elements = (int)b->call.tokens * shape->hidden_size;
    const int slots = (int)b->call.tokens * shape->top_k;
    for (int r = 0; r < shape->tp_size; r++) {
        for (int i = 0; i < elements; i++) {
            b->input[r][i] = random_bf16(kind, seed);
            b->shared[r][i] = random_bf16(kind, seed);
        }
        for (int i = 0; i < ROWS * shape->hidden_size; i++)
            b->routed[r][i] = random_bf16(kind, seed);
        for (int i = 0; i < slots; i++) {
            b->weights[r][i] = (float)(int32_t)next_random(seed) * 0x1p-31f;
            b->narrow_weights[r][i] = random_bf16(1, seed);
            b->indices[r][i] = (int32_t)(next_random(seed) % (ROWS + 4)) - 4;
            if (b->indices[r][i] < 0)
                b->indices[r][i] = -1;
        }
    }
    for (int i = 0; i < elements; i++)
        b->residual[i] = random_bf16(kind, seed);
    for (int i = 0; i < shape->hidden_size; i++)
        b->gamma[i] = random_bf16(kind, seed);
}

static void equals_a_second_implementation(void **state)
{
    (void)state;
    static const int hidden[] = {8, 16, 24, 40, 56, 120, 200};
    static const float scale[] = {1.0f, 2.5f, 0.1f};
    uint64_t seed = 7;
    const int cases = getenv("ARFUSE_TEST_LONG") ? 20000 : 600;
    for (int i = 0; i < cases; i++) {
        const int ranks = 1 + i % MAX_RANKS;
        make_call(next_random(&seed) % 2 ? ARF_FINALIZE : ARF_ALLREDUCE, ranks,
                  (int)(next_random(&seed) % 4), hidden[next_random(&seed) % 7],
                  (int)(next_random(&seed) % (MAX_TOP_K + 1)));
        fill_random(i % 4, &seed);
        const uint32_t choice = next_random(&seed);
        b->call.shape.rms_norm = choice & 7 ? ARF_ON : ARF_OFF;
        b->call.shape.residual = choice & 8 ? ARF_ON : ARF_OFF;
        b->call.shape.shared_expert = choice & 16 ? ARF_ON : ARF_OFF;
        b->call.weight_bias = choice & 32 ? 1.0f : 0.0f;
        b->call.epsilon = choice & 64 ? 1e-6f : 1e-5f;
        b->call.routed_scale = scale[choice >> 8 & 1 ? 0 : 1 + (choice >> 9 & 1)];
        for (int r = 0; r < ranks; r++) {
            if (choice & 128) {
                b->operands[r].known.weights = b->narrow_weights[r];
                b->operands[r].known.weights_type = ARFUSE_WEIGHTS_BF16;
            }
            /* What is off is absent. */
            if (!b->call.shape.residual)
                b->operands[r].known.residual = NULL;
            if (!b->call.shape.shared_expert)
                b->operands[r].known.shared = NULL;
            if (!b->call.shape.rms_norm)
                b->operands[r].known.gamma = NULL;
        }
        run();
        check_against_second();

        const int elements = (int)b->call.tokens * b->call.shape.hidden_size;
        arf_bf16 *one = calloc((size_t)elements + 1, sizeof *one);
        for (int r = 0; r < ranks; r++) {
            arf_reference_contribution(&b->call, r, one);
            for (int e = 0; e < elements; e++)
                assert_int_equal(one[e], second_contribution(r, e / b->call.shape.hidden_size,
                                                             e % b->call.shape.hidden_size));
        }
        free(one);
    }
}

/* ---- by hand -------------------------------------------------------------------------------- */

static void rank_r_holds_two_to_the_r(void **state)
{
    (void)state;
    make_call(ARF_ALLREDUCE, 8, 4, 6144, 0);
    for (int r = 0; r < 8; r++)
        fill(b->input[r], 4 * 6144, (float)(1 << r));
    run();
    assert_all(b->x, 4 * 6144, 0x437f); /* 255 */
    assert_all(b->norm, 4 * 6144, 0x3f80);
}

static void one_rank_is_its_own_sum(void **state)
{
    (void)state;
    static const arf_bf16 in[8] = {0x8000, 0x0000, 0x8001, 0x3f80, 0xff80, 0x7f81, 0xffff, 0x7f7f};
    static const arf_bf16 out[8] = {0x0000, 0x0000, 0x8001, 0x3f80, 0xff80, 0x7fff, 0x7fff, 0x7f7f};
    make_call(ARF_ALLREDUCE, 1, 1, 8, 0);
    b->call.shape.residual = b->call.shape.rms_norm = ARF_OFF;
    memcpy(b->input[0], in, sizeof in);
    assert_true(arf_reference(&b->call, b->x, NULL, NULL));
    assert_memory_equal(b->x, out, sizeof out);

    /* A residual of -0.0 meets a contribution of +0.0. */
    b->call.shape.residual = ARF_ON;
    fill_bits(b->residual, 8, 0x8000);
    assert_true(arf_reference(&b->call, b->x, NULL, NULL));
    assert_memory_equal(b->x, out, sizeof out);
}

static void order_of_ranks_is_the_tree(void **state)
{
    (void)state;
    const float value[8] = {0x1p24f, 1, 1, 1, -0x1p24f, 1, 1, 1};
    make_call(ARF_ALLREDUCE, 8, 1, 64, 0);
    for (int r = 0; r < 8; r++)
        fill(b->input[r], 64, value[r]);
    run();
    assert_all(b->x, 64, second_bf16(5.0f)); /* in rank order: 3 */

    /* A neighbour's share is commuted freely, as a butterfly does; the bits stay. */
    fill(b->input[0], 64, 1);
    fill(b->input[1], 64, 0x1p24f);
    run();
    assert_all(b->x, 64, second_bf16(5.0f));

    /* The residual comes after the whole tree. */
    fill(b->residual, 64, -5.0f);
    run();
    assert_all(b->x, 64, 0x0000);

    /* Five ranks: the fifth is added last. */
    const float five[5] = {0x1p24f, 1, 1, -0x1p24f, 1};
    make_call(ARF_ALLREDUCE, 5, 1, 64, 0);
    fill(b->residual, 64, 0.0f);
    for (int r = 0; r < 5; r++)
        fill(b->input[r], 64, five[r]);
    run();
    assert_all(b->x, 64, second_bf16(2.0f));
}

/* https://github.com/flashinfer-ai/flashinfer/pull/3304: 0x8001 on rank 3 and -0.0 elsewhere. */
static void tiny_and_zero_are_told_apart(void **state)
{
    (void)state;
    make_call(ARF_ALLREDUCE, 8, 4, 6144, 0);
    for (int r = 0; r < 8; r++)
        fill_bits(b->input[r], 4 * 6144, r == 3 ? 0x8001 : 0x8000);
    run();
    assert_all(b->x, 4 * 6144, 0x8001);
    fill_bits(b->input[3], 4 * 6144, 0x8000);
    fill_bits(b->residual, 4 * 6144, 0x8000);
    run();
    assert_all(b->x, 4 * 6144, 0x0000);
    assert_all(b->norm, 4 * 6144, 0x0000);

    /* One NaN of odd payload: that element of the row, and the whole normalised row; no other. */
    b->input[5][6144 + 17] = 0xff81;
    run();
    for (int i = 0; i < 4 * 6144; i++) {
        assert_int_equal(b->x[i], i == 6144 + 17 ? 0x7fff : 0x0000);
        assert_int_equal(b->norm[i], i / 6144 == 1 ? 0x7fff : 0x0000);
    }
    assert_int_equal(arf_bits_of_float(b->inv[1]), 0x7fffffff);
}

/* https://github.com/vllm-project/vllm/pull/46408: dropped slots, NaN in every row not named. */
static void dropped_slots_are_skipped_whole(void **state)
{
    (void)state;
    enum { HIDDEN = 64, TOP_K = 10, TOKENS = 8 };
    make_call(ARF_FINALIZE, 2, TOKENS, HIDDEN, TOP_K);
    for (int r = 0; r < 2; r++) {
        fill_bits(b->routed[r], ROWS * HIDDEN, 0x7fc0);
        for (int row = 0; row < TOP_K; row++)
            fill(b->routed[r] + (row + 3) * HIDDEN, HIDDEN, (float)(1 << row)); /* rows 3 to 12 */
        fill(b->shared[r], TOKENS * HIDDEN, 0.5f);
        for (int i = 0; i < TOKENS * TOP_K; i++)
            b->indices[r][i] = i / TOP_K == 5 ? -1 : 3 + i % TOP_K;
        b->indices[r][2 * TOP_K + 9] = -1;
    }
    fill(b->residual, TOKENS * HIDDEN, 0.25f);
    run();
    assert_all(b->x + 5 * HIDDEN, HIDDEN, second_bf16(2 * 0.5f + 0.25f));
    /* Each rank: 1 + 2 + ... + 256 + 0.5 = 511.5, as bf16 512. */
    assert_all(b->x + 2 * HIDDEN, HIDDEN, second_bf16(1024.0f + 0.25f));
    /* 1023.5 is 1024. */
    assert_all(b->x + 3 * HIDDEN, HIDDEN, second_bf16(2048.0f + 0.25f));
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        assert_true((b->norm[i] & 0x7fff) < 0x7f80);
}

static void weight_zero_drops_nothing(void **state)
{
    (void)state;
    make_call(ARF_FINALIZE, 2, 2, 8, 2);
    b->weights[0][0] = 0.0f; /* token 0 of rank 0: 0 * Inf */
    fill_bits(b->routed[0], 8, 0x7f80);
    b->indices[0][2] = b->indices[0][3] = 1;
    fill(b->routed[0] + 8, 8, 3.0f);
    run();
    assert_all(b->x, 8, 0x7fff);
    assert_all(b->x + 8, 8, second_bf16(6.0f));
}

/* https://github.com/vllm-project/vllm/pull/49378: the shared expert is a partial sum of each rank,
 * the residual is not. */
static void shared_is_summed_once_and_residual_added_once(void **state)
{
    (void)state;
    make_call(ARF_FINALIZE, 4, 2, 64, 4);
    for (int r = 0; r < 4; r++)
        fill(b->shared[r], 2 * 64, 1.0f);
    run();
    assert_all(b->x, 2 * 64, second_bf16(4.0f));
    fill(b->residual, 2 * 64, 10.0f);
    run();
    assert_all(b->x, 2 * 64, second_bf16(14.0f));
    b->call.shape.shared_expert = ARF_OFF;
    run();
    assert_all(b->x, 2 * 64, second_bf16(10.0f));
}

/* https://github.com/NVIDIA/TensorRT-LLM/pull/16778: rounding each term would give 256. */
static void terms_are_added_in_fp32(void **state)
{
    (void)state;
    make_call(ARF_FINALIZE, 8, 1, 64, 10);
    fill(b->routed[0], 64, 256.0f);
    fill(b->routed[0] + 64, 64, 0.5f);
    for (int k = 1; k < 10; k++)
        b->indices[0][k] = 1;
    run();
    assert_all(b->x, 64, second_bf16(260.0f));

    make_call(ARF_ALLREDUCE, 8, 1, 64, 0);
    for (int r = 0; r < 8; r++)
        fill(b->input[r], 64, r ? 0.5f : 256.0f);
    run();
    assert_all(b->x, 64, second_bf16(260.0f));
}

/* https://github.com/pytorch/pytorch/pull/129501, and batch invariance: a token's bits depend on
 * nothing but its own operands. */
static void a_token_does_not_depend_on_the_others(void **state)
{
    (void)state;
    uint64_t seed = 8;
    make_call(ARF_FINALIZE, 5, MAX_TOKENS, 200, 7);
    fill_random(0, &seed);
    run();
    static arf_bf16 x[MAX_TOKENS * 200], norm[MAX_TOKENS * 200];
    memcpy(x, b->x, sizeof x);
    memcpy(norm, b->norm, sizeof norm);
    for (int tokens = 0; tokens <= MAX_TOKENS; tokens++) {
        fill_bits(b->x, MAX_TOKENS * 200, 0x7fc1);
        fill_bits(b->norm, MAX_TOKENS * 200, 0x7fc1);
        b->call.tokens = tokens;
        run();
        assert_memory_equal(b->x, x, (size_t)tokens * 200 * sizeof *x);
        assert_memory_equal(b->norm, norm, (size_t)tokens * 200 * sizeof *norm);
        assert_all(b->x + tokens * 200, (MAX_TOKENS - tokens) * 200, 0x7fc1);
        assert_all(b->norm + tokens * 200, (MAX_TOKENS - tokens) * 200, 0x7fc1);
    }
}

/* https://github.com/apache/tvm/pull/15856 */
static void epsilon_is_the_callers(void **state)
{
    (void)state;
    make_call(ARF_ALLREDUCE, 2, 2, 64, 0);
    fill(b->input[0], 64, 1e-3f); /* token 1 stays zero */
    run();
    for (int i = 0; i < 64; i++)
        assert_true(fabsf(wide(b->norm[i]) - 0.707f) < 0.01f);
    assert_all(b->norm + 64, 64, 0x0000);
    b->call.epsilon = 1e-5f;
    run();
    for (int i = 0; i < 64; i++)
        assert_true(fabsf(wide(b->norm[i]) - 0.301f) < 0.01f);
    assert_all(b->norm + 64, 64, 0x0000);
}

static void bias_is_added_to_gamma_before_the_product(void **state)
{
    (void)state;
    make_call(ARF_ALLREDUCE, 1, 1, 64, 0);
    for (int i = 0; i < 64; i++)
        b->input[0][i] = (arf_bf16)(0x3f80 + i);
    fill(b->gamma, 64, 0x1p-10f);
    b->call.weight_bias = 1.0f;
    run();
    for (int i = 0; i < 64; i++) /* 1 + 2^-10 is kept in fp32 */
        assert_int_equal(b->norm[i], second_bf16(wide(b->x[i]) * b->inv[0] * (1.0f + 0x1p-10f)));
}

static void in_place_gives_the_same(void **state)
{
    (void)state;
    uint64_t seed = 9;
    make_call(ARF_ALLREDUCE, 3, 4, 200, 0);
    fill_random(1, &seed);
    run();
    assert_true(arf_reference(&b->call, b->residual, b->input[0], NULL));
    assert_memory_equal(b->residual, b->x, 4 * 200 * sizeof *b->x);
    assert_memory_equal(b->input[0], b->norm, 4 * 200 * sizeof *b->x);
}

static void a_callers_modes_change_nothing(void **state)
{
    (void)state;
    uint64_t seed = 10;
    for (int kind = 0; kind < 3; kind++) {
        make_call(ARF_FINALIZE, 4, 2, 200, 5);
        fill_random(kind, &seed);
        const uint64_t saved = hostile_modes_on();
        const bool done = arf_reference(&b->call, b->x, b->norm, b->inv);
        const int held = hostile_modes_hold();
        hostile_modes_off(saved);
        assert_true(done);
        assert_true(held);
        check_against_second();
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equals_a_second_implementation), TEST(rank_r_holds_two_to_the_r),
        TEST(one_rank_is_its_own_sum),        TEST(order_of_ranks_is_the_tree),
        TEST(tiny_and_zero_are_told_apart),   TEST(dropped_slots_are_skipped_whole),
        TEST(weight_zero_drops_nothing),      TEST(shared_is_summed_once_and_residual_added_once),
        TEST(terms_are_added_in_fp32),        TEST(a_token_does_not_depend_on_the_others),
        TEST(epsilon_is_the_callers),         TEST(bias_is_added_to_gamma_before_the_product),
        TEST(in_place_gives_the_same),        TEST(a_callers_modes_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
