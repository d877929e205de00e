/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/sites.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "runtime/workspace.h"

/* ---- making ---------------------------------------------------------------------------------- */

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

static arf_site *find(const arf_sites *sites, const char *name, size_t length)
{
    for (int i = 0; i < sites->count; i++) {
        arf_site *site = arf_site_of(sites, i);
        if (strlen(site->name) == length && strncmp(site->name, name, length) == 0)
            return site;
    }
    return NULL;
}

static arfuse_status add(const char *name, arf_sites *sites, arf_error *error)
{
    size_t length = name == NULL ? 0 : strlen(name);
    if (length == 0 || length >= ARF_SITE_NAME || strspn(name, letters) != length)
        return arf_fail(error, ARFUSE_USAGE,
                        "options.sites[%d] is \"%s\", expected 1 to %d of letters, digits, dot, "
                        "dash and underscore",
                        sites->count, name == NULL ? "(null)" : name, ARF_SITE_NAME - 1);
    if (find(sites, name, length) != NULL)
        return arf_fail(error, ARFUSE_USAGE, "options.sites names \"%s\" twice", name);
    memcpy(arf_site_of(sites, sites->count++)->name, name, length + 1);
    return ARFUSE_OK;
}

static arfuse_status switch_off(const arf_sites *sites, const char *off, arf_error *error)
{
    for (const char *word = off; word != NULL && *word != '\0';) {
        size_t length = strcspn(word, ",");
        arf_site *site = find(sites, word, length);
        if (site == NULL) {
            char names[512] = "none";
            size_t used = 0;
            for (int i = 0; i < sites->count && used < sizeof names; i++)
                used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                         arf_site_of(sites, i)->name);
            return arf_fail(error, ARFUSE_USAGE,
                            "environment ARFUSE_SITES_OFF names \"%.*s\"; the sites of this "
                            "workspace are: %s",
                            (int)length, word, names);
        }
        site->on = false;
        word += length + (word[length] == ',');
    }
    return ARFUSE_OK;
}

arfuse_status arf_sites_create(const char *const *names, int count, const char *off,
                               arf_sites *sites, arf_error *error)
{
    sites->site = calloc((size_t)count + 1, sizeof *sites->site);
    if (sites->site == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d sites", count);
    for (int i = 0; i < count; i++)
        ARF_TRY(add(names[i], sites, error));
    snprintf(sites->site[0].name, ARF_SITE_NAME, "-");
    for (int i = -1; i < count; i++)
        arf_site_of(sites, i)->on = true;
    return switch_off(sites, off, error);
}

void arf_sites_free(arf_sites *sites)
{
    free(sites->site);
    *sites = (arf_sites){0};
}

/* ---- histogram ------------------------------------------------------------------------------- */

int arf_bucket_of(int64_t tokens)
{
    int bits = 0; /* of the number, without its leading one */
    while (tokens >> (bits + 1) > 0)
        bits++;
    if (bits < ARF_EXACT_BITS)
        return (int)tokens;
    int64_t kept = (tokens >> (bits - ARF_KEPT_BITS)) - (1 << ARF_KEPT_BITS);
    return (1 << ARF_EXACT_BITS) + ((bits - ARF_EXACT_BITS) << ARF_KEPT_BITS) + (int)kept;
}

int64_t arf_bucket_tokens(int bucket)
{
    int above = bucket - (1 << ARF_EXACT_BITS);
    if (above < 0)
        return bucket;
    int bits = ARF_EXACT_BITS + (above >> ARF_KEPT_BITS);
    int64_t kept = (1 << ARF_KEPT_BITS) + (above & ((1 << ARF_KEPT_BITS) - 1));
    return kept << (bits - ARF_KEPT_BITS);
}

arfuse_status arfuse_write_histogram(const arfuse_workspace *workspace, const char *path,
                                     arfuse_error *error)
{
    arf_error_clear(error);
    if (workspace == NULL || path == NULL)
        return arf_fail(error, ARFUSE_USAGE, "%s is NULL",
                        workspace == NULL ? "workspace" : "path");
    ARF_TRY(arf_plain_or_absent(path, error));
    arf_text text = {0};
    arf_text_add(&text, "site,tokens,count\n");
    for (int i = -1; i < workspace->sites.count; i++) {
        const arf_site *site = arf_site_of(&workspace->sites, i);
        for (int bucket = 0; bucket < ARF_BUCKETS; bucket++)
            if (site->histogram[bucket] > 0)
                arf_text_add(&text, "%s,%" PRId64 ",%" PRIu64 "\n", site->name,
                             arf_bucket_tokens(bucket), site->histogram[bucket]);
    }
    arfuse_status status = text.failed
                               ? arf_fail(error, ARFUSE_FAILURE, "out of memory for the histogram")
                               : arf_write_file(path, text.data, text.bytes, error);
    arf_text_free(&text);
    return status;
}

/* ---- switches and counters ------------------------------------------------------------------- */

static arfuse_status check_site(const arfuse_workspace *workspace, int site, int low,
                                arf_error *error)
{
    if (workspace == NULL)
        return arf_fail(error, ARFUSE_USAGE, "workspace is NULL");
    if (site < low || site >= workspace->sites.count)
        return arf_fail(error, ARFUSE_USAGE, "site is %d, expected %d to %d", site, low,
                        workspace->sites.count - 1);
    return ARFUSE_OK;
}

arfuse_status arfuse_site_switch(arfuse_workspace *workspace, int site, int on, arfuse_error *error)
{
    arf_error_clear(error);
    ARF_TRY(check_site(workspace, site, 0, error));
    if (on != 0 && on != 1)
        return arf_fail(error, ARFUSE_USAGE, "on is %d, expected 0 or 1", on);
    arf_site_of(&workspace->sites, site)->on = on != 0;
    return ARFUSE_OK;
}

/* Gives a caller of an older or newer header what both know. */
static arfuse_status give(const arf_counters *from, arfuse_counters *to)
{
    arfuse_counters full = {
        sizeof full,    from->calls,        from->tokens,  from->fused,
        from->unfused,  from->declined,     from->beyond,  from->launches,
        from->deferred, from->materialised, from->dropped, from->shadowed,
    };
    size_t size = to->struct_size;
    if (size < sizeof full.struct_size)
        return ARFUSE_USAGE;
    memcpy(to, &full, size < sizeof full ? size : sizeof full);
    to->struct_size = size;
    return ARFUSE_OK;
}

arfuse_status arfuse_site_counters(const arfuse_workspace *workspace, int site,
                                   arfuse_counters *counters)
{
    if (counters == NULL || check_site(workspace, site, ARFUSE_SITE_NONE, NULL) != ARFUSE_OK)
        return ARFUSE_USAGE;
    return give(&arf_site_of(&workspace->sites, site)->counters, counters);
}

arfuse_status arfuse_route_counters(const arfuse_workspace *workspace, arfuse_pattern pattern,
                                    int route, arfuse_counters *counters)
{
    if (workspace == NULL || counters == NULL ||
        (pattern != ARFUSE_ALLREDUCE && pattern != ARFUSE_FINALIZE))
        return ARFUSE_USAGE;
    const arf_routes *routes = arf_routes_of(workspace, (arf_pattern)pattern);
    int count = routes == NULL ? 0 : routes->count;
    if (route != ARFUSE_ROUTE_UNFUSED && (route < 0 || route >= count))
        return ARFUSE_USAGE;
    return give(&workspace->routes[pattern][route == ARFUSE_ROUTE_UNFUSED ? 0 : 1 + route],
                counters);
}
