/* SPDX-License-Identifier: Apache-2.0 */
/* What verbs read and write: profiles, samples, either, to a file or to stdout. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "cli/cli.h"
#include "profile/write.h"

arf_samples *arf_cli_load_samples(const char *path)
{
    arf_samples *samples = NULL;
    arf_error error = ARF_ERROR_INIT;
    bool truncated = false;
    if (arf_samples_load(path, &samples, &truncated, &error) != ARFUSE_OK)
        arf_complain("%s", error.text);
    else if (truncated)
        arf_complain("%s: note: the last line is cut off and was left out", path);
    return samples;
}

bool arf_cli_is_samples(const char *path)
{
    /* The first line of samples is one document, the first member of which is the format. */
    char head[64] = "", format[32] = "";
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    size_t bytes = fread(head, 1, sizeof head - 1, file);
    fclose(file);
    head[bytes] = '\0';
    return sscanf(head, " { \"format\" : \"%31[^\"]", format) == 1 &&
           strcmp(format, "arfuse-samples") == 0;
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

arfuse_status arf_cli_deliver(const arf_text *text, const char *output, arf_error *error)
{
    if (text->failed)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the text to write");
    if (output != NULL)
        return arf_write_file(output, text->data, text->bytes, error);
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
    arfuse_status status = arf_cli_deliver(&text, NULL, error);
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
    if (status == ARFUSE_OK)
        status = arf_cli_deliver(&text, output, error);
    arf_text_free(&text);
    return status;
}
