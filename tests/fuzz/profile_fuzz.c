/* SPDX-License-Identifier: Apache-2.0 */
/* A profile: refused with a message, or accepted and equal after writing and reading again. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "profile/read.h"
#include "profile/write.h"

/* Every token count that a bound makes interesting lands on a route that serves it. */
static void route(const arf_routes *routes)
{
    for (int i = 0; i < routes->count; i++) {
        int64_t bound = routes->route[i].max_tokens;
        int64_t from = i == 0 ? routes->min_tokens : routes->route[i - 1].max_tokens + 1;
        MUST(from <= bound);
        MUST(arf_route_of(routes, from) == i);
        MUST(arf_route_of(routes, bound) == i);
    }
    MUST(arf_route_of(routes, 0) == -1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    arf_profile *profile = NULL, *again = NULL;
    arf_error error = ARF_ERROR_INIT;
    arfuse_status status = arf_profile_parse("fuzz", (const char *)data, bytes, &profile, &error);
    if (status != ARFUSE_OK) {
        MUST(status == ARFUSE_PROFILE && profile == NULL);
        MUST(strncmp(error.text, "fuzz: ", 6) == 0);
        return 0;
    }
    MUST(arf_profile_validate(profile, &error) == ARFUSE_OK);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        route(&profile->routes[pattern]);

    arf_text first = {0}, second = {0};
    MUST(arf_profile_print(profile, &first, &error) == ARFUSE_OK);
    MUST(arf_profile_parse("again", first.data, first.bytes, &again, &error) == ARFUSE_OK);
    MUST(arf_profile_digest(again) == arf_profile_digest(profile));
    MUST(arf_profile_print(again, &second, &error) == ARFUSE_OK);
    MUST(first.bytes == second.bytes && memcmp(first.data, second.data, first.bytes) == 0);
    arf_text_free(&first);
    arf_text_free(&second);
    arf_profile_free(profile);
    arf_profile_free(again);
    return 0;
}
