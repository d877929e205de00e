/* SPDX-License-Identifier: Apache-2.0 */
/* What verbs read and write: profiles, samples, either, to a file or to stdout. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "cli/cli.h"
#include "profile/lookup.h"
#include "profile/write.h"

arf_samples *arf_cli_load_samples(const char *path)
{
    arf_samples *samples = NULL;
    arf_error error = ARF_ERROR_INIT;
    bool truncated = false;
    if (arf_cli_is_profile(path))
        arf_complain("%s: is a profile, expected samples (as a rule beside it, as .samples.jsonl); "
                     "show, check and diff read profiles",
                     path);
    else if (arf_samples_load(path, &samples, &truncated, &error) != ARFUSE_OK)
        arf_complain("%s", error.text);
    else if (truncated)
        arf_complain("%s: note: the last line is cut off and was left out", path);
    return samples;
}

/* A file of arfuse has its format as its first member; samples have it in the first line. */
static bool has_format(const char *path, const char *format, bool in_first_line)
{
    char head[64] = "", found[32] = "";
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    size_t bytes = fread(head, 1, sizeof head - 1, file);
    fclose(file);
    head[bytes] = '\0';
    if (in_first_line)
        head[strcspn(head, "\n")] = '\0';
    return sscanf(head, " { \"format\" : \"%31[^\"]", found) == 1 && strcmp(found, format) == 0;
}

bool arf_cli_is_profile(const char *path)
{
    return has_format(path, "arfuse-profile", false);
}

bool arf_cli_is_samples(const char *path)
{
    return has_format(path, "arfuse-samples", true);
}

bool arf_cli_samples_beside(const char *path, char *beside, size_t size)
{
    size_t length = strlen(path);
    size_t stem = length > 5 && strcmp(path + length - 5, ".json") == 0 ? length - 5 : length;
    return snprintf(beside, size, "%.*s.samples.jsonl", (int)stem, path) < (int)size;
}

arf_numerics arf_cli_numerics(arf_set set)
{
    return arf_set_public(set) ? ARF_LIBRARY : ARF_FIXED;
}

arf_profile *arf_cli_load_either(const char *path)
{
    if (!arf_cli_is_samples(path))
        return arf_cli_load(path);
    arf_samples *samples = arf_cli_load_samples(path);
    if (samples == NULL)
        return NULL;
    arf_profile *profile = NULL;
    arf_error error = ARF_ERROR_INIT;
    arf_fit_options options = ARF_FIT_OPTIONS_INIT;
    options.numerics = arf_cli_numerics(samples->header.set);
    if (arf_fit_profile(samples, &options, &profile, &error) != ARFUSE_OK)
        arf_complain("%s: %s", path, error.text);
    arf_samples_free(samples);
    return profile;
}

arf_samples *arf_cli_load_behind(const arf_profile *profile, const char *profile_path,
                                 const char *path)
{
    arf_samples *samples = arf_cli_load_samples(path);
    if (samples == NULL)
        return NULL;
    const arf_profile_key wanted = arf_profile_key_of(profile);
    const arf_profile_key key = {samples->header.set, samples->header.shape,
                                 samples->header.device};
    if (arf_profile_key_equal(&key, &wanted))
        return samples;
    char text[ARF_REASON_TEXT], wanted_text[ARF_REASON_TEXT];
    arf_profile_key_text(&key, text, sizeof text);
    arf_profile_key_text(&wanted, wanted_text, sizeof wanted_text);
    arf_complain("%s: samples of %s, expected those of %s as %s", path, text, wanted_text,
                 profile_path);
    arf_samples_free(samples);
    return NULL;
}

/* Does the file begin with these bytes? */
static bool begins_with(const char *path, const char *bytes, size_t count)
{
    char head[1024];
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    bool same = count <= sizeof head && fread(head, 1, count, file) == count &&
                memcmp(head, bytes, count) == 0;
    fclose(file);
    return same;
}

/* A slip in a command must not cost a file: -o names a new one, or one that this verb made. */
static arfuse_status check_replaced(const char *path, const char *kind, const char *begins,
                                    size_t count, arf_error *error)
{
    bool there = false;
    ARF_TRY(arf_may_replace(path, &there, error));
    if (!there || begins_with(path, begins, count))
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_PROFILE,
                    "%s: is not %s and is not replaced by one; move it away or name another file",
                    path, kind);
}

arfuse_status arf_cli_deliver(const arf_text *text, const char *kind, const char *begins,
                              const char *output, arf_error *error)
{
    if (text->failed)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the text to write");
    if (output != NULL) {
        if (begins == NULL)
            begins = text->data;
        ARF_TRY(check_replaced(output, kind, begins, strcspn(begins, "\n"), error));
        return arf_write_file(output, text->data, text->bytes, error);
    }
    fwrite(text->data, 1, text->bytes, stdout); /* main looks at the stream's error */
    return ARFUSE_OK;
}

arfuse_status arf_cli_deliver_profile(const arf_profile *profile, const char *output,
                                      arf_error *error)
{
    arf_text text = {0};
    if (output != NULL)
        return arf_profile_save(profile, output, error);
    ARF_TRY(arf_profile_print(profile, &text, error));
    arfuse_status status = arf_cli_deliver(&text, "a profile", NULL, NULL, error);
    arf_text_free(&text);
    return status;
}

static void add_line(arf_text *text, char *line)
{
    arf_text_add(text, "%s\n", line);
    free(line);
}

static arfuse_status print_samples(const arf_samples *samples, arf_text *text, arf_error *error)
{
    char *line = NULL;
    ARF_TRY(arf_samples_header_line(&samples->header, &line, error));
    add_line(text, line);
    for (int i = 0; i < samples->count; i++) {
        ARF_TRY(arf_sample_line(&samples->header, &samples->sample[i], &line, error));
        add_line(text, line);
    }
    if (text->bytes > ARF_SAMPLES_MAX_BYTES)
        return arf_fail(error, ARFUSE_FAILURE,
                        "%zu bytes of samples, expected at most %zu; leave some files or rows out",
                        text->bytes, ARF_SAMPLES_MAX_BYTES);
    return ARFUSE_OK;
}

arfuse_status arf_cli_deliver_samples(const arf_samples *samples, const char *output,
                                      arf_error *error)
{
    arf_text text = {0};
    arfuse_status status = print_samples(samples, &text, error);
    /* Any samples may be replaced, however their first line is spaced. */
    const char *begins = output != NULL && arf_cli_is_samples(output) ? "" : NULL;
    if (status == ARFUSE_OK)
        status = arf_cli_deliver(&text, "a file of samples", begins, output, error);
    arf_text_free(&text);
    return status;
}
