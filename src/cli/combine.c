/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/combine.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "profile/lookup.h"
#include "rules/knobs.h"

/* A list longer than this helps nobody; what follows is counted. */
#define LISTED 20

static const char *const rule_names[ARF_DUPLICATES_RULES] = {"refuse", "first", "last", "faster",
                                                             "pool"};

const char *arf_duplicates_name(arf_duplicates rule)
{
    return rule_names[rule];
}

void arf_duplicates_take(struct argp_state *state, const char *name, arf_duplicates *rule)
{
    for (int i = 0; i < ARF_DUPLICATES_RULES; i++)
        if (strcmp(rule_names[i], name) == 0) {
            *rule = (arf_duplicates)i;
            return;
        }
    argp_error(state, "--duplicates '%s': expected refuse, first, last, faster or pool", name);
}

/* Files being joined. */
typedef struct join {
    arf_samples *into;
    arf_duplicates rule;
    int *origin; /* [into->room] which file a sample came from */
    char **path;
    int duplicates;
    int repeated; /* points whose rounds were there already */
} join;

/* ---- may they be joined at all? ----------------------------------------------------------------
 */

static arfuse_status check_header(const char *first_path, const arf_samples_header *first,
                                  const char *path, const arf_samples_header *header,
                                  arf_error *error)
{
    arf_profile_key key = {first->set, first->shape, first->device};
    arf_profile_key other = {header->set, header->shape, header->device};
    char text[ARF_REASON_TEXT], other_text[ARF_REASON_TEXT];
    if (first->set != header->set)
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: samples of kernel set %s, expected %s as in %s: times of one set's "
                        "kernels say nothing about another's",
                        path, arf_set_name(header->set), arf_set_name(first->set), first_path);
    if (!arf_profile_key_equal(&key, &other)) {
        arf_profile_key_text(&key, text, sizeof text);
        arf_profile_key_text(&other, other_text, sizeof other_text);
        return arf_fail(error, ARFUSE_PROFILE, "%s: samples of %s, expected those of %s as in %s",
                        path, other_text, text, first_path);
    }
    if (first->policy != header->policy)
        return arf_fail(error, ARFUSE_PROFILE,
                        "%s: samples of policy %s, expected %s as in %s: the operands stood "
                        "elsewhere, so the times do not compare",
                        path, arf_policy_name(header->policy), arf_policy_name(first->policy),
                        first_path);
    for (int i = 0; i < ARF_PROTOCOLS; i++)
        if (first->version[i] != header->version[i] && first->version[i] != 0 &&
            header->version[i] != 0)
            return arf_fail(error, ARFUSE_PROFILE,
                            "%s: tuning version %d of %s, expected %d as in %s", path,
                            header->version[i], arf_protocol_name((arf_protocol)i),
                            first->version[i], first_path);
    return ARFUSE_OK;
}

/* What differs but does not forbid: said once, and no longer claimed by the result. */
static void join_text(char *first, const char *other, const char *what, const char *path)
{
    if (strcmp(first, other) == 0 || strcmp(first, "several") == 0)
        return;
    arf_complain("%s: note: %s '%s', '%s' in the files before", path, what, other, first);
    strcpy(first, "several");
}

static void join_header(arf_samples_header *first, const arf_samples_header *header,
                        const char *path)
{
    for (int i = 0; i < ARF_PROTOCOLS; i++)
        if (first->version[i] == 0)
            first->version[i] = header->version[i];
    join_text(first->driver, header->driver, "driver", path);
    join_text(first->source_digest, header->source_digest, "kernel sources", path);
    join_text(first->library, header->library, "library", path);
}

/* ---- duplicates --------------------------------------------------------------------------------
 */

static bool same_result(const arf_sample *a, const arf_sample *b)
{
    return a->outcome == b->outcome && a->rounds == b->rounds &&
           (a->rounds == 0 || memcmp(a->us, b->us, (size_t)a->rounds * sizeof *a->us) == 0);
}

static void result_words(const arf_sample *sample, char *text, size_t size)
{
    if (sample->outcome == ARF_SAMPLE_TIMED)
        snprintf(text, size, "%.2f us", arf_sample_median(sample));
    else
        snprintf(text, size, "%s",
                 sample->outcome == ARF_SAMPLE_WRONG ? "a wrong result" : "a failure");
}

static void list_duplicate(const join *j, const arf_sample *old, int origin, const arf_sample *new,
                           int file)
{
    char tuning[256], before[32], after[32];
    if (j->duplicates > LISTED)
        return;
    arf_tuning_text(arf_knobs(j->into->header.set, new->plan.protocol, new->pattern),
                    &new->plan.tuning, tuning, sizeof tuning);
    result_words(old, before, sizeof before);
    result_words(new, after, sizeof after);
    arf_complain("%s %lld %s %s: %s in %s, %s in %s", arf_pattern_name(new->pattern),
                 (long long)new->tokens, arf_protocol_name(new->plan.protocol),
                 new->plan.tuning_null ? "(tuning not known)" : tuning, before, j->path[origin],
                 after, j->path[file]);
}

/* The rounds of the one stand in the other: a copy, or a file that was merged into it before.
 * Counted again they would pass for independent ones and make the noise look smaller than it is. */
static bool holds_rounds(const arf_sample *whole, const arf_sample *part)
{
    for (int i = 0; i + part->rounds <= whole->rounds; i++)
        if (memcmp(whole->us + i, part->us, (size_t)part->rounds * sizeof *part->us) == 0)
            return true;
    return false;
}

/* The rounds of both, the later ones as far as there is room. */
static void pool(const arf_sample *old, const arf_sample *new, arf_sample *pooled, double *us)
{
    *pooled = *old;
    pooled->us = us;
    arf_sample_join_clocks(pooled, new);
    memcpy(us, old->us, (size_t)old->rounds * sizeof *us);
    for (int i = 0; i < new->rounds && pooled->rounds < ARF_MAX_ROUNDS; i++)
        us[pooled->rounds++] = new->us[i];
}

static bool new_wins(arf_duplicates rule, const arf_sample *old, const arf_sample *new)
{
    bool timed = old->outcome == ARF_SAMPLE_TIMED, new_timed = new->outcome == ARF_SAMPLE_TIMED;
    if (old->outcome == ARF_SAMPLE_WRONG || new->outcome == ARF_SAMPLE_WRONG)
        return old->outcome != ARF_SAMPLE_WRONG;
    switch (rule) {
    case ARF_DUPLICATES_LAST:
        return true;
    case ARF_DUPLICATES_FASTER:
        return new_timed && (!timed || arf_sample_median(new) < arf_sample_median(old));
    case ARF_DUPLICATES_POOLED:
        return !new_timed;
    default:
        return false;
    }
}

static bool both_timed(const arf_sample *a, const arf_sample *b)
{
    return a->outcome == ARF_SAMPLE_TIMED && b->outcome == ARF_SAMPLE_TIMED;
}

static arfuse_status settle(const join *j, const arf_sample *old, const arf_sample *new,
                            arf_error *error)
{
    double us[ARF_MAX_ROUNDS];
    arf_sample pooled;
    if (j->rule == ARF_DUPLICATES_POOLED && both_timed(old, new)) {
        pool(old, new, &pooled, us);
        return arf_samples_add(j->into, &pooled, error);
    }
    return new_wins(j->rule, old, new) ? arf_samples_add(j->into, new, error) : ARFUSE_OK;
}

/* ---- joining -----------------------------------------------------------------------------------
 */

static arfuse_status join_sample(join *j, const arf_sample *sample, int file, arf_error *error)
{
    const arf_sample *old =
        arf_samples_find(j->into, sample->pattern, sample->tokens, &sample->plan);
    if (old == NULL) {
        ARF_TRY(arf_samples_add(j->into, sample, error));
        int *grown = realloc(j->origin, (size_t)j->into->room * sizeof *grown);
        if (grown == NULL)
            return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d samples", j->into->room);
        j->origin = grown;
        j->origin[j->into->count - 1] = file;
        return ARFUSE_OK;
    }
    bool timed = both_timed(old, sample), pooled = j->rule == ARF_DUPLICATES_POOLED;
    if (same_result(old, sample) || (pooled && timed && holds_rounds(old, sample))) {
        j->repeated += timed;
        return ARFUSE_OK;
    }
    if (pooled && timed && holds_rounds(sample, old)) {
        j->repeated++;
        return arf_samples_add(j->into, sample, error);
    }
    j->duplicates++;
    list_duplicate(j, old, j->origin[old - j->into->sample], sample, file);
    return settle(j, old, sample, error);
}

static arfuse_status join_file(join *j, const arf_samples *samples, int file, arf_error *error)
{
    if (file > 0) {
        ARF_TRY(check_header(j->path[0], &j->into->header, j->path[file], &samples->header, error));
        join_header(&j->into->header, &samples->header, j->path[file]);
    }
    for (int i = 0; i < samples->count; i++)
        ARF_TRY(join_sample(j, &samples->sample[i], file, error));
    return ARFUSE_OK;
}

/* What was done goes into the result, and from there into a profile that is fitted to it. */
static arfuse_status conclude(join *j, int count, arf_error *error)
{
    if (j->duplicates > LISTED)
        arf_complain("... and %d more", j->duplicates - LISTED);
    if (j->duplicates > 0 && j->rule == ARF_DUPLICATES_REFUSED)
        return arf_fail(error, ARFUSE_PROFILE,
                        "%d point%s timed differently by two files; say which counts: --duplicates "
                        "first, last, faster or pool",
                        j->duplicates, j->duplicates == 1 ? " is" : "s are");
    if (j->repeated > 0)
        arf_complain("note: %d point%s with the same rounds in two files, which count once",
                     j->repeated, j->repeated == 1 ? "" : "s");
    if (j->duplicates > 0)
        arf_complain("note: %d point%s in two files resolved by rule '%s'", j->duplicates,
                     j->duplicates == 1 ? "" : "s", arf_duplicates_name(j->rule));
    char done[32] = "";
    if (j->duplicates > 0)
        snprintf(done, sizeof done, ", %d by %s", j->duplicates, arf_duplicates_name(j->rule));
    snprintf(j->into->header.tool, ARF_NAME_TEXT, "arfuse-profile %s merge of %d%s",
             arfuse_version(), count, done);
    return ARFUSE_OK;
}

/* NULL when anything was refused; then *error says so, or, of a file alone, its reason is out. */
static arf_samples *join_files(char **paths, int count, arf_duplicates rule, arf_error *error)
{
    join j = {.rule = rule, .path = paths};
    arfuse_status status = ARFUSE_OK;
    for (int i = 0; i < count && status == ARFUSE_OK; i++) {
        arf_samples *samples = arf_cli_load_samples(paths[i]);
        if (samples == NULL) {
            status = ARFUSE_PROFILE;
            break;
        }
        if (count == 1)
            return samples;
        if (i == 0 && (j.into = arf_samples_new(&samples->header)) == NULL)
            status = arf_fail(error, ARFUSE_FAILURE, "out of memory");
        if (status == ARFUSE_OK)
            status = join_file(&j, samples, i, error);
        arf_samples_free(samples);
    }
    if (status == ARFUSE_OK)
        status = conclude(&j, count, error);
    free(j.origin);
    if (status == ARFUSE_OK)
        return j.into;
    arf_samples_free(j.into);
    return NULL;
}

int arf_combine_files(char **paths, int count, arf_duplicates rule, arf_combine_use use,
                      const void *context)
{
    arf_error error = ARF_ERROR_INIT;
    arf_samples *samples = join_files(paths, count, rule, &error);
    if (samples != NULL)
        use(samples, context, &error);
    if (error.status != ARFUSE_OK)
        arf_complain("%s", error.text);
    else if (samples == NULL)
        error.status = ARFUSE_PROFILE;
    arf_samples_free(samples);
    return (int)error.status;
}
