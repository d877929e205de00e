/* SPDX-License-Identifier: Apache-2.0 */
/* Sites and deferred work: exactly once, found when dropped, the same bits whoever declines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "device/reference.h"
#include "fit/fit.h"
#include "support/device_case.h"
#include "support/runtime_case.h"

enum { RANKS = 3, HIDDEN = 64, TOP_K = 2, CAPACITY = 40, MOST = 150 };
static const arf_shape shape = {RANKS, HIDDEN, TOP_K, ARF_ON, ARF_ON, ARF_ON};
static const char *const sites[] = {"attn_out", "moe_out", "final_norm"};
enum { ATTN, MOE, FINAL };

typedef struct bench {
    char path[256];
    arfuse_workspace *workspace;
    arf_trial *trial;
} bench;

static void passes(arfuse_status status, const arf_error *error)
{
    if (status != ARFUSE_OK)
        fail_msg("status %d: %s", status, error->text);
}

static bench open_bench(const arf_shape *of, int deferred)
{
    bench b = {{0}, NULL, NULL};
    arf_error error = ARF_ERROR_INIT;
    arf_profile *profile = case_profile(of);
    case_save(profile, b.path);
    arf_profile_free(profile);
    arfuse_options options = case_options(of, CAPACITY);
    options.profile = b.path;
    options.sites = sites;
    options.site_count = 3;
    options.deferred = deferred;
    passes(arfuse_workspace_create(NULL, &options, &b.workspace, &error), &error);
    passes(arf_trial_create(b.workspace->device, of, MOST, ARF_TRIAL_RANDOM, 3, &b.trial, &error),
           &error);
    return b;
}

static void close_bench(bench *b, arfuse_status expected)
{
    arf_error error = ARF_ERROR_INIT;
    arf_trial_destroy(b->trial);
    assert_int_equal(arfuse_workspace_destroy(&b->workspace, &error), expected);
    assert_null(b->workspace);
    case_remove(b->path);
}

static arfuse_counters counters_of(const bench *b, int site)
{
    arfuse_counters counters = ARFUSE_COUNTERS_INIT;
    assert_int_equal(arfuse_site_counters(b->workspace, site, &counters), ARFUSE_OK);
    return counters;
}

static arfuse_ticket defer(bench *b, arfuse_pattern pattern, arfuse_call call, const char *label)
{
    arfuse_ticket ticket = ARFUSE_TICKET_INIT;
    arf_error error = ARF_ERROR_INIT;
    passes(arfuse_defer(b->workspace, pattern, &call, arf_trial_operands(b->trial), label, &ticket,
                        &error),
           &error);
    return ticket;
}

/* ---- consuming ------------------------------------------------------------------------------- */

static void a_consumed_value_has_the_bits_of_the_call(void **state)
{
    (void)state;
    bench b = open_bench(&shape, 4);
    static const int64_t tokens[] = {0, 1, 5, 17, 40, 41, 100};
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < 7; i++) {
            arf_error error = ARF_ERROR_INIT;
            arfuse_call call = case_call_of(b.trial, tokens[i]);
            call.site = MOE;
            arfuse_ticket ticket = defer(&b, (arfuse_pattern)p, call, NULL);
            passes(arf_trial_poison(b.trial, &error), &error);
            /* What the consumer passes of the producer's half is not looked at. */
            arfuse_operands wanted[RANKS];
            for (int r = 0; r < RANKS; r++) {
                wanted[r] = arf_trial_operands(b.trial)[r];
                wanted[r].input = wanted[r].routed = wanted[r].weights = wanted[r].shared = NULL;
                wanted[r].indices = NULL;
            }
            call.routed_scale = 77; /* the producer's counts */
            call.site = FINAL;
            passes(arfuse_consume(b.workspace, ticket, &call, wanted, &error), &error);
            passes(arf_trial_check(b.trial, (arf_pattern)p, tokens[i], &error), &error);
        }
    assert_int_equal(counters_of(&b, MOE).deferred, 14);
    assert_int_equal(counters_of(&b, MOE).calls, 0);
    assert_int_equal(counters_of(&b, FINAL).calls, 14);
    close_bench(&b, ARFUSE_OK);
}

static void a_ticket_is_consumed_exactly_once(void **state)
{
    (void)state;
    bench b = open_bench(&shape, 2);
    arf_error error = ARF_ERROR_INIT;
    const arfuse_operands *operands = arf_trial_operands(b.trial);
    arfuse_call call = case_call_of(b.trial, 5);
    arfuse_ticket ticket = defer(&b, ARFUSE_FINALIZE, call, "layer 3 moe");

    /* An error of the arguments consumes nothing. */
    call.tokens = 6;
    assert_int_equal(arfuse_consume(b.workspace, ticket, &call, operands, &error), ARFUSE_USAGE);
    assert_non_null(
        strstr(error.text, "call.tokens is 6, but \"layer 3 moe\" was deferred with 5"));
    call.tokens = 5;
    assert_int_equal(arfuse_consume(b.workspace, ticket, &call, NULL, &error), ARFUSE_USAGE);
    assert_int_equal(arfuse_consume(b.workspace, ticket, NULL, operands, &error), ARFUSE_USAGE);
    arfuse_operands bad[RANKS];
    memcpy(bad, operands, sizeof bad);
    bad[1].gamma = NULL;
    assert_int_equal(arfuse_consume(b.workspace, ticket, &call, bad, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "rank 1: operands.gamma is NULL"));

    passes(arfuse_consume(b.workspace, ticket, &call, operands, &error), &error);
    assert_int_equal(arfuse_consume(b.workspace, ticket, &call, operands, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "ticket 1 (\"layer 3 moe\") was consumed"));
    void *sum[RANKS] = {bad[0].norm_out, bad[1].norm_out, bad[2].norm_out};
    assert_int_equal(arfuse_materialise(b.workspace, ticket, &call, sum, &error), ARFUSE_USAGE);

    /* Also when the place has been taken by others since. */
    for (int i = 0; i < 5; i++)
        passes(arfuse_consume(b.workspace, defer(&b, ARFUSE_FINALIZE, call, "x"), &call, operands,
                              &error),
               &error);
    assert_int_equal(arfuse_consume(b.workspace, ticket, &call, operands, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "ticket 1 was consumed, materialised or dropped before"));

    /* Tickets of another workspace, or of nobody. */
    bench other = open_bench(&shape, 2);
    arfuse_ticket foreign = defer(&other, ARFUSE_FINALIZE, call, NULL);
    assert_int_equal(arfuse_consume(b.workspace, foreign, &call, operands, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "was not given by this workspace"));
    passes(arfuse_consume(other.workspace, foreign, &call, arf_trial_operands(other.trial), &error),
           &error);
    close_bench(&other, ARFUSE_OK);
    ticket = (arfuse_ticket)ARFUSE_TICKET_INIT;
    assert_int_equal(arfuse_consume(b.workspace, ticket, &call, operands, &error), ARFUSE_USAGE);
    ticket = (arfuse_ticket){b.workspace, 12345};
    assert_int_equal(arfuse_consume(b.workspace, ticket, &call, operands, &error), ARFUSE_USAGE);
    close_bench(&b, ARFUSE_OK);
}

/* ---- dropped --------------------------------------------------------------------------------- */

static void a_dropped_one_is_found(void **state)
{
    (void)state;
    bench b = open_bench(&shape, 2);
    arf_error error = ARF_ERROR_INIT;
    const arfuse_operands *operands = arf_trial_operands(b.trial);
    arfuse_call call = case_call_of(b.trial, 5);
    call.site = MOE;
    arfuse_ticket ticket;

    /* At the next defer of the same label. */
    defer(&b, ARFUSE_FINALIZE, call, NULL);
    assert_int_equal(
        arfuse_defer(b.workspace, ARFUSE_FINALIZE, &call, operands, NULL, &ticket, &error),
        ARFUSE_OWED);
    assert_non_null(strstr(error.text, "the last deferred reduction of \"moe_out\" (ticket 1, 5 "
                                       "tokens) was never consumed"));
    defer(&b, ARFUSE_FINALIZE, call, NULL); /* said once */
    assert_int_equal(counters_of(&b, MOE).dropped, 1);

    /* At the end of a step. */
    defer(&b, ARFUSE_ALLREDUCE, call, "layer 7 attn");
    assert_int_equal(arfuse_end_step(b.workspace, &error), ARFUSE_OWED);
    assert_non_null(strstr(error.text, "2 deferred reductions were never consumed: \"moe_out\", "
                                       "\"layer 7 attn\""));
    passes(arfuse_end_step(b.workspace, &error), &error);
    assert_int_equal(counters_of(&b, MOE).dropped, 3);

    /* A full table names who fills it; nothing is lost by that. */
    arfuse_ticket first = defer(&b, ARFUSE_FINALIZE, call, "a");
    arfuse_ticket second = defer(&b, ARFUSE_FINALIZE, call, "b");
    assert_int_equal(
        arfuse_defer(b.workspace, ARFUSE_FINALIZE, &call, operands, "c", &ticket, &error),
        ARFUSE_IN_USE);
    assert_non_null(strstr(error.text, "all 2 places for deferred reductions are taken (\"a\", "
                                       "\"b\")"));
    passes(arfuse_consume(b.workspace, first, &call, operands, &error), &error);
    passes(arfuse_consume(b.workspace, second, &call, operands, &error), &error);

    /* When the workspace goes. */
    defer(&b, ARFUSE_FINALIZE, call, "a label that is far longer than what the table has room for");
    arf_trial_destroy(b.trial);
    assert_int_equal(arfuse_workspace_destroy(&b.workspace, &error), ARFUSE_OWED);
    assert_non_null(strstr(error.text, "\"a label that is far longer than what the table"));
    assert_non_null(strstr(error.text, "found when it was destroyed"));
    assert_null(b.workspace);
    case_remove(b.path);

    b = open_bench(&shape, 0);
    assert_int_equal(arfuse_defer(b.workspace, ARFUSE_FINALIZE, &call, arf_trial_operands(b.trial),
                                  NULL, &ticket, &error),
                     ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "options.deferred 0"));
    close_bench(&b, ARFUSE_OK);
}

/* ---- materialising --------------------------------------------------------------------------- */

/* The reference's sum alone: the shape without residual and norm. */
static void expected_sum(const bench *b, arf_pattern pattern, int64_t tokens, arf_bf16 *sum)
{
    arf_launch launch = arf_trial_launch(b->trial, pattern, tokens);
    arf_reference_call call = {.pattern = pattern,
                               .shape = b->workspace->space->spec.shape,
                               .tokens = tokens,
                               .routed_scale = launch.routed_scale,
                               .operands = arf_trial_operands(b->trial)};
    call.shape.rms_norm = call.shape.residual = ARF_OFF;
    assert_true(arf_reference(&call, sum, NULL, NULL));
}

static void materialising_gives_the_sum_alone(void **state)
{
    (void)state;
    static arf_bf16 wanted[MOST * HIDDEN];
    static arf_bf16 place[RANKS][MOST * HIDDEN] __attribute__((aligned(64)));
    static const int64_t tokens[] = {0, 1, 4, 10, 20, 29, 40, 41, 150};
    for (int bits = 0; bits < 8; bits++) {
        const arf_shape of = {RANKS,
                              HIDDEN,
                              TOP_K,
                              (arf_switch)(bits & 1),
                              (arf_switch)(bits >> 1 & 1),
                              (arf_switch)(bits >> 2)};
        bench b = open_bench(&of, 4);
        const arfuse_operands *operands = arf_trial_operands(b.trial);
        void *sum[RANKS] = {place[0], place[1], place[2]};
        for (int p = 0; p < 2; p++)
            for (int i = 0; i < 9; i++)
                for (int in_place = 0; in_place < 2 - p; in_place++) {
                    arf_error error = ARF_ERROR_INIT;
                    arfuse_call call = case_call_of(b.trial, tokens[i]);
                    const size_t bytes = (size_t)tokens[i] * HIDDEN * 2;
                    expected_sum(&b, (arf_pattern)p, tokens[i], wanted);
                    arfuse_operands made[RANKS];
                    for (int r = 0; r < RANKS; r++) {
                        made[r] = operands[r];
                        memset(place[r], 0x77, sizeof place[r]);
                        if (in_place) {
                            memcpy(place[r], operands[r].input, bytes);
                            made[r].input = place[r];
                        }
                    }
                    arfuse_ticket ticket;
                    passes(arfuse_defer(b.workspace, (arfuse_pattern)p, &call, made, "sum", &ticket,
                                        &error),
                           &error);
                    passes(arfuse_materialise(b.workspace, ticket, &call, sum, &error), &error);
                    for (int r = 0; r < RANKS; r++) {
                        assert_memory_equal(place[r], wanted, bytes);
                        for (size_t at = bytes / 2; at < MOST * HIDDEN; at++)
                            assert_int_equal(place[r][at], 0x7777);
                    }
                }
        assert_int_equal(counters_of(&b, ARFUSE_SITE_NONE).materialised, 27);
        /* Nothing else may overlap. */
        arf_error error = ARF_ERROR_INIT;
        arfuse_call call = case_call_of(b.trial, 5);
        arfuse_ticket ticket = defer(&b, ARFUSE_FINALIZE, call, NULL);
        sum[0] = (void *)(uintptr_t)operands[0].routed;
        assert_int_equal(arfuse_materialise(b.workspace, ticket, &call, sum, &error), ARFUSE_USAGE);
        assert_int_equal(arfuse_materialise(b.workspace, ticket, &call, NULL, &error),
                         ARFUSE_USAGE);
        sum[0] = place[0];
        passes(arfuse_materialise(b.workspace, ticket, &call, sum, &error), &error);
        close_bench(&b, ARFUSE_OK);
    }
}

/* In place by every route, over and over: nobody may read a row that another call overwrote. */
static void materialising_in_place_works_by_every_route(void **state)
{
    (void)state;
    static arf_bf16 wanted[MOST * HIDDEN];
    static arf_bf16 place[RANKS][MOST * HIDDEN] __attribute__((aligned(64)));
    bench b = open_bench(&shape, 4);
    const arfuse_operands *operands = arf_trial_operands(b.trial);
    void *sum[RANKS] = {place[0], place[1], place[2]};
    uint64_t seed = 9;
    for (int i = 0; i < 400; i++) {
        arf_error error = ARF_ERROR_INIT;
        arfuse_call call = case_call_of(b.trial, (int64_t)(case_random(&seed) % 70));
        call.route = (int)(case_random(&seed) % 6) - 2;
        const size_t bytes = (size_t)call.tokens * HIDDEN * 2;
        expected_sum(&b, ARF_ALLREDUCE, call.tokens, wanted);
        arfuse_operands made[RANKS];
        for (int r = 0; r < RANKS; r++) {
            made[r] = operands[r];
            memcpy(place[r], operands[r].input, bytes);
            made[r].input = place[r];
        }
        arfuse_ticket ticket;
        passes(arfuse_defer(b.workspace, ARFUSE_ALLREDUCE, &call, made, "sum", &ticket, &error),
               &error);
        passes(arfuse_materialise(b.workspace, ticket, &call, sum, &error), &error);
        for (int r = 0; r < RANKS; r++)
            if (memcmp(place[r], wanted, bytes) != 0)
                fail_msg("call %d, %d tokens, route %d, rank %d", i, (int)call.tokens, call.route,
                         r);
    }
    close_bench(&b, ARFUSE_OK);
}

/* ---- sites ----------------------------------------------------------------------------------- */

static void a_site_that_is_off_declines_and_still_reduces(void **state)
{
    (void)state;
    bench b = open_bench(&shape, 4);
    arf_error error = ARF_ERROR_INIT;
    arfuse_call call = case_call_of(b.trial, 5);
    call.site = MOE;
    char why[512];
    passes(arfuse_site_switch(b.workspace, MOE, 0, &error), &error);
    assert_int_equal(arfuse_would_fuse(b.workspace, ARFUSE_FINALIZE, &call), 0);
    passes(case_run(b.workspace, b.trial, ARFUSE_FINALIZE, call, &error), &error);
    passes(arfuse_explain(b.workspace, ARFUSE_FINALIZE, &call, why, sizeof why), &error);
    assert_non_null(strstr(why, "unfused, since site moe_out is switched off"));
    assert_int_equal(counters_of(&b, MOE).declined, 1);
    assert_int_equal(counters_of(&b, MOE).unfused, 1);
    /* Whatever the call asks for besides. */
    call.route = 0;
    assert_int_equal(arfuse_would_fuse(b.workspace, ARFUSE_FINALIZE, &call), 0);
    call.route = ARFUSE_ROUTE_AUTO;
    call.fallback = ARFUSE_FALLBACK_ERROR;
    assert_int_equal(case_run(b.workspace, b.trial, ARFUSE_FINALIZE, call, &error),
                     ARFUSE_NOT_SERVED);
    assert_non_null(strstr(error.text, "finalize of 5 tokens at moe_out has no fused route"));
    /* The others go on. */
    call.fallback = ARFUSE_FALLBACK_AUTO;
    call.site = ATTN;
    assert_int_equal(arfuse_would_fuse(b.workspace, ARFUSE_FINALIZE, &call), 1);
    passes(case_run(b.workspace, b.trial, ARFUSE_FINALIZE, call, &error), &error);
    assert_int_equal(counters_of(&b, ATTN).fused, 1);
    passes(arfuse_site_switch(b.workspace, MOE, 1, &error), &error);
    call.site = MOE;
    assert_int_equal(arfuse_would_fuse(b.workspace, ARFUSE_FINALIZE, &call), 1);
    assert_int_equal(arfuse_site_switch(b.workspace, 3, 1, &error), ARFUSE_USAGE);
    assert_int_equal(arfuse_site_switch(b.workspace, -1, 0, &error), ARFUSE_USAGE);
    assert_int_equal(arfuse_site_switch(b.workspace, 0, 2, &error), ARFUSE_USAGE);

    /* A deferred value whose consumer's site is off is reduced too. */
    arfuse_ticket ticket = defer(&b, ARFUSE_FINALIZE, call, NULL);
    passes(arfuse_site_switch(b.workspace, FINAL, 0, &error), &error);
    call.site = FINAL;
    passes(arf_trial_poison(b.trial, &error), &error);
    passes(arfuse_consume(b.workspace, ticket, &call, arf_trial_operands(b.trial), &error), &error);
    passes(arf_trial_check(b.trial, ARF_FINALIZE, 5, &error), &error);
    assert_int_equal(counters_of(&b, FINAL).declined, 1);
    close_bench(&b, ARFUSE_OK);
}

static void the_histogram_is_what_the_tuner_reads(void **state)
{
    (void)state;
    /* Buckets: exact below 4096, then never off by 1/64, ascending, without a gap. */
    for (int64_t tokens = 0; tokens < 5000; tokens++)
        assert_true(tokens >= 4096 || arf_bucket_tokens(arf_bucket_of(tokens)) == tokens);
    int last = 0;
    for (int64_t tokens = 0; tokens <= ARF_MAX_TOKENS; tokens++) {
        const int bucket = arf_bucket_of(tokens);
        const int64_t least = arf_bucket_tokens(bucket);
        assert_true(bucket == last || bucket == last + 1);
        assert_true(bucket < ARF_BUCKETS && least <= tokens && (tokens - least) * 64 <= least);
        last = bucket;
    }
    assert_int_equal(last, ARF_BUCKETS - 1);

    bench b = open_bench(&shape, 4);
    arf_error error = ARF_ERROR_INIT;
    for (int i = 0; i < 9; i++) {
        arfuse_call call = case_call_of(b.trial, i < 5 ? 7 : 130);
        call.site = i % 2 ? MOE : ARFUSE_SITE_NONE;
        passes(case_run(b.workspace, b.trial, ARFUSE_FINALIZE, call, &error), &error);
    }
    char path[256];
    case_write("", path);
    passes(arfuse_write_histogram(b.workspace, path, &error), &error);
    FILE *file = fopen(path, "r");
    char text[512] = {0};
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_string_equal(text, "site,tokens,count\n-,7,3\n-,130,2\nmoe_out,7,2\nmoe_out,130,2\n");
    arf_weights weights;
    passes(arf_weights_load(path, &weights, &error), &error);
    assert_int_equal(weights.count, 2);
    assert_int_equal(weights.tokens[0], 7);
    assert_int_equal(weights.tokens[1], 130);
    assert_true(weights.weight[0] * 4 == weights.weight[1] * 5);
    arf_weights_free(&weights);
    case_remove(path);
    assert_int_equal(arfuse_write_histogram(b.workspace, "/nonexistent/h.csv", &error),
                     ARFUSE_FAILURE);
    close_bench(&b, ARFUSE_OK);
}

/* A rename over a device node, as root, would cost the machine its /dev/null. */
static void a_histogram_replaces_regular_files_alone(void **state)
{
    (void)state;
    static const char text[] = "site,tokens,count\n";
    bench b = open_bench(&shape, 4);
    arf_error error = ARF_ERROR_INIT;
    struct stat about;
    char regular[256], path[272];
    case_write("mine\n", regular);
    snprintf(path, sizeof path, "%s.other", regular);

    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(arfuse_write_histogram(b.workspace, path, &error), ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, ".other: is not a regular file, expected"));
    assert_true(lstat(path, &about) == 0 && S_ISFIFO(about.st_mode));
    unlink(path);

    const char *const targets[] = {regular, "nowhere"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(symlink(targets[i], path), 0);
        assert_int_equal(arfuse_write_histogram(b.workspace, path, &error), ARFUSE_FAILURE);
        assert_non_null(strstr(error.text, ".other: is a link, expected"));
        assert_true(lstat(path, &about) == 0 && S_ISLNK(about.st_mode));
        unlink(path);
    }
    assert_true(stat(regular, &about) == 0 && about.st_size == (off_t)strlen("mine\n"));
    passes(arfuse_write_histogram(b.workspace, regular, &error), &error);
    assert_true(stat(regular, &about) == 0 && about.st_size == (off_t)strlen(text));
    case_remove(regular);
    close_bench(&b, ARFUSE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_consumed_value_has_the_bits_of_the_call),
        cmocka_unit_test(a_ticket_is_consumed_exactly_once),
        cmocka_unit_test(a_dropped_one_is_found),
        cmocka_unit_test(materialising_gives_the_sum_alone),
        cmocka_unit_test(materialising_in_place_works_by_every_route),
        cmocka_unit_test(a_site_that_is_off_declines_and_still_reduces),
        cmocka_unit_test(the_histogram_is_what_the_tuner_reads),
        cmocka_unit_test(a_histogram_replaces_regular_files_alone),
    };
    return cmocka_run_group_tests_name("runtime_deferred", tests, NULL, NULL);
}
