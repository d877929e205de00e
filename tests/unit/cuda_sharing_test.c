/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that share a GPU under CUDA MPS: what each may use of it, whether all of them fit, and
 * libarfuse's option for it, against stand-ins for libcuda and libnvidia-ml.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#ifdef ARF_CUDA

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_device.h"
#include "support/processes_bootstrap.h"
#include "support/standin.h"

static int (*live)(void), (*carveout)(void);

/* ---- what a process may use ------------------------------------------------------------------ */

static int mps_answer; /* of the driver; -1: it does not know the question */

static CUresult answer(int *value, CUdevice_attribute which, CUdevice device)
{
    (void)device;
    assert_int_equal((int)which, (int)ARF_MPS_ENABLED);
    *value = mps_answer;
    return mps_answer < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static arf_share look(int mps, int seen, int all, const char *percentage)
{
    const arf_driver driver = {.cuDeviceGetAttribute = answer};
    mps_answer = mps;
    if (percentage != NULL)
        setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentage, 1);
    arf_share share = arf_mps_look(&driver, 0, seen, all);
    unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    return share;
}

static void the_share_is_known_whether_or_not_the_driver_counts_the_limit_in(void **state)
{
    (void)state;
    static const struct {
        int mps, seen, all;
        const char *percentage;
        arf_share share; /* seen, all, mps */
    } cases[] = {
        {0, 132, 132, NULL, {132, 132, 0}},
        {0, 132, 0, NULL, {132, 132, 0}},
        {0, 132, 132, "50", {132, 132, 0}}, /* a limit without a daemon limits nothing */
        {0, 132, 0, "50", {132, 132, 0}},
        {1, 132, 132, NULL, {132, 132, 1}},
        {1, 66, 132, "50", {66, 132, 1}}, /* the driver counts it in ... */
        {1, 34, 132, "25", {34, 132, 1}},
        {1, 132, 132, "50", {66, 132, 1}}, /* ... or not */
        {1, 132, 132, "25", {34, 132, 1}}, /* 33 are no whole pairs */
        {1, 132, 132, "24", {32, 132, 1}},
        {1, 148, 148, "12.5", {20, 148, 1}},
        {1, 132, 132, "100", {132, 132, 1}},
        {1, 132, 132, "no number", {132, 132, 1}},
        {1, 66, 132, NULL, {66, 132, 1}}, /* the daemon's own limit */
        {-1, 66, 132, NULL, {66, 132, 1}},
        {-1, 132, 132, "50", {132, 132, 0}}, /* nothing tells of MPS */
        {1, 66, 0, "50", {66, 132, 1}},      /* without libnvidia-ml */
        {1, 132, 0, NULL, {132, 132, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const arf_share got = look(cases[i].mps, cases[i].seen, cases[i].all, cases[i].percentage);
        if (memcmp(&got, &cases[i].share, sizeof got) != 0)
            fail_msg("case %zu: %d of %d SMs, MPS %d", i, got.sm_seen, got.sm_all, got.mps);
    }
}

static void what_is_advised_fits(void **state)
{
    (void)state;
    static const int sizes[] = {78, 114, 132, 144, 148, 160};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int count = 2; count <= 16; count++) {
            char percentage[16];
            const int advised = arf_mps_percentage(count, sizes[i]);
            snprintf(percentage, sizeof percentage, "%d", advised);
            const int share = look(1, sizes[i], sizes[i], percentage).sm_seen;
            assert_in_range(advised, 1, 100 / count);
            assert_in_range(share * count, 1, sizes[i]);
        }
    assert_int_equal(arf_mps_percentage(2, 132), 50);
    assert_int_equal(arf_mps_percentage(4, 132), 24); /* 25 would be 34 SMs each */
}

/* ---- whether all fit ------------------------------------------------------------------------- */

enum { MOST = 4 };

/* A process a rank, all on one GPU. */
static arfuse_status judge(int count, const arf_share *share, char timing[ARF_TIMING_TEXT],
                           arf_error *error)
{
    arf_team team = {.bootstrap = {.size = count}, .tp_size = count};
    arf_seat_claim claim[MOST];
    arf_seat seat[MOST];
    memset(claim, 0, sizeof claim);
    for (int p = 0; p < count; p++) {
        team.process_of[p] = p;
        claim[p].fixed = -1;
        claim[p].gpus = 1;
    }
    arf_seats(&team, claim, seat);
    arf_error_clear(error);
    return arf_mps_judge(&team, claim, seat, share, timing, error);
}

static void shares_must_fit_and_be_alike(void **state)
{
    (void)state;
    static const struct {
        int count;
        arf_share share[MOST];
        const char *refused; /* NULL: not */
    } cases[] = {
        {2, {{66, 132, 1}, {66, 132, 1}}, NULL},
        {4, {{32, 132, 1}, {32, 132, 1}, {32, 132, 1}, {32, 132, 1}}, NULL},
        {4,
         {{34, 132, 1}, {34, 132, 1}, {34, 132, 1}, {34, 132, 1}},
         "may use 136 SMs together, while it has 132: kernels that wait for each other could not "
         "all run; set CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=24 (or less) for each"},
        {2, {{132, 132, 1}, {132, 132, 1}}, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 (or less)"},
        {3,
         {{44, 132, 1}, {44, 132, 1}, {40, 132, 1}},
         "processes 0 and 2 share a GPU under CUDA MPS, and may use 44 and 40 of its SMs"},
        {3, {{132, 132, 0}, {66, 132, 1}, {132, 132, 0}}, "1 of them run under CUDA MPS"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char timing[ARF_TIMING_TEXT];
        arf_error error = ARF_ERROR_INIT;
        arfuse_status status = judge(cases[i].count, cases[i].share, timing, &error);
        const char *refused = cases[i].refused;
        assert_int_equal(status, refused != NULL ? ARFUSE_HARDWARE : ARFUSE_OK);
        if (refused != NULL && strstr(error.text, refused) == NULL)
            fail_msg("case %zu: %s", i, error.text);
        assert_string_equal(timing, "");
    }
}

static void without_mps_times_mean_nothing(void **state)
{
    (void)state;
    static const arf_share turns[2] = {{132, 132, 0}, {132, 132, 0}};
    char timing[ARF_TIMING_TEXT];
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(judge(2, turns, timing, &error), ARFUSE_OK);
    assert_non_null(strstr(timing, "2 processes share a GPU without CUDA MPS"));
    assert_int_equal(judge(1, turns, timing, &error), ARFUSE_OK);
    assert_string_equal(timing, "");
}

/* ---- libarfuse ------------------------------------------------------------------------------- */

/* What two processes on one GPU ask for, and what comes of it. */
typedef struct request {
    int sharing[2];            /* options.gpu_sharing, by process */
    const char *setting[8][2]; /* environment */
    arfuse_status status;
    const char *words; /* of the message */
} request;

static int complain(int rank, const char *what, const char *text)
{
    fprintf(stderr, "process %d: %s: %s\n", rank, what, text);
    return 1;
}

static int make_workspace(const arfuse_bootstrap *bootstrap, void *context)
{
    const request *r = context;
    for (int i = 0; i < 8 && r->setting[i][0] != NULL; i++)
        setenv(r->setting[i][0], r->setting[i][1], 1);
    arfuse_options options = ARFUSE_OPTIONS_INIT;
    options.hidden_size = 1024;
    options.shared_expert = 0;
    options.capacity = 4;
    options.device = "cuda";
    options.routes[0] = ARFUSE_ROUTES_UNFUSED;
    options.gpu_sharing = r->sharing[bootstrap->rank];
    arfuse_workspace *workspace = NULL;
    arfuse_error error = ARFUSE_ERROR_INIT;
    arfuse_status status = arfuse_workspace_create(bootstrap, &options, &workspace, &error);
    if (status != r->status)
        return complain(bootstrap->rank, arfuse_status_text(status), error.text);
    if (r->words != NULL && strstr(error.text, r->words) == NULL)
        return complain(bootstrap->rank, r->words, error.text);
    if (workspace != NULL) {
        arfuse_info info = ARFUSE_INFO_INIT;
        arfuse_workspace_info(workspace, &info);
        if (info.tp_size != 2 || info.local_ranks != 1)
            return complain(bootstrap->rank, "another team", info.device);
        if (carveout() != CU_SHAREDMEM_CARVEOUT_MAX_SHARED)
            return complain(bootstrap->rank, "kernels divide memory each in its own way", "");
    }
    if (arfuse_workspace_destroy(&workspace, &error) != ARFUSE_OK || live() != 0)
        return complain(bootstrap->rank, "not taken down", error.text);
    return 0;
}

static void ask(const request *r)
{
    processes all;
    int status[16];
    processes_start(&all, 2, make_workspace, (void *)(uintptr_t)r);
    processes_wait(&all, status, 60);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

static void a_workspace_is_made_on_a_gpu_that_mps_shares(void **state)
{
    (void)state;
    /* Whether the driver tells 66 SMs or all of them. */
    for (int i = 0; i < 2; i++)
        ask(&(request){.sharing = {1, 1},
                       .setting = {{"FAKECUDA_MPS", "1"},
                                   {"FAKECUDA_SMS", i == 0 ? "66" : "132"},
                                   {"FAKENVML_SMS", "132"},
                                   {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50"}}});
}

static void a_workspace_is_made_where_processes_take_turns(void **state)
{
    (void)state;
    ask(&(request){.sharing = {1, 1}});
}

static void a_gpu_is_shared_only_by_those_who_ask(void **state)
{
    (void)state;
    ask(&(request){.status = ARFUSE_HARDWARE,
                   .words = "2 ranks on 1 GPU: ranks 0-1 on GPU-00000000"});
    ask(&(request){.status = ARFUSE_HARDWARE, .words = "processes may share one (gpu_sharing)"});
    ask(&(request){.sharing = {1, 0}, .status = ARFUSE_DISAGREE, .words = "gpu_sharing"});
    ask(&(request){.sharing = {1, 1},
                   .setting = {{"FAKECUDA_MPS", "1"}, {"FAKENVML_SMS", "132"}},
                   .status = ARFUSE_HARDWARE,
                   .words = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 (or less) for each"});
}

static int prepare_all(void **state)
{
    (void)state;
    void *library = standin_driver();
    if (library == NULL || standin_load("fakenvml/libnvidia-ml.so.1") == NULL)
        return 1;
    *(void **)&live = dlsym(library, "fakecuda_live");
    *(void **)&carveout = dlsym(library, "fakecuda_carveout");
    return 0;
}

int main(void)
{
    if (standin_no_compiler())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_share_is_known_whether_or_not_the_driver_counts_the_limit_in),
        cmocka_unit_test(what_is_advised_fits),
        cmocka_unit_test(shares_must_fit_and_be_alike),
        cmocka_unit_test(without_mps_times_mean_nothing),
        cmocka_unit_test(a_workspace_is_made_on_a_gpu_that_mps_shares),
        cmocka_unit_test(a_workspace_is_made_where_processes_take_turns),
        cmocka_unit_test(a_gpu_is_shared_only_by_those_who_ask),
    };
    return cmocka_run_group_tests(tests, prepare_all, standin_clear);
}

#else
#include "support/no_cuda.h"
#endif
