/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rules/knobs.h"

/* ---- rows --------------------------------------------------------------------------------------
 */

static int by_tokens(const void *a, const void *b)
{
    const race_row *x = *(const race_row *const *)a, *y = *(const race_row *const *)b;
    if (x->pattern != y->pattern)
        return x->pattern < y->pattern ? -1 : 1;
    return (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

static int sorted(const race *r, const race_row *row[RACE_MOST_ROWS])
{
    for (int i = 0; i < r->count; i++)
        row[i] = &r->row[i];
    qsort(row, (size_t)r->count, sizeof *row, by_tokens);
    return r->count;
}

static void number(double value, int width, int digits)
{
    if (isfinite(value))
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

/* ---- table -------------------------------------------------------------------------------------
 */

static const arf_protocol column[] = {ARF_LL, ARF_BT, ARF_HT, ARF_UNFUSED, ARF_SEPARATE};
#define COLUMNS ((int)(sizeof column / sizeof *column))

static void print_row(const race_row *row)
{
    printf("%-9s %7" PRId64, arf_pattern_name(row->pattern), row->tokens);
    for (int i = 0; i < COLUMNS; i++)
        number(row->best[column[i]].timed ? row->best[column[i]].us : NAN, 9, 2);
    number(row->routed.timed ? row->routed.us : NAN, 9, 2);
    printf(" %-8s", row->routed.timed ? arf_protocol_name(row->routed.plan.protocol) : "-");
    number(row->ratio[ARF_UNFUSED].median, 8, 3);
    number(row->ratio[ARF_SEPARATE].median, 8, 3);
    putchar('\n');
}

static void print_floors(const run_of_marks *run, const race_row *row)
{
    double least[COLUMNS];
    printf("%-9s %7" PRId64, arf_pattern_name(row->pattern), row->tokens);
    for (int i = 0; i < COLUMNS; i++) {
        least[i] = floor_of_time(run, row, &row->best[column[i]]);
        number(least[i], 9, 2);
    }
    for (int i = 0; i < COLUMNS; i++)
        number(row->best[column[i]].us / least[i], 8, 2);
    putchar('\n');
}

static void print_head(const run_of_marks *run, const arf_tuner *tuner)
{
    char device[160], placement[256];
    arf_tuner_device_text(&tuner->key, device, sizeof device);
    arf_placement_text(&tuner->placement, placement, sizeof placement);
    const arf_shape *shape = &run->problem->shape;
    printf("%s, driver %s, sources %s\n%s, H %d, K %d; routes: %s; policy %s\n", device,
           tuner->evidence.driver, tuner->evidence.source_digest, placement, shape->hidden_size,
           shape->top_k, run->race->routed->name, arf_policy_name(tuner->options->policy));
    printf("copy, bytes read and written, over both buffers:");
    for (int i = 0; i < run->copy->count; i++)
        printf(" %.0f MiB %.2f TB/s%s", run->copy->bytes[i] / 1048576, run->copy->speed[i] / 1e6,
               i + 1 < run->copy->count ? "," : "\n");
    if (run->copy->count == 0)
        printf(" %s\n", run->copy->why);
    if (run->links->slowest > 0)
        printf("links, each GPU to all others at once: %.0f GB/s out of the slowest, %.0f of the "
               "fastest\n",
               run->links->slowest / 1e3, run->links->fastest / 1e3);
}

static const char *const form_name[COMPOSED_FORMS] = {"nccl-fixed", "nccl-any"};

static void print_composed(const run_of_marks *run, const race_row *const *row, int count)
{
    if (run->no_composition[0] != '\0')
        return;
    printf("\nNCCL composition in us: the fastest unfused kernels around send, receive, the tree's "
           "sum and an all-gather (fixed), around ncclAllReduce (any); routed over each\n"
           "%-14s %7s %9s %9s %9s %8s %8s\n",
           "pattern", "tokens", "fixed", "any", "routed", "/fixed", "/any");
    for (int i = 0; i < count; i++) {
        double us[COMPOSED_FORMS];
        if (!row[i]->ladder || !row[i]->timed)
            continue;
        printf("nccl %-9s %7" PRId64, arf_pattern_name(row[i]->pattern), row[i]->tokens);
        for (int f = 0; f < COMPOSED_FORMS; f++) {
            us[f] = row[i]->composed[f].timed ? row[i]->composed[f].us : NAN;
            number(us[f], 9, 2);
        }
        number(row[i]->routed.timed ? row[i]->routed.us : NAN, 9, 2);
        for (int f = 0; f < COMPOSED_FORMS; f++)
            number(row[i]->routed.timed ? row[i]->routed.us / us[f] : NAN, 8, 3);
        putchar('\n');
    }
}

void print_table(const run_of_marks *run, const arf_tuner *tuner)
{
    static const race_row *row[RACE_MOST_ROWS];
    const int count = sorted(run->race, row);
    print_head(run, tuner);
    printf(
        "\nus a call: slowest rank, median of %d replays of a graph. Of each protocol its fastest "
        "tuning; routed: what the routes run, and over its rivals\n",
        RACE_ROUNDS);
    printf("%-9s %7s %9s %9s %9s %9s %9s %9s %-8s %8s %8s\n", "pattern", "tokens", "ll", "bt", "ht",
           "unfused", "separate", "routed", "by", "/unfused", "/separ.");
    for (int i = 0; i < count; i++)
        if (row[i]->ladder && row[i]->timed)
            print_row(row[i]);
    print_composed(run, row, count);
    if (run->copy->count == 0)
        return;
    printf(
        "\nfloor in us: bytes that must move over copy bandwidth at that working set, or over the "
        "links if that is more; then the times above over it\n%-9s %7s %9s %9s %9s %9s %9s %8s %8s "
        "%8s %8s %8s\n",
        "pattern", "tokens", "ll", "bt", "ht", "unfused", "separate", "ll", "bt", "ht", "unfused",
        "separate");
    for (int i = 0; i < count; i++)
        if (row[i]->ladder && row[i]->timed)
            print_floors(run, row[i]);
}

/* ---- CSV ---------------------------------------------------------------------------------------
 */

static void print_time(const run_of_marks *run, const race_row *row, const char *role,
                       const race_time *time)
{
    char tuning[384], then[384] = "";
    const arf_protocol protocol = time->plan.protocol;
    const double least = floor_of_time(run, row, time);
    arf_tuning_text(arf_knobs(run->problem->set, protocol, row->pattern), &time->plan.tuning,
                    tuning, sizeof tuning);
    if (protocol == ARF_SEPARATE)
        arf_plan_text(run->problem->set, ARF_ALLREDUCE, &time->then, then, sizeof then);
    const arf_ratio *ratio = &row->ratio[protocol];
    const bool rival = strcmp(role, "best") == 0;
    printf("%s,%d,%d,%d,%" PRId64 ",%s,%s,%s,\"%s\",\"%s\",%.3f,%d,%d,",
           arf_pattern_name(row->pattern), run->problem->shape.tp_size,
           run->problem->shape.hidden_size, run->problem->shape.top_k, row->tokens,
           row->ladder ? "ladder" : "check", role, arf_protocol_name(protocol), tuning, then,
           time->us, row->calls, time->rounds);
    if (isfinite(least))
        printf("%.3f,%.4f,", least, time->us / least);
    else
        printf(",,");
    if (rival && isfinite(ratio->median))
        printf("%.4f,%.4f,%.4f\n", ratio->median, ratio->low, ratio->high);
    else
        printf(",,\n");
}

void print_csv(const run_of_marks *run)
{
    static const race_row *row[RACE_MOST_ROWS];
    const int count = sorted(run->race, row);
    puts("pattern,tp_size,hidden_size,top_k,tokens,point,role,protocol,tuning,then,us,calls,rounds,"
         "floor_us,over_floor,routed_over_it,low,high");
    for (int i = 0; i < count; i++) {
        for (int p = 0; p < COLUMNS; p++)
            if (row[i]->timed && row[i]->best[column[p]].timed)
                print_time(run, row[i], "best", &row[i]->best[column[p]]);
        if (row[i]->timed && row[i]->routed.timed)
            print_time(run, row[i], "routed", &row[i]->routed);
        for (int f = 0; f < COMPOSED_FORMS; f++)
            if (row[i]->composed[f].timed)
                print_time(run, row[i], form_name[f], &row[i]->composed[f]);
    }
}

/* ---- marks -------------------------------------------------------------------------------------
 */

void print_marks(const marks *all, FILE *to)
{
    fputc('\n', to);
    for (int i = 0; i < all->count; i++)
        fprintf(to, "%s %-8s  %s: %s\n", all->of[i].aim ? "aim " : "mark",
                mark_verdict_name(all->of[i].verdict), all->of[i].name, all->of[i].figure);
}
