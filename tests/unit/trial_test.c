/* SPDX-License-Identifier: Apache-2.0 */
/* Trials: what is right passes, what is wrong is named, and what the data holds. */

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

/* ---- right calls ------------------------------------------------------------------------------
 */

static void right_results_pass_at_every_length(void **state)
{
    (void)state;
    static const int64_t lengths[] = {3, 0, 1, 130, 64, 65, 129};
    for (int kind = 0; kind < ARF_TRIAL_KINDS; kind++) {
        const arf_shape shape = trial_shape(4, 72, 5);
        arf_trial *trial = trial_make(&shape, 130, (arf_trial_kind)kind, 11);
        for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
            for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
                trial_poison(trial);
                const arf_reference_call call =
                    trial_call(trial, &shape, (arf_pattern)pattern, lengths[i]);
                trial_run(trial, &call);
                trial_right(trial, (arf_pattern)pattern, lengths[i]);
            }
        }
        arf_trial_destroy(trial);
    }
}

static void switches_of_the_shape_are_kept(void **state)
{
    (void)state;
    for (int bits = 0; bits < 16; bits++) {
        arf_shape shape = trial_shape(4, 40, bits & 8 ? 3 : 0);
        shape.rms_norm = bits & 1 ? ARF_ON : ARF_OFF;
        shape.residual = bits & 2 ? ARF_ON : ARF_OFF;
        shape.shared_expert = bits & 4 ? ARF_ON : ARF_OFF;
        arf_trial *trial = trial_make(&shape, 9, ARF_TRIAL_ADVERSARIAL, (uint64_t)bits);
        const arfuse_operands *operands = arf_trial_operands(trial);
        assert_int_equal(operands->norm_out != NULL, bits & 1);
        assert_int_equal(operands->gamma != NULL, bits & 1);
        assert_int_equal(operands->residual != NULL, bits >> 1 & 1);
        assert_int_equal(operands->shared != NULL, (bits & 12) == 12);
        assert_int_equal(operands->routed != NULL, bits >> 3 & 1);
        for (int pattern = 0; pattern < (shape.top_k ? 2 : 1); pattern++) {
            trial_poison(trial);
            const arf_reference_call call = trial_call(trial, &shape, (arf_pattern)pattern, 9);
            trial_run(trial, &call);
            trial_right(trial, (arf_pattern)pattern, 9);
        }
        arf_trial_destroy(trial);
    }
}

/* A process that hosts ranks 2 and 3 of four makes the same operands and expects the same bits as
 * one that hosts all. */
static void any_split_of_the_team_agrees(void **state)
{
    (void)state;
    const arf_shape shape = trial_shape(4, 64, 4);
    arf_trial *all = trial_make(&shape, 20, ARF_TRIAL_RANDOM, 5);
    const arf_reference_call call = trial_call(all, &shape, ARF_FINALIZE, 20);
    trial_run(all, &call);
    const arfuse_operands *full = arf_trial_operands(all);

    trial_team.first_rank = 2;
    trial_team.local_ranks = 2;
    arf_trial *part = trial_make(&shape, 20, ARF_TRIAL_RANDOM, 5);
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
    trial_right(part, ARF_FINALIZE, 20);
    arf_trial_destroy(part);

    /* Another seed, other operands. */
    arf_trial *other = trial_make(&shape, 20, ARF_TRIAL_RANDOM, 6);
    assert_memory_not_equal(arf_trial_operands(other)[0].input, full[2].input, 20 * 64 * 2);
    arf_trial_destroy(other);
    trial_team.first_rank = 0;
    trial_team.local_ranks = 4;
    arf_trial_destroy(all);
}

static void ranks_are_counted(void **state)
{
    (void)state;
    trial_team = (arf_team){.tp_size = 8, .first_rank = 0, .local_ranks = 8};
    for (int with_shared = 0; with_shared < 2; with_shared++) {
        for (int top_k = 1; top_k <= 10; top_k += 3) {
            arf_shape shape = trial_shape(8, 256, top_k);
            shape.shared_expert = with_shared ? ARF_ON : ARF_OFF;
            arf_trial *trial = trial_make(&shape, 4, ARF_TRIAL_COUNT_RANKS, 1);
            for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
                trial_poison(trial);
                const arf_reference_call call = trial_call(trial, &shape, (arf_pattern)pattern, 4);
                trial_run(trial, &call);
                trial_right(trial, (arf_pattern)pattern, 4);
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
    const arf_shape shape = trial_shape(4, 64, 0);
    arf_trial *trial = trial_make(&shape, 100, ARF_TRIAL_COUNT_RANKS, 3);
    const arf_reference_call call = trial_call(trial, &shape, ARF_ALLREDUCE, 90);
    trial_run(trial, &call);
    const arfuse_operands *operands = arf_trial_operands(trial);
    arf_bf16 *norm = operands[2].norm_out, *x = operands[3].residual_out;

    norm[70 * 64 + 17] ^= 1;
    trial_wrong(trial, ARF_ALLREDUCE, 90,
                "allreduce of 90 tokens on count-ranks data: rank 2, norm_out, token 70, element "
                "17 is 1.0078125 (0x3f81), expected 1 (0x3f80) (1 elements");
    norm[70 * 64 + 17] ^= 1;
    trial_right(trial, ARF_ALLREDUCE, 90);

    x[89 * 64 + 63] = 0x7fc1;
    trial_wrong(trial, ARF_ALLREDUCE, 90,
                "rank 3, residual_out, token 89, element 63 is not written, expected 15 (0x4170)");
    x[89 * 64 + 63] = 0x4170;

    x[90 * 64 + 1] = 0; /* behind the call */
    trial_wrong(trial, ARF_ALLREDUCE, 90,
                "rank 3, residual_out, token 90, element 1 is 0 (0x0000), but the call ends");
    arf_trial_destroy(trial);
}

/* Of a long trial, the rows that may have been written by mistake, and no more. */
static void a_short_call_of_a_long_trial_is_watched(void **state)
{
    (void)state;
    const arf_shape shape = trial_shape(4, 64, 0);
    arf_trial *trial = trial_make(&shape, 1000, ARF_TRIAL_COUNT_RANKS, 3);
    const arf_reference_call all = trial_call(trial, &shape, ARF_ALLREDUCE, 1000);
    const arf_reference_call call = trial_call(trial, &shape, ARF_ALLREDUCE, 9);
    const arfuse_operands *operands = arf_trial_operands(trial);
    trial_run(trial, &all);
    assert_int_equal(arf_trial_poison_for(trial, 9, &trial_error), ARFUSE_OK);
    trial_wrong(trial, ARF_ALLREDUCE, 9, "residual_out, token 0, element 0 is not written");
    trial_run(trial, &call);
    trial_right(trial, ARF_ALLREDUCE, 9);
    ((arf_bf16 *)operands[1].norm_out)[(9 + 255) * 64 + 3] = 0;
    trial_wrong(trial, ARF_ALLREDUCE, 9,
                "rank 1, norm_out, token 264, element 3 is 0 (0x0000), but the call ends");
    arf_trial_destroy(trial);
}

static void another_nan_is_wrong(void **state)
{
    (void)state;
    const arf_shape shape = trial_shape(4, 256, 0);
    arf_trial *trial = trial_make(&shape, 64, ARF_TRIAL_ADVERSARIAL, 3);
    const arf_reference_call call = trial_call(trial, &shape, ARF_ALLREDUCE, 64);
    trial_run(trial, &call);
    arf_bf16 *x = arf_trial_operands(trial)[1].residual_out;
    int at = 0;
    while (at < 64 * 256 && x[at] != 0x7fff)
        at++;
    assert_true(at < 64 * 256);
    x[at] = 0x7fc0;
    trial_wrong(trial, ARF_ALLREDUCE, 64, "expected nan (0x7fff)");
    arf_trial_destroy(trial);
}

/* ---- what the data holds ----------------------------------------------------------------------
 */

static void adversarial_data_are_what_they_claim(void **state)
{
    (void)state;
    const arf_shape shape = trial_shape(4, 512, 8);
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
    const arf_shape shape = trial_shape(4, 256, 8);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
        arf_trial *trial = trial_make(&shape, 64, ARF_TRIAL_ADVERSARIAL, 2);
        const arf_reference_call call = trial_call(trial, &shape, (arf_pattern)pattern, 64);
        trial_run(trial, &call);
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
    const arf_shape shape = trial_shape(8, 6144, 10);
    assert_int_equal(arf_trial_data_of(&shape, 256, ARF_TRIAL_RANDOM, 1).routed_rows, 4 * 256 + 2);
    const arf_shape narrow = trial_shape(8, 6144, 2);
    assert_int_equal(arf_trial_data_of(&narrow, 256, ARF_TRIAL_RANDOM, 1).routed_rows, 2 * 256 + 2);
}

/* ---- refusals ---------------------------------------------------------------------------------
 */

static void refusals_leave_nothing_behind(void **state)
{
    (void)state;
    const arf_shape shape = trial_shape(4, 64, 4);
    arf_trial *trial = NULL;
    assert_int_equal(
        arf_trial_create(&trial_device, &shape, 0, ARF_TRIAL_RANDOM, 1, &trial, &trial_error),
        ARFUSE_USAGE);
    arf_error_clear(&trial_error);
    for (int left = 0; left < 36; left++) { /* nine tensors of four ranks */
        trial_allocations_left = left;
        assert_int_equal(
            arf_trial_create(&trial_device, &shape, 8, ARF_TRIAL_RANDOM, 1, &trial, &trial_error),
            ARFUSE_FAILURE);
        assert_non_null(strstr(trial_error.text, left < 9 ? "rank 0: no memory" : "no memory"));
        assert_null(trial);
        assert_int_equal(trial_live_blocks, 0);
        arf_error_clear(&trial_error);
    }
    trial_allocations_left = 36;
    trial = trial_make(&shape, 8, ARF_TRIAL_RANDOM, 1);
    assert_int_equal(arf_trial_check(trial, ARF_ALLREDUCE, 9, &trial_error), ARFUSE_USAGE);
    arf_error_clear(&trial_error);
    trial_wrong(trial, ARF_ALLREDUCE, 8, "rank 0, residual_out, token 0, element 0 is not written");
    arf_trial_destroy(trial);
    arf_trial_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRIAL_TEST(right_results_pass_at_every_length),
        TRIAL_TEST(switches_of_the_shape_are_kept),
        TRIAL_TEST(any_split_of_the_team_agrees),
        TRIAL_TEST(ranks_are_counted),
        TRIAL_TEST(one_wrong_bit_is_named),
        TRIAL_TEST(a_short_call_of_a_long_trial_is_watched),
        TRIAL_TEST(another_nan_is_wrong),
        TRIAL_TEST(adversarial_data_are_what_they_claim),
        TRIAL_TEST(most_norms_are_finite),
        TRIAL_TEST(memory_is_modest),
        TRIAL_TEST(refusals_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
