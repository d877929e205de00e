/* SPDX-License-Identifier: Apache-2.0 */
/* Comma-separated text (RFC 4180) as a table of cells, with a column found by any of its names. */
#ifndef ARF_CLI_CSV_H
#define ARF_CLI_CSV_H

#include <stdbool.h>

#include "base/json.h"

typedef struct arf_csv {
    char *text; /* owned; cells point into it */
    int columns, rows, room;
    char **name; /* [columns] of the first line, in lower case */
    char **cell; /* [rows * columns], without white space at the ends */
    int *line;   /* [rows] where a row begins, from 1 */
} arf_csv;

/*
 * Reads a file of at most ARF_JSON_MAX_BYTES. Quoted cells, CRLF and a byte-order mark are taken;
 * empty lines are skipped. Refused (ARFUSE_PROFILE) with file and line: no header, a name twice,
 * a row of another length, an open quote, a NUL.
 */
arfuse_status arf_csv_load(const char *path, arf_csv *csv, arf_error *error);
void arf_csv_free(arf_csv *csv);

/* The column of the first of these names (NULL-terminated list) that the file has, or -1. */
int arf_csv_column(const arf_csv *csv, const char *const *names);
/* "" where the column is -1. */
const char *arf_csv_cell(const arf_csv *csv, int row, int column);

/* Appends a cell, quoted where it must be; every cell of a line but the first brings its comma. */
void arf_csv_add(arf_text *text, bool first, const char *cell);

#endif
