/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call of the cuda device enqueues, against a stand-in for libcuda (tests/fakecuda): calls
 * that fail half way tell the peers; where the ordering rule is watched, calls stand between marks
 * on the busy word of the GPU, and who breaks the rule is named.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef ARF_CUDA

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_device.h"
#include "rules/knobs.h"
#include "rules/seeds.h"
#include "support/standin.h"

static void (*arm)(int);
static int (*calls)(const char **);
static int (*live)(void);
static const char *(*launched)(int);
static unsigned (*flags)(void);

enum { RANKS = 2, HIDDEN = 1024, TOP_K = 4, CAPACITY = 8 };

/* A team of one process with two local ranks, and a space with plans of it. */
typedef struct scene {
    arf_team team;
    arf_device *device;
    arf_space *space;
    int ll, separate;
    arfuse_operands operands[RANKS];
} scene;

static void passes(arfuse_status status, const arf_error *error)
{
    if (status != ARFUSE_OK)
        fail_msg("%d: %s", status, error->text);
}

static int prepared(arf_space *space, arf_pattern pattern, arf_protocol protocol)
{
    int id = -1;
    arf_error error = ARF_ERROR_INIT;
    const arf_plan plan = {.protocol = protocol,
                           .tuning =
                               arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, protocol, pattern))};
    passes(arf_cuda_device.prepare(space, pattern, &plan, &id, &error), &error);
    return id;
}

static arf_space *space_on(arf_device *device, const char *label, bool check_order)
{
    arf_error error = ARF_ERROR_INIT;
    arf_space *space = NULL;
    arf_space_spec spec = {.shape = {RANKS, HIDDEN, TOP_K, ARF_ON, ARF_ON, ARF_ON},
                           .wait_limit_seconds = 1,
                           .check_order = check_order};
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        spec.capacity[p] = CAPACITY;
    snprintf(spec.label, sizeof spec.label, "%s", label);
    passes(arf_cuda_device.space_create(device, &spec, &space, &error), &error);
    return space;
}

static void open_scene(scene *s, const char *label, bool check_order)
{
    static const arfuse_bootstrap alone = ARFUSE_BOOTSTRAP_INIT;
    arf_error error = ARF_ERROR_INIT;
    const arf_device_options options = {.spec = "cuda", .cuda_ordinal = -1, .gpu_sharing = true};
    passes(arf_team_create(&alone, RANKS, &s->team, &error), &error);
    passes(arf_cuda_device.open(&options, &s->team, &s->device, &error), &error);
    s->space = space_on(s->device, label, check_order);
    s->ll = prepared(s->space, ARF_ALLREDUCE, ARF_LL);
    s->separate = prepared(s->space, ARF_FINALIZE, ARF_SEPARATE);
    for (int r = 0; r < RANKS; r++) /* the stand-in's kernels look at nothing */
        s->operands[r] = (arfuse_operands)ARFUSE_OPERANDS_INIT;
}

static void close_scene(scene *s)
{
    arf_cuda_device.space_destroy(s->space);
    arf_device_close(s->device);
    assert_int_equal(live(), 0);
}

static arf_launch call_of(const scene *s, int plan, arf_pattern pattern)
{
    return (arf_launch){.pattern = pattern,
                        .plan = plan,
                        .then = pattern == ARF_FINALIZE ? s->ll : -1,
                        .tokens = 3,
                        .operands = s->operands};
}

/* ---- half a call ----------------------------------------------------------------------------- */

static uint64_t culprit_word(const scene *s, int rank)
{
    const arf_cuda_space *space = (const arf_cuda_space *)s->space;
    return ((const arf_control *)(const void *)space->view.peer[rank])->culprit;
}

static int driver_calls_of(scene *s, const arf_launch *launch, const char *until)
{
    const char *last = "";
    arf_error error = ARF_ERROR_INIT;
    for (int n = 1; n < 20; n++) {
        /* Which call of the driver is the launch of interest: found by failing each. */
        arm(n);
        arfuse_status status = arf_cuda_device.launch(s->space, launch, &error);
        calls(&last);
        arm(0);
        if (status != ARFUSE_OK && strstr(error.text, until) != NULL)
            return n;
        arf_cuda_space *space = (arf_cuda_space *)s->space;
        assert_false(space->broken); /* so far nothing was enqueued */
        arf_error_clear(&error);
    }
    return -1;
}

static void a_separate_call_that_fails_half_way_tells_the_peers(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, "target", false);
    const arf_launch launch = call_of(&s, s.separate, ARF_FINALIZE);
    arf_error error = ARF_ERROR_INIT;
    passes(arf_cuda_device.launch(s.space, &launch, &error), &error);
    assert_string_equal(launched(2), "arf_finalize");
    assert_string_equal(launched(1), "arf_ll_publish");
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(culprit_word(&s, rank), 0);
    assert_int_equal(arf_cuda_device.state(s.space, NULL), ARFUSE_OK);

    /* The plan behind the finalize kernel does not come: kernel 2 of the call. */
    assert_true(driver_calls_of(&s, &launch, "ll_publish, kernel 2 of the call") > 0);
    arfuse_culprit culprit = {.struct_size = sizeof culprit};
    assert_int_equal(arf_cuda_device.state(s.space, &culprit), ARFUSE_TIMEOUT);
    assert_int_equal(culprit.rank, 0);
    assert_int_equal(culprit.stage, ARF_STAGE_LAUNCH);
    for (int rank = 0; rank < RANKS; rank++) /* every peer's kernels will see it */
        assert_int_equal(culprit_word(&s, rank), ARF_CULPRIT(0, ARF_STAGE_LAUNCH, 3, 0));
    assert_int_equal(arf_cuda_device.launch(s.space, &launch, &error), ARFUSE_FAILED);
    close_scene(&s);
}

static void a_call_that_is_abandoned_tells_the_peers(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, "target", false);
    const arf_launch launch = call_of(&s, s.ll, ARF_ALLREDUCE);
    arf_error error = ARF_ERROR_INIT;
    arf_cuda_device.abandon(s.space, &launch);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(culprit_word(&s, rank), ARF_CULPRIT(0, ARF_STAGE_LAUNCH, 3, 0));
    assert_int_equal(arf_cuda_device.state(s.space, NULL), ARFUSE_TIMEOUT);
    assert_int_equal(arf_cuda_device.synchronize(s.space, NULL, &error), ARFUSE_TIMEOUT);
    assert_non_null(strstr(error.text, "rank 0 gave a call up half way"));
    close_scene(&s);
}

/* ---- the busy word --------------------------------------------------------------------------- */

static arf_word busy_now(const scene *s)
{
    const arf_cuda_space *space = (const arf_cuda_space *)s->space;
    return *arf_busy_mark(space->busy, space->busy_number, true).busy;
}

static void a_watched_call_stands_between_marks(void **state)
{
    (void)state;
    scene s;
    arf_error error = ARF_ERROR_INIT;
    open_scene(&s, "target", false);
    arf_launch launch = call_of(&s, s.ll, ARF_ALLREDUCE);
    passes(arf_cuda_device.launch(s.space, &launch, &error), &error);
    assert_string_equal(launched(0), "arf_ll_collect"); /* nothing beside the call */
    close_scene(&s);
    open_scene(&s, "target", true);
    passes(arf_cuda_device.launch(s.space, &launch, &error), &error);
    assert_string_equal(launched(3), "arf_order");
    assert_string_equal(launched(2), "arf_ll_publish");
    assert_string_equal(launched(1), "arf_ll_collect");
    assert_string_equal(launched(0), "arf_order");
    assert_int_equal(busy_now(&s), 0);
    launch.tokens = 0; /* waits for nobody */
    passes(arf_cuda_device.launch(s.space, &launch, &error), &error);
    assert_string_equal(launched(3), "arf_order");
    assert_string_equal(launched(2), "arf_ll_publish");
    close_scene(&s);
}

/* A call of another space that began on the GPU and has not ended. */
static void calls_that_overlap_on_the_gpu_are_named(void **state)
{
    (void)state;
    scene s;
    arf_error error = ARF_ERROR_INIT;
    open_scene(&s, "target", true);
    arf_space *draft = space_on(s.device, "draft", true);
    arf_space *third = space_on(s.device, "third", true);
    const arf_launch launch = call_of(&s, s.ll, ARF_ALLREDUCE);
    assert_int_equal(prepared(draft, ARF_ALLREDUCE, ARF_LL), launch.plan);
    assert_int_equal(prepared(third, ARF_ALLREDUCE, ARF_LL), launch.plan);
    /* One after another is fine. */
    passes(arf_cuda_device.launch(s.space, &launch, &error), &error);
    passes(arf_cuda_device.launch(draft, &launch, &error), &error);
    passes(arf_cuda_device.launch(s.space, &launch, &error), &error);
    passes(arf_cuda_device.synchronize(s.space, NULL, &error), &error);

    const arf_cuda_space *inside = (const arf_cuda_space *)draft;
    *arf_busy_mark(inside->busy, inside->busy_number, true).busy = inside->busy_number;
    passes(arf_cuda_device.launch(s.space, &launch, &error), &error); /* is seen when it runs */
    assert_int_equal(busy_now(&s), inside->busy_number); /* the intruder leaves it alone */
    static const char *const words = "on the GPU a call of workspace target began while one of "
                                     "workspace draft was running";
    for (int i = 0; i < 2; i++) {
        arf_space *of = i == 0 ? s.space : draft;
        assert_int_equal(arf_cuda_device.state(of, NULL), ARFUSE_IN_USE);
        assert_int_equal(arf_cuda_device.synchronize(of, NULL, &error), ARFUSE_IN_USE);
        assert_non_null(strstr(error.text, words));
        assert_int_equal(arf_cuda_device.launch(of, &launch, &error), ARFUSE_IN_USE);
        assert_non_null(strstr(error.text, words));
        arf_error_clear(&error);
    }
    assert_int_equal(arf_cuda_device.state(third, NULL), ARFUSE_OK);
    arf_cuda_device.space_destroy(draft);
    arf_cuda_device.space_destroy(third);
    close_scene(&s);
}

/* A search over the first plans of a shape, as a tuner begins one. */
static arfuse_status prepare_ht(arf_space *space, arf_pattern pattern, int *id, arf_error *error)
{
    static arf_plans seeds;
    const arf_problem problem = {.set = ARF_SET_ARFUSE, .shape = space->spec.shape};
    arf_seeds(&problem, pattern, ARF_HT, &seeds);
    assert_true(seeds.count > 0);
    return arf_cuda_device.prepare(space, pattern, &seeds.plan[0], id, error);
}

static void ht_is_prepared_for_both_patterns(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, "moe_out", false);
    for (int p = 0; p < ARF_PATTERNS; p++) {
        arf_error error = ARF_ERROR_INIT;
        int id;
        passes(prepare_ht(s.space, (arf_pattern)p, &id, &error), &error);
    }
    close_scene(&s);
}

/* The steps of HT and BT as they are made ready beside `processes` - 1 others. */
static void ready_beside(int processes, arf_ready_step *ht, arf_ready_step bt[3])
{
    scene s;
    int id;
    arf_error error = ARF_ERROR_INIT;
    open_scene(&s, "moe_out", false);
    ((arf_cuda *)s.device)->seat.processes = processes;
    passes(prepare_ht(s.space, ARF_ALLREDUCE, &id, &error), &error);
    *ht = ((arf_cuda_space *)s.space)->plan[id].step[0];
    id = prepared(s.space, ARF_ALLREDUCE, ARF_BT);
    memcpy(bt, ((arf_cuda_space *)s.space)->plan[id].step, 3 * sizeof *bt);
    close_scene(&s);
}

/* MPS limits are no partitions: what waits takes no more than a p-th of what one process may use,
 * so that all of them find room on the same multiprocessors. */
static void what_waits_takes_its_part_of_a_shared_gpu(void **state)
{
    (void)state;
    arf_ready_step ht[2], bt[2][3];
    ready_beside(1, &ht[0], bt[0]);
    ready_beside(2, &ht[1], bt[1]);
    assert_true(ht[0].most_rows >= 2 && ht[0].most_rows < INT64_MAX);
    assert_true(ht[1].most_rows == ht[0].most_rows / 2);
    assert_true(ht[0].dependent_rows == INT64_MAX);
    assert_true(ht[1].dependent_rows == ht[1].most_rows / 2);
    for (int i = 0; i < 3; i++) { /* publish, reduce, norm: the last two wait */
        assert_true(bt[0][i].most_rows == INT64_MAX);
        assert_true((bt[1][i].most_rows == INT64_MAX) == (i == 0));
        assert_true(bt[1][i].dependent_rows < INT64_MAX);
    }
}

/* Where processes share a GPU, a grid that waits and takes more than half of what its process has
 * keeps the next one from starting beside it. */
static void a_grid_that_leaves_no_room_does_not_trigger(void **state)
{
    (void)state;
    scene s;
    int ht;
    arf_error error = ARF_ERROR_INIT;
    open_scene(&s, "moe_out", false);
    passes(prepare_ht(s.space, ARF_ALLREDUCE, &ht, &error), &error);
    const arf_launch launch = call_of(&s, ht, ARF_ALLREDUCE);
    arf_ready_step *step = &((arf_cuda_space *)s.space)->plan[ht].step[0];
    const int64_t rows = arf_step_rows(&step->recipe, &s.space->spec.shape, launch.tokens);
    for (int leaves_room = 0; leaves_room <= 1; leaves_room++) {
        step->dependent_rows = leaves_room ? rows : rows - 1;
        passes(arf_cuda_device.launch(s.space, &launch, &error), &error);
        assert_string_equal(launched(0), "arf_ht");
        assert_int_equal(flags() & ARF_TRIGGER_NEVER, leaves_room ? 0 : ARF_TRIGGER_NEVER);
    }
    close_scene(&s);
}

static int prepare_all(void **state)
{
    (void)state;
    void *library = standin_driver();
    if (library == NULL)
        return 1;
    *(void **)&arm = dlsym(library, "fakecuda_arm");
    *(void **)&calls = dlsym(library, "fakecuda_calls");
    *(void **)&live = dlsym(library, "fakecuda_live");
    *(void **)&launched = dlsym(library, "fakecuda_launched");
    *(void **)&flags = dlsym(library, "fakecuda_flags");
    return 0;
}

int main(void)
{
    if (standin_no_compiler())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_separate_call_that_fails_half_way_tells_the_peers),
        cmocka_unit_test(a_call_that_is_abandoned_tells_the_peers),
        cmocka_unit_test(a_watched_call_stands_between_marks),
        cmocka_unit_test(calls_that_overlap_on_the_gpu_are_named),
        cmocka_unit_test(ht_is_prepared_for_both_patterns),
        cmocka_unit_test(what_waits_takes_its_part_of_a_shared_gpu),
        cmocka_unit_test(a_grid_that_leaves_no_room_does_not_trigger),
    };
    return cmocka_run_group_tests_name("cuda_launch", tests, prepare_all, standin_clear);
}

#else
#include "support/no_cuda.h"
#endif
