/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a table of somebody's measurements to samples, and from a table of routes to a profile. The
 * steps: read the table (csv.h), decide which rows are meant and what they belong to
 * (import_key.c), turn rows into samples (import_samples.c) or routes (import_routes.c).
 */
#ifndef ARF_CLI_IMPORT_H
#define ARF_CLI_IMPORT_H

#include "cli/columns.h"
#include "cli/csv.h"
#include "profile/samples.h"

/* What the command line says; -1 and NULL: nothing. */
typedef struct arf_import_options {
    const char *from, *path, *like, *output;
    const char *set, *gpu, *capability, *sms, *link, *nodes, *policy;
    int64_t hidden, top_k, ranks;
    bool no_norm, no_residual, no_shared;
} arf_import_options;

typedef struct arf_import {
    const arf_import_options *options;
    arf_csv csv;
    int column[ARF_COLUMNS]; /* -1: the table has none */
    arf_profile *like;       /* NULL: none was named */
    bool *wanted;            /* [csv.rows] */
    arf_samples_header key;  /* whom the wanted rows belong to */
} arf_import;

/* Cells by role, and a refusal that names the row's line. */
const char *arf_import_cell(const arf_import *import, int row, arf_column column);
arfuse_status arf_import_refuse(const arf_import *import, int row, arf_error *error,
                                const char *format, ...) __attribute__((format(printf, 4, 5)));
/* A whole number of a cell; absent (no column, or empty) leaves *number alone. */
arfuse_status arf_import_integer(const arf_import *import, int row, arf_column column, int64_t low,
                                 int64_t high, int64_t *number, arf_error *error);
/* The pattern of a row, by our name or by what public sweeps call it. */
arfuse_status arf_import_pattern(const arf_import *import, int row, arf_pattern *pattern,
                                 arf_error *error);

/* Chooses rows and fills `wanted` and `key` from options, columns and the profile alike; two that
 * contradict each other are refused. */
arfuse_status arf_import_key(arf_import *import, arf_error *error);

/* Protocol, transport, numerics and tuning of a row. False with no error: the kernel set has no
 * such protocol, the row is to be left out. */
arfuse_status arf_import_plan(const arf_import *import, int row, arf_pattern pattern,
                              int64_t tokens, arf_plan *plan, bool *known, arf_error *error);

arfuse_status arf_import_samples(arf_import *import, arf_samples **samples, arf_error *error);
arfuse_status arf_import_routes(arf_import *import, arf_profile **profile, arf_error *error);

#endif
