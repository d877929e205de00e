/* SPDX-License-Identifier: Apache-2.0 */
/* check: judges files, never this machine. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"

/* "3 routes up to 8192 tokens" */
static void summary(const arf_routes *routes, char *text, size_t size)
{
    if (routes->count == 0) {
        snprintf(text, size, "no routes");
        return;
    }
    int64_t last = routes->route[routes->count - 1].max_tokens;
    int used = snprintf(text, size, "%d route%s ", routes->count, routes->count == 1 ? "" : "s");
    if (last == ARF_OPEN_BOUND)
        snprintf(text + used, size - (size_t)used, "without a last bound");
    else
        snprintf(text + used, size - (size_t)used, "up to %lld token%s", (long long)last,
                 last == 1 ? "" : "s");
}

/* Members of evidence that this version does not know: no fault, but worth a note. */
static void note_unknown(const char *path, const char *extra)
{
    arf_json *json = NULL;
    if (extra == NULL || arf_json_parse(extra, strlen(extra), &json, NULL) != ARFUSE_OK)
        return;
    arf_json_value root = arf_json_root(json), member = {0};
    arf_text list = {0};
    const char *name;
    while (arf_json_next(&root, &member, &name)) {
        arf_text_add(&list, list.bytes > 0 ? ", " : "");
        arf_text_string(&list, name);
    }
    arf_complain("%s: note: evidence has members that this version does not know, and keeps: %s",
                 path, list.data);
    arf_text_free(&list);
    arf_json_free(json);
}

static bool check(const char *path)
{
    arf_profile *profile = arf_cli_load(path);
    char allreduce[64], finalize[64];
    if (profile == NULL)
        return false;
    summary(&profile->routes[ARF_ALLREDUCE], allreduce, sizeof allreduce);
    summary(&profile->routes[ARF_FINALIZE], finalize, sizeof finalize);
    printf("%s: ok, %s; allreduce %s, finalize %s\n", path,
           arf_method_name(profile->evidence.method), allreduce, finalize);
    note_unknown(path, profile->evidence.extra);
    arf_profile_free(profile);
    return true;
}

typedef struct files {
    char **path;
    int count;
} files;

static error_t parse(int key, char *argument, struct argp_state *state)
{
    files *f = state->input;
    (void)argument;
    switch (key) {
    case ARGP_KEY_ARGS:
        arf_cli_take_files(state, &f->path, &f->count);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "no file, expected at least one");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int run(int argc, char **argv)
{
    files f = {NULL, 0};
    int code = 0;
    arf_cli_parse(&arf_verb_check, NULL, parse, argc, argv, &f);
    for (int i = 0; i < f.count; i++)
        if (!check(f.path[i]))
            code = ARFUSE_PROFILE;
    return code;
}

const arf_verb arf_verb_check = {
    "check", "FILE...", "Judge profiles: 0 if all are valid, 3 with the reasons if not", run};
