/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a workspace: every route, every token count, every bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/device_case.h"
#include "support/runtime_case.h"

static bool long_run(void)
{
    const char *text = getenv("ARFUSE_TEST_LONG");
    return text && strcmp(text, "1") == 0;
}

static void passes(arfuse_status status, const arf_error *error)
{
    if (status != ARFUSE_OK)
        fail_msg("status %d: %s", status, error->text);
}

static arf_shape shape_of(int ranks, int hidden, int top_k)
{
    return (arf_shape){ranks, hidden, top_k, ARF_ON, ARF_ON, ARF_ON};
}

typedef struct bench {
    arf_shape shape;
    char path[256];
    arfuse_workspace *workspace;
    arf_trial *trial;
} bench;

/* A workspace with case_profile and operands for up to `tokens`. */
static bench open_bench(arf_shape shape, int64_t capacity, int64_t tokens, arfuse_fallback fallback)
{
    bench b = {.shape = shape};
    arf_error error = ARF_ERROR_INIT;
    arf_profile *profile = case_profile(&shape);
    case_save(profile, b.path);
    arf_profile_free(profile);
    arfuse_options options = case_options(&shape, capacity);
    options.profile = b.path;
    options.fallback = fallback;
    passes(arfuse_workspace_create(NULL, &options, &b.workspace, &error), &error);
    passes(arf_trial_create(b.workspace->device, &shape, tokens, ARF_TRIAL_RANDOM, 11, &b.trial,
                            &error),
           &error);
    return b;
}

static void close_bench(bench *b)
{
    arf_error error = ARF_ERROR_INIT;
    arf_trial_destroy(b->trial);
    passes(arfuse_workspace_destroy(&b->workspace, &error), &error);
    assert_null(b->workspace);
    case_remove(b->path);
}

static uint64_t calls_of(const bench *b, arfuse_pattern pattern, int route)
{
    arfuse_counters counters = ARFUSE_COUNTERS_INIT;
    assert_int_equal(arfuse_route_counters(b->workspace, pattern, route, &counters), ARFUSE_OK);
    return counters.calls;
}

/* The route that serves M, written down by hand from case_profile. */
static int expected_route(arfuse_pattern pattern, int64_t tokens, int64_t capacity)
{
    static const int64_t bound[2][4] = {{4, 12, 24, 30}, {3, 14, 20, 28}};
    if (tokens > capacity)
        return ARFUSE_ROUTE_UNFUSED;
    for (int i = 0; i < 4; i++)
        if (tokens <= bound[pattern][i])
            return i;
    return ARFUSE_ROUTE_UNFUSED;
}

static void every_token_count_has_its_route_and_its_bits(void **state)
{
    (void)state;
    static const int64_t capacities[] = {40, 26, 7};
    for (int c = 0; c < 3; c++) {
        const int64_t capacity = capacities[c];
        bench b = open_bench(shape_of(3, 64, 3), capacity, 2 * capacity + 3, ARFUSE_FALLBACK_AUTO);
        for (int p = 0; p < 2; p++)
            for (int64_t tokens = 0; tokens <= 2 * capacity + 3; tokens++) {
                if (tokens > capacity + 1 && tokens < 2 * capacity)
                    continue;
                const arfuse_pattern pattern = (arfuse_pattern)p;
                const int route = expected_route(pattern, tokens > 0 ? tokens : 1, capacity);
                arfuse_call call = case_call_of(b.trial, tokens);
                arf_error error = ARF_ERROR_INIT;
                const uint64_t before = calls_of(&b, pattern, route);
                const int fused = arfuse_would_fuse(b.workspace, pattern, &call);
                arfuse_counters all = ARFUSE_COUNTERS_INIT;
                assert_int_equal(arfuse_site_counters(b.workspace, ARFUSE_SITE_NONE, &all), 0);
                const uint64_t fused_before = all.fused;
                passes(case_run(b.workspace, b.trial, pattern, call, &error), &error);
                assert_int_equal(calls_of(&b, pattern, route), before + 1);
                assert_int_equal(arfuse_site_counters(b.workspace, ARFUSE_SITE_NONE, &all), 0);
                assert_int_equal(all.fused - fused_before, fused);
                /* An allreduce route says unfused to 30; separate to 14 stands on bt and ht. */
                assert_int_equal(fused, route >= 0 && !(p == 0 && route == 3));
                char why[1024];
                assert_int_equal(arfuse_explain(b.workspace, pattern, &call, why, sizeof why),
                                 ARFUSE_OK);
                assert_int_equal(strstr(why, ": unfused") == NULL, fused);
            }
        close_bench(&b);
    }
}

static void any_route_may_be_forced_for_any_token_count(void **state)
{
    (void)state;
    bench b = open_bench(shape_of(4, 72, 2), 26, 61, ARFUSE_FALLBACK_AUTO);
    static const int64_t tokens[] = {0, 1, 5, 26, 27, 61};
    for (int p = 0; p < 2; p++)
        for (int route = ARFUSE_ROUTE_UNFUSED; route < 4; route++)
            for (int i = 0; i < 6; i++) {
                arfuse_call call = case_call_of(b.trial, tokens[i]);
                arf_error error = ARF_ERROR_INIT;
                call.route = route;
                passes(case_run(b.workspace, b.trial, (arfuse_pattern)p, call, &error), &error);
            }
    /* 61 tokens by LL, whose mailbox has 4, are 16 launches; 0 and 1 came by their own route too.
     */
    arfuse_counters counters = ARFUSE_COUNTERS_INIT;
    assert_int_equal(arfuse_route_counters(b.workspace, ARFUSE_ALLREDUCE, 0, &counters), 0);
    assert_int_equal(counters.launches, 1 + 1 + 2 + 7 + 7 + 16 + 2);
    assert_int_equal(counters.tokens, 0 + 1 + 5 + 26 + 27 + 61 + 1);
    arfuse_call call = case_call_of(b.trial, 1);
    arf_error error = ARF_ERROR_INIT;
    call.route = 4;
    assert_int_equal(case_run(b.workspace, b.trial, ARFUSE_ALLREDUCE, call, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "call.route is 4"));
    close_bench(&b);
}

static void the_fallback_is_the_callers_choice(void **state)
{
    (void)state;
    bench b = open_bench(shape_of(2, 64, 2), 40, 200, ARFUSE_FALLBACK_ERROR);
    arf_error error = ARF_ERROR_INIT;
    char why[1024];
    arfuse_counters counters = ARFUSE_COUNTERS_INIT;

    /* An error, from the workspace's option, with nothing done. */
    arfuse_call call = case_call_of(b.trial, 200);
    assert_int_equal(case_run(b.workspace, b.trial, ARFUSE_FINALIZE, call, &error),
                     ARFUSE_NOT_SERVED);
    assert_non_null(strstr(error.text, "finalize of 200 tokens"));
    arf_error_clear(&error);
    passes(arf_trial_check(b.trial, ARF_FINALIZE, 0, &error), &error); /* still poisoned */
    assert_int_equal(arfuse_would_fuse(b.workspace, ARFUSE_FINALIZE, &call), 0);

    /* The call beats the option. */
    call.fallback = ARFUSE_FALLBACK_UNFUSED;
    passes(case_run(b.workspace, b.trial, ARFUSE_FINALIZE, call, &error), &error);
    assert_int_equal(
        arfuse_route_counters(b.workspace, ARFUSE_FINALIZE, ARFUSE_ROUTE_UNFUSED, &counters),
        ARFUSE_OK);
    assert_int_equal(counters.calls, 1);
    assert_int_equal(counters.beyond, 1);
    assert_int_equal(counters.launches, 5);

    /* Served: pieces of the last fused route. */
    call.fallback = ARFUSE_FALLBACK_SERVED;
    assert_int_equal(arfuse_would_fuse(b.workspace, ARFUSE_FINALIZE, &call), 1);
    passes(case_run(b.workspace, b.trial, ARFUSE_FINALIZE, call, &error), &error);
    assert_int_equal(arfuse_route_counters(b.workspace, ARFUSE_FINALIZE, 3, &counters), ARFUSE_OK);
    assert_int_equal(counters.calls, 1);
    assert_int_equal(counters.launches, (200 + 27) / 28);
    passes(arfuse_explain(b.workspace, ARFUSE_FINALIZE, &call, why, sizeof why), &error);
    assert_non_null(strstr(why, "ht"));
    assert_non_null(strstr(why, "in pieces of 28"));
    /* Where the last route says unfused, the last fused one. */
    passes(case_run(b.workspace, b.trial, ARFUSE_ALLREDUCE, call, &error), &error);
    assert_int_equal(arfuse_route_counters(b.workspace, ARFUSE_ALLREDUCE, 2, &counters), ARFUSE_OK);
    assert_int_equal(counters.launches, (200 + 27) / 28); /* HT has room for 28, from finalize */
    close_bench(&b);
}

static void info_says_what_is_fused(void **state)
{
    (void)state;
    bench b = open_bench(shape_of(2, 64, 2), 26, 1, ARFUSE_FALLBACK_AUTO);
    arfuse_info info = ARFUSE_INFO_INIT;
    assert_int_equal(arfuse_workspace_info(b.workspace, &info), ARFUSE_OK);
    assert_int_equal(info.tp_size, 2);
    assert_int_equal(info.local_ranks, 2);
    assert_string_equal(info.device, "host");
    assert_int_equal(info.routes[0], 4);
    assert_int_equal(info.fused_tokens[ARFUSE_ALLREDUCE], 24);
    assert_int_equal(info.fused_tokens[ARFUSE_FINALIZE], 26);
    assert_int_equal(arfuse_workspace_status(b.workspace, NULL), ARFUSE_OK);
    close_bench(&b);
}

static void a_separate_finalize_says_what_comes_then(void **state)
{
    (void)state;
    bench b = open_bench(shape_of(2, 64, 2), 40, 1, ARFUSE_FALLBACK_AUTO);
    char why[2048];
    arfuse_call call = case_call_of(b.trial, 10);
    assert_int_equal(arfuse_explain(b.workspace, ARFUSE_FINALIZE, &call, why, sizeof why), 0);
    assert_non_null(strstr(why, ": separate ("));
    assert_non_null(strstr(why, ", then allreduce by bt ("));
    call.tokens = 14; /* the last of the route; the allreduce routes have ht there */
    assert_int_equal(arfuse_explain(b.workspace, ARFUSE_FINALIZE, &call, why, sizeof why), 0);
    assert_non_null(strstr(why, ", then allreduce by ht ("));
    /* Too small a place for the text is said. */
    assert_int_equal(arfuse_explain(b.workspace, ARFUSE_FINALIZE, &call, why, 20), ARFUSE_USAGE);
    assert_int_equal(strlen(why), 19);
    close_bench(&b);
}

/* A caller that was built with a later header has larger structs. */
static void larger_structs_are_taken(void **state)
{
    (void)state;
    bench b = open_bench(shape_of(3, 64, 2), 40, 9, ARFUSE_FALLBACK_AUTO);
    struct {
        arfuse_operands known;
        uint64_t later[3];
    } larger[3];
    struct {
        arfuse_call known;
        uint64_t later[2];
    } call;
    arf_error error = ARF_ERROR_INIT;
    memset(&call, 0xff, sizeof call);
    call.known = case_call_of(b.trial, 9);
    call.known.struct_size = sizeof call;
    for (int r = 0; r < 3; r++) {
        memset(&larger[r], 0xff, sizeof larger[r]);
        larger[r].known = arf_trial_operands(b.trial)[r];
        larger[r].known.struct_size = sizeof larger[r];
    }
    passes(arf_trial_poison(b.trial, &error), &error);
    passes(arfuse_finalize(b.workspace, &call.known, &larger[0].known, &error), &error);
    passes(arf_trial_check(b.trial, ARF_FINALIZE, 9, &error), &error);
    larger[2].known.struct_size = sizeof(arfuse_operands);
    assert_int_equal(arfuse_finalize(b.workspace, &call.known, &larger[0].known, &error),
                     ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "operands[2].struct_size"));
    close_bench(&b);
}

/* ---- what the shape has not ------------------------------------------------------------------ */

static void every_switch_of_the_shape_works(void **state)
{
    (void)state;
    for (int bits = 0; bits < 8; bits++) {
        arf_shape shape = {
            2, 64, 2, (arf_switch)(bits & 1), (arf_switch)(bits >> 1 & 1), (arf_switch)(bits >> 2)};
        bench b = open_bench(shape, 30, 31, ARFUSE_FALLBACK_AUTO);
        static const int64_t tokens[] = {0, 2, 6, 17, 29, 31};
        for (int p = 0; p < 2; p++)
            for (int i = 0; i < 6; i++) {
                arf_error error = ARF_ERROR_INIT;
                passes(case_run(b.workspace, b.trial, (arfuse_pattern)p,
                                case_call_of(b.trial, tokens[i]), &error),
                       &error);
            }
        close_bench(&b);
    }
}

static void one_rank_needs_no_exchange(void **state)
{
    (void)state;
    bench b = open_bench(shape_of(1, 64, 2), 30, 31, ARFUSE_FALLBACK_AUTO);
    for (int64_t tokens = 0; tokens <= 31; tokens++) {
        arf_error error = ARF_ERROR_INIT;
        passes(
            case_run(b.workspace, b.trial, ARFUSE_FINALIZE, case_call_of(b.trial, tokens), &error),
            &error);
    }
    close_bench(&b);
}

/* ---- long mixes ------------------------------------------------------------------------------ */

static void mix(int ranks, int hidden, int calls)
{
    bench b = open_bench(shape_of(ranks, hidden, 3), 40, 64, ARFUSE_FALLBACK_AUTO);
    uint64_t seed = 5;
    for (int i = 0; i < calls; i++) {
        arf_error error = ARF_ERROR_INIT;
        const arfuse_pattern pattern = (arfuse_pattern)(case_random(&seed) % 2);
        arfuse_call call = case_call_of(b.trial, (int64_t)(case_random(&seed) % 65));
        call.route = (int)(case_random(&seed) % 6) - 2;
        if (case_run(b.workspace, b.trial, pattern, call, &error) != ARFUSE_OK)
            fail_msg("call %d, pattern %d, %d tokens, route %d: %s", i, pattern, (int)call.tokens,
                     call.route, error.text);
    }
    close_bench(&b);
}

static void patterns_routes_and_token_counts_mix_freely(void **state)
{
    (void)state;
    mix(4, 256, long_run() ? 10000 : 1000);
    mix(8, 6144, long_run() ? 200 : 12);
}

/* What a stream would order there has no meaning: who passes one is told so. */
static void a_device_without_streams_takes_none(void **state)
{
    (void)state;
    bench b = open_bench(shape_of(2, 64, 0), 4, 4, ARFUSE_FALLBACK_UNFUSED);
    const arfuse_stream stream = (arfuse_stream)(uintptr_t)0x40;
    arfuse_call call = case_call_of(b.trial, 1);
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arfuse_workspace_use_stream(b.workspace, stream, &error), ARFUSE_USAGE);
    assert_string_equal(error.text, "stream is 0x40, expected NULL: device host has no streams");
    call.stream = stream;
    assert_int_equal(case_run(b.workspace, b.trial, ARFUSE_ALLREDUCE, call, &error), ARFUSE_USAGE);
    assert_string_equal(error.text,
                        "call.stream is 0x40, expected NULL: device host has no streams");
    assert_int_equal(arfuse_would_fuse(b.workspace, ARFUSE_ALLREDUCE, &call), 0);
    call.stream = NULL;
    passes(arfuse_workspace_use_stream(b.workspace, NULL, &error), &error);
    passes(case_run(b.workspace, b.trial, ARFUSE_ALLREDUCE, call, &error), &error);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_count_has_its_route_and_its_bits),
        cmocka_unit_test(any_route_may_be_forced_for_any_token_count),
        cmocka_unit_test(the_fallback_is_the_callers_choice),
        cmocka_unit_test(info_says_what_is_fused),
        cmocka_unit_test(a_separate_finalize_says_what_comes_then),
        cmocka_unit_test(larger_structs_are_taken),
        cmocka_unit_test(every_switch_of_the_shape_works),
        cmocka_unit_test(one_rank_needs_no_exchange),
        cmocka_unit_test(patterns_routes_and_token_counts_mix_freely),
        cmocka_unit_test(a_device_without_streams_takes_none),
    };
    return cmocka_run_group_tests_name("runtime_calls", tests, NULL, NULL);
}
