/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of arfuse-tune. Parsed before MPI starts, from one table (options.c), into plain
 * values. Nothing here prints but arf_options_help and arf_options_version.
 */
#ifndef ARF_TUNE_OPTIONS_H
#define ARF_TUNE_OPTIONS_H

#include <stdio.h>

#include "rules/words.h"
#include "tune/tokens.h"

/* What the program was asked to do. */
typedef enum arf_task {
    ARF_TASK_TUNE,
    ARF_TASK_HELP,
    ARF_TASK_VERSION,
    ARF_TASK_DRY_RUN,
    ARF_TASK_PROBE,
    ARF_TASK_CHECK,
    ARF_TASK_AB
} arf_task;

typedef enum arf_format {
    ARF_FORMAT_TABLE,
    ARF_FORMAT_CSV,
    ARF_FORMAT_JSONL,
    ARF_FORMAT_MARKDOWN
} arf_format;

/* --set PROTOCOL[.PATTERN].KNOB=VALUE: keep only candidates whose knob has this value. The knob's
 * name is judged when the kernel set is known (schedule.c). */
typedef struct arf_pin {
    arf_protocol protocol;
    bool pattern[ARF_PATTERNS];
    char knob[64];
    int32_t value;
} arf_pin;

#define ARF_MAX_SHAPE_LIST 16 /* values of --hidden or --topk */
#define ARF_MAX_PINS 32

/* Strings point into argv, which lives as long as the program. */
typedef struct arf_tune_options {
    arf_task task;
    char command[1024]; /* the command line without --tp, for messages that suggest another one */

    int hidden_count, hidden[ARF_MAX_SHAPE_LIST];
    int topk_count, topk[ARF_MAX_SHAPE_LIST]; /* count 0: a dense model, allreduce only */
    int tp_size;                              /* 0: as many ranks as processes */
    arf_switch rms_norm, residual, shared_expert;

    arf_tokens tokens; /* count 0: the device's own ladder */
    bool pattern[ARF_PATTERNS];
    bool protocol[ARF_PROTOCOLS];
    bool protocol_filter; /* --protocols was given: nothing races unasked */
    int pins;
    arf_pin pin[ARF_MAX_PINS];
    bool any_numerics; /* --numerics any */

    const char *device;
    bool gpu_sharing, multicast;
    double wait_limit_seconds;

    double budget_seconds; /* 0: the device's own */
    double noise_aim;      /* relative half-width of a median's interval */
    arf_policy policy;
    uint64_t seed;
    const char *weights;

    const char *output;
    bool resume, strict, quiet, verbose;
    const char *base;
    arf_format format;

    const char *check;
    double max_regret; /* of --check; 0.05 unless given */
    char ab[2][4096];  /* two of: a profile's path, "default", "unfused" */
} arf_tune_options;

/*
 * ARFUSE_USAGE with one message that names option, value and what was expected; *options is then
 * unspecified. Reads no file and no environment.
 */
arfuse_status arf_options_parse(int argc, char **argv, arf_tune_options *options, arf_error *error);

/* The help text, from the same table. */
void arf_options_help(FILE *stream);
void arf_options_version(FILE *stream);

/* Digest of all that must be equal on every rank before they work together. */
uint64_t arf_options_digest(const arf_tune_options *options);

#endif
