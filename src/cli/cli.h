/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the verbs of arfuse-profile share. A verb is one file with one arf_verb;
 * main.c has the table of all of them.
 */
#ifndef ARF_CLI_CLI_H
#define ARF_CLI_CLI_H

#include <argp.h>
#include <stdio.h>

#include "base/json.h"
#include "fit/fit.h"
#include "profile/profile.h"

typedef struct arf_verb {
    const char *name;
    const char *synopsis; /* "[OPTION...] FILE" without the verb */
    const char *help;     /* one line */
    /* argv[0] is the verb; returns the program's exit code. */
    int (*run)(int argc, char **argv);
} arf_verb;

extern const arf_verb arf_verb_show;
extern const arf_verb arf_verb_explain;
extern const arf_verb arf_verb_check;
extern const arf_verb arf_verb_retarget;
extern const arf_verb arf_verb_fit;
extern const arf_verb arf_verb_diff;
extern const arf_verb arf_verb_merge;
extern const arf_verb arf_verb_plot;
extern const arf_verb arf_verb_import;
extern const arf_verb arf_verb_export;

/* "arfuse-profile: MESSAGE" on stderr. */
void arf_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Parses the arguments of a verb by its options, at most 64, none of which may come twice. argp
 * says what is wrong and ends the program with exit code 2; --help and --version end it with 0.
 */
void arf_cli_parse(const arf_verb *verb, const struct argp_option *options, argp_parser_t parse,
                   int argc, char **argv, void *input);

/* What is no option, at ARGP_KEY_ARG: the one file of a verb; *path is NULL until it has come. */
void arf_cli_take_file(struct argp_state *state, char *argument, const char **path);
/* The same at ARGP_KEY_ARGS, of a verb that takes several. */
void arf_cli_take_files(struct argp_state *state, char ***paths, int *count);

/* The profile in a file; NULL when it is refused, and then the reason is on stderr. */
arf_profile *arf_cli_load(const char *path);

/* ---- files (files.c)
 * -------------------------------------------------------------------------------- */

/* The samples in a file; NULL when it is refused, and then the reason is on stderr. */
arf_samples *arf_cli_load_samples(const char *path);

/* True when the file begins as these do; false for anything else, a missing file too. */
bool arf_cli_is_profile(const char *path);
bool arf_cli_is_samples(const char *path);

/* "x.samples.jsonl" for "x.json"; false when it does not fit. */
bool arf_cli_samples_beside(const char *path, char *beside, size_t size);

/* The numerics that a fit of these samples allows unless told otherwise: what the kernel set's
 * plans promise at best, fixed for ours, any for public kernels. */
arf_numerics arf_cli_numerics(arf_set set);

/* A profile, or what fitting gives when the file holds samples. NULL as above. */
arf_profile *arf_cli_load_either(const char *path);

/* The samples behind a profile, which are of its key. NULL as above. */
arf_samples *arf_cli_load_behind(const arf_profile *profile, const char *profile_path,
                                 const char *path);

/*
 * To a file, atomically, or to stdout where `output` is NULL. What stands there is replaced only by
 * its own kind, else ARFUSE_PROFILE: it must begin as `begins` says, or where that is NULL with the
 * first line of the text. `kind` is its name in the message: "a table".
 */
arfuse_status arf_cli_deliver(const arf_text *text, const char *kind, const char *begins,
                              const char *output, arf_error *error);
/* A profile in the same way; a file of another key is not replaced. */
arfuse_status arf_cli_deliver_profile(const arf_profile *profile, const char *output,
                                      arf_error *error);
/* Samples in the same way, refused above the limit of a samples file. */
arfuse_status arf_cli_deliver_samples(const arf_samples *samples, const char *output,
                                      arf_error *error);

/* A whole decimal number; false for anything else. */
bool arf_cli_number(const char *text, int64_t low, int64_t high, int64_t *number);

/* ---- in words (words.c)
 * -------------------------------------------------------------------------- */

/* "ll (low latency)", "separate finalize, then the allreduce route". */
const char *arf_protocol_words(arf_protocol protocol);
/* "all-reduce + residual + RMSNorm": what the pattern computes for this shape. */
void arf_pattern_words(arf_pattern pattern, const arf_shape *shape, char *text, size_t size);
/* "13-1024", "7", or, up to ARF_OPEN_BOUND, "704 and more". */
void arf_range_words(int64_t low, int64_t high, char *text, size_t size);
/* The same of the tokens that a route serves. */
void arf_route_words(const arf_routes *routes, int index, char *text, size_t size);
/* A route's time under both policies; it must have been timed. */
void arf_shift_words(const arf_route_evidence *route, char *text, size_t size);
/* What departs from the usual: ", multicast-store", ", numerics library"; else "". */
void arf_promise_words(const arf_plan *plan, char *text, size_t size);

#endif
