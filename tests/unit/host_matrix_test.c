/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits of the host device over the whole space of shapes and calls: a seeded pairwise cover of
 * hidden size, top-k, ranks, tokens, protocol, pattern, switches, tuning and kind of data, each
 * case on ranks that are threads of one process. One cover with a bound on the work of a case;
 * ARFUSE_TEST_LONG=1 takes more covers, without that bound.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "support/device_case.h"
#include "support/pairwise.h"

enum { CAPACITY = 24, MAX_CASES = 200 };
static const int hidden_sizes[] = {8, 2880, 3584, 4096, 5120, 6144, 7168, 8192, 16384};
static const int top_ks[] = {1, 3, 6, 8, 10, 16};
static const int rank_counts[] = {1, 2, 3, 4, 6, 8, 16};
static const int token_counts[] = {0, 1, 2, 17, CAPACITY};
enum factor { HIDDEN, TOP_K, RANKS, TOKENS, PROTOCOL, PATTERN, SWITCHES, VARIANT, KIND, FACTORS };

typedef struct matrix_case {
    arf_shape shape;
    int64_t tokens;
    arf_protocol protocol;
    arf_pattern pattern;
    int variant;
    arf_trial_kind kind;
} matrix_case;

static matrix_case case_of(const pairwise_choice *choice)
{
    const int *level = choice->level, on = level[SWITCHES];
    return (matrix_case){.shape = {rank_counts[level[RANKS]], hidden_sizes[level[HIDDEN]],
                                   top_ks[level[TOP_K]], (arf_switch)(on & 1),
                                   (arf_switch)(on >> 1 & 1), (arf_switch)(on >> 2)},
                         .tokens = token_counts[level[TOKENS]],
                         .protocol = (arf_protocol)level[PROTOCOL],
                         .pattern = (arf_pattern)level[PATTERN],
                         .variant = level[VARIANT],
                         .kind = (arf_trial_kind)level[KIND]};
}

/* The context is the most values that the trial of a case may hold. */
static bool can_be(const pairwise_choice *choice, void *context)
{
    matrix_case one = case_of(choice);
    int64_t values = (one.tokens + 1) * one.shape.hidden_size * one.shape.tp_size * one.shape.top_k;
    return (one.protocol != ARF_SEPARATE || one.pattern == ARF_FINALIZE) &&
           values <= *(const int64_t *)context;
}

/* The call, and a call of one token behind it that meets what the first one left. */
static arfuse_status run_case(const matrix_case *one, uint64_t seed, arf_error *error)
{
    static arf_team team;
    arf_device *device = NULL;
    arf_space *space = NULL;
    arf_trial *trial = NULL;
    /* One row more than the call has, where there is room: it must stay as it was. */
    int64_t rows = one->tokens < CAPACITY ? one->tokens + 1 : CAPACITY;
    ARF_TRY(case_host(NULL, one->shape.tp_size, &team, &device, error));
    arfuse_status status = case_space(device, &one->shape, CAPACITY, 60, &space, error);
    if (status == ARFUSE_OK)
        status = arf_trial_create(device, &one->shape, rows, one->kind, seed, &trial, error);
    if (status == ARFUSE_OK)
        status =
            case_call(space, trial, one->pattern, one->protocol, one->variant, one->tokens, error);
    if (status == ARFUSE_OK)
        status = case_call(space, trial, one->pattern, one->protocol, 0, 1, error);
    arf_trial_destroy(trial);
    if (space)
        device->ops->space_destroy(space);
    arf_device_close(device);
    return status;
}

static void run_cover(uint64_t seed, int64_t values)
{
    static pairwise_choice choice[MAX_CASES];
    const pairwise_space space = {
        FACTORS,
        {9, 6, 7, 5, ARF_PROTOCOLS, ARF_PATTERNS, 8, CASE_VARIANTS, ARF_TRIAL_KINDS},
        can_be,
        &values};
    pairwise_cover cover = pairwise_make(&space, seed, choice, MAX_CASES);
    print_message("seed %d: %d cases, %d of %d pairs\n", (int)seed, cover.choices, cover.covered,
                  cover.pairs);
    assert_int_equal(cover.covered, cover.pairs);
    for (int i = 0; i < cover.choices; i++) {
        matrix_case one = case_of(&choice[i]);
        arf_error error = ARF_ERROR_INIT;
        if (run_case(&one, seed * MAX_CASES + (uint64_t)i, &error) != ARFUSE_OK)
            fail_msg(
                "seed %d case %d: H %d K %d R %d norm %d residual %d shared %d %s M %d kind %d: "
                "%s",
                (int)seed, i, one.shape.hidden_size, one.shape.top_k, one.shape.tp_size,
                one.shape.rms_norm, one.shape.residual, one.shape.shared_expert,
                arf_pattern_name(one.pattern), (int)one.tokens, one.kind, error.text);
    }
}

static void every_pair_has_the_bits_of_the_reference(void **state)
{
    (void)state;
    run_cover(1, (int64_t)32 << 20);
}

static void and_so_have_larger_cases(void **state)
{
    (void)state;
    const char *text = getenv("ARFUSE_TEST_LONG");
    if (text == NULL || strcmp(text, "1") != 0)
        skip();
    for (uint64_t seed = 2; seed < 6; seed++)
        run_cover(seed, INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_has_the_bits_of_the_reference),
        cmocka_unit_test(and_so_have_larger_cases),
    };
    return cmocka_run_group_tests_name("host matrix", tests, NULL, NULL);
}
