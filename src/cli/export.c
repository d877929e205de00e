/* SPDX-License-Identifier: Apache-2.0 */
/* export: profiles and samples in the forms that other programs and people read. */
#include "cli/export.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

typedef enum form { FORM_NONE, FORM_FLASHINFER, FORM_CSV, FORM_MARKDOWN } form;

typedef struct request {
    char **path;
    int count;
    const char *output;
    form form;
    bool hints;
} request;

enum { KEY_TO = 0x100, KEY_HINTS };

static const struct argp_option options[] = {
    {"to", KEY_TO, "FORM", 0,
     "flashinfer: the Python module its MNNVL backend reads; csv: a row a point (of samples) or a "
     "route (of profiles); markdown: tables for a pull request",
     0},
    {"output", 'o', "FILE", 0, "Write to FILE instead of stdout", 0},
    {"as-hints", KEY_HINTS, 0, 0,
     "Write another kernel set's numbers as hints, named as such; refused otherwise", 0},
    {0, 0, 0, 0, 0, 0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    static const char *const names[] = {"", "flashinfer", "csv", "markdown"};
    request *r = state->input;
    switch (key) {
    case KEY_TO:
        for (int i = 1; i < 4; i++)
            if (strcmp(argument, names[i]) == 0)
                r->form = (form)i;
        if (r->form == FORM_NONE)
            argp_error(state, "--to '%s': expected flashinfer, csv or markdown", argument);
        return 0;
    case 'o':
        r->output = argument;
        return 0;
    case KEY_HINTS:
        r->hints = true;
        return 0;
    case ARGP_KEY_ARGS:
        arf_cli_take_files(state, &r->path, &r->count);
        return 0;
    case ARGP_KEY_END:
        if (r->form == FORM_NONE)
            argp_error(state, "no --to FORM, expected flashinfer, csv or markdown");
        if (r->count == 0)
            argp_error(state, "no file, expected at least one");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- one table of several files -----------------------------------------------------------------
 */

static int add_samples(const request *r, int index, arf_text *text, arf_error *error)
{
    arf_samples *samples = arf_cli_load_samples(r->path[index]);
    if (samples == NULL)
        return ARFUSE_PROFILE;
    arfuse_status status = arf_export_samples_csv(samples, index == 0, text, error);
    arf_samples_free(samples);
    return (int)status;
}

static int add_profile(const request *r, int index, arf_text *text, arf_error *error)
{
    arf_profile *profile = arf_cli_load_either(r->path[index]);
    if (profile == NULL)
        return ARFUSE_PROFILE;
    arfuse_status status = r->form == FORM_CSV
                               ? arf_export_routes_csv(profile, index == 0, text, error)
                               : arf_export_markdown(r->path[index], profile, text, error);
    arf_profile_free(profile);
    return (int)status;
}

static int export_tables(const request *r, arf_text *text, arf_error *error)
{
    int code = 0;
    bool samples = r->form == FORM_CSV && arf_cli_is_samples(r->path[0]);
    for (int i = 0; i < r->count && code == 0; i++) {
        if (r->form == FORM_CSV && arf_cli_is_samples(r->path[i]) != samples)
            return (int)arf_fail(error, ARFUSE_PROFILE,
                                 "%s: %s, expected %s as the first file: one table has one kind of "
                                 "row",
                                 r->path[i], samples ? "no samples" : "samples",
                                 samples ? "samples" : "a profile");
        if (i > 0 && r->form == FORM_MARKDOWN)
            arf_text_add(text, "\n");
        code = samples ? add_samples(r, i, text, error) : add_profile(r, i, text, error);
    }
    return code;
}

/* ---- one module of several profiles -------------------------------------------------------------
 */

static int export_module(const request *r, arf_text *text, arf_error *error)
{
    arf_profile **profile = calloc((size_t)r->count, sizeof *profile);
    int code = 0;
    if (profile == NULL)
        return (int)arf_fail(error, ARFUSE_FAILURE, "out of memory");
    for (int i = 0; i < r->count && code == 0; i++)
        if ((profile[i] = arf_cli_load_either(r->path[i])) == NULL)
            code = ARFUSE_PROFILE;
    if (code == 0)
        code = (int)arf_export_flashinfer(r->path, profile, r->count, r->hints, text, error);
    for (int i = 0; i < r->count; i++)
        arf_profile_free(profile[i]);
    free(profile);
    return code;
}

static arfuse_status deliver(const request *r, const arf_text *text, arf_error *error)
{
    switch (r->form) {
    case FORM_FLASHINFER:
        return arf_cli_deliver(text, "a module that export wrote", ARF_FLASHINFER_HEAD, r->output,
                               error);
    case FORM_MARKDOWN:
        return arf_cli_deliver(text, "a text that export wrote", "### ", r->output, error);
    default: /* the names of all columns */
        return arf_cli_deliver(text, "a table that export wrote", NULL, r->output, error);
    }
}

static int run(int argc, char **argv)
{
    request r = {0};
    arf_text text = {0};
    arf_error error = ARF_ERROR_INIT;
    arf_cli_parse(&arf_verb_export, options, parse, argc, argv, &r);
    int code = r.form == FORM_FLASHINFER ? export_module(&r, &text, &error)
                                         : export_tables(&r, &text, &error);
    if (code == 0)
        code = (int)deliver(&r, &text, &error);
    if (error.status != ARFUSE_OK)
        arf_complain("%s", error.text);
    arf_text_free(&text);
    return code;
}

const arf_verb arf_verb_export = {"export", "--to FORM [--as-hints] [-o FILE] FILE...",
                                  "Write profiles or samples for other programs and for people",
                                  run};
