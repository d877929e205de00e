/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles: reading strictly against cJSON parsing the same text alone, and choosing a route
 * against an empty call. Each pair in one run, with its ratio. Usage: profile_bench [PROFILE]
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "base/io.h"
#include "base/json.h"
#include "profile/read.h"

#define LOADS 300
#define CHOICES 20000000

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Not inlined: both are called as the runtime calls arf_route_of, across files. */
static __attribute__((noinline)) int no_choice(const arf_routes *routes, int64_t tokens)
{
    __asm__ volatile("" ::"r"(routes), "r"(tokens));
    return 0;
}

static double choose_ns(int (*choose)(const arf_routes *, int64_t), const arf_routes *routes)
{
    volatile int sink = 0;
    double start = now_us();
    for (int64_t i = 0; i < CHOICES; i++)
        sink += choose(routes, 1 + (i * 7919) % 256);
    return (now_us() - start) * 1e3 / CHOICES;
}

int main(int argc, char **argv)
{
    const char *path =
        argc > 1 ? argv[1] : "profiles/nvidia-h200-shared-gpu/tp8_h6144_k8_bf16.json";
    arf_error error = ARF_ERROR_INIT;
    char *text;
    size_t bytes;
    arf_profile *profile = NULL;
    if (arf_read_file(path, ARF_JSON_MAX_BYTES, &text, &bytes, &error) != ARFUSE_OK ||
        arf_profile_parse(path, text, bytes, &profile, &error) != ARFUSE_OK) {
        fprintf(stderr, "profile_bench: %s\n", error.text);
        return 1;
    }
    double strict = 0, plain = 0;
    for (int i = 0; i < LOADS; i++) { /* in turn, so that both see the same machine */
        double start = now_us();
        arf_profile *again;
        if (arf_profile_parse(path, text, bytes, &again, &error) != ARFUSE_OK)
            return 1;
        arf_profile_free(again);
        strict += now_us() - start;
        start = now_us();
        cJSON_Delete(cJSON_ParseWithLength(text, bytes));
        plain += now_us() - start;
    }
    double route = choose_ns(arf_route_of, &profile->routes[ARF_ALLREDUCE]);
    double empty = choose_ns(no_choice, &profile->routes[ARF_ALLREDUCE]);
    printf("profile of %zu bytes, read and checked   %8.1f us\n", bytes, strict / LOADS);
    printf("the same text, parsed by cJSON alone     %8.1f us   ratio %.2f\n", plain / LOADS,
           strict / plain);
    printf("route of a token count, %d routes         %8.2f ns\n",
           profile->routes[ARF_ALLREDUCE].count, route);
    printf("an empty call                            %8.2f ns   ratio %.2f\n", empty,
           route / empty);
    arf_profile_free(profile);
    free(text);
    return 0;
}
