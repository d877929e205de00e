/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/anchor.h"

#include <math.h>

#include "tune/measure.h"

#define TIMINGS 5                    /* of one reading */
#define FIRST_ROUND INT64_C(1000000) /* far from the rounds of points, so no noise is shared */

void arf_anchor_set(arf_anchor *anchor, const arf_run *run, int calls)
{
    *anchor = (arf_anchor){.plan = *run->plan, .run = *run, .calls = calls};
    anchor->run.plan = &anchor->plan;
    if (run->then != NULL) {
        anchor->then = *run->then;
        anchor->run.then = &anchor->then;
    }
}

arfuse_status arf_anchor_read(arf_anchor *anchor, arf_bench *bench, arf_error *error)
{
    double us[TIMINGS];
    if (anchor->run.tokens == 0)
        return ARFUSE_OK;
    for (int i = 0; i < TIMINGS; i++) {
        arf_error own = ARF_ERROR_INIT;
        bool fatal;
        const int64_t round = FIRST_ROUND + (int64_t)anchor->readings * TIMINGS + i;
        if (arf_bench_time(bench, &anchor->run, anchor->calls, round, &us[i], &fatal, &own) !=
            ARFUSE_OK) {
            anchor->run.tokens = 0;
            return fatal ? arf_fail(error, own.status, "%s", own.text) : ARFUSE_OK;
        }
    }
    const int place =
        anchor->readings < ARF_ANCHOR_READINGS ? anchor->readings : ARF_ANCHOR_READINGS - 1;
    anchor->us[place] = arf_median(us, TIMINGS);
    anchor->readings = place + 1;
    return ARFUSE_OK;
}

double arf_anchor_change(const arf_anchor *anchor)
{
    double least = INFINITY, most = 0;
    for (int i = 0; i + 3 <= anchor->readings; i++) {
        const double middle = arf_median(anchor->us + i, 3);
        least = fmin(least, middle);
        most = fmax(most, middle);
    }
    return most > 0 ? most / least - 1 : 0;
}
