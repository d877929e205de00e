/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rules/knobs.h"

static arf_error error;

static const char *no_library; /* of the problem */

static arf_schedule *make(arf_set set, int sms, int hidden, int topk, const char *arguments,
                          arfuse_status expected)
{
    static arf_tune_options options;
    static char copy[1024];
    char *argv[32] = {(char[]){"arfuse-tune"}, (char[]){"--hidden"}, (char[]){"8"}};
    int argc = 3;
    strcpy(copy, arguments);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    arf_error_clear(&error);
    assert_int_equal(arf_options_parse(argc, argv, &options, &error), ARFUSE_OK);
    const arf_problem problem = {
        .set = set,
        .sm_count = sms,
        .shape = {8, hidden, topk, ARF_ON, ARF_ON, ARF_ON},
        .no_library = no_library,
    };
    arf_tokens tokens = options.tokens;
    if (tokens.count == 0)
        arf_schedule_ladder(set == ARF_SET_HOST ? ARF_LINK_SHM : ARF_LINK_NVLINK, &tokens);
    arf_schedule *schedule = NULL;
    assert_int_equal(arf_schedule_make(&problem, &tokens, &options, &schedule, &error), expected);
    return schedule;
}

static int count(const arf_schedule *s, arf_pattern pattern, arf_protocol protocol)
{
    int n = 0;
    for (int i = 0; i < s->race[pattern].count; i++)
        n += s->race[pattern].candidate[i].plan.protocol == protocol;
    return n;
}

static void test_equal_problems_give_equal_schedules(void **state)
{
    (void)state;
    arf_schedule *a = make(ARF_SET_ARFUSE, 148, 6144, 10, "", ARFUSE_OK);
    arf_schedule *b = make(ARF_SET_ARFUSE, 148, 6144, 10, "", ARFUSE_OK);
    arf_schedule *c = make(ARF_SET_ARFUSE, 152, 6144, 10, "", ARFUSE_OK);
    assert_true(arf_schedule_digest(a) == arf_schedule_digest(b));
    assert_true(arf_schedule_digest(a) != arf_schedule_digest(c));
    assert_int_equal(arf_schedule_points(a), 28);
    arf_schedule_free(a);
    arf_schedule_free(b);
    arf_schedule_free(c);
}

static void test_candidates_are_legal_and_differ(void **state)
{
    (void)state;
    const int hidden[] = {2880, 3584, 4096, 5120, 6144, 7168, 8192, 16384};
    for (size_t h = 0; h < sizeof hidden / sizeof *hidden; h++) {
        arf_schedule *s = make(ARF_SET_ARFUSE, 148, hidden[h], 8, "", ARFUSE_OK);
        for (int p = 0; p < ARF_PATTERNS; p++) {
            const arf_race *race = &s->race[p];
            for (int i = 0; i < race->count; i++) {
                char reason[ARF_REASON_TEXT];
                if (!arf_legal(&s->problem, (arf_pattern)p, &race->candidate[i].plan, reason))
                    fail_msg("H=%d: %s", hidden[h], reason);
                assert_true(race->candidate[i].limit >= 1);
                for (int j = 0; j < i; j++)
                    assert_false(arf_plan_equal(s->problem.set, (arf_pattern)p,
                                                &race->candidate[i].plan,
                                                &race->candidate[j].plan));
            }
        }
        arf_schedule_free(s);
    }
}

static void test_who_always_races(void **state)
{
    (void)state;
    arf_schedule *s = make(ARF_SET_ARFUSE, 148, 6144, 10, "", ARFUSE_OK);
    for (int p = 0; p < ARF_PATTERNS; p++)
        for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++) {
            int always = 0;
            for (int i = 0; i < s->race[p].count; i++)
                always += s->race[p].candidate[i].plan.protocol == (arf_protocol)protocol &&
                          s->race[p].candidate[i].always;
            const bool exists = count(s, (arf_pattern)p, (arf_protocol)protocol) > 0;
            assert_true(exists ? always >= 1 : always == 0);
        }
    assert_true(count(s, ARF_FINALIZE, ARF_SEPARATE) > 0);
    assert_int_equal(count(s, ARF_ALLREDUCE, ARF_SEPARATE), 0);
    arf_schedule_free(s);
}

static void test_large_sweeps_are_bounded(void **state)
{
    (void)state;
    arf_schedule *s = make(ARF_SET_ARFUSE, 148, 6144, 10, "--tokens 1-1048576*2", ARFUSE_OK);
    /* rules.md section 8: LL at most 64 tokens, BT 2048 where HT exists; 6 T C H bytes of LL. */
    assert_int_equal(s->capacity[ARF_LL], 64);
    assert_int_equal(s->capacity[ARF_BT], 2048);
    assert_int_equal(s->capacity[ARF_HT], 1048576);
    assert_int_equal(s->bytes[ARF_LL], INT64_C(6) * 8 * 64 * 6144);
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        assert_true(s->bytes[p] >= 0);
    arf_schedule_free(s);
}

static void test_pins(void **state)
{
    (void)state;
    arf_schedule *s =
        make(ARF_SET_ARFUSE, 148, 6144, 10, "--set ll.allreduce.threads=64", ARFUSE_OK);
    const arf_knob_table *knobs = arf_knobs(ARF_SET_ARFUSE, ARF_LL, ARF_ALLREDUCE);
    const int at = arf_knob_index(knobs, "threads");
    int other = 0;
    for (int i = 0; i < s->race[ARF_ALLREDUCE].count; i++)
        if (s->race[ARF_ALLREDUCE].candidate[i].plan.protocol == ARF_LL)
            assert_int_equal(s->race[ARF_ALLREDUCE].candidate[i].plan.tuning.value[at], 64);
    for (int i = 0; i < s->race[ARF_FINALIZE].count; i++)
        other += s->race[ARF_FINALIZE].candidate[i].plan.protocol == ARF_LL;
    assert_true(count(s, ARF_ALLREDUCE, ARF_LL) > 0 && other > 0);
    arf_schedule_free(s);
    make(ARF_SET_ARFUSE, 148, 6144, 10, "--set ll.nope=1", ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "elements_per_thread"));
    make(ARF_SET_ARFUSE, 148, 6144, 10, "--set ll.threads=5000", ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "32 to 1024"));
    make(ARF_SET_HOST, 0, 6144, 10, "--set ll.threads=128", ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "pack_step"));
}

/* A single kernel has no publishing kernel; two plans that differ in what that one reads launch the
 * same, and one of them would take a place of the few that screening has. */
static void test_no_two_candidates_launch_the_same(void **state)
{
    (void)state;
    static const char *const pins[] = {
        "", "--set ll.elements_per_thread=2",
        "--set ll.finalize.kernels=1 --set ll.allreduce.kernels=1 --set ll.elements_per_thread=2"};
    for (size_t a = 0; a < sizeof pins / sizeof *pins; a++) {
        arf_schedule *s = make(ARF_SET_ARFUSE, 132, 6144, 8, pins[a], ARFUSE_OK);
        for (int p = 0; p < ARF_PATTERNS; p++) {
            const arf_race *race = &s->race[p];
            const arf_knob_table *knobs = arf_knobs(ARF_SET_ARFUSE, ARF_LL, (arf_pattern)p);
            const int elements = arf_knob_index(knobs, "elements_per_thread");
            int singles = 0;
            for (int i = 0; i < race->count; i++) {
                arf_plan plan = race->candidate[i].plan;
                if (plan.protocol != ARF_LL)
                    continue;
                if (a > 0)
                    assert_int_equal(plan.tuning.value[elements], 2);
                singles += plan.tuning.value[arf_knob_index(knobs, "kernels")] == 1;
                arf_tuning_settle(knobs, &plan.tuning);
                for (int j = 0; j < race->count; j++)
                    assert_true(i == j ||
                                !arf_plan_equal(ARF_SET_ARFUSE, (arf_pattern)p, &plan,
                                                &race->candidate[j].plan));
            }
            assert_true(singles > 0);
        }
        arf_schedule_free(s);
    }
}

static void test_an_empty_race_says_which_filter_emptied_it(void **state)
{
    (void)state;
    make(ARF_SET_ARFUSE, 148, 2880, 4, "--protocols ht", ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "no candidate is left"));
    assert_non_null(strstr(error.text, "ht: "));
    assert_non_null(strstr(error.text, "ll: left out by --protocols"));
    make(ARF_SET_ARFUSE, 148, 6144, 4, "--protocols ll --tokens 4096,8192", ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "--tokens: 4096 or more, but the allreduce candidates"));
    arf_schedule_free(
        make(ARF_SET_ARFUSE, 148, 6144, 4, "--protocols ll --tokens 8,8192", ARFUSE_OK));
    make(ARF_SET_HOST, 0, 6144, 10, "--numerics any", ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "--numerics any"));
}

static int of_library(const arf_schedule *s, arf_pattern pattern)
{
    int count = 0;
    for (int i = 0; i < s->race[pattern].count; i++) {
        const arf_plan *plan = &s->race[pattern].candidate[i].plan;
        if (plan->numerics == ARF_LIBRARY)
            assert_int_equal(plan->protocol, ARF_UNFUSED);
        count += plan->numerics == ARF_LIBRARY;
    }
    return count;
}

static void test_the_library_races_under_any_numerics_only(void **state)
{
    (void)state;
    arf_schedule *s = make(ARF_SET_ARFUSE, 148, 6144, 10, "--numerics any", ARFUSE_OK);
    assert_true(of_library(s, ARF_ALLREDUCE) > 0);
    assert_true(of_library(s, ARF_FINALIZE) > 0);
    arf_schedule_free(s);
    s = make(ARF_SET_ARFUSE, 148, 6144, 10, "", ARFUSE_OK);
    assert_int_equal(of_library(s, ARF_ALLREDUCE) + of_library(s, ARF_FINALIZE), 0);
    assert_null(arf_schedule_lack(s));
    arf_schedule_free(s);
}

/* A machine where it cannot run is no failure of a candidate. */
static void test_the_library_is_no_candidate_where_it_cannot_serve(void **state)
{
    (void)state;
    no_library = "8 ranks share a GPU";
    arf_schedule *s = make(ARF_SET_ARFUSE, 148, 6144, 10, "--numerics any", ARFUSE_OK);
    no_library = NULL;
    assert_int_equal(of_library(s, ARF_ALLREDUCE) + of_library(s, ARF_FINALIZE), 0);
    assert_true(count(s, ARF_ALLREDUCE, ARF_UNFUSED) > 0);
    assert_string_equal(arf_schedule_lack(s), "8 ranks share a GPU");
    arf_schedule_free(s);
}

static void test_plans_name_numerics_that_are_not_fixed(void **state)
{
    (void)state;
    arf_plan plan = {
        .protocol = ARF_UNFUSED,
        .tuning = arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, ARF_UNFUSED, ARF_ALLREDUCE))};
    char fixed[256], library[256];
    arf_plan_text(ARF_SET_ARFUSE, ARF_ALLREDUCE, &plan, fixed, sizeof fixed);
    plan.numerics = ARF_LIBRARY;
    arf_plan_text(ARF_SET_ARFUSE, ARF_ALLREDUCE, &plan, library, sizeof library);
    assert_memory_equal(fixed, "unfused rms_threads=", 20);
    assert_memory_equal(library, "unfused numerics=library rms_threads=", 37);
}

static void test_facts(void **state)
{
    (void)state;
    const arf_problem problem = {
        .set = ARF_SET_ARFUSE, .sm_count = 148, .shape = {8, 6144, 10, ARF_ON, ARF_ON, ARF_ON}};
    const arf_knob_table *knobs = arf_knobs(ARF_SET_ARFUSE, ARF_LL, ARF_ALLREDUCE);
    const int elements = arf_knob_index(knobs, "elements_per_thread");
    const int threads = arf_knob_index(knobs, "threads");
    const int expected[][2] = {{1, 48}, {4, 12}, {8, 6}};
    for (int i = 0; i < 3; i++) {
        arf_plan plan = {.protocol = ARF_LL, .tuning = arf_tuning_fallback(knobs)};
        char text[64], shown[64];
        plan.tuning.value[elements] = expected[i][0];
        plan.tuning.value[threads] = 128;
        arf_plan_facts(&problem, ARF_ALLREDUCE, &plan, text, sizeof text);
        snprintf(shown, sizeof shown, "%d blocks a token", expected[i][1]);
        assert_string_equal(text, shown);
    }
    const arf_plan ht = {.protocol = ARF_HT,
                         .tuning =
                             arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, ARF_HT, ARF_FINALIZE))};
    char text[64];
    arf_plan_facts(&problem, ARF_FINALIZE, &ht, text, sizeof text);
    assert_string_equal(text, "512x2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_problems_give_equal_schedules),
        cmocka_unit_test(test_candidates_are_legal_and_differ),
        cmocka_unit_test(test_who_always_races),
        cmocka_unit_test(test_large_sweeps_are_bounded),
        cmocka_unit_test(test_pins),
        cmocka_unit_test(test_no_two_candidates_launch_the_same),
        cmocka_unit_test(test_an_empty_race_says_which_filter_emptied_it),
        cmocka_unit_test(test_the_library_races_under_any_numerics_only),
        cmocka_unit_test(test_the_library_is_no_candidate_where_it_cannot_serve),
        cmocka_unit_test(test_plans_name_numerics_that_are_not_fixed),
        cmocka_unit_test(test_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
