/* SPDX-License-Identifier: Apache-2.0 */
/* arfuse-profile: the table of verbs, and what they share. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "base/nearest.h"
#include "cli/cli.h"
#include "profile/read.h"

static const arf_verb *const verbs[] = {
    &arf_verb_show, &arf_verb_explain, &arf_verb_check,  &arf_verb_diff,   &arf_verb_merge,
    &arf_verb_fit,  &arf_verb_plot,    &arf_verb_import, &arf_verb_export, &arf_verb_retarget};
enum { VERBS = sizeof verbs / sizeof *verbs };

/* Messages begin with this whatever path started the program. */
static char program[] = "arfuse-profile";

/* ---- what verbs share
 * ----------------------------------------------------------------------------- */

void arf_complain(const char *format, ...)
{
    va_list arguments;
    fflush(stdout); /* in the order in which things happened, where both go to one place */
    fprintf(stderr, "%s: ", program);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

arf_profile *arf_cli_load(const char *path)
{
    arf_profile *profile = NULL;
    arf_error error = ARF_ERROR_INIT;
    if (arf_cli_is_samples(path))
        arf_complain("%s: is a file of samples, expected a profile; fit makes one of it", path);
    else if (arf_profile_load(path, &profile, &error) != ARFUSE_OK)
        arf_complain("%s", error.text);
    return profile;
}

bool arf_cli_number(const char *text, int64_t low, int64_t high, int64_t *number)
{
    char *end;
    if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0')
        return false;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || value < low || value > high)
        return false;
    *number = value;
    return true;
}

/* A verb's parser behind one that sees whether an option has come before. */
typedef struct guard {
    const struct argp_option *options;
    argp_parser_t parse;
    void *input;
    uint64_t seen; /* by place in the options */
} guard;

static error_t parse_once(int key, char *argument, struct argp_state *state)
{
    guard *g = state->input;
    const struct argp_option *o = g->options;
    for (int i = 0; o != NULL && (o[i].name != NULL || o[i].doc != NULL); i++) {
        if (o[i].name == NULL || o[i].key != key)
            continue;
        if (g->seen >> i & 1)
            argp_error(state, "--%s is given twice", o[i].name);
        g->seen |= UINT64_C(1) << i;
    }
    state->input = g->input;
    const error_t code = g->parse(key, argument, state);
    state->input = g;
    return code;
}

void arf_cli_parse(const arf_verb *verb, const struct argp_option *options, argp_parser_t parse,
                   int argc, char **argv, void *input)
{
    char arguments[256];
    guard g = {options, parse, input, 0};
    snprintf(arguments, sizeof arguments, "%s %s", verb->name, verb->synopsis);
    const struct argp argp = {options, parse_once, arguments, verb->help, NULL, NULL, NULL};
    argv[0] = program;
    argp_parse(&argp, argc, argv, 0, NULL, &g);
}

void arf_cli_take_file(struct argp_state *state, char *argument, const char **path)
{
    if (*path != NULL)
        argp_error(state, "'%s' is one file too many, expected one", argument);
    *path = argument;
}

void arf_cli_take_files(struct argp_state *state, char ***paths, int *count)
{
    *paths = state->argv + state->next;
    *count = state->argc - state->next;
}

/* ---- the program
 * ----------------------------------------------------------------------------------- */

static char *help_filter(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)text;
    arf_text list = {0};
    arf_text_add(&list, "Verbs, each with a --help of its own:\n");
    for (int i = 0; i < VERBS; i++)
        arf_text_add(&list, "  %-10s %s\n", verbs[i]->name, verbs[i]->help);
    arf_text_add(&list, "\nExit: 0 ok, 1 failure (of diff: different), 2 usage, 3 an "
                        "input file is missing, invalid or does not fit.");
    return list.data; /* argp frees it */
}

static const arf_verb *find_verb(const char *name)
{
    for (int i = 0; i < VERBS; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return verbs[i];
    return NULL;
}

static void refuse_verb(struct argp_state *state, const char *typed)
{
    arf_nearest nearest = arf_nearest_to(typed);
    for (int i = 0; i < VERBS; i++)
        arf_nearest_offer(&nearest, verbs[i]->name);
    if (nearest.name != NULL)
        argp_error(state, "'%s' is no verb; did you mean %s?", typed, nearest.name);
    else
        argp_error(state, "'%s' is no verb, expected one that --help lists", typed);
}

typedef struct choice {
    const arf_verb *verb;
    int at;
} choice;

static error_t parse_verb(int key, char *argument, struct argp_state *state)
{
    choice *chosen = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        chosen->verb = find_verb(argument);
        if (chosen->verb == NULL)
            refuse_verb(state, argument);
        chosen->at = state->next - 1;
        state->next = state->argc; /* the rest is the verb's */
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "no verb, expected one that --help lists");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "%s %s\n", program, arfuse_version());
}

/* argp exits by itself after --help and --version. */
static void judge_stdout(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return;
    arf_complain("cannot write to stdout: %s", strerror(errno));
    _exit(ARFUSE_FAILURE);
}

int main(int argc, char **argv)
{
    choice chosen = {NULL, 0};
    arf_error error = ARF_ERROR_INIT;
    const struct argp argp = {
        NULL,
        parse_verb,
        "VERB [ARGUMENT...]",
        "Shows, checks, compares, fits, imports and exports routing profiles.\v-",
        NULL,
        help_filter,
        NULL};
    argp_err_exit_status = ARFUSE_USAGE;
    argp_program_version_hook = print_version;
    if (argc > 0)
        argv[0] = program;
    if (arf_hold_standard(&error) != ARFUSE_OK) {
        arf_complain("%s", error.text);
        return ARFUSE_FAILURE;
    }
    atexit(judge_stdout);
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &chosen);
    int code = chosen.verb->run(argc - chosen.at, argv + chosen.at);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        arf_complain("cannot write to stdout: %s", strerror(errno));
        _exit(code != 0 ? code : ARFUSE_FAILURE);
    }
    return code;
}
