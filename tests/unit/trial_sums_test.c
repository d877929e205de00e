/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verification of sums whose order is a library's: any order passes, with partial sums in fp32 or
 * in bf16; what is no sum of these terms is refused, on data of some kind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/any_order.h"
#include "support/trial_case.h"

enum { HIDDEN = 512, TOKENS = 19 };

/* ---- what a library may do ------------------------------------------------------------------- */

/* A sum of the ranks' terms, of which `variant` says the order, or a mistake. */
typedef float (*sum_of)(const float *term, int ranks, int variant);

static float narrow(float value)
{
    return arf_bf16_to_float(arf_float_to_bf16(value));
}

static float ring(const float *term, int ranks, int start)
{
    float sum = term[start % ranks];
    for (int i = 1; i < ranks; i++)
        sum += term[(start + i) % ranks];
    return narrow(sum);
}

static float ring_in_bf16(const float *term, int ranks, int start)
{
    float sum = term[start % ranks];
    for (int i = 1; i < ranks; i++)
        sum = narrow(sum + term[(start + i) % ranks]);
    return sum;
}

static float halves_in_bf16(const float *term, int ranks, int variant)
{
    return ranks == 1 ? term[0]
                      : narrow(halves_in_bf16(term, ranks / 2, variant) +
                               halves_in_bf16(term + ranks / 2, ranks - ranks / 2, variant));
}

/* ---- what it may not --------------------------------------------------------------------------
 */

static float one_missing(const float *term, int ranks, int which)
{
    float sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += r == which % ranks ? 0 : term[r];
    return narrow(sum);
}

static float one_doubled(const float *term, int ranks, int which)
{
    return narrow(ring(term, ranks, 0) + term[which % ranks]);
}

static float largest(const float *term, int ranks, int variant)
{
    float most = term[0];
    (void)variant;
    for (int r = 1; r < ranks; r++)
        most = term[r] > most ? term[r] : most;
    return most;
}

static float mean(const float *term, int ranks, int variant)
{
    return narrow(ring(term, ranks, variant) / (float)ranks);
}

/* ---- calls ------------------------------------------------------------------------------------
 */

/* A process with one rank, whose outputs are judged, and one with the operands of all. */
typedef struct scene {
    arf_shape shape;
    arf_trial *trial, *all;
} scene;

static scene open_scene(int ranks, arf_switch residual, int64_t tokens, arf_trial_kind kind,
                        uint64_t seed)
{
    scene s = {.shape = trial_shape(ranks, HIDDEN, 5)};
    s.shape.residual = residual;
    trial_team = (arf_team){.tp_size = ranks, .first_rank = 0, .local_ranks = 1};
    s.trial = trial_make(&s.shape, tokens, kind, seed);
    trial_team.local_ranks = ranks;
    s.all = trial_make(&s.shape, tokens, kind, seed);
    trial_team.local_ranks = 1;
    return s;
}

static void close_scene(scene *s)
{
    arf_trial_destroy(s->trial);
    trial_team.local_ranks = s->shape.tp_size;
    arf_trial_destroy(s->all);
}

/* Leaves what a call by `sum` leaves: contributions and the norm are arfuse's own. */
static void run_by(const scene *s, arf_pattern pattern, sum_of sum, int variant)
{
    const arf_reference_call call = trial_call(s->all, &s->shape, pattern, TOKENS);
    const arfuse_operands *operands = arf_trial_operands(s->trial);
    const int ranks = s->shape.tp_size;
    const size_t count = (size_t)TOKENS * HIDDEN;
    arf_bf16 *contribution = malloc((size_t)ranks * count * sizeof *contribution);
    arf_bf16 *x = operands->residual_out, *norm = operands->norm_out;
    const arf_bf16 *residual = operands->residual;
    for (int r = 0; r < ranks; r++)
        arf_reference_contribution(&call, r, contribution + (size_t)r * count);
    for (size_t i = 0; i < count; i++) {
        float term[ARF_MAX_RANKS];
        for (int r = 0; r < ranks; r++)
            term[r] = arf_bf16_to_float(contribution[(size_t)r * count + i]);
        float total = sum(term, ranks, variant);
        if (residual != NULL)
            total += arf_bf16_to_float(residual[i]);
        x[i] = arf_float_to_bf16(total);
    }
    for (int t = 0; t < TOKENS; t++) {
        const arf_bf16 *row = x + t * HIDDEN;
        const float inv = arf_inverse_rms(arf_squares_row(row, HIDDEN), HIDDEN, call.epsilon);
        arf_normalise_row(row, inv, operands->gamma, call.weight_bias, HIDDEN, norm + t * HIDDEN);
    }
    free(contribution);
}

static bool passes(arf_trial *trial, arf_pattern pattern, arf_numerics numerics)
{
    arf_error_clear(&trial_error);
    const arfuse_status status =
        arf_trial_check_numerics(trial, pattern, TOKENS, numerics, &trial_error);
    assert_true(status == ARFUSE_OK || status == ARFUSE_WRONG_RESULT);
    return status == ARFUSE_OK;
}

static void sums_in_any_order_pass(void **state)
{
    (void)state;
    static const int teams[] = {1, 2, 3, 8, 72};
    static const sum_of sums[] = {ring, ring_in_bf16, halves_in_bf16};
    int other_bits = 0;
    for (size_t team = 0; team < sizeof teams / sizeof *teams; team++)
        for (int i = 0; i < ARF_TRIAL_KINDS * ARF_PATTERNS * 2; i++) {
            const arf_pattern pattern = (arf_pattern)(i / ARF_TRIAL_KINDS % ARF_PATTERNS);
            const bool plain = i / ARF_TRIAL_KINDS / ARF_PATTERNS;
            scene at = open_scene(teams[team], plain ? ARF_OFF : ARF_ON, TOKENS,
                                  (arf_trial_kind)(i % ARF_TRIAL_KINDS), (uint64_t)i);
            for (int s = 0; s < 9; s++) {
                run_by(&at, pattern, sums[s % 3], s / 3);
                if (!passes(at.trial, pattern, ARF_LIBRARY))
                    fail_msg("sum %d of %d ranks: %s", s, teams[team], trial_error.text);
                other_bits += !passes(at.trial, pattern, ARF_FIXED);
            }
            close_scene(&at);
        }
    assert_true(other_bits > 100); /* else nothing was tried here */
}

/* Does a mistake show on data of some kind? */
static bool shows(scene at[ARF_TRIAL_KINDS], arf_pattern pattern, sum_of mistake, int variant)
{
    for (int kind = 0; kind < ARF_TRIAL_KINDS; kind++) {
        run_by(&at[kind], pattern, mistake, variant);
        if (!passes(at[kind].trial, pattern, ARF_LIBRARY))
            return true;
    }
    return false;
}

static void wrong_sums_are_refused(void **state)
{
    (void)state;
    static const int teams[] = {2, 8, 72};
    for (size_t team = 0; team < sizeof teams / sizeof *teams; team++) {
        const int ranks = teams[team];
        scene at[ARF_TRIAL_KINDS];
        for (int kind = 0; kind < ARF_TRIAL_KINDS; kind++)
            at[kind] = open_scene(ranks, ARF_ON, TOKENS, (arf_trial_kind)kind, 7);
        for (int p = 0; p < ARF_PATTERNS; p++) {
            const arf_pattern pattern = (arf_pattern)p;
            for (int rank = 0; rank<ranks; rank += ranks> 8 ? 7 : 1)
                if (!shows(at, pattern, one_missing, rank) ||
                    !shows(at, pattern, one_doubled, rank))
                    fail_msg("rank %d of %d may be missing or doubled", rank, ranks);
            assert_true(shows(at, pattern, largest, 0));
            assert_true(shows(at, pattern, mean, 0));
        }
        for (int kind = 0; kind < ARF_TRIAL_KINDS; kind++)
            close_scene(&at[kind]);
    }
}

/* ---- what is around the sum -------------------------------------------------------------------
 */

static void everything_but_the_sum_is_held_to_its_bits(void **state)
{
    (void)state;
    scene at = open_scene(8, ARF_ON, TOKENS + 1, ARF_TRIAL_RANDOM, 3);
    arf_trial *trial = at.trial;
    arf_bf16 *x = arf_trial_operands(trial)[0].residual_out;
    arf_bf16 *norm = arf_trial_operands(trial)[0].norm_out;
    trial_poison(trial);
    run_by(&at, ARF_ALLREDUCE, ring_in_bf16, 3);
    assert_true(passes(trial, ARF_ALLREDUCE, ARF_LIBRARY));
    assert_true(passes(trial, ARF_ALLREDUCE, ARF_IN_NETWORK));

    norm[HIDDEN + 17] ^= 1;
    assert_false(passes(trial, ARF_ALLREDUCE, ARF_LIBRARY));
    assert_non_null(strstr(trial_error.text, "rank 0, norm_out, token 1, element 17 is "));
    assert_non_null(strstr(trial_error.text, "(1 elements of the tensor differ)"));
    norm[HIDDEN + 17] ^= 1;

    const arf_bf16 was = x[18 * HIDDEN + 5];
    x[18 * HIDDEN + 5] = 0x7f00;
    assert_false(passes(trial, ARF_ALLREDUCE, ARF_LIBRARY));
    assert_non_null(strstr(trial_error.text, "residual_out, token 18, element 5 is 1.7"));
    assert_non_null(strstr(trial_error.text, ", in any order (1 elements"));
    x[18 * HIDDEN + 5] = 0x7fc1;
    assert_false(passes(trial, ARF_ALLREDUCE, ARF_LIBRARY));
    assert_non_null(strstr(trial_error.text, "is not written"));
    x[18 * HIDDEN + 5] = was;

    x[TOKENS * HIDDEN] = 0;
    assert_false(passes(trial, ARF_ALLREDUCE, ARF_LIBRARY));
    assert_non_null(strstr(trial_error.text, "but the call ends before that token"));
    close_scene(&at);
}

/* ---- one sum ----------------------------------------------------------------------------------
 */

static arf_any_order sum_up(const arf_bf16 *term, int count)
{
    arf_any_order all = {.sum = 0};
    for (int i = 0; i < count; i++)
        arf_any_order_add(&all, term[i]);
    return all;
}

static void the_edges_of_a_sum(void **state)
{
    (void)state;
    enum { ONE = 0x3f80, ONE_MORE = 0x3f81, TWO_MORE = 0x3f82, INFINITE = 0x7f80 };
    enum { LARGEST = 0x7f7f, MINUS = 0x8000, OTHER_NAN = 0x7fc0 };
    static const struct {
        arf_bf16 term[3];
        arf_bf16 got;
        bool allowed;
    } cases[] = {
        {{ONE, 0, 0}, ONE, true},
        {{ONE, 0, 0}, ONE_MORE, true}, /* 2^-7, of two roundings of 2^-8 and a little */
        {{ONE, 0, 0}, TWO_MORE, false},
        {{ONE, ONE | MINUS, ONE}, ONE, true},
        {{ONE, ONE | MINUS, ONE}, TWO_MORE, true}, /* the magnitudes are three */
        {{ONE, ONE | MINUS, ONE}, 0x4000, false},
        {{0, 0, 0}, MINUS, true},  /* the sign of zero */
        {{0, 0, 0}, 0x0100, true}, /* 2^-125: as much as two additions may flush */
        {{0, 0, 0}, 0x0101, false},
        {{ARF_BF16_NAN, ONE, 0}, ARF_BF16_NAN, true},
        {{ARF_BF16_NAN, ONE, 0}, OTHER_NAN, false},
        {{ARF_BF16_NAN, ONE, 0}, ONE, false},
        {{ARF_BF16_NAN, ONE, 0}, INFINITE, false},
        {{ONE, ONE, 0}, ARF_BF16_NAN, false},
        {{ONE, ONE, 0}, INFINITE, false},
        {{INFINITE, ONE, 0}, INFINITE, true},
        {{INFINITE, ONE, 0}, INFINITE | MINUS, false},
        {{INFINITE, ONE, 0}, LARGEST, false},
        {{INFINITE, ONE, 0}, ARF_BF16_NAN, false},
        {{INFINITE, INFINITE | MINUS, 0}, ARF_BF16_NAN, true},
        {{INFINITE, INFINITE | MINUS, 0}, INFINITE, false},
        {{LARGEST, LARGEST, LARGEST | MINUS}, INFINITE, true}, /* on the way */
        {{LARGEST, LARGEST, LARGEST | MINUS}, LARGEST, true},
        {{LARGEST, LARGEST, LARGEST | MINUS}, LARGEST | MINUS, false},
        {{INFINITE, LARGEST | MINUS, LARGEST | MINUS}, ARF_BF16_NAN, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const arf_any_order all = sum_up(cases[i].term, 3);
        if (arf_any_order_allows(&all, 2, cases[i].got) != cases[i].allowed)
            fail_msg("case %zu: 0x%04x of %g, %g", i, cases[i].got, all.sum, all.size);
    }
    const arf_bf16 ones[] = {ONE, ONE | MINUS};
    const arf_any_order opposed = sum_up(ones, 2);
    assert_true(arf_any_order_tolerance(&opposed, ARF_MAX_RANKS) < 1); /* of either of the two */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRIAL_TEST(sums_in_any_order_pass),
        TRIAL_TEST(wrong_sums_are_refused),
        TRIAL_TEST(everything_but_the_sum_is_held_to_its_bits),
        TRIAL_TEST(the_edges_of_a_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
