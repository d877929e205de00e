/* SPDX-License-Identifier: Apache-2.0 */
/* merge: partial tunings of one shape (several days, several machines of one kind) into one. */
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/combine.h"

typedef struct request {
    char **path;
    int count;
    const char *output;
    arf_duplicates duplicates;
} request;

enum { KEY_DUPLICATES = 0x100 };

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "Write to FILE instead of stdout", 0},
    {"duplicates", KEY_DUPLICATES, "RULE", 0,
     "What two files time differently: refuse (default) lists it and makes nothing; first, last: "
     "the file's place in the command; faster: the smaller median; pool: all rounds. A wrong "
     "result wins under every rule",
     0},
    {0, 0, 0, 0, 0, 0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    request *r = state->input;
    switch (key) {
    case 'o':
        r->output = argument;
        return 0;
    case KEY_DUPLICATES:
        if (!arf_duplicates_parse(argument, &r->duplicates))
            argp_error(state, "--duplicates '%s': expected refuse, first, last, faster or pool",
                       argument);
        return 0;
    case ARGP_KEY_ARGS:
        r->path = state->argv + state->next;
        r->count = state->argc - state->next;
        return 0;
    case ARGP_KEY_END:
        if (r->count < 2)
            argp_error(state, "%s, expected at least two files of samples",
                       r->count == 0 ? "no file" : "one file");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int run(int argc, char **argv)
{
    request r = {0};
    int code = 0;
    arf_cli_parse(&arf_verb_merge, options, parse, argc, argv, &r);
    arf_samples *samples = arf_combine_files(r.path, r.count, r.duplicates, &code);
    if (samples == NULL)
        return code;
    arf_error error = ARF_ERROR_INIT;
    if (arf_cli_deliver_samples(samples, r.output, &error) != ARFUSE_OK) {
        arf_complain("%s", error.text);
        code = (int)error.status;
    }
    arf_samples_free(samples);
    return code;
}

const arf_verb arf_verb_merge = {"merge", "[--duplicates RULE] [-o FILE] SAMPLES SAMPLES...",
                                 "Join samples of one shape, device, kernel set and policy", run};
