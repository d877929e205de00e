/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three steps, each deterministic:
 *
 *   1. Dynamic programming over (point, candidate): weighted log-regret plus a price for each
 *      segment after the first. The price is what keeps islands out: a point at which another
 *      candidate happened to be ahead does not pay for two more segments.
 *   2. Ties. What the programme chose is the smallest of many noisy sums. Where an earlier
 *      candidate in the fixed order (fit/table.h) is behind by no more than the noise of that
 *      difference, it takes the segment; two neighbours become one where that costs no more than
 *      the price and the noise of the difference. So repeated runs give the same plans.
 *   3. With the sequence of plans settled, the programme runs once more over that sequence
 *      alone, without noise or price, so that ties do not shift the bounds.
 *
 * A segment begins and ends at points where its candidate was measured; between them a chord will
 * do (fit/table.c).
 */
#include "fit/segments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double regret(const arf_table *table, int candidate, int point)
{
    const arf_cell *cell = arf_table_cell(table, candidate, point);
    if (!cell->known)
        return INFINITY;
    /* A chord may lie below the best that was measured; it wins nothing by that. */
    return table->weight[point] * fmax(0.0, cell->log_us - table->best[point]);
}

static bool may_begin(const arf_table *table, int candidate, int point)
{
    return arf_table_cell(table, candidate, point)->measured;
}

static bool may_stay(const arf_table *table, int candidate, int point)
{
    const arf_cell *cell = arf_table_cell(table, candidate, point);
    return cell->known && !cell->cut;
}

/* Hands may change between two points unless both failed on the way: somewhere there nobody could
 * serve. */
static bool may_change(const arf_table *table, int from, int to, int point)
{
    return may_begin(table, from, point - 1) && may_begin(table, to, point) &&
           !(arf_table_cell(table, from, point)->cut && arf_table_cell(table, to, point)->cut);
}

/* The first route serves every M below the first point, too. */
static bool may_come_first(const arf_table *table, int candidate)
{
    return may_begin(table, candidate, 0) && !arf_table_cell(table, candidate, 0)->cut;
}

/* ---- step 1 -----------------------------------------------------------------------------------
 */

/* Walks back through came_from ([point][candidate]: the candidate of the point before). */
static int walk_back(const arf_table *table, const int *came_from, int candidate,
                     arf_segment segments[ARF_MAX_ROUTES])
{
    int count = 1;
    for (int p = table->points - 1, c = candidate; p > 0; p--) {
        int before = came_from[(size_t)p * (size_t)table->candidates + (size_t)c];
        count += before != c;
        c = before;
    }
    if (count > ARF_MAX_ROUTES)
        return count;
    int place = count - 1;
    segments[place] = (arf_segment){candidate, 0, table->points - 1};
    for (int p = table->points - 1, c = candidate; p > 0; p--) {
        int before = came_from[(size_t)p * (size_t)table->candidates + (size_t)c];
        if (before != c) {
            segments[place].first = p;
            segments[--place] = (arf_segment){before, 0, p - 1};
        }
        c = before;
    }
    return count;
}

static int programme(const arf_table *table, double price, arf_segment segments[ARF_MAX_ROUTES])
{
    int candidates = table->candidates;
    size_t cells = (size_t)candidates * (size_t)table->points;
    double *total = malloc((size_t)candidates * sizeof *total);
    double *next = malloc((size_t)candidates * sizeof *next);
    int *came_from = malloc(cells * sizeof *came_from);
    int count = -1;
    if (total == NULL || next == NULL || came_from == NULL)
        goto done;
    count = 0;
    for (int c = 0; c < candidates; c++)
        total[c] = may_come_first(table, c) ? regret(table, c, 0) : INFINITY;
    for (int p = 1; p < table->points; p++) {
        for (int c = 0; c < candidates; c++)
            next[c] = regret(table, c, p); /* of p alone, so far */
        /* The cheapest to change from, for those that may take over from anybody and for those that
         * failed on the way; the first in order when equal. */
        int leader[2] = {-1, -1};
        for (int c = 0; c < candidates; c++)
            for (int failed = 0; failed < 2; failed++)
                if (may_begin(table, c, p - 1) && !(failed && arf_table_cell(table, c, p)->cut) &&
                    (leader[failed] < 0 ? isfinite(total[c]) : total[c] < total[leader[failed]]))
                    leader[failed] = c;
        for (int c = 0; c < candidates; c++) {
            int from = leader[arf_table_cell(table, c, p)->cut];
            double stay = may_stay(table, c, p) ? total[c] : INFINITY;
            double change = INFINITY;
            if (from >= 0 && from != c && may_begin(table, c, p))
                change = total[from] + price;
            bool stays = stay <= change;
            came_from[(size_t)p * (size_t)candidates + (size_t)c] = stays ? c : from;
            next[c] += stays ? stay : change;
        }
        memcpy(total, next, (size_t)candidates * sizeof *total);
    }
    int best = -1;
    for (int c = 0; c < candidates; c++)
        if (arf_table_cell(table, c, table->points - 1)->measured &&
            (best < 0 ? isfinite(total[c]) : total[c] < total[best]))
            best = c;
    if (best >= 0)
        count = walk_back(table, came_from, best, segments);
done:
    free(total);
    free(next);
    free(came_from);
    return count;
}

/* ---- step 2 -----------------------------------------------------------------------------------
 */

/* Weighted regret of a candidate over points; infinite where it may not serve them all. */
static double cost_of(const arf_table *table, int candidate, int first, int last)
{
    if (!arf_table_cell(table, candidate, first)->measured ||
        !arf_table_cell(table, candidate, last)->measured)
        return INFINITY;
    double sum = 0.0;
    for (int p = first; p <= last; p++) {
        if (p > first && !may_stay(table, candidate, p))
            return INFINITY;
        sum += regret(table, candidate, p);
    }
    return sum;
}

/* A tie may cost this much (log time) at a point and no more: where a busy machine makes intervals
 * as wide as the times themselves, "inside the noise" would otherwise excuse any choice (BT at 1349
 * us routed where unfused took 428, on two cores with 8 ranks). Far above the spread of near-tied
 * kernels on an idle machine (0.7 to 3.5 % over ranks, sglang#35343), so there it changes nothing. */
#define TIE_MOST 0.20

/* The 95 % noise of the difference of two candidates' costs, as far as ties go. */
static double noise_of(const arf_table *table, int a, int b, int first, int last)
{
    double sum = 0.0;
    for (int p = first; a != b && p <= last; p++) {
        double x = fmin(arf_table_cell(table, a, p)->noise, TIE_MOST);
        double y = fmin(arf_table_cell(table, b, p)->noise, TIE_MOST);
        sum += table->weight[p] * table->weight[p] * (x * x + y * y);
    }
    return sqrt(sum);
}

/* Two neighbouring segments, one of `left` and one of `right` from `point` on. The same candidate
 * on both sides is one segment, which must not cross a failure. */
static bool may_meet(const arf_table *table, int left, int right, int point)
{
    return left == right ? may_stay(table, left, point) : may_change(table, left, right, point);
}

/* Segments [left, right] may be given to a candidate, seen from their neighbours. */
static bool may_take(const arf_table *table, const arf_segment *segments, int count, int left,
                     int right, int candidate)
{
    bool before =
        left == 0 ? may_come_first(table, candidate)
                  : may_meet(table, segments[left - 1].candidate, candidate, segments[left].first);
    return before &&
           (right + 1 == count ||
            may_meet(table, candidate, segments[right + 1].candidate, segments[right + 1].first));
}

/* The first candidate in order that is as good as the segment's own, inside the noise. */
static int earliest(const arf_table *table, const arf_segment *segments, int count, int index)
{
    const arf_segment *segment = &segments[index];
    double own = cost_of(table, segment->candidate, segment->first, segment->last);
    for (int c = 0; c < segment->candidate; c++) {
        double cost = cost_of(table, c, segment->first, segment->last);
        if (cost - own <= noise_of(table, c, segment->candidate, segment->first, segment->last) &&
            may_take(table, segments, count, index, index, c))
            return c;
    }
    return segment->candidate;
}

static int drop_repeats(arf_segment *segments, int count)
{
    int kept = 0;
    for (int i = 1; i < count; i++) {
        if (segments[i].candidate == segments[kept].candidate)
            segments[kept].last = segments[i].last;
        else
            segments[++kept] = segments[i];
    }
    return count > 0 ? kept + 1 : 0;
}

/* What it costs, beyond price and noise, to let one candidate serve two neighbours; at most 0: they
 * should be one. */
static double joining(const arf_table *table, double price, const arf_segment *left,
                      const arf_segment *right, int candidate)
{
    double apart = cost_of(table, left->candidate, left->first, left->last) +
                   cost_of(table, right->candidate, right->first, right->last) + price;
    double joined = cost_of(table, candidate, left->first, right->last);
    double a = noise_of(table, candidate, left->candidate, left->first, left->last);
    double b = noise_of(table, candidate, right->candidate, right->first, right->last);
    return joined - apart - sqrt(a * a + b * b);
}

/* Joins the pair that gains most, as long as one gains. */
static int join(const arf_table *table, double price, arf_segment *segments, int count)
{
    while (count > 1) {
        int place = -1, chosen = -1;
        double least = 0.0;
        for (int i = 0; i + 1 < count; i++) {
            for (int c = 0; c < table->candidates; c++) {
                double excess = joining(table, price, &segments[i], &segments[i + 1], c);
                if (excess < least && may_take(table, segments, count, i, i + 1, c)) {
                    least = excess;
                    place = i;
                    chosen = c;
                }
            }
        }
        if (place < 0)
            return count;
        segments[place].candidate = chosen;
        segments[place].last = segments[place + 1].last;
        for (int i = place + 1; i + 1 < count; i++)
            segments[i] = segments[i + 1];
        count = drop_repeats(segments, count - 1);
    }
    return count;
}

static int settle_ties(const arf_table *table, double price, arf_segment *segments, int count)
{
    for (int i = 0; i < count; i++)
        segments[i].candidate = earliest(table, segments, count, i);
    count = drop_repeats(segments, count);
    count = join(table, price, segments, count);
    for (int i = 0; i < count; i++)
        segments[i].candidate = earliest(table, segments, count, i);
    return drop_repeats(segments, count);
}

/* ---- step 3 -----------------------------------------------------------------------------------
 */

/* Where the settled sequence changes hands: the programme over (point, place in the sequence). */
static bool place_changes(const arf_table *table, arf_segment *segments, int count)
{
    double *total = malloc((size_t)count * sizeof *total);
    bool *stayed = malloc((size_t)count * (size_t)table->points * sizeof *stayed);
    bool made = total != NULL && stayed != NULL;
    if (!made)
        goto done;
    for (int s = 0; s < count; s++)
        total[s] = INFINITY;
    total[0] = regret(table, segments[0].candidate, 0);
    for (int p = 1; p < table->points; p++) {
        for (int s = count - 1; s >= 0; s--) { /* downwards: total[s - 1] is still of p - 1 */
            int own = segments[s].candidate;
            double stay = may_stay(table, own, p) ? total[s] : INFINITY;
            double change = INFINITY;
            if (s > 0 && may_change(table, segments[s - 1].candidate, own, p))
                change = total[s - 1];
            stayed[(size_t)p * (size_t)count + (size_t)s] = stay <= change;
            total[s] = fmin(stay, change) + regret(table, own, p);
        }
    }
    /* The settled segments are one feasible way, so a finite one exists. */
    if (!isfinite(total[count - 1]))
        goto done;
    int place = count - 1;
    segments[place].last = table->points - 1;
    for (int p = table->points - 1; p > 0; p--) {
        if (stayed[(size_t)p * (size_t)count + (size_t)place])
            continue;
        segments[place].first = p;
        segments[--place].last = p - 1;
    }
    segments[0].first = 0;
done:
    free(total);
    free(stayed);
    return made;
}

int arf_segments(const arf_table *table, double price, arf_segment segments[ARF_MAX_ROUTES])
{
    int count = programme(table, price, segments);
    while (count > ARF_MAX_ROUTES) {
        price = price > 0.0 ? 2.0 * price : 1e-4;
        count = programme(table, price, segments);
    }
    if (count <= 0)
        return count;
    count = settle_ties(table, price, segments, count);
    return place_changes(table, segments, count) ? count : -1;
}
