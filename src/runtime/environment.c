/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* Every variable that any part of arfuse reads. Tests have ARFUSE_TEST_... for themselves. */
static const char *const known[] = {
    "ARFUSE_PROFILE", "ARFUSE_PROFILE_PATH", "ARFUSE_ROUTES",        "ARFUSE_SITES_OFF",
    "ARFUSE_CHECKED", "ARFUSE_SHADOW_EVERY", "ARFUSE_SOCKET_FOLDER", "ARFUSE_CHECK_ORDER",
};
#define KNOWN ((int)(sizeof known / sizeof *known))

const char *arf_environment(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

static arfuse_status number(const char *variable, int high, int *value, arf_error *error)
{
    const char *text = arf_environment(variable);
    *value = 0;
    if (text == NULL)
        return ARFUSE_OK;
    char *end;
    long read = strtol(text, &end, 10);
    if (*end != '\0' || text[0] < '0' || text[0] > '9' || read > high)
        return arf_fail(error, ARFUSE_USAGE,
                        "environment %s is \"%s\", expected a number from 0 to %d", variable, text,
                        high);
    *value = (int)read;
    return ARFUSE_OK;
}

static bool mode_parse(const char *name, size_t length, arfuse_routes *mode)
{
    static const char *const names[] = {"auto", "profile", "default", "unfused"};
    for (int i = 1; i < 4; i++)
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0) {
            *mode = (arfuse_routes)i;
            return true;
        }
    return false;
}

/* One word of ARFUSE_ROUTES: "default" for both patterns, "finalize=default" for one. */
static bool take_word(const char *word, size_t length, arfuse_routes mode[2])
{
    arfuse_routes value;
    if (mode_parse(word, length, &value)) {
        mode[0] = mode[1] = value;
        return true;
    }
    for (int p = 0; p < ARF_PATTERNS; p++) {
        const char *name = arf_pattern_name((arf_pattern)p);
        size_t known_length = strlen(name);
        if (length > known_length && strncmp(word, name, known_length) == 0 &&
            word[known_length] == '=' &&
            mode_parse(word + known_length + 1, length - known_length - 1, &value)) {
            mode[p] = value;
            return true;
        }
    }
    return false;
}

static arfuse_status routes(arfuse_routes mode[2], arf_error *error)
{
    mode[0] = mode[1] = ARFUSE_ROUTES_PROFILE;
    const char *text = arf_environment("ARFUSE_ROUTES");
    for (const char *word = text; word != NULL && *word != '\0';) {
        size_t length = strcspn(word, ",");
        if (!take_word(word, length, mode))
            return arf_fail(error, ARFUSE_USAGE,
                            "environment ARFUSE_ROUTES is \"%s\", expected profile, default or "
                            "unfused, or a pattern each: allreduce=profile,finalize=unfused",
                            text);
        word += length + (word[length] == ',');
    }
    return ARFUSE_OK;
}

arfuse_status arf_environment_options(arfuse_options *options, arf_error *error)
{
    arfuse_routes mode[2];
    int checked, shadow_every, check_order;
    ARF_TRY(routes(mode, error));
    ARF_TRY(number("ARFUSE_CHECKED", 1, &checked, error));
    ARF_TRY(number("ARFUSE_SHADOW_EVERY", 1 << 30, &shadow_every, error));
    ARF_TRY(number("ARFUSE_CHECK_ORDER", 1, &check_order, error));
    for (int p = 0; p < ARF_PATTERNS; p++)
        if (options->routes[p] == ARFUSE_ROUTES_AUTO)
            options->routes[p] = mode[p];
    if (options->checked == -1)
        options->checked = checked;
    if (options->shadow_every == -1)
        options->shadow_every = shadow_every;
    if (options->check_order == -1)
        options->check_order = check_order;
    return ARFUSE_OK;
}

/* ---- unknown names --------------------------------------------------------------------------- */

#define LONGEST 64

/* Letters to insert, delete or replace (Levenshtein). */
static int edits(const char *a, size_t a_length, const char *b)
{
    int row[LONGEST + 1];
    size_t b_length = strlen(b);
    for (size_t j = 0; j <= b_length; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            int shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[b_length];
}

static void judge(const char *variable, size_t length, const arf_log *log)
{
    const char *nearest = NULL;
    int least = LONGEST;
    for (int i = 0; i < KNOWN; i++) {
        int distance = edits(variable, length, known[i]);
        if (distance == 0)
            return;
        if (distance < least) {
            least = distance;
            nearest = known[i];
        }
    }
    char text[LONGEST + 16] = "";
    /* Farther than that it is not a slip of the fingers. */
    if (nearest != NULL && least <= 4)
        snprintf(text, sizeof text, "; is %s meant?", nearest);
    arf_logf(log, ARFUSE_LOG_WARNING, "environment %.*s is not a variable of arfuse%s", (int)length,
             variable, text);
}

void arf_environment_warn(const arf_log *log)
{
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "ARFUSE_", 7) == 0 && strncmp(*entry, "ARFUSE_TEST_", 12) != 0 &&
            length <= LONGEST)
            judge(*entry, length, log);
    }
}
