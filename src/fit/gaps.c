/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel's time is a staircase in M (tokens over blocks), so a rival that is close at the ends of
 * a gap may be ahead between them, which no bound shows. On one H200 with 8 ranks (H 6144, top-k
 * 10) finalize's HT led separate by 22 % at 32 tokens and by 4 % at 64, and was behind it by 3 %
 * at 42.
 *
 * Let the ratio of two times change by at most so much an octave. Then a lead of a at one end of a
 * gap and of b at the other may come down to (a + b - ratio * octaves) / 2 in between. Where that
 * is below 0 for some rival, the gap is in doubt. Halves ask for half the lead, so halving ends.
 *
 * Steps come behind whole blocks of tokens, which is what the ladder's counts are: there a plan
 * that works in blocks is at its best, and right behind there at its worst. So that is asked for
 * first; then the two points speak for the octave, and neither kind of plan is favoured. On that
 * H200 BT finalize whose rows belong to one rank led its slices by 1.3 % at 16 tokens, and the
 * routes lost 2.4 % at 17 by it.
 */
#include "fit/gaps.h"

#include <math.h>

/* In log time an octave. On that H200 HT over separate moved by 0.24 from 32 to 42 tokens and HT
 * over BT by 0.23 from 16 to 32; two tunings of HT against each other by 0.05 from 128 to 256. */
#define RATIO_OF_PROTOCOLS 0.4
#define RATIO_OF_TUNINGS 0.1
/* Narrower gaps, in octaves, are left alone: in a quarter of one (of 13) a rival must be ahead by
 * 2.6 % all the way to be worth the price of a route (fit.c). */
#define NARROW 0.25
/* Tokens. A ladder by powers of two has whole blocks of any size from here on; below it every count
 * is a bound's neighbour sooner or later. */
#define BLOCK 8

int64_t arf_middle_of(int64_t low, int64_t high)
{
    if (high - low < 2)
        return 0;
    int64_t middle = (int64_t)llround(sqrt((double)low * (double)high));
    return middle <= low ? low + 1 : middle >= high ? high - 1 : middle;
}

/* By how much the ratio to another plan may change in an octave. */
static double ratio_of(const arf_table *table, int own, int candidate)
{
    return table->plan[candidate].protocol == table->plan[own].protocol ? RATIO_OF_TUNINGS
                                                                        : RATIO_OF_PROTOCOLS;
}

/* By how much the leads at `point` and the next fall short, against the closest rival. */
static double shortfall(const arf_table *table, int own, int point, double octaves)
{
    double most = 0.0;
    for (int c = 0; c < table->candidates; c++) {
        const double ratio = ratio_of(table, own, c);
        if (c != own && arf_table_cell(table, c, point)->measured &&
            arf_table_cell(table, c, point + 1)->measured)
            most = fmax(most, ratio * octaves - arf_table_lead(table, c, own, point) -
                                  arf_table_lead(table, c, own, point + 1));
    }
    return most;
}

/* Right behind whole blocks, else the geometric middle. */
static int64_t place_in(int64_t low, int64_t high)
{
    return low % BLOCK == 0 ? low + 1 : arf_middle_of(low, high);
}

static int keep(arf_gap *gaps, int kept, int room, const arf_gap *gap)
{
    int place = kept;
    while (place > 0 && gaps[place - 1].doubt < gap->doubt)
        place--;
    if (place == room)
        return kept;
    kept += kept < room;
    for (int i = kept - 1; i > place; i--)
        gaps[i] = gaps[i - 1];
    gaps[place] = *gap;
    return kept;
}

int arf_gaps(const arf_table *table, const arf_segment *segments, int count, arf_gap *gaps,
             int room)
{
    int kept = 0;
    for (int s = 0; s < count; s++) {
        const int own = segments[s].candidate;
        for (int p = segments[s].first; p < segments[s].last; p++) {
            arf_gap gap = {.candidate = own, .low = table->tokens[p], .high = table->tokens[p + 1]};
            const double octaves = log2((double)gap.high / (double)gap.low);
            if (gap.high - gap.low < 2 || octaves < NARROW)
                continue;
            gap.doubt =
                (table->weight[p] + table->weight[p + 1]) * shortfall(table, own, p, octaves);
            gap.tokens = place_in(gap.low, gap.high);
            if (gap.doubt > 0.0)
                kept = keep(gaps, kept, room, &gap);
        }
    }
    return kept;
}

/* ---- who need not be measured ------------------------------------------------------------------
 */

/* Behind the best by more than this (log time) nobody is a rival. */
#define LOST 0.15

/* log(time of the plan / the best time) at a token count; NaN: it has no time there. */
static double behind(const arf_samples *samples, arf_pattern pattern, const arf_plan *plan,
                     int64_t tokens)
{
    const arf_sample *own = arf_samples_find(samples, pattern, tokens, plan);
    double best = INFINITY;
    if (own == NULL || own->outcome != ARF_SAMPLE_TIMED)
        return NAN;
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *other = &samples->sample[i];
        if (other->pattern == pattern && other->tokens == tokens &&
            other->outcome == ARF_SAMPLE_TIMED)
            best = fmin(best, arf_sample_median(other));
    }
    return log(arf_sample_median(own) / best);
}

bool arf_fit_lost(const arf_samples *samples, arf_pattern pattern, const arf_plan *plan,
                  int64_t tokens)
{
    int64_t low = 0, high = INT64_MAX;
    for (int i = 0; i < samples->count; i++) {
        const arf_sample *sample = &samples->sample[i];
        if (sample->pattern != pattern || sample->outcome != ARF_SAMPLE_TIMED ||
            !arf_plan_equal(samples->header.set, pattern, &sample->plan, plan))
            continue;
        if (sample->tokens < tokens && sample->tokens > low)
            low = sample->tokens;
        if (sample->tokens > tokens && sample->tokens < high)
            high = sample->tokens;
    }
    if (low == 0 || high == INT64_MAX)
        return false;
    const double octaves = log2((double)high / (double)low);
    const double least =
        0.5 * (behind(samples, pattern, plan, low) + behind(samples, pattern, plan, high) -
               RATIO_OF_PROTOCOLS * octaves);
    return least > LOST; /* false for NaN */
}
