/* SPDX-License-Identifier: Apache-2.0 */
/* The published profiles as they are shipped: our reader takes each, finds in it what the
 * transcription says, and our writer prints the same bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "profile/lookup.h"
#include "profile/read.h"
#include "profile/write.h"
#include "support/published.h"

static void path_of(const published *one, char path[512])
{
    char name[ARF_NAME_TEXT + 64];
    arf_profile_filename(&one->problem.shape, name);
    snprintf(path, 512, "profiles/published/%s/%s/%s", arf_set_name(one->problem.set), one->config,
             name);
}

static arf_profile *load(const char *path)
{
    arf_profile *profile = NULL;
    arf_error error = ARF_ERROR_INIT;
    if (arf_profile_load(path, &profile, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return profile;
}

static void every_configuration_is_shipped_as_transcribed(void **state)
{
    (void)state;
    const published *list;
    int count = published_configurations(&list);
    for (int i = 0; i < count; i++) {
        char path[512];
        path_of(&list[i], path);
        arf_profile *profile = load(path);
        assert_int_equal(profile->evidence.method, ARF_PUBLISHED);
        assert_int_equal(profile->set, list[i].problem.set);
        assert_string_equal(profile->variant, list[i].config);
        assert_true(arf_shape_equal(&profile->shape, &list[i].problem.shape));
        assert_int_equal(profile->device.sm_count, list[i].problem.sm_count);
        for (int pattern = 0; pattern < ARF_PATTERNS; pattern++) {
            const arf_routes *routes = &profile->routes[pattern];
            const arf_routes *want = &list[i].routes[pattern];
            assert_int_equal(routes->count, want->count);
            for (int r = 0; r < want->count; r++) {
                assert_true(routes->route[r].max_tokens == want->route[r].max_tokens);
                assert_true(arf_plan_equal(profile->set, (arf_pattern)pattern,
                                           &routes->route[r].plan, &want->route[r].plan));
            }
        }
        arf_profile_free(profile);
    }
}

static void our_writer_prints_the_same_bytes(void **state)
{
    (void)state;
    const published *list;
    int count = published_configurations(&list);
    for (int i = 0; i < count; i++) {
        char path[512], *text = NULL;
        size_t bytes = 0;
        arf_text printed = {0};
        arf_error error = ARF_ERROR_INIT;
        path_of(&list[i], path);
        arf_profile *profile = load(path);
        assert_int_equal(arf_profile_print(profile, &printed, &error), ARFUSE_OK);
        assert_int_equal(arf_read_file(path, 1 << 20, &text, &bytes, &error), ARFUSE_OK);
        assert_string_equal(printed.data, text);
        free(text);
        arf_text_free(&printed);
        arf_profile_free(profile);
    }
}

/* Picked by hand from the sources: which protocol serves M tokens. */
static void picked_answers_are_right(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int hidden, ranks, top_k;
        arf_pattern pattern;
        int64_t tokens;
        int protocol; /* -1: none */
        int64_t bound;
    } cases[] = {
        {"default", 8192, 8, 10, ARF_FINALIZE, 1, ARF_LL, 23},
        {"default", 8192, 8, 10, ARF_FINALIZE, 24, ARF_BT, 48},
        {"default", 8192, 8, 10, ARF_FINALIZE, 703, ARF_BT, 703},
        {"default", 8192, 8, 10, ARF_FINALIZE, 704, ARF_HT, ARF_OPEN_BOUND},
        {"default", 8192, 8, 10, ARF_ALLREDUCE, 16, ARF_BT, 256},
        {"default", 8192, 16, 10, ARF_ALLREDUCE, 5, ARF_LL, 5},
        {"default", 8192, 16, 10, ARF_ALLREDUCE, 960, ARF_HT, ARF_OPEN_BOUND},
        {"default", 6144, 4, 8, ARF_FINALIZE, 29, ARF_BT, 768},
        {"default", 6144, 8, 8, ARF_ALLREDUCE, 12, ARF_LL, 12},
        {"default", 5120, 8, 6, ARF_FINALIZE, 100000, ARF_BT, ARF_OPEN_BOUND},
        {"no-norm", 5120, 4, 6, ARF_FINALIZE, 64, ARF_LL, 64},
        {"bt-only", 8192, 8, 10, ARF_FINALIZE, 1025, -1, 0},
        {"glm-5.2", 6144, 8, 8, ARF_ALLREDUCE, 64, ARF_LL, 64},
        {"inherited", 6144, 8, 8, ARF_ALLREDUCE, 64, ARF_BT, 256},
        {"k3-first-half", 3584, 8, 16, ARF_FINALIZE, 32, -1, 0},
        {"k3-first-half", 3584, 8, 16, ARF_FINALIZE, 33, ARF_BT, 1024},
        {"k3-first-half", 3584, 8, 16, ARF_ALLREDUCE, 33, -1, 0},
        {"fusion-ll-bt-ht", 3584, 4, 16, ARF_FINALIZE, 4096, ARF_HT, ARF_OPEN_BOUND},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512];
        path_of(published_find(cases[i].config, cases[i].hidden, cases[i].ranks, cases[i].top_k),
                path);
        arf_profile *profile = load(path);
        const arf_routes *routes = &profile->routes[cases[i].pattern];
        int route = arf_route_of(routes, cases[i].tokens);
        if (cases[i].protocol < 0) {
            assert_int_equal(route, -1);
        } else {
            assert_true(route >= 0);
            assert_int_equal(routes->route[route].plan.protocol, cases[i].protocol);
            assert_true(routes->route[route].max_tokens == cases[i].bound);
        }
        arf_profile_free(profile);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_configuration_is_shipped_as_transcribed),
        cmocka_unit_test(our_writer_prints_the_same_bytes),
        cmocka_unit_test(picked_answers_are_right),
    };
    return cmocka_run_group_tests_name("shipped", tests, NULL, NULL);
}
