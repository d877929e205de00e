/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "rules/knobs.h"

static const char *const method_names[ARF_METHODS] = {"measured", "published", "retargeted",
                                                      "default"};

const char *arf_method_name(arf_method method)
{
    return (int)method >= 0 && method < ARF_METHODS ? method_names[method] : "?";
}

bool arf_method_parse(const char *name, arf_method *method)
{
    for (int i = 0; i < ARF_METHODS; i++)
        if (strcmp(name, method_names[i]) == 0) {
            *method = (arf_method)i;
            return true;
        }
    return false;
}

/* ---- device names ------------------------------------------------------------------------------
 */

/* Not isspace and the like: names must not depend on the host program's locale. */
static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

void arf_device_name(const char *raw, char name[ARF_NAME_TEXT])
{
    size_t used = 0;
    bool gap = false;
    for (; *raw != '\0' && used + 2 < ARF_NAME_TEXT; raw++) {
        if (is_blank(*raw)) {
            gap = used > 0;
            continue;
        }
        if (gap)
            name[used++] = ' ';
        gap = false;
        name[used++] = *raw;
    }
    name[used] = '\0';
}

size_t arf_slug(const char *text, char *out, size_t size)
{
    size_t used = 0;
    for (; *text != '\0' && used + 1 < size; text++) {
        char c = *text >= 'A' && *text <= 'Z' ? (char)(*text - 'A' + 'a') : *text;
        bool keep = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (keep)
            out[used++] = c;
        else if (used > 0 && out[used - 1] != '-')
            out[used++] = '-';
    }
    while (used > 0 && out[used - 1] == '-')
        used--;
    out[used] = '\0';
    return used;
}

void arf_device_folder(const arf_device_key *device, char folder[ARF_NAME_TEXT + 16])
{
    size_t used = arf_slug(device->name, folder, ARF_NAME_TEXT);
    snprintf(folder + used, ARF_NAME_TEXT + 16 - used, "-%s", arf_link_name(device->link));
}

/* ---- values ------------------------------------------------------------------------------------
 */

arf_profile *arf_profile_new(void)
{
    arf_profile *profile = calloc(1, sizeof *profile);
    if (profile == NULL)
        return NULL;
    profile->evidence.noise = profile->evidence.regret_geomean = profile->evidence.regret_max = NAN;
    profile->device.nodes = profile->device.ranks_per_gpu = 1;
    for (int i = 0; i < ARF_PATTERNS; i++) {
        profile->routes[i].min_tokens = 1;
        for (int j = 0; j < ARF_MAX_ROUTES; j++)
            profile->evidence.route[i][j].margin = NAN;
    }
    return profile;
}

void arf_profile_free(arf_profile *profile)
{
    if (profile == NULL)
        return;
    for (int i = 0; i < ARF_PATTERNS; i++) {
        free(profile->evidence.mix_extra[i]);
        for (int j = 0; j < ARF_MAX_ROUTES; j++)
            free(profile->evidence.route_extra[i][j]);
    }
    free(profile->evidence.extra);
    free(profile);
}

/* Replaces a borrowed string by a copy; NULL stays NULL. */
static bool own(char **text)
{
    if (*text == NULL)
        return true;
    *text = strdup(*text);
    return *text != NULL;
}

arf_profile *arf_profile_copy(const arf_profile *profile)
{
    arf_profile *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return NULL;
    *copy = *profile;
    /* Every pointer becomes the copy's own or NULL, so that freeing it half way is safe. */
    bool whole = own(&copy->evidence.extra);
    for (int i = 0; i < ARF_PATTERNS; i++) {
        whole &= own(&copy->evidence.mix_extra[i]);
        for (int j = 0; j < ARF_MAX_ROUTES; j++)
            whole &= own(&copy->evidence.route_extra[i][j]);
    }
    if (!whole) {
        arf_profile_free(copy);
        return NULL;
    }
    return copy;
}

arf_problem arf_profile_problem(const arf_profile *profile)
{
    return (arf_problem){
        .set = profile->set, .shape = profile->shape, .sm_count = profile->device.sm_count};
}

/* ---- digest -------------------------------------------------------------------------------------
 */

static uint64_t hash_plan(uint64_t hash, arf_set set, arf_pattern pattern, const arf_plan *plan)
{
    const arf_knob_table *table = arf_knobs(set, plan->protocol, pattern);
    hash = arf_hash_text(hash, arf_protocol_name(plan->protocol));
    hash = arf_hash_text(hash, arf_transport_name(plan->transport));
    hash = arf_hash_text(hash, arf_numerics_name(plan->numerics));
    hash = arf_hash_number(hash, plan->tuning_null);
    for (int i = 0; i < table->count && !plan->tuning_null; i++) {
        hash = arf_hash_text(hash, table->knob[i].name);
        hash = arf_hash_number(hash, plan->tuning.value[i]);
    }
    return hash;
}

uint64_t arf_profile_digest(const arf_profile *profile)
{
    uint64_t hash = arf_hash_text(ARF_HASH_INIT, arf_set_name(profile->set));
    for (int i = 0; i < ARF_PROTOCOLS; i++)
        hash = arf_hash_number(hash, profile->version[i]);
    const arf_shape *shape = &profile->shape;
    const int64_t number[] = {shape->tp_size,  shape->hidden_size, shape->top_k,
                              shape->rms_norm, shape->residual,    shape->shared_expert};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        hash = arf_hash_number(hash, number[i]);
    hash = arf_hash_text(hash, arf_numerics_name(profile->numerics));
    for (int i = 0; i < ARF_PATTERNS; i++) {
        const arf_routes *routes = &profile->routes[i];
        hash = arf_hash_number(hash, routes->count);
        hash = arf_hash_number(hash, routes->min_tokens);
        for (int j = 0; j < routes->count; j++) {
            hash = arf_hash_number(hash, routes->route[j].max_tokens);
            hash = hash_plan(hash, profile->set, (arf_pattern)i, &routes->route[j].plan);
        }
    }
    return hash;
}
