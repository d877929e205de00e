/* SPDX-License-Identifier: Apache-2.0 */
/* retarget: a profile of another shape, by rule. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "profile/retarget.h"
#include "profile/write.h"

typedef struct request {
    const char *path, *output;
    int64_t hidden, top_k, ranks; /* -1: as in the source */
    int64_t capacity;
    arf_retarget_rule rule;
} request;

enum { KEY_HIDDEN = 0x100, KEY_TOPK, KEY_TP, KEY_CAPACITY, KEY_RULE };

static const struct argp_option options[] = {
    {"hidden", KEY_HIDDEN, "H", 0, "Hidden size of the target", 0},
    {"topk", KEY_TOPK, "K", 0, "Top-k of the target; 0: a dense model", 0},
    {"tp", KEY_TP, "R", 0, "Ranks of the target (each as the source's if not given)", 0},
    {"capacity", KEY_CAPACITY, "M", 0, "Close the routes here (default 8192)", 0},
    {"rule", KEY_RULE, "RULE", 0,
     "scaled (default): bounds keep the bytes that reach a GPU; v1, v2: as public engines, which "
     "keep the bounds",
     0},
    {"output", 'o', "FILE", 0, "Write to FILE instead of stdout", 0},
    {0, 0, 0, 0, 0, 0},
};

static void number(struct argp_state *state, const char *option, const char *argument, int64_t low,
                   int64_t high, int64_t *value)
{
    if (!arf_cli_number(argument, low, high, value))
        argp_error(state, "--%s '%s': expected a whole number from %lld to %lld", option, argument,
                   (long long)low, (long long)high);
}

static void finish(struct argp_state *state, const request *r)
{
    if (r->path == NULL)
        argp_error(state, "no file, expected one");
    if (r->hidden < 0 && r->top_k < 0 && r->ranks < 0)
        argp_error(state, "no target, expected --hidden H, --topk K or --tp R");
    if (r->hidden > 0 && r->hidden % 8 != 0)
        argp_error(state, "--hidden %lld: expected a multiple of 8 (a pack is 8 bf16 values)",
                   (long long)r->hidden);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    request *r = state->input;
    switch (key) {
    case KEY_HIDDEN:
        number(state, "hidden", argument, ARF_MIN_HIDDEN, ARF_MAX_HIDDEN, &r->hidden);
        return 0;
    case KEY_TOPK:
        number(state, "topk", argument, 0, ARF_MAX_TOP_K, &r->top_k);
        return 0;
    case KEY_TP:
        number(state, "tp", argument, 1, ARF_MAX_RANKS, &r->ranks);
        return 0;
    case KEY_CAPACITY:
        number(state, "capacity", argument, 1, ARF_MAX_TOKENS, &r->capacity);
        return 0;
    case KEY_RULE:
        if (!arf_retarget_rule_parse(argument, &r->rule))
            argp_error(state, "--rule '%s': expected scaled, v1 or v2", argument);
        return 0;
    case 'o':
        r->output = argument;
        return 0;
    case ARGP_KEY_ARG:
        arf_cli_take_file(state, argument, &r->path);
        return 0;
    case ARGP_KEY_END:
        finish(state, r);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* One note a line, each in the program's voice. */
static void complain_lines(const char *path, char *notes)
{
    for (char *line = strtok(notes, "\n"); line != NULL; line = strtok(NULL, "\n"))
        arf_complain("%s: note: %s", path, line);
}

static int run(int argc, char **argv)
{
    request r = {.hidden = -1, .top_k = -1, .ranks = -1, .capacity = ARF_RETARGET_END};
    arf_cli_parse(&arf_verb_retarget, options, parse, argc, argv, &r);
    arf_profile *from = arf_cli_load(r.path), *to = NULL;
    if (from == NULL)
        return ARFUSE_PROFILE;
    arf_shape shape = from->shape;
    shape.hidden_size = r.hidden < 0 ? shape.hidden_size : (int)r.hidden;
    shape.top_k = r.top_k < 0 ? shape.top_k : (int)r.top_k;
    shape.tp_size = r.ranks < 0 ? shape.tp_size : (int)r.ranks;

    char notes[ARF_RETARGET_NOTES] = "";
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status =
        arf_profile_retarget(from, r.path, &shape, r.rule, r.capacity, &to, notes, &error);
    if (status != ARFUSE_OK)
        arf_error_prefix(&error, "%s", r.path);
    else
        status = arf_cli_deliver_profile(to, r.output, &error);
    if (status == ARFUSE_OK)
        complain_lines(r.path, notes);
    else
        arf_complain("%s", error.text);
    arf_profile_free(to);
    arf_profile_free(from);
    return (int)status;
}

const arf_verb arf_verb_retarget = {
    "retarget", "[--hidden H] [--topk K] [--tp R] [-o FILE] FILE",
    "Make a profile for a shape that nobody measured, from that of another shape", run};
