/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/marks.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench/floor.h"

/* ---- what is demanded --------------------------------------------------------------------------
 */

#define NOISE 1.02        /* a routed call over its rivals */
#define FEW_TOKENS 16     /* finalize up to here ... */
#define FEW_GAIN 1.15     /* ... against separate finalize, geometric mean */
#define FLOOR_COUNTS 20.0 /* us: below, a call is not bound by memory */
#define MOST_LAUNCH 1.2   /* of bare launches */
#define MOST_ROUTE_NS 10.0
#define MOST_CREATE_MS 100.0
#define MOST_COMPILE_S 2.0
#define MOST_ALTERNATING 1.1 /* a pair of calls over each alone */

/* LL, allreduce, eight local ranks of one H200, H 6144, warm, microseconds. */
#define LL_RANKS 8
#define LL_HIDDEN 6144
static const struct {
    int64_t tokens;
    double most;
} ll_at[] = {{1, 6}, {16, 12}};

/* On several GPUs, where NCCL serves: a routed call over the faster form of its composition. */
#define COMPOSED_TOKENS 2048 /* faster up to here ... */
#define COMPOSED_FEW 64      /* ... up to here by ... */
#define COMPOSED_GAIN 3.0
#define COMPOSED_RANKS 4 /* ... in teams of at least so many */
#define PREFILL 8192
#define OVER_PREFILL 1.15 /* of the floor there */

static const struct {
    arf_protocol protocol;
    double most; /* of the floor */
} over_floor[] = {{ARF_LL, 1.5}, {ARF_BT, 1.35}, {ARF_HT, 1.35}};

/*
 * A public TRT-LLM-style fused kernel on one H200, allreduce pattern, H 6144, R processes under
 * MPS at 100 / R % each, warm, graph of 20 calls: the better of its one-shot and two-shot form, in
 * microseconds. The aim is at most AIM of these in geometric mean, and none slower.
 */
#define AIM 0.80
#define AIM_HIDDEN 6144
#define AIM_CALLS 20
static const struct {
    int64_t tokens;
    double two, four; /* ranks */
} public_kernel[] = {{1, 4.08, 5.41},  {4, 4.40, 5.88},   {16, 4.91, 8.11},
                     {64, 9.59, 23.9}, {128, 15.4, 46.8}, {256, 27.8, 75.0},
                     {512, 52.6, 113}, {1024, 101, 195},  {2048, 193, 363}};
/* Fused finalize: at most so many times its floor from here on ... */
#define AIM_MANY 64
#define AIM_FLOOR 1.6
/* ... and below our allreduce plus so many times what gathering its rows takes. */
#define AIM_GATHER 1.3
#define PUBLIC_ROWS ((int)(sizeof public_kernel / sizeof *public_kernel))

/* ---- writing down ------------------------------------------------------------------------------
 */

static mark *add(marks *all, bool aim, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static mark *add(marks *all, bool aim, const char *format, ...)
{
    mark *now = &all->of[all->count++];
    va_list arguments;
    *now = (mark){.aim = aim, .verdict = MARK_NOT_HERE};
    va_start(arguments, format);
    vsnprintf(now->name, sizeof now->name, format, arguments);
    va_end(arguments);
    return now;
}

static void say(mark *now, verdict_of_mark verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void say(mark *now, verdict_of_mark verdict, const char *format, ...)
{
    va_list arguments;
    now->verdict = verdict;
    va_start(arguments, format);
    vsnprintf(now->figure, sizeof now->figure, format, arguments);
    va_end(arguments);
}

/* The worst of some figures, and how many there were. */
typedef struct worst {
    int count, above, missing; /* missing: rows that should have had one */
    double value;
    const race_row *row;
} worst;

static void take(worst *w, double value, double most, const race_row *row)
{
    if (!isfinite(value)) {
        w->missing++;
        return;
    }
    w->above += value > most;
    if (w->count++ == 0 || value > w->value) {
        w->value = value;
        w->row = row;
    }
}

#define HOST_TIMES "times of the host device are no measure"

static void say_worst(mark *now, const worst *w, double most)
{
    if (w->count + w->missing == 0) {
        say(now, MARK_NOT_HERE, "no such point");
        return;
    }
    if (w->count == 0) {
        say(now, MARK_OPEN, "none of %d points was timed", w->missing);
        return;
    }
    char open[48] = "";
    if (w->missing > 0)
        snprintf(open, sizeof open, "; %d points not timed", w->missing);
    say(now,
        w->above > 0     ? MARK_MISSED
        : w->missing > 0 ? MARK_OPEN
                         : MARK_HELD,
        "worst %.3f (%s, %" PRId64 " tokens), at most %.2f: %d of %d points above%s", w->value,
        arf_pattern_name(w->row->pattern), w->row->tokens, most, w->above, w->count, open);
}

static const race_row *ladder_row(const race *r, arf_pattern pattern, int64_t tokens)
{
    for (int i = 0; i < r->count; i++)
        if (r->row[i].ladder && r->row[i].pattern == pattern && r->row[i].tokens == tokens)
            return &r->row[i];
    return NULL;
}

/* ---- routes against rivals ---------------------------------------------------------------------
 */

static void judge_rival(const run_of_marks *run, arf_pattern pattern, arf_protocol rival,
                        marks *all)
{
    worst w = {0};
    mark *now = add(all, false, "%s: routed over %s", arf_pattern_name(pattern),
                    rival == ARF_SEPARATE ? "separate finalize" : "unfused");
    for (int i = 0; i < run->race->count && run->race->wanted[rival]; i++)
        if (run->race->row[i].pattern == pattern)
            take(&w, run->race->row[i].timed ? run->race->row[i].ratio[rival].median : NAN, NOISE,
                 &run->race->row[i]);
    if (run->host)
        say(now, MARK_NOT_HERE, HOST_TIMES);
    else
        say_worst(now, &w, NOISE);
}

static void judge_few(const run_of_marks *run, marks *all)
{
    double sum = 0;
    int count = 0, missing = 0;
    mark *now =
        add(all, false, "finalize, 1 to %d tokens: separate finalize over routed", FEW_TOKENS);
    for (int i = 0; i < run->race->count; i++) {
        const race_row *row = &run->race->row[i];
        if (row->pattern != ARF_FINALIZE || row->tokens > FEW_TOKENS ||
            !run->race->wanted[ARF_SEPARATE])
            continue;
        const bool timed = row->timed && isfinite(row->ratio[ARF_SEPARATE].median);
        missing += !timed;
        count += timed;
        sum -= timed ? log(row->ratio[ARF_SEPARATE].median) : 0;
    }
    if (run->host || count + missing == 0)
        say(now, MARK_NOT_HERE, run->host ? HOST_TIMES : "no such point");
    else if (count == 0)
        say(now, MARK_OPEN, "none of %d points was timed", missing);
    else
        say(now,
            exp(sum / count) < FEW_GAIN ? MARK_MISSED
            : missing > 0               ? MARK_OPEN
                                        : MARK_HELD,
            "geometric mean %.3f of %d points, at least %.2f", exp(sum / count), count, FEW_GAIN);
}

/* ---- floors ------------------------------------------------------------------------------------
 */

/* The larger of what memory and what the links take; NaN when one of them is not known. */
static double floor_us(const run_of_marks *run, const race_row *row, arf_protocol protocol,
                       arf_protocol behind)
{
    const arf_shape *shape = &run->problem->shape;
    const double memory = copy_us(run->copy, floor_bytes(shape, run->ranks_here, row->pattern,
                                                         protocol, behind, row->tokens));
    if (run->ranks_here == shape->tp_size)
        return memory;
    const double links = links_us(
        run->links, floor_link_bytes(shape, run->ranks_here, protocol, behind, row->tokens));
    return isnan(memory) || isnan(links) ? NAN : fmax(memory, links);
}

double floor_of_time(const run_of_marks *run, const race_row *row, const race_time *time)
{
    return time->timed ? floor_us(run, row, time->plan.protocol, time->then.protocol) : NAN;
}

static void judge_floor(const run_of_marks *run, arf_protocol protocol, double most, marks *all)
{
    worst w = {0};
    mark *now = add(all, false, "%s over its floor, where that is over %g us",
                    arf_protocol_name(protocol), FLOOR_COUNTS);
    for (int i = 0; i < run->race->count; i++) {
        const race_row *row = &run->race->row[i];
        const double least = floor_us(run, row, protocol, protocol);
        if (!row->ladder || !(least > FLOOR_COUNTS) || !run->race->wanted[protocol] ||
            row->tokens > run->race->all->limit[row->pattern][protocol])
            continue;
        take(&w, row->timed && row->best[protocol].timed ? row->best[protocol].us / least : NAN,
             most, row);
    }
    if (!run->gpu)
        say(now, MARK_NOT_HERE, "%s",
            run->copy->count == 0 ? run->copy->why : "floors are those of a GPU");
    else if (run->ranks_here < run->problem->shape.tp_size)
        say(now, MARK_NOT_HERE, "said of ranks that share a GPU");
    else
        say_worst(now, &w, most);
}

/* ---- the NCCL composition ----------------------------------------------------------------------
 */

/* Its faster form at a row; NaN where none was timed. */
static double composed_us(const race_row *row)
{
    double least = NAN;
    for (int f = 0; f < COMPOSED_FORMS; f++)
        if (row->composed[f].timed)
            least = fmin(least, row->composed[f].us); /* fmin of NaN and a number: the number */
    return least;
}

static bool is_composed(const run_of_marks *run, mark *now)
{
    const bool here =
        run->gpu && run->ranks_here < run->problem->shape.tp_size && run->no_composition[0] == '\0';
    if (!here)
        say(now, MARK_NOT_HERE, "%s",
            run->no_composition[0] != '\0' ? run->no_composition : "said of several GPUs");
    return here;
}

static void judge_composed(const run_of_marks *run, arf_pattern pattern, int64_t last, double most,
                           marks *all)
{
    worst w = {0};
    mark *now = add(all, false, "%s, 1 to %" PRId64 " tokens: routed over the NCCL composition",
                    arf_pattern_name(pattern), last);
    for (int i = 0; i < run->race->count; i++) {
        const race_row *row = &run->race->row[i];
        if (row->ladder && row->pattern == pattern && row->tokens <= last)
            take(&w,
                 row->timed && row->routed.timed ? row->routed.us / composed_us(row) : (double)NAN,
                 most, row);
    }
    if (is_composed(run, now))
        say_worst(now, &w, most);
}

static void judge_prefill(const run_of_marks *run, arf_pattern pattern, marks *all)
{
    mark *now =
        add(all, false, "%s, %d tokens: routed within %.0f %% of its floor, or faster than NCCL",
            arf_pattern_name(pattern), PREFILL, 100 * (OVER_PREFILL - 1));
    const race_row *row = ladder_row(run->race, pattern, PREFILL);
    if (!is_composed(run, now))
        return;
    if (row == NULL) {
        say(now, MARK_NOT_HERE, "no such point");
        return;
    }
    const double over_least = row->routed.us / floor_of_time(run, row, &row->routed);
    const double over_nccl = row->routed.us / composed_us(row);
    if (!row->timed || !row->routed.timed || (isnan(over_least) && isnan(over_nccl)))
        say(now, MARK_OPEN, "not timed");
    else
        say(now, over_least <= OVER_PREFILL || over_nccl < 1 ? MARK_HELD : MARK_MISSED,
            "%.3f of the floor, at most %.2f; %.3f of NCCL", over_least, OVER_PREFILL, over_nccl);
}

/* ---- HT ----------------------------------------------------------------------------------------
 */

static void judge_ht(const run_of_marks *run, marks *all)
{
    static const int64_t tokens[] = {4096, 8192};
    mark *now = add(all, false, "HT is the routed choice at 4096 and 8192 tokens");
    int asked = 0, other = 0;
    char found[160] = "";
    for (int p = 0; p < ARF_PATTERNS; p++)
        for (int t = 0; t < 2; t++)
            for (int i = 0; i < run->race->count; i++) {
                const race_row *row = &run->race->row[i];
                if (row->pattern != (arf_pattern)p || row->tokens != tokens[t])
                    continue;
                const int at = arf_route_of(&run->race->routed->routes[p], tokens[t]);
                const arf_protocol protocol =
                    at < 0 ? ARF_UNFUSED : run->race->routed->routes[p].route[at].plan.protocol;
                asked++;
                other += protocol != ARF_HT;
                snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s %" PRId64 " %s",
                         found[0] == '\0' ? "" : ", ", arf_pattern_name((arf_pattern)p), tokens[t],
                         arf_protocol_name(protocol));
            }
    if (asked == 0 || !run->gpu)
        say(now, MARK_NOT_HERE, "%s", run->gpu ? "no such point" : "said of a GPU");
    else
        say(now, other > 0 ? MARK_MISSED : MARK_HELD, "%s", found);
}

/* ---- LL ----------------------------------------------------------------------------------------
 */

static void judge_ll(const run_of_marks *run, marks *all)
{
    const arf_shape *shape = &run->problem->shape;
    const bool meant = run->gpu && run->ranks_here == LL_RANKS && run->processes == 1 &&
                       shape->tp_size == LL_RANKS && shape->hidden_size == LL_HIDDEN &&
                       run->race->wanted[ARF_LL];
    for (size_t i = 0; i < sizeof ll_at / sizeof *ll_at; i++) {
        mark *now = add(all, false, "ll, allreduce, %" PRId64 " token%s", ll_at[i].tokens,
                        ll_at[i].tokens == 1 ? "" : "s");
        const race_row *row = ladder_row(run->race, ARF_ALLREDUCE, ll_at[i].tokens);
        if (!meant || row == NULL)
            say(now, MARK_NOT_HERE, "said of %d local ranks on a GPU and H %d", LL_RANKS,
                LL_HIDDEN);
        else if (!row->timed || !row->best[ARF_LL].timed)
            say(now, MARK_OPEN, "not timed");
        else
            say(now, row->best[ARF_LL].us > ll_at[i].most ? MARK_MISSED : MARK_HELD,
                "%.2f us, at most %g", row->best[ARF_LL].us, ll_at[i].most);
    }
}

static void judge_pair(const run_of_marks *run, marks *all)
{
    const race_pair *pair = run->pair;
    const double ratio = pair->together / pair->apart;
    mark *now =
        add(all, false, "ll: calls of %" PRId64 " and %" PRId64 " tokens by turns over each alone",
            pair->few, pair->many);
    if (run->host || isnan(ratio))
        say(now, MARK_NOT_HERE, "%s", run->host ? HOST_TIMES : "ll was not timed at both");
    else
        say(now, ratio > MOST_ALTERNATING ? MARK_MISSED : MARK_HELD,
            "%.3f (%.2f us a pair, %.2f apart), at most %.2f", ratio, pair->together, pair->apart,
            MOST_ALTERNATING);
}

/* ---- costs of the host -------------------------------------------------------------------------
 */

static void judge_cost(const run_of_marks *run, const char *name, double value, double most,
                       const char *figure, marks *all)
{
    mark *now = add(all, false, "%s", name);
    if (isnan(value))
        say(now, MARK_NOT_HERE, "%s", run->costs->why[0] != '\0' ? run->costs->why : "nothing ran");
    else
        say(now, value > most ? MARK_MISSED : MARK_HELD, "%s", figure);
}

static void judge_costs(const run_of_marks *run, marks *all)
{
    const host_costs *c = run->costs;
    char figure[200];
    snprintf(figure, sizeof figure,
             "worst %.3f (%s, %" PRId64 " tokens, %d kernels: %.2f us, bare %.2f us), at most %.2f",
             c->launch_ratio, arf_pattern_name(c->launch_pattern), c->launch_tokens,
             c->launch_kernels, c->launch_us, c->bare_us, MOST_LAUNCH);
    judge_cost(run, "launch cost of a routed call over bare launches", c->launch_ratio, MOST_LAUNCH,
               figure, all);
    snprintf(figure, sizeof figure, "%.2f ns, at most %g", c->route_ns, MOST_ROUTE_NS);
    judge_cost(run, "choosing a route", c->route_ns, MOST_ROUTE_NS, figure, all);
    snprintf(figure, sizeof figure, "%.1f ms, at most %g", c->create_ms, MOST_CREATE_MS);
    judge_cost(run, "creating a workspace, cache warm, context there", c->create_ms, MOST_CREATE_MS,
               figure, all);
    snprintf(figure, sizeof figure, "%.2f s at worst (%s, of %d), at most %g", c->compile_s,
             c->compile_kernel, c->compiled, MOST_COMPILE_S);
    judge_cost(run, "compiling a kernel into an empty cache", c->compile_s, MOST_COMPILE_S, figure,
               all);
}

/* ---- the aim -----------------------------------------------------------------------------------
 */

/* The same set-up alone compares: ranks, hidden size, a process a rank on one GPU, graph. */
static void judge_public(const run_of_marks *run, marks *all)
{
    const int ranks = run->problem->shape.tp_size;
    worst w = {0};
    double sum = 0;
    if (!run->gpu || run->problem->shape.hidden_size != AIM_HIDDEN || (ranks != 2 && ranks != 4) ||
        run->processes != ranks || run->ranks_here != ranks || run->race->calls != AIM_CALLS)
        return;
    for (int i = 0; i < PUBLIC_ROWS; i++) {
        const race_row *row = ladder_row(run->race, ARF_ALLREDUCE, public_kernel[i].tokens);
        if (row == NULL)
            continue;
        const double most = ranks == 2 ? public_kernel[i].two : public_kernel[i].four;
        const double ratio = row->timed && row->routed.timed ? row->routed.us / most : NAN;
        take(&w, ratio, 1, row);
        sum += isfinite(ratio) ? log(ratio) : 0;
    }
    say_worst(add(all, true, "allreduce: routed over a public fused kernel, each row"), &w, 1);
    mark *mean = add(all, true, "allreduce: routed over a public fused kernel, geometric mean");
    if (w.count == 0)
        say(mean, MARK_OPEN, "no row was timed");
    else
        say(mean, exp(sum / w.count) > AIM ? MARK_MISSED : MARK_HELD,
            "%.3f of %d rows, at most %.2f", exp(sum / w.count), w.count, AIM);
}

/* The routed finalize over what it is to come to; NaN when something is not known. */
static double finalize_ratio(const run_of_marks *run, const race_row *row)
{
    const arf_shape *shape = &run->problem->shape;
    if (!row->timed || !row->routed.timed)
        return NAN;
    if (row->tokens >= AIM_MANY)
        return row->routed.us / (AIM_FLOOR * floor_of_time(run, row, &row->routed));
    const race_row *without = ladder_row(run->race, ARF_ALLREDUCE, row->tokens);
    if (without == NULL || !without->routed.timed)
        return NAN;
    const double bytes = (shape->top_k + 1) * floor_row_bytes(shape, run->ranks_here, row->tokens);
    return row->routed.us / (without->routed.us + AIM_GATHER * copy_us(run->copy, bytes));
}

static void judge_finalize(const run_of_marks *run, marks *all)
{
    worst few = {0}, many = {0};
    if (!run->gpu || run->ranks_here < run->problem->shape.tp_size)
        return;
    for (int i = 0; i < run->race->count; i++) {
        const race_row *row = &run->race->row[i];
        if (row->ladder && row->pattern == ARF_FINALIZE)
            take(row->tokens < AIM_MANY ? &few : &many, finalize_ratio(run, row), 1, row);
    }
    say_worst(add(all, true, "finalize below %d tokens: routed over allreduce + %g gathers",
                  AIM_MANY, AIM_GATHER),
              &few, 1);
    say_worst(add(all, true, "finalize from %d tokens: routed over %g floors", AIM_MANY, AIM_FLOOR),
              &many, 1);
}

/* ---- all ---------------------------------------------------------------------------------------
 */

void judge_marks(const run_of_marks *run, marks *all)
{
    all->count = 0;
    judge_rival(run, ARF_ALLREDUCE, ARF_UNFUSED, all);
    judge_rival(run, ARF_FINALIZE, ARF_UNFUSED, all);
    judge_rival(run, ARF_FINALIZE, ARF_SEPARATE, all);
    judge_few(run, all);
    for (size_t i = 0; i < sizeof over_floor / sizeof *over_floor; i++)
        judge_floor(run, over_floor[i].protocol, over_floor[i].most, all);
    for (int p = 0; p < ARF_PATTERNS; p++) {
        judge_composed(run, (arf_pattern)p, COMPOSED_TOKENS, 1, all);
        if (run->problem->shape.tp_size >= COMPOSED_RANKS)
            judge_composed(run, (arf_pattern)p, COMPOSED_FEW, 1 / COMPOSED_GAIN, all);
        judge_prefill(run, (arf_pattern)p, all);
    }
    judge_ht(run, all);
    judge_ll(run, all);
    judge_pair(run, all);
    judge_costs(run, all);
    judge_public(run, all);
    judge_finalize(run, all);
}

const char *mark_verdict_name(verdict_of_mark verdict)
{
    static const char *const name[] = {"held", "MISSED", "OPEN", "not here"};
    return name[verdict];
}

bool marks_missed(const marks *all)
{
    for (int i = 0; i < all->count; i++)
        if (!all->of[i].aim &&
            (all->of[i].verdict == MARK_MISSED || all->of[i].verdict == MARK_OPEN))
            return true;
    return false;
}
