/* SPDX-License-Identifier: Apache-2.0 */
#include "device/numerics.h"

#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/floats.h"

static void assert_same_float(float a, float b)
{
    assert_int_equal(arf_bits_of_float(a), arf_bits_of_float(b));
}

static void bf16_survives_the_way_through_float(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const int nan = (bits & 0x7fff) > 0x7f80;
        const arf_bf16 back = arf_float_to_bf16(arf_bf16_to_float((arf_bf16)bits));
        assert_int_equal(back, nan ? ARF_BF16_NAN : bits);
        const arf_bf16 sent = arf_contribution((arf_bf16)bits);
        assert_int_equal(sent, nan ? ARF_BF16_NAN : bits == 0x8000 ? 0 : bits);
    }
}

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        uint32_t wide;
        arf_bf16 narrow;
    } by_hand[] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, /* 1 + half a step: to even, down */
        {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82}, /* to even, up */
        {0x3f817fff, 0x3f81}, {0xbf818000, 0xbf82}, {0x00000001, 0x0000}, /* far below a step */
        {0x80000001, 0x8000}, {0x00008000, 0x0000}, {0x00008001, 0x0001}, /* subnormals kept */
        {0x007f8000, 0x0080}, /* the largest subnormal and half a step: the least normal */
        {0x7f7f7fff, 0x7f7f}, {0x7f7f8000, 0x7f80}, /* overflow is decided after rounding */
        {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fff}, /* NaN, low bits only */
        {0xffffffff, 0x7fff}, {0x7fffffff, 0x7fff}, {0xffc00000, 0x7fff},
    };
    for (size_t i = 0; i < sizeof by_hand / sizeof by_hand[0]; i++)
        assert_int_equal(arf_float_to_bf16(arf_float_of_bits(by_hand[i].wide)), by_hand[i].narrow);

    uint64_t seed = 1;
    for (int i = 0; i < 300000; i++) {
        uint32_t bits = next_random(&seed);
        if (i % 3 == 0)
            bits = (bits & 0xffff0000u) | 0x8000u; /* exactly half way */
        const float value = arf_float_of_bits(bits);
        assert_int_equal(arf_float_to_bf16(value), second_bf16(value));
    }
}

static void tree_is_balanced_and_padded(void **state)
{
    (void)state;
    uint64_t seed = 2;
    float term[1000];
    for (int count = 1; count <= 1000; count = count < 80 ? count + 1 : count + 61) {
        for (int repeat = 0; repeat < 20; repeat++) {
            for (int i = 0; i < count; i++) {
                const uint32_t bits = next_random(&seed);
                term[i] = repeat == 0 ? -0.0f : ldexpf((float)(int32_t)bits, (int)(bits % 40) - 20);
            }
            assert_same_float(arf_tree_sum(term, count), second_tree(term, count));
        }
    }
    assert_same_float(arf_tree_sum(term, 0), 0.0f);
}

static void tree_order_shows(void **state)
{
    (void)state;
    const float big = 16777216.0f; /* 2^24: adding 1 to it is lost, to -2^24 it is not */
    const float a[4] = {big, 1, 1, -big};
    assert_same_float(arf_tree_sum(a, 4), 1.0f); /* left to right: 0 */
    const float b[8] = {big, 1, 1, 1, -big, 1, 1, 1};
    assert_same_float(arf_tree_sum(b, 8), 5.0f); /* left to right: 3 */
    const float c[5] = {big, 1, 1, -big, 1};
    assert_same_float(arf_tree_sum(c, 5), 2.0f); /* the fifth joins last */
    const float d[6] = {big, -big, big, -big, 1, 1};
    assert_same_float(arf_tree_sum(d, 6), 2.0f);
    const float lone[1] = {-0.0f};
    assert_same_float(arf_tree_sum(lone, 1), -0.0f);
}

static void squares_are_chained_by_fma(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int i = 0; i < 20000; i++) {
        arf_bf16 pack[ARF_PACK];
        float sum = 0.0f;
        for (int e = 0; e < ARF_PACK; e++) {
            pack[e] = (arf_bf16)next_random(&seed);
            if (i % 2) /* magnitudes near each other, so that roundings happen */
                pack[e] = (arf_bf16)((pack[e] & 0x81ff) | 0x3e00);
            if ((pack[e] & 0x7f80) == 0x7f80)
                pack[e] = 0x0001;
            const float x = arf_bf16_to_float(pack[e]);
            sum = second_fmaf(x, x, sum);
        }
        assert_same_float(arf_pack_squares(pack), sum);
    }
}

static void inverse_rounds_every_step(void **state)
{
    (void)state;
    uint64_t seed = 4;
    int differs = 0, cases = 20000;
    for (int i = 0; i < cases; i++) {
        const float sum = ldexpf((float)(next_random(&seed) >> 8) + 1.0f, (int)(i % 60) - 40);
        const int hidden = 8 * (1 + (int)(next_random(&seed) % 8192));
        const float epsilon = i % 2 ? 1e-6f : 1e-5f;
        const float inv = second_inverse(sum, hidden, epsilon);
        const float shifted = (float)((double)(float)((double)sum / hidden) + (double)epsilon);
        assert_same_float(arf_inverse_rms(sum, hidden, epsilon), inv);
        differs += (float)(1.0 / sqrt((double)shifted)) != inv;
    }
    assert_true(differs > cases / 10); /* a fused reciprocal square root would have been noticed */

    assert_same_float(arf_inverse_rms(4.0f, 4, 0.0f), 1.0f);
    assert_same_float(arf_inverse_rms(INFINITY, 8, 1e-6f), 0.0f);
    assert_int_equal(arf_bits_of_float(arf_inverse_rms(-NAN, 8, 1e-6f)), 0x7fffffff);
}

/* ---- rows against the formulas by elements ------------------------------------------------- */

enum { HIDDEN = 200, RANKS = 72, ROWS = 20 };

static void fill(arf_bf16 *row, int count, int kind, uint64_t *seed)
{
    for (int i = 0; i < count; i++) {
        const arf_bf16 bits = (arf_bf16)next_random(seed);
        row[i] = kind == 0 ? bits : (arf_bf16)((bits & 0x83ff) | 0x3c00);
        if (kind == 2)
            row[i] = (arf_bf16)(bits & 0x807f); /* subnormals and zeros */
    }
}

static void rows_give_the_bits_of_the_formulas(void **state)
{
    (void)state;
    static arf_bf16 row[RANKS][HIDDEN], residual[HIDDEN], gamma[HIDDEN], got[HIDDEN];
    const arf_bf16 *from[RANKS];
    uint64_t seed = 5;
    for (int trial = 0; trial < 300; trial++) {
        const int kind = trial % 3, ranks = 1 + trial % RANKS;
        for (int r = 0; r < RANKS; r++) {
            fill(row[r], HIDDEN, kind, &seed);
            arf_bf16 sent[HIDDEN];
            arf_contribution_row(row[r], HIDDEN, sent);
            for (int i = 0; i < HIDDEN; i++)
                assert_int_equal(sent[i], arf_contribution(row[r][i]));
            memcpy(row[r], sent, sizeof sent);
            from[r] = row[r];
        }
        fill(residual, HIDDEN, kind, &seed);
        fill(gamma, HIDDEN, kind, &seed);

        arf_bf16 x[HIDDEN];
        for (int i = 0; i < HIDDEN; i++) {
            float term[RANKS];
            for (int r = 0; r < ranks; r++)
                term[r] = arf_bf16_to_float(row[r][i]);
            const float sum = second_tree(term, ranks);
            x[i] = second_bf16(trial % 5 ? sum + arf_bf16_to_float(residual[i]) : sum);
        }
        memcpy(got, residual, sizeof got); /* in place */
        arf_reduce_row(from, ranks, trial % 5 ? got : NULL, HIDDEN, got);
        assert_memory_equal(got, x, sizeof x);

        float packs[HIDDEN / ARF_PACK];
        for (int p = 0; p < HIDDEN / ARF_PACK; p++)
            packs[p] = arf_pack_squares(x + p * ARF_PACK);
        const float squares = arf_squares_row(x, HIDDEN);
        const float expected = arf_tree_sum(packs, HIDDEN / ARF_PACK);
        assert_true(arf_bits_of_float(squares) == arf_bits_of_float(expected) ||
                    (isnan(squares) && isnan(expected)));

        const float inv = arf_inverse_rms(squares, HIDDEN, 1e-6f), bias = trial % 2 ? 1.0f : 0.0f;
        arf_bf16 norm[HIDDEN];
        for (int i = 0; i < HIDDEN; i++)
            norm[i] =
                second_bf16((arf_bf16_to_float(x[i]) * inv) * (arf_bf16_to_float(gamma[i]) + bias));
        arf_normalise_row(got, inv, gamma, bias, HIDDEN, got);
        assert_memory_equal(got, norm, sizeof norm);
    }
}

static void slots_keep_order_and_skip_whole(void **state)
{
    (void)state;
    static arf_bf16 routed[ROWS][HIDDEN], shared[HIDDEN], got[HIDDEN];
    enum { TOP_K = 10 };
    float weights[2 * TOP_K];
    arf_bf16 narrow[2 * TOP_K];
    int32_t indices[2 * TOP_K];
    uint64_t seed = 6;
    const arf_shape shape = {.tp_size = 1, .hidden_size = HIDDEN, .top_k = TOP_K};
    for (int trial = 0; trial < 200; trial++) {
        for (int r = 0; r < ROWS; r++)
            fill(routed[r], HIDDEN, 1 + trial % 2, &seed);
        fill(shared, HIDDEN, 1 + trial % 2, &seed);
        for (int k = 0; k < 2 * TOP_K; k++) {
            narrow[k] = (arf_bf16)((next_random(&seed) & 0x81ff) | 0x3e00);
            weights[k] = trial % 4 ? (float)(int32_t)next_random(&seed) * 0x1p-31f
                                   : arf_bf16_to_float(narrow[k]);
            indices[k] = (int32_t)(next_random(&seed) % (ROWS + 5)) - 5;
            if (indices[k] < 0)
                indices[k] = -1;
        }
        arfuse_operands operands = ARFUSE_OPERANDS_INIT;
        operands.routed = routed;
        operands.routed_rows = ROWS;
        operands.weights = trial % 4 ? (const void *)weights : (const void *)narrow;
        operands.weights_type = trial % 4 ? ARFUSE_WEIGHTS_FP32 : ARFUSE_WEIGHTS_BF16;
        operands.indices = indices;

        arf_slots slots;
        arf_slots_of(&operands, &shape, 2.5f, 1, &slots);
        const int with_shared = trial % 3 != 0;
        arf_finalize_row(&slots, with_shared ? shared : NULL, 8, HIDDEN - 16, got);
        for (int i = 0; i < HIDDEN - 16; i++) {
            float sum = 0.0f;
            for (int k = 0; k < TOP_K; k++)
                if (indices[TOP_K + k] >= 0)
                    sum = second_fmaf(weights[TOP_K + k] * 2.5f,
                                      arf_bf16_to_float(routed[indices[TOP_K + k]][8 + i]), sum);
            if (with_shared)
                sum += arf_bf16_to_float(shared[8 + i]);
            const arf_bf16 rounded = second_bf16(sum);
            assert_int_equal(got[i], rounded == 0x8000 ? 0 : rounded);
        }
    }
}

/* ---- environment ---------------------------------------------------------------------------- */

static void pin_undoes_a_hostile_caller_and_gives_back(void **state)
{
    (void)state;
    static arf_bf16 tiny[2][16], one[16];
    const arf_bf16 *from[2] = {tiny[0], tiny[1]};
    float uneven[2] = {1.0f, 0x1p-30f}; /* upwards, the sum would be above 1 */
    for (int i = 0; i < 16; i++) {
        tiny[0][i] = tiny[1][i] = 0x0003;
        one[i] = 0x3f80;
    }
    arf_bf16 x[16], norm[16];

    const uint64_t saved = hostile_modes_on();
    const int before = hostile_modes_hold();
    const arf_float_state pinned = arf_float_pin();
    const int nearest = fegetround() == FE_TONEAREST;
    arf_reduce_row(from, 2, NULL, 16, x);
    arf_normalise_row(x, 1.0f, one, 0.0f, 16, norm);
    const float sum = arf_tree_sum(uneven, 2);
    arf_float_restore(pinned);
    const int after = hostile_modes_hold();
    hostile_modes_off(saved);

    assert_true(before);
    assert_true(nearest);
    assert_true(after);
    assert_same_float(sum, 1.0f);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(x[i], 0x0006);
        assert_int_equal(norm[i], 0x0006);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_survives_the_way_through_float),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(tree_is_balanced_and_padded),
        cmocka_unit_test(tree_order_shows),
        cmocka_unit_test(squares_are_chained_by_fma),
        cmocka_unit_test(inverse_rounds_every_step),
        cmocka_unit_test(rows_give_the_bits_of_the_formulas),
        cmocka_unit_test(slots_keep_order_and_skip_whole),
        cmocka_unit_test(pin_undoes_a_hostile_caller_and_gives_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
