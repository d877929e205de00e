/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static arf_tune_options options;
static arf_error error;

/* Parses the words of `line`, which are separated by single spaces. */
static arfuse_status parse(const char *line)
{
    static char copy[4096];
    char *argv[64] = {(char[]){"arfuse-tune"}};
    int argc = 1;
    strcpy(copy, line);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    arf_error_clear(&error);
    return arf_options_parse(argc, argv, &options, &error);
}

static void test_defaults(void **state)
{
    (void)state;
    assert_int_equal(parse("--hidden 6144 --topk 10"), ARFUSE_OK);
    assert_int_equal(options.task, ARF_TASK_TUNE);
    assert_int_equal(options.hidden_count, 1);
    assert_int_equal(options.hidden[0], 6144);
    assert_int_equal(options.topk[0], 10);
    assert_int_equal(options.tp_size, 0);
    assert_int_equal(options.tokens.count, 0);
    assert_int_equal(options.rms_norm, ARF_ON);
    assert_int_equal(options.residual, ARF_ON);
    assert_int_equal(options.shared_expert, ARF_ON);
    assert_string_equal(options.device, "auto");
    assert_string_equal(options.output, "profiles");
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        assert_true(options.protocol[p]);
}

static void test_values(void **state)
{
    (void)state;
    assert_int_equal(parse("--hidden=6144,7168 --topk 10,8 --tp 8 --tokens 1-8*2,6 --pattern "
                           "allreduce --protocols ll,bt --set ll.allreduce.threads=128 --set "
                           "bt.owner=true --device model:x.json --budget 1.5 --noise 0.5 --policy "
                           "decode --numerics any --format jsonl --no-norm --seed 7 --strict"),
                     ARFUSE_OK);
    assert_int_equal(options.hidden[1], 7168);
    assert_int_equal(options.topk[1], 8);
    assert_int_equal(options.tp_size, 8);
    assert_int_equal(options.tokens.count, 5);
    assert_false(options.pattern[ARF_FINALIZE]);
    assert_true(options.protocol[ARF_BT]);
    assert_false(options.protocol[ARF_UNFUSED]);
    assert_int_equal(options.pins, 2);
    assert_int_equal(options.pin[0].protocol, ARF_LL);
    assert_false(options.pin[0].pattern[ARF_FINALIZE]);
    assert_string_equal(options.pin[0].knob, "threads");
    assert_int_equal(options.pin[0].value, 128);
    assert_true(options.pin[1].pattern[ARF_FINALIZE]);
    assert_int_equal(options.pin[1].value, 1);
    assert_float_equal(options.budget_seconds, 1.5, 0);
    assert_float_equal(options.noise_aim, 0.005, 1e-7);
    assert_int_equal(options.policy, ARF_DECODE);
    assert_true(options.any_numerics);
    assert_int_equal(options.format, ARF_FORMAT_JSONL);
    assert_int_equal(options.rms_norm, ARF_OFF);
}

static void test_protocols_left_out(void **state)
{
    (void)state;
    assert_int_equal(parse("--hidden 8 --protocols ^ht,^separate"), ARFUSE_OK);
    assert_true(options.protocol[ARF_LL]);
    assert_true(options.protocol[ARF_UNFUSED]);
    assert_false(options.protocol[ARF_HT]);
    assert_false(options.protocol[ARF_SEPARATE]);
}

static void test_tasks(void **state)
{
    (void)state;
    assert_int_equal(parse("--help"), ARFUSE_OK);
    assert_int_equal(options.task, ARF_TASK_HELP);
    assert_int_equal(parse("--hidden 8 --version --nope"), ARFUSE_OK);
    assert_int_equal(options.task, ARF_TASK_VERSION);
    assert_int_equal(parse("--probe"), ARFUSE_OK);
    assert_int_equal(options.task, ARF_TASK_PROBE);
    assert_int_equal(parse("--check p.json --max-regret 0.1"), ARFUSE_OK);
    assert_string_equal(options.check, "p.json");
    assert_int_equal(parse("--hidden 8 --ab p.json,default"), ARFUSE_OK);
    assert_string_equal(options.ab[0], "p.json");
    assert_string_equal(options.ab[1], "default");
}

/* Each with the word that the message must hold. */
static void test_refusals(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "--hidden"},
        {"--hidden 0", "'0'"},
        {"--hidden 6143", "multiples of 8"},
        {"--hidden abc", "'abc'"},
        {"--hidden 6k", "'6k'"},
        {"--hidden 6144x", "'6144x'"},
        {"--hidden -1", "'-1'"},
        {"--hidden 65544", "65536"},
        {"--hidden 6144,", "'6144,'"},
        {"--hidden 8,8", "once"},
        {"--hidden 8 --topk -1", "'-1'"},
        {"--hidden 8 --topk 0", "1 to 64"},
        {"--hidden 8 --topk 65", "1 to 64"},
        {"--hidden 8 --tp 0", "--tp"},
        {"--hidden 8 --tp 73", "1 to 72"},
        {"--hidden 8 --tokens 64:1", "--tokens"},
        {"--hidden 8 --tokens 1,,2", "empty"},
        {"--hidden 8 --tokens 1e3", "'1e3'"},
        {"--hidden 8 --tokens 64-1", "below its start"},
        {"--hidden 8 --protocols nope", "'nope'"},
        {"--hidden 8 --protocols ll,^bt", "ll,^bt"},
        {"--hidden 8 --protocols ^ll,^bt,^ht,^unfused,^separate", "at least one"},
        {"--hidden 8 --pattern finalize", "--topk"},
        {"--hidden 8 --pattern both", "'both'"},
        {"--hidden 8 --device gpu", "'gpu'"},
        {"--hidden 8 --device model:", "'model:'"},
        {"--hidden 8 --budget 0", "--budget"},
        {"--hidden 8 --budget inf", "'inf'"},
        {"--hidden 8 --budget 0x10", "'0x10'"},
        {"--hidden 8 --budget 1e9", "'1e9'"},
        {"--hidden 8 --topk 2,2", "once"},
        {"--hidden 8 --tokens 1,1,1", "twice"},
        {"--hidden 8 --tokens 1-8,2,1-8", "twice"},
        {"--hidden 8 --protocols ll,ll", "once"},
        {"--hidden 8 --protocols ^ll,^ll", "once"},
        {"--hidden 8 --pattern allreduce,allreduce", "once"},
        {"--hidden 8 --set ll.threads=32 --set ll.threads=64", "pinned for allreduce already"},
        {"--hidden 8 --set ll.threads=32 --set ll.finalize.threads=64", "for finalize already"},
        {"--hidden 8 --format xml", "'xml'"},
        {"--hidden 8 --policy cold", "'cold'"},
        {"--hidden 8 --numerics fast", "'fast'"},
        {"--hidden 8 --set ll", "PROTOCOL.KNOB"},
        {"--hidden 8 --set zz.threads=1", "PROTOCOL.KNOB"},
        {"--hidden 8 --set ll.threads=-1", "PROTOCOL.KNOB"},
        {"--hidden 8 --hidden 16", "twice"},
        {"--hidden 8 --hiden 16", "--hidden"},
        {"--hidden 8 --frobnicate", "--frobnicate"},
        {"--hidden 8 --resume=1", "no value"},
        {"--hidden", "needs a value"},
        {"--hidden 8 -x", "-x"},
        {"--hidden 8 stray", "stray"},
        {"--hidden 8 --dry-run --probe", "only one"},
        {"--hidden 8 --ab a", "A,B"},
        {"--hidden 8 --ab a,a", "different"},
        {"--hidden 8 --max-regret 0.1", "--check"},
        {"--hidden 8 --quiet --verbose", "exclude"},
        {"--hidden 8 --resume --base f", "exclude"},
        {"--check f --hidden 8", "no meaning for --check"},
        {"--check f --resume", "no meaning for --check"},
        {"--probe --budget 1", "no meaning for --probe"},
        {"--probe --format csv", "--format table or jsonl"},
        {"--probe --format md", "--format table or jsonl"},
        {"--hidden 8 --ab f,default --protocols ll", "no meaning for --ab"},
        {"--ab default,unfused", "--hidden"},
        {"--hidden 8,16 --ab f,default", "one shape"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (parse(bad[i][0]) != ARFUSE_USAGE)
            fail_msg("'%s' was taken", bad[i][0]);
        if (strstr(error.text, bad[i][1]) == NULL)
            fail_msg("'%s': '%s' does not name %s", bad[i][0], error.text, bad[i][1]);
    }
}

static void test_digest_sees_every_choice(void **state)
{
    (void)state;
    static const char *const line[] = {
        "--hidden 8",
        "--hidden 16",
        "--hidden 8,16",
        "--hidden 8 --topk 1",
        "--hidden 8 --tp 2",
        "--hidden 8 --no-norm",
        "--hidden 8 --no-residual",
        "--hidden 8 --no-shared-expert",
        "--hidden 8 --tokens 1",
        "--hidden 8 --pattern allreduce",
        "--hidden 8 --protocols ll",
        "--hidden 8 --set ll.threads=1",
        "--hidden 8 --set ll.threads=2",
        "--hidden 8 --set ll.allreduce.threads=1",
        "--hidden 8 --numerics any",
        "--hidden 8 --device host",
        "--hidden 8 --gpu-sharing",
        "--hidden 8 --multicast on",
        "--hidden 8 --wait-limit 1",
        "--hidden 8 --budget 1",
        "--hidden 8 --noise 2",
        "--hidden 8 --policy decode",
        "--hidden 8 --seed 2",
        "--hidden 8 --resume",
        "--hidden 8 --base f",
        "--hidden 8 --weights f",
        "--hidden 8 --strict",
        "--hidden 8 --format csv",
        "--hidden 8 --dry-run",
        "--hidden 8 --ab a,b",
        "--hidden 8 --ab a,c",
    };
    enum { LINES = sizeof line / sizeof *line };
    uint64_t digest[LINES];
    for (int i = 0; i < LINES; i++) {
        assert_int_equal(parse(line[i]), ARFUSE_OK);
        digest[i] = arf_options_digest(&options);
        for (int j = 0; j < i; j++)
            if (digest[i] == digest[j])
                fail_msg("'%s' and '%s' look equal", line[i], line[j]);
        assert_int_equal(parse(line[i]), ARFUSE_OK);
        assert_true(arf_options_digest(&options) == digest[i]);
    }
}

static void test_help_names_every_option(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    arf_options_help(stream);
    fclose(stream);
    static const char *const name[] = {
        "--hidden",      "--topk",    "--tp=R",   "--tokens", "--pattern", "--protocols",
        "--set",         "--device",  "--output", "--resume", "--base",    "--dry-run",
        "--probe",       "--check",   "--ab",     "--budget", "--format",  "--no-norm",
        "--gpu-sharing", "--weights", "--policy", "--strict", "--quiet",   "--numerics"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (strstr(text, name[i]) == NULL)
            fail_msg("no %s in the help", name[i]);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_protocols_left_out),
        cmocka_unit_test(test_tasks),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_digest_sees_every_choice),
        cmocka_unit_test(test_help_names_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
