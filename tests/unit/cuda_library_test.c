/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unfused by NCCL, against stand-ins for libcuda and libnccl (tests/fakecuda): what it is asked
 * for, what profiles say of it, where it cannot serve, and that its waits end.
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
#include <time.h>

#include "device/cuda/cuda_device.h"
#include "support/processes_bootstrap.h"
#include "support/standin.h"

enum { HIDDEN = 1024, TOKENS = 5 };
#define LIMIT_SECONDS 1.0

static int (*live)(void);
static const char *(*launched)(int);
static void (*stick)(int);
static const char *(*nccl_log)(void);
static void (*nccl_forget)(void);

/* What two processes with a GPU each are set in, and what each does. */
typedef struct scene {
    const char *setting[8][2]; /* environment */
    arf_numerics numerics;
    int (*act)(int rank, arf_device *device, arf_space *space, const arf_error *error);
} scene;

static int complain(int rank, const char *what, const char *text)
{
    fprintf(stderr, "process %d: %s: %s\n", rank, what, text);
    return 1;
}

/* The space is NULL, with the message, where it could not be made. */
static int process(const arfuse_bootstrap *bootstrap, void *context)
{
    const scene *s = context;
    const int rank = bootstrap->rank;
    const arf_device_options options = {
        .spec = "cuda", .cuda_ordinal = -1, .numerics = s->numerics};
    arf_team team;
    arf_device *device = NULL;
    arf_space *space = NULL;
    arf_error error = ARF_ERROR_INIT;
    for (int i = 0; i < 8 && s->setting[i][0] != NULL; i++)
        setenv(s->setting[i][0], s->setting[i][1], 1);
    if (arf_team_create(bootstrap, 1, &team, &error) != ARFUSE_OK ||
        arf_cuda_device.open(&options, &team, &device, &error) != ARFUSE_OK)
        return complain(rank, "open", error.text);
    arf_space_spec spec = {.shape = {2, HIDDEN, 0, ARF_ON, ARF_ON, ARF_OFF},
                           .numerics = s->numerics,
                           .wait_limit_seconds = LIMIT_SECONDS};
    spec.capacity[ARF_LL] = spec.capacity[ARF_UNFUSED] = TOKENS;
    arf_cuda_device.space_create(device, &spec, &space, &error);
    int bad = s->act(rank, device, space, &error);
    if (space != NULL)
        arf_cuda_device.space_destroy(space);
    arf_device_close(device);
    return bad + (live() != 0 ? complain(rank, "objects of the driver leak", "") : 0) > 0;
}

static void run(const scene *s)
{
    processes all;
    int status[16];
    processes_start(&all, 2, process, (void *)(uintptr_t)s);
    processes_wait(&all, status, 60);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

/* A GPU each; descriptors and fabric handles are refused, so that memory cannot be mapped. */
#define NO_WAY                 \
    {"FAKECUDA_DEVICES", "2"}, \
    {                          \
        "FAKECUDA_NO_FD", "1"  \
    }
#define A_WAY                   \
    {                           \
        "FAKECUDA_DEVICES", "2" \
    }

static int prepare(arf_space *space, arf_protocol protocol, arf_numerics numerics, arf_error *error)
{
    int id = -1;
    const arf_plan plan = {
        .protocol = protocol,
        .numerics = numerics,
        .tuning = arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, protocol, ARF_ALLREDUCE))};
    return arf_cuda_device.prepare(space, ARF_ALLREDUCE, &plan, &id, error) == ARFUSE_OK ? id : -1;
}

static arfuse_status call(arf_space *space, int plan, arf_error *error)
{
    const arf_launch launch = {
        .pattern = ARF_ALLREDUCE, .plan = plan, .then = -1, .tokens = TOKENS};
    return arf_cuda_device.launch(space, &launch, error);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int check_calls(int rank, arf_device *device, arf_space *space, const arf_error *made)
{
    /* Five tokens are shards of three and two. */
    static const char *const asked[2][2] = {
        {"begin 0 0; send 3072 0; receive 3072 0; send 2048 1; receive 3072 1; end 0 0; "
         "gather 3072 0; ",
         "sum 5120 0; "},
        {"begin 0 0; send 3072 0; receive 2048 0; send 2048 1; receive 2048 1; end 0 0; "
         "gather 3072 0; ",
         "sum 5120 0; "}};
    arf_error error = ARF_ERROR_INIT;
    (void)device;
    if (space == NULL)
        return complain(rank, "space", made->text);
    if (prepare(space, ARF_LL, ARF_FIXED, &error) >= 0 || error.status != ARFUSE_NOT_SUPPORTED)
        return complain(rank, "ll is taken", error.text);
    arf_error_clear(&error);
    for (int i = 0; i < 2; i++) {
        const int plan = prepare(space, ARF_UNFUSED, i == 0 ? ARF_FIXED : ARF_LIBRARY, &error);
        if (plan < 0)
            return complain(rank, "prepare", error.text);
        nccl_forget();
        if (call(space, plan, &error) != ARFUSE_OK)
            return complain(rank, "launch", error.text);
        if (strcmp(nccl_log(), asked[rank][i]) != 0)
            return complain(rank, "NCCL was asked for", nccl_log());
        if (strcmp(launched(0), "arf_library_norm") != 0 ||
            strcmp(launched(i == 0 ? 2 : 1), "arf_library_mark") != 0)
            return complain(rank, "the kernels are", launched(1));
    }
    return 0;
}

static void test_calls(void **state)
{
    (void)state;
    run(&(scene){{NO_WAY}, ARF_LIBRARY, check_calls});
    /* Calls that come back before they are done are waited for. */
    run(&(scene){{NO_WAY, {"FAKENCCL_SLOW", "5"}}, ARF_LIBRARY, check_calls});
}

static int check_barrier(int rank, arf_device *device, arf_space *space, const arf_error *made)
{
    arf_error error = ARF_ERROR_INIT;
    double us[1];
    const arf_timing timing = {.calls = 1, .policy = ARF_WARM};
    (void)device;
    if (space == NULL)
        return complain(rank, "space", made->text);
    const arfuse_operands operands = ARFUSE_OPERANDS_INIT; /* the kernels look at nothing */
    const arf_launch launch = {.pattern = ARF_ALLREDUCE,
                               .plan = prepare(space, ARF_UNFUSED, ARF_LIBRARY, &error),
                               .then = -1,
                               .tokens = TOKENS,
                               .operands = &operands};
    nccl_forget();
    /* The stand-in does not launch graphs: what was recorded is what counts. */
    arf_cuda_device.time(space, &launch, &timing, us, &error);
    return strcmp(nccl_log(), "sum 1 0; sum 5120 0; ") == 0
               ? 0
               : complain(rank, "a timing asks NCCL for", nccl_log());
}

static void test_ranks_without_common_memory_meet_by_nccl_before_a_timing(void **state)
{
    (void)state;
    run(&(scene){{NO_WAY}, ARF_LIBRARY, check_barrier});
}

/* ---- evidence -------------------------------------------------------------------------------- */

static int check_evidence(int rank, arf_device *device, arf_space *space, const arf_error *made)
{
    arf_device_evidence evidence = {.driver = ""};
    arf_cuda_device.evidence(device, &evidence);
    if (space == NULL)
        return complain(rank, "space", made->text);
    const char *wanted = getenv("WANTED");
    return strcmp(evidence.library, wanted) == 0 ? 0 : complain(rank, wanted, evidence.library);
}

static void test_version_and_settings_are_evidence(void **state)
{
    (void)state;
    run(&(scene){{NO_WAY,
                  {"FAKENCCL_VERSION", "22809"},
                  {"NCCL_NVLS_ENABLE", "0"},
                  {"WANTED", "NCCL 2.28.9, NCCL_NVLS_ENABLE=0"}},
                 ARF_FIXED,
                 check_evidence});
    run(&(scene){{A_WAY,
                  {"NCCL_SOCKET_IFNAME", "eth0\n"},
                  {"WANTED", "NCCL 2.28.0, NCCL_SOCKET_IFNAME=eth0?"}},
                 ARF_LIBRARY,
                 check_evidence});
    /* Where no call can go by NCCL, nothing is said of it. */
    run(&(scene){{A_WAY, {"NCCL_NVLS_ENABLE", "0"}, {"WANTED", ""}}, ARF_FIXED, check_evidence});
}

static void test_settings_beyond_the_room_are_cut(void **state)
{
    (void)state;
    char value[400], text[ARF_NOTE_TEXT];
    const arf_nccl nccl = {.version = 22809};
    memset(value, 'x', sizeof value);
    value[sizeof value - 1] = '\0';
    setenv("NCCL_LONG", value, 1);
    arf_nccl_text(&nccl, text, sizeof text);
    unsetenv("NCCL_LONG");
    assert_int_equal(strlen(text), sizeof text - 1);
    assert_string_equal(text + strlen(text) - 4, "x...");
}

/* ---- where it cannot serve ------------------------------------------------------------------- */

static int check_refused(int rank, arf_device *device, arf_space *space, const arf_error *made)
{
    const arf_shape shape = {2, HIDDEN, 0, ARF_ON, ARF_ON, ARF_OFF};
    const arf_problem problem = arf_device_problem(device, &shape);
    const arf_plan plan = {
        .protocol = ARF_UNFUSED,
        .numerics = ARF_LIBRARY,
        .tuning = arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, ARF_UNFUSED, ARF_ALLREDUCE))};
    char reason[ARF_REASON_TEXT] = "";
    arf_error error = ARF_ERROR_INIT;
    if (space == NULL)
        return complain(rank, "space", made->text);
    if (arf_legal(&problem, ARF_ALLREDUCE, &plan, reason) ||
        strstr(reason, "numerics library: ") == NULL || strstr(reason, getenv("WANTED")) == NULL)
        return complain(rank, "the rules say", reason);
    if (prepare(space, ARF_UNFUSED, ARF_LIBRARY, &error) >= 0)
        return complain(rank, "taken", "");
    if (strstr(error.text, getenv("WANTED")) == NULL)
        return complain(rank, "prepare says", error.text);
    return 0;
}

static void test_plans_of_the_library_are_refused_with_the_reason(void **state)
{
    (void)state;
    run(&(scene){{A_WAY, {"FAKENCCL_VERSION", "21300"}, {"WANTED", "version 21300"}},
                 ARF_LIBRARY,
                 check_refused});
}

/* One process with two ranks on the GPU. */
static void test_a_shared_gpu_has_no_library(void **state)
{
    (void)state;
    static const arfuse_bootstrap alone = ARFUSE_BOOTSTRAP_INIT;
    const arf_shape shape = {2, HIDDEN, 0, ARF_ON, ARF_ON, ARF_OFF};
    const arf_device_options options = {
        .spec = "cuda", .cuda_ordinal = -1, .gpu_sharing = true, .numerics = ARF_LIBRARY};
    arf_team team;
    arf_device *device = NULL;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_team_create(&alone, 2, &team, &error), ARFUSE_OK);
    if (arf_cuda_device.open(&options, &team, &device, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    const char *reason = arf_device_problem(device, &shape).no_library;
    assert_non_null(reason);
    assert_non_null(strstr(reason, "2 ranks share a GPU, and NCCL takes one rank a GPU"));
    arf_device_close(device);
}

/* ---- waits ----------------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Waits for the space to fail: the seconds that took, or -1 after ten. */
static double until_failed(arf_space *space, arfuse_culprit *culprit)
{
    const double start = seconds();
    while (arf_cuda_device.state(space, culprit) == ARFUSE_OK) {
        if (seconds() - start > 10)
            return -1;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return seconds() - start;
}

/* `least` to `most` seconds after a call that stays, while NCCL is in `state`, the space has failed
 * for `reason`, with the word set. */
static int ends(int rank, arf_space *space, const char *state, double least, double most,
                const char *reason)
{
    arfuse_culprit culprit = {.rank = 0};
    arf_error error = ARF_ERROR_INIT;
    const int plan = prepare(space, ARF_UNFUSED, ARF_LIBRARY, &error);
    stick(1);
    if (plan < 0 || call(space, plan, &error) != ARFUSE_OK)
        return complain(rank, "call", error.text);
    setenv("FAKENCCL_STATE", state, 1);
    const double took = until_failed(space, &culprit);
    char text[64];
    snprintf(text, sizeof text, "%.3f s", took);
    if (took < least || took > most)
        return complain(rank, "ended after", text);
    if (culprit.rank != -1 || culprit.stage != ARF_STAGE_LIBRARY)
        return complain(rank, "culprit", "is another");
    const arf_cuda_space *cuda = (const arf_cuda_space *)space;
    if (((const arf_control *)(const void *)cuda->view.peer[rank])->culprit == 0)
        return complain(rank, "the sticky word", "is not set: rows would look right");
    if (arf_cuda_device.synchronize(space, NULL, &error) != ARFUSE_TIMEOUT ||
        strstr(error.text, reason) == NULL)
        return complain(rank, "synchronize says", error.text);
    arf_error_clear(&error);
    /* Aborted: nothing may be asked of it again. */
    for (int i = 0; i < 100 && strstr(nccl_log(), "abort") == NULL; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    nccl_forget();
    if (call(space, plan, &error) != ARFUSE_TIMEOUT || strstr(error.text, reason) == NULL)
        return complain(rank, "a later call says", error.text);
    return nccl_log()[0] != '\0' ? complain(rank, "NCCL was asked again", nccl_log()) : 0;
}

static int lose_a_rank(int rank, arf_device *device, arf_space *space, const arf_error *made)
{
    (void)device;
    return space == NULL ? complain(rank, "space", made->text)
                         : ends(rank, space, "0", LIMIT_SECONDS * 0.9, LIMIT_SECONDS + 4,
                                "a wait in NCCL expired after 1 s");
}

static void test_a_call_that_stays_ends_at_the_limit(void **state)
{
    (void)state;
    run(&(scene){{NO_WAY}, ARF_LIBRARY, lose_a_rank});
}

static int break_a_link(int rank, arf_device *device, arf_space *space, const arf_error *made)
{
    (void)device;
    return space == NULL ? complain(rank, "space", made->text)
                         : ends(rank, space, "6", 0, LIMIT_SECONDS * 0.9,
                                "NCCL: remote error (6): closed by node7<40001>");
}

static void test_an_error_that_nccl_tells_ends_it_at_once(void **state)
{
    (void)state;
    run(&(scene){{NO_WAY}, ARF_LIBRARY, break_a_link});
}

/* Calls that end keep the watch quiet, however long nothing else comes. */
static int stay_well(int rank, arf_device *device, arf_space *space, const arf_error *made)
{
    arf_error error = ARF_ERROR_INIT;
    (void)device;
    if (space == NULL)
        return complain(rank, "space", made->text);
    const int plan = prepare(space, ARF_UNFUSED, ARF_LIBRARY, &error);
    if (call(space, plan, &error) != ARFUSE_OK)
        return complain(rank, "call", error.text);
    nanosleep(&(struct timespec){.tv_sec = (int)(LIMIT_SECONDS + 1)}, NULL);
    if (arf_cuda_device.state(space, NULL) != ARFUSE_OK || call(space, plan, &error) != ARFUSE_OK)
        return complain(rank, "a space that nobody uses fails", error.text);
    return 0;
}

static void test_a_space_at_rest_does_not_expire(void **state)
{
    (void)state;
    run(&(scene){{NO_WAY}, ARF_LIBRARY, stay_well});
}

static int miss_the_others(int rank, arf_device *device, arf_space *space, const arf_error *made)
{
    (void)device;
    if (space != NULL)
        return complain(rank, "a space", "was made");
    return strstr(made->text, "ncclCommInitRankConfig: not all ranks have come after 1 s") != NULL
               ? 0
               : complain(rank, "message", made->text);
}

static void test_a_start_that_misses_a_rank_ends_at_the_limit(void **state)
{
    (void)state;
    run(&(scene){{NO_WAY, {"FAKENCCL_SLOW", "1000000"}}, ARF_LIBRARY, miss_the_others});
}

static int prepare_all(void **state)
{
    (void)state;
    void *library = standin_driver();
    void *nccl = standin_load("fakecuda/libnccl.so.2");
    if (library == NULL || nccl == NULL)
        return 1;
    *(void **)&live = dlsym(library, "fakecuda_live");
    *(void **)&launched = dlsym(library, "fakecuda_launched");
    *(void **)&stick = dlsym(library, "fakecuda_stick");
    *(void **)&nccl_log = dlsym(nccl, "fakenccl_log");
    *(void **)&nccl_forget = dlsym(nccl, "fakenccl_forget");
    return 0;
}

int main(void)
{
    if (standin_no_compiler())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_ranks_without_common_memory_meet_by_nccl_before_a_timing),
        cmocka_unit_test(test_version_and_settings_are_evidence),
        cmocka_unit_test(test_settings_beyond_the_room_are_cut),
        cmocka_unit_test(test_plans_of_the_library_are_refused_with_the_reason),
        cmocka_unit_test(test_a_shared_gpu_has_no_library),
        cmocka_unit_test(test_a_call_that_stays_ends_at_the_limit),
        cmocka_unit_test(test_an_error_that_nccl_tells_ends_it_at_once),
        cmocka_unit_test(test_a_space_at_rest_does_not_expire),
        cmocka_unit_test(test_a_start_that_misses_a_rank_ends_at_the_limit),
    };
    return cmocka_run_group_tests(tests, prepare_all, standin_clear);
}

#else
#include "support/no_cuda.h"
#endif
