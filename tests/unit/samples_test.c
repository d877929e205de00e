/* SPDX-License-Identifier: Apache-2.0 */
/* The samples file: lines that come back equal, what is refused, what a killed writer leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "profile/samples.h"
#include "rules/knobs.h"
#include "support/scratch.h"

static arf_samples_header host_header(void)
{
    arf_samples_header header = {
        .set = ARF_SET_HOST,
        .shape = {8, 6144, 10, ARF_ON, ARF_ON, ARF_ON},
        .device = {.name = "host", .link = ARF_LINK_SHM, .nodes = 1, .ranks_per_gpu = 1},
        .policy = ARF_WARM,
        .seed = 9007199254740991u,
        .tool = "arfuse-tune 0.1.0",
        .library = "NCCL 2.28.9, NCCL_PROTO=\"LL\""};
    for (int i = 0; i < ARF_PROTOCOLS; i++)
        header.version[i] = arf_protocol_version(header.set, (arf_protocol)i);
    return header;
}

static arf_plan plan_of(arf_protocol protocol, arf_pattern pattern)
{
    arf_plan plan = {.protocol = protocol};
    plan.tuning = arf_tuning_fallback(arf_knobs(ARF_SET_HOST, protocol, pattern));
    return plan;
}

static double times[] = {4.25, 4.0, 5.123456789, 3.9999};

static arf_sample timed(arf_protocol protocol, int64_t tokens)
{
    return (arf_sample){.pattern = ARF_ALLREDUCE,
                        .tokens = tokens,
                        .plan = plan_of(protocol, ARF_ALLREDUCE),
                        .calls = 100,
                        .rounds = 4,
                        .us = times};
}

static arf_samples *whole(void)
{
    arf_samples_header header = host_header();
    arf_samples *samples = arf_samples_new(&header);
    arf_sample sample = timed(ARF_LL, 1);
    assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
    sample = (arf_sample){.pattern = ARF_FINALIZE,
                          .tokens = 64,
                          .plan = plan_of(ARF_SEPARATE, ARF_FINALIZE),
                          .has_then = true,
                          .then = plan_of(ARF_BT, ARF_ALLREDUCE),
                          .calls = 20,
                          .clock_mhz = 1755,
                          .throttle = "power",
                          .rounds = 1,
                          .us = times};
    assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
    sample = (arf_sample){.pattern = ARF_FINALIZE,
                          .tokens = 64,
                          .plan = plan_of(ARF_LL, 1),
                          .outcome = ARF_SAMPLE_WRONG,
                          .reason = "rank 3: \"norm_out\"\ntoken 1"};
    assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
    sample.plan.protocol = ARF_UNFUSED;
    sample.outcome = ARF_SAMPLE_FAILED;
    sample.plan = plan_of(ARF_UNFUSED, ARF_FINALIZE);
    assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
    return samples;
}

static char *text_of(const arf_samples *samples)
{
    arf_text text = {0};
    char *line = NULL;
    assert_int_equal(arf_samples_header_line(&samples->header, &line, NULL), ARFUSE_OK);
    for (int i = 0;; i++) {
        arf_text_add(&text, "%s\n", line);
        free(line);
        if (i == samples->count)
            break;
        assert_int_equal(arf_sample_line(&samples->header, &samples->sample[i], &line, NULL),
                         ARFUSE_OK);
    }
    return text.data;
}

static arfuse_status parse(const char *text, arf_samples **samples, bool *truncated,
                           arf_error *error)
{
    size_t bytes = strlen(text);
    char *copy = malloc(bytes + 1); /* exact, so that the sanitizer sees a read behind it */
    memcpy(copy, text, bytes);
    arfuse_status status = arf_samples_parse("s", copy, bytes, samples, truncated, error);
    free(copy);
    return status;
}

static void samples_come_back_equal(void **state)
{
    (void)state;
    arf_samples *samples = whole(), *back = NULL;
    char *text = text_of(samples);
    bool truncated = true;
    arf_error error = ARF_ERROR_INIT;
    if (parse(text, &back, &truncated, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    assert_false(truncated);
    assert_int_equal(back->count, samples->count);
    assert_true(back->header.seed == 9007199254740991u);
    assert_string_equal(back->header.library, samples->header.library);
    for (int i = 0; i < back->count; i++) {
        const arf_sample *a = &back->sample[i], *b = &samples->sample[i];
        assert_int_equal(a->outcome, b->outcome);
        assert_int_equal(a->rounds, b->rounds);
        assert_string_equal(a->reason, b->reason);
        for (int j = 0; j < a->rounds; j++)
            assert_true(a->us[j] == b->us[j]); /* to the bit: a fit from either is the same */
        assert_ptr_equal(arf_samples_find(back, b->pattern, b->tokens, &b->plan), a);
    }
    char *again = text_of(back);
    assert_string_equal(again, text);
    free(again);
    free(text);
    arf_samples_free(samples);
    arf_samples_free(back);
}

static void the_median_is_of_timed_samples(void **state)
{
    (void)state;
    arf_sample sample = timed(ARF_LL, 1);
    assert_true(arf_sample_median(&sample) == (4.0 + 4.25) / 2);
    sample.rounds = 3;
    assert_true(arf_sample_median(&sample) == 4.25);
    sample.outcome = ARF_SAMPLE_FAILED;
    assert_true(isnan(arf_sample_median(&sample)));
}

static void a_later_measurement_replaces_an_earlier(void **state)
{
    (void)state;
    arf_samples *samples = whole();
    int count = samples->count;
    double later[] = {7.0};
    arf_sample sample = timed(ARF_LL, 1);
    sample.us = later;
    sample.rounds = 1;
    assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
    assert_int_equal(samples->count, count);
    assert_true(arf_sample_median(&samples->sample[0]) == 7.0);
    sample.tokens = 2;
    assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
    assert_int_equal(samples->count, count + 1);
    sample.plan.tuning.value[0]++;
    assert_null(arf_samples_find(samples, ARF_ALLREDUCE, 2, &sample.plan));
    arf_samples_free(samples);
}

static void a_cut_last_line_is_dropped(void **state)
{
    (void)state;
    arf_samples *samples = whole(), *back = NULL;
    char *text = text_of(samples);
    size_t bytes = strlen(text), header = strcspn(text, "\n") + 1;
    bool truncated;
    for (size_t cut = header; cut <= bytes; cut++) {
        bool at_line = text[cut - 1] == '\n';
        assert_int_equal(arf_samples_parse("s", text, cut, &back, &truncated, NULL), ARFUSE_OK);
        assert_int_equal(truncated, !at_line);
        assert_true(back->count <= samples->count);
        arf_samples_free(back);
    }
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_samples_parse("s", text, header - 1, &back, &truncated, &error),
                     ARFUSE_PROFILE);
    assert_string_equal(error.text, "s: no whole line, expected a header");
    free(text);
    arf_samples_free(samples);
}

/* The text with the first `old` replaced is refused in these words. */
static void refused(const char *text, const char *old, const char *new_text, const char *message)
{
    const char *at = strstr(text, old);
    assert_non_null(at);
    arf_text changed = {0};
    arf_text_add(&changed, "%.*s%s%s", (int)(at - text), text, new_text, at + strlen(old));
    arf_samples *back = NULL;
    bool truncated;
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = parse(changed.data, &back, &truncated, &error);
    if (status != ARFUSE_PROFILE || strcmp(error.text, message) != 0)
        fail_msg("%s for %s: status %d: %s\n   expected: %s", new_text, old, status, error.text,
                 message);
    assert_null(back);
    arf_text_free(&changed);
}

static void bad_lines_are_refused_with_their_number(void **state)
{
    (void)state;
    arf_samples *samples = whole();
    char *text = text_of(samples);
    refused(text, "arfuse-samples", "arfuse-profile",
            "s: line 1: $.format: \"arfuse-profile\", expected arfuse-samples");
    refused(text, "\"version\": 1", "\"version\": 2",
            "s: line 1: $.version: 2, expected an integer from 1 to 1");
    refused(text, "\"warm\"", "\"hot\"", "s: line 1: $.policy: \"hot\", expected warm or decode");
    refused(text, "\"seed\"", "\"need\"",
            "s: line 1: $: unknown member \"need\", expected only format, version, kernels, shape, "
            "device, policy, seed, tool, driver, source_digest, library");
    refused(text, "9007199254740991", "9007199254740992",
            "s: line 1, column 422: 9007199254740992, expected an integer of at most "
            "2^53 - 1 (a larger one is not exact; write it as a string)");
    refused(text, "\"tokens\": 1,", "\"tokens\": 0,",
            "s: line 2: $.tokens: 0, expected an integer from 1 to 1048576");
    refused(text, "4.25", "-4.25", "s: line 2: $.us[0]: -4.25, expected a number from 0 to 1e+09");
    refused(text, "4.25", "NaN", "s: line 2, column 153: 'N', expected a value or ']'");
    refused(text, "4.25", "null", "s: line 2: $.us[0]: null, expected a number from 0 to 1e+09");
    refused(text, "[4.25, 4, 5.1235, 3.9999]", "[]", "s: line 2: $.us: 0 times, expected 1 to 256");
    refused(text, "\"pack_step\": 32", "\"pack_step\": 0",
            "s: line 2: $.tuning.pack_step: 0, expected an integer from 1 to 8192");
    refused(text, "\"then\"", "\"them\"",
            "s: line 3: $: unknown member \"them\", expected only pattern, tokens, protocol, "
            "finalize, transport, numerics, tuning, then, outcome, reason, calls, clock_mhz, "
            "throttle, us");
    refused(text, "\"clock_mhz\": 1755", "\"clock_mhz\": 0",
            "s: line 3: $.clock_mhz: 0, expected an integer from 1 to 100000");
    refused(text, "\"power\"", "[]", "s: line 3: $.throttle: an array, expected a string");
    refused(text, "\"outcome\": \"wrong\"", "\"outcome\": \"odd\"",
            "s: line 4: $.outcome: \"odd\", expected wrong or failed");
    refused(text, "\"us\": [] }\n", "\"us\": [1] }\n",
            "s: line 4: $.us: 1 times, expected none (it was not timed)");
    refused(text, "\n{ \"pattern\"", "\n\n{ \"pattern\"",
            "s: line 2, column 1: the text is empty, expected a JSON document");
    free(text);
    arf_samples_free(samples);
}

/* ---- the file -------------------------------------------------------------------------------- */

static char folder[SCRATCH_PATH], path[2 * SCRATCH_PATH];

static int make(void **state)
{
    (void)state;
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/samples.jsonl", folder);
    return arf_write_file(path, "", 0, NULL) == ARFUSE_OK ? 0 : 1;
}

static int clean(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

static int count_in_file(bool *truncated)
{
    arf_samples *samples = NULL;
    arf_error error = ARF_ERROR_INIT;
    if (arf_samples_load(path, &samples, truncated, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    int count = samples->count;
    arf_samples_free(samples);
    return count;
}

static arf_samples_writer *open_file(const arf_samples_header *header, bool resume)
{
    arf_samples_writer *writer = NULL;
    arf_error error = ARF_ERROR_INIT;
    if (arf_samples_open(path, header, resume, &writer, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return writer;
}

static void append(arf_samples_writer *writer, int64_t tokens)
{
    arf_sample sample = timed(ARF_LL, tokens);
    arf_error error = ARF_ERROR_INIT;
    if (arf_samples_append(writer, &sample, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
}

static void a_killed_writer_is_resumed(void **state)
{
    (void)state;
    bool truncated;
    arf_samples_header header = host_header();
    arf_samples_writer *writer = open_file(&header, true); /* empty: begins with a header */
    append(writer, 1);
    append(writer, 2);
    assert_int_equal(count_in_file(&truncated), 2); /* on disk while still open */
    arf_samples_close(writer);
    int file = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(write(file, "{ \"pattern\": \"all", 17), 17);
    close(file);
    assert_int_equal(count_in_file(&truncated), 2);
    assert_true(truncated);
    writer = open_file(&header, true);
    append(writer, 3);
    arf_samples_close(writer);
    assert_int_equal(count_in_file(&truncated), 3);
    assert_false(truncated);
    /* A header that was cut is written anew. */
    assert_int_equal(truncate(path, 40), 0);
    writer = open_file(&header, true);
    append(writer, 4);
    arf_samples_close(writer);
    assert_int_equal(count_in_file(&truncated), 1);
}

/* Samples of a run before stay, whole, until those of this run take their place. */
static void a_rerun_leaves_the_old_samples(void **state)
{
    (void)state;
    bool truncated;
    arf_error error = ARF_ERROR_INIT;
    arf_samples_header header = host_header();
    arf_samples_writer *writer = open_file(&header, false); /* nothing to keep: in its place */
    assert_string_equal(arf_samples_place(writer), path);
    append(writer, 1);
    append(writer, 2);
    arf_samples_close(writer);
    writer = open_file(&header, false);
    assert_non_null(strstr(arf_samples_place(writer), ".jsonl.new"));
    append(writer, 1);
    arf_samples_close(writer); /* killed: both are there, and this one is resumed */
    assert_int_equal(count_in_file(&truncated), 2);
    writer = open_file(&header, true);
    assert_non_null(strstr(arf_samples_place(writer), ".jsonl.new"));
    append(writer, 4);
    append(writer, 8);
    /* Both files are locked against another tuner, whatever it wants. */
    for (int resume = 0; resume < 2; resume++) {
        arf_samples_writer *mine = NULL;
        assert_int_equal(arf_samples_open(path, &header, resume, &mine, &error), ARFUSE_FAILURE);
        assert_non_null(strstr(error.text, "another tuner is writing it"));
        arf_error_clear(&error);
    }
    assert_int_equal(count_in_file(&truncated), 2);
    assert_int_equal(arf_samples_keep(writer, &error), ARFUSE_OK);
    assert_string_equal(arf_samples_place(writer), path);
    assert_int_equal(count_in_file(&truncated), 3);
    append(writer, 16);
    arf_samples_close(writer);
    assert_int_equal(count_in_file(&truncated), 4);
    writer = open_file(&header, true);
    assert_string_equal(arf_samples_place(writer), path);
    arf_samples_close(writer);
    unlink(path);
}

/* What an interrupted run measured is told, and stays until there is something in its place. */
static void an_interrupted_rerun_stays_until_the_next_measures(void **state)
{
    (void)state;
    bool truncated;
    arf_error error = ARF_ERROR_INIT;
    arf_samples_header header = host_header();
    char whole[sizeof path];
    memcpy(whole, path, sizeof path);
    arf_samples_writer *writer = open_file(&header, false);
    append(writer, 1);
    arf_samples_close(writer);
    writer = open_file(&header, false);
    assert_int_equal(arf_samples_discards(writer), 0);
    append(writer, 1);
    append(writer, 2);
    arf_samples_close(writer); /* interrupted */
    writer = open_file(&header, true);
    assert_int_equal(arf_samples_discards(writer), 0);
    arf_samples_close(writer);
    writer = open_file(&header, false);
    assert_int_equal(arf_samples_discards(writer), 2);
    arf_samples_close(writer); /* ended before it measured anything */
    strcat(path, ".new");
    assert_int_equal(count_in_file(&truncated), 2);
    memcpy(path, whole, sizeof path);
    writer = open_file(&header, false);
    append(writer, 8);
    assert_int_equal(arf_samples_discards(writer), 0);
    assert_int_equal(arf_samples_keep(writer, &error), ARFUSE_OK);
    arf_samples_close(writer);
    assert_int_equal(count_in_file(&truncated), 1);
    assert_false(truncated);
    unlink(path);
}

static void what_holds_no_samples_is_not_replaced(void **state)
{
    (void)state;
    static const char *const text[] = {"mine", "mine\n", "{ \"format\": \"other\" }\n"};
    for (int i = 0; i < 6; i++) {
        arf_samples_header header = host_header();
        arf_samples_writer *writer = NULL;
        arf_error error = ARF_ERROR_INIT;
        FILE *file = fopen(path, "w");
        fputs(text[i / 2], file);
        fclose(file);
        assert_int_equal(arf_samples_judge(path, &header, i % 2, &error), ARFUSE_PROFILE);
        arf_error_clear(&error);
        assert_int_equal(arf_samples_open(path, &header, i % 2, &writer, &error), ARFUSE_PROFILE);
        assert_non_null(strstr(error.text, "move it away"));
        struct stat about;
        assert_int_equal(stat(path, &about), 0);
        assert_int_equal(about.st_size, strlen(text[i / 2]));
    }
    unlink(path);
}

static void other_conditions_are_not_resumed(void **state)
{
    (void)state;
    bool truncated;
    arf_samples_header header = host_header(), other = header;
    arf_samples_writer *writer = open_file(&header, false);
    append(writer, 1);
    arf_samples_close(writer);
    arf_error error = ARF_ERROR_INIT;
    other.shape.top_k = 8;
    assert_int_equal(arf_samples_open(path, &other, true, &writer, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "holds samples of another shape or device"));
    other = header;
    arf_error_clear(&error);
    other.shape.top_k = 8;
    assert_int_equal(arf_samples_open(path, &other, false, &writer, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "is not replaced"));
    other = header;
    other.policy = ARF_DECODE;
    arf_error_clear(&error);
    assert_int_equal(arf_samples_open(path, &other, true, &writer, &error), ARFUSE_PROFILE);
    assert_non_null(strstr(error.text, "another policy"));
    assert_int_equal(count_in_file(&truncated), 1); /* and nothing was lost */
    other = header;
    other.seed = UINT64_MAX;
    arf_error_clear(&error);
    assert_int_equal(arf_samples_open(path, &other, false, &writer, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "seed 18446744073709551615, expected at most 2^53 - 1"));
}

static void a_second_writer_is_refused(void **state)
{
    (void)state;
    arf_samples_header header = host_header();
    arf_samples_writer *writer = open_file(&header, false);
    append(writer, 1);
    pid_t other = fork();
    if (other == 0) {
        arf_samples_writer *mine = NULL;
        arf_error error = ARF_ERROR_INIT;
        arfuse_status status = arf_samples_open(path, &header, false, &mine, &error);
        _exit(status == ARFUSE_FAILURE && strstr(error.text, "another tuner is writing it") ? 0
                                                                                            : 1);
    }
    int status;
    waitpid(other, &status, 0);
    assert_int_equal(status, 0);
    bool truncated;
    assert_int_equal(count_in_file(&truncated), 1); /* the loser emptied nothing */
    arf_samples_close(writer);
}

static void a_full_file_says_so(void **state)
{
    (void)state;
    arf_samples_header header = host_header();
    arf_samples_writer *writer = open_file(&header, false);
    arf_error error = ARF_ERROR_INIT;
    double many[ARF_MAX_ROUNDS];
    for (int i = 0; i < ARF_MAX_ROUNDS; i++)
        many[i] = 123456.7891;
    arf_sample sample = timed(ARF_LL, 1);
    sample.us = many;
    sample.rounds = ARF_MAX_ROUNDS;
    arfuse_status status = ARFUSE_OK;
    for (sample.tokens = 1; status == ARFUSE_OK && sample.tokens < 10000; sample.tokens++)
        status = arf_samples_append(writer, &sample, &error);
    arf_samples_close(writer);
    assert_int_equal(status, ARFUSE_FAILURE);
    assert_non_null(strstr(error.text, "full: another line would pass the limit of 2097152 bytes"));
    bool truncated;
    assert_true(count_in_file(&truncated) > 500);
    assert_false(truncated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_come_back_equal),
        cmocka_unit_test(the_median_is_of_timed_samples),
        cmocka_unit_test(a_later_measurement_replaces_an_earlier),
        cmocka_unit_test(a_cut_last_line_is_dropped),
        cmocka_unit_test(bad_lines_are_refused_with_their_number),
        cmocka_unit_test_setup_teardown(a_killed_writer_is_resumed, make, clean),
        cmocka_unit_test_setup_teardown(other_conditions_are_not_resumed, make, clean),
        cmocka_unit_test_setup_teardown(a_rerun_leaves_the_old_samples, make, clean),
        cmocka_unit_test_setup_teardown(an_interrupted_rerun_stays_until_the_next_measures, make,
                                        clean),
        cmocka_unit_test_setup_teardown(what_holds_no_samples_is_not_replaced, make, clean),
        cmocka_unit_test_setup_teardown(a_second_writer_is_refused, make, clean),
        cmocka_unit_test_setup_teardown(a_full_file_says_so, make, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
