/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plot: latency against tokens, a line a protocol, the routes shaded, bounds with their intervals.
 * gnuplot draws; what it is told can be printed instead.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "fit/stats.h"
#include "profile/lookup.h"

/* ---- options ------------------------------------------------------------------------------------
 */

typedef struct request {
    const char *path, *output, *samples;
    bool asked[ARF_PATTERNS], script;
} request;

enum { KEY_PATTERN = 0x100, KEY_SAMPLES, KEY_SCRIPT };

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "Write to FILE instead of stdout", 0},
    {"pattern", KEY_PATTERN, "P", 0, "allreduce or finalize (default: both)", 0},
    {"samples", KEY_SAMPLES, "FILE", 0, "The samples behind a profile (default: beside it)", 0},
    {"script", KEY_SCRIPT, 0, 0, "Write the gnuplot script instead of the picture", 0},
    {0, 0, 0, 0, 0, 0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    request *r = state->input;
    arf_pattern pattern;
    switch (key) {
    case 'o':
        r->output = argument;
        return 0;
    case KEY_PATTERN:
        if (!arf_pattern_parse(argument, &pattern))
            argp_error(state, "--pattern '%s': expected allreduce or finalize", argument);
        r->asked[pattern] = true;
        return 0;
    case KEY_SAMPLES:
        r->samples = argument;
        return 0;
    case KEY_SCRIPT:
        r->script = true;
        return 0;
    case ARGP_KEY_ARG:
        arf_cli_take_file(state, argument, &r->path);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "no file, expected a profile or samples");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- points -------------------------------------------------------------------------------------
 */

/* The fastest tuning of a protocol at one token count. */
typedef struct point {
    int64_t tokens;
    arf_estimate time;
} point;

static int by_tokens(const void *left, const void *right)
{
    const point *a = left, *b = right;
    return (a->tokens > b->tokens) - (a->tokens < b->tokens);
}

static int gather(const arf_samples *samples, arf_pattern pattern, arf_protocol protocol,
                  point *points)
{
    int count = 0;
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *sample = &samples->sample[i];
        arf_estimate time;
        if (sample->pattern != pattern || sample->plan.protocol != protocol ||
            sample->outcome != ARF_SAMPLE_TIMED ||
            !arf_estimate_median(sample->us, sample->rounds, 1, &time))
            continue;
        int at = 0;
        while (at < count && points[at].tokens != sample->tokens)
            at++;
        if (at == count)
            points[count++] = (point){sample->tokens, time};
        else if (time.median < points[at].time.median)
            points[at].time = time;
    }
    qsort(points, (size_t)count, sizeof *points, by_tokens);
    return count;
}

/* ---- the script ---------------------------------------------------------------------------------
 */

/* Colours that stay apart for most colour-blind readers (Okabe and Ito, 2008). */
static const char *const colour[ARF_PROTOCOLS] = {"#0072B2", "#009E73", "#D55E00", "#777777",
                                                  "#CC79A7"};

/* A single-quoted gnuplot string, with enhanced text off. In a double-quoted one gnuplot gives what
 * stands between backquotes to a shell. */
static void add_quoted(arf_text *text, const char *string)
{
    arf_text_add(text, "'");
    for (; *string != '\0'; string++) {
        if (*string == '\'')
            arf_text_add(text, "'");
        arf_text_add(text, "%c", (unsigned char)*string < 0x20 ? ' ' : *string);
    }
    arf_text_add(text, "'");
}

static void add_data(arf_text *script, const char *name, const point *points, int count)
{
    arf_text_add(script, "$%s << EOD\n", name);
    for (int i = 0; i < count; i++) {
        arf_text_add(script, "%lld ", (long long)points[i].tokens);
        arf_text_number(script, points[i].time.median, 4);
        arf_text_add(script, " ");
        arf_text_number(script, points[i].time.low, 4);
        arf_text_add(script, " ");
        arf_text_number(script, points[i].time.high, 4);
        arf_text_add(script, "\n");
    }
    arf_text_add(script, "EOD\n");
}

/* A route from its first token to its bound, lightly in its protocol's colour; the interval of its
 * bound as a grey band, the bound as a line. */
static void add_shades(arf_text *script, const arf_profile *profile, arf_pattern pattern,
                       int64_t last)
{
    const arf_routes *routes = &profile->routes[pattern];
    int64_t low = routes->min_tokens;
    for (int i = 0; i < routes->count; i++) {
        int64_t high = routes->route[i].max_tokens;
        int64_t end = high == ARF_OPEN_BOUND || high > last ? last : high;
        if (low > last)
            break;
        arf_text_add(script,
                     "set object rectangle from first %lld, graph 0 to first %lld, graph 1 behind "
                     "fillcolor rgb '%s' fillstyle solid 0.12 noborder\n",
                     (long long)low, (long long)(end > low ? end : low + 1),
                     colour[routes->route[i].plan.protocol]);
        arf_text_add(script, "set label at first %lld, graph 0.97 ' %s' font ',10'\n",
                     (long long)low, arf_protocol_name(routes->route[i].plan.protocol));
        if (high != ARF_OPEN_BOUND && i + 1 < routes->count) {
            const arf_route_evidence *evidence = &profile->evidence.route[pattern][i];
            if (profile->evidence.route_count[pattern] > 0 &&
                evidence->bound_high > evidence->bound_low)
                arf_text_add(script,
                             "set object rectangle from first %lld, graph %.2f to first %lld, "
                             "graph %.2f front fillcolor rgb '#000000' fillstyle solid 0.35 "
                             "noborder\n",
                             (long long)evidence->bound_low, 0.03 * (i % 3),
                             (long long)evidence->bound_high, 0.03 * (i % 3) + 0.02);
            arf_text_add(script,
                         "set arrow from first %lld, graph 0 to first %lld, graph 1 nohead "
                         "dashtype 2 linecolor rgb '#000000'\n"
                         "set label at first %lld, graph 0.12 ' %lld' font ',9'\n",
                         (long long)high, (long long)high, (long long)high, (long long)high);
        }
        low = high == ARF_OPEN_BOUND ? ARF_MAX_TOKENS : high + 1;
    }
}

/* One panel; false when no sample of the pattern was timed. */
static bool add_panel(arf_text *script, const arf_profile *profile, const arf_samples *samples,
                      arf_pattern pattern, point *points)
{
    int count[ARF_PROTOCOLS], all = 0;
    int64_t first = ARF_MAX_TOKENS, last = 1;
    char name[48];
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        count[p] = gather(samples, pattern, (arf_protocol)p, points);
        all += count[p];
        if (count[p] == 0)
            continue;
        first = points[0].tokens < first ? points[0].tokens : first;
        last = points[count[p] - 1].tokens > last ? points[count[p] - 1].tokens : last;
        snprintf(name, sizeof name, "%s_%s", arf_pattern_name(pattern),
                 arf_protocol_name((arf_protocol)p));
        add_data(script, name, points, count[p]);
    }
    if (all == 0)
        return false;
    arf_text_add(script, "unset object\nunset arrow\nunset label\nset title \"%s\"\n",
                 arf_pattern_name(pattern));
    arf_text_add(script, "set xrange [%lld:%lld]\n", (long long)first,
                 (long long)(last > first ? last : first + 1));
    add_shades(script, profile, pattern, last > first ? last : first + 1);
    bool begun = false;
    for (int p = 0; p < ARF_PROTOCOLS; p++) {
        if (count[p] == 0)
            continue;
        snprintf(name, sizeof name, "$%s_%s", arf_pattern_name(pattern),
                 arf_protocol_name((arf_protocol)p));
        arf_text_add(script,
                     "%s%s using 1:2 with lines linewidth 1.5 linecolor rgb '%s' notitle, "
                     "%s using 1:2:3:4 with yerrorbars pointtype 7 pointsize 0.4 linecolor rgb "
                     "'%s' title '%s'",
                     begun ? ", " : "plot ", name, colour[p], name, colour[p],
                     arf_protocol_name((arf_protocol)p));
        begun = true;
    }
    arf_text_add(script, "\n");
    return true;
}

static arfuse_status write_script(const request *r, const arf_profile *profile,
                                  const arf_samples *samples, arf_text *script, arf_error *error)
{
    bool chosen[ARF_PATTERNS], all = !r->asked[ARF_ALLREDUCE] && !r->asked[ARF_FINALIZE];
    arf_text panels = {0};
    int count = 0;
    point *points = malloc(((size_t)samples->count + 1) * sizeof *points);
    if (points == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory");
    for (int i = 0; i < ARF_PATTERNS; i++) {
        chosen[i] = all || r->asked[i];
        if (chosen[i])
            count += add_panel(&panels, profile, samples, (arf_pattern)i, points);
    }
    free(points);
    if (count > 0) {
        char title[ARF_REASON_TEXT];
        const arf_profile_key key = arf_profile_key_of(profile);
        arf_profile_key_text(&key, title, sizeof title);
        char *device = strstr(title, " on ");
        if (device != NULL)
            *device = '\0'; /* what is on the first line, where the next one */
        arf_text_add(script,
                     "set terminal svg size 900,%d noenhanced background rgb 'white'\n"
                     "set logscale xy\nset key bottom right opaque\nset grid\nset xlabel 'tokens'\n"
                     "set ylabel 'microseconds a call'\nset multiplot layout %d,1 title ",
                     60 + 420 * count, count);
        add_quoted(script, title);
        if (device != NULL) {
            arf_text_add(script, ".\"\\n\".");
            add_quoted(script, device + 4);
        }
        arf_text_add(script, " font ',11'\n%sunset multiplot\n", panels.data);
        script->failed |= panels.failed;
    }
    arf_text_free(&panels);
    return count > 0 ? ARFUSE_OK
                     : arf_fail(error, ARFUSE_PROFILE, "no timed sample, nothing to plot");
}

/* ---- drawing ------------------------------------------------------------------------------------
 */

extern char **environ;

/* Runs gnuplot from one file to the other. Files, not pipes: nobody can wait for the other. */
static arfuse_status run_gnuplot(int script, int picture, arf_error *error)
{
    char *const argv[] = {(char[]){"gnuplot"}, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, script, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, picture, STDOUT_FILENO);
    int code = posix_spawnp(&child, "gnuplot", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (code == ENOENT)
        return arf_fail(error, ARFUSE_FAILURE,
                        "gnuplot is not installed (Debian: gnuplot-nox); --script prints what it "
                        "would draw");
    if (code != 0)
        return arf_fail(error, ARFUSE_FAILURE, "cannot start gnuplot: %s", strerror(code));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return arf_fail(error, ARFUSE_FAILURE, "cannot wait for gnuplot: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return arf_fail(error, ARFUSE_FAILURE, "gnuplot failed; its words are above");
    return ARFUSE_OK;
}

static arfuse_status draw(const arf_text *script, arf_text *picture, arf_error *error)
{
    FILE *in = tmpfile(), *out = tmpfile();
    char part[4096];
    size_t bytes;
    arfuse_status status = ARFUSE_OK;
    if (in == NULL || out == NULL || fwrite(script->data, 1, script->bytes, in) != script->bytes ||
        fflush(in) != 0)
        status =
            arf_fail(error, ARFUSE_FAILURE, "cannot make a temporary file: %s", strerror(errno));
    if (status == ARFUSE_OK) {
        rewind(in);
        status = run_gnuplot(fileno(in), fileno(out), error);
    }
    if (status == ARFUSE_OK) {
        rewind(out);
        while ((bytes = fread(part, 1, sizeof part, out)) > 0)
            arf_text_add(picture, "%.*s", (int)bytes, part);
        if (picture->bytes == 0)
            status = arf_fail(error, ARFUSE_FAILURE, "gnuplot drew nothing");
    }
    if (in != NULL)
        fclose(in);
    if (out != NULL)
        fclose(out);
    return status;
}

static arfuse_status plot(const request *r, const arf_profile *profile, const arf_samples *samples,
                          arf_error *error)
{
    arf_text script = {0}, picture = {0};
    arfuse_status status = write_script(r, profile, samples, &script, error);
    if (status == ARFUSE_OK && script.failed)
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for the picture");
    if (status == ARFUSE_OK && !r->script)
        status = draw(&script, &picture, error);
    arf_error_prefix(error, "%s", r->path); /* what follows is about the output, and names it */
    if (status == ARFUSE_OK)
        status = r->script ? arf_cli_deliver(&script, "a script that plot wrote",
                                             "set terminal svg", r->output, error)
                           : arf_cli_deliver(&picture, "an SVG picture", "<?xml", r->output, error);
    arf_text_free(&script);
    arf_text_free(&picture);
    return status;
}

static int run(int argc, char **argv)
{
    request r = {0};
    char beside[4096];
    arf_error error = ARF_ERROR_INIT;
    arf_cli_parse(&arf_verb_plot, options, parse, argc, argv, &r);
    const char *path = r.samples != NULL                                       ? r.samples
                       : arf_cli_is_samples(r.path)                            ? r.path
                       : arf_cli_samples_beside(r.path, beside, sizeof beside) ? beside
                                                                               : r.path;
    arf_profile *profile = arf_cli_load_either(r.path);
    arf_samples *samples = NULL;
    int code = ARFUSE_PROFILE;
    if (profile != NULL && r.samples == NULL && access(path, F_OK) != 0)
        arf_complain("%s: a picture needs the samples behind the profile: beside it, or by "
                     "--samples FILE",
                     r.path);
    else if (profile != NULL)
        samples = arf_cli_load_behind(profile, r.path, path);
    if (samples != NULL) {
        code = (int)plot(&r, profile, samples, &error);
        if (code != 0)
            arf_complain("%s", error.text);
    }
    arf_samples_free(samples);
    arf_profile_free(profile);
    return code;
}

const arf_verb arf_verb_plot = {"plot", "[--pattern P] [-o FILE] PROFILE|SAMPLES",
                                "Draw latency against tokens, routes shaded, as SVG", run};
