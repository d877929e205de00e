/* SPDX-License-Identifier: Apache-2.0 */
/* fit: samples to a profile, without hardware. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/combine.h"

typedef struct request {
    char **path;
    int count;
    const char *output, *weights;
    bool numerics_given;
    arf_numerics numerics;
    arf_duplicates duplicates;
} request;

enum { KEY_WEIGHTS = 0x100, KEY_NUMERICS, KEY_DUPLICATES };

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "Write to FILE instead of stdout", 0},
    {"weights", KEY_WEIGHTS, "FILE", 0,
     "How often each token count occurs: lines of tokens,count, or a dump of the runtime", 0},
    {"numerics", KEY_NUMERICS, "NAME", 0,
     "fixed: only plans with the contract's bits; any: library and in-network sums too (default: "
     "fixed for arfuse's kernels, any for public ones, which have no fixed)",
     0},
    {"duplicates", KEY_DUPLICATES, "RULE", 0,
     "What two files time differently: refuse (default), first, last, faster or pool", 0},
    {0, 0, 0, 0, 0, 0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    request *r = state->input;
    switch (key) {
    case 'o':
        r->output = argument;
        return 0;
    case KEY_WEIGHTS:
        r->weights = argument;
        return 0;
    case KEY_NUMERICS:
        if (strcmp(argument, "fixed") != 0 && strcmp(argument, "any") != 0)
            argp_error(state, "--numerics '%s': expected fixed or any", argument);
        r->numerics_given = true;
        r->numerics = argument[0] == 'f' ? ARF_FIXED : ARF_LIBRARY;
        return 0;
    case KEY_DUPLICATES:
        arf_duplicates_take(state, argument, &r->duplicates);
        return 0;
    case ARGP_KEY_ARGS:
        arf_cli_take_files(state, &r->path, &r->count);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "no samples, expected at least one file of them");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static arfuse_status fit(const arf_samples *samples, const void *context, arf_error *error)
{
    const request *r = context;
    arf_fit_options how = ARF_FIT_OPTIONS_INIT;
    arf_weights weights = {0};
    arf_profile *profile = NULL;
    how.numerics = r->numerics_given ? r->numerics : arf_cli_numerics(samples->header.set);
    if (r->weights != NULL) {
        ARF_TRY(arf_weights_load(r->weights, &weights, error));
        how.weights = &weights;
    }
    arfuse_status status = arf_fit_profile(samples, &how, &profile, error);
    if (status != ARFUSE_OK && r->count > 1)
        arf_error_prefix(error, "%s and %d more", r->path[0], r->count - 1);
    else if (status != ARFUSE_OK)
        arf_error_prefix(error, "%s", r->path[0]);
    if (status == ARFUSE_OK)
        status = arf_cli_deliver_profile(profile, r->output, error);
    arf_profile_free(profile);
    arf_weights_free(&weights);
    return status;
}

static int run(int argc, char **argv)
{
    request r = {0};
    arf_cli_parse(&arf_verb_fit, options, parse, argc, argv, &r);
    return arf_combine_files(r.path, r.count, r.duplicates, fit, &r);
}

const arf_verb arf_verb_fit = {"fit", "[-o FILE] [--weights FILE] [--numerics NAME] SAMPLES...",
                               "Choose the routes that samples speak for", run};
