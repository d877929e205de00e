/* SPDX-License-Identifier: Apache-2.0 */
/* A samples file: refused with a message, or accepted, equal after writing, and fit for fitting. */
#include <string.h>

#include "base/json.h"
#include "fit/fit.h"
#include "fuzz/fuzz.h"
#include "profile/samples.h"
#include "profile/write.h"

static void add_line(arf_text *text, char *line)
{
    MUST(line != NULL);
    arf_text_add(text, "%s\n", line);
    free(line);
}

static arf_text print(const arf_samples *samples)
{
    arf_text text = {0};
    arf_error error = ARF_ERROR_INIT;
    char *line = NULL;
    MUST(arf_samples_header_line(&samples->header, &line, &error) == ARFUSE_OK);
    add_line(&text, line);
    for (int i = 0; i < samples->count; i++) {
        line = NULL;
        MUST(arf_sample_line(&samples->header, &samples->sample[i], &line, &error) == ARFUSE_OK);
        add_line(&text, line);
    }
    MUST(!text.failed);
    return text;
}

/* Fitting may find nothing to fit; then it says so. What it makes can be written, unless a pattern
 * that the shape has was never timed: then checking and writing both refuse it. */
static void fit(const arf_samples *samples)
{
    arf_fit_options options = ARF_FIT_OPTIONS_INIT;
    arf_profile *profile = NULL;
    arf_error error = ARF_ERROR_INIT;
    arf_text text = {0};
    if (arf_fit_profile(samples, &options, &profile, &error) != ARFUSE_OK) {
        MUST(profile == NULL && error.text[0] != '\0');
        return;
    }
    bool legal = arf_profile_validate(profile, &error) == ARFUSE_OK;
    bool whole = profile->routes[ARF_ALLREDUCE].count > 0 &&
                 (profile->routes[ARF_FINALIZE].count > 0 || profile->shape.top_k == 0);
    MUST(legal || !whole);
    MUST((arf_profile_print(profile, &text, &error) == ARFUSE_OK) == legal);
    arf_text_free(&text);
    arf_profile_free(profile);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    arf_samples *samples = NULL, *again = NULL;
    arf_error error = ARF_ERROR_INIT;
    bool truncated;
    arfuse_status status =
        arf_samples_parse("fuzz", (const char *)data, bytes, &samples, &truncated, &error);
    if (status != ARFUSE_OK) {
        MUST(status == ARFUSE_PROFILE && samples == NULL);
        MUST(strncmp(error.text, "fuzz: ", 6) == 0);
        return 0;
    }
    arf_text first = print(samples);
    MUST(arf_samples_parse("again", first.data, first.bytes, &again, &truncated, &error) ==
         ARFUSE_OK);
    MUST(!truncated && again->count == samples->count);
    arf_text second = print(again);
    MUST(first.bytes == second.bytes && memcmp(first.data, second.data, first.bytes) == 0);
    if (samples->count <= 8) /* enough of them are; a fit of thousands would slow all down */
        fit(samples);
    arf_text_free(&first);
    arf_text_free(&second);
    arf_samples_free(samples);
    arf_samples_free(again);
    return 0;
}
