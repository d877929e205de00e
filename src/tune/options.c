/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/options.h"

#include <argp.h>
#include <string.h>

#include "base/hash.h"
#include "base/nearest.h"
#include "tune/values.h"

/* ---- the table ------------------------------------------------------------------------------- */

/* Keys outside the characters: every option has a long name only. */
enum {
    KEY_HIDDEN = 0x100,
    KEY_TOPK,
    KEY_TP,
    KEY_NO_NORM,
    KEY_NO_RESIDUAL,
    KEY_NO_SHARED,
    KEY_TOKENS,
    KEY_PATTERN,
    KEY_PROTOCOLS,
    KEY_SET,
    KEY_NUMERICS,
    KEY_DEVICE,
    KEY_GPU_SHARING,
    KEY_MULTICAST,
    KEY_WAIT_LIMIT,
    KEY_BUDGET,
    KEY_NOISE,
    KEY_POLICY,
    KEY_SEED,
    KEY_WEIGHTS,
    KEY_OUTPUT,
    KEY_RESUME,
    KEY_BASE,
    KEY_STRICT,
    KEY_DRY_RUN,
    KEY_PROBE,
    KEY_CHECK,
    KEY_MAX_REGRET,
    KEY_AB,
    KEY_FORMAT,
    KEY_QUIET,
    KEY_VERBOSE,
    KEY_HELP,
    KEY_VERSION,
    KEY_END
};

static const struct argp_option table[] = {
    {0, 0, 0, 0, "What is tuned:", 1},
    {"hidden", KEY_HIDDEN, "H[,H]", 0, "Hidden size: a multiple of 8 from 8 to 65536", 1},
    {"topk", KEY_TOPK, "K[,K]", 0,
     "Experts a token, 1 to 64; without it only the allreduce pattern is tuned (a dense model)", 1},
    {"tp", KEY_TP, "R", 0,
     "Ranks of the team, 1 to 72, spread over the processes (default: as many as processes)", 1},
    {"no-norm", KEY_NO_NORM, 0, 0, "The operations end before RMSNorm", 1},
    {"no-residual", KEY_NO_RESIDUAL, 0, 0, "No residual is added", 1},
    {"no-shared-expert", KEY_NO_SHARED, 0, 0, "Finalize adds no shared expert", 1},

    {0, 0, 0, 0, "What is tried:", 2},
    {"tokens", KEY_TOKENS, "LIST", 0,
     "Token counts: 1,2,48 or 1-8 or 16-128+16 or 1-8192*2, both ends included (default 1-256*2 on "
     "the host device, 1-8192*2 elsewhere)",
     2},
    {"pattern", KEY_PATTERN, "LIST", 0, "allreduce, finalize or both (default both)", 2},
    {"protocols", KEY_PROTOCOLS, "LIST", 0,
     "Of ll, bt, ht, unfused, separate; ^ht leaves ht out (default all)", 2},
    {"set", KEY_SET, "P.KNOB=V", 0,
     "Pin a knob: only candidates of protocol P whose KNOB is V; P.PATTERN.KNOB=V for one pattern; "
     "may be repeated for other knobs",
     2},
    {"numerics", KEY_NUMERICS, "NAME", 0,
     "fixed (default): only plans with the contract's bits; any: library and in-network sums too",
     2},

    {0, 0, 0, 0, "Where:", 3},
    {"device", KEY_DEVICE, "NAME", 0,
     "auto (default), cuda, host, model:default or model:FILE; auto takes cuda if there is an "
     "NVIDIA GPU, else host",
     3},
    {"gpu-sharing", KEY_GPU_SHARING, 0, 0, "Several ranks may share one GPU", 3},
    {"multicast", KEY_MULTICAST, "on|off", 0, "Try multicast stores, experimental (default off)",
     3},
    {"wait-limit", KEY_WAIT_LIMIT, "SECONDS", 0,
     "How long a rank waits for its peers before it is an error (default 30); a process that "
     "stands "
     "still is given up after 1.5 times that and 15 s more",
     3},

    {0, 0, 0, 0, "How long and how well:", 4},
    {"budget", KEY_BUDGET, "SECONDS", 0,
     "A hard limit; what stays unmeasured is said (default 60 on the host device, else 300)", 4},
    {"noise", KEY_NOISE, "PERCENT", 0,
     "Repeat until the interval of each median is this narrow (default 1)", 4},
    {"policy", KEY_POLICY, "NAME", 0,
     "warm (default): operands stay in the cache; decode: they were just written", 4},
    {"seed", KEY_SEED, "N", 0, "Of trial data, order of rounds and intervals (default 1)", 4},
    {"weights", KEY_WEIGHTS, "FILE", 0,
     "How often each token count occurs: lines of tokens,count, or a dump of the runtime", 4},

    {0, 0, 0, 0, "What becomes of it:", 5},
    {"output", KEY_OUTPUT, "DIR", 0, "Folder of the profile and its samples (default ./profiles)",
     5},
    {"resume", KEY_RESUME, 0, 0, "Keep the samples that are there, measure what is missing", 5},
    {"base", KEY_BASE, "FILE", 0,
     "Start from the samples beside this profile: measure what they lack", 5},
    {"strict", KEY_STRICT, 0, 0, "Exit 7 when the noise aim was missed", 5},
    {"format", KEY_FORMAT, "NAME", 0, "Of the results on stdout: table (default), csv, jsonl, md",
     5},
    {"quiet", KEY_QUIET, 0, 0, "Only warnings and errors on stderr", 5},
    {"verbose", KEY_VERBOSE, 0, 0, "Also say each candidate, and the route digest of every rank",
     5},

    {0, 0, 0, 0, "Instead of tuning:", 6},
    {"dry-run", KEY_DRY_RUN, 0, 0,
     "List shape, placement, candidates and refusals, points, memory and time; needs no mpirun", 6},
    {"probe", KEY_PROBE, 0, 0, "Report devices, links and limits", 6},
    {"check", KEY_CHECK, "FILE", 0, "Time around the bounds of a profile; does it still hold?", 6},
    {"max-regret", KEY_MAX_REGRET, "FRACTION", 0,
     "Of --check: exit 8 above this loss against the best (default 0.05)", 6},
    {"ab", KEY_AB, "A,B", 0,
     "Time two of (profile file, default, unfused) side by side and print their ratio", 6},
    {"help", KEY_HELP, 0, 0, "Print this and exit", 7},
    {"version", KEY_VERSION, 0, 0, "Print the version and exit", 7},
    {0, 0, 0, 0, 0, 0},
};

static const char help_text[] =
    "Measures the fused all-reduce protocols on this machine and writes a routing profile."
    "\vStart one process for each rank:\n"
    "    mpirun -n 8 arfuse-tune --hidden 6144 --topk 10\n"
    "The profile is DIR/<device>-<link>/tp<R>_h<H>_k<K>_bf16.json, its samples are beside it.\n"
    "\n"
    "Exit: 0 ok, 1 failure, 2 usage, 3 a profile or another input file is missing, invalid or "
    "unusable here, 4 hardware unsuitable, "
    "5 wrong results, 6 time-out, 7 noise aim missed under --strict, 8 regret above --max-regret "
    "in a check, 9 profile written though some candidates failed to run, 130 interrupted.";

static error_t parse_key(int key, char *argument, struct argp_state *state);
static const struct argp parser = {
    table, parse_key, NULL, help_text, NULL, NULL, NULL,
};

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct parse_state {
    arf_tune_options *options;
    arf_error *error;
    bool seen[KEY_END - KEY_HIDDEN];
    int stopped_at; /* index behind the argument that argp itself refused */
} parse_state;

static const char *option_name(int key)
{
    for (const struct argp_option *o = table; o->name != NULL || o->doc != NULL; o++)
        if (o->name != NULL && o->key == key)
            return o->name;
    return "?";
}

static arfuse_status refuse_value(arf_error *error, int key, const char *value,
                                  const char *expected)
{
    return arf_fail(error, ARFUSE_USAGE, "--%s '%s': expected %s", option_name(key), value,
                    expected);
}

static arfuse_status take_task(int key, arf_task task, arf_tune_options *options, arf_error *error)
{
    if (options->task != ARF_TASK_TUNE)
        return arf_fail(error, ARFUSE_USAGE,
                        "--%s: only one of --dry-run, --probe, --check and --ab at a time",
                        option_name(key));
    options->task = task;
    return ARFUSE_OK;
}

static arfuse_status take(int key, const char *text, arf_tune_options *o, arf_error *error)
{
    int64_t number;
    switch (key) {
    case KEY_HIDDEN:
        return arf_take_sizes(option_name(key), text, &o->hidden_count, o->hidden, error);
    case KEY_TOPK:
        return arf_take_sizes(option_name(key), text, &o->topk_count, o->topk, error);
    case KEY_TP:
        ARF_TRY(arf_take_integer(option_name(key), text, 1, ARF_MAX_RANKS,
                                 "a number of ranks from 1 to 72", &number, error));
        o->tp_size = (int)number;
        return ARFUSE_OK;
    case KEY_NO_NORM:
        o->rms_norm = ARF_OFF;
        return ARFUSE_OK;
    case KEY_NO_RESIDUAL:
        o->residual = ARF_OFF;
        return ARFUSE_OK;
    case KEY_NO_SHARED:
        o->shared_expert = ARF_OFF;
        return ARFUSE_OK;
    case KEY_TOKENS: {
        arfuse_status status = arf_tokens_parse(text, &o->tokens, error);
        arf_error_prefix(error, "--tokens");
        return status;
    }
    case KEY_PATTERN:
        return arf_take_patterns(text, o->pattern, error);
    case KEY_PROTOCOLS:
        o->protocol_filter = true;
        return arf_take_protocols(text, o->protocol, error);
    case KEY_SET:
        return arf_take_pin(text, o, error);
    case KEY_NUMERICS:
        if (strcmp(text, "fixed") != 0 && strcmp(text, "any") != 0)
            return refuse_value(error, key, text, "fixed or any");
        o->any_numerics = text[0] == 'a';
        return ARFUSE_OK;
    case KEY_DEVICE:
        return arf_take_device(text, &o->device, error);
    case KEY_GPU_SHARING:
        o->gpu_sharing = true;
        return ARFUSE_OK;
    case KEY_MULTICAST:
        if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
            return refuse_value(error, key, text, "on or off");
        o->multicast = strcmp(text, "on") == 0;
        return ARFUSE_OK;
    case KEY_WAIT_LIMIT:
        return arf_take_number(option_name(key), text, 86400, "seconds above 0, at most 86400",
                               &o->wait_limit_seconds, error);
    case KEY_BUDGET:
        return arf_take_number(option_name(key), text, 604800,
                               "seconds above 0, at most 604800 (a week)", &o->budget_seconds,
                               error);
    case KEY_NOISE:
        ARF_TRY(arf_take_number(option_name(key), text, 100, "a percentage above 0, at most 100",
                                &o->noise_aim, error));
        o->noise_aim /= 100;
        return ARFUSE_OK;
    case KEY_POLICY:
        return arf_policy_parse(text, &o->policy)
                   ? ARFUSE_OK
                   : refuse_value(error, key, text, "warm or decode");
    case KEY_SEED:
        ARF_TRY(arf_take_integer(option_name(key), text, 0, INT32_MAX,
                                 "a number from 0 to 2147483647", &number, error));
        o->seed = (uint64_t)number;
        return ARFUSE_OK;
    case KEY_WEIGHTS:
        return arf_take_path(option_name(key), text, &o->weights, error);
    case KEY_OUTPUT:
        return arf_take_path(option_name(key), text, &o->output, error);
    case KEY_RESUME:
        o->resume = true;
        return ARFUSE_OK;
    case KEY_BASE:
        return arf_take_path(option_name(key), text, &o->base, error);
    case KEY_STRICT:
        o->strict = true;
        return ARFUSE_OK;
    case KEY_DRY_RUN:
        return take_task(key, ARF_TASK_DRY_RUN, o, error);
    case KEY_PROBE:
        return take_task(key, ARF_TASK_PROBE, o, error);
    case KEY_CHECK:
        ARF_TRY(take_task(key, ARF_TASK_CHECK, o, error));
        return arf_take_path(option_name(key), text, &o->check, error);
    case KEY_MAX_REGRET:
        return arf_take_number(option_name(key), text, 100, "a fraction above 0, such as 0.05",
                               &o->max_regret, error);
    case KEY_AB:
        ARF_TRY(take_task(key, ARF_TASK_AB, o, error));
        return arf_take_ab(text, o->ab, error);
    case KEY_FORMAT:
        return arf_take_format(text, &o->format, error);
    case KEY_QUIET:
        o->quiet = true;
        return ARFUSE_OK;
    case KEY_VERBOSE:
        o->verbose = true;
        return ARFUSE_OK;
    default:
        return arf_fail(error, ARFUSE_FAILURE, "option key %d has no meaning", key);
    }
}

static error_t parse_key(int key, char *argument, struct argp_state *state)
{
    parse_state *parse = state->input;
    arfuse_status status;
    switch (key) {
    case KEY_HELP:
        parse->options->task = ARF_TASK_HELP;
        state->next = state->argc; /* nothing behind it matters */
        return 0;
    case KEY_VERSION:
        parse->options->task = ARF_TASK_VERSION;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_ERROR:
        parse->stopped_at = state->next;
        return 0;
    case ARGP_KEY_ARG:
        arf_fail(parse->error, ARFUSE_USAGE, "'%s': an argument that belongs to no option",
                 argument);
        return EINVAL;
    default:
        break;
    }
    if (key < KEY_HIDDEN || key >= KEY_END)
        return ARGP_ERR_UNKNOWN;
    bool *seen = &parse->seen[key - KEY_HIDDEN];
    if (*seen && key != KEY_SET)
        status = arf_fail(parse->error, ARFUSE_USAGE, "--%s is given twice", option_name(key));
    else
        status = take(key, argument, parse->options, parse->error);
    *seen = true;
    return status == ARFUSE_OK ? 0 : EINVAL;
}

/* ---- what argp itself refuses, in our words ---------------------------------------------------
 */

/*
 * argp prints its own message on every rank as soon as it meets a bad option, and exits. It is kept
 * silent instead, and the argument it stopped at is judged here against the same table.
 */
static arfuse_status refuse_option(const char *argument, arf_error *error)
{
    if (strncmp(argument, "--", 2) != 0)
        return arf_fail(error, ARFUSE_USAGE,
                        "unknown option '%s'; options have long names: see "
                        "arfuse-tune --help",
                        argument);
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
    const bool has_value = strchr(argument, '=') != NULL;
    const struct argp_option *exact = NULL;
    arf_nearest nearest = arf_nearest_to(name);
    int prefixes = 0;
    for (const struct argp_option *o = table; o->name != NULL || o->doc != NULL; o++) {
        if (o->name == NULL)
            continue;
        if (strcmp(o->name, name) == 0)
            exact = o;
        if (strncmp(o->name, name, strlen(name)) == 0)
            prefixes++;
        arf_nearest_offer(&nearest, o->name);
    }
    if (exact != NULL && exact->arg != NULL)
        return arf_fail(error, ARFUSE_USAGE, "--%s needs a value: --%s %s", name, name, exact->arg);
    if (exact != NULL && has_value)
        return arf_fail(error, ARFUSE_USAGE, "--%s takes no value", name);
    if (prefixes > 1)
        return arf_fail(error, ARFUSE_USAGE, "--%s could mean %d options; write it out", name,
                        prefixes);
    if (nearest.name != NULL)
        return arf_fail(error, ARFUSE_USAGE, "unknown option --%s; did you mean --%s?", name,
                        nearest.name);
    return arf_fail(error, ARFUSE_USAGE, "unknown option --%s; see arfuse-tune --help", name);
}

/* ---- whole ------------------------------------------------------------------------------------
 */

/* Options that mean nothing to a task are refused, so that nobody believes they did something. A
 * dry run takes them all: it is a tune with one word more. */
static arfuse_status judge_task(const arf_tune_options *o, const bool *seen, arf_error *error)
{
    static const int tune_only[] = {KEY_WEIGHTS, KEY_OUTPUT, KEY_RESUME, KEY_BASE, KEY_STRICT, 0};
    static const int not_probe[] = {KEY_NUMERICS, KEY_BUDGET, KEY_NOISE, KEY_POLICY, KEY_SEED, 0};
    static const int not_check[] = {KEY_HIDDEN,    KEY_TOPK,   KEY_NO_NORM, KEY_NO_RESIDUAL,
                                    KEY_NO_SHARED, KEY_TOKENS, KEY_PATTERN, KEY_PROTOCOLS,
                                    KEY_SET,       0};
    static const int not_ab[] = {KEY_PROTOCOLS, KEY_SET, 0};
    if (o->task == ARF_TASK_TUNE || o->task == ARF_TASK_DRY_RUN)
        return ARFUSE_OK;
    const int *own = o->task == ARF_TASK_PROBE   ? not_probe
                     : o->task == ARF_TASK_CHECK ? not_check
                                                 : not_ab;
    const char *task = o->task == ARF_TASK_PROBE   ? "probe"
                       : o->task == ARF_TASK_CHECK ? "check"
                                                   : "ab";
    for (int list = 0; list < 2; list++)
        for (const int *key = list == 0 ? tune_only : own; *key != 0; key++)
            if (seen[*key - KEY_HIDDEN])
                return arf_fail(error, ARFUSE_USAGE, "--%s has no meaning for --%s; leave it out",
                                option_name(*key), task);
    return ARFUSE_OK;
}

static arfuse_status judge_together(const arf_tune_options *o, const parse_state *parse,
                                    arf_error *error)
{
    const bool *seen = parse->seen;
    const bool needs_shape = o->task == ARF_TASK_TUNE || o->task == ARF_TASK_DRY_RUN;
    if (needs_shape && o->hidden_count == 0)
        return arf_fail(error, ARFUSE_USAGE,
                        "--hidden H is needed, as in: mpirun -n 8 arfuse-tune --hidden 6144 "
                        "--topk 10");
    if (seen[KEY_PATTERN - KEY_HIDDEN] && o->pattern[ARF_FINALIZE] && o->topk_count == 0 &&
        needs_shape)
        return arf_fail(error, ARFUSE_USAGE, "--pattern finalize needs --topk K");
    if (seen[KEY_MAX_REGRET - KEY_HIDDEN] && o->task != ARF_TASK_CHECK)
        return arf_fail(error, ARFUSE_USAGE, "--max-regret belongs to --check FILE");
    if (o->task == ARF_TASK_PROBE &&
        (o->format == ARF_FORMAT_CSV || o->format == ARF_FORMAT_MARKDOWN))
        return arf_fail(error, ARFUSE_USAGE, "--probe prints --format table or jsonl");
    const bool files = !(strcmp(o->ab[0], "default") == 0 || strcmp(o->ab[0], "unfused") == 0) ||
                       !(strcmp(o->ab[1], "default") == 0 || strcmp(o->ab[1], "unfused") == 0);
    if (o->task == ARF_TASK_AB && !files && o->hidden_count == 0)
        return arf_fail(error, ARFUSE_USAGE, "--ab default,unfused needs --hidden H");
    if (o->task == ARF_TASK_AB && (o->hidden_count > 1 || o->topk_count > 1))
        return arf_fail(error, ARFUSE_USAGE,
                        "--ab compares one shape: one --hidden and one --topk");
    ARF_TRY(judge_task(o, seen, error));
    if (o->quiet && o->verbose)
        return arf_fail(error, ARFUSE_USAGE, "--quiet and --verbose exclude each other");
    if (o->resume && o->base != NULL)
        return arf_fail(error, ARFUSE_USAGE,
                        "--resume and --base exclude each other: both say which samples to keep");
    return ARFUSE_OK;
}

/* "arfuse-tune --hidden 6144": what was typed, but for --tp, which the suggestion sets. */
static void keep_command(int argc, char **argv, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "arfuse-tune");
    for (int i = 1; i < argc && used < size; i++) {
        if (strcmp(argv[i], "--tp") == 0)
            i++;
        else if (strncmp(argv[i], "--tp=", 5) != 0 && strcmp(argv[i], "--gpu-sharing") != 0)
            used += (size_t)snprintf(text + used, size - used, " %s", argv[i]);
    }
}

arfuse_status arf_options_parse(int argc, char **argv, arf_tune_options *options, arf_error *error)
{
    *options = (arf_tune_options){
        .task = ARF_TASK_TUNE,
        .rms_norm = ARF_ON,
        .residual = ARF_ON,
        .shared_expert = ARF_ON,
        .pattern = {true, true},
        .protocol = {true, true, true, true, true},
        .device = "auto",
        .wait_limit_seconds = 30,
        .noise_aim = 0.01,
        .policy = ARF_WARM,
        .seed = 1,
        .output = "profiles",
        .max_regret = 0.05,
    };
    keep_command(argc, argv, options->command, sizeof options->command);
    parse_state parse = {.options = options, .error = error};
    error_t code =
        argp_parse(&parser, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP | ARGP_NO_EXIT | ARGP_IN_ORDER,
                   NULL, &parse);
    if (options->task == ARF_TASK_HELP || options->task == ARF_TASK_VERSION) {
        arf_error_clear(error);
        return ARFUSE_OK;
    }
    if (code != 0) {
        if (error->status != ARFUSE_OK)
            return error->status;
        return refuse_option(parse.stopped_at > 0 ? argv[parse.stopped_at - 1] : "?", error);
    }
    return judge_together(options, &parse, error);
}

void arf_options_help(FILE *stream)
{
    argp_help(&parser, stream, ARGP_HELP_STD_HELP & ~(ARGP_HELP_EXIT_ERR | ARGP_HELP_EXIT_OK),
              (char[]){"arfuse-tune"});
}

void arf_options_version(FILE *stream)
{
    fprintf(stream, "arfuse-tune %s\n", arfuse_version());
}

uint64_t arf_options_digest(const arf_tune_options *o)
{
    uint64_t hash = arf_hash_number(ARF_HASH_INIT, o->task);
    for (int i = 0; i < o->hidden_count; i++)
        hash = arf_hash_number(hash, o->hidden[i]);
    hash = arf_hash_number(hash, o->hidden_count);
    for (int i = 0; i < o->topk_count; i++)
        hash = arf_hash_number(hash, o->topk[i]);
    const int64_t number[] = {
        o->topk_count,      o->tp_size,        o->rms_norm,    o->residual,  o->shared_expert,
        o->protocol_filter, o->any_numerics,   o->gpu_sharing, o->multicast, o->policy,
        (int64_t)o->seed,   o->resume,         o->strict,      o->format,    o->pins,
        o->base != NULL,    o->weights != NULL};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        hash = arf_hash_number(hash, number[i]);
    for (int i = 0; i < o->tokens.count; i++)
        hash = arf_hash_number(hash, o->tokens.value[i]);
    hash = arf_hash(hash, o->pattern, sizeof o->pattern);
    hash = arf_hash(hash, o->protocol, sizeof o->protocol);
    for (int i = 0; i < o->pins; i++) {
        hash = arf_hash_text(hash, o->pin[i].knob);
        hash = arf_hash_number(hash, o->pin[i].protocol * 4 + o->pin[i].pattern[0] * 2 +
                                         o->pin[i].pattern[1]);
        hash = arf_hash_number(hash, o->pin[i].value);
    }
    hash = arf_hash_text(hash, o->device);
    hash = arf_hash_text(hash, o->ab[0]);
    hash = arf_hash_text(hash, o->ab[1]);
    const double real[] = {o->wait_limit_seconds, o->budget_seconds, o->noise_aim, o->max_regret};
    return arf_hash(hash, real, sizeof real);
}
