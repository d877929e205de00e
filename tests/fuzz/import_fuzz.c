/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table in CSV: refused with its name in the message, or imported, and then equal after exporting
 * and importing again. The first byte says what the command line adds.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/export.h"
#include "cli/import.h"
#include "fuzz/fuzz.h"

/* A file without a folder, made once and filled anew. */
static const char *as_file(const void *data, size_t bytes)
{
    static char path[64];
    static int file = -1;
    if (file < 0) {
        file = memfd_create("table", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    MUST(ftruncate(file, 0) == 0 && pwrite(file, data, bytes, 0) == (ssize_t)bytes);
    return path;
}

static arf_import_options options_of(uint8_t choice)
{
    arf_import_options o = {.hidden = -1, .top_k = -1, .ranks = -1};
    if (choice & 1) {
        o.hidden = 6144, o.top_k = 8, o.ranks = 4;
        o.set = "flashinfer", o.gpu = "NVIDIA GB300", o.capability = "10.3", o.sms = "148";
    }
    if (choice & 2)
        o.link = "nvlink", o.nodes = "1", o.policy = "decode";
    o.no_norm = (choice & 4) != 0;
    o.no_residual = (choice & 8) != 0;
    o.no_shared = (choice & 16) != 0;
    return o;
}

/* One of both, or an error. */
static arfuse_status import_table(const arf_import_options *options, arf_samples **samples,
                                  arf_profile **profile, arf_error *error)
{
    arf_import import = {.options = options};
    arfuse_status status = arf_csv_load(options->path, &import.csv, error);
    for (int c = 0; c < ARF_COLUMNS && status == ARFUSE_OK; c++)
        import.column[c] = arf_csv_column(&import.csv, arf_column_names[c]);
    if (status == ARFUSE_OK && import.csv.rows == 0)
        status = arf_fail(error, ARFUSE_PROFILE, "%s: no row", options->path);
    if (status == ARFUSE_OK)
        status = arf_import_key(&import, error);
    if (status == ARFUSE_OK) {
        if (import.column[ARF_COL_MAX] >= 0 && import.column[ARF_COL_TOKENS] < 0)
            status = arf_import_routes(&import, profile, error);
        else
            status = arf_import_samples(&import, samples, error);
    }
    arf_csv_free(&import.csv);
    free(import.wanted);
    return status;
}

/* What was imported, as our own table; false when it cannot be one. */
static bool export_table(const arf_samples *samples, const arf_profile *profile, arf_text *text)
{
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = samples ? arf_export_samples_csv(samples, true, text, &error)
                                   : arf_export_routes_csv(profile, true, text, &error);
    MUST(status == ARFUSE_OK || error.text[0] != '\0');
    return status == ARFUSE_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    arf_samples *samples = NULL, *more_samples = NULL;
    arf_profile *profile = NULL, *more_profile = NULL;
    arf_error error = ARF_ERROR_INIT;
    arf_text first = {0}, second = {0};
    if (bytes == 0)
        return 0;
    arf_import_options options = options_of(data[0]);
    options.path = as_file(data + 1, bytes - 1);
    if (import_table(&options, &samples, &profile, &error) != ARFUSE_OK) {
        MUST(samples == NULL && profile == NULL && error.text[0] != '\0');
        return 0;
    }
    MUST((samples == NULL) != (profile == NULL));
    /* A profile that was imported may still lack what every profile needs; deliver checks that. */
    if ((samples != NULL || arf_profile_validate(profile, &error) == ARFUSE_OK) &&
        export_table(samples, profile, &first)) {
        arf_import_options none = {.hidden = -1, .top_k = -1, .ranks = -1};
        none.path = as_file(first.data, first.bytes);
        error = (arf_error)ARF_ERROR_INIT;
        if (import_table(&none, &more_samples, &more_profile, &error) != ARFUSE_OK) {
            fprintf(stderr, "%s\n%s", error.text, first.data);
            MUST(!"what was exported is imported");
        }
        MUST(export_table(more_samples, more_profile, &second));
        if (strcmp(first.data, second.data) != 0)
            fprintf(stderr, "%s\n%s", first.data, second.data);
        MUST(first.bytes == second.bytes && memcmp(first.data, second.data, first.bytes) == 0);
    }
    arf_text_free(&first);
    arf_text_free(&second);
    arf_samples_free(samples);
    arf_samples_free(more_samples);
    arf_profile_free(profile);
    arf_profile_free(more_profile);
    return 0;
}
