/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of the program, each over the shapes that the options name. */
#ifndef ARF_TUNE_JOB_H
#define ARF_TUNE_JOB_H

#include "tune/tuner.h"

/* Exit codes beside those of arfuse_status (design section 9). */
enum {
    ARF_EXIT_NOISE = 7,  /* the noise aim was missed, under --strict */
    ARF_EXIT_REGRET = 8, /* a profile under --check loses more than --max-regret */
    ARF_EXIT_PARTIAL = 9 /* a profile was written though some candidates failed to run */
};

/* The exit code of a status; those that the runtime has beside them are plain failures. */
int arf_exit_code(arfuse_status status);

/*
 * Tunes every shape and writes its profile. Collective; on ARFUSE_OK *code is the exit code (0, 5,
 * 7 or 9), equal on all ranks.
 */
arfuse_status arf_tune(arf_tuner *tuner, int *code, arf_error *error);

/* The shapes of the options, in order: every hidden size with every top-k. Count, or the i-th. */
int arf_shape_count(const arf_tune_options *options);
arf_shape arf_shape_at(const arf_tune_options *options, int tp_size, int index);

/* Prints what a tune by these processes would do. Collective; needs no launcher. */
arfuse_status arf_dry_run(const arf_tune_options *options, arf_group *group, arf_error *error);

#endif
