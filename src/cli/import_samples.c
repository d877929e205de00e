/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows to samples. Rows of one point are rounds of it, so that the tables of several runs may be
 * put behind each other. A row whose time is empty or nan is a failure, and a point with a failure
 * is a failed point whatever its other rows say: no route may cross what does not always run.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"
#include "cli/import.h"
#include "cli/plan_text.h"
#include "profile/parts.h"
#include "rules/knobs.h"

#define MAX_ROWS 50000
#define MAX_NAMES 16

/* Names in the protocol column that stand for nothing that the kernel set has. */
typedef struct strangers {
    char name[MAX_NAMES][32];
    int rows[MAX_NAMES];
    int count;
} strangers;

static void meet(strangers *list, const char *name)
{
    int i = 0;
    while (i < list->count && strncmp(list->name[i], name, sizeof list->name[i] - 1) != 0)
        i++;
    if (i == MAX_NAMES)
        i--;
    if (i == list->count) {
        snprintf(list->name[i], sizeof list->name[i], "%s", name);
        list->count++;
    }
    list->rows[i]++;
}

/* ---- plans --------------------------------------------------------------------------------------
 */

/* "bt1" is protocol bt and number 1; "bt" has number -1. */
static bool split_name(const char *cell, arf_protocol *protocol, int64_t *number)
{
    char name[32];
    size_t length = strlen(cell);
    while (length > 0 && isdigit((unsigned char)cell[length - 1]))
        length--;
    if (length == 0 || length >= sizeof name)
        return false;
    for (size_t i = 0; i <= length; i++)
        name[i] = i < length ? (char)tolower((unsigned char)cell[i]) : '\0';
    *number = -1;
    return arf_protocol_parse(name, protocol) &&
           (cell[length] == '\0' || arf_cli_number(cell + length, 0, ARF_MAX_ROUTES, number));
}

/*
 * The tuning behind a name, from the routes of the profile alike: with a number, that route of the
 * protocol; without, the one that serves the tokens, or the nearest, since a sweep that pins a
 * protocol stretches its first and last route.
 */
static const arf_plan *plan_alike(const arf_routes *routes, arf_protocol protocol, int64_t number,
                                  int64_t tokens)
{
    const arf_plan *found = NULL;
    int64_t met = 0;
    for (int i = 0; i < routes->count; i++) {
        if (routes->route[i].plan.protocol != protocol)
            continue;
        if (number >= 0 && met++ != number)
            continue;
        found = &routes->route[i].plan;
        if (number >= 0 || routes->route[i].max_tokens >= tokens)
            return found;
    }
    return number >= 0 ? NULL : found;
}

static arfuse_status take_tuning(const arf_import *import, int row, arf_pattern pattern,
                                 int64_t tokens, int64_t number, arf_plan *plan, arf_error *error)
{
    const char *cell = arf_import_cell(import, row, ARF_COL_TUNING);
    const char *name = arf_import_cell(import, row, ARF_COL_PROTOCOL);
    arf_error local = ARF_ERROR_INIT;
    if (cell[0] != '\0' || import->like == NULL) {
        if (number >= 0 && cell[0] == '\0')
            return arf_import_refuse(import, row, error,
                                     "'%s' is one of several tunings of %s; name a profile that "
                                     "has them with --like",
                                     name, arf_protocol_name(plan->protocol));
        if (arf_plan_tuning_parse(import->key.set, pattern, cell, plan, &local) != ARFUSE_OK)
            return arf_import_refuse(import, row, error, "%s", local.text);
        return ARFUSE_OK;
    }
    const arf_plan *alike =
        plan_alike(&import->like->routes[pattern], plan->protocol, number, tokens);
    if (alike == NULL && number >= 0)
        return arf_import_refuse(import, row, error, "'%s', but %s has fewer routes of %s for %s",
                                 name, import->options->like, arf_protocol_name(plan->protocol),
                                 arf_pattern_name(pattern));
    if (alike != NULL)
        *plan = *alike;
    else
        plan->tuning_null = true;
    return ARFUSE_OK;
}

/* What the row says of transport and numerics; else what the kernel set's plans have. */
static arfuse_status take_promise(const arf_import *import, int row, arf_plan *plan,
                                  arf_error *error)
{
    const char *transport = arf_import_cell(import, row, ARF_COL_TRANSPORT);
    const char *numerics = arf_import_cell(import, row, ARF_COL_NUMERICS);
    if (transport[0] != '\0' && !arf_transport_parse(transport, &plan->transport))
        return arf_import_refuse(import, row, error,
                                 "transport '%s', expected unicast or multicast-store", transport);
    if (numerics[0] != '\0' && !arf_numerics_parse(numerics, &plan->numerics))
        return arf_import_refuse(import, row, error,
                                 "numerics '%s', expected fixed, in-network or library", numerics);
    return ARFUSE_OK;
}

arfuse_status arf_import_plan(const arf_import *import, int row, arf_pattern pattern,
                              int64_t tokens, arf_plan *plan, bool *known, arf_error *error)
{
    arf_protocol protocol;
    int64_t number;
    *known = split_name(arf_import_cell(import, row, ARF_COL_PROTOCOL), &protocol, &number) &&
             arf_knobs(import->key.set, protocol, pattern)->supported;
    if (!*known)
        return ARFUSE_OK;
    *plan = arf_least_plan(import->key.set, pattern, protocol);
    ARF_TRY(take_tuning(import, row, pattern, tokens, number, plan, error));
    return take_promise(import, row, plan, error);
}

/* ---- times --------------------------------------------------------------------------------------
 */

static arfuse_status take_time(const arf_import *import, int row, const char *cell,
                               arf_sample *sample, arf_error *error)
{
    char *end = NULL;
    if (cell[0] == '\0' || strcasecmp(cell, "nan") == 0) {
        sample->outcome = ARF_SAMPLE_FAILED;
        snprintf(sample->reason, sizeof sample->reason, "no time in the table");
        return ARFUSE_OK;
    }
    double us = strtod(cell, &end);
    if (cell[strspn(cell, "0123456789.eE+-")] != '\0' || *end != '\0' || !(us > 0) ||
        us > ARF_MAX_US)
        return arf_import_refuse(import, row, error,
                                 "time '%s', expected microseconds above 0, or nan for a failure",
                                 cell);
    if (sample->rounds == ARF_MAX_ROUNDS)
        return arf_import_refuse(import, row, error, "more than %d times of one point",
                                 ARF_MAX_ROUNDS);
    sample->us[sample->rounds++] = us;
    return ARFUSE_OK;
}

static arfuse_status take_times(const arf_import *import, int row, arf_sample *sample,
                                arf_error *error)
{
    const char *rounds = arf_import_cell(import, row, ARF_COL_ROUNDS_US);
    if (rounds[0] == '\0')
        return take_time(import, row, arf_import_cell(import, row, ARF_COL_US), sample, error);
    while (*rounds != '\0') {
        char word[40];
        size_t length = strcspn(rounds, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, rounds);
        ARF_TRY(take_time(import, row, word, sample, error));
        rounds += length + strspn(rounds + length, " ");
    }
    return ARFUSE_OK;
}

static arfuse_status take_outcome(const arf_import *import, int row, arf_sample *sample,
                                  arf_error *error)
{
    const char *outcome = arf_import_cell(import, row, ARF_COL_OUTCOME);
    snprintf(sample->reason, sizeof sample->reason, "%s",
             arf_import_cell(import, row, ARF_COL_REASON));
    if (outcome[0] == '\0' || strcmp(outcome, "timed") == 0)
        return take_times(import, row, sample, error);
    if (strcmp(outcome, "wrong") == 0)
        sample->outcome = ARF_SAMPLE_WRONG;
    else if (strcmp(outcome, "failed") == 0)
        sample->outcome = ARF_SAMPLE_FAILED;
    else
        return arf_import_refuse(import, row, error,
                                 "outcome '%s', expected timed, wrong or failed", outcome);
    return ARFUSE_OK;
}

static arfuse_status take_clock(const arf_import *import, int row, arf_sample *sample,
                                arf_error *error)
{
    const char *throttle = arf_import_cell(import, row, ARF_COL_THROTTLE);
    int64_t mhz = 0;
    ARF_TRY(arf_import_integer(import, row, ARF_COL_CLOCK, 1, ARF_MAX_MHZ, &mhz, error));
    sample->clock_mhz = (int)mhz;
    if (strlen(throttle) >= sizeof sample->throttle)
        return arf_import_refuse(import, row, error, "throttle is longer than %zu characters",
                                 sizeof sample->throttle - 1);
    strcpy(sample->throttle, throttle);
    return ARFUSE_OK;
}

static arfuse_status take_then(const arf_import *import, int row, arf_sample *sample,
                               arf_error *error)
{
    const char *cell = arf_import_cell(import, row, ARF_COL_THEN);
    arf_error local = ARF_ERROR_INIT;
    sample->has_then = sample->plan.protocol == ARF_SEPARATE;
    if (!sample->has_then)
        return ARFUSE_OK;
    if (arf_plan_parse(import->key.set, ARF_ALLREDUCE, cell, &sample->then, &local) != ARFUSE_OK)
        return arf_import_refuse(import, row, error,
                                 "then: %s (the allreduce plan behind a separate finalize)",
                                 local.text);
    return ARFUSE_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------
 */

static arfuse_status check_legal(const arf_import *import, int row, const arf_sample *sample,
                                 arf_error *error)
{
    const arf_problem problem = {.set = import->key.set,
                                 .shape = import->key.shape,
                                 .sm_count = import->key.device.sm_count};
    arf_error local = ARF_ERROR_INIT;
    if (arf_check_plan(&problem, import->key.version, sample->pattern, &sample->plan,
                       arf_set_public(import->key.set), "plan", &local) == ARFUSE_OK)
        return ARFUSE_OK;
    return arf_import_refuse(import, row, error, "%s", local.text);
}

/* Another row of a point that is there: its times join, and the worse outcome stays. */
static arfuse_status join(const arf_import *import, int row, const arf_sample *old, arf_sample *new,
                          arf_error *error)
{
    double us[ARF_MAX_ROUNDS];
    bool timed = old->outcome == ARF_SAMPLE_TIMED && new->outcome == ARF_SAMPLE_TIMED;
    if (!timed) {
        if (old->outcome == ARF_SAMPLE_WRONG || new->outcome == ARF_SAMPLE_TIMED) {
            new->outcome = old->outcome;
            memcpy(new->reason, old->reason, sizeof new->reason);
        }
        return ARFUSE_OK;
    }
    if (old->rounds + new->rounds > ARF_MAX_ROUNDS)
        return arf_import_refuse(import, row, error, "more than %d times of one point",
                                 ARF_MAX_ROUNDS);
    arf_sample_join_clocks(new, old);
    memcpy(us, old->us, (size_t)old->rounds * sizeof *us);
    memcpy(us + old->rounds, new->us, (size_t) new->rounds * sizeof *us);
    new->rounds += old->rounds;
    memcpy(new->us, us, (size_t) new->rounds * sizeof *us);
    return ARFUSE_OK;
}

static arfuse_status take_row(const arf_import *import, int row, arf_samples *samples,
                              strangers *strange, int *repeated, arf_error *error)
{
    double us[ARF_MAX_ROUNDS];
    arf_sample sample = {.us = us};
    bool known = false;
    int64_t calls = 0;
    ARF_TRY(arf_import_pattern(import, row, &sample.pattern, error));
    if (arf_import_cell(import, row, ARF_COL_TOKENS)[0] == '\0')
        return arf_import_refuse(import, row, error, "no tokens, expected a whole number");
    ARF_TRY(
        arf_import_integer(import, row, ARF_COL_TOKENS, 1, ARF_MAX_TOKENS, &sample.tokens, error));
    ARF_TRY(
        arf_import_plan(import, row, sample.pattern, sample.tokens, &sample.plan, &known, error));
    if (!known) {
        meet(strange, arf_import_cell(import, row, ARF_COL_PROTOCOL));
        return ARFUSE_OK;
    }
    ARF_TRY(take_then(import, row, &sample, error));
    ARF_TRY(take_outcome(import, row, &sample, error));
    ARF_TRY(arf_import_integer(import, row, ARF_COL_CALLS, 0, 1000000, &calls, error));
    sample.calls = (int)calls;
    ARF_TRY(take_clock(import, row, &sample, error));
    ARF_TRY(check_legal(import, row, &sample, error));
    const arf_sample *old = arf_samples_find(samples, sample.pattern, sample.tokens, &sample.plan);
    if (old != NULL) {
        ++*repeated;
        ARF_TRY(join(import, row, old, &sample, error));
    }
    if (sample.outcome != ARF_SAMPLE_TIMED)
        sample.rounds = 0;
    return arf_samples_add(samples, &sample, error);
}

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

/* What was taken, and what was not, in words. */
static void report(const arf_import *import, const arf_samples *samples, const strangers *strange,
                   int repeated)
{
    const char *path = import->options->path;
    int left = 0;
    for (int i = 0; i < import->csv.rows; i++)
        left += !import->wanted[i];
    if (left > 0)
        arf_complain("%s: note: %d row%s of another shape left out", path, left, plural(left));
    for (int i = 0; i < strange->count; i++)
        arf_complain("%s: note: %d row%s of '%s' left out: kernel set %s has no such protocol",
                     path, strange->rows[i], plural(strange->rows[i]), strange->name[i],
                     arf_set_name(import->key.set));
    if (repeated > 0)
        arf_complain("%s: note: %d row%s repeat a point and were taken as further rounds of it",
                     path, repeated, plural(repeated));
    for (int pattern = 0; pattern < ARF_PATTERNS && samples->count > 0; pattern++)
        for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++) {
            int points = 0, failed = 0;
            if (!arf_knobs(import->key.set, (arf_protocol)protocol, (arf_pattern)pattern)
                     ->supported)
                continue;
            for (int i = 0; i < samples->count; i++) {
                const arf_sample *sample = &samples->sample[i];
                if ((int)sample->pattern != pattern || (int)sample->plan.protocol != protocol)
                    continue;
                points++;
                failed += sample->outcome != ARF_SAMPLE_TIMED;
            }
            if (points == 0)
                arf_complain("%s: note: no row of %s for %s: no route can use it", path,
                             arf_protocol_name((arf_protocol)protocol),
                             arf_pattern_name((arf_pattern)pattern));
            else if (failed > 0)
                arf_complain("%s: note: %d of %d points of %s for %s have no time", path, failed,
                             points, arf_protocol_name((arf_protocol)protocol),
                             arf_pattern_name((arf_pattern)pattern));
        }
}

/* A version for every protocol that has rows by another name ("bt1"). */
static void complete_versions(arf_samples_header *key)
{
    for (int i = 0; i < ARF_PROTOCOLS; i++)
        if (key->version[i] == 0)
            key->version[i] = arf_protocol_version(key->set, (arf_protocol)i);
}

arfuse_status arf_import_samples(arf_import *import, arf_samples **samples, arf_error *error)
{
    strangers strange = {0};
    int repeated = 0;
    arfuse_status status = ARFUSE_OK;
    if (import->csv.rows > MAX_ROWS)
        return arf_fail(error, ARFUSE_PROFILE, "%s: %d rows, expected at most %d",
                        import->options->path, import->csv.rows, MAX_ROWS);
    complete_versions(&import->key);
    arf_samples *made = arf_samples_new(&import->key);
    if (made == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory");
    for (int i = 0; i < import->csv.rows && status == ARFUSE_OK; i++)
        if (import->wanted[i])
            status = take_row(import, i, made, &strange, &repeated, error);
    if (status == ARFUSE_OK) {
        report(import, made, &strange, repeated);
        if (made->count == 0)
            status = arf_fail(error, ARFUSE_PROFILE,
                              "%s: no row of a protocol that kernel set %s "
                              "has, expected ll, bt or ht in column '%s'",
                              import->options->path, arf_set_name(import->key.set),
                              import->csv.name[import->column[ARF_COL_PROTOCOL]]);
    }
    if (status == ARFUSE_OK)
        *samples = made;
    else
        arf_samples_free(made);
    return status;
}
