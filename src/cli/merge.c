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
        arf_duplicates_take(state, argument, &r->duplicates);
        return 0;
    case ARGP_KEY_ARGS:
        arf_cli_take_files(state, &r->path, &r->count);
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

static arfuse_status merge(const arf_samples *samples, const void *context, arf_error *error)
{
    const request *r = context;
    return arf_cli_deliver_samples(samples, r->output, error);
}

static int run(int argc, char **argv)
{
    request r = {0};
    arf_cli_parse(&arf_verb_merge, options, parse, argc, argv, &r);
    return arf_combine_files(r.path, r.count, r.duplicates, merge, &r);
}

const arf_verb arf_verb_merge = {"merge", "[--duplicates RULE] [-o FILE] SAMPLES SAMPLES...",
                                 "Join samples of one shape, device, kernel set and policy", run};
