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

/* By how much the ratio to a rival may change in an octave; 0: it is none. Rivals are other
 * protocols and the plans of other routes. The other tunings of a protocol are always close and
 * seldom worth a route. */
static double ratio_to(const arf_table *table, const arf_segment *segments, int count, int own,
                       int candidate)
{
    if (table->plan[candidate].protocol != table->plan[own].protocol)
        return RATIO_OF_PROTOCOLS;
    for (int s = 0; s < count; s++)
        if (segments[s].candidate == candidate && candidate != own)
            return RATIO_OF_TUNINGS;
    return 0.0;
}

/* By how much the leads at `point` and the next fall short, against the closest rival. */
static double shortfall(const arf_table *table, const arf_segment *segments, int count, int own,
                        int point, double octaves)
{
    double most = 0.0;
    for (int c = 0; c < table->candidates; c++) {
        const double ratio = ratio_to(table, segments, count, own, c);
        if (ratio > 0.0 && arf_table_cell(table, c, point)->measured &&
            arf_table_cell(table, c, point + 1)->measured)
            most = fmax(most, ratio * octaves - arf_table_lead(table, c, own, point) -
                                  arf_table_lead(table, c, own, point + 1));
    }
    return most;
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
            gap.doubt = (table->weight[p] + table->weight[p + 1]) *
                        shortfall(table, segments, count, own, p, octaves);
            if (gap.doubt > 0.0)
                kept = keep(gaps, kept, room, &gap);
        }
    }
    return kept;
}
