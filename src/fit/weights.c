/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of token counts from a text file. Which of the three forms it has is
 * said by its first line that is neither blank nor a comment (`#`):
 *
 *     17               one token count a line: each line is one call
 *     17,120           a token count and how often it occurred (comma or white space between)
 *     site,tokens,count,...   names of columns, of which `tokens` and `count` are read: the
 *                      histogram that the runtime dumps
 *
 * Repeated token counts add up.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/locale.h"
#include "fit/fit.h"

#define WEIGHTS_MAX_BYTES ((size_t)64 << 20)
#define MAX_COLUMNS 32
#define SEPARATORS ", \t\r"

typedef struct weights_reader {
    const char *path;
    int line;
    int columns, tokens_column, count_column; /* columns 0: not known yet; count_column -1: none */
    int64_t tokens;                           /* of the line, */
    double count;                             /* and how often it says */
    double *total;                            /* [room], by token count */
    int64_t room;
} weights_reader;

/* Splits a line in place. Returns the number of columns, or -1 for too many. */
static int split(char *line, char *column[MAX_COLUMNS])
{
    int count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(line, SEPARATORS, &rest); word != NULL;
         word = strtok_r(NULL, SEPARATORS, &rest)) {
        if (count == MAX_COLUMNS)
            return -1;
        column[count++] = word;
    }
    return count;
}

static arfuse_status read_names(weights_reader *reader, char *const *column, int count,
                                arf_error *error)
{
    reader->tokens_column = reader->count_column = -1;
    for (int i = 0; i < count; i++) {
        if (strcmp(column[i], "tokens") == 0)
            reader->tokens_column = i;
        if (strcmp(column[i], "count") == 0)
            reader->count_column = i;
    }
    if (reader->tokens_column < 0 || reader->count_column < 0)
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: line %d: expected numbers, or column names with \"tokens\" and "
                        "\"count\" among them",
                        reader->path, reader->line);
    reader->columns = count;
    return ARFUSE_OK;
}

static arfuse_status read_values(weights_reader *reader, char *const *column, int count,
                                 arf_error *error)
{
    if (reader->columns == 0) {
        if (count > 2)
            return arf_fail(error, ARFUSE_PROFILE,
                            "%s: line %d: %d columns without names: expected a token count, or a "
                            "token count and how often it occurred",
                            reader->path, reader->line, count);
        reader->columns = count;
        reader->count_column = count - 1 == 1 ? 1 : -1;
    }
    if (count != reader->columns)
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: line %d: %d columns, where line 1 of the data "
                        "has %d",
                        reader->path, reader->line, count, reader->columns);
    const char *text = column[reader->tokens_column];
    char *end;
    long long tokens = isdigit((unsigned char)text[0]) ? strtoll(text, &end, 10) : -1;
    if (tokens < 0 || *end != '\0' || tokens > ARF_MAX_TOKENS)
        return arf_fail(error, ARFUSE_PROFILE, "%s: line %d: token count \"%s\": expected 0 to %d",
                        reader->path, reader->line, text, ARF_MAX_TOKENS);
    reader->tokens = tokens;
    reader->count = 1.0;
    if (reader->count_column < 0)
        return ARFUSE_OK;
    text = column[reader->count_column];
    reader->count = strtod(text, &end);
    if (!(isdigit((unsigned char)text[0]) || text[0] == '.') || *end != '\0' ||
        !isfinite(reader->count))
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: line %d: count \"%s\": expected a number of at least 0", reader->path,
                        reader->line, text);
    return ARFUSE_OK;
}

/* One line; *has_value says whether it held data. */
static arfuse_status read_line(weights_reader *reader, char *line, bool *has_value,
                               arf_error *error)
{
    char *column[MAX_COLUMNS];
    *has_value = false;
    line[strcspn(line, "#")] = '\0';
    int count = split(line, column);
    if (count == 0)
        return ARFUSE_OK;
    if (count < 0)
        return arf_fail(error, ARFUSE_PROFILE, "%s: line %d: more than %d columns", reader->path,
                        reader->line, MAX_COLUMNS);
    if (reader->columns == 0 && isalpha((unsigned char)column[0][0]))
        return read_names(reader, column, count, error);
    ARF_TRY(read_values(reader, column, count, error));
    *has_value = true;
    return ARFUSE_OK;
}

/* One place for each token count up to the largest, so that repeats add up without sorting. */
static arfuse_status add_up(weights_reader *reader, arf_error *error)
{
    if (reader->tokens >= reader->room) {
        int64_t room = reader->tokens < ARF_MAX_TOKENS / 2 ? 2 * reader->tokens : ARF_MAX_TOKENS;
        double *total = realloc(reader->total, (size_t)(room + 1) * sizeof *total);
        if (total == NULL)
            return arf_fail(error, ARFUSE_FAILURE, "%s: out of memory", reader->path);
        for (int64_t tokens = reader->room; tokens <= room; tokens++)
            total[tokens] = 0;
        reader->total = total;
        reader->room = room + 1;
    }
    reader->total[reader->tokens] += reader->count;
    if (!isfinite(reader->total[reader->tokens]))
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: line %d: the counts of %lld tokens add up to more than a number holds",
                        reader->path, reader->line, (long long)reader->tokens);
    return ARFUSE_OK;
}

static arfuse_status read_text(weights_reader *reader, char *text, arf_error *error)
{
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
        bool has_value;
        reader->line++;
        ARF_TRY(read_line(reader, line, &has_value, error));
        if (has_value)
            ARF_TRY(add_up(reader, error));
    }
    return ARFUSE_OK;
}

static arfuse_status collect(const weights_reader *reader, arf_weights *weights, arf_error *error)
{
    int kinds = 0;
    for (int64_t tokens = 0; tokens < reader->room; tokens++)
        kinds += reader->total[tokens] > 0.0;
    if (kinds == 0)
        return arf_fail(error, ARFUSE_PROFILE, "%s: no token count with a count above 0",
                        reader->path);
    *weights = (arf_weights){0, calloc((size_t)kinds, sizeof *weights->tokens),
                             calloc((size_t)kinds, sizeof *weights->weight)};
    if (weights->tokens == NULL || weights->weight == NULL) {
        arf_weights_free(weights);
        return arf_fail(error, ARFUSE_FAILURE, "%s: out of memory", reader->path);
    }
    for (int64_t tokens = 0; tokens < reader->room; tokens++) {
        if (!(reader->total[tokens] > 0.0))
            continue;
        weights->tokens[weights->count] = tokens;
        weights->weight[weights->count++] = reader->total[tokens];
    }
    return ARFUSE_OK;
}

static arfuse_status parse(const char *path, char *text, size_t bytes, arf_weights *weights,
                           arf_error *error)
{
    weights_reader reader = {.path = path};
    arf_locale locale;
    if (memchr(text, '\0', bytes) != NULL)
        return arf_fail(error, ARFUSE_PROFILE, "%s: not a text file", path);
    if (!arf_locale_enter(&locale))
        return arf_fail(error, ARFUSE_FAILURE, "%s: out of memory", path);
    arfuse_status status = read_text(&reader, text, error);
    arf_locale_leave(&locale);
    if (status == ARFUSE_OK)
        status = collect(&reader, weights, error);
    free(reader.total);
    return status;
}

arfuse_status arf_weights_parse(const char *name, const char *text, size_t bytes,
                                arf_weights *weights, arf_error *error)
{
    char *copy = malloc(bytes + 1);
    if (copy == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "%s: out of memory", name);
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    arfuse_status status = parse(name, copy, bytes, weights, error);
    free(copy);
    return status;
}

arfuse_status arf_weights_load(const char *path, arf_weights *weights, arf_error *error)
{
    char *text;
    size_t bytes;
    ARF_TRY(arf_read_file(path, WEIGHTS_MAX_BYTES, &text, &bytes, error));
    arfuse_status status = parse(path, text, bytes, weights, error);
    free(text);
    return status;
}

void arf_weights_free(arf_weights *weights)
{
    if (weights == NULL)
        return;
    free(weights->tokens);
    free(weights->weight);
    *weights = (arf_weights){0, NULL, NULL};
}
