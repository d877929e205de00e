/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Setting up a team of the cuda device over several processes, against a stand-in for libcuda
 * (tests/fakecuda): every call of the driver is made to fail once, on every rank. Whatever fails,
 * all ranks end with one status and one message, nothing leaks, and a later start on the same
 * bootstrap works.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#ifdef ARF_CUDA

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_device.h"
#include "device/trial.h"
#include "rules/candidates.h"
#include "support/processes_bootstrap.h"
#include "support/standin.h"

static void (*arm)(int);
static int (*calls)(const char **);
static int (*live)(void);

/* One run of a team: how many processes, how many local ranks each, what the machine is. */
typedef struct scene {
    int processes, local_ranks;
    bool sharing, by_nccl;
    const char *setting[16][2]; /* environment */
    bool alone;                 /* each process on a node of its own */
    int step;                   /* every how many calls one fails */
    int *cases;                 /* shared: failures injected ... */
    int *recovered;             /* ... and got over (a question whose answer is not needed) */
} scene;

static void set_environment(const scene *s, int rank)
{
    for (int i = 0; i < 16 && s->setting[i][0] != NULL; i++)
        setenv(s->setting[i][0], s->setting[i][1], 1);
    if (s->alone) {
        char node[16];
        snprintf(node, sizeof node, "node%d", rank);
        setenv("ARFUSE_TEST_NODE", node, 1);
    }
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        closedir(folder);
    return count;
}

/* Maps of memfds and anonymous reservations of the stand-in. */
static int shared_maps(void)
{
    int count = 0;
    char line[512];
    FILE *file = fopen("/proc/self/maps", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        count += strstr(line, "memfd:fakecuda") != NULL;
    if (file != NULL)
        fclose(file);
    return count;
}

static int set_up_calls; /* of the last one that came so far */

/* Device, space, one plan; and all of it let go again. */
static arfuse_status set_up(const arfuse_bootstrap *bootstrap, const scene *s, arf_device_key *key,
                            arf_way *way, arf_error *error)
{
    arf_team team;
    arf_device *device = NULL;
    arf_space *space = NULL;
    const arf_device_options options = {.spec = "cuda",
                                        .cuda_ordinal = -1,
                                        .gpu_sharing = s->sharing,
                                        .command = "arfuse-tune --hidden 1024"};
    ARF_TRY(arf_team_create(bootstrap, s->local_ranks, &team, error));
    ARF_TRY(arf_cuda_device.open(&options, &team, &device, error));
    if (key != NULL)
        arf_cuda_device.describe(device, key);
    if (way != NULL)
        *way = ((arf_cuda *)device)->way;
    const arf_shape shape = {team.tp_size, 1024, 0, ARF_ON, ARF_ON, ARF_OFF};
    arf_space_spec spec = {.shape = shape, .wait_limit_seconds = 1};
    const arf_protocol protocol = s->by_nccl ? ARF_UNFUSED : ARF_LL;
    spec.capacity[protocol] = 4;
    arfuse_status status = arf_cuda_device.space_create(device, &spec, &space, error);
    if (status == ARFUSE_OK) {
        int id;
        const arf_plan plan = {
            .protocol = protocol,
            .tuning = arf_tuning_fallback(arf_knobs(ARF_SET_ARFUSE, protocol, ARF_ALLREDUCE))};
        status = arf_cuda_device.prepare(space, ARF_ALLREDUCE, &plan, &id, error);
        status = arf_team_vote(&team, status, error);
        set_up_calls = calls(NULL);
        arm(0); /* taking down is not set-up */
        arf_cuda_device.space_destroy(space);
    }
    arf_device_close(device);
    return status;
}

static int complain(int rank, const char *what, int n, const char *text)
{
    fprintf(stderr, "process %d, call %d: %s: %s\n", rank, n, what, text);
    return 1;
}

/* What every process has to hold true after one set-up, whatever came of it. */
static int judge(const arfuse_bootstrap *bootstrap, int n, arfuse_status status,
                 const arf_error *error, int descriptors)
{
    struct {
        int status;
        char text[sizeof error->text];
    } own = {0}, all[16];
    own.status = (int)status;
    snprintf(own.text, sizeof own.text, "%s", error->text);
    bootstrap->allgather(bootstrap->context, &own, all, sizeof own);
    int bad = 0;
    for (int p = 0; p < bootstrap->size; p++)
        if (all[p].status != own.status || strcmp(all[p].text, own.text) != 0)
            bad += complain(bootstrap->rank, "differs from another process", n, all[p].text);
    if (status != ARFUSE_OK && own.text[0] == '\0')
        bad += complain(bootstrap->rank, "no message", n, "");
    if (live() != 0)
        bad += complain(bootstrap->rank, "objects of the driver leak", n, own.text);
    if (shared_maps() != 0)
        bad += complain(bootstrap->rank, "maps leak", n, own.text);
    if (open_descriptors() != descriptors)
        bad += complain(bootstrap->rank, "descriptors leak", n, own.text);
    return bad;
}

static int fail_everywhere(const arfuse_bootstrap *bootstrap, void *context)
{
    const scene *s = context;
    set_environment(s, bootstrap->rank);
    arf_error error = ARF_ERROR_INIT;
    arm(0);
    if (set_up(bootstrap, s, NULL, NULL, &error) != ARFUSE_OK)
        return complain(bootstrap->rank, "without a failure", 0, error.text);
    const int total = set_up_calls, descriptors = open_descriptors();
    int bad = 0, most[16];
    bootstrap->allgather(bootstrap->context, &total, most, sizeof total);
    for (int victim = 0; victim < bootstrap->size; victim++)
        for (int n = 1 + victim % s->step; n <= most[victim]; n += s->step) {
            arf_error clean = ARF_ERROR_INIT;
            arf_error_clear(&error);
            arm(bootstrap->rank == victim ? n : 0);
            arfuse_status status = set_up(bootstrap, s, NULL, NULL, &error);
            bad += judge(bootstrap, n, status, &error, descriptors);
            if (bootstrap->rank == 0) {
                ++*s->cases;
                *s->recovered += status == ARFUSE_OK;
            }
            arm(0);
            if (set_up(bootstrap, s, NULL, NULL, &clean) != ARFUSE_OK)
                bad += complain(bootstrap->rank, "a later start fails", n, clean.text);
        }
    return bad > 0;
}

static void run(const scene *s, int (*process)(const arfuse_bootstrap *, void *), double seconds)
{
    processes all;
    int status[16];
    processes_start(&all, s->processes, process, (void *)(uintptr_t)s);
    processes_wait(&all, status, seconds);
    for (int p = 0; p < s->processes; p++)
        assert_int_equal(status[p], 0);
}

/* ---- compiling ahead ----------------------------------------------------------------------------
 */

/* Other kernels than the other tests', so that none is in their cache. */
#define AHEAD_HIDDEN 1536

/* Some tunings of LL, each with a kernel of its own. */
static int plans_of_ll(const arf_shape *shape, arf_plan *plan, int most)
{
    static arf_plans seeds;
    const arf_problem problem = {.set = ARF_SET_ARFUSE, .shape = *shape, .sm_count = 132};
    arf_seeds(&problem, ARF_ALLREDUCE, ARF_LL, &seeds);
    int count = 0;
    for (; count < seeds.count && count < most; count++)
        plan[count] = seeds.plan[count];
    return count;
}

/* Each process compiles its part; behind a vote, preparing compiles nothing anywhere. */
static int compile_ahead(const arfuse_bootstrap *bootstrap, void *context)
{
    enum { MOST = 4 };
    const scene *s = context;
    const arf_device_options options = {.spec = "cuda", .cuda_ordinal = -1};
    arf_error error = ARF_ERROR_INIT;
    arf_team team;
    arf_device *device = NULL;
    arf_space *space = NULL;
    arf_plan plan[MOST];
    const arf_plan *list[MOST + 1];
    int all[16], made = 0;
    set_environment(s, bootstrap->rank);
    const arf_shape shape = {s->processes, AHEAD_HIDDEN, 0, ARF_ON, ARF_ON, ARF_OFF};
    arf_space_spec spec = {.shape = shape, .wait_limit_seconds = 1};
    spec.capacity[ARF_LL] = 4;
    const int count = plans_of_ll(&shape, plan, MOST);
    for (int i = 0; i < count; i++)
        list[i] = &plan[i];
    list[count] = &plan[0]; /* twice: compiled once */
    arfuse_status status = arf_team_create(bootstrap, 1, &team, &error);
    if (status == ARFUSE_OK)
        status = arf_cuda_device.open(&options, &team, &device, &error);
    if (status == ARFUSE_OK)
        status = arf_cuda_device.space_create(device, &spec, &space, &error);
    if (status != ARFUSE_OK)
        return complain(bootstrap->rank, "set-up", 0, error.text);
    int *compiled = &((arf_cuda *)device)->compiler.compiled;
    const int before = *compiled;
    arf_cuda_device.precompile(space, ARF_ALLREDUCE, list, count + 1);
    const int own = *compiled - before;
    bootstrap->allgather(bootstrap->context, &own, all, sizeof own);
    for (int p = 0; p < bootstrap->size; p++)
        made += all[p];
    for (int i = 0; i < count && status == ARFUSE_OK; i++) {
        int id;
        status = arf_cuda_device.prepare(space, ARF_ALLREDUCE, list[i], &id, &error);
    }
    const int later = *compiled - before - own;
    status = arf_team_vote(&team, status, &error);
    arf_cuda_device.space_destroy(space);
    arf_device_close(device);
    if (status != ARFUSE_OK)
        return complain(bootstrap->rank, "prepare", 0, error.text);
    if (count < 2 || made < count || own < 1 || own >= made || later != 0) {
        char text[128];
        snprintf(text, sizeof text, "%d plans, %d kernels, %d here, %d of them late", count, made,
                 own, later);
        return complain(bootstrap->rank, "compiled", own, text);
    }
    return 0;
}

static void test_processes_compile_ahead_together(void **state)
{
    (void)state;
    scene s = {.processes = 2, .local_ranks = 1};
    s.setting[0][0] = "FAKECUDA_DEVICES", s.setting[0][1] = "2";
    run(&s, compile_ahead, 120);
}

/* ---- every call fails once, on every rank ------------------------------------------------------
 */

static int stride(int usual)
{
    const char *text = getenv("ARFUSE_TEST_LONG");
    return text != NULL && text[0] == '1' ? 1 : usual;
}

static void inject(scene *s, int least)
{
    s->cases = processes_share(2 * sizeof(int));
    s->recovered = s->cases + 1;
    run(s, fail_everywhere, 120);
    print_message("# seen: %d failures injected, %d of them got over\n", *s->cases, *s->recovered);
    assert_in_range(*s->cases, least, 100000);
    /* Most calls are needed: a suite whose failures do nothing would prove nothing. */
    assert_in_range(*s->recovered, 0, *s->cases / 2);
    processes_unshare(s->cases, 2 * sizeof(int));
}

static void test_failures_of_two(void **state)
{
    (void)state;
    scene s = {.processes = 2, .local_ranks = 1, .step = stride(1)};
    s.setting[0][0] = "FAKECUDA_DEVICES", s.setting[0][1] = "2";
    inject(&s, 100);
}

static void test_failures_of_two_by_nccl(void **state)
{
    (void)state;
    scene s = {.processes = 2, .local_ranks = 1, .step = stride(1), .by_nccl = true};
    s.setting[0][0] = "FAKECUDA_DEVICES", s.setting[0][1] = "2";
    s.setting[1][0] = "FAKECUDA_NO_FD", s.setting[1][1] = "1";
    inject(&s, 60);
}

static void test_failures_of_four_with_fabric(void **state)
{
    (void)state;
    scene s = {.processes = 4, .local_ranks = 1, .step = stride(5), .alone = true};
    s.setting[0][0] = "FAKECUDA_DEVICES", s.setting[0][1] = "4";
    s.setting[1][0] = "FAKECUDA_FABRIC", s.setting[1][1] = "1";
    inject(&s, 60);
}

static void test_failures_of_three_with_local_ranks(void **state)
{
    (void)state;
    scene s = {.processes = 3, .local_ranks = 2, .step = stride(6), .sharing = true};
    s.setting[0][0] = "FAKECUDA_DEVICES", s.setting[0][1] = "3";
    inject(&s, 60);
}

/* ---- machines -----------------------------------------------------------------------------------
 */

/* What a machine must come to. */
typedef struct expected {
    scene scene;
    const char *visible[4]; /* CUDA_VISIBLE_DEVICES by process; NULL: all */
    const char *sms[4];     /* that a process may use; NULL: all */
    arfuse_status status;
    const char *words[4]; /* of the message */
    arf_link link;
    arf_way way;
    int nodes, ranks_per_gpu;
} expected;

static int meet(const arfuse_bootstrap *bootstrap, void *context)
{
    const expected *e = context;
    const int rank = bootstrap->rank;
    arf_error error = ARF_ERROR_INIT;
    arf_device_key key = {0};
    arf_way way = ARF_WAY_NONE;
    set_environment(&e->scene, rank);
    if (e->visible[rank] != NULL)
        setenv("CUDA_VISIBLE_DEVICES", e->visible[rank], 1);
    if (e->sms[rank] != NULL)
        setenv("FAKECUDA_SMS", e->sms[rank], 1);
    arfuse_status status = set_up(bootstrap, &e->scene, &key, &way, &error);
    if (judge(bootstrap, 0, status, &error, open_descriptors()) != 0)
        return 1;
    if (status != e->status)
        return complain(rank, "status", (int)status, error.text);
    for (int i = 0; i < 4 && e->words[i] != NULL; i++)
        if (strstr(error.text, e->words[i]) == NULL)
            return complain(rank, e->words[i], 0, error.text);
    if (status == ARFUSE_OK && (key.link != e->link || way != e->way || key.nodes != e->nodes ||
                                key.ranks_per_gpu != e->ranks_per_gpu))
        return complain(rank, arf_link_name(key.link), key.nodes * 100 + key.ranks_per_gpu,
                        arf_way_name(way));
    return 0;
}

static void expect(const expected *e)
{
    run(&e->scene, meet, 30);
}

#define MACHINE(processes_, ...) .scene = {.processes = (processes_), .local_ranks = 1, __VA_ARGS__}
#define SET(...) .setting = {__VA_ARGS__}

static void test_one_gpu_each(void **state)
{
    (void)state;
    expected e = {MACHINE(4, SET({"FAKECUDA_DEVICES", "4"})), .link = ARF_LINK_NVLINK,
                  .way = ARF_WAY_FD, .nodes = 1, .ranks_per_gpu = 1};
    expect(&e);
}

static void test_other_ordinals(void **state)
{
    (void)state;
    static const char *const lists[][2] = {{"3", "1"}, {"0,1", "1,0"}, {"2", "2,0"}, {"1,2", "1"}};
    for (int i = 0; i < 4; i++) {
        expected e = {MACHINE(2, SET({"FAKECUDA_DEVICES", "4"})),
                      .visible = {lists[i][0], lists[i][1]},
                      /* A GPU that only its own process sees: nothing here tells the link. */
                      .link = ARF_LINK_PCIE, .way = ARF_WAY_FD, .nodes = 1, .ranks_per_gpu = 1};
        if (i == 1)
            e.link = ARF_LINK_NVLINK;
        expect(&e);
    }
}

static void test_pcie(void **state)
{
    (void)state;
    expected e = {MACHINE(2, SET({"FAKECUDA_DEVICES", "2"}, {"FAKECUDA_PCIE", "1"})),
                  .link = ARF_LINK_PCIE, .way = ARF_WAY_FD, .nodes = 1, .ranks_per_gpu = 1};
    expect(&e);
}

/* Grids follow from the multiprocessors: ranks that count them differently must not meet. */
static void test_a_rank_with_fewer_multiprocessors(void **state)
{
    (void)state;
    expected e = {MACHINE(4, SET({"FAKECUDA_DEVICES", "4"})), .sms = {NULL, NULL, "100"},
                  .status = ARFUSE_DISAGREE, .words = {"GPU and link", "ranks 0-1,3", "rank 2"}};
    expect(&e);
}

static void test_more_ranks_than_gpus(void **state)
{
    (void)state;
    expected e = {MACHINE(4, SET({"FAKECUDA_DEVICES", "1"})), .status = ARFUSE_HARDWARE,
                  .words = {"4 ranks on 1 GPU: ranks 0-3 on GPU-00000000",
                            "mpirun -n 1 arfuse-tune --hidden 1024 --tp 4 --gpu-sharing"}};
    expect(&e);
    expected two = {
        MACHINE(4, SET({"FAKECUDA_DEVICES", "2"})), .status = ARFUSE_HARDWARE,
        .words = {"4 ranks on 2 GPUs: ranks 0,2 on GPU-00000000", "000001, ranks 1,3 on"}};
    expect(&two);
}

static void test_partial_peer_access(void **state)
{
    (void)state;
    expected e = {MACHINE(4, SET({"FAKECUDA_DEVICES", "4"},
                                 {"FAKECUDA_NO_PEER", "0-2,0-3,1-2,1-3,2-0,2-1,3-0,3-1"})),
                  .status = ARFUSE_HARDWARE,
                  .words = {"8 of 12 directed pairs", "0->2 (GPU-00000000", "3->1 (GPU-00000000"}};
    expect(&e);
}

static void test_processes_share_without_mps(void **state)
{
    (void)state;
    expected e = {MACHINE(2, .sharing = true, SET({"FAKECUDA_DEVICES", "1"})),
                  .link = ARF_LINK_SHARED_GPU, .way = ARF_WAY_FD, .nodes = 1, .ranks_per_gpu = 2};
    expect(&e);
}

static void test_mps_without_room(void **state)
{
    (void)state;
    expected e = {
        MACHINE(2, .sharing = true, SET({"FAKECUDA_DEVICES", "1"}, {"FAKECUDA_MPS", "1"})),
        .status = ARFUSE_HARDWARE, .words = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"}};
    expect(&e);
}

static void test_fabric_promised_and_refused(void **state)
{
    (void)state;
    expected e = {
        MACHINE(2, .alone = true, SET({"FAKECUDA_DEVICES", "2"}, {"FAKENCCL_VERSION", "20000"})),
        .status = ARFUSE_NOT_SUPPORTED,
        .words = {"several nodes", "fabric handles", "cuMemCreate", "version 20000"}};
    expect(&e);
}

static void test_two_nodes(void **state)
{
    (void)state;
    expected e = {
        MACHINE(2, .alone = true, SET({"FAKECUDA_DEVICES", "2"}, {"FAKECUDA_FABRIC", "1"})),
        .link = ARF_LINK_NVLINK, .way = ARF_WAY_FABRIC, .nodes = 2, .ranks_per_gpu = 1};
    e.visible[0] = "0", e.visible[1] = "1";
    expect(&e);
}

static void test_descriptors_refused(void **state)
{
    (void)state;
    expected e = {MACHINE(2, SET({"FAKECUDA_DEVICES", "2"}, {"FAKECUDA_NO_FD", "1"},
                                 {"FAKECUDA_FABRIC", "1"})),
                  .link = ARF_LINK_NVLINK, .way = ARF_WAY_FABRIC, .nodes = 1, .ranks_per_gpu = 1};
    expect(&e);
    expected none = {MACHINE(2, SET({"FAKECUDA_DEVICES", "2"}, {"FAKECUDA_NO_FD", "1"},
                                    {"FAKENCCL_VERSION", "20000"})),
                     .status = ARFUSE_NOT_SUPPORTED,
                     .words = {"cuMemExportToShareableHandle", "fabric handles"}};
    expect(&none);
}

/* The stand-in, before anything asks for the real one; and no compiled kernels of the user's. */
static int prepare_all(void **state)
{
    (void)state;
    void *library = standin_driver();
    void *nccl = standin_load("fakecuda/libnccl.so.2");
    if (library == NULL || nccl == NULL)
        return 1;
    *(void **)&arm = dlsym(library, "fakecuda_arm");
    *(void **)&calls = dlsym(library, "fakecuda_calls");
    *(void **)&live = dlsym(library, "fakecuda_live");
    return 0;
}

int main(void)
{
    if (standin_no_compiler())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_gpu_each),
        cmocka_unit_test(test_other_ordinals),
        cmocka_unit_test(test_pcie),
        cmocka_unit_test(test_a_rank_with_fewer_multiprocessors),
        cmocka_unit_test(test_more_ranks_than_gpus),
        cmocka_unit_test(test_partial_peer_access),
        cmocka_unit_test(test_processes_share_without_mps),
        cmocka_unit_test(test_mps_without_room),
        cmocka_unit_test(test_fabric_promised_and_refused),
        cmocka_unit_test(test_two_nodes),
        cmocka_unit_test(test_descriptors_refused),
        cmocka_unit_test(test_processes_compile_ahead_together),
        cmocka_unit_test(test_failures_of_two),
        cmocka_unit_test(test_failures_of_two_by_nccl),
        cmocka_unit_test(test_failures_of_four_with_fabric),
        cmocka_unit_test(test_failures_of_three_with_local_ranks),
    };
    return cmocka_run_group_tests(tests, prepare_all, standin_clear);
}

#else
#include "support/no_cuda.h"
#endif
