/* SPDX-License-Identifier: Apache-2.0 */
/* Segments and launch recipes of the cuda device: pure arithmetic, no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef ARF_CUDA

#include <stdio.h>
#include <string.h>

#include "device/cuda/layout.h"
#include "device/cuda/recipe.h"
#include "rules/candidates.h"
#include "rules/sizing.h"

static arf_shape shape_of(int hidden, int ranks, int top_k)
{
    return (arf_shape){ranks, hidden, top_k, ARF_ON, ARF_ON, ARF_ON};
}

static arf_plan plan_of(arf_protocol protocol, arf_pattern pattern)
{
    return (arf_plan){.protocol = protocol,
                      .tuning = arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, protocol, pattern))};
}

static void set(arf_plan *plan, arf_pattern pattern, const char *knob, int value)
{
    int index = arf_knob_index(arf_knobs(ARF_SET_ARFUSE, plan->protocol, pattern), knob);
    assert_true(index >= 0);
    plan->tuning.value[index] = value;
}

static arf_recipe make(const arf_shape *shape, arf_pattern pattern, const arf_plan *plan)
{
    arf_recipe recipe;
    arf_error error = ARF_ERROR_INIT;
    if (arf_recipe_make(shape, 8, pattern, plan, &recipe, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return recipe;
}

static bool defines(const arf_step *step, const char *text)
{
    for (int i = 0; i < step->defines; i++)
        if (strcmp(step->define[i], text) == 0)
            return true;
    return false;
}

static void refused(const arf_shape *shape, arf_pattern pattern, const arf_plan *plan,
                    const char *words)
{
    arf_recipe recipe;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_recipe_make(shape, 8, pattern, plan, &recipe, &error),
                     ARFUSE_NOT_SUPPORTED);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

/* ---- segments -------------------------------------------------------------------------------- */

static void test_mailboxes_do_not_overlap(void **state)
{
    (void)state;
    static const int64_t capacities[] = {0, 1, 7, 64, 1000};
    for (int a = 0; a < 625; a++) {
        arf_space_spec spec = {.shape = shape_of(2880, 7, 6)};
        spec.capacity[ARF_LL] = capacities[a % 5];
        spec.capacity[ARF_BT] = capacities[a / 5 % 5];
        spec.capacity[ARF_UNFUSED] = capacities[a / 25 % 5];
        spec.capacity[ARF_HT] = capacities[a / 125];
        arf_layout layout;
        arf_error error = ARF_ERROR_INIT;
        if (arf_layout_make(&spec, &layout, &error) != ARFUSE_OK)
            fail_msg("%s", error.text);
        const arf_range *ranges[] = {&layout.ll,         &layout.bt_contribution,
                                     &layout.bt_row,     &layout.ht_contribution,
                                     &layout.ht_row,     &layout.ht_ready,
                                     &layout.ht_arrived, &layout.unfused_contribution,
                                     &layout.unfused_row};
        uint64_t end = ARF_CONTROL_BYTES;
        for (int i = 0; i < 9; i++) {
            if (ranges[i]->bytes == 0)
                continue;
            assert_int_equal(ranges[i]->offset % 256, 0);
            assert_true(ranges[i]->offset >= end);
            end = ranges[i]->offset + ranges[i]->bytes;
        }
        assert_int_equal(layout.segment_bytes, end);
    }
}

static void test_mailboxes_have_the_documented_sizes(void **state)
{
    (void)state;
    /* H 6144, 8 ranks: LL 6 R C H, BT 6 R ceil(C / R) H + 6 C H, unfused 2 R ceil(C / R) H + 2 C H
     */
    arf_space_spec spec = {.shape = shape_of(6144, 8, 10)};
    spec.capacity[ARF_LL] = 12;
    spec.capacity[ARF_BT] = 1021;
    spec.capacity[ARF_HT] = 21;
    spec.capacity[ARF_UNFUSED] = 100;
    spec.capacity[ARF_SEPARATE] = 200;
    arf_layout layout;
    assert_int_equal(arf_layout_make(&spec, &layout, NULL), ARFUSE_OK);
    assert_int_equal(layout.ll.bytes, 6LL * 8 * 12 * 6144);
    assert_int_equal(layout.bt_contribution.bytes, 6LL * 8 * 128 * 6144);
    assert_int_equal(layout.bt_row.bytes, 6LL * 1021 * 6144);
    assert_int_equal(layout.ht_contribution.bytes, 2LL * 8 * 3 * 6144);
    assert_int_equal(layout.ht_row.bytes, 2LL * 21 * 6144);
    assert_int_equal(layout.ht_ready.bytes, 8LL * 8 * 3);
    assert_int_equal(layout.ht_arrived.bytes, 8LL * 64 * 21);
    assert_int_equal(layout.unfused_contribution.bytes, 2LL * 8 * 13 * 6144);
    assert_int_equal(layout.unfused_row.bytes, 2LL * 100 * 6144);
    assert_int_equal(layout.scratch_bytes, 2LL * 200 * 6144);

    arf_team_view view = {0};
    arf_layout_view(&layout, &spec, &view);
    assert_int_equal(view.ll, ARF_CONTROL_BYTES);
    assert_int_equal(view.bt_row, layout.bt_row.offset);
    assert_int_equal(view.bt_capacity, 1021);
    assert_int_equal(view.ht_arrived, layout.ht_arrived.offset);
}

static void test_sizes_need_64_bits(void **state)
{
    (void)state;
    arf_space_spec spec = {.shape = shape_of(65536, 72, 0)};
    spec.capacity[ARF_LL] = ARF_MAX_TOKENS;
    arf_layout layout;
    assert_int_equal(arf_layout_make(&spec, &layout, NULL), ARFUSE_OK);
    assert_true(layout.ll.bytes == 6ull * 72 * ARF_MAX_TOKENS * 65536);
    spec.capacity[ARF_LL] = ARF_MAX_TOKENS + 1;
    assert_int_equal(arf_layout_make(&spec, &layout, NULL), ARFUSE_USAGE);
}

/* ---- recipes --------------------------------------------------------------------------------- */

static void test_ll_publishes_in_the_blocks_of_its_knobs(void **state)
{
    (void)state;
    /* elements x threads to blocks a token (design section 4) */
    static const int rows[][4] = {
        {8192, 8, 128, 8}, {6144, 8, 128, 6}, {6144, 4, 128, 12}, {2880, 8, 128, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        arf_shape shape = shape_of(rows[i][0], 8, 0);
        arf_plan plan = plan_of(ARF_LL, ARF_ALLREDUCE);
        set(&plan, ARF_ALLREDUCE, "elements_per_thread", rows[i][1]);
        set(&plan, ARF_ALLREDUCE, "threads", rows[i][2]);
        arf_recipe recipe = make(&shape, ARF_ALLREDUCE, &plan);
        assert_int_equal(recipe.steps, 2);
        assert_string_equal(recipe.step[0].kernel, "ll_publish");
        assert_int_equal(recipe.step[0].parts, rows[i][3]);
        assert_int_equal(arf_step_rows(&recipe.step[0], &shape, 5), 5);
        assert_string_equal(recipe.step[1].kernel, "ll_collect");
        assert_int_equal(recipe.step[1].parts, recipe.step[1].cluster);
    }
}

static void test_every_step_covers_all_local_ranks(void **state)
{
    (void)state;
    static const arf_protocol protocols[] = {ARF_LL, ARF_BT, ARF_UNFUSED, ARF_SEPARATE};
    arf_shape shape = shape_of(6144, 8, 8);
    for (int p = 0; p < 4; p++)
        for (int pattern = p == 3; pattern < ARF_PATTERNS; pattern++) {
            arf_plan plan = plan_of(protocols[p], (arf_pattern)pattern);
            arf_recipe recipe = make(&shape, (arf_pattern)pattern, &plan);
            assert_true(recipe.steps >= 1);
            for (int i = 0; i < recipe.steps; i++) {
                assert_int_equal(recipe.step[i].local_ranks, 8);
                assert_true(defines(&recipe.step[i], "-DARF_LOCAL_RANKS=8"));
                assert_true(defines(&recipe.step[i], "-DARF_H=6144"));
                assert_true(arf_step_rows(&recipe.step[i], &shape, 1) >= 1);
                assert_true(recipe.step[i].parts >= 1);
            }
        }
}

static void test_bt_grids_cover_publishers_and_owners(void **state)
{
    (void)state;
    arf_shape shape = shape_of(6144, 8, 0);
    arf_plan plan = plan_of(ARF_BT, ARF_ALLREDUCE);
    set(&plan, ARF_ALLREDUCE, "threads", 128);
    set(&plan, ARF_ALLREDUCE, "vectors_per_thread", 2);
    set(&plan, ARF_ALLREDUCE, "reduction_threads", 64);
    set(&plan, ARF_ALLREDUCE, "owner", 0);
    arf_recipe recipe = make(&shape, ARF_ALLREDUCE, &plan);
    assert_int_equal(arf_step_rows(&recipe.step[0], &shape, 13), 13 * 768 / 256);
    assert_int_equal(arf_step_rows(&recipe.step[1], &shape, 13), 2 * 768 / 64);
    assert_int_equal(arf_step_rows(&recipe.step[2], &shape, 13), 13);
    set(&plan, ARF_ALLREDUCE, "owner", 1);
    recipe = make(&shape, ARF_ALLREDUCE, &plan);
    assert_true(defines(&recipe.step[0], "-DARF_SLICES=1"));
    assert_int_equal(arf_step_rows(&recipe.step[1], &shape, 13), (13 * 96 + 63) / 64);
}

/* Threads of the norm's knob do everything; they need no more shared memory than the norm alone. */
static void test_bt_in_one_kernel(void **state)
{
    (void)state;
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        for (int slices = 0; slices <= 1; slices++) {
            arf_shape shape = shape_of(6144, 8, 10);
            arf_plan plan = plan_of(ARF_BT, (arf_pattern)pattern);
            set(&plan, (arf_pattern)pattern, "kernels", 1);
            set(&plan, (arf_pattern)pattern, "owner", slices);
            set(&plan, (arf_pattern)pattern, "rms_threads", 256);
            set(&plan, (arf_pattern)pattern, "rms_cluster", 2);
            arf_recipe recipe = make(&shape, (arf_pattern)pattern, &plan);
            const arf_step *step = &recipe.step[0];
            assert_int_equal(recipe.steps, 1);
            assert_string_equal(step->kernel, "bt_single");
            assert_true(step->waits && step->resident && step->dependent);
            assert_int_equal(step->threads, 256);
            assert_int_equal(step->cluster, 2);
            assert_int_equal(step->parts, 2);
            assert_int_equal(arf_step_rows(step, &shape, 13), 13);
            /* 768 packs in 512 threads: two trips, a pack of 16 bytes a thread */
            assert_int_equal(step->shared_bytes, 2 * 256 * 16);
            assert_true(defines(step, slices ? "-DARF_SLICES=1" : "-DARF_SLICES=0"));
            assert_int_equal(defines(step, "-DARF_FINALIZE=1"), pattern == ARF_FINALIZE);
        }
}

static void test_a_cluster_normalises_in_three_kernels(void **state)
{
    (void)state;
    arf_shape shape = shape_of(6144, 8, 0);
    arf_plan plan = plan_of(ARF_BT, ARF_ALLREDUCE);
    set(&plan, ARF_ALLREDUCE, "rms_threads", 128);
    set(&plan, ARF_ALLREDUCE, "rms_cluster", 4);
    arf_recipe recipe = make(&shape, ARF_ALLREDUCE, &plan);
    static const char *const kernels[] = {"bt_publish", "bt_reduce", "bt_norm"};
    assert_int_equal(recipe.steps, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(recipe.step[i].kernel, kernels[i]);
        assert_int_equal(recipe.step[i].cluster, i == 2 ? 4 : 1);
        assert_int_equal(recipe.step[i].waits, i > 0);
        assert_false(recipe.step[i].resident); /* who waits publishes nothing that is waited for */
    }
    assert_int_equal(recipe.step[2].parts, 4);
    assert_int_equal(recipe.step[2].shared_bytes, 2 * 128 * 16);
}

static void test_launch_bounds_are_few(void **state)
{
    (void)state;
    arf_shape shape = shape_of(4096, 8, 0);
    static const int threads[][2] = {{32, 128}, {128, 128}, {160, 256}, {512, 512}, {544, 1024}};
    for (int i = 0; i < 5; i++) {
        arf_step step;
        char text[32];
        arf_recipe_plain(&shape, 8, "team_barrier", threads[i][0], &step);
        snprintf(text, sizeof text, "-DARF_MAX_THREADS=%d", threads[i][1]);
        assert_true(defines(&step, text));
    }
}

static void test_knobs_become_flags_and_attributes(void **state)
{
    (void)state;
    arf_shape shape = shape_of(6144, 8, 8);
    arf_plan plan = plan_of(ARF_LL, ARF_FINALIZE);
    set(&plan, ARF_FINALIZE, "early_shared", 1);
    set(&plan, ARF_FINALIZE, "enable_pdl", 0);
    set(&plan, ARF_FINALIZE, "prefetch_group", 64);
    arf_recipe recipe = make(&shape, ARF_FINALIZE, &plan);
    assert_int_equal(recipe.step[0].flags, ARF_SHARED_EARLY);
    assert_false(recipe.step[0].dependent);
    assert_true(defines(&recipe.step[0], "-DARF_PREFETCH=8")); /* never more than top_k */
    set(&plan, ARF_FINALIZE, "kernels", 1);
    recipe = make(&shape, ARF_FINALIZE, &plan);
    assert_int_equal(recipe.steps, 1);
    assert_true(recipe.step[0].resident);
}

/* Only a kernel that waits for nobody may let the next one in before its own work is done. */
static void test_publishers_alone_release_early(void **state)
{
    (void)state;
    static const struct {
        arf_protocol protocol;
        int forms[2]; /* of knob kernels; 0: it has none */
    } cases[] = {{ARF_LL, {1, 2}}, {ARF_BT, {1, 3}}, {ARF_SEPARATE, {0, 0}}};
    arf_shape shape = shape_of(6144, 8, 8);
    int released = 0;
    for (int c = 0; c < 3 * 2 * ARF_PATTERNS; c++) {
        arf_pattern pattern = (arf_pattern)(c % ARF_PATTERNS);
        arf_protocol protocol = cases[c / 4].protocol;
        int form = cases[c / 4].forms[c / 2 % 2];
        if (!arf_knobs(ARF_SET_ARFUSE, protocol, pattern)->supported)
            continue;
        arf_plan plan = plan_of(protocol, pattern);
        if (form > 0)
            set(&plan, pattern, "kernels", form);
        for (int early = 0; early <= 1; early++) {
            set(&plan, pattern, "release_before_store", early);
            arf_recipe recipe = make(&shape, pattern, &plan);
            for (int i = 0; i < recipe.steps; i++) {
                const arf_step *step = &recipe.step[i];
                assert_int_equal(step->flags, early && !step->waits ? ARF_TRIGGER_EARLY : 0);
                released += step->flags == ARF_TRIGGER_EARLY;
            }
        }
    }
    assert_int_equal(released, 2 + 2 + 2); /* ll and bt of both patterns, separate of both forms */
}

/* All of a recipe that reaches a kernel or its launch. */
static void tell(const arf_recipe *recipe, char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < recipe->steps; i++) {
        const arf_step *s = &recipe->step[i];
        used += (size_t)snprintf(
            text + used, size - used, "%s %d %d %d %d %d %d %d %d %d %d %u %u %d %d %d %d",
            s->kernel, s->threads, s->cluster, s->parts, s->rule, s->values, s->slices, s->blocks,
            s->reducing_warps, s->shards, s->reducers, s->shared_bytes, s->flags, s->dependent,
            s->waits, s->resident, s->from_scratch);
        for (int d = 0; d < s->defines; d++)
            used += (size_t)snprintf(text + used, size - used, " %s", s->define[d]);
        assert_true(used < size);
    }
}

/* Does another value of the knob give another recipe? */
static bool matters(const arf_shape *shape, arf_pattern pattern, const arf_plan *plan, int knob)
{
    static char before[4096], after[4096];
    const arf_knob *about = &arf_knobs(ARF_SET_ARFUSE, plan->protocol, pattern)->knob[knob];
    arf_recipe recipe = make(shape, pattern, plan);
    tell(&recipe, before, sizeof before);
    for (int32_t value = about->low; value <= about->high; value++) {
        arf_plan other = *plan;
        other.tuning.value[knob] = value;
        if (arf_recipe_make(shape, 8, pattern, &other, &recipe, NULL) != ARFUSE_OK)
            continue;
        tell(&recipe, after, sizeof after);
        if (strcmp(before, after) != 0)
            return true;
    }
    return false;
}

/* A tuner takes plans that differ only in what is not read for one (rules/knobs.h), and times no
 * two that are the same; so the recipes must read just that. */
static void test_recipes_read_the_knobs_that_the_rules_say(void **state)
{
    (void)state;
    arf_shape shape = shape_of(6144, 8, 16);
    int read = 0, unread = 0;
    for (int p = 0; p < ARF_PROTOCOLS * ARF_PATTERNS; p++) {
        arf_protocol protocol = (arf_protocol)(p / ARF_PATTERNS);
        arf_pattern pattern = (arf_pattern)(p % ARF_PATTERNS);
        const arf_knob_table *table = arf_knobs(ARF_SET_ARFUSE, protocol, pattern);
        if (!table->supported)
            continue;
        int form = arf_knob_index(table, "kernels");
        for (int single = 0; single <= (form >= 0); single++) {
            arf_plan plan = plan_of(protocol, pattern);
            if (single)
                plan.tuning.value[form] = 1;
            for (int k = 0; k < table->count; k++) {
                bool wanted = arf_knob_read(table, &plan.tuning, k);
                if (matters(&shape, pattern, &plan, k) != wanted)
                    fail_msg("%s for %s%s: %s is %s by the rules", arf_protocol_name(protocol),
                             arf_pattern_name(pattern), single ? " in one kernel" : "",
                             table->knob[k].name, wanted ? "read" : "not read");
                read += wanted, unread += !wanted;
            }
        }
    }
    assert_true(read > 60 && unread > 10);
}

static void test_unfused_finalize_feeds_the_rest(void **state)
{
    (void)state;
    arf_shape shape = shape_of(6144, 8, 8);
    arf_plan plan = plan_of(ARF_UNFUSED, ARF_FINALIZE);
    arf_recipe recipe = make(&shape, ARF_FINALIZE, &plan);
    assert_int_equal(recipe.steps, 4);
    assert_string_equal(recipe.step[0].kernel, "finalize");
    assert_false(recipe.step[0].from_scratch);
    for (int i = 1; i < 4; i++)
        assert_true(recipe.step[i].from_scratch);
    plan = plan_of(ARF_UNFUSED, ARF_ALLREDUCE);
    recipe = make(&shape, ARF_ALLREDUCE, &plan);
    assert_int_equal(recipe.steps, 3);
    assert_false(recipe.step[0].from_scratch);
}

static void test_what_the_kernels_lack_is_named(void **state)
{
    (void)state;
    arf_shape shape = shape_of(2880, 16, 8);
    arf_plan plan = plan_of(ARF_LL, ARF_ALLREDUCE);
    plan.transport = ARF_MULTICAST_STORE;
    refused(&shape, ARF_ALLREDUCE, &plan, "multicast-store");
    plan = plan_of(ARF_BT, ARF_ALLREDUCE);
    set(&plan, ARF_ALLREDUCE, "owner", 1);
    refused(&shape, ARF_ALLREDUCE, &plan, "360 packs");
    plan = plan_of(ARF_LL, ARF_ALLREDUCE);
    set(&plan, ARF_ALLREDUCE, "collect_threads", 100);
    refused(&shape, ARF_ALLREDUCE, &plan, "collect_threads 100");
    plan = plan_of(ARF_LL, ARF_ALLREDUCE);
    set(&plan, ARF_ALLREDUCE, "collect_lanes", 8);
    shape = shape_of(4096, 4, 0);
    refused(&shape, ARF_ALLREDUCE, &plan, "more than the 4 ranks");
    plan = plan_of(ARF_LL, ARF_FINALIZE);
    refused(&shape, ARF_FINALIZE, &plan, "top_k");
}

/* ---- HT -------------------------------------------------------------------------------------- */

static void test_ht_is_one_resident_kernel_of_all_its_warps(void **state)
{
    (void)state;
    arf_shape shape = shape_of(6144, 8, 8);
    arf_plan plan = plan_of(ARF_HT, ARF_FINALIZE);
    set(&plan, ARF_FINALIZE, "consumer_threads", 384);
    set(&plan, ARF_FINALIZE, "vectors_per_thread", 2);
    set(&plan, ARF_FINALIZE, "stages", 6);
    set(&plan, ARF_FINALIZE, "reduction_warps", 2);
    set(&plan, ARF_FINALIZE, "rms_token_groups", 2);
    set(&plan, ARF_FINALIZE, "rms_pipeline_stages", 3);
    set(&plan, ARF_FINALIZE, "shards", 5);
    set(&plan, ARF_FINALIZE, "reduction_cta_groups", 3);
    arf_recipe recipe = make(&shape, ARF_FINALIZE, &plan);
    const arf_step *step = &recipe.step[0];
    assert_int_equal(recipe.steps, 1);
    assert_string_equal(step->kernel, "ht");
    assert_true(step->resident);
    assert_int_equal(step->threads, 384 + 32 * (1 + 1 + 2)); /* consumers, loader, publisher */
    assert_true(defines(step, "-DARF_MAX_THREADS=512"));
    assert_true(defines(step, "-DARF_THREADS=384"));
    assert_int_equal(step->shards, 5);
    assert_int_equal(step->reducers, 15);
    /* Six tiles of 12288 bytes; a 24 bytes a stage; 32 counts; sums of 2 x 3 rows of 24 each. */
    assert_int_equal(step->shared_bytes,
                     6 * 12288 + (6 * 24 + 128 + 2 * 3 * 24 * 4 + 15) / 16 * 16);

    /* A token a block, or two shards: 1024 tokens, of which this rank owns 128, in 640 shards. */
    assert_int_equal(arf_step_rows(step, &shape, 1024), 1024);
    /* One token: its 5 shards take 3 blocks of 2 warps. */
    assert_int_equal(arf_step_rows(step, &shape, 1), 3);
    set(&plan, ARF_FINALIZE, "persistent_ctas", 130);
    recipe = make(&shape, ARF_FINALIZE, &plan);
    assert_int_equal(arf_step_rows(&recipe.step[0], &shape, 1024), 130);
    assert_int_equal(arf_step_rows(&recipe.step[0], &shape, 1), 3);
}

/* The rules count shared memory without the kernels' header; both must say the same. */
static void test_ht_shared_memory_is_that_of_the_rules(void **state)
{
    (void)state;
    static const int hidden[] = {4096, 5120, 6144, 7168, 8192, 16384};
    static arf_plans seeds;
    int count = 0;
    for (int i = 0; i < 6 * ARF_PATTERNS; i++) {
        arf_pattern pattern = (arf_pattern)(i % ARF_PATTERNS);
        arf_shape shape = shape_of(hidden[i / ARF_PATTERNS], 8, 8);
        arf_problem problem = {.set = ARF_SET_ARFUSE, .shape = shape, .sm_count = 132};
        arf_seeds(&problem, pattern, ARF_HT, &seeds);
        for (int s = 0; s < seeds.count; s++, count++) {
            arf_recipe recipe = make(&shape, pattern, &seeds.plan[s]);
            problem.shared_bytes = (int)recipe.step[0].shared_bytes;
            assert_true(arf_legal(&problem, pattern, &seeds.plan[s], NULL));
            problem.shared_bytes--;
            assert_false(arf_legal(&problem, pattern, &seeds.plan[s], NULL));
        }
    }
    assert_true(count > 50);
}

/* What the rules call legal must have a recipe, or a tuner would time what cannot run. */
static void test_seeds_have_recipes(void **state)
{
    (void)state;
    static const int hidden[] = {2880, 4096, 5120, 6144, 7168, 8192, 16384};
    static const arf_protocol protocols[] = {ARF_LL, ARF_BT, ARF_HT, ARF_UNFUSED, ARF_SEPARATE};
    static arf_plans seeds;
    int count = 0;
    for (int i = 0; i < 7 * 4 * 5 * ARF_PATTERNS; i++) {
        arf_pattern pattern = (arf_pattern)(i % ARF_PATTERNS);
        arf_protocol protocol = protocols[i / ARF_PATTERNS % 5];
        arf_shape shape = shape_of(hidden[i / 40], 2 << (i / 10 % 4), 8);
        arf_problem problem = {.set = ARF_SET_ARFUSE, .shape = shape, .sm_count = 132};
        if (!arf_knobs(ARF_SET_ARFUSE, protocol, pattern)->supported)
            continue;
        arf_seeds(&problem, pattern, protocol, &seeds);
        for (int s = 0; s < seeds.count; s++, count++) {
            arf_recipe recipe;
            arf_error error = ARF_ERROR_INIT;
            if (arf_recipe_make(&shape, shape.tp_size, pattern, &seeds.plan[s], &recipe, &error) !=
                ARFUSE_OK)
                fail_msg("H %d R %d: %s", shape.hidden_size, shape.tp_size, error.text);
        }
    }
    assert_true(count > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mailboxes_do_not_overlap),
        cmocka_unit_test(test_mailboxes_have_the_documented_sizes),
        cmocka_unit_test(test_sizes_need_64_bits),
        cmocka_unit_test(test_ll_publishes_in_the_blocks_of_its_knobs),
        cmocka_unit_test(test_every_step_covers_all_local_ranks),
        cmocka_unit_test(test_bt_grids_cover_publishers_and_owners),
        cmocka_unit_test(test_bt_in_one_kernel),
        cmocka_unit_test(test_a_cluster_normalises_in_three_kernels),
        cmocka_unit_test(test_launch_bounds_are_few),
        cmocka_unit_test(test_knobs_become_flags_and_attributes),
        cmocka_unit_test(test_publishers_alone_release_early),
        cmocka_unit_test(test_recipes_read_the_knobs_that_the_rules_say),
        cmocka_unit_test(test_unfused_finalize_feeds_the_rest),
        cmocka_unit_test(test_what_the_kernels_lack_is_named),
        cmocka_unit_test(test_ht_is_one_resident_kernel_of_all_its_warps),
        cmocka_unit_test(test_ht_shared_memory_is_that_of_the_rules),
        cmocka_unit_test(test_seeds_have_recipes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/no_cuda.h"
#endif
