/* SPDX-License-Identifier: Apache-2.0 */
/* The marks of the GPU benchmark, and its floors: what is held, missed, open, and not said here. */
#include "bench/gpu/marks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/floor.h"

/* ---- a run that holds everything ---------------------------------------------------------------
 */

static const bool every[ARF_PROTOCOLS] = {true, true, true, true, true};
static race course;
static arf_problem problem;
static copy_speeds copy;
static link_speed links;
static host_costs costs;
static race_pair pair;
static arf_side side;
static entrants all;
static marks found;
static run_of_marks run;

static race_row *row(arf_pattern pattern, int64_t tokens, bool ladder)
{
    race_row *now = &course.row[course.count++];
    *now = (race_row){.pattern = pattern, .tokens = tokens, .ladder = ladder, .timed = true};
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        now->ratio[p] = (arf_ratio){0.5, 0.5, 0.5};
    return now;
}

static void set_time(race_row *at, arf_protocol protocol, double us)
{
    at->best[protocol] = (race_time){.timed = true, .plan.protocol = protocol, .us = us};
}

static int setup(void **state)
{
    (void)state;
    memset(&course, 0, sizeof course);
    problem = (arf_problem){.shape = {8, 6144, 10, ARF_ON, ARF_ON, ARF_ON}};
    copy = (copy_speeds){.count = 2, .bytes = {64e6, 256e6}, .speed = {6e6, 4e6}};
    links = (link_speed){.why = "no rank has a GPU of its own"};
    costs = (host_costs){
        .route_ns = 2, .launch_ratio = 1.1, .create_ms = 50, .compile_s = 1, .compiled = 3};
    pair = (race_pair){1, 64, 50, 51};
    side.routes[ARF_ALLREDUCE] =
        (arf_routes){.count = 2,
                     .min_tokens = 1,
                     .route = {{64, {.protocol = ARF_LL}}, {8192, {.protocol = ARF_HT}}}};
    side.routes[ARF_FINALIZE] = side.routes[ARF_ALLREDUCE];
    for (int p = 0; p < ARF_PATTERNS; p++)
        for (int q = 0; q < ARF_PROTOCOLS; q++)
            all.limit[p][q] = q == ARF_LL ? 64 : 8192;
    course.all = &all;
    course.routed = &side;
    course.wanted = every;
    run = (run_of_marks){.race = &course,
                         .problem = &problem,
                         .copy = &copy,
                         .links = &links,
                         .no_composition = "",
                         .costs = &costs,
                         .pair = &pair,
                         .ranks_here = 8,
                         .processes = 1,
                         .gpu = true};
    return 0;
}

/* The mark whose name begins so. */
static const mark *judged(const char *name)
{
    judge_marks(&run, &found);
    for (int i = 0; i < found.count; i++)
        if (strncmp(found.of[i].name, name, strlen(name)) == 0)
            return &found.of[i];
    fail_msg("no mark %s", name);
    return NULL;
}

/* ---- floors ------------------------------------------------------------------------------------
 */

/* Design section 4 by hand: L = R = 8, B = 1024 x 6144 x 2 = 12,582,912. */
static void bytes_are_those_of_the_design(void **state)
{
    (void)state;
    const arf_shape *shape = &problem.shape;
    const double eight = 8 * 12582912.0;
    assert_float_equal(floor_bytes(shape, 8, ARF_ALLREDUCE, ARF_LL, ARF_LL, 1024), 28 * eight, 1);
    assert_float_equal(floor_bytes(shape, 8, ARF_ALLREDUCE, ARF_BT, ARF_LL, 1024), 9.125 * eight,
                       1);
    assert_float_equal(floor_bytes(shape, 8, ARF_ALLREDUCE, ARF_HT, ARF_LL, 1024), 8.125 * eight,
                       1);
    assert_float_equal(floor_bytes(shape, 8, ARF_ALLREDUCE, ARF_UNFUSED, ARF_LL, 1024), 12 * eight,
                       1);
    assert_float_equal(floor_bytes(shape, 8, ARF_FINALIZE, ARF_HT, ARF_LL, 1024), 18.125 * eight,
                       1);
    assert_float_equal(floor_bytes(shape, 8, ARF_FINALIZE, ARF_UNFUSED, ARF_LL, 1024), 24 * eight,
                       1);
    assert_float_equal(floor_bytes(shape, 8, ARF_FINALIZE, ARF_SEPARATE, ARF_BT, 1024),
                       21.125 * eight, 1);
    assert_float_equal(floor_bytes(shape, 8, ARF_FINALIZE, ARF_SEPARATE, ARF_UNFUSED, 1024),
                       24 * eight, 1);
}

/* What a GPU sends: L = 1 of R = 8 ranks, then L = 2; B as above. */
static void bytes_of_links_are_those_of_the_design(void **state)
{
    (void)state;
    const arf_shape *shape = &problem.shape;
    const double b = 12582912;
    assert_float_equal(floor_link_bytes(shape, 1, ARF_LL, ARF_LL, 1024), 7 * b, 1);
    assert_float_equal(floor_link_bytes(shape, 1, ARF_BT, ARF_LL, 1024), 2 * 7 * b / 8, 1);
    assert_float_equal(floor_link_bytes(shape, 1, ARF_HT, ARF_LL, 1024), 2 * 7 * b / 8, 1);
    assert_float_equal(floor_link_bytes(shape, 2, ARF_LL, ARF_LL, 1024), 2 * 6 * b, 1);
    assert_float_equal(floor_link_bytes(shape, 2, ARF_UNFUSED, ARF_LL, 1024), 2 * 2 * 6 * b / 8, 1);
    assert_float_equal(floor_link_bytes(shape, 1, ARF_SEPARATE, ARF_LL, 1024), 7 * b, 1);
    assert_float_equal(floor_link_bytes(shape, 8, ARF_LL, ARF_LL, 1024), 0, 1e-9);
}

/* Between GPUs the slower of memory and links is the floor. */
static void a_floor_is_the_slower_of_memory_and_links(void **state)
{
    (void)state;
    race_row *at = row(ARF_ALLREDUCE, 1024, true);
    set_time(at, ARF_HT, 100);
    run.ranks_here = 1;
    assert_true(isnan(floor_of_time(&run, at, &at->best[ARF_HT]))); /* links not measured */
    links = (link_speed){.slowest = 400e3, .fastest = 410e3};
    /* 22020096 bytes at 400e3: 55.05 us; memory 8.125 x 12582912 at 5.28e6: 19.4 us. */
    assert_float_equal(floor_of_time(&run, at, &at->best[ARF_HT]), 55.05, 0.01);
    links.slowest = 4e6; /* 5.5 us: memory counts */
    assert_float_equal(floor_of_time(&run, at, &at->best[ARF_HT]), copy_us(&copy, 8.125 * 12582912),
                       1e-9);
    run.ranks_here = 8;
    links.slowest = 0;
    assert_false(isnan(floor_of_time(&run, at, &at->best[ARF_HT])));
}

static void copies_take_what_their_size_takes(void **state)
{
    (void)state;
    assert_float_equal(copy_us(&copy, 6e6), 1, 1e-9);      /* below: as the smallest */
    assert_float_equal(copy_us(&copy, 128e6), 25.6, 1e-9); /* half way by the logarithm: 5e6 */
    assert_float_equal(copy_us(&copy, 400e6), 100, 1e-9);
    assert_true(isnan(copy_us(&(copy_speeds){0}, 1)));
}

/* ---- marks -------------------------------------------------------------------------------------
 */

static void a_rival_that_is_faster_is_named(void **state)
{
    (void)state;
    row(ARF_ALLREDUCE, 4, true)->ratio[ARF_UNFUSED].median = 1.019;
    assert_int_equal(judged("allreduce: routed over unfused")->verdict, MARK_HELD);
    row(ARF_ALLREDUCE, 77, false)->ratio[ARF_UNFUSED].median = 1.021;
    const mark *missed = judged("allreduce: routed over unfused");
    assert_int_equal(missed->verdict, MARK_MISSED);
    assert_non_null(strstr(missed->figure, "1.021 (allreduce, 77 tokens)"));
    assert_non_null(strstr(missed->figure, "1 of 2 points above"));
    assert_true(marks_missed(&found));
}

static void what_was_not_reached_is_not_held(void **state)
{
    (void)state;
    row(ARF_FINALIZE, 4, true);
    assert_int_equal(judged("finalize: routed over separate")->verdict, MARK_HELD);
    row(ARF_FINALIZE, 5, false)->timed = false;
    const mark *open = judged("finalize: routed over separate");
    assert_int_equal(open->verdict, MARK_OPEN);
    assert_non_null(strstr(open->figure, "1 points not timed"));
    assert_true(marks_missed(&found));
    course.count = 0;
    assert_int_equal(judged("finalize: routed over separate")->verdict, MARK_NOT_HERE);
}

static void few_tokens_of_finalize_gain_in_the_mean(void **state)
{
    (void)state;
    row(ARF_FINALIZE, 1, true)->ratio[ARF_SEPARATE].median = 1 / 1.3;
    row(ARF_FINALIZE, 16, true)->ratio[ARF_SEPARATE].median = 1 / 1.03; /* mean 1.157 */
    row(ARF_FINALIZE, 17, false)->ratio[ARF_SEPARATE].median = 1;
    assert_int_equal(judged("finalize, 1 to 16")->verdict, MARK_HELD);
    course.row[1].ratio[ARF_SEPARATE].median = 1 / 1.01; /* 1.146 */
    assert_int_equal(judged("finalize, 1 to 16")->verdict, MARK_MISSED);
    course.row[1].timed = false;
    assert_int_equal(judged("finalize, 1 to 16")->verdict, MARK_OPEN);
}

static void floors_count_above_twenty_microseconds(void **state)
{
    (void)state;
    /* LL at 64 tokens: 28 x 8 x 786432 = 176.2e6 bytes at 4.54e6: 38.8 us. */
    race_row *at = row(ARF_ALLREDUCE, 64, true);
    set_time(at, ARF_LL, 38.8 * 1.49);
    set_time(row(ARF_ALLREDUCE, 1, true), ARF_LL, 100); /* floor 0.5 us */
    assert_int_equal(judged("ll over its floor")->verdict, MARK_HELD);
    set_time(at, ARF_LL, 38.8 * 1.52);
    const mark *missed = judged("ll over its floor");
    assert_int_equal(missed->verdict, MARK_MISSED);
    assert_non_null(strstr(missed->figure, "(allreduce, 64 tokens)"));
    row(ARF_ALLREDUCE, 1024, true); /* LL is not tried there; HT was not timed */
    assert_non_null(strstr(judged("ll over its floor")->figure, "of 1 points"));
    assert_int_equal(judged("ht over its floor")->verdict, MARK_OPEN);
    set_time(&course.row[2], ARF_HT, 817889280 / 4.0e6 * 1.34);
    assert_int_equal(judged("ht over its floor")->verdict, MARK_HELD);
    set_time(&course.row[2], ARF_HT, 817889280 / 4.0e6 * 1.36);
    assert_int_equal(judged("ht over its floor")->verdict, MARK_MISSED);
    run.ranks_here = 1;
    assert_int_equal(judged("ht over its floor")->verdict, MARK_NOT_HERE);
}

static void ht_serves_prefill(void **state)
{
    (void)state;
    row(ARF_ALLREDUCE, 4096, true);
    row(ARF_FINALIZE, 8192, true);
    assert_int_equal(judged("HT is the routed")->verdict, MARK_HELD);
    side.routes[ARF_FINALIZE].route[1].plan.protocol = ARF_BT;
    const mark *missed = judged("HT is the routed");
    assert_int_equal(missed->verdict, MARK_MISSED);
    assert_string_equal(missed->figure, "allreduce 4096 ht, finalize 8192 bt");
}

static void costs_of_the_host(void **state)
{
    (void)state;
    assert_int_equal(judged("launch cost")->verdict, MARK_HELD);
    costs.launch_ratio = 1.21;
    assert_int_equal(judged("launch cost")->verdict, MARK_MISSED);
    costs.launch_ratio = NAN;
    strcpy(costs.why, "nothing to launch");
    assert_string_equal(judged("launch cost")->figure, "nothing to launch");
    assert_int_equal(judged("launch cost")->verdict, MARK_NOT_HERE);
    costs.create_ms = 101;
    assert_int_equal(judged("creating a workspace")->verdict, MARK_MISSED);
    costs.compile_s = 2.1;
    assert_int_equal(judged("compiling a kernel")->verdict, MARK_MISSED);
    costs.route_ns = 11;
    assert_int_equal(judged("choosing a route")->verdict, MARK_MISSED);
    pair.together = 56;
    assert_int_equal(judged("ll: calls of 1 and 64")->verdict, MARK_MISSED);
}

static void an_aim_is_not_binding(void **state)
{
    (void)state;
    problem.shape.tp_size = run.ranks_here = run.processes = 2;
    course.calls = 20;
    row(ARF_ALLREDUCE, 1, true)->routed = (race_time){.timed = true, .us = 4.2};
    const mark *aim = judged("allreduce: routed over a public");
    assert_true(aim->aim);
    assert_int_equal(aim->verdict, MARK_MISSED); /* 4.08 */
    assert_false(marks_missed(&found));
    course.row[0].routed.us = 4.08 * 0.79;
    assert_int_equal(judged("allreduce: routed over a public fused kernel, each")->verdict,
                     MARK_HELD);
    assert_int_equal(judged("allreduce: routed over a public fused kernel, geo")->verdict,
                     MARK_HELD);
    course.calls = 0; /* other graphs do not compare */
    judge_marks(&run, &found);
    for (int i = 0; i < found.count; i++)
        assert_null(strstr(found.of[i].name, "public"));
}

/* Below 64 tokens the allreduce and 1.3 gathers, from there on 1.6 floors. */
static void finalize_aims_at_what_it_adds(void **state)
{
    (void)state;
    /* 11 x 8 x 32 x 12288 = 34.6e6 bytes at 6e6: 5.77 us; 10 + 1.3 x 5.77 = 17.5. */
    row(ARF_ALLREDUCE, 32, true)->routed = (race_time){.timed = true, .us = 10};
    row(ARF_FINALIZE, 32, true)->routed = (race_time){.timed = true, .us = 17.4};
    assert_int_equal(judged("finalize below 64")->verdict, MARK_HELD);
    course.row[1].routed.us = 17.6;
    assert_int_equal(judged("finalize below 64")->verdict, MARK_MISSED);
    /* HT at 1024: 18.125 x 8 x 12582912 = 1824.5e6 bytes at 4e6: 456 us; x 1.6 = 729.8. */
    row(ARF_FINALIZE, 1024, true)->routed =
        (race_time){.timed = true, .plan.protocol = ARF_HT, .us = 729};
    assert_int_equal(judged("finalize from 64")->verdict, MARK_HELD);
    course.row[2].routed.us = 731;
    assert_int_equal(judged("finalize from 64")->verdict, MARK_MISSED);
}

static void set_composed(race_row *at, double routed, double fixed, double any)
{
    at->routed = (race_time){.timed = true, .plan.protocol = ARF_HT, .us = routed};
    at->composed[COMPOSED_FIXED] = (race_time){.timed = !isnan(fixed), .us = fixed};
    at->composed[COMPOSED_LIBRARY] = (race_time){.timed = !isnan(any), .us = any};
}

/* The faster form counts: at few tokens by three, from four ranks on; up to 2048 at all. */
static void nccl_is_the_rival_of_several_gpus(void **state)
{
    (void)state;
    run.ranks_here = 1;
    set_composed(row(ARF_ALLREDUCE, 64, true), 10, 31, 40);
    set_composed(row(ARF_ALLREDUCE, 2048, true), 99, NAN, 100);
    set_composed(row(ARF_ALLREDUCE, 4096, true), 99, 50, 50); /* not asked */
    assert_int_equal(judged("allreduce, 1 to 2048")->verdict, MARK_HELD);
    assert_int_equal(judged("allreduce, 1 to 64 ")->verdict, MARK_HELD);
    assert_int_equal(judged("finalize, 1 to 64 ")->verdict, MARK_NOT_HERE); /* no such point */
    set_composed(&course.row[0], 10, 31, 29);
    assert_int_equal(judged("allreduce, 1 to 64 ")->verdict, MARK_MISSED);
    set_composed(&course.row[1], 101, NAN, 100);
    assert_int_equal(judged("allreduce, 1 to 2048")->verdict, MARK_MISSED);
    assert_true(marks_missed(&found));
    set_composed(&course.row[1], 99, NAN, NAN);
    assert_int_equal(judged("allreduce, 1 to 2048")->verdict, MARK_OPEN);
    problem.shape.tp_size = 2; /* three times is said of larger teams */
    judge_marks(&run, &found);
    for (int i = 0; i < found.count; i++)
        assert_null(strstr(found.of[i].name, "1 to 64 tokens: routed over the NCCL"));
}

static void prefill_is_near_its_floor_or_beats_nccl(void **state)
{
    (void)state;
    run.ranks_here = 1;
    links = (link_speed){.slowest = 400e3, .fastest = 400e3};
    /* 2 x 7 / 8 of 8192 x 12288 bytes at 400e3: 440.4 us; x 1.15 = 506.5. */
    race_row *at = row(ARF_ALLREDUCE, 8192, true);
    set_composed(at, 505, 500, 500);
    assert_int_equal(judged("allreduce, 8192")->verdict, MARK_HELD);
    set_composed(at, 508, 500, 500);
    assert_int_equal(judged("allreduce, 8192")->verdict, MARK_MISSED);
    set_composed(at, 508, 600, 509);
    assert_int_equal(judged("allreduce, 8192")->verdict, MARK_HELD);
    set_composed(at, 508, NAN, NAN); /* the floor alone */
    assert_int_equal(judged("allreduce, 8192")->verdict, MARK_MISSED);
    at->timed = false;
    assert_int_equal(judged("allreduce, 8192")->verdict, MARK_OPEN);
}

static void nccl_is_no_rival_where_it_does_not_serve(void **state)
{
    (void)state;
    set_composed(row(ARF_ALLREDUCE, 64, true), 100, 1, 1);
    assert_string_equal(judged("allreduce, 1 to 2048")->figure, "said of several GPUs");
    assert_int_equal(judged("allreduce, 1 to 2048")->verdict, MARK_NOT_HERE);
    run.ranks_here = 1;
    run.no_composition = "libnccl.so.2 is not here";
    assert_string_equal(judged("allreduce, 1 to 2048")->figure, "libnccl.so.2 is not here");
    assert_int_equal(judged("allreduce, 8192")->verdict, MARK_NOT_HERE);
}

static void other_devices_are_not_judged(void **state)
{
    (void)state;
    row(ARF_ALLREDUCE, 4, true)->ratio[ARF_UNFUSED].median = 3;
    run.gpu = false;
    run.host = true;
    assert_int_equal(judged("allreduce: routed over unfused")->verdict, MARK_NOT_HERE);
    assert_false(marks_missed(&found));
    run.host = false; /* the model's times are as good as its curves */
    assert_int_equal(judged("allreduce: routed over unfused")->verdict, MARK_MISSED);
    course.wanted = (const bool[ARF_PROTOCOLS]){[ARF_LL] = true};
    assert_int_equal(judged("allreduce: routed over unfused")->verdict, MARK_NOT_HERE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(bytes_are_those_of_the_design),
        TEST(bytes_of_links_are_those_of_the_design),
        TEST(a_floor_is_the_slower_of_memory_and_links),
        TEST(copies_take_what_their_size_takes),
        TEST(a_rival_that_is_faster_is_named),
        TEST(what_was_not_reached_is_not_held),
        TEST(few_tokens_of_finalize_gain_in_the_mean),
        TEST(floors_count_above_twenty_microseconds),
        TEST(ht_serves_prefill),
        TEST(costs_of_the_host),
        TEST(an_aim_is_not_binding),
        TEST(finalize_aims_at_what_it_adds),
        TEST(nccl_is_the_rival_of_several_gpus),
        TEST(prefill_is_near_its_floor_or_beats_nccl),
        TEST(nccl_is_no_rival_where_it_does_not_serve),
        TEST(other_devices_are_not_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
