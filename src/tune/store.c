/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static arfuse_status make_path(const arf_tuner *tuner, const arf_shape *shape, arf_store *store,
                               arf_error *error)
{
    char folder[ARF_NAME_TEXT + 16], name[ARF_NAME_TEXT + 64];
    char place[ARF_PATH_TEXT], whole[ARF_PATH_TEXT];
    arf_device_folder(&tuner->key, folder);
    arf_profile_filename(shape, name);
    ARF_TRY(arf_join_path(place, sizeof place, tuner->options->output, folder, error));
    if (is_first(tuner))
        ARF_TRY(arf_make_folder(place, error));
    ARF_TRY(arf_join_path(whole, sizeof whole, place, name, error));
    return arf_samples_path(whole, store->path, error);
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
    memcpy(header.driver, tuner->driver, sizeof header.driver);
    memcpy(header.source_digest, tuner->source_digest, sizeof header.source_digest);
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

/* The samples of --base, which must be of the same key and policy, go into the new file. */
static arfuse_status copy_base(arf_store *store, const arf_samples_header *header, arf_error *error)
{
    const arf_tuner *tuner = store->tuner;
    char path[ARF_PATH_TEXT], reason[ARF_REASON_TEXT];
    arf_samples *base = NULL;
    ARF_TRY(arf_samples_path(tuner->options->base, path, error));
    ARF_TRY(load(tuner, path, &base, error));
    const arf_samples_header *old = &base->header;
    snprintf(reason, sizeof reason, "%s", "");
    if (!arf_shape_equal(&old->shape, &header->shape))
        snprintf(reason, sizeof reason, "another shape");
    else if (old->set != header->set ||
             memcmp(old->version, header->version, sizeof old->version) != 0)
        snprintf(reason, sizeof reason, "another kernel set or version of it");
    else if (strcmp(old->device.name, header->device.name) != 0 ||
             old->device.link != header->device.link)
        snprintf(reason, sizeof reason, "another device");
    else if (old->policy != header->policy)
        snprintf(reason, sizeof reason, "another policy");
    arfuse_status status = reason[0] == '\0'
                               ? arf_store_add(store, base->sample, base->count, error)
                               : arf_fail(error, ARFUSE_PROFILE,
                                          "%s: samples of %s; --base needs the same", path, reason);
    arf_samples_free(base);
    return status;
}

/* ---- open and close ---------------------------------------------------------------------------
 */

arfuse_status arf_store_open(const arf_tuner *tuner, const arf_shape *shape, arf_set set,
                             arf_store *store, arf_error *error)
{
    *store = (arf_store){.tuner = tuner};
    const arf_samples_header header = make_header(tuner, shape, set);
    const bool resume = tuner->options->resume;
    arfuse_status status = make_path(tuner, shape, store, error);
    arf_stop_hold();
    if (status == ARFUSE_OK && is_first(tuner))
        status = arf_samples_open(store->path, &header, resume, &store->writer, error);
    arf_stop_release();
    status = arf_first_says(tuner, status, error);
    if (status == ARFUSE_OK && resume)
        status = load(tuner, store->path, &store->samples, error);
    else if (status == ARFUSE_OK && (store->samples = arf_samples_new(&header)) == NULL)
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for the samples");
    if (status == ARFUSE_OK && tuner->options->base != NULL)
        status = copy_base(store, &header, error);
    if (status != ARFUSE_OK)
        arf_store_close(store);
    else
        store->resumed = store->samples->count;
    return status;
}

void arf_store_close(arf_store *store)
{
    arf_samples_close(store->writer);
    arf_samples_free(store->samples);
    store->writer = NULL;
    store->samples = NULL;
    arf_stop_advice("");
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
    char text[ARF_PATH_TEXT + 128];
    snprintf(text, sizeof text, "%d samples are in %s; add --resume to go on from there",
             store->samples->count, store->path);
    arf_stop_advice(text);
    return ARFUSE_OK;
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
    arf_stop_release();
    status = arf_first_says(tuner, status, error);
    if (status == ARFUSE_OK)
        status = arf_group_broadcast(tuner->group, path, ARF_PATH_TEXT, error);
    return status;
}
