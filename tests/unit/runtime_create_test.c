/* SPDX-License-Identifier: Apache-2.0 */
/* Making workspaces: what is chosen, what is refused, that all ranks say the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include "profile/write.h"
#include "support/runtime_case.h"
#include "support/scratch.h"
#include "support/threads_bootstrap.h"

static const arf_shape shape4 = {4, 64, 2, ARF_ON, ARF_ON, ARF_ON};

static void passes(arfuse_status status, const arf_error *error)
{
    if (status != ARFUSE_OK)
        fail_msg("status %d: %s", status, error->text);
}

/* Nothing of the machine's own profiles or settings. */
static int clean_environment(void **state)
{
    (void)state;
    static const char *const names[] = {"ARFUSE_PROFILE",   "ARFUSE_ROUTES",       "ARFUSE_CHECKED",
                                        "ARFUSE_SITES_OFF", "ARFUSE_SHADOW_EVERY", "ARFUSE_PROFIL",
                                        "ARFUSE_LEVITATE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("ARFUSE_PROFILE_PATH", "/nonexistent/profiles", 1);
    setenv("XDG_CONFIG_HOME", "/nonexistent/config", 1);
    return 0;
}

static char *first_error(const arfuse_options *options, arfuse_status expected)
{
    static arf_error error;
    arfuse_workspace *workspace = NULL;
    error = (arf_error)ARF_ERROR_INIT;
    arfuse_status status = arfuse_workspace_create(NULL, options, &workspace, &error);
    if (status != expected)
        fail_msg("status %d, expected %d: %s", status, expected, error.text);
    assert_null(workspace);
    return error.text;
}

#define SAYS(text, part)                                             \
    do {                                                             \
        const char *says_text = (text);                              \
        if (strstr(says_text, part) == NULL)                         \
            fail_msg("\"%s\" does not say \"%s\"", says_text, part); \
    } while (0)

static char *explained(arfuse_workspace *workspace, arfuse_pattern pattern, int64_t tokens)
{
    static char text[8192];
    arfuse_call call = ARFUSE_CALL_INIT;
    call.tokens = tokens;
    assert_int_equal(arfuse_explain(workspace, pattern, &call, text, sizeof text), ARFUSE_OK);
    return text;
}

static arfuse_workspace *create(const arfuse_options *options)
{
    arfuse_workspace *workspace = NULL;
    arf_error error = ARF_ERROR_INIT;
    passes(arfuse_workspace_create(NULL, options, &workspace, &error), &error);
    return workspace;
}

static void destroy(arfuse_workspace *workspace)
{
    arf_error error = ARF_ERROR_INIT;
    passes(arfuse_workspace_destroy(&workspace, &error), &error);
    assert_null(workspace);
    passes(arfuse_workspace_destroy(&workspace, &error), &error); /* twice is fine */
}

/* A caller of an older header has a shorter struct, and something else behind it. */
static void shorter_options_are_completed(void **state)
{
    (void)state;
    arfuse_options options = case_options(&shape4, 16);
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_DEFAULT;
    options.struct_size = offsetof(arfuse_options, label);
    memset(&options.label, 0x5a, sizeof options - options.struct_size);
    arf_error error = ARF_ERROR_INIT;
    arfuse_workspace *workspace = NULL;
    passes(arfuse_workspace_create(NULL, &options, &workspace, &error), &error);
    assert_string_equal(workspace->label, "h64_k2_c16");
    assert_int_equal(workspace->options.check_order, 0);
    destroy(workspace);
    setenv("ARFUSE_CHECK_ORDER", "1", 1);
    passes(arfuse_workspace_create(NULL, &options, &workspace, &error), &error);
    unsetenv("ARFUSE_CHECK_ORDER");
    assert_int_equal(workspace->options.check_order, 1);
    assert_true(workspace->space->spec.check_order);
    destroy(workspace);
}

/* ---- options --------------------------------------------------------------------------------- */

static void options_out_of_range_are_refused_by_name(void **state)
{
    (void)state;
    struct {
        size_t offset;
        int value;
        const char *part;
    } bad[] = {
        {offsetof(arfuse_options, hidden_size), 0, "options.hidden_size is 0, expected 8 to 65536"},
        {offsetof(arfuse_options, hidden_size), 6150,
         "options.hidden_size is 6150, expected a mul"},
        {offsetof(arfuse_options, top_k), -1, "options.top_k is -1, expected 0 to 64"},
        {offsetof(arfuse_options, top_k), 65, "options.top_k is 65"},
        {offsetof(arfuse_options, rms_norm), 2, "options.rms_norm is 2, expected 0 to 1"},
        {offsetof(arfuse_options, local_ranks), 0, "process 0 hosts 0 ranks"},
        {offsetof(arfuse_options, local_ranks), 73, "process 0 hosts 73 ranks"},
        {offsetof(arfuse_options, strict), -1, "options.strict"},
        {offsetof(arfuse_options, routes), 9, "options.routes is 9"},
        {offsetof(arfuse_options, fallback), 4, "options.fallback is 4, expected 0 to 3"},
        {offsetof(arfuse_options, site_count), 65, "options.site_count is 65, expected 0 to 64"},
        {offsetof(arfuse_options, site_count), 1, "options.sites is NULL, expected 1 names"},
        {offsetof(arfuse_options, deferred), 257, "options.deferred is 257"},
        {offsetof(arfuse_options, checked), 2, "options.checked is 2"},
        {offsetof(arfuse_options, shadow_every), -2, "options.shadow_every is -2"},
        {offsetof(arfuse_options, check_order), 2, "options.check_order is 2, expected -1 to 1"},
        {offsetof(arfuse_options, gpu_sharing), 2, "options.gpu_sharing is 2, expected 0 to 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        arfuse_options options = case_options(&shape4, 16);
        memcpy((char *)&options + bad[i].offset, &bad[i].value, sizeof(int));
        SAYS(first_error(&options, ARFUSE_USAGE), bad[i].part);
    }
    arfuse_options options = case_options(&shape4, 0);
    SAYS(first_error(&options, ARFUSE_USAGE), "options.capacity is 0, expected 1 to 1048576");
    options = case_options(&shape4, INT64_C(1) << 33);
    SAYS(first_error(&options, ARFUSE_USAGE), "options.capacity is 8589934592");
    options = case_options(&shape4, 16);
    options.label = "";
    SAYS(first_error(&options, ARFUSE_USAGE), "options.label has 0 bytes, expected 1 to 47");
    options.label = "123456789012345678901234567890123456789012345678";
    SAYS(first_error(&options, ARFUSE_USAGE), "options.label has 48 bytes");
    options.label = "two\nlines";
    SAYS(first_error(&options, ARFUSE_USAGE), "without control characters");
    options = case_options(&shape4, 16);
    options.wait_limit_seconds = -1;
    SAYS(first_error(&options, ARFUSE_USAGE), "options.wait_limit_seconds is -1");
    options.struct_size = 8;
    SAYS(first_error(&options, ARFUSE_USAGE), "options.struct_size is 8");
    SAYS(first_error(NULL, ARFUSE_USAGE), "options is NULL");
    options = case_options(&shape4, 16);
    options.device = "abacus";
    SAYS(first_error(&options, ARFUSE_USAGE), "device \"abacus\"");

    static const char *const twice[] = {"moe_out", "moe_out"};
    static const char *const comma[] = {"moe,out"};
    options = case_options(&shape4, 16);
    options.sites = twice;
    options.site_count = 2;
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_UNFUSED;
    SAYS(first_error(&options, ARFUSE_USAGE), "options.sites names \"moe_out\" twice");
    options.sites = comma;
    options.site_count = 1;
    SAYS(first_error(&options, ARFUSE_USAGE), "options.sites[0] is \"moe,out\"");

    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arfuse_workspace_create(NULL, &options, NULL, &error), ARFUSE_USAGE);
    arfuse_bootstrap small = {.struct_size = 4};
    arfuse_workspace *workspace = NULL;
    assert_int_equal(arfuse_workspace_create(&small, &options, &workspace, &error), ARFUSE_USAGE);
    SAYS(error.text, "bootstrap.struct_size is 4");
    assert_int_equal(arfuse_workspace_destroy(NULL, &error), ARFUSE_OK);
}

/* A dense model has no finalize. */
static void a_dense_model_is_served_without_finalize(void **state)
{
    (void)state;
    arf_shape dense = {2, 64, 0, ARF_ON, ARF_ON, ARF_OFF};
    arfuse_options options = case_options(&dense, 16);
    arfuse_workspace *workspace = create(&options);
    arfuse_call call = ARFUSE_CALL_INIT;
    arfuse_operands none[2] = {ARFUSE_OPERANDS_INIT, ARFUSE_OPERANDS_INIT};
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arfuse_finalize(workspace, &call, none, &error), ARFUSE_USAGE);
    SAYS(error.text, "finalize on a workspace of top_k 0");
    assert_int_equal(arfuse_would_fuse(workspace, ARFUSE_FINALIZE, &call), 0);
    passes(arfuse_allreduce(workspace, &call, none, &error), &error);
    destroy(workspace);
}

/* ---- profiles -------------------------------------------------------------------------------- */

static void an_absent_profile_is_one_warning(void **state)
{
    (void)state;
    case_log log = {0};
    arfuse_options options = case_options(&shape4, 64);
    options.log = case_log_line;
    options.log_context = &log;
    arfuse_workspace *workspace = create(&options);
    assert_int_equal(log.lines, 1);
    const char *line = log.line[0];
    SAYS(line, "no profile for tp_size 4, hidden_size 64, top_k 2");
    SAYS(line, "/nonexistent/profiles:/nonexistent/config/arfuse/profiles:");
    SAYS(line, "nearest: none of the same link that can be used)");
    SAYS(line, "mpirun -n 4 arfuse-tune --hidden 64 --topk 2 --device host");
    SAYS(line, "default routes of the rules, unmeasured");
    SAYS(explained(workspace, ARFUSE_ALLREDUCE, 1), ", default, from default routes");
    destroy(workspace);

    options.strict = 1;
    log.lines = 0;
    SAYS(first_error(&options, ARFUSE_PROFILE), "no profile for tp_size 4");
    assert_int_equal(log.lines, 0);

    /* Asked for by name, default routes need no profile and no warning. */
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_DEFAULT;
    destroy(create(&options));
    assert_int_equal(log.lines, 0);
}

static void one_log_line_tells_the_map(void **state)
{
    (void)state;
    char path[256];
    case_log log = {0};
    arf_profile *profile = case_profile(&shape4);
    case_save(profile, path);
    arf_profile_free(profile);
    arfuse_options options = case_options(&shape4, 64);
    options.profile = path;
    options.log = case_log_line;
    options.log_context = &log;
    options.log_level = ARFUSE_LOG_INFO;
    destroy(create(&options));
    assert_int_equal(log.lines, 1);
    SAYS(log.line[0], "4 ranks, hidden size 64, on host: allreduce: ll to 4, bt to 12, ht to 24, "
                      "unfused to 30, unfused beyond (");
    SAYS(log.line[0], "finalize: ll to 3, separate to 14, bt to 20, ht to 28, unfused beyond (");
    case_remove(path);
}

static void the_nearest_profile_is_carried_over(void **state)
{
    (void)state;
    char root[SCRATCH_PATH], path[512];
    scratch_make(root);
    arf_shape other = shape4;
    other.hidden_size = 128;
    arf_error error = ARF_ERROR_INIT;
    arf_profile *profile = case_profile(&other);
    passes(arf_profile_store(profile, root, path, sizeof path, &error), &error);
    arf_profile_free(profile);
    case_log log = {0};
    arfuse_options options = case_options(&shape4, 64);
    options.profile_path = root;
    options.log = case_log_line;
    options.log_context = &log;
    arfuse_workspace *workspace = create(&options);
    assert_int_equal(log.lines, 1);
    SAYS(log.line[0], "nearest: ");
    SAYS(log.line[0], path);
    SAYS(log.line[0], "carried over, unmeasured");
    /* Half the hidden size: LL's bound goes with 1 / (H R), the bytes that reach a GPU. */
    SAYS(explained(workspace, ARFUSE_ALLREDUCE, 8), ": ll (");
    SAYS(explained(workspace, ARFUSE_ALLREDUCE, 8), "1 to 8 tokens, retargeted, from routes of ");
    SAYS(explained(workspace, ARFUSE_ALLREDUCE, 9), ": bt (");
    destroy(workspace);

    /* The same folder holds the exact one: no word is lost about it. */
    other = shape4;
    char exact[512];
    profile = case_profile(&other);
    passes(arf_profile_store(profile, root, exact, sizeof exact, &error), &error);
    arf_profile_free(profile);
    log.lines = 0;
    workspace = create(&options);
    assert_int_equal(log.lines, 0);
    SAYS(explained(workspace, ARFUSE_ALLREDUCE, 1), exact);
    destroy(workspace);
    scratch_remove(root);
}

/* Profiles for 8 ranks alone: teams of 16, 6 and 1 are told so once, and reduce rightly. */
static void a_team_size_that_nobody_measured_is_said_once(void **state)
{
    (void)state;
    char root[SCRATCH_PATH], path[512];
    scratch_make(root);
    arf_error error = ARF_ERROR_INIT;
    arf_shape shape = shape4;
    shape.tp_size = 8;
    arf_profile *profile = case_profile(&shape);
    passes(arf_profile_store(profile, root, path, sizeof path, &error), &error);
    arf_profile_free(profile);
    static const int teams[] = {16, 6, 1};
    for (int i = 0; i < 3; i++) {
        case_log log = {0};
        char named[64];
        shape.tp_size = teams[i];
        arfuse_options options = case_options(&shape, 32);
        options.profile_path = root;
        options.log = case_log_line;
        options.log_context = &log;
        arfuse_workspace *workspace = create(&options);
        arf_trial *trial = NULL;
        assert_int_equal(log.lines, 1);
        snprintf(named, sizeof named, "no profile for tp_size %d,", teams[i]);
        SAYS(log.line[0], named);
        SAYS(log.line[0], path);
        passes(arf_trial_create(workspace->device, &shape, 33, ARF_TRIAL_RANDOM, 4, &trial, &error),
               &error);
        for (int64_t tokens = 1; tokens <= 33; tokens += 8) {
            passes(
                case_run(workspace, trial, ARFUSE_ALLREDUCE, case_call_of(trial, tokens), &error),
                &error);
            passes(case_run(workspace, trial, ARFUSE_FINALIZE, case_call_of(trial, tokens), &error),
                   &error);
        }
        arf_trial_destroy(trial);
        destroy(workspace);
    }
    scratch_remove(root);
}

static void a_named_profile_must_fit(void **state)
{
    (void)state;
    char path[256];
    arf_shape eight = shape4;
    eight.tp_size = 8;
    arf_profile *profile = case_profile(&eight);
    case_save(profile, path);
    arf_profile_free(profile);
    arfuse_options options = case_options(&shape4, 64);
    options.profile = path;
    char *text = first_error(&options, ARFUSE_PROFILE);
    SAYS(text, path);
    SAYS(text, "tp_size is 8, 4 is needed");

    /* By the environment too; but the option beats it. */
    options.profile = NULL;
    setenv("ARFUSE_PROFILE", path, 1);
    SAYS(first_error(&options, ARFUSE_PROFILE), "tp_size is 8, 4 is needed");
    char good[256];
    profile = case_profile(&shape4);
    case_save(profile, good);
    arf_profile_free(profile);
    options.profile = good;
    destroy(create(&options));
    case_remove(good);
    case_remove(path);

    setenv("ARFUSE_PROFILE", "/nonexistent/profile.json", 1);
    options.profile = NULL;
    SAYS(first_error(&options, ARFUSE_PROFILE), "/nonexistent/profile.json");
    case_write("{\"format\": \"arfuse-profile\", \"version\": 1, ", path);
    options.profile = path;
    SAYS(first_error(&options, ARFUSE_PROFILE), path);
    case_remove(path);
}

/* ---- environment ----------------------------------------------------------------------------- */

static void the_environment_switches_routes(void **state)
{
    (void)state;
    char path[256];
    arf_profile *profile = case_profile(&shape4);
    case_save(profile, path);
    arf_profile_free(profile);
    arfuse_options options = case_options(&shape4, 64);
    options.profile = path;

    setenv("ARFUSE_ROUTES", "unfused", 1);
    arfuse_workspace *workspace = create(&options);
    SAYS(explained(workspace, ARFUSE_ALLREDUCE, 1), "unfused, since there are no routes");
    SAYS(explained(workspace, ARFUSE_FINALIZE, 1), "unfused, since there are no routes");
    destroy(workspace);

    setenv("ARFUSE_ROUTES", "allreduce=default,finalize=unfused", 1);
    workspace = create(&options);
    SAYS(explained(workspace, ARFUSE_ALLREDUCE, 1), "default, from default routes");
    SAYS(explained(workspace, ARFUSE_FINALIZE, 1), "unfused, since there are no routes");
    destroy(workspace);

    setenv("ARFUSE_ROUTES", "finalize=default", 1);
    workspace = create(&options);
    SAYS(explained(workspace, ARFUSE_ALLREDUCE, 1), path);
    SAYS(explained(workspace, ARFUSE_FINALIZE, 1), "default, from default routes");
    destroy(workspace);

    /* An option beats the environment, for the pattern that has it. */
    options.routes[ARFUSE_FINALIZE] = ARFUSE_ROUTES_PROFILE;
    setenv("ARFUSE_ROUTES", "unfused", 1);
    workspace = create(&options);
    SAYS(explained(workspace, ARFUSE_ALLREDUCE, 1), "unfused, since there are no routes");
    SAYS(explained(workspace, ARFUSE_FINALIZE, 1), path);
    destroy(workspace);

    static const char *const bad[] = {"fast", "finalize", "finalize=", "default,,", "ll=default"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("ARFUSE_ROUTES", bad[i], 1);
        SAYS(first_error(&options, ARFUSE_USAGE), "environment ARFUSE_ROUTES is \"");
    }
    setenv("ARFUSE_ROUTES", "", 1);
    setenv("ARFUSE_CHECKED", "yes", 1);
    SAYS(first_error(&options, ARFUSE_USAGE), "ARFUSE_CHECKED is \"yes\", expected a number");
    unsetenv("ARFUSE_CHECKED");
    setenv("ARFUSE_SHADOW_EVERY", "-3", 1);
    SAYS(first_error(&options, ARFUSE_USAGE), "ARFUSE_SHADOW_EVERY is \"-3\"");
    unsetenv("ARFUSE_SHADOW_EVERY");

    static const char *const sites[] = {"attn_out", "moe_out", "final_norm"};
    options.sites = sites;
    options.site_count = 3;
    setenv("ARFUSE_SITES_OFF", "moe_out,final_norm", 1);
    workspace = create(&options);
    arfuse_call call = ARFUSE_CALL_INIT;
    call.tokens = 1;
    for (int site = 0; site < 3; site++) {
        call.site = site;
        assert_int_equal(arfuse_would_fuse(workspace, ARFUSE_FINALIZE, &call), site == 0);
    }
    destroy(workspace);
    setenv("ARFUSE_SITES_OFF", "moe-out", 1);
    SAYS(first_error(&options, ARFUSE_USAGE),
         "names \"moe-out\"; the sites of this workspace are: attn_out, moe_out, final_norm");
    case_remove(path);
}

static void a_misspelt_variable_is_one_warning(void **state)
{
    (void)state;
    case_log log = {0};
    arfuse_options options = case_options(&shape4, 64);
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_UNFUSED;
    options.log = case_log_line;
    options.log_context = &log;
    setenv("ARFUSE_PROFIL", "x", 1);
    setenv("ARFUSE_LEVITATE", "1", 1);
    destroy(create(&options));
    assert_int_equal(log.lines, 2);
    assert_int_equal(case_log_count(&log, "environment ARFUSE_PROFIL is not a variable of arfuse; "
                                          "is ARFUSE_PROFILE meant?"),
                     1);
    assert_int_equal(case_log_count(&log, "environment ARFUSE_LEVITATE is not a variable"), 1);
    assert_int_equal(case_log_count(&log, "meant?"), 1);
}

/* ---- several processes ----------------------------------------------------------------------- */

typedef struct team_case {
    arfuse_options options[4]; /* by process */
    arfuse_status status[4];
    arf_error error[4];
    case_log log[4];
} team_case;

static void create_one(const arfuse_bootstrap *bootstrap, void *context)
{
    team_case *t = context;
    const int rank = bootstrap->rank;
    arfuse_workspace *workspace = NULL;
    t->error[rank] = (arf_error)ARF_ERROR_INIT;
    t->options[rank].log = case_log_line;
    t->options[rank].log_context = &t->log[rank];
    t->status[rank] =
        arfuse_workspace_create(bootstrap, &t->options[rank], &workspace, &t->error[rank]);
    arfuse_workspace_destroy(&workspace, NULL);
}

static team_case *new_team_case(void)
{
    team_case *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (int i = 0; i < 4; i++) {
        t->options[i] = case_options(&shape4, 64);
        t->options[i].local_ranks = 1;
    }
    return t;
}

/* All four say the same; the text is the caller's to look at. */
static const char *all_say(team_case *t, arfuse_status expected)
{
    threads_bootstrap_run(4, create_one, t);
    for (int i = 0; i < 4; i++) {
        if (t->status[i] != expected)
            fail_msg("process %d: %d, %s", i, t->status[i], t->error[i].text);
        assert_string_equal(t->error[i].text, t->error[0].text);
    }
    return t->error[0].text;
}

static void all_processes_are_refused_alike(void **state)
{
    (void)state;
    char four[256], other[256], eight[256];
    arf_profile *profile = case_profile(&shape4);
    case_save(profile, four);
    profile->routes[ARF_ALLREDUCE].route[0].max_tokens = 5;
    case_save(profile, other);
    arf_profile_free(profile);
    arf_shape of_eight = shape4;
    of_eight.tp_size = 8;
    profile = case_profile(&of_eight);
    case_save(profile, eight);
    arf_profile_free(profile);

    team_case *t = new_team_case();
    for (int i = 0; i < 4; i++)
        t->options[i].profile = four;
    all_say(t, ARFUSE_OK);

    /* A team of 4 with a profile for 8: once, without naming ranks, since all see it. */
    for (int i = 0; i < 4; i++)
        t->options[i].profile = eight;
    const char *text = all_say(t, ARFUSE_PROFILE);
    SAYS(text, "tp_size is 8, 4 is needed");
    assert_null(strstr(text, "rank "));

    /* Different profiles. */
    for (int i = 0; i < 4; i++)
        t->options[i].profile = i == 2 ? other : four;
    text = all_say(t, ARFUSE_DISAGREE);
    SAYS(text, "profile: the ranks disagree: ranks 0-1,3: routes ");
    SAYS(text, "; rank 2: routes ");
    SAYS(text, four);
    SAYS(text, other);

    /* One rank without the file. */
    for (int i = 0; i < 4; i++)
        t->options[i].profile = i == 3 ? "/nonexistent/p.json" : four;
    text = all_say(t, ARFUSE_PROFILE);
    SAYS(text, "rank 3: /nonexistent/p.json");
    assert_null(strstr(text, "ranks 0"));

    /* One rank that does not find what the others name. */
    for (int i = 0; i < 4; i++)
        t->options[i].profile = i == 1 ? NULL : four;
    text = all_say(t, ARFUSE_DISAGREE);
    SAYS(text, "; rank 1: routes ");
    SAYS(text, "default routes of the rules");

    /* Other options; a bad option on one rank; no options at all on one. */
    for (int i = 0; i < 4; i++)
        t->options[i].profile = four;
    t->options[1].capacity = 128;
    SAYS(all_say(t, ARFUSE_DISAGREE), "options: capacity is 64 on ranks 0,2-3 and 128 on rank 1; "
                                      "it must be the same on all ranks");
    t->options[1].capacity = 64;
    t->options[2].top_k = 99;
    SAYS(all_say(t, ARFUSE_USAGE), "rank 2: options.top_k is 99");
    t->options[2].top_k = 2;
    t->options[0].struct_size = 3;
    SAYS(all_say(t, ARFUSE_USAGE), "rank 0: options.struct_size is 3");

    /* The warning of an absent profile is one line of one process. */
    for (int i = 0; i < 4; i++) {
        t->options[i] = case_options(&shape4, 64);
        t->options[i].local_ranks = 1;
        t->log[i].lines = 0;
    }
    all_say(t, ARFUSE_OK);
    assert_int_equal(t->log[0].lines, 1);
    assert_int_equal(t->log[1].lines + t->log[2].lines + t->log[3].lines, 0);
    free(t);
    case_remove(four);
    case_remove(other);
    case_remove(eight);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, clean_environment)
    const struct CMUnitTest tests[] = {
        CASE(shorter_options_are_completed),
        CASE(options_out_of_range_are_refused_by_name),
        CASE(a_dense_model_is_served_without_finalize),
        CASE(an_absent_profile_is_one_warning),
        CASE(one_log_line_tells_the_map),
        CASE(the_nearest_profile_is_carried_over),
        CASE(a_team_size_that_nobody_measured_is_said_once),
        CASE(a_named_profile_must_fit),
        CASE(the_environment_switches_routes),
        CASE(a_misspelt_variable_is_one_warning),
        CASE(all_processes_are_refused_alike),
    };
    return cmocka_run_group_tests_name("runtime_create", tests, NULL, NULL);
}
