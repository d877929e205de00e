/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "profile/write.h"
#include "rules/knobs.h"
#include "tune/share.h"
#include "tune/stop.h"
#include "tune/voice.h"

static bool is_first(const arf_tuner *tuner)
{
    return tuner->group->rank == 0;
}

arfuse_status arf_samples_path(const char *profile_path, char path[ARF_PATH_TEXT], arf_error *error)
{
    size_t stem = strlen(profile_path);
    if (stem > 5 && strcmp(profile_path + stem - 5, ".json") == 0)
        stem -= 5;
    if (snprintf(path, ARF_PATH_TEXT, "%.*s.samples.jsonl", (int)stem, profile_path) >=
        ARF_PATH_TEXT)
        return arf_fail(error, ARFUSE_USAGE, "%s: the path is too long", profile_path);
    return ARFUSE_OK;
}

/* Where the profile and its samples go. */
static arfuse_status make_paths(const arf_tuner *tuner, const arf_shape *shape,
                                char folder[ARF_PATH_TEXT], char profile[ARF_PATH_TEXT],
                                char samples[ARF_PATH_TEXT], arf_error *error)
{
    char below[ARF_NAME_TEXT + 16], name[ARF_NAME_TEXT + 64];
    arf_device_folder(&tuner->key, below);
    arf_profile_filename(shape, name);
    ARF_TRY(arf_join_path(folder, ARF_PATH_TEXT, tuner->options->output, below, error));
    ARF_TRY(arf_join_path(profile, ARF_PATH_TEXT, folder, name, error));
    return arf_samples_path(profile, samples, error);
}

static arf_samples_header make_header(const arf_tuner *tuner, const arf_shape *shape, arf_set set)
{
    arf_samples_header header = {.set = set,
                                 .shape = *shape,
                                 .device = tuner->key,
                                 .policy = tuner->options->policy,
                                 .seed = tuner->options->seed};
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        header.version[p] = arf_protocol_version(set, (arf_protocol)p);
    snprintf(header.tool, sizeof header.tool, "arfuse-tune %s", arfuse_version());
    const arf_device_evidence *evidence = &tuner->evidence;
    memcpy(header.driver, evidence->driver, sizeof header.driver);
    memcpy(header.source_digest, evidence->source_digest, sizeof header.source_digest);
    memcpy(header.library, evidence->library, sizeof header.library);
    return header;
}

/* ---- samples that are there already -----------------------------------------------------------
 */

/* Every rank parses the same bytes, so every rank comes to the same status. */
static arfuse_status load(const arf_tuner *tuner, const char *path, arf_samples **samples,
                          arf_error *error)
{
    char *text;
    size_t bytes;
    bool truncated = false;
    ARF_TRY(arf_share_file(tuner, path, ARF_SAMPLES_MAX_BYTES, &text, &bytes, error));
    arfuse_status status = arf_samples_parse(path, text, bytes, samples, &truncated, error);
    free(text);
    if (status == ARFUSE_OK && truncated)
        arf_voice_warn("%s: its last line is cut and was dropped", path);
    return status;
}

static arfuse_status judge_base(const char *path, const arf_samples_header *old,
                                const arf_samples_header *header, arf_error *error)
{
    const char *what = NULL;
    if (!arf_shape_equal(&old->shape, &header->shape))
        what = "another shape";
    else if (old->set != header->set ||
             memcmp(old->version, header->version, sizeof old->version) != 0)
        what = "another kernel set or version of it";
    else if (strcmp(old->device.name, header->device.name) != 0 ||
             old->device.link != header->device.link)
        what = "another device";
    else if (old->policy != header->policy)
        what = "another policy";
    return what == NULL ? ARFUSE_OK
                        : arf_fail(error, ARFUSE_PROFILE,
                                   "%s: samples of %s; --base needs the same", path, what);
}

/* The samples of --base, which must be of the same key and policy, go into the new file. */
static arfuse_status copy_base(arf_store *store, const arf_samples_header *header, arf_error *error)
{
    const arf_tuner *tuner = store->tuner;
    char path[ARF_PATH_TEXT];
    arf_samples *base = NULL;
    ARF_TRY(arf_samples_path(tuner->options->base, path, error));
    ARF_TRY(load(tuner, path, &base, error));
    arfuse_status status = judge_base(path, &base->header, header, error);
    if (status == ARFUSE_OK)
        status = arf_store_add(store, base->sample, base->count, error);
    arf_samples_free(base);
    return status;
}

/* ---- open and close ---------------------------------------------------------------------------
 */

/* The nearest folder that is there must take what is to be made in it. */
static arfuse_status judge_folder(const char *path, arf_error *error)
{
    char part[ARF_PATH_TEXT];
    struct stat about;
    /* The folder that the user named may be a link; what lies in it must not lead out of it. */
    if (lstat(path, &about) == 0 && S_ISLNK(about.st_mode))
        return arf_fail(error, ARFUSE_FAILURE,
                        "%s: is a link, and the folder it points to may be somebody's; remove it, "
                        "or name another --output",
                        path);
    snprintf(part, sizeof part, "%s", path);
    while (stat(part, &about) != 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return arf_fail(error, ARFUSE_FAILURE, "%s: cannot stat: %s", part, strerror(errno));
        char *slash = strrchr(part, '/');
        if (slash == NULL)
            strcpy(part, ".");
        else if (slash == part)
            strcpy(part, "/");
        else
            *slash = '\0';
    }
    if (!S_ISDIR(about.st_mode))
        return arf_fail(error, ARFUSE_FAILURE, "%s: is a file, expected a folder", part);
    if (access(part, W_OK | X_OK) != 0)
        return arf_fail(error, ARFUSE_FAILURE, "%s: cannot make files in this folder: %s", part,
                        strerror(errno));
    return ARFUSE_OK;
}

arfuse_status arf_store_judge(const arf_tuner *tuner, const arf_shape *shape, arf_set set,
                              arf_error *error)
{
    char folder[ARF_PATH_TEXT], profile[ARF_PATH_TEXT], samples[ARF_PATH_TEXT];
    const arf_samples_header header = make_header(tuner, shape, set);
    const arf_profile_key key = {set, *shape, tuner->key};
    ARF_TRY(make_paths(tuner, shape, folder, profile, samples, error));
    ARF_TRY(judge_folder(folder, error));
    ARF_TRY(arf_profile_replaceable(&key, "", profile, error));
    ARF_TRY(arf_samples_judge(samples, &header, tuner->options->resume, error));
    if (tuner->options->base == NULL)
        return ARFUSE_OK;
    arf_samples *base = NULL;
    char *text;
    size_t bytes;
    bool truncated;
    ARF_TRY(arf_samples_path(tuner->options->base, samples, error));
    ARF_TRY(arf_read_file(samples, ARF_SAMPLES_MAX_BYTES, &text, &bytes, error));
    arfuse_status status = arf_samples_parse(samples, text, bytes, &base, &truncated, error);
    free(text);
    if (status == ARFUSE_OK)
        status = judge_base(samples, &base->header, &header, error);
    arf_samples_free(base);
    return status;
}

/* By rank 0. */
static arfuse_status open_files(arf_store *store, const arf_samples_header *header,
                                const char *folder, const char *samples, arf_error *error)
{
    ARF_TRY(arf_make_folder(folder, error));
    ARF_TRY(
        arf_samples_open(samples, header, store->tuner->options->resume, &store->writer, error));
    snprintf(store->path, sizeof store->path, "%s", arf_samples_place(store->writer));
    store->discards = arf_samples_discards(store->writer);
    return ARFUSE_OK;
}

arfuse_status arf_store_open(const arf_tuner *tuner, const arf_shape *shape, arf_set set,
                             arf_store *store, arf_error *error)
{
    char folder[ARF_PATH_TEXT], profile[ARF_PATH_TEXT], samples[ARF_PATH_TEXT];
    *store = (arf_store){.tuner = tuner};
    const arf_samples_header header = make_header(tuner, shape, set);
    const bool resume = tuner->options->resume;
    arfuse_status status = make_paths(tuner, shape, folder, profile, samples, error);
    arf_stop_hold();
    if (status == ARFUSE_OK && is_first(tuner))
        status = open_files(store, &header, folder, samples, error);
    arf_stop_release();
    status = arf_first_says(tuner, status, error);
    if (status == ARFUSE_OK)
        status = arf_group_broadcast(tuner->group, store->path, sizeof store->path, error);
    if (status == ARFUSE_OK && resume)
        status = load(tuner, store->path, &store->samples, error);
    else if (status == ARFUSE_OK && (store->samples = arf_samples_new(&header)) == NULL)
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for the samples");
    if (status == ARFUSE_OK && tuner->options->base != NULL)
        status = copy_base(store, &header, error);
    if (status != ARFUSE_OK) {
        arf_store_close(store);
        return status;
    }
    store->resumed = store->kept = store->samples->count;
    store->replaces = strcmp(store->path, samples) != 0;
    return ARFUSE_OK;
}

void arf_store_close(arf_store *store)
{
    arf_samples_close(store->writer);
    arf_samples_free(store->samples);
    store->writer = NULL;
    store->samples = NULL;
    arf_stop_advice("");
}

static void advice(const arf_store *store, char *text, size_t size)
{
    snprintf(text, size, "%d sample%s in %s; add --resume to go on from there", store->kept,
             store->kept == 1 ? " is" : "s are", store->path);
}

arfuse_status arf_store_add(arf_store *store, const arf_sample *sample, int count, arf_error *error)
{
    arfuse_status status = ARFUSE_OK;
    for (int i = 0; i < count; i++) /* a rank that has no memory for it fails alone */
        ARF_TRY(arf_samples_add(store->samples, &sample[i], error));
    arf_stop_hold();
    for (int i = 0; i < count && status == ARFUSE_OK && store->writer != NULL; i++)
        status = arf_samples_append(store->writer, &sample[i], error);
    arf_stop_release();
    ARF_TRY(arf_first_says(store->tuner, status, error));
    store->kept = store->samples->count;
    char text[ARF_PATH_TEXT + 128];
    advice(store, text, sizeof text);
    arf_stop_advice(text);
    return ARFUSE_OK;
}

void arf_store_advise(const arf_store *store, arf_error *error)
{
    char text[ARF_PATH_TEXT + 128];
    const size_t used = strlen(error->text);
    if (store->kept == 0 || error->status == ARFUSE_OK)
        return;
    advice(store, text, sizeof text);
    snprintf(error->text + used, sizeof error->text - used, "; %s", text);
}

arfuse_status arf_store_profile(const arf_store *store, const arf_profile *profile,
                                char path[ARF_PATH_TEXT], arf_error *error)
{
    const arf_tuner *tuner = store->tuner;
    /* The same samples and the same function on every rank; this is the proof. */
    ARF_TRY(arf_team_agree(&tuner->team, "routes", arf_profile_digest(profile), error));
    arfuse_status status = ARFUSE_OK;
    path[0] = '\0';
    arf_stop_hold();
    if (is_first(tuner))
        status = arf_profile_store(profile, tuner->options->output, path, ARF_PATH_TEXT, error);
    /* Killed in between, the new samples stand beside the profile that they give; --resume takes
     * them up. The other way round, a profile that cannot be written would cost the old samples. */
    if (status == ARFUSE_OK && is_first(tuner))
        status = arf_samples_keep(store->writer, error);
    arf_stop_release();
    status = arf_first_says(tuner, status, error);
    if (status == ARFUSE_OK)
        status = arf_group_broadcast(tuner->group, path, ARF_PATH_TEXT, error);
    return status;
}
