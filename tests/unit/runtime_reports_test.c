/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases that users of fused all-reduces have reported, as they look here. Numbers in them are plain
 * enough to be written down by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <time.h>

#include "device/numerics.h"
#include "support/runtime_case.h"
#include "support/threads_bootstrap.h"

static void passes(arfuse_status status, const arf_error *error)
{
    if (status != ARFUSE_OK)
        fail_msg("status %d: %s", status, error->text);
}

/* ---- tensors of one value -------------------------------------------------------------------- */

enum { MOST_RANKS = 8 };

static void *filled(size_t count, float value)
{
    arf_bf16 *tensor = aligned_alloc(64, (count * 2 + 63) / 64 * 64);
    assert_non_null(tensor);
    for (size_t i = 0; i < count; i++)
        tensor[i] = arf_float_to_bf16(value);
    return tensor;
}

typedef struct plain {
    arf_shape shape;
    int64_t tokens, routed_rows;
    arfuse_workspace *workspace;
    arfuse_operands operands[MOST_RANKS];
    arfuse_call call;
} plain;

/* Every tensor zero, gamma and routing weights one, every slot of token m at row m K + k (as far as
 * there are rows). */
static void open_plain(plain *p, arf_shape shape, int64_t capacity, int64_t tokens,
                       int64_t routed_rows)
{
    arf_error error = ARF_ERROR_INIT;
    *p = (plain){.shape = shape, .tokens = tokens, .routed_rows = routed_rows};
    arfuse_options options = case_options(&shape, capacity);
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_DEFAULT;
    passes(arfuse_workspace_create(NULL, &options, &p->workspace, &error), &error);
    const size_t row = (size_t)shape.hidden_size, slots = (size_t)(tokens * shape.top_k);
    for (int r = 0; r < shape.tp_size; r++) {
        arfuse_operands *o = &p->operands[r];
        int32_t *indices = calloc(slots + 1, sizeof *indices);
        assert_non_null(indices);
        for (size_t i = 0; i < slots; i++)
            indices[i] = (int64_t)i < routed_rows ? (int32_t)i : -1;
        *o = (arfuse_operands)ARFUSE_OPERANDS_INIT;
        o->input = filled((size_t)tokens * row, 0);
        o->routed = filled((size_t)routed_rows * row, 0);
        o->routed_rows = routed_rows;
        o->weights = filled(slots, 1);
        o->indices = indices;
        o->shared = filled((size_t)tokens * row, 0);
        o->residual = filled((size_t)tokens * row, 0);
        o->gamma = filled(row, 1);
        o->residual_out = filled((size_t)tokens * row, -7);
        o->norm_out = filled((size_t)tokens * row, -7);
    }
    p->call = (arfuse_call)ARFUSE_CALL_INIT;
    p->call.tokens = tokens;
}

static void close_plain(plain *p)
{
    arf_error error = ARF_ERROR_INIT;
    for (int r = 0; r < p->shape.tp_size; r++) {
        const arfuse_operands *o = &p->operands[r];
        const void *const all[] = {o->input,    o->routed, o->weights,      o->indices, o->shared,
                                   o->residual, o->gamma,  o->residual_out, o->norm_out};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            free((void *)(uintptr_t)all[i]);
    }
    passes(arfuse_workspace_destroy(&p->workspace, &error), &error);
}

static void set(const void *tensor, size_t first, size_t count, float value)
{
    arf_bf16 *values = (arf_bf16 *)(uintptr_t)tensor;
    for (size_t i = 0; i < count; i++)
        values[first + i] = arf_float_to_bf16(value);
}

/* All elements of these rows, on all ranks. */
static void expect(const plain *p, bool norm, int64_t first, int64_t rows, float value)
{
    for (int r = 0; r < p->shape.tp_size; r++) {
        const arf_bf16 *out = norm ? p->operands[r].norm_out : p->operands[r].residual_out;
        for (int64_t i = first * p->shape.hidden_size; i < (first + rows) * p->shape.hidden_size;
             i++)
            if (out[i] != arf_float_to_bf16(value))
                fail_msg("rank %d, element %d: %g, expected %g", r, (int)i,
                         (double)arf_bf16_to_float(out[i]), (double)value);
    }
}

/* Each route of the workspace in turn, and unfused. */
static void by_every_route(plain *p, arfuse_pattern pattern, void (*verify)(const plain *p))
{
    arfuse_info info = ARFUSE_INFO_INIT;
    assert_int_equal(arfuse_workspace_info(p->workspace, &info), ARFUSE_OK);
    assert_true(info.routes[pattern] > 0);
    for (int route = ARFUSE_ROUTE_UNFUSED; route < info.routes[pattern]; route++) {
        arf_error error = ARF_ERROR_INIT;
        p->call.route = route;
        passes((pattern == ARFUSE_FINALIZE ? arfuse_finalize : arfuse_allreduce)(
                   p->workspace, &p->call, p->operands, &error),
               &error);
        verify(p);
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void expect_255(const plain *p)
{
    expect(p, false, 0, p->tokens, 255);
}

/* Rank r adds 2^r: any other sum names the rank that is missing or counted twice. */
static void no_rank_is_missing_or_doubled(void **state)
{
    (void)state;
    plain p;
    open_plain(&p, (arf_shape){8, 6144, 2, ARF_ON, ARF_ON, ARF_ON}, 64, 4, 8);
    for (int r = 0; r < 8; r++) {
        set(p.operands[r].input, 0, 4 * 6144, (float)(1 << r));
        set(p.operands[r].routed, 0, 8 * 6144, (float)(1 << r) / 2);
    }
    by_every_route(&p, ARFUSE_ALLREDUCE, expect_255);
    by_every_route(&p, ARFUSE_FINALIZE, expect_255);
    close_plain(&p);
}

static void expect_260(const plain *p)
{
    expect(p, false, 0, 1, 260);
}

/* One rounding at the end, not one a term: 256 + 9 x 0.5 is 260 (260.5 to even), not 256. */
static void terms_are_not_rounded_one_by_one(void **state)
{
    (void)state;
    plain p;
    open_plain(&p, (arf_shape){8, 64, 10, ARF_ON, ARF_ON, ARF_ON}, 16, 1, 10);
    set(p.operands[3].routed, 0, 64, 256);
    set(p.operands[3].routed, 64, 9 * 64, 0.5f);
    by_every_route(&p, ARFUSE_FINALIZE, expect_260);
    /* 256 on rank 0 and 0.5 on the seven others: 259.5, to even. */
    set(p.operands[0].input, 0, 64, 256);
    for (int r = 1; r < 8; r++)
        set(p.operands[r].input, 0, 64, 0.5f);
    by_every_route(&p, ARFUSE_ALLREDUCE, expect_260);
    close_plain(&p);
}

static void expect_4(const plain *p)
{
    expect(p, false, 0, p->tokens, 4);
}

static void expect_1(const plain *p)
{
    expect(p, false, 0, p->tokens, 1);
}

/* A shared expert that is a partial sum is summed once; a complete one comes from rank 0 alone. The
 * residual is added once, not once a rank. */
static void the_shared_expert_is_reduced_once(void **state)
{
    (void)state;
    plain p;
    open_plain(&p, (arf_shape){4, 64, 2, ARF_ON, ARF_ON, ARF_ON}, 16, 5, 10);
    for (int r = 0; r < 4; r++)
        set(p.operands[r].shared, 0, 5 * 64, 1);
    by_every_route(&p, ARFUSE_FINALIZE, expect_4);
    for (int r = 1; r < 4; r++)
        set(p.operands[r].shared, 0, 5 * 64, 0);
    by_every_route(&p, ARFUSE_FINALIZE, expect_1);
    set(p.operands[0].shared, 0, 5 * 64, 0);
    for (int r = 0; r < 4; r++)
        set(p.operands[r].residual, 0, 5 * 64, 1);
    by_every_route(&p, ARFUSE_FINALIZE, expect_1);
    by_every_route(&p, ARFUSE_ALLREDUCE, expect_1);
    close_plain(&p);
}

/* ---- dropped slots and the expert buffer ----------------------------------------------------- */

static void expect_dropped(const plain *p)
{
    expect(p, false, 2, 1, 9 + 3);
    expect(p, false, 5, 1, 0 + 3);
    expect(p, false, 6, 1, 10 + 3);
}

/* Token 5 has ten dropped slots, token 2 one; the rows that nobody names hold NaN. */
static void dropped_slots_are_not_read(void **state)
{
    (void)state;
    plain p;
    open_plain(&p, (arf_shape){2, 64, 10, ARF_ON, ARF_ON, ARF_ON}, 16, 8, 80);
    for (int r = 0; r < 2; r++) {
        int32_t *indices = (int32_t *)(uintptr_t)p.operands[r].indices;
        arf_bf16 *routed = (arf_bf16 *)(uintptr_t)p.operands[r].routed;
        set(routed, 0, 80 * 64, 0.5f);
        set(p.operands[r].residual, 0, 8 * 64, 2);
        set(p.operands[r].shared, 0, 8 * 64, 0.5f);
        for (int k = 0; k < 11; k++) {
            int slot = k < 10 ? 50 + k : 27;
            indices[slot] = -1;
            for (int h = 0; h < 64; h++)
                routed[slot * 64 + h] = ARF_BF16_NAN;
        }
    }
    by_every_route(&p, ARFUSE_FINALIZE, expect_dropped);
    close_plain(&p);
}

/* What counts is M, not how many rows the padded expert buffer has. */
static void the_expert_buffer_does_not_count(void **state)
{
    (void)state;
    plain p;
    arf_error error = ARF_ERROR_INIT;
    open_plain(&p, (arf_shape){2, 64, 10, ARF_ON, ARF_ON, ARF_ON}, 64, 64, 1024);
    set(p.operands[0].routed, 0, 640 * 64, 0.25f);
    assert_int_equal(arfuse_would_fuse(p.workspace, ARFUSE_FINALIZE, &p.call), 1);
    passes(arfuse_finalize(p.workspace, &p.call, p.operands, &error), &error);
    expect(&p, false, 0, 64, 2.5f);
    close_plain(&p);
    /* Far more tokens than rows here: above the capacity, on every rank alike. */
    open_plain(&p, (arf_shape){2, 64, 2, ARF_ON, ARF_ON, ARF_ON}, 64, 4096, 16);
    set(p.operands[1].routed, 0, 16 * 64, 1);
    assert_int_equal(arfuse_would_fuse(p.workspace, ARFUSE_FINALIZE, &p.call), 0);
    passes(arfuse_finalize(p.workspace, &p.call, p.operands, &error), &error);
    expect(&p, false, 0, 8, 2);
    expect(&p, false, 8, 4088, 0);
    close_plain(&p);
}

/* ---- norm ------------------------------------------------------------------------------------ */

static void expect_071(const plain *p)
{
    /* x = bf16(1e-3), so that x^2 + eps is a little more than 2e-6. */
    const float x = arf_bf16_to_float(arf_float_to_bf16(1e-3f));
    expect(p, true, 0, 1, x * (1 / sqrtf(x * x + 1e-6f)));
    expect(p, true, 1, 1, 0);
}

static void expect_030(const plain *p)
{
    const float x = arf_bf16_to_float(arf_float_to_bf16(1e-3f));
    expect(p, true, 0, 1, x * (1 / sqrtf(x * x + 1e-5f)));
    expect(p, true, 1, 1, 0);
}

/* Epsilon is the call's: a row of 1e-3 is about 0.71 with 1e-6 and about 0.30 with 1e-5. */
static void epsilon_is_the_calls(void **state)
{
    (void)state;
    plain p;
    open_plain(&p, (arf_shape){2, 64, 2, ARF_ON, ARF_ON, ARF_ON}, 16, 2, 4);
    set(p.operands[0].input, 0, 64, 1e-3f);
    p.call.epsilon = 1e-6f;
    by_every_route(&p, ARFUSE_ALLREDUCE, expect_071);
    assert_true(fabsf(arf_bf16_to_float(*(arf_bf16 *)p.operands[0].norm_out) - 0.71f) < 0.005f);
    p.call.epsilon = 1e-5f;
    by_every_route(&p, ARFUSE_ALLREDUCE, expect_030);
    assert_true(fabsf(arf_bf16_to_float(*(arf_bf16 *)p.operands[0].norm_out) - 0.30f) < 0.005f);
    close_plain(&p);
}

/* ---- lost ranks ------------------------------------------------------------------------------ */

typedef struct lost_case {
    arfuse_status first[3], second[3], asked[3], again[3];
    arfuse_culprit culprit[3];
    arf_error error[3];
    bool nan[3];
    double seconds[3];
} lost_case;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Rank 2 leaves out one call: the others end by themselves, know who it was, and go on afterwards
 * with a new workspace. */
static void lose_rank_2(const arfuse_bootstrap *bootstrap, void *context)
{
    lost_case *c = context;
    const int rank = bootstrap->rank;
    const arf_shape shape = {3, 64, 2, ARF_ON, ARF_ON, ARF_ON};
    arfuse_workspace *workspace = NULL;
    arfuse_options options = case_options(&shape, 16);
    options.local_ranks = 1;
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_DEFAULT;
    options.wait_limit_seconds = 0.3;
    uint16_t tensor[5][4 * 64] __attribute__((aligned(64))) = {{0}};
    arfuse_operands operands = ARFUSE_OPERANDS_INIT;
    operands.input = tensor[0];
    operands.residual = tensor[1];
    operands.gamma = tensor[2];
    operands.residual_out = tensor[3];
    operands.norm_out = tensor[4];
    arfuse_call call = ARFUSE_CALL_INIT;
    call.tokens = 4;
    if (arfuse_workspace_create(bootstrap, &options, &workspace, &c->error[rank]) != ARFUSE_OK)
        return;
    const double start = now();
    if (rank != 2)
        c->first[rank] = arfuse_allreduce(workspace, &call, &operands, &c->error[rank]);
    bootstrap->barrier(bootstrap->context);
    c->nan[rank] = tensor[3][0] == ARF_BF16_NAN && tensor[4][255] == ARF_BF16_NAN;
    c->culprit[rank].struct_size = sizeof c->culprit[rank];
    c->asked[rank] = arfuse_workspace_status(workspace, &c->culprit[rank]);
    c->second[rank] = arfuse_allreduce(workspace, &call, &operands, NULL);
    c->seconds[rank] = now() - start;
    bootstrap->barrier(bootstrap->context);
    arfuse_workspace_destroy(&workspace, NULL);
    options.wait_limit_seconds = 30;
    c->again[rank] = arfuse_workspace_create(bootstrap, &options, &workspace, &c->error[rank]);
    if (c->again[rank] == ARFUSE_OK)
        c->again[rank] = arfuse_allreduce(workspace, &call, &operands, &c->error[rank]);
    bootstrap->barrier(bootstrap->context);
    arfuse_workspace_destroy(&workspace, NULL);
}

static void a_lost_rank_is_named_and_nothing_looks_right(void **state)
{
    (void)state;
    lost_case c = {0};
    threads_bootstrap_run(3, lose_rank_2, &c);
    for (int rank = 0; rank < 3; rank++) {
        if (rank != 2) {
            assert_int_equal(c.first[rank], ARFUSE_TIMEOUT);
            assert_true(c.nan[rank]);
        }
        assert_int_equal(c.asked[rank], ARFUSE_TIMEOUT);
        assert_int_equal(c.culprit[rank].rank, 2);
        assert_int_equal(c.second[rank], ARFUSE_TIMEOUT);
        assert_true(c.seconds[rank] < 10);
        if (c.again[rank] != ARFUSE_OK)
            fail_msg("rank %d: %s", rank, c.error[rank].text);
    }
}

/* ---- several teams and workspaces ------------------------------------------------------------ */

static void work_in_a_group(const arfuse_bootstrap *bootstrap, void *context)
{
    const arf_shape shape = {2, 64, 0, ARF_ON, ARF_ON, ARF_OFF};
    int *wrong = context;
    arfuse_workspace *workspace = NULL;
    arfuse_options options = case_options(&shape, 16);
    options.local_ranks = 1;
    options.routes[0] = ARFUSE_ROUTES_DEFAULT;
    uint16_t tensor[5][64] __attribute__((aligned(64))) = {{0}};
    arfuse_operands operands = ARFUSE_OPERANDS_INIT;
    operands.input = tensor[0];
    operands.residual = tensor[1];
    operands.gamma = tensor[2];
    operands.residual_out = tensor[3];
    operands.norm_out = tensor[4];
    arfuse_call call = ARFUSE_CALL_INIT;
    call.tokens = 1;
    if (arfuse_workspace_create(bootstrap, &options, &workspace, NULL) != ARFUSE_OK) {
        wrong[bootstrap->rank]++;
        return;
    }
    for (int i = 1; i < 60; i++) {
        set(tensor[0], 0, 64, (float)i);
        if (arfuse_allreduce(workspace, &call, &operands, NULL) != ARFUSE_OK ||
            tensor[3][17] != arf_float_to_bf16((float)(2 * i)))
            wrong[bootstrap->rank]++;
    }
    bootstrap->barrier(bootstrap->context);
    arfuse_workspace_destroy(&workspace, NULL);
}

static void *one_group(void *context)
{
    threads_bootstrap_run(2, work_in_a_group, context);
    return NULL;
}

/* Only the processes of the bootstrap take part: two groups at once, and one after the other. */
static void groups_do_not_meet(void **state)
{
    (void)state;
    int wrong[2][2] = {{0}};
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, one_group, wrong[0]), 0);
    one_group(wrong[1]);
    pthread_join(other, NULL);
    one_group(wrong[1]);
    assert_int_equal(wrong[0][0] + wrong[0][1] + wrong[1][0] + wrong[1][1], 0);
}

/* Workspaces of several shapes side by side, in any order, and destroyed in any order. */
static void workspaces_live_side_by_side(void **state)
{
    (void)state;
    static const int hidden[] = {64, 128, 64};
    arfuse_workspace *workspace[3] = {NULL};
    arf_trial *trial[3] = {NULL};
    arf_error error = ARF_ERROR_INIT;
    for (int i = 0; i < 3; i++) {
        arf_shape shape = {3, hidden[i], 2, ARF_ON, ARF_ON, ARF_ON};
        arfuse_options options = case_options(&shape, 16);
        options.routes[0] = options.routes[1] = ARFUSE_ROUTES_DEFAULT;
        passes(arfuse_workspace_create(NULL, &options, &workspace[i], &error), &error);
        passes(arf_trial_create(workspace[i]->device, &shape, 20, ARF_TRIAL_ADVERSARIAL,
                                (uint64_t)i, &trial[i], &error),
               &error);
    }
    for (int call = 0; call < 90; call++)
        passes(case_run(workspace[call * 7 % 3], trial[call * 7 % 3], (arfuse_pattern)(call % 2),
                        case_call_of(trial[call * 7 % 3], call * 5 % 21), &error),
               &error);
    for (int i = 1; i >= -1; i--) {
        arf_trial_destroy(trial[(i + 3) % 3]);
        passes(arfuse_workspace_destroy(&workspace[(i + 3) % 3], &error), &error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_rank_is_missing_or_doubled),
        cmocka_unit_test(terms_are_not_rounded_one_by_one),
        cmocka_unit_test(the_shared_expert_is_reduced_once),
        cmocka_unit_test(dropped_slots_are_not_read),
        cmocka_unit_test(the_expert_buffer_does_not_count),
        cmocka_unit_test(epsilon_is_the_calls),
        cmocka_unit_test(a_lost_rank_is_named_and_nothing_looks_right),
        cmocka_unit_test(groups_do_not_meet),
        cmocka_unit_test(workspaces_live_side_by_side),
    };
    return cmocka_run_group_tests_name("runtime_reports", tests, NULL, NULL);
}
