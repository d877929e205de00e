/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of the rules as test data, but those of HT (legal_ht_test.c). Sources: FlashInfer pull
 * requests 4358 and 5178, SGLang 34134, TokenSpeed 1547.
 */
#include "rules/legal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rules/knobs.h"
#include "support/rules_case.h"

/* ---- LL, BT, the rest ---------------------------------------------------------------------------
 */

static void broken_ll_and_bt_rules_are_named(void **state)
{
    (void)state;
    static const struct {
        arf_set set;
        arf_pattern pattern;
        arf_protocol protocol;
        int hidden, ranks;
        const char *knob;
        int32_t value;
        const char *reason;
    } cases[] = {
        {ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_LL, 6144, 8, "elements_per_thread", 2,
         "elements_per_thread 2: not one of 1, 4"},
        {ARF_SET_FLASHINFER, ARF_ALLREDUCE, ARF_LL, 6144, 8, "elements_per_thread", 2,
         "elements_per_thread 2: not one of 1, 4, 8"},
        {ARF_SET_ARFUSE, ARF_FINALIZE, ARF_LL, 6144, 8, "elements_per_thread", 3,
         "elements_per_thread 3: not one of 1, 2, 4, 8"},
        {ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_LL, 6144, 8, "threads", 100,
         "threads 100: not a multiple of 32 from 32 to 1024"},
        {ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_LL, 6144, 8, "threads", 2048,
         "threads 2048: not from 32 to 1024"},
        {ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_LL, 6144, 8, "collect_threads", 48,
         "collect_threads 48: not a multiple of 32 from 32 to 1024"},
        {ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_LL, 6144, 4, "collect_lanes", 8,
         "collect_lanes 8: does not divide 4 ranks"},
        {ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_LL, 6144, 4, "collect_lanes", 3,
         "collect_lanes 3: not one of 1, 2, 4, 8"},
        {ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_LL, 6144, 4, "collect_cluster", 17,
         "collect_cluster 17: not from 1 to 16"},
        {ARF_SET_ARFUSE, ARF_FINALIZE, ARF_LL, 6144, 3, "collect_lanes", 4,
         "collect_lanes 4: more than 3 ranks"},
        {ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_LL, 6144, 8, "prefetch_group", 0,
         "prefetch_group 0: not from 1 to 64"},
        {ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_BT, 6144, 8, "elements_per_thread", 16,
         "elements_per_thread 16: not from 1 to 8"},
        {ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_BT, 6144, 8, "reduction_threads", 33,
         "reduction_threads 33: not a multiple of 32 from 32 to 1024"},
        {ARF_SET_FLASHINFER, ARF_ALLREDUCE, ARF_BT, 6144, 8, "rms_threads", 1000,
         "rms_threads 1000: not a multiple of 32 from 32 to 1024"},
        {ARF_SET_ARFUSE, ARF_ALLREDUCE, ARF_BT, 6144, 5, "owner", 1,
         "owner 1: 768 packs a token do not cut into 5 equal slices"},
        {ARF_SET_HOST, ARF_ALLREDUCE, ARF_BT, 6144, 5, "owner", 1,
         "owner 1: 768 packs a token do not cut into 5 equal slices"},
        {ARF_SET_ARFUSE, ARF_ALLREDUCE, ARF_BT, 6144, 8, "vectors_per_thread", 3,
         "vectors_per_thread 3: not one of 1, 2, 4, 8"},
        {ARF_SET_ARFUSE, ARF_ALLREDUCE, ARF_BT, 6144, 8, "kernels", 2,
         "kernels 2: not one of 3, 1"},
        {ARF_SET_ARFUSE, ARF_FINALIZE, ARF_BT, 6144, 8, "kernels", 4, "kernels 4: not from 1 to 3"},
        {ARF_SET_ARFUSE, ARF_FINALIZE, ARF_LL, 6144, 8, "kernels", 3, "kernels 3: not from 1 to 2"},
        {ARF_SET_ARFUSE, ARF_ALLREDUCE, ARF_BT, 6144, 8, "rms_cluster", 0,
         "rms_cluster 0: not from 1 to 16"},
        {ARF_SET_ARFUSE, ARF_FINALIZE, ARF_BT, 6144, 8, "rms_cluster", 17,
         "rms_cluster 17: not from 1 to 16"},
        {ARF_SET_ARFUSE, ARF_FINALIZE, ARF_SEPARATE, 6144, 8, "release_before_store", 2,
         "release_before_store 2: not from 0 to 1"},
        {ARF_SET_HOST, ARF_FINALIZE, ARF_HT, 8, 2, "shards", 2,
         "shards 2: more than the 1 packs of a token"},
        {ARF_SET_ARFUSE, ARF_ALLREDUCE, ARF_UNFUSED, 6144, 8, "rms_threads", 40,
         "rms_threads 40: not a multiple of 32 from 32 to 1024"},
        {ARF_SET_ARFUSE, ARF_FINALIZE, ARF_SEPARATE, 6144, 8, "elements_per_thread", 5,
         "elements_per_thread 5: not one of 1, 2, 4, 8"},
        {ARF_SET_ARFUSE, ARF_FINALIZE, ARF_LL, 6144, 8, "kernels", ARF_KNOB_NULL,
         "kernels: must not be null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arf_problem problem = rules_problem(cases[i].set, cases[i].hidden, cases[i].ranks);
        arf_plan plan = arf_least_plan(cases[i].set, cases[i].pattern, cases[i].protocol);
        assert_true(arf_legal(&problem, cases[i].pattern, &plan, NULL));
        rules_put(cases[i].set, cases[i].pattern, &plan, cases[i].knob, cases[i].value);
        char reason[ARF_REASON_TEXT] = "";
        assert_false(arf_legal(&problem, cases[i].pattern, &plan, reason));
        assert_string_equal(reason, cases[i].reason);
    }
    /* The knob that has to be wide enough follows another one. */
    arf_problem problem = rules_problem(ARF_SET_FLASHINFER, 8192, 8);
    arf_plan plan = arf_least_plan(ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_LL);
    rules_put(ARF_SET_FLASHINFER, ARF_FINALIZE, &plan, "collect_cluster", 16);
    assert_true(arf_legal(&problem, ARF_FINALIZE, &plan, NULL));
}

static void broken_shapes_and_promises_are_named(void **state)
{
    (void)state;
    static const struct {
        arf_problem problem;
        arf_protocol protocol;
        arf_pattern pattern;
        arf_transport transport;
        arf_numerics numerics;
        const char *reason;
    } cases[] = {
        {{ARF_SET_ARFUSE, {8, 6143, 8, ARF_ON, ARF_ON, ARF_ON}, 0, 0, 0, NULL},
         ARF_LL,
         ARF_ALLREDUCE,
         ARF_UNICAST,
         ARF_FIXED,
         "hidden_size 6143: not a multiple of 8"},
        {{ARF_SET_ARFUSE, {8, 0, 8, ARF_ON, ARF_ON, ARF_ON}, 0, 0, 0, NULL},
         ARF_LL,
         ARF_ALLREDUCE,
         ARF_UNICAST,
         ARF_FIXED,
         "hidden_size 0: not from 8 to 65536"},
        {{ARF_SET_ARFUSE, {73, 6144, 8, ARF_ON, ARF_ON, ARF_ON}, 0, 0, 0, NULL},
         ARF_LL,
         ARF_ALLREDUCE,
         ARF_UNICAST,
         ARF_FIXED,
         "tp_size 73: not from 1 to 72"},
        {{ARF_SET_SGLANG, {3, 6144, 8, ARF_ON, ARF_ON, ARF_ON}, 0, 0, 0, NULL},
         ARF_BT,
         ARF_ALLREDUCE,
         ARF_MULTICAST_STORE,
         ARF_LIBRARY,
         "tp_size 3: kernel set sglang has 2, 4, 8 and 16"},
        {{ARF_SET_ARFUSE, {8, 6144, 65, ARF_ON, ARF_ON, ARF_ON}, 0, 0, 0, NULL},
         ARF_LL,
         ARF_ALLREDUCE,
         ARF_UNICAST,
         ARF_FIXED,
         "top_k 65: not from 0 to 64"},
        {{ARF_SET_ARFUSE, {8, 6144, 0, ARF_ON, ARF_ON, ARF_ON}, 0, 0, 0, NULL},
         ARF_LL,
         ARF_FINALIZE,
         ARF_UNICAST,
         ARF_FIXED,
         "finalize: top_k is 0, a dense model has nothing to finalize"},
        {{ARF_SET_FLASHINFER, {8, 6144, 8, ARF_OFF, ARF_ON, ARF_ON}, 0, 0, 0, NULL},
         ARF_HT,
         ARF_FINALIZE,
         ARF_MULTICAST_STORE,
         ARF_IN_NETWORK,
         "rms_norm false: kernel set flashinfer has no ht kernel without the norm"},
        {{ARF_SET_FLASHINFER, {8, 6144, 8, ARF_ON, ARF_ON, ARF_ON}, 0, 0, 0, NULL},
         ARF_LL,
         ARF_FINALIZE,
         ARF_MULTICAST_STORE,
         ARF_FIXED,
         "numerics fixed: kernel set flashinfer sums in an order of its own"},
        {{ARF_SET_FLASHINFER, {8, 6144, 8, ARF_ON, ARF_ON, ARF_ON}, 0, 0, 0, NULL},
         ARF_SEPARATE,
         ARF_FINALIZE,
         ARF_MULTICAST_STORE,
         ARF_LIBRARY,
         "kernel set flashinfer has no separate for finalize"},
        {{ARF_SET_HOST, {8, 6144, 8, ARF_ON, ARF_ON, ARF_ON}, 0, 0, 0, NULL},
         ARF_LL,
         ARF_FINALIZE,
         ARF_MULTICAST_STORE,
         ARF_FIXED,
         "transport multicast-store: ll of kernel set arfuse-host has unicast only"},
        {{ARF_SET_ARFUSE, {8, 6144, 8, ARF_ON, ARF_ON, ARF_ON}, 0, 0, 0, NULL},
         ARF_BT,
         ARF_FINALIZE,
         ARF_UNICAST,
         ARF_LIBRARY,
         "numerics library: bt of kernel set arfuse calls no library"},
        {{ARF_SET_ARFUSE, {8, 6144, 8, ARF_ON, ARF_ON, ARF_ON}, 0, 0, 0, NULL},
         ARF_HT,
         ARF_FINALIZE,
         ARF_UNICAST,
         ARF_IN_NETWORK,
         "numerics in-network: only ht over multicast sums in the network"},
        {{ARF_SET_ARFUSE, {8, 6144, 8, ARF_ON, ARF_ON, ARF_ON}, 0, 0, 0, "8 ranks share a GPU"},
         ARF_UNFUSED,
         ARF_ALLREDUCE,
         ARF_UNICAST,
         ARF_LIBRARY,
         "numerics library: 8 ranks share a GPU"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arf_plan plan = arf_least_plan(cases[i].problem.set, cases[i].pattern, cases[i].protocol);
        plan.transport = cases[i].transport;
        plan.numerics = cases[i].numerics;
        char reason[ARF_REASON_TEXT] = "";
        assert_false(arf_legal(&cases[i].problem, cases[i].pattern, &plan, reason));
        assert_string_equal(reason, cases[i].reason);
    }
    /* Unknown launch parameters are judged by everything else. */
    arf_problem problem = rules_problem(ARF_SET_FLASHINFER, 3584, 8);
    arf_plan plan = arf_least_plan(ARF_SET_FLASHINFER, ARF_FINALIZE, ARF_HT);
    assert_false(arf_legal(&problem, ARF_FINALIZE, &plan, NULL));
    plan.tuning_null = true;
    assert_true(arf_legal(&problem, ARF_FINALIZE, &plan, NULL));
    problem.shape.rms_norm = ARF_OFF;
    assert_false(arf_legal(&problem, ARF_FINALIZE, &plan, NULL));
}

static void ll_and_bt_exclude_no_hidden_size(void **state)
{
    (void)state;
    for (int set = 0; set < ARF_SETS; set++)
        for (int hidden = 8; hidden <= 16384; hidden += 8)
            for (int ranks = 2; ranks <= 16; ranks *= 2) {
                arf_problem problem = rules_problem((arf_set)set, hidden, ranks);
                assert_true(arf_reachable(&problem, ARF_FINALIZE, ARF_LL, NULL));
                assert_true(arf_reachable(&problem, ARF_ALLREDUCE, ARF_LL, NULL));
                assert_true(arf_reachable(&problem, ARF_FINALIZE, ARF_BT, NULL));
                assert_true(arf_reachable(&problem, ARF_ALLREDUCE, ARF_BT, NULL));
            }
}

/* ---- derived numbers
 * ----------------------------------------------------------------------------- */

static void blocks_a_token_are_those_of_the_tables(void **state)
{
    (void)state;
    static const struct {
        int hidden;
        int finalize, allreduce; /* LL: 4 x 128, 8 x 128 */
        int preset0, preset1;    /* BT finalize: 2 x 256, 8 x 128 */
        int reduce32, reduce128, reduce320;
    } rows[] = {{16384, 32, 16, 32, 16, 64, 16, 7}, {8192, 16, 8, 16, 8, 32, 8, 4},
                {7168, 14, 7, 14, 7, 28, 7, 3},     {6144, 12, 6, 12, 6, 24, 6, 3},
                {5120, 10, 5, 10, 5, 20, 5, 2},     {4096, 8, 4, 8, 4, 16, 4, 2},
                {3584, 7, 4, 7, 4, 14, 4, 2},       {2880, 6, 3, 6, 3, 12, 3, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int hidden = rows[i].hidden;
        assert_int_equal(arf_publish_blocks(hidden, 4, 128), rows[i].finalize);
        assert_int_equal(arf_publish_blocks(hidden, 8, 128), rows[i].allreduce);
        assert_int_equal(arf_publish_blocks(hidden, 2, 256), rows[i].preset0);
        assert_int_equal(arf_publish_blocks(hidden, 8, 128), rows[i].preset1);
        assert_int_equal(arf_publish_blocks(hidden, 8, 32), rows[i].reduce32);
        assert_int_equal(arf_publish_blocks(hidden, 8, 128), rows[i].reduce128);
        assert_int_equal(arf_publish_blocks(hidden, 8, 320), rows[i].reduce320);
    }
    assert_int_equal(arf_publish_blocks(6144, 1, 128), 48);
}

static void splits_are_those_that_were_published(void **state)
{
    (void)state;
    static const struct {
        int hidden, threads, vectors;
    } cases[] = {{8192, 512, 2}, {7168, 448, 2},  {6144, 384, 2}, {5120, 320, 2},
                 {4096, 256, 2}, {16384, 512, 4}, {3584, 224, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arf_split split;
        assert_true(arf_derived_split(cases[i].hidden, &split));
        assert_int_equal(split.consumer_threads, cases[i].threads);
        assert_int_equal(split.vectors_per_thread, cases[i].vectors);
    }
    arf_split untouched = {7, 7};
    assert_false(arf_derived_split(2880, &untouched));
    assert_int_equal(untouched.consumer_threads, 7);
    assert_false(arf_derived_split(8, &untouched));
}

static void owned_tokens_add_up(void **state)
{
    (void)state;
    static const int64_t thirteen[] = {2, 2, 2, 2, 2, 1, 1, 1};
    for (int rank = 0; rank < 8; rank++)
        assert_int_equal(arf_owned_tokens(13, 8, rank), thirteen[rank]);
    for (int64_t tokens = 0; tokens < 40; tokens++)
        for (int ranks = 1; ranks <= 16; ranks++) {
            int64_t sum = 0, counted = 0;
            for (int rank = 0; rank < ranks; rank++) {
                sum += arf_owned_tokens(tokens, ranks, rank);
                for (int64_t token = 0; token < tokens; token++)
                    counted += token % ranks == rank;
                assert_int_equal(sum, counted);
            }
            assert_int_equal(sum, tokens);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_ll_and_bt_rules_are_named),
        cmocka_unit_test(broken_shapes_and_promises_are_named),
        cmocka_unit_test(ll_and_bt_exclude_no_hidden_size),
        cmocka_unit_test(blocks_a_token_are_those_of_the_tables),
        cmocka_unit_test(splits_are_those_that_were_published),
        cmocka_unit_test(owned_tokens_add_up),
    };
    return cmocka_run_group_tests_name("legal", tests, NULL, NULL);
}
