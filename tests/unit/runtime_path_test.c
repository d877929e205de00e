/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launch path down to the seam, over a device that only writes down what it
 * is asked: it allocates nothing, takes no lock, reads no environment, makes no
 * system call; and what reaches the device is what was meant.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/workspace.h"
#include "support/recording_device.h"

/* ---- what must not be called ----------------------------------------------------------------- */

static long forbidden; /* calls of what follows, since the last reset */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define INTERPOSED 1
/* These stand in front of the C library's, for everything linked into this program. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void __libc_free(void *memory);

void *malloc(size_t bytes)
{
    forbidden++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    forbidden++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    forbidden++;
    return __libc_realloc(memory, bytes);
}

void free(void *memory)
{
    forbidden++;
    __libc_free(memory);
}

char *getenv(const char *name)
{
    extern char **environ;
    const size_t length = strlen(name);
    forbidden++;
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

/* No test of this program has two threads, so that doing nothing locks well enough. */
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    (void)mutex;
    forbidden++;
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    (void)mutex;
    forbidden++;
    return 0;
}
#else
#define INTERPOSED 0
#endif

/* ---- a workspace over the recorder ----------------------------------------------------------- */

enum { HIDDEN = 64, TOP_K = 2, MOST = 160 };
static const char *const sites[] = {"attn_out", "moe_out"};
static uint16_t tensor[6][MOST * HIDDEN] __attribute__((aligned(64)));
static int32_t indices[MOST * TOP_K];

static arfuse_options usual_options(void)
{
    arfuse_options options = ARFUSE_OPTIONS_INIT;
    options.hidden_size = HIDDEN;
    options.top_k = TOP_K;
    options.capacity = 48;
    options.sites = sites;
    options.site_count = 2;
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_DEFAULT;
    return options;
}

static arfuse_workspace *open_recorded(const arfuse_options *options)
{
    arfuse_workspace *workspace = NULL;
    arf_error error = ARF_ERROR_INIT;
    if (arf_workspace_make(NULL, options, recording_open, &workspace, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return workspace;
}

static arfuse_operands usual_operands(void)
{
    arfuse_operands o = ARFUSE_OPERANDS_INIT;
    o.input = tensor[0];
    o.routed = tensor[1];
    o.routed_rows = MOST;
    o.weights = tensor[2];
    o.indices = indices;
    o.shared = tensor[3];
    o.residual = o.residual_out = tensor[4];
    o.gamma = tensor[2];
    o.norm_out = tensor[5];
    return o;
}

/* Everything an engine calls between two steps; false when a call failed. */
static bool work(arfuse_workspace *workspace)
{
    arfuse_call call = ARFUSE_CALL_INIT;
    const arfuse_operands operands = usual_operands();
    void *sum[] = {tensor[0]};
    arfuse_error error = ARFUSE_ERROR_INIT;
    bool fine = true;
    for (int64_t tokens = 0; tokens <= 64; tokens++) {
        arfuse_ticket ticket[2];
        call.tokens = tokens;
        call.site = (int)(tokens % 3) - 1;
        fine = fine && !arfuse_allreduce(workspace, &call, &operands, &error) &&
               !arfuse_finalize(workspace, &call, &operands, &error) &&
               arfuse_would_fuse(workspace, ARFUSE_FINALIZE, &call) == (tokens <= 48) &&
               !arfuse_defer(workspace, ARFUSE_FINALIZE, &call, &operands, "moe", &ticket[0],
                             &error) &&
               !arfuse_defer(workspace, ARFUSE_ALLREDUCE, &call, &operands, NULL, &ticket[1],
                             &error) &&
               !arfuse_consume(workspace, ticket[0], &call, &operands, &error) &&
               !arfuse_materialise(workspace, ticket[1], &call, sum, &error) &&
               !arfuse_end_step(workspace, &error) && !arfuse_workspace_status(workspace, NULL);
    }
    return fine;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void the_launch_path_allocates_locks_and_reads_nothing(void **state)
{
    (void)state;
    if (!INTERPOSED)
        skip();
    recording_reset();
    const arfuse_options options = usual_options();
    forbidden = 0;
    arfuse_workspace *workspace = open_recorded(&options);
    assert_true(forbidden > 0); /* the net catches what creation does */
    forbidden = 0;
    assert_true(work(workspace));
    assert_int_equal(forbidden, 0);
    assert_true(recorded.launches > 4 * 64);
    assert_int_equal(recorded.waits, 3); /* zeros of creation: residual, gamma, norm */
    arfuse_workspace_destroy(&workspace, NULL);
    assert_int_equal(recorded.allocations, recorded.releases);
}

static int locked_in(arfuse_workspace *workspace, bool slip)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* From here on read, write, exit and sigreturn are the only system calls: anything else
         * kills. */
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
            _exit(77);
        bool fine = work(workspace);
        if (slip)
            syscall(SYS_getpid);
        syscall(SYS_exit, fine ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void the_launch_path_makes_no_system_call(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* its own thread lives on in the child, where strict mode ends one thread alone */
#endif
    recording_reset();
    const arfuse_options options = usual_options();
    arfuse_workspace *workspace = open_recorded(&options);
    int status = locked_in(workspace, true);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        arfuse_workspace_destroy(&workspace, NULL);
        skip(); /* the container forbids it */
    }
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* the net catches getpid */
    status = locked_in(workspace, false);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    arfuse_workspace_destroy(&workspace, NULL);
}

static void what_was_meant_reaches_the_device(void **state)
{
    (void)state;
    recording_reset();
    const arfuse_options options = usual_options();
    arfuse_workspace *workspace = open_recorded(&options);
    arfuse_call call = ARFUSE_CALL_INIT;
    arfuse_operands operands = usual_operands();
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
    operands.residual = tensor[4];
    call.tokens = 50;
    recorded.launches = 0;
    assert_int_equal(arfuse_finalize(workspace, &call, &operands, &error), ARFUSE_OK);
    assert_int_equal(recorded.launches, 2);
    assert_int_equal(recorded_last(1)->launch.tokens, 48);
    assert_int_equal(recorded_last(0)->launch.tokens, 2);
    assert_int_equal(recorded_last(0)->plan.protocol, ARF_UNFUSED);
    last = recorded_last(0);
    const size_t row = HIDDEN * 2;
    assert_ptr_equal(last->operands.routed, operands.routed);
    assert_ptr_equal(last->operands.indices, indices + 48 * TOP_K);
    assert_ptr_equal(last->operands.weights, (const char *)operands.weights + 48 * TOP_K * 2);
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
    arfuse_options options = usual_options();
    options.capacity = 150; /* room for several default routes */
    arfuse_workspace *workspace = open_recorded(&options);
    const arfuse_operands operands = usual_operands();
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
    recording_reset();
    const arfuse_options options = usual_options();
    arfuse_workspace *workspace = open_recorded(&options);
    const arfuse_operands operands = usual_operands();
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
    recording_reset();
    const arfuse_options options = usual_options();
    arfuse_workspace *workspace = open_recorded(&options);
    const arfuse_operands operands = usual_operands();
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
    arfuse_options options = usual_options();
    options.log = log_line;
    options.log_context = line;
    recorded.unsupported = ARF_LL;
    arfuse_workspace *workspace = open_recorded(&options);
    assert_non_null(strstr(line, "some routes run unfused"));
    assert_non_null(strstr(line, "told to lack ll"));
    const arfuse_operands operands = usual_operands();
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
    arfuse_options options = usual_options();
    options.hidden_size = 6144;
    options.capacity = 8192;
    options.log = log_line;
    options.log_context = line;
    arfuse_workspace *workspace = open_recorded(&options);
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
        const arfuse_options options = usual_options();
        arfuse_workspace *workspace = open_recorded(&options);
        const arfuse_operands operands = usual_operands();
        arfuse_call call = ARFUSE_CALL_INIT;
        arfuse_error error = ARFUSE_ERROR_INIT;
        call.tokens = 3;
        call.site = 1;
        assert_int_equal(arfuse_finalize(workspace, &call, &operands, &error), ARFUSE_OK);
        assert_int_equal(recorded.ranges, profiled);
        assert_int_equal(recorded.launched_in_range, profiled);
        if (profiled) {
            assert_string_equal(recorded.range, "finalize moe_out M=3 ll, route 1 of 1");
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

/* Even then the library's own part of a call allocates and locks nothing. */
static void ranges_allocate_nothing(void **state)
{
    (void)state;
    if (!INTERPOSED)
        skip();
    recording_reset();
    recorded.profiled = true;
    const arfuse_options options = usual_options();
    arfuse_workspace *workspace = open_recorded(&options);
    forbidden = 0;
    assert_true(work(workspace));
    assert_int_equal(forbidden, 0);
    assert_true(recorded.ranges > 4 * 64);
    arfuse_workspace_destroy(&workspace, NULL);
}

static void nothing_waits_for_a_stream_that_is_captured(void **state)
{
    (void)state;
    recording_reset();
    arfuse_options options = usual_options();
    options.shadow_every = 1;
    arfuse_workspace *workspace = open_recorded(&options);
    const arfuse_operands operands = usual_operands();
    arfuse_call call = ARFUSE_CALL_INIT;
    arfuse_error error = ARFUSE_ERROR_INIT;
    call.tokens = 1;
    recorded.capturing = true;
    recorded.waits = 0;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_OK);
    assert_int_equal(recorded.waits, 0);
    assert_int_equal(recorded.launches, 1);
    arfuse_workspace_destroy(&workspace, NULL);

    options = usual_options();
    options.checked = 1;
    workspace = open_recorded(&options);
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "being captured"));
    assert_int_equal(recorded.launches, 1);
    recorded.capturing = false;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_OK);
    arfuse_workspace_destroy(&workspace, NULL);
}

static void a_workspace_that_graphs_use_is_not_destroyed(void **state)
{
    (void)state;
    recording_reset();
    const arfuse_options options = usual_options();
    arfuse_workspace *workspace = open_recorded(&options);
    const arfuse_operands operands = usual_operands();
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

/* ---- operands -------------------------------------------------------------------------------- */

typedef struct bad_operand {
    arfuse_pattern pattern;
    size_t offset;
    const void *value;
    const char *part;
} bad_operand;

static void operands_are_refused_by_name(void **state)
{
    (void)state;
    recording_reset();
    const arfuse_options options = usual_options();
    arfuse_workspace *workspace = open_recorded(&options);
#define AT(member) offsetof(arfuse_operands, member)
#define OFF(pointer, bytes) ((const char *)(pointer) + (bytes))
    const bad_operand bad[] = {
        {ARFUSE_ALLREDUCE, AT(input), NULL, "rank 0: operands.input is NULL"},
        {ARFUSE_ALLREDUCE, AT(input), OFF(tensor[0], 4), "operands.input is 0x"},
        {ARFUSE_ALLREDUCE, AT(residual), NULL, "operands.residual is NULL"},
        {ARFUSE_ALLREDUCE, AT(residual), OFF(tensor[4], 16), "residual_out overlaps operands.resi"},
        {ARFUSE_ALLREDUCE, AT(gamma), NULL, "operands.gamma is NULL"},
        {ARFUSE_ALLREDUCE, AT(gamma), OFF(tensor[2], 8), "aligned to 16 bytes"},
        {ARFUSE_ALLREDUCE, AT(norm_out), NULL, "operands.norm_out is NULL"},
        {ARFUSE_ALLREDUCE, AT(norm_out), OFF(tensor[0], HIDDEN * 2), "norm_out overlaps operands."},
        {ARFUSE_ALLREDUCE, AT(norm_out), tensor[4], "operands.norm_out overlaps operands.residual"},
        {ARFUSE_ALLREDUCE, AT(residual_out), tensor[0], "residual_out overlaps operands.input"},
        {ARFUSE_ALLREDUCE, AT(residual_out), tensor[5], "norm_out overlaps operands.residual_out"},
        {ARFUSE_FINALIZE, AT(routed), NULL, "operands.routed is NULL"},
        {ARFUSE_FINALIZE, AT(weights), NULL, "operands.weights is NULL"},
        {ARFUSE_FINALIZE, AT(weights), OFF(tensor[2], 1), "operands.weights is 0x"},
        {ARFUSE_FINALIZE, AT(indices), NULL, "operands.indices is NULL"},
        {ARFUSE_FINALIZE, AT(indices), OFF(indices, 2), "aligned to 4 bytes"},
        {ARFUSE_FINALIZE, AT(shared), NULL, "operands.shared is NULL"},
        {ARFUSE_FINALIZE, AT(norm_out), tensor[1], "norm_out overlaps operands.routed"},
        {ARFUSE_FINALIZE, AT(routed_rows), (const void *)-1, "operands.routed_rows is -1"},
    };
    arfuse_call call = ARFUSE_CALL_INIT;
    call.tokens = 3;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        arfuse_operands operands = usual_operands();
        arfuse_error error = ARFUSE_ERROR_INIT;
        memcpy((char *)&operands + bad[i].offset, &bad[i].value, sizeof(void *));
        arfuse_status status = (bad[i].pattern == ARFUSE_FINALIZE
                                    ? arfuse_finalize
                                    : arfuse_allreduce)(workspace, &call, &operands, &error);
        if (status != ARFUSE_USAGE || strstr(error.text, bad[i].part) == NULL)
            fail_msg("case %zu: %d, %s", i, status, error.text);
    }
    assert_int_equal(recorded.launches, 0);

    /* What is allowed: outputs in place, one of them left out, no tensor at all for no tokens. */
    arfuse_operands operands = usual_operands();
    operands.norm_out = tensor[0];
    operands.residual_out = NULL;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, NULL), ARFUSE_OK);
    operands = (arfuse_operands)ARFUSE_OPERANDS_INIT;
    call.tokens = 0;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, NULL), ARFUSE_OK);
    assert_int_equal(arfuse_finalize(workspace, &call, &operands, NULL), ARFUSE_OK);
    arfuse_workspace_destroy(&workspace, NULL);
}

static void calls_are_refused_by_name(void **state)
{
    (void)state;
    recording_reset();
    const arfuse_options options = usual_options();
    arfuse_workspace *workspace = open_recorded(&options);
    const arfuse_operands operands = usual_operands();
    arfuse_error error = ARFUSE_ERROR_INIT;
    arfuse_call call;
#define REFUSED(change, part)                                                                  \
    do {                                                                                       \
        call = (arfuse_call)ARFUSE_CALL_INIT;                                                  \
        call.tokens = 1;                                                                       \
        change;                                                                                \
        assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_USAGE); \
        if (strstr(error.text, part) == NULL)                                                  \
            fail_msg("\"%s\" does not say \"%s\"", error.text, part);                          \
    } while (0)
    REFUSED(call.tokens = -1, "call.tokens is -1, expected 0 to 1048576");
    REFUSED(call.tokens = INT64_C(1) << 40, "call.tokens is 1099511627776");
    REFUSED(call.epsilon = -1, "epsilon -1");
    REFUSED(call.epsilon = (float)(1e308 * 10), "epsilon inf");
    REFUSED(call.weight_bias = (float)(1e308 * 10), "weight_bias inf");
    REFUSED(call.site = 2, "call.site is 2");
    REFUSED(call.site = -2, "call.site is -2");
    REFUSED(call.route = -3, "call.route is -3");
    REFUSED(call.fallback = (arfuse_fallback)7, "call.fallback is 7");
    REFUSED(call.struct_size = 8, "call.struct_size is 8");
    arfuse_operands small = operands;
    small.struct_size = 16;
    call = (arfuse_call)ARFUSE_CALL_INIT;
    assert_int_equal(arfuse_allreduce(workspace, &call, &small, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "operands.struct_size is 16"));
    assert_int_equal(arfuse_allreduce(workspace, NULL, &operands, &error), ARFUSE_USAGE);
    assert_int_equal(arfuse_allreduce(workspace, &call, NULL, &error), ARFUSE_USAGE);
    assert_int_equal(arfuse_allreduce(NULL, &call, &operands, &error), ARFUSE_USAGE);
    assert_int_equal(recorded.launches, 0);
    arfuse_workspace_destroy(&workspace, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_launch_path_allocates_locks_and_reads_nothing),
        cmocka_unit_test(the_launch_path_makes_no_system_call),
        cmocka_unit_test(what_was_meant_reaches_the_device),
        cmocka_unit_test(the_gate_and_the_call_cannot_disagree),
        cmocka_unit_test(a_second_stream_is_refused_until_it_is_ordered),
        cmocka_unit_test(a_call_that_fails_half_way_fails_the_workspace),
        cmocka_unit_test(a_route_that_the_device_lacks_runs_unfused),
        cmocka_unit_test(default_routes_use_what_the_device_has),
        cmocka_unit_test(calls_name_themselves_to_a_profiler),
        cmocka_unit_test(ranges_allocate_nothing),
        cmocka_unit_test(nothing_waits_for_a_stream_that_is_captured),
        cmocka_unit_test(a_workspace_that_graphs_use_is_not_destroyed),
        cmocka_unit_test(operands_are_refused_by_name),
        cmocka_unit_test(calls_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("runtime_path", tests, NULL, NULL);
}
