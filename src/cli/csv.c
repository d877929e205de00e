/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/csv.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

#define MAX_COLUMNS 64

typedef struct reader {
    char *at;
    int line;
    const char *path;
    arf_error *error;
} reader;

static arfuse_status refuse(const reader *r, int line, const char *what)
{
    return arf_fail(r->error, ARFUSE_PROFILE, "%s: line %d: %s", r->path, line, what);
}

static char *trim(char *cell)
{
    while (isspace((unsigned char)*cell))
        cell++;
    char *end = cell + strlen(cell);
    while (end > cell && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return cell;
}

/* A quoted cell is unescaped in place: it only gets shorter. */
static arfuse_status read_quoted(reader *r, char **cell)
{
    int line = r->line;
    char *to = ++r->at;
    *cell = to;
    for (;; r->at++) {
        if (*r->at == '\0')
            return refuse(r, line, "a quote that is never closed");
        if (*r->at == '\n')
            r->line++;
        if (*r->at == '"' && *++r->at != '"')
            break;
        *to++ = *r->at;
    }
    while (*r->at == ' ' || *r->at == '\t')
        r->at++;
    char *after = r->at;
    if (*after != ',' && *after != '\n' && *after != '\r' && *after != '\0')
        return refuse(r, line, "text behind a closing quote, expected a comma");
    *to = '\0'; /* at most where the closing quote stood */
    return ARFUSE_OK;
}

/* One cell; *last tells whether the line ends with it. */
static arfuse_status read_cell(reader *r, char **cell, bool *last)
{
    if (*r->at == '"') {
        ARF_TRY(read_quoted(r, cell));
    } else {
        *cell = r->at;
        r->at += strcspn(r->at, ",\r\n");
    }
    char end = *r->at;
    if (end == '\r' && r->at[1] == '\n')
        *r->at++ = '\0';
    *last = end != ',';
    if (*r->at != '\0')
        *r->at++ = '\0';
    *cell = trim(*cell);
    return ARFUSE_OK;
}

/* A line into cells[MAX_COLUMNS]; *count 0 for an empty one. */
static arfuse_status read_line(reader *r, char **cells, int *count, int *line)
{
    bool last = false;
    *line = r->line;
    *count = 0;
    while (!last) {
        if (*count == MAX_COLUMNS)
            return refuse(r, *line, "more than 64 columns");
        ARF_TRY(read_cell(r, &cells[*count], &last));
        ++*count;
    }
    r->line++;
    if (*count == 1 && cells[0][0] == '\0')
        *count = 0;
    return ARFUSE_OK;
}

static arfuse_status take_header(arf_csv *csv, const reader *r, char **cells, int count, int line)
{
    csv->name = malloc((size_t)count * sizeof *csv->name);
    if (csv->name == NULL)
        return arf_fail(r->error, ARFUSE_FAILURE, "%s: out of memory", r->path);
    csv->columns = count;
    for (int i = 0; i < count; i++) {
        csv->name[i] = cells[i];
        for (char *c = cells[i]; *c != '\0'; c++)
            *c = (char)tolower((unsigned char)*c);
        for (int j = 0; j < i; j++)
            if (strcmp(csv->name[j], csv->name[i]) == 0)
                return arf_fail(r->error, ARFUSE_PROFILE, "%s: line %d: column '%s' twice", r->path,
                                line, csv->name[i]);
    }
    return ARFUSE_OK;
}

static arfuse_status take_row(arf_csv *csv, const reader *r, char **cells, int count, int line)
{
    if (count != csv->columns)
        return arf_fail(r->error, ARFUSE_PROFILE,
                        "%s: line %d: %d cells, expected %d as the header", r->path, line, count,
                        csv->columns);
    if (csv->rows == csv->room) {
        int room = csv->room == 0 ? 256 : 2 * csv->room;
        char **cell = realloc(csv->cell, (size_t)room * (size_t)csv->columns * sizeof *cell);
        if (cell != NULL)
            csv->cell = cell;
        int *lines = realloc(csv->line, (size_t)room * sizeof *lines);
        if (lines != NULL)
            csv->line = lines;
        if (cell == NULL || lines == NULL)
            return arf_fail(r->error, ARFUSE_FAILURE, "%s: out of memory", r->path);
        csv->room = room;
    }
    memcpy(&csv->cell[(size_t)csv->rows * (size_t)csv->columns], cells,
           (size_t)count * sizeof *cells);
    csv->line[csv->rows++] = line;
    return ARFUSE_OK;
}

static arfuse_status read_all(arf_csv *csv, reader *r)
{
    char *cells[MAX_COLUMNS];
    int count, line;
    while (*r->at != '\0') {
        ARF_TRY(read_line(r, cells, &count, &line));
        if (count == 0)
            continue;
        ARF_TRY(csv->name == NULL ? take_header(csv, r, cells, count, line)
                                  : take_row(csv, r, cells, count, line));
    }
    return csv->name != NULL ? ARFUSE_OK
                             : refuse(r, 1, "nothing, expected a line with the names of columns");
}

arfuse_status arf_csv_load(const char *path, arf_csv *csv, arf_error *error)
{
    size_t bytes = 0;
    *csv = (arf_csv){0};
    ARF_TRY(arf_read_file(path, ARF_JSON_MAX_BYTES, &csv->text, &bytes, error));
    reader r = {csv->text, 1, path, error};
    arfuse_status status;
    if (strlen(csv->text) != bytes) {
        status = refuse(&r, 1, "a NUL byte somewhere, expected text");
    } else {
        if (strncmp(r.at, "\xef\xbb\xbf", 3) == 0)
            r.at += 3;
        status = read_all(csv, &r);
    }
    if (status != ARFUSE_OK)
        arf_csv_free(csv);
    return status;
}

void arf_csv_free(arf_csv *csv)
{
    free(csv->text);
    free(csv->name);
    free(csv->cell);
    free(csv->line);
    *csv = (arf_csv){0};
}

int arf_csv_column(const arf_csv *csv, const char *const *names)
{
    for (int n = 0; names[n] != NULL; n++)
        for (int i = 0; i < csv->columns; i++)
            if (strcmp(csv->name[i], names[n]) == 0)
                return i;
    return -1;
}

const char *arf_csv_cell(const arf_csv *csv, int row, int column)
{
    return column < 0 ? "" : csv->cell[(size_t)row * (size_t)csv->columns + (size_t)column];
}

void arf_csv_add(arf_text *text, bool first, const char *cell)
{
    if (!first)
        arf_text_add(text, ",");
    if (cell[strcspn(cell, ",\"\r\n")] == '\0' && cell[0] != ' ') {
        arf_text_add(text, "%s", cell);
        return;
    }
    arf_text_add(text, "\"");
    for (; *cell != '\0'; cell++)
        arf_text_add(text, "%s%c", *cell == '"' ? "\"" : "", *cell);
    arf_text_add(text, "\"");
}
