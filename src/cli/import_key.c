/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rows of a table belong to. A fact (kernel set, device, ...) may stand in a column, in an
 * option, or in the profile named by --like; where two of them speak, they must agree.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"
#include "cli/import.h"
#include "profile/parts.h"
#include "rules/knobs.h"

#define FACT 128

/* ---- rows ---------------------------------------------------------------------------------------
 */

typedef struct row_shape {
    int64_t ranks, hidden, top_k; /* -1: neither the row nor an option says */
    arf_pattern pattern;
} row_shape;

static arfuse_status shape_of(const arf_import *import, int row, row_shape *shape, arf_error *error)
{
    *shape = (row_shape){import->options->ranks, import->options->hidden, import->options->top_k,
                         ARF_ALLREDUCE};
    if (import->like != NULL) {
        const arf_shape *like = &import->like->shape;
        shape->ranks = shape->ranks < 0 ? like->tp_size : shape->ranks;
        shape->hidden = shape->hidden < 0 ? like->hidden_size : shape->hidden;
        shape->top_k = shape->top_k < 0 ? like->top_k : shape->top_k;
    }
    ARF_TRY(arf_import_pattern(import, row, &shape->pattern, error));
    ARF_TRY(arf_import_integer(import, row, ARF_COL_TP, 1, ARF_MAX_RANKS, &shape->ranks, error));
    ARF_TRY(arf_import_integer(import, row, ARF_COL_HIDDEN, ARF_MIN_HIDDEN, ARF_MAX_HIDDEN,
                               &shape->hidden, error));
    ARF_TRY(arf_import_integer(import, row, ARF_COL_TOP_K, 0, ARF_MAX_TOP_K, &shape->top_k, error));
    const char *dtype = arf_import_cell(import, row, ARF_COL_DTYPE);
    if (dtype[0] != '\0' && strcasecmp(dtype, "bf16") != 0 && strcasecmp(dtype, "bfloat16") != 0)
        return arf_import_refuse(import, row, error, "dtype '%s', expected bf16", dtype);
    return ARFUSE_OK;
}

/* A list of the values met, for the message that asks which is meant. */
static void remember(arf_text *list, int64_t *seen, int *count, int64_t value)
{
    for (int i = 0; i < *count; i++)
        if (seen[i] == value)
            return;
    if (*count == 16)
        return;
    seen[(*count)++] = value;
    arf_text_add(list, "%s%lld", *count > 1 ? ", " : "", (long long)value);
}

/* The one value that the rows leave of a number of the shape; refused when there are several. */
static arfuse_status only_one(const arf_import *import, const row_shape *rows, size_t field,
                              int pattern, const char *what, const char *option, int64_t *value,
                              arf_error *error)
{
    arf_text list = {0};
    int64_t seen[16];
    int count = 0;
    for (int i = 0; i < import->csv.rows; i++)
        if (import->wanted[i] && (pattern < 0 || (int)rows[i].pattern == pattern))
            remember(&list, seen, &count,
                     *(const int64_t *)(const void *)((const char *)&rows[i] + field));
    arfuse_status status = ARFUSE_OK;
    if (count > 1)
        status =
            arf_fail(error, ARFUSE_PROFILE, "%s: rows of %s %s, expected one; say which with --%s",
                     import->options->path, what, list.data, option);
    else if (count == 1 && seen[0] < 0)
        status = arf_fail(error, ARFUSE_PROFILE, "%s: no column of %s, expected one, or --%s",
                          import->options->path, what, option);
    else if (count == 1)
        *value = seen[0];
    arf_text_free(&list);
    return status;
}

static void narrow(arf_import *import, const row_shape *rows, size_t field, int64_t value)
{
    for (int i = 0; i < import->csv.rows && value >= 0; i++)
        if (*(const int64_t *)(const void *)((const char *)&rows[i] + field) != value)
            import->wanted[i] = false;
}

/*
 * The allreduce pattern does not depend on K, so a sweep over several K times it once, under the
 * first. Rows of the wanted K are taken if there are any, else all.
 */
static void narrow_top_k(arf_import *import, const row_shape *rows, int64_t top_k)
{
    bool own = false;
    for (int i = 0; i < import->csv.rows; i++)
        own |= import->wanted[i] && rows[i].pattern == ARF_ALLREDUCE && rows[i].top_k == top_k;
    for (int i = 0; i < import->csv.rows; i++)
        if (rows[i].top_k != top_k && (rows[i].pattern == ARF_FINALIZE || own))
            import->wanted[i] = false;
}

static bool any(const arf_import *import, const row_shape *rows, int pattern)
{
    for (int i = 0; i < import->csv.rows; i++)
        if (import->wanted[i] && (pattern < 0 || (int)rows[i].pattern == pattern))
            return true;
    return false;
}

static arfuse_status choose_rows(arf_import *import, row_shape *rows, arf_error *error)
{
    const arf_import_options *o = import->options;
    const arf_shape *like = import->like != NULL ? &import->like->shape : NULL;
    int64_t ranks = o->ranks >= 0 ? o->ranks : like != NULL ? like->tp_size : -1;
    int64_t hidden = o->hidden >= 0 ? o->hidden : like != NULL ? like->hidden_size : -1;
    int64_t top_k = o->top_k >= 0 ? o->top_k : like != NULL ? like->top_k : -1;
    for (int i = 0; i < import->csv.rows; i++) {
        ARF_TRY(shape_of(import, i, &rows[i], error));
        import->wanted[i] = true;
    }
    narrow(import, rows, offsetof(row_shape, ranks), ranks);
    narrow(import, rows, offsetof(row_shape, hidden), hidden);
    if (any(import, rows, -1)) {
        ARF_TRY(
            only_one(import, rows, offsetof(row_shape, ranks), -1, "tp_size", "tp", &ranks, error));
        ARF_TRY(only_one(import, rows, offsetof(row_shape, hidden), -1, "hidden_size", "hidden",
                         &hidden, error));
        if (top_k < 0)
            ARF_TRY(only_one(import, rows, offsetof(row_shape, top_k),
                             any(import, rows, ARF_FINALIZE) ? ARF_FINALIZE : -1, "top_k", "topk",
                             &top_k, error));
        narrow_top_k(import, rows, top_k);
    }
    if (!any(import, rows, -1))
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: none of %d rows is of tp_size %lld, hidden_size %lld, top_k %lld",
                        o->path, import->csv.rows, (long long)ranks, (long long)hidden,
                        (long long)top_k);
    import->key.shape.tp_size = (int)ranks;
    import->key.shape.hidden_size = (int)hidden;
    import->key.shape.top_k = (int)top_k;
    return ARFUSE_OK;
}

/* ---- facts --------------------------------------------------------------------------------------
 */

/* The one value of a column in the wanted rows; "" when there is no column or nothing in it. */
static arfuse_status column_fact(const arf_import *import, arf_column column, char fact[FACT],
                                 arf_error *error)
{
    int first = -1;
    fact[0] = '\0';
    if (import->column[column] < 0)
        return ARFUSE_OK;
    for (int i = 0; i < import->csv.rows; i++) {
        if (!import->wanted[i])
            continue;
        const char *cell = arf_import_cell(import, i, column);
        if (first >= 0 && strcmp(cell, arf_import_cell(import, first, column)) != 0)
            return arf_import_refuse(import, i, error, "%s '%s', expected '%s' as in line %d",
                                     import->csv.name[import->column[column]], cell,
                                     arf_import_cell(import, first, column),
                                     import->csv.line[first]);
        first = i;
    }
    if (strlen(arf_import_cell(import, first, column)) >= FACT)
        return arf_import_refuse(import, first, error, "%s is longer than %d characters",
                                 import->csv.name[import->column[column]], FACT - 1);
    strcpy(fact, arf_import_cell(import, first, column));
    return ARFUSE_OK;
}

/* Option, column and like must agree as far as they speak; `fallback` where none does. */
static arfuse_status fact(const arf_import *import, arf_column column, const char *option_name,
                          const char *option, const char *like, const char *fallback,
                          char value[FACT], arf_error *error)
{
    char cell[FACT];
    ARF_TRY(column_fact(import, column, cell, error));
    const struct {
        const char *text, *where;
    } source[] = {
        {option != NULL ? option : "", option_name}, {cell, "the table"}, {like, "--like"}};
    const char *chosen = "", *where = "";
    for (int i = 0; i < 3; i++) {
        if (source[i].text[0] == '\0')
            continue;
        if (chosen[0] != '\0' && strcmp(chosen, source[i].text) != 0)
            return arf_fail(error, ARFUSE_PROFILE, "%s: %s '%s' by %s, but '%s' by %s",
                            import->options->path, arf_column_names[column][0], chosen, where,
                            source[i].text, source[i].where);
        chosen = source[i].text;
        where = source[i].where;
    }
    snprintf(value, FACT, "%s", chosen[0] != '\0' ? chosen : fallback);
    return ARFUSE_OK;
}

static arfuse_status bad_fact(const arf_import *import, arf_column column, const char *value,
                              const char *expected, arf_error *error)
{
    return arf_fail(error, ARFUSE_PROFILE, "%s: %s '%s', expected %s", import->options->path,
                    arf_column_names[column][0], value, expected);
}

static arfuse_status set_and_policy(arf_import *import, arf_error *error)
{
    const arf_import_options *o = import->options;
    const arf_profile *like = import->like;
    char value[FACT];
    ARF_TRY(fact(import, ARF_COL_SET, "--set", o->set, like ? arf_set_name(like->set) : "", "",
                 value, error));
    if (value[0] == '\0')
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: nothing says whose kernels were timed, expected --set NAME or --like "
                        "PROFILE",
                        o->path);
    if (!arf_set_parse(value, &import->key.set))
        return bad_fact(import, ARF_COL_SET, value,
                        "flashinfer, sglang, tokenspeed, arfuse or arfuse-host", error);
    bool has_policy = like != NULL && like->evidence.has_policy;
    ARF_TRY(fact(import, ARF_COL_POLICY, "--policy", o->policy,
                 has_policy ? arf_policy_name(like->evidence.policy) : "", "warm", value, error));
    if (!arf_policy_parse(value, &import->key.policy))
        return bad_fact(import, ARF_COL_POLICY, value, "warm or decode", error);
    return ARFUSE_OK;
}

static const char *switch_text(arf_switch value)
{
    return value == ARF_ON ? "true" : value == ARF_OFF ? "false" : "";
}

static arfuse_status switches(arf_import *import, arf_error *error)
{
    const arf_import_options *o = import->options;
    const arf_shape *like = import->like != NULL ? &import->like->shape : NULL;
    const struct {
        arf_column column;
        const char *option;
        bool off;
        arf_switch like, *to;
    } list[] = {
        {ARF_COL_NORM, "--no-norm", o->no_norm, like ? like->rms_norm : ARF_EITHER,
         &import->key.shape.rms_norm},
        {ARF_COL_RESIDUAL, "--no-residual", o->no_residual, like ? like->residual : ARF_EITHER,
         &import->key.shape.residual},
        {ARF_COL_SHARED, "--no-shared-expert", o->no_shared,
         like ? like->shared_expert : ARF_EITHER, &import->key.shape.shared_expert},
    };
    for (int i = 0; i < 3; i++) {
        char value[FACT];
        ARF_TRY(fact(import, list[i].column, list[i].option, list[i].off ? "false" : NULL,
                     switch_text(list[i].like), "true", value, error));
        /* A published table of routes may serve both; import_routes.c takes that up. */
        bool either = list[i].column == ARF_COL_NORM && import->column[ARF_COL_MAX] >= 0 &&
                      strcasecmp(value, "either") == 0;
        if (strcasecmp(value, "true") != 0 && strcasecmp(value, "false") != 0 && !either)
            return bad_fact(import, list[i].column, value, "true or false", error);
        *list[i].to = strcasecmp(value, "true") == 0 ? ARF_ON : ARF_OFF;
    }
    return ARFUSE_OK;
}

static arfuse_status number_fact(const arf_import *import, arf_column column, const char *option,
                                 const char *given, const arf_profile *like, int like_value,
                                 const char *fallback, int64_t low, int64_t high, int *number,
                                 arf_error *error)
{
    char like_text[32] = "", value[FACT], expected[64];
    int64_t wide = 0;
    if (like != NULL)
        snprintf(like_text, sizeof like_text, "%d", like_value);
    ARF_TRY(fact(import, column, option, given, like_text, fallback, value, error));
    snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)low,
             (long long)high);
    if (!arf_cli_number(value, low, high, &wide))
        return bad_fact(import, column, value, expected, error);
    *number = (int)wide;
    return ARFUSE_OK;
}

static arfuse_status device(arf_import *import, arf_error *error)
{
    const arf_import_options *o = import->options;
    const arf_profile *like = import->like;
    const arf_device_key *known = like != NULL ? &like->device : NULL;
    arf_device_key *d = &import->key.device;
    char value[FACT], capability[32] = "";
    int used = 0;
    ARF_TRY(
        fact(import, ARF_COL_DEVICE, "--gpu", o->gpu, known ? known->name : "", "", value, error));
    if (value[0] == '\0')
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: nothing says what was timed, expected --gpu NAME --capability N.N "
                        "--sms N, or --like PROFILE",
                        o->path);
    arf_device_name(value, d->name);
    if (known != NULL)
        snprintf(capability, sizeof capability, "%d.%d", known->capability_major,
                 known->capability_minor);
    ARF_TRY(fact(import, ARF_COL_CAPABILITY, "--capability", o->capability, capability, "", value,
                 error));
    if (sscanf(value, "%2d.%2d%n", &d->capability_major, &d->capability_minor, &used) != 2 ||
        value[used] != '\0')
        return bad_fact(import, ARF_COL_CAPABILITY, value, "two numbers such as 10.3", error);
    ARF_TRY(fact(import, ARF_COL_LINK, "--link", o->link, known ? arf_link_name(known->link) : "",
                 "nvlink", value, error));
    if (!arf_link_parse(value, &d->link))
        return bad_fact(import, ARF_COL_LINK, value, "nvlink, pcie, shared-gpu, shm or model",
                        error);
    ARF_TRY(number_fact(import, ARF_COL_SMS, "--sms", o->sms, like, known ? known->sm_count : 0, "",
                        0, ARF_MAX_SM_COUNT, &d->sm_count, error));
    ARF_TRY(number_fact(import, ARF_COL_NODES, "--nodes", o->nodes, like, known ? known->nodes : 0,
                        "1", 1, ARF_MAX_RANKS, &d->nodes, error));
    return number_fact(import, ARF_COL_RANKS_PER_GPU, "", NULL, like,
                       known ? known->ranks_per_gpu : 0, "1", 1, ARF_MAX_RANKS, &d->ranks_per_gpu,
                       error);
}

/* Where our own tables say more. */
static arfuse_status provenance(arf_import *import, arf_error *error)
{
    char value[FACT];
    int64_t seed = 0;
    const struct {
        arf_column column;
        char *to;
    } text[] = {{ARF_COL_TOOL, import->key.tool},
                {ARF_COL_DRIVER, import->key.driver},
                {ARF_COL_DIGEST, import->key.source_digest}};
    for (int i = 0; i < 3; i++) {
        ARF_TRY(column_fact(import, text[i].column, value, error));
        if (strlen(value) >= ARF_NAME_TEXT)
            return bad_fact(import, text[i].column, value, "at most 63 characters", error);
        strcpy(text[i].to, value);
    }
    if (import->key.tool[0] == '\0')
        snprintf(import->key.tool, ARF_NAME_TEXT, "arfuse-profile %s import", arfuse_version());
    ARF_TRY(column_fact(import, ARF_COL_FORMAT, value, error));
    if (strncmp(value, "arfuse-", 7) == 0 && strcmp(value, ARF_CSV_SAMPLES) != 0 &&
        strcmp(value, ARF_CSV_ROUTES) != 0)
        return bad_fact(import, ARF_COL_FORMAT, value, ARF_CSV_SAMPLES " or " ARF_CSV_ROUTES,
                        error);
    ARF_TRY(column_fact(import, ARF_COL_SEED, value, error));
    if (value[0] != '\0' && !arf_cli_number(value, 0, (INT64_C(1) << 53) - 1, &seed))
        return bad_fact(import, ARF_COL_SEED, value, "a whole number", error);
    import->key.seed = (uint64_t)seed;
    return ARFUSE_OK;
}

/* ---- the whole ----------------------------------------------------------------------------------
 */

static arfuse_status check_columns(const arf_import *import, arf_error *error)
{
    static const arf_column needed[] = {ARF_COL_PATTERN, ARF_COL_PROTOCOL};
    for (int i = 0; i < 2; i++)
        if (import->column[needed[i]] < 0)
            return arf_fail(error, ARFUSE_PROFILE, "%s: no column '%s' (or '%s')",
                            import->options->path, arf_column_names[needed[i]][0],
                            arf_column_names[needed[i]][1]);
    bool routes = import->column[ARF_COL_MAX] >= 0;
    bool times = import->column[ARF_COL_US] >= 0 || import->column[ARF_COL_ROUNDS_US] >= 0;
    if (!routes && (import->column[ARF_COL_TOKENS] < 0 || !times))
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: no column '%s', expected 'tokens' (or m) and 'us' (or median_us), or "
                        "'max_tokens' for a table of routes",
                        import->options->path,
                        import->column[ARF_COL_TOKENS] < 0 ? "tokens" : "us");
    return ARFUSE_OK;
}

static arfuse_status versions(arf_import *import, arf_error *error)
{
    for (int i = 0; i < import->csv.rows; i++) {
        arf_protocol protocol;
        if (!import->wanted[i] ||
            !arf_protocol_parse(arf_import_cell(import, i, ARF_COL_PROTOCOL), &protocol))
            continue;
        int64_t version = arf_protocol_version(import->key.set, protocol);
        ARF_TRY(arf_import_integer(import, i, ARF_COL_VERSION, 1, version, &version, error));
        if (import->key.version[protocol] != 0 && import->key.version[protocol] != version)
            return arf_import_refuse(import, i, error, "tuning_version %lld, %d in a line before",
                                     (long long)version, import->key.version[protocol]);
        import->key.version[protocol] = (int)version;
    }
    return ARFUSE_OK;
}

arfuse_status arf_import_key(arf_import *import, arf_error *error)
{
    ARF_TRY(check_columns(import, error));
    import->wanted = calloc((size_t)import->csv.rows, sizeof *import->wanted);
    row_shape *rows = calloc((size_t)import->csv.rows, sizeof *rows);
    arfuse_status status = import->wanted != NULL && rows != NULL
                               ? choose_rows(import, rows, error)
                               : arf_fail(error, ARFUSE_FAILURE, "out of memory");
    free(rows);
    ARF_TRY(status);
    ARF_TRY(set_and_policy(import, error));
    ARF_TRY(switches(import, error));
    ARF_TRY(device(import, error));
    ARF_TRY(versions(import, error));
    return provenance(import, error);
}
