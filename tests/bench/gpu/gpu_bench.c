/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run that says how fast the protocols, the routes and their rivals are on this machine, beside
 * the least that a copy allows, and whether the project's marks hold. Start here.
 *
 *     gpu_bench [--profile FILE] [--seconds N] [--csv] [--processes N] [--calls N] [--seeded N]
 *               [options of arfuse-tune: --hidden --topk --tp --tokens --pattern --device --seed
 * ...]
 *
 * --profile: whose routes are judged, and whose samples beside it name the candidates (else default
 * routes and seeds); also the shape, unless given. --seconds: all of it (120). --processes: so
 * many of one rank each (--tp for more) instead of local ranks, under CUDA MPS if they share a GPU.
 * --calls: N of every graph, as published figures are for 20. --seeded: token counts by chance
 * (50). Without options: H 6144, K 10, eight local ranks on one GPU, 1 to 8192 tokens.
 *
 * Exit: 0 every mark holds; 1 some do not, or were not reached; 5 wrong results; others as
 * arfuse-tune.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/composition.h"
#include "bench/gpu/forked.h"
#include "bench/gpu/links.h"
#include "bench/gpu/print.h"
#include "tune/job.h"
#include "tune/share.h"
#include "tune/stop.h"
#include "tune/store.h"
#include "tune/voice.h"

#define SECONDS 120
#define SEEDED 50
/* Token counts of LL that take turns. */
enum { FEW = 1, MANY = 64 };
/* Of the whole: the rest is for closing and printing. */
#define RACE_SHARE 0.95
enum { MOST_ARGUMENTS = 128 };

typedef struct request {
    const char *profile;
    int64_t seconds, processes, calls, seeded;
    bool csv;
    bool has_shape; /* --hidden was given: not the profile's */
    arf_tune_options options;
} request;

/* ---- the command line --------------------------------------------------------------------------
 */

/* The value of --name VALUE or --name=VALUE; NULL: argument `at` is another one. */
static const char *value_of(char **argv, int argc, int *at, const char *name)
{
    const size_t length = strlen(name);
    if (strncmp(argv[*at], name, length) != 0)
        return NULL;
    if (argv[*at][length] == '=')
        return argv[*at] + length + 1;
    if (argv[*at][length] != '\0')
        return NULL;
    if (*at + 1 >= argc)
        return "";
    return argv[++*at];
}

static bool names(const char *argument, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(argument, name, length) == 0 &&
           (argument[length] == '=' || argument[length] == '\0');
}

#define TUNE_OPTIONS                                                                        \
    "--hidden, --topk, --tp, --tokens, --pattern, --protocols, --no-norm, --no-residual, "  \
    "--no-shared-expert, --device, --policy, --seed, --wait-limit, --format table or csv, " \
    "--quiet, --verbose"

static void print_help(void)
{
    puts("Usage: gpu_bench [--profile FILE] [--seconds N] [--csv] [--processes N] [--calls N] "
         "[--seeded N]\n"
         "                 [OPTION of arfuse-tune ...]\n"
         "Times protocols, routes, rivals and floors over the tokens, then judges the marks.\n"
         "Of arfuse-tune's options: " TUNE_OPTIONS ".\n"
         "tests/bench/README.md says what each one does.");
}

static arfuse_status refuse_option(arf_error *error)
{
    return arf_fail(error, ARFUSE_USAGE, "of arfuse-tune's options these go here: " TUNE_OPTIONS);
}

/* What a tune alone can follow is refused, not left unheard. */
static arfuse_status refuse_others(const arf_tune_options *o, arf_error *error)
{
    if (o->task != ARF_TASK_TUNE || o->pins > 0 || o->any_numerics || o->multicast ||
        o->weights != NULL || o->base != NULL || o->resume || o->strict ||
        (o->format != ARF_FORMAT_TABLE && o->format != ARF_FORMAT_CSV))
        return refuse_option(error);
    if (arf_shape_count(o) != 1)
        return arf_fail(error, ARFUSE_USAGE, "one shape a run: one --hidden and one --topk");
    return ARFUSE_OK;
}

static arfuse_status parse(int argc, char **argv, request *r, arf_error *error)
{
    static char seconds[32], ranks[32] = "--tp=8";
    static char *rest[MOST_ARGUMENTS];
    static const struct {
        const char *name;
        char *standard;
    } standard[] = {{"--hidden", "--hidden=6144"},
                    {"--topk", "--topk=10"},
                    {"--tp", ranks},
                    {"--tokens", "--tokens=1-8192*2"},
                    {"--device", "--device=cuda"},
                    {"--wait-limit", "--wait-limit=5"}}; /* a tune's 30 are for ranks far apart */
    enum { STANDARD = sizeof standard / sizeof *standard };
    bool given[STANDARD] = {false};
    int count = 0;
    *r = (request){.seconds = SECONDS, .processes = 1, .seeded = SEEDED};
    const struct {
        const char *name;
        int64_t low, high, *to;
    } numbers[] = {{"--seconds", 1, 3600, &r->seconds},
                   {"--processes", 1, 16, &r->processes},
                   {"--calls", 1, 512, &r->calls},
                   {"--seeded", 0, 256, &r->seeded}};
    rest[count++] = argv[0];
    for (int i = 1; i < argc; i++) {
        bool mine = false;
        const char *value = value_of(argv, argc, &i, "--profile");
        if (value != NULL) {
            r->profile = value;
            continue;
        }
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers && !mine; n++) {
            value = value_of(argv, argc, &i, numbers[n].name);
            mine = value != NULL;
            if (mine && !arf_number_parse(value, numbers[n].low, numbers[n].high, numbers[n].to))
                return arf_fail(error, ARFUSE_USAGE, "%s %s: expected %" PRId64 " to %" PRId64,
                                numbers[n].name, value, numbers[n].low, numbers[n].high);
        }
        if (!mine && strcmp(argv[i], "--csv") == 0)
            mine = r->csv = true;
        if (mine)
            continue;
        if (names(argv[i], "--budget"))
            return arf_fail(error, ARFUSE_USAGE, "--budget: the time of a run is --seconds here");
        if (names(argv[i], "--noise") || names(argv[i], "--output"))
            return refuse_option(error);
        for (int s = 0; s < STANDARD; s++)
            given[s] |= names(argv[i], standard[s].name);
        if (count > MOST_ARGUMENTS - STANDARD - 3)
            return arf_fail(error, ARFUSE_USAGE, "more than %d arguments", MOST_ARGUMENTS);
        rest[count++] = argv[i];
    }
    if (r->processes > 1)
        snprintf(ranks, sizeof ranks, "--tp=%" PRId64, r->processes);
    for (int s = 0; s < STANDARD; s++)
        if (!given[s])
            rest[count++] = standard[s].standard;
    snprintf(seconds, sizeof seconds, "--budget=%" PRId64, r->seconds);
    rest[count++] = seconds;
    rest[count] = NULL;
    ARF_TRY(arf_options_parse(count, rest, &r->options, error));
    if (r->options.task == ARF_TASK_HELP)
        return ARFUSE_OK;
    ARF_TRY(refuse_others(&r->options, error));
    r->has_shape = given[0];
    r->csv |= r->options.format == ARF_FORMAT_CSV;
    /* Refused elsewhere; here the ranks are meant to share what there is. */
    r->options.gpu_sharing |= strcmp(r->options.device, "cuda") == 0;
    return ARFUSE_OK;
}

/* ---- the run -----------------------------------------------------------------------------------
 */

typedef struct bench_run {
    const request *r;
    arf_tuner tuner;
    arf_problem problem;
    arf_profile *profile;
    arf_samples *samples;
    arf_side routed;
    entrants all;
    race race;
    copy_speeds copy;
    link_speed links;
    host_costs costs;
    race_pair pair;
    arf_bench bench;
    composition composed;
    marks marks;
} bench_run;

/* The samples beside the profile, when there are any. */
static arfuse_status load_samples(bench_run *b, arf_error *error)
{
    char path[ARF_PATH_TEXT], *text = NULL;
    size_t bytes = 0;
    bool cut;
    arf_error own = ARF_ERROR_INIT;
    ARF_TRY(arf_samples_path(b->r->profile, path, error));
    if (arf_share_file(&b->tuner, path, ARF_SAMPLES_MAX_BYTES, &text, &bytes, &own) != ARFUSE_OK) {
        arf_voice_note("no samples beside the profile (%s): candidates are the first seeds",
                       own.text);
        return ARFUSE_OK;
    }
    arfuse_status status = arf_samples_parse(path, text, bytes, &b->samples, &cut, error);
    free(text);
    return status;
}

static arfuse_status load_routes(bench_run *b, arf_error *error)
{
    const arf_tune_options *o = &b->r->options;
    arf_shape shape = arf_shape_at(o, b->tuner.team.tp_size, 0);
    if (b->r->profile != NULL) {
        ARF_TRY(arf_share_profile(&b->tuner, b->r->profile, &b->profile, error));
        ARF_TRY(arf_side_of_profile(&b->tuner, b->r->profile, b->profile, &b->routed, error));
        if (b->r->has_shape && !arf_shape_equal(&shape, &b->profile->shape))
            return arf_fail(error, ARFUSE_PROFILE,
                            "%s: hidden_size %d, top_k %d: not the shape of "
                            "the options",
                            b->r->profile, b->profile->shape.hidden_size, b->profile->shape.top_k);
        shape = b->profile->shape;
        ARF_TRY(load_samples(b, error));
    }
    b->problem = arf_device_problem(b->tuner.device, &shape);
    const int64_t most = o->tokens.value[o->tokens.count - 1];
    if (b->r->profile == NULL)
        ARF_TRY(arf_side_named("default", &b->problem, most, &b->routed, error));
    entrants_make(&b->problem, &b->routed, b->samples, most, &b->all);
    return ARFUSE_OK;
}

static arfuse_status open_bench(bench_run *b, arf_error *error)
{
    const arf_tune_options *o = &b->r->options;
    arf_schedule *schedule = calloc(1, sizeof *schedule);
    if (schedule == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the points");
    schedule->problem = b->problem;
    schedule->tokens = o->tokens;
    for (int p = 0; p < ARF_PATTERNS; p++)
        for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
            if (schedule->capacity[protocol] < b->all.limit[p][protocol])
                schedule->capacity[protocol] = b->all.limit[p][protocol];
    arfuse_status status = arf_bench_open(&b->tuner, schedule, &b->bench, error);
    free(schedule);
    return status;
}

static arfuse_status measure(bench_run *b, arf_error *error)
{
    const arf_tune_options *o = &b->r->options;
    bool pattern[ARF_PATTERNS] = {o->pattern[ARF_ALLREDUCE],
                                  o->pattern[ARF_FINALIZE] && b->problem.shape.top_k > 0};
    const int64_t most = o->tokens.value[o->tokens.count - 1];
    arf_voice_note("routes %s, %d candidates; the copy", b->routed.name, b->all.count);
    ARF_TRY(copy_measure(&b->tuner, &b->copy, error));
    ARF_TRY(links_measure(&b->tuner, &b->links, error));
    arf_voice_note("what the host pays");
    ARF_TRY(costs_measure(b->tuner.device, &b->problem.shape, b->routed.routes, b->r->profile, most,
                          &b->costs, error));
    arf_voice_note("buffers and trial data");
    ARF_TRY(open_bench(b, error));
    ARF_TRY(composition_open(&b->tuner, &b->problem, &o->tokens, &b->composed, error));
    b->race.bench = &b->bench;
    b->race.composed = b->composed.open ? &b->composed : NULL;
    b->race.problem = &b->problem;
    b->race.all = &b->all;
    b->race.routed = &b->routed;
    b->race.calls = (int)b->r->calls;
    b->race.deadline = (double)b->r->seconds * RACE_SHARE;
    race_points(&b->race, &o->tokens, pattern, (int)b->r->seeded, o->seed);
    b->race.wanted = o->protocol;
    arfuse_status status = race_run(&b->race, error);
    if (status == ARFUSE_OK)
        status = race_alternate(&b->race, FEW, MANY, &b->pair, error);
    b->race.wrong += b->composed.wrong;
    composition_close(&b->composed);
    arf_bench_close(&b->bench);
    return status;
}

static int report(bench_run *b)
{
    const bool gpu =
        b->tuner.device->ops != &arf_host_device && b->tuner.device->ops != &arf_model_device;
    const run_of_marks run = {.race = &b->race,
                              .problem = &b->problem,
                              .copy = &b->copy,
                              .links = &b->links,
                              .no_composition = b->composed.why,
                              .costs = &b->costs,
                              .pair = &b->pair,
                              .ranks_here =
                                  gpu ? b->tuner.key.ranks_per_gpu : b->problem.shape.tp_size,
                              .processes = b->tuner.team.bootstrap.size,
                              .gpu = gpu,
                              .host = b->tuner.device->ops == &arf_host_device};
    int left = 0;
    for (int i = 0; i < b->race.count; i++)
        left += !b->race.row[i].timed;
    judge_marks(&run, &b->marks);
    if (b->tuner.group->rank == 0) {
        if (b->r->csv)
            print_csv(&run);
        else
            print_table(&run, &b->tuner);
        print_marks(&b->marks, b->r->csv ? stderr : stdout);
    }
    if (left > 0)
        arf_voice_warn("%d of %d points were not timed in %" PRId64
                       " s; a larger --seconds reaches "
                       "them",
                       left, b->race.count, b->r->seconds);
    if (b->race.wrong + b->race.failed > 0)
        arf_voice_warn("%d candidates gave wrong results, %d did not run", b->race.wrong,
                       b->race.failed);
    return b->race.wrong > 0 ? ARFUSE_WRONG_RESULT : marks_missed(&b->marks) ? ARFUSE_FAILURE : 0;
}

static int work(void *context)
{
    const request *r = context;
    static arf_group group;
    arf_error error = ARF_ERROR_INIT;
    int rank, size, code = 0;
    arf_group_launcher(&rank, &size);
    arf_voice_name("gpu_bench");
    arf_voice_set(rank, r->options.quiet     ? ARF_QUIET
                        : r->options.verbose ? ARF_VERBOSE
                                             : ARF_NORMAL);
    bench_run *b = calloc(1, sizeof *b);
    arfuse_status status = b == NULL ? arf_fail(&error, ARFUSE_FAILURE, "out of memory")
                                     : arf_group_start(&group, &error);
    if (status == ARFUSE_OK) {
        b->r = r;
        arf_stop_install(&group);
        status = arf_tuner_open(&b->tuner, &r->options, &group, &error);
    }
    if (status == ARFUSE_OK) {
        arf_tuner_greet(&b->tuner);
        status = load_routes(b, &error);
        if (status == ARFUSE_OK)
            status = measure(b, &error);
        if (status == ARFUSE_OK)
            code = report(b);
        arf_tuner_close(&b->tuner);
    }
    if (status == ARFUSE_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = arf_fail(&error, ARFUSE_FAILURE, "stdout does not take the results");
    if (status != ARFUSE_OK)
        arf_voice_error("%s", error.text);
    if (b != NULL) {
        arf_samples_free(b->samples);
        arf_profile_free(b->profile);
    }
    free(b);
    return arf_group_finish(&group, status == ARFUSE_OK ? code : arf_exit_code(status), error.text);
}

int main(int argc, char **argv)
{
    static request r;
    arf_error error = ARF_ERROR_INIT;
    arf_voice_name("gpu_bench");
    if (parse(argc, argv, &r, &error) != ARFUSE_OK)
        arf_group_leave_early(error.status, error.text);
    if (r.options.task == ARF_TASK_HELP) {
        print_help();
        return ARFUSE_OK;
    }
    if (r.processes > 1) { /* heard by CUDA under MPS alone */
        char share[16];
        snprintf(share, sizeof share, "%d", (int)(100 / r.processes));
        setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", share, 0);
    }
    return forked_run((int)r.processes, 2.0 * (double)r.seconds + 120, work, &r);
}
