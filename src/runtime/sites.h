/* SPDX-License-Identifier: Apache-2.0 */
/* Sites: named places of use, each with a switch, counters and a histogram of token counts. */
#ifndef ARF_RUNTIME_SITES_H
#define ARF_RUNTIME_SITES_H

#include <stdbool.h>

#include "base/error.h"

#define ARF_SITE_NAME 32

/* Token counts are kept exactly below 2^12; above, the first 7 bits of the number are kept, so that
 * a call of 2^20 tokens (the most there is) falls into the last bucket. */
#define ARF_EXACT_BITS 12
#define ARF_KEPT_BITS 6
#define ARF_BUCKETS ((1 << ARF_EXACT_BITS) + ((20 - ARF_EXACT_BITS) << ARF_KEPT_BITS) + 1)

typedef struct arf_counters {
    uint64_t calls, tokens, fused, unfused, declined, beyond, launches;
    uint64_t deferred, materialised, dropped, shadowed;
} arf_counters;

typedef struct arf_site {
    char name[ARF_SITE_NAME];
    bool on;
    arf_counters counters;
    uint64_t histogram[ARF_BUCKETS];
} arf_site;

typedef struct arf_sites {
    int count;      /* registered ones */
    arf_site *site; /* [1 + count]: the first is of calls that name none */
} arf_sites;

/* `off` is a list "a,b" of sites that start switched off, or NULL. An unknown one there is an
 * error that lists the known ones. */
arfuse_status arf_sites_create(const char *const *names, int count, const char *off,
                               arf_sites *sites, arf_error *error);
void arf_sites_free(arf_sites *sites);

/* index from ARFUSE_SITE_NONE (-1) to count - 1. */
static inline arf_site *arf_site_of(const arf_sites *sites, int index)
{
    return &sites->site[1 + index];
}

int arf_bucket_of(int64_t tokens);
int64_t arf_bucket_tokens(int bucket); /* the least token count in it */

#endif
