/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "profile/evidence.h"
#include "profile/lookup.h"
#include "profile/parts.h"
#include "profile/read.h"

/* ---- text ---------------------------------------------------------------------------------------
 */

static void write_route(arf_text *text, const arf_profile *profile, arf_pattern pattern, int index)
{
    const arf_routes *routes = &profile->routes[pattern];
    const arf_route *route = &routes->route[index];
    arf_text_add(text, "      { ");
    if (index == 0 && routes->min_tokens != 1)
        arf_text_add(text, "\"min_tokens\": %lld, ", (long long)routes->min_tokens);
    if (route->max_tokens == ARF_OPEN_BOUND)
        arf_text_add(text, "\"max_tokens\": null, ");
    else
        arf_text_add(text, "\"max_tokens\": %lld, ", (long long)route->max_tokens);
    arf_write_plan(text, profile->set, pattern, &route->plan);
    arf_text_add(text, " }%s\n", index + 1 < routes->count ? "," : "");
}

static void write_routes(arf_text *text, const arf_profile *profile)
{
    arf_text_add(text, "  \"routes\": {\n");
    for (int i = 0; i < ARF_PATTERNS; i++) {
        int count = profile->routes[i].count;
        arf_text_add(text, "    \"%s\": [%s", arf_pattern_name((arf_pattern)i),
                     count > 0 ? "\n" : "");
        for (int j = 0; j < count; j++)
            write_route(text, profile, (arf_pattern)i, j);
        arf_text_add(text, "%s]%s\n", count > 0 ? "    " : "", i + 1 < ARF_PATTERNS ? "," : "");
    }
    arf_text_add(text, "  },\n");
}

arfuse_status arf_profile_print(const arf_profile *profile, arf_text *text, arf_error *error)
{
    ARF_TRY(arf_profile_validate(profile, error));
    arf_text made = {0};
    arf_text_add(&made, "{\n  \"format\": \"arfuse-profile\",\n  \"version\": 1,\n  ");
    arf_write_kernels(&made, profile->set, profile->version, profile->variant);
    arf_text_add(&made, ",\n  ");
    arf_write_shape(&made, &profile->shape);
    arf_text_add(&made, ",\n  ");
    arf_write_device(&made, &profile->device);
    arf_text_add(&made, ",\n  \"numerics\": \"%s\",\n", arf_numerics_name(profile->numerics));
    write_routes(&made, profile);
    arf_write_evidence(&made, &profile->evidence);
    arf_text_add(&made, "}\n");
    if (made.failed) {
        arf_text_free(&made);
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the text of a profile");
    }
    *text = made;
    return ARFUSE_OK;
}

/* ---- files --------------------------------------------------------------------------------------
 */

void arf_profile_filename(const arf_shape *shape, char name[ARF_NAME_TEXT + 64])
{
    char top_k[16] = "";
    if (shape->top_k > 0)
        snprintf(top_k, sizeof top_k, "_k%d", shape->top_k);
    snprintf(name, ARF_NAME_TEXT + 64, "tp%d_h%d%s_bf16%s%s%s.json", shape->tp_size,
             shape->hidden_size, top_k, shape->rms_norm == ARF_OFF ? "_nonorm" : "",
             shape->residual == ARF_OFF ? "_noresidual" : "",
             shape->shared_expert == ARF_OFF ? "_noshared" : "");
}

arfuse_status arf_profile_replaceable(const arf_profile_key *key, const char *variant,
                                      const char *path, arf_error *error)
{
    arf_profile *old = NULL;
    bool there = false;
    ARF_TRY(arf_may_replace(path, &there, error));
    if (!there)
        return ARFUSE_OK;
    if (arf_profile_load(path, &old, error) != ARFUSE_OK) {
        arf_error_prefix(error, "a file that is no profile of this version is not replaced; move "
                                "it away");
        return ARFUSE_PROFILE;
    }
    arf_profile_key old_key = arf_profile_key_of(old);
    char text[ARF_REASON_TEXT], old_text[ARF_REASON_TEXT];
    bool same = arf_profile_key_equal(key, &old_key) && strcmp(old->variant, variant) == 0;
    arf_profile_free(old);
    if (same)
        return ARFUSE_OK;
    arf_profile_key_text(key, text, sizeof text);
    arf_profile_key_text(&old_key, old_text, sizeof old_text);
    return arf_fail(error, ARFUSE_PROFILE,
                    "%s: holds the profile of another key and is not replaced: %s; this one is %s",
                    path, old_text, text);
}

arfuse_status arf_profile_save(const arf_profile *profile, const char *path, arf_error *error)
{
    arf_text text = {0};
    ARF_TRY(arf_profile_print(profile, &text, error));
    const arf_profile_key key = arf_profile_key_of(profile);
    arfuse_status status = arf_profile_replaceable(&key, profile->variant, path, error);
    if (status == ARFUSE_OK)
        status = arf_write_file(path, text.data, text.bytes, error);
    arf_text_free(&text);
    return status;
}

/* Published profiles stand apart, those of one key under the names of their variants. */
static void folder_of(const arf_profile *profile, char folder[2 * ARF_NAME_TEXT + 32])
{
    char variant[ARF_NAME_TEXT];
    if (profile->evidence.method != ARF_PUBLISHED) {
        arf_device_folder(&profile->device, folder);
        return;
    }
    size_t length = arf_slug(profile->variant, variant, sizeof variant);
    snprintf(folder, 2 * ARF_NAME_TEXT + 32, "published/%s%s%s", arf_set_name(profile->set),
             length > 0 ? "/" : "", variant);
}

arfuse_status arf_profile_store(const arf_profile *profile, const char *root, char *path,
                                size_t path_size, arf_error *error)
{
    char below[2 * ARF_NAME_TEXT + 32], name[ARF_NAME_TEXT + 64], folder[4096];
    folder_of(profile, below);
    arf_profile_filename(&profile->shape, name);
    ARF_TRY(arf_join_path(folder, sizeof folder, root, below, error));
    ARF_TRY(arf_join_path(path, path_size, folder, name, error));
    ARF_TRY(arf_profile_validate(profile, error)); /* before any folder is made */
    ARF_TRY(arf_make_folder(folder, error));
    return arf_profile_save(profile, path, error);
}
