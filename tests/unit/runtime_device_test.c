/* SPDX-License-Identifier: Apache-2.0 */
/* What reaches the device is what was meant: over one that only writes down what it is asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "profile/profile.h"
#include "rules/knobs.h"
#include "support/recorded_case.h"
#include "support/recording_device.h"
#include "support/runtime_case.h"

static void what_was_meant_reaches_the_device(void **state)
{
    (void)state;
    arfuse_workspace *workspace = recorded_usual();
    arfuse_call call = ARFUSE_CALL_INIT;
    arfuse_operands operands = recorded_operands();
    arfuse_error error = ARFUSE_ERROR_INIT;
    call.tokens = 5;
    call.epsilon = 0.25f;
    call.weight_bias = 1;
    call.routed_scale = 2.5f;
    call.stream = (arfuse_stream)(uintptr_t)0x40;
    call.plain_launch = call.early_shared = 1;
    assert_int_equal(arfuse_finalize(workspace, &call, &operands, &error), ARFUSE_OK);
    const recorded_launch *last = recorded_last(0);
    assert_int_equal(last->launch.pattern, ARF_FINALIZE);
    assert_int_equal(last->launch.tokens, 5);
    assert_true(last->launch.epsilon == 0.25f && last->launch.weight_bias == 1 &&
                last->launch.routed_scale == 2.5f);
    assert_ptr_equal(last->launch.stream, call.stream);
    assert_true(last->launch.plain && last->launch.early_shared);
    assert_null(last->operands.input); /* of the other pattern */
    assert_ptr_equal(last->operands.routed, operands.routed);
    assert_ptr_equal(last->operands.norm_out, operands.norm_out);

    /* A long call is cut, each piece with operands of its own. */
    operands.residual = recorded_tensor[4];
    call.tokens = 50;
    recorded.launches = 0;
    assert_int_equal(arfuse_finalize(workspace, &call, &operands, &error), ARFUSE_OK);
    assert_int_equal(recorded.launches, 2);
    assert_int_equal(recorded_last(1)->launch.tokens, 48);
    assert_int_equal(recorded_last(0)->launch.tokens, 2);
    assert_int_equal(recorded_last(0)->plan.protocol, ARF_UNFUSED);
    last = recorded_last(0);
    const size_t row = RECORDED_HIDDEN * 2;
    assert_ptr_equal(last->operands.routed, operands.routed);
    assert_ptr_equal(last->operands.indices, recorded_indices + 48 * RECORDED_TOP_K);
    assert_ptr_equal(last->operands.weights,
                     (const char *)operands.weights + 48 * RECORDED_TOP_K * 2);
    assert_ptr_equal(last->operands.shared, (const char *)operands.shared + 48 * row);
    assert_ptr_equal(last->operands.residual_out, (char *)operands.residual_out + 48 * row);
    assert_ptr_equal(last->operands.norm_out, (char *)operands.norm_out + 48 * row);
    arfuse_workspace_destroy(&workspace, NULL);
}

/* For every token count, route, fallback and switch: the gate says what the call then does. */
static void the_gate_and_the_call_cannot_disagree(void **state)
{
    (void)state;
    recording_reset();
    arfuse_options options = recorded_options();
    options.capacity = 150; /* room for several default routes */
    arfuse_workspace *workspace = recorded_open(&options);
    const arfuse_operands operands = recorded_operands();
    arfuse_info info = ARFUSE_INFO_INIT;
    assert_int_equal(arfuse_workspace_info(workspace, &info), ARFUSE_OK);
    assert_true(info.routes[0] >= 2 && info.routes[1] >= 2);
    int gates[2] = {0}, refused = 0;
    arfuse_call call = ARFUSE_CALL_INIT;
    for (int p = 0; p < 2; p++)
        for (call.site = -1; call.site < 2; call.site++)
            for (int on = 0; on < (call.site < 0 ? 1 : 2); on++)
                for (call.route = ARFUSE_ROUTE_UNFUSED; call.route < info.routes[p]; call.route++)
                    for (int fallback = 0; fallback < 4; fallback++)
                        for (call.tokens = 0; call.tokens <= 151; call.tokens++) {
                            const arfuse_pattern pattern = (arfuse_pattern)p;
                            call.fallback = (arfuse_fallback)fallback;
                            if (call.site >= 0)
                                arfuse_site_switch(workspace, call.site, on, NULL);
                            const int gate = arfuse_would_fuse(workspace, pattern, &call);
                            const int before = recorded.launches;
                            const arfuse_status status = (p ? arfuse_finalize : arfuse_allreduce)(
                                workspace, &call, &operands, NULL);
                            gates[gate]++;
                            if (status == ARFUSE_NOT_SERVED) {
                                assert_int_equal(gate, 0);
                                assert_int_equal(fallback, ARFUSE_FALLBACK_ERROR);
                                assert_int_equal(recorded.launches, before);
                                refused++;
                                continue;
                            }
                            assert_int_equal(status, ARFUSE_OK);
                            assert_true(recorded.launches > before);
                            const bool unfused = recorded_last(0)->plan.protocol == ARF_UNFUSED;
                            assert_int_equal(gate, !unfused);
                            if (!gate)
                                assert_int_not_equal(fallback, ARFUSE_FALLBACK_ERROR);
                        }
    assert_true(gates[0] > 1000 && gates[1] > 1000 && refused > 300);
    arfuse_workspace_destroy(&workspace, NULL);
}

static void a_second_stream_is_refused_until_it_is_ordered(void **state)
{
    (void)state;
    arfuse_workspace *workspace = recorded_usual();
    const arfuse_operands operands = recorded_operands();
    arfuse_error error = ARFUSE_ERROR_INIT;
    arfuse_call call = ARFUSE_CALL_INIT;
    call.tokens = 1;
    call.stream = (arfuse_stream)(uintptr_t)0x10;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_OK);
    call.stream = (arfuse_stream)(uintptr_t)0x20;
    const int launches = recorded.launches;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "call.stream is 0x20, but this workspace works on stream "
                                       "0x10"));
    assert_int_equal(recorded.launches, launches);
    assert_int_equal(arfuse_would_fuse(workspace, ARFUSE_ALLREDUCE, &call), 0);
    assert_int_equal(arfuse_workspace_use_stream(workspace, call.stream, &error), ARFUSE_OK);
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_OK);
    arfuse_workspace_destroy(&workspace, NULL);
}

static void a_call_that_fails_half_way_fails_the_workspace(void **state)
{
    (void)state;
    arfuse_workspace *workspace = recorded_usual();
    const arfuse_operands operands = recorded_operands();
    arfuse_error error = ARFUSE_ERROR_INIT;
    arfuse_call call = ARFUSE_CALL_INIT;

    /* The first launch: nothing was enqueued, the workspace lives. */
    call.tokens = 50;
    recorded.fail_launch = 1;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_FAILURE);
    assert_int_equal(arfuse_workspace_status(workspace, NULL), ARFUSE_OK);
    assert_int_equal(recorded.abandoned, 0);
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_OK);

    /* The second one: peers are told. */
    recorded.launches = 0;
    recorded.fail_launch = 2;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_FAILURE);
    assert_int_equal(arfuse_workspace_status(workspace, NULL), ARFUSE_FAILED);
    assert_int_equal(recorded.abandoned, 1);
    recorded.fail_launch = 0;
    call.tokens = 1;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_FAILED);
    assert_int_equal(recorded.launches, 2);
    arfuse_counters counters = ARFUSE_COUNTERS_INIT;
    assert_int_equal(arfuse_site_counters(workspace, ARFUSE_SITE_NONE, &counters), ARFUSE_OK);
    assert_int_equal(counters.calls, 1);
    arfuse_workspace_destroy(&workspace, NULL);
}

static void log_line(void *context, arfuse_log_level level, const char *line)
{
    (void)level;
    snprintf(context, 1024, "%s", line);
}

static void a_route_that_the_device_lacks_runs_unfused(void **state)
{
    (void)state;
    recording_reset();
    char line[1024] = "";
    arfuse_options options = recorded_options();
    options.log = log_line;
    options.log_context = line;
    recorded.unsupported = ARF_LL;
    arfuse_workspace *workspace = recorded_open(&options);
    assert_non_null(strstr(line, "some routes run unfused"));
    assert_non_null(strstr(line, "told to lack ll"));
    const arfuse_operands operands = recorded_operands();
    arfuse_call call = ARFUSE_CALL_INIT;
    call.tokens = 1;
    arfuse_error error = ARFUSE_ERROR_INIT;
    assert_int_equal(arfuse_would_fuse(workspace, ARFUSE_ALLREDUCE, &call), 0);
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_OK);
    assert_int_equal(recorded_last(0)->plan.protocol, ARF_UNFUSED);
    char why[512];
    assert_int_equal(arfuse_explain(workspace, ARFUSE_ALLREDUCE, &call, why, sizeof why), 0);
    assert_non_null(strstr(why, "unfused, since this device lacks what its route needs"));
    arfuse_workspace_destroy(&workspace, NULL);
}

/* Default routes know what the device lacks: no warning, and fused to the end. */
static void default_routes_use_what_the_device_has(void **state)
{
    (void)state;
    recording_reset();
    recorded.lacks = 1u << ARF_HT;
    char line[1024] = "";
    arfuse_options options = recorded_options();
    options.hidden_size = 6144;
    options.capacity = 8192;
    options.log = log_line;
    options.log_context = line;
    arfuse_workspace *workspace = recorded_open(&options);
    assert_string_equal(line, "");
    arfuse_info info = ARFUSE_INFO_INIT;
    assert_int_equal(arfuse_workspace_info(workspace, &info), ARFUSE_OK);
    for (int p = 0; p < 2; p++) {
        assert_int_equal(info.fused_tokens[p], 8192);
        arfuse_call call = ARFUSE_CALL_INIT;
        call.tokens = 8000;
        char why[512];
        assert_int_equal(arfuse_explain(workspace, (arfuse_pattern)p, &call, why, sizeof why), 0);
        assert_non_null(strstr(why, "bt ("));
    }
    arfuse_workspace_destroy(&workspace, NULL);
}

/* A profiler that listens hears site, pattern, M and route of each call, and nobody else pays. */
static void calls_name_themselves_to_a_profiler(void **state)
{
    (void)state;
    for (int profiled = 0; profiled < 2; profiled++) {
        recording_reset();
        recorded.profiled = profiled;
        const arfuse_options options = recorded_options();
        arfuse_workspace *workspace = recorded_open(&options);
        const arfuse_operands operands = recorded_operands();
        arfuse_call call = ARFUSE_CALL_INIT;
        arfuse_error error = ARFUSE_ERROR_INIT;
        call.tokens = 3;
        call.site = 1;
        assert_int_equal(arfuse_finalize(workspace, &call, &operands, &error), ARFUSE_OK);
        assert_int_equal(recorded.ranges, profiled);
        assert_int_equal(recorded.launched_in_range, profiled);
        if (profiled) {
            assert_string_equal(recorded.range, "finalize moe_out M=3 ll, route 1 of 2");
            call.tokens = 100; /* one range, whatever the pieces */
            call.site = ARFUSE_SITE_NONE;
            assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_OK);
            assert_string_equal(recorded.range, "allreduce - M=100 unfused");
            assert_int_equal(recorded.ranges, 2);
            /* A failing call ends its range; a refused one has none. */
            recorded.fail_launch = recorded.launches + 1;
            assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_FAILURE);
            assert_int_equal(recorded.ranges, 3);
            call.tokens = -1;
            assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_USAGE);
            assert_int_equal(recorded.ranges, 3);
        }
        assert_int_equal(recorded.open_ranges, 0);
        arfuse_workspace_destroy(&workspace, NULL);
    }
}

static void nothing_waits_for_a_stream_that_is_captured(void **state)
{
    (void)state;
    recording_reset();
    arfuse_options options = recorded_options();
    options.shadow_every = 1;
    arfuse_workspace *workspace = recorded_open(&options);
    const arfuse_operands operands = recorded_operands();
    arfuse_call call = ARFUSE_CALL_INIT;
    arfuse_error error = ARFUSE_ERROR_INIT;
    call.tokens = 1;
    recorded.capturing = true;
    recorded.waits = 0;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_OK);
    assert_int_equal(recorded.waits, 0);
    assert_int_equal(recorded.launches, 1);
    arfuse_workspace_destroy(&workspace, NULL);

    options = recorded_options();
    options.checked = 1;
    workspace = recorded_open(&options);
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "being captured"));
    assert_int_equal(recorded.launches, 1);
    recorded.capturing = false;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_OK);
    arfuse_workspace_destroy(&workspace, NULL);
}

/* Allreduce ll to 4 tokens, then unfused with the sums of the library; finalize separate to 48. */
static void save_library_profile(char path[256])
{
    arf_profile *profile = arf_profile_new();
    assert_non_null(profile);
    profile->set = ARF_SET_ARFUSE;
    profile->shape = (arf_shape){1, RECORDED_HIDDEN, RECORDED_TOP_K, ARF_ON, ARF_ON, ARF_ON};
    profile->device = recorded_key;
    profile->numerics = ARF_LIBRARY;
    profile->evidence.method = ARF_MEASURED;
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        profile->version[p] = arf_protocol_version(profile->set, (arf_protocol)p);
    static const struct {
        arf_pattern pattern;
        int64_t bound;
        arf_plan plan;
    } routes[] = {{ARF_ALLREDUCE, 4, {.protocol = ARF_LL}},
                  {ARF_ALLREDUCE, 48, {.protocol = ARF_UNFUSED, .numerics = ARF_LIBRARY}},
                  {ARF_FINALIZE, 48, {.protocol = ARF_SEPARATE}}};
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        arf_routes *to = &profile->routes[routes[i].pattern];
        arf_route *route = &to->route[to->count++];
        to->min_tokens = 1;
        *route = (arf_route){routes[i].bound, routes[i].plan};
        route->plan.tuning =
            arf_tuning_fallback(arf_knobs(profile->set, route->plan.protocol, routes[i].pattern));
    }
    case_save(profile, path);
    arf_profile_free(profile);
}

/* A library's sums have bits of their own: to compare them with unfused would call them wrong. */
static void sums_of_a_library_have_no_shadow(void **state)
{
    (void)state;
    recording_reset();
    char path[256];
    case_log log = {0};
    save_library_profile(path);
    arfuse_options options = recorded_options();
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_PROFILE;
    options.profile = path;
    options.shadow_every = 1;
    options.log = case_log_line;
    options.log_context = &log;
    arfuse_workspace *workspace = recorded_open(&options);
    case_remove(path);
    assert_int_equal(case_log_count(&log, "the shadow check leaves out allreduce route 1: numerics "
                                          "library has bits of its own"),
                     1);
    assert_int_equal(case_log_count(&log, "the shadow check leaves out"), 1);

    static const struct {
        arfuse_pattern pattern;
        int tokens, launches; /* a shadow is one launch more */
    } calls[] = {{ARFUSE_ALLREDUCE, 1, 2},
                 {ARFUSE_ALLREDUCE, 9, 1},
                 {ARFUSE_FINALIZE, 1, 2},
                 {ARFUSE_FINALIZE, 9, 1}};
    const arfuse_operands operands = recorded_operands();
    arfuse_call call = ARFUSE_CALL_INIT;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        call.tokens = calls[i].tokens;
        recorded.launches = 0;
        (calls[i].pattern ? arfuse_finalize : arfuse_allreduce)(workspace, &call, &operands, NULL);
        assert_int_equal(recorded.launches, calls[i].launches);
    }
    arfuse_workspace_destroy(&workspace, NULL);
}

static void a_workspace_that_graphs_use_is_not_destroyed(void **state)
{
    (void)state;
    arfuse_workspace *workspace = recorded_usual();
    const arfuse_operands operands = recorded_operands();
    arfuse_call call = ARFUSE_CALL_INIT;
    arfuse_error error = ARFUSE_ERROR_INIT;
    call.tokens = 1;
    recorded.graphs = 2;
    assert_int_equal(arfuse_workspace_destroy(&workspace, &error), ARFUSE_IN_USE);
    assert_non_null(strstr(error.text, "2 captured graphs of calls of this workspace still exist"));
    assert_non_null(workspace);
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_OK);
    recorded.graphs = 0;
    assert_int_equal(arfuse_workspace_destroy(&workspace, &error), ARFUSE_OK);
    assert_null(workspace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_meant_reaches_the_device),
        cmocka_unit_test(the_gate_and_the_call_cannot_disagree),
        cmocka_unit_test(a_second_stream_is_refused_until_it_is_ordered),
        cmocka_unit_test(a_call_that_fails_half_way_fails_the_workspace),
        cmocka_unit_test(a_route_that_the_device_lacks_runs_unfused),
        cmocka_unit_test(default_routes_use_what_the_device_has),
        cmocka_unit_test(calls_name_themselves_to_a_profiler),
        cmocka_unit_test(nothing_waits_for_a_stream_that_is_captured),
        cmocka_unit_test(sums_of_a_library_have_no_shadow),
        cmocka_unit_test(a_workspace_that_graphs_use_is_not_destroyed),
    };
    return cmocka_run_group_tests_name("runtime_device", tests, NULL, NULL);
}
