/* SPDX-License-Identifier: Apache-2.0 */
/* What create may be given: copied, completed from the environment, checked. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "runtime/environment.h"
#include "runtime/options.h"

/* The library's first option struct; a caller built against it passes this size or a larger one. */
#define OPTIONS_FIRST_SIZE offsetof(arfuse_options, label)

arfuse_status arf_options_take(const arfuse_options *from, arfuse_options *to, arf_error *error)
{
    *to = (arfuse_options)ARFUSE_OPTIONS_INIT;
    if (from == NULL)
        return arf_fail(error, ARFUSE_USAGE, "options is NULL, expected ARFUSE_OPTIONS_INIT");
    if (from->struct_size < OPTIONS_FIRST_SIZE)
        return arf_fail(error, ARFUSE_USAGE,
                        "options.struct_size is %zu, expected at least %zu; start from "
                        "ARFUSE_OPTIONS_INIT",
                        from->struct_size, (size_t)OPTIONS_FIRST_SIZE);
    memcpy(to, from, from->struct_size < sizeof *to ? from->struct_size : sizeof *to);
    to->struct_size = sizeof *to;
    return ARFUSE_OK;
}

static arfuse_status in_range(const char *name, int64_t value, int64_t low, int64_t high,
                              arf_error *error)
{
    if (value >= low && value <= high)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_USAGE,
                    "options.%s is %" PRId64 ", expected %" PRId64 " to %" PRId64, name, value, low,
                    high);
}

static arfuse_status check_shape(const arfuse_options *options, arf_error *error)
{
    ARF_TRY(in_range("hidden_size", options->hidden_size, ARF_MIN_HIDDEN, ARF_MAX_HIDDEN, error));
    if (options->hidden_size % 8 != 0)
        return arf_fail(error, ARFUSE_USAGE, "options.hidden_size is %d, expected a multiple of 8",
                        options->hidden_size);
    ARF_TRY(in_range("top_k", options->top_k, 0, ARF_MAX_TOP_K, error));
    ARF_TRY(in_range("rms_norm", options->rms_norm, 0, 1, error));
    ARF_TRY(in_range("residual", options->residual, 0, 1, error));
    ARF_TRY(in_range("shared_expert", options->shared_expert, 0, 1, error));
    return in_range("capacity", options->capacity, 1, ARF_MAX_TOKENS, error);
}

static bool has_control(const char *text)
{
    while (*text != '\0' && (unsigned char)*text >= ' ' && *text != 0x7f)
        text++;
    return *text != '\0';
}

static arfuse_status check_choices(const arfuse_options *options, arf_error *error)
{
    ARF_TRY(in_range("strict", options->strict, 0, 1, error));
    for (int p = 0; p < ARF_PATTERNS; p++)
        ARF_TRY(in_range("routes", (int)options->routes[p], ARFUSE_ROUTES_AUTO,
                         ARFUSE_ROUTES_UNFUSED, error));
    ARF_TRY(in_range("fallback", (int)options->fallback, ARFUSE_FALLBACK_AUTO,
                     ARFUSE_FALLBACK_ERROR, error));
    ARF_TRY(in_range("site_count", options->site_count, 0, ARFUSE_MAX_SITES, error));
    if (options->site_count > 0 && options->sites == NULL)
        return arf_fail(error, ARFUSE_USAGE, "options.sites is NULL, expected %d names",
                        options->site_count);
    ARF_TRY(in_range("deferred", options->deferred, 0, ARFUSE_MAX_DEFERRED, error));
    ARF_TRY(in_range("checked", options->checked, -1, 1, error));
    ARF_TRY(in_range("shadow_every", options->shadow_every, -1, 1 << 30, error));
    ARF_TRY(in_range("check_order", options->check_order, -1, 1, error));
    ARF_TRY(in_range("gpu_sharing", options->gpu_sharing, 0, 1, error));
    const char *label = options->label;
    const size_t length = label != NULL ? strlen(label) : 1;
    if (length == 0 || length >= ARF_LABEL_TEXT || (label != NULL && has_control(label)))
        return arf_fail(error, ARFUSE_USAGE,
                        "options.label has %zu bytes, expected 1 to %d without control characters, "
                        "or NULL",
                        length, ARF_LABEL_TEXT - 1);
    if (!(options->wait_limit_seconds >= 0) || isinf(options->wait_limit_seconds))
        return arf_fail(error, ARFUSE_USAGE,
                        "options.wait_limit_seconds is %g, expected 0 (none) or a positive number",
                        options->wait_limit_seconds);
    return ARFUSE_OK;
}

arfuse_status arf_options_complete(arfuse_options *options, arf_error *error)
{
    ARF_TRY(check_shape(options, error));
    ARF_TRY(check_choices(options, error));
    ARF_TRY(arf_environment_options(options, error));
    if (options->fallback == ARFUSE_FALLBACK_AUTO)
        options->fallback = ARFUSE_FALLBACK_UNFUSED;
    return ARFUSE_OK;
}

void arf_options_label(const arfuse_options *options, char label[ARF_LABEL_TEXT])
{
    if (options->label != NULL)
        snprintf(label, ARF_LABEL_TEXT, "%s", options->label);
    else
        snprintf(label, ARF_LABEL_TEXT, "h%d_k%d_c%" PRId64, options->hidden_size, options->top_k,
                 options->capacity);
}

static uint64_t sites_digest(const arfuse_options *options)
{
    uint64_t hash = ARF_HASH_INIT;
    for (int i = 0; i < options->site_count; i++)
        hash = arf_hash_text(hash, options->sites[i]);
    const char *off = arf_environment("ARFUSE_SITES_OFF");
    return arf_hash_text(hash, off != NULL ? off : "");
}

arfuse_status arf_options_agree(const arf_team *team, const arfuse_options *options,
                                arf_error *error)
{
    arf_fields fields = {0};
    arf_field(&fields, "hidden_size", options->hidden_size);
    arf_field(&fields, "top_k", options->top_k);
    arf_field(&fields, "rms_norm", options->rms_norm);
    arf_field(&fields, "residual", options->residual);
    arf_field(&fields, "shared_expert", options->shared_expert);
    arf_field(&fields, "capacity", options->capacity);
    arf_field(&fields, "routes[ARFUSE_ALLREDUCE]", (int)options->routes[0]);
    arf_field(&fields, "routes[ARFUSE_FINALIZE]", (int)options->routes[1]);
    arf_field(&fields, "fallback", (int)options->fallback);
    arf_field(&fields, "checked", options->checked);
    arf_field(&fields, "shadow_every", options->shadow_every);
    arf_field(&fields, "check_order", options->check_order);
    arf_field(&fields, "gpu_sharing", options->gpu_sharing);
    arf_field_bits(&fields, "label's digest",
                   arf_hash_text(ARF_HASH_INIT, options->label != NULL ? options->label : ""));
    arf_field_bits(&fields, "the list of sites, and of those that are off,", sites_digest(options));
    return arf_agree(team, "options", &fields, error);
}
