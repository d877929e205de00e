/* SPDX-License-Identifier: Apache-2.0 */
/* import: tables that other people's sweeps print, and our own exported ones. */
#include "cli/import.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* ---- cells --------------------------------------------------------------------------------------
 */

const char *arf_import_cell(const arf_import *import, int row, arf_column column)
{
    return arf_csv_cell(&import->csv, row, import->column[column]);
}

arfuse_status arf_import_refuse(const arf_import *import, int row, arf_error *error,
                                const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return arf_fail(error, ARFUSE_PROFILE, "%s: line %d: %s", import->options->path,
                    import->csv.line[row], text);
}

arfuse_status arf_import_integer(const arf_import *import, int row, arf_column column, int64_t low,
                                 int64_t high, int64_t *number, arf_error *error)
{
    const char *cell = arf_import_cell(import, row, column);
    if (cell[0] == '\0' || arf_cli_number(cell, low, high, number))
        return ARFUSE_OK;
    return arf_import_refuse(
        import, row, error, "%s '%s', expected a whole number from %lld to %lld",
        import->csv.name[import->column[column]], cell, (long long)low, (long long)high);
}

arfuse_status arf_import_pattern(const arf_import *import, int row, arf_pattern *pattern,
                                 arf_error *error)
{
    static const char *const names[ARF_PATTERNS][4] = {{"allreduce", "all_reduce", "ar", NULL},
                                                       {"finalize", "moe_finalize", NULL}};
    const char *cell = arf_import_cell(import, row, ARF_COL_PATTERN);
    for (int i = 0; i < ARF_PATTERNS; i++)
        for (int j = 0; names[i][j] != NULL; j++)
            if (strcasecmp(cell, names[i][j]) == 0) {
                *pattern = (arf_pattern)i;
                return ARFUSE_OK;
            }
    return arf_import_refuse(import, row, error,
                             "pattern '%s', expected allreduce (all_reduce, ar) or finalize "
                             "(moe_finalize)",
                             cell);
}

/* ---- options ------------------------------------------------------------------------------------
 */

enum {
    KEY_FROM = 0x100,
    KEY_LIKE,
    KEY_SET,
    KEY_HIDDEN,
    KEY_TOPK,
    KEY_TP,
    KEY_GPU,
    KEY_CAPABILITY,
    KEY_SMS,
    KEY_LINK,
    KEY_NODES,
    KEY_POLICY,
    KEY_NO_NORM,
    KEY_NO_RESIDUAL,
    KEY_NO_SHARED
};

static const struct argp_option options[] = {
    {"from", KEY_FROM, "FORMAT", 0, "csv, the only one so far", 1},
    {"output", 'o', "FILE", 0, "Write to FILE instead of stdout", 1},
    {"like", KEY_LIKE, "PROFILE", 0,
     "A profile of the same kernels, shape and device: gives what the table does not say, and the "
     "tunings behind its names (bt: the route that serves the tokens; bt0, bt1: the first, the "
     "second)",
     1},
    {0, 0, 0, 0, "Which rows, and what the table does not say of them:", 2},
    {"set", KEY_SET, "NAME", 0, "Kernel set that was timed: flashinfer, sglang, tokenspeed, ...",
     2},
    {"hidden", KEY_HIDDEN, "H", 0, "Hidden size", 2},
    {"topk", KEY_TOPK, "K", 0, "Top-k; 0: a dense model", 2},
    {"tp", KEY_TP, "R", 0, "Ranks", 2},
    {"no-norm", KEY_NO_NORM, 0, 0, "Timed without RMSNorm", 2},
    {"no-residual", KEY_NO_RESIDUAL, 0, 0, "Timed without residual", 2},
    {"no-shared-expert", KEY_NO_SHARED, 0, 0, "Timed without shared expert", 2},
    {"policy", KEY_POLICY, "NAME", 0, "warm (default) or decode", 2},
    {"gpu", KEY_GPU, "NAME", 0, "Device name, as its driver says it", 2},
    {"capability", KEY_CAPABILITY, "N.N", 0, "Compute capability of the device", 2},
    {"sms", KEY_SMS, "N", 0, "SMs of the device", 2},
    {"link", KEY_LINK, "NAME", 0, "nvlink (default) or pcie", 2},
    {"nodes", KEY_NODES, "N", 0, "Nodes that the ranks were spread over (default 1)", 2},
    {0, 0, 0, 0, 0, 0},
};

static int64_t number(struct argp_state *state, const char *option, const char *argument,
                      int64_t low, int64_t high)
{
    int64_t value = -1;
    if (!arf_cli_number(argument, low, high, &value))
        argp_error(state, "--%s '%s': expected a whole number from %lld to %lld", option, argument,
                   (long long)low, (long long)high);
    return value;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    arf_import_options *o = state->input;
    switch (key) {
    case KEY_FROM:
        if (strcmp(argument, "csv") != 0)
            argp_error(state, "--from '%s': expected csv", argument);
        o->from = argument;
        return 0;
    case 'o':
        o->output = argument;
        return 0;
    case KEY_LIKE:
        o->like = argument;
        return 0;
    case KEY_SET:
        o->set = argument;
        return 0;
    case KEY_HIDDEN:
        o->hidden = number(state, "hidden", argument, ARF_MIN_HIDDEN, ARF_MAX_HIDDEN);
        return 0;
    case KEY_TOPK:
        o->top_k = number(state, "topk", argument, 0, ARF_MAX_TOP_K);
        return 0;
    case KEY_TP:
        o->ranks = number(state, "tp", argument, 1, ARF_MAX_RANKS);
        return 0;
    case KEY_GPU:
        o->gpu = argument;
        return 0;
    case KEY_CAPABILITY:
        o->capability = argument;
        return 0;
    case KEY_SMS:
        o->sms = argument;
        return 0;
    case KEY_LINK:
        o->link = argument;
        return 0;
    case KEY_NODES:
        o->nodes = argument;
        return 0;
    case KEY_POLICY:
        o->policy = argument;
        return 0;
    case KEY_NO_NORM:
        o->no_norm = true;
        return 0;
    case KEY_NO_RESIDUAL:
        o->no_residual = true;
        return 0;
    case KEY_NO_SHARED:
        o->no_shared = true;
        return 0;
    case ARGP_KEY_ARG:
        arf_cli_take_file(state, argument, &o->path);
        return 0;
    case ARGP_KEY_END:
        if (o->from == NULL)
            argp_error(state, "no --from FORMAT, expected --from csv");
        if (o->path == NULL)
            argp_error(state, "no file, expected one");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the whole ----------------------------------------------------------------------------------
 */

/* Columns that nobody reads are no fault, but a misspelt one would be missed. */
static void note_unread(const arf_import *import)
{
    arf_text list = {0};
    for (int i = 0; i < import->csv.columns; i++) {
        bool read = false;
        for (int c = 0; c < ARF_COLUMNS; c++)
            read |= import->column[c] == i;
        if (!read)
            arf_text_add(&list, "%s'%s'", list.bytes > 0 ? ", " : "", import->csv.name[i]);
    }
    if (list.bytes > 0)
        arf_complain("%s: note: columns that are not read: %s", import->options->path, list.data);
    arf_text_free(&list);
}

static arfuse_status convert(arf_import *import, arf_error *error)
{
    arf_samples *samples = NULL;
    arf_profile *profile = NULL;
    arfuse_status status;
    for (int c = 0; c < ARF_COLUMNS; c++)
        import->column[c] = arf_csv_column(&import->csv, arf_column_names[c]);
    note_unread(import);
    if (import->csv.rows == 0)
        return arf_fail(error, ARFUSE_PROFILE, "%s: no row, expected some", import->options->path);
    ARF_TRY(arf_import_key(import, error));
    if (import->column[ARF_COL_MAX] >= 0 && import->column[ARF_COL_TOKENS] < 0) {
        ARF_TRY(arf_import_routes(import, &profile, error));
        status = arf_profile_validate(profile, error);
        if (status == ARFUSE_OK)
            status = arf_cli_deliver_profile(profile, import->options->output, error);
        else
            arf_error_prefix(error, "%s", import->options->path);
    } else {
        ARF_TRY(arf_import_samples(import, &samples, error));
        status = arf_cli_deliver_samples(samples, import->options->output, error);
    }
    arf_samples_free(samples);
    arf_profile_free(profile);
    return status;
}

static int run(int argc, char **argv)
{
    arf_import_options o = {.hidden = -1, .top_k = -1, .ranks = -1};
    arf_cli_parse(&arf_verb_import, options, parse, argc, argv, &o);
    arf_import import = {.options = &o};
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = ARFUSE_OK;
    if (o.like != NULL && (import.like = arf_cli_load(o.like)) == NULL)
        return ARFUSE_PROFILE;
    status = arf_csv_load(o.path, &import.csv, &error);
    if (status == ARFUSE_OK)
        status = convert(&import, &error);
    if (status != ARFUSE_OK)
        arf_complain("%s", error.text);
    arf_csv_free(&import.csv);
    arf_profile_free(import.like);
    free(import.wanted);
    return (int)status;
}

const arf_verb arf_verb_import = {"import", "--from csv [-o FILE] FILE",
                                  "Make samples of a table of times that another program printed",
                                  run};
