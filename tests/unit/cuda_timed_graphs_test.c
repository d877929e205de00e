/* SPDX-License-Identifier: Apache-2.0 */
/* Which graphs of earlier timings are kept, and that each is destroyed once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef ARF_CUDA

#include "device/cuda/timed_graphs.h"

/* Executables are told apart by number. */
enum { MOST = 2 * ARF_TIMED_GRAPHS };
static int destroyed[MOST];

static CUgraphExec executable(uintptr_t number)
{
    return (CUgraphExec)number;
}

static CUresult CUDAAPI destroy(CUgraphExec graph)
{
    destroyed[(uintptr_t)graph]++;
    return CUDA_SUCCESS;
}

static const arf_driver driver = {.cuGraphExecDestroy = destroy};

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < MOST; i++)
        destroyed[i] = 0;
    return 0;
}

static void what_was_kept_is_found(void **state)
{
    (void)state;
    arf_timed_graphs graphs = {0};
    assert_null(arf_timed_find(&graphs, 0));
    arf_timed_keep(&graphs, &driver, 0, executable(1));
    arf_timed_keep(&graphs, &driver, 77, executable(2));
    assert_ptr_equal(arf_timed_find(&graphs, 0), executable(1));
    assert_ptr_equal(arf_timed_find(&graphs, 77), executable(2));
    assert_null(arf_timed_find(&graphs, 78));
}

static void the_one_longest_unused_makes_room(void **state)
{
    (void)state;
    arf_timed_graphs graphs = {0};
    for (uintptr_t i = 1; i <= ARF_TIMED_GRAPHS; i++)
        arf_timed_keep(&graphs, &driver, i, executable(i));
    assert_non_null(arf_timed_find(&graphs, 1)); /* used again: now 2 is the oldest */
    arf_timed_keep(&graphs, &driver, 1000, executable(ARF_TIMED_GRAPHS + 1));
    assert_int_equal(destroyed[2], 1);
    assert_null(arf_timed_find(&graphs, 2));
    assert_non_null(arf_timed_find(&graphs, 1));
    assert_non_null(arf_timed_find(&graphs, 3));
    assert_non_null(arf_timed_find(&graphs, 1000));
}

static void each_is_destroyed_once(void **state)
{
    (void)state;
    arf_timed_graphs graphs = {0};
    for (uintptr_t i = 1; i < MOST; i++)
        arf_timed_keep(&graphs, &driver, i, executable(i));
    arf_timed_drop(&graphs, &driver);
    arf_timed_drop(&graphs, &driver);
    assert_null(arf_timed_find(&graphs, MOST - 1));
    for (int i = 1; i < MOST; i++)
        assert_int_equal(destroyed[i], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_was_kept_is_found, set_up),
        cmocka_unit_test_setup(the_one_longest_unused_makes_room, set_up),
        cmocka_unit_test_setup(each_is_destroyed_once, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/no_cuda.h"
#endif
