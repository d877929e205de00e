/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "bench/gpu/race.h"

static const race_time *fastest_ll(const race *r, int64_t tokens)
{
    for (int i = 0; i < r->count; i++)
        if (r->row[i].ladder && r->row[i].pattern == ARF_ALLREDUCE && r->row[i].tokens == tokens &&
            r->row[i].best[ARF_LL].timed)
            return &r->row[i].best[ARF_LL];
    return NULL;
}

/* Calls of each graph: even, so that both take as many turns. */
enum { CALLS = 40 };

arfuse_status race_alternate(const race *r, int64_t few, int64_t many, race_pair *pair,
                             arf_error *error)
{
    const race_time *small = fastest_ll(r, few), *large = fastest_ll(r, many);
    double apart[RACE_ROUNDS], together[RACE_ROUNDS];
    *pair = (race_pair){few, many, NAN, NAN};
    if (small == NULL || large == NULL)
        return ARFUSE_OK;
    /* One tuning for both: an engine that changes it with M pays for nothing more. */
    const arf_run both[2] = {{.pattern = ARF_ALLREDUCE, .plan = &small->plan, .tokens = few},
                             {.pattern = ARF_ALLREDUCE, .plan = &small->plan, .tokens = many}};
    for (int round = 0; round < RACE_ROUNDS; round++) {
        double us[2], pairs;
        bool fatal;
        for (int i = 0; i < 2; i++)
            ARF_TRY(arf_bench_time(r->bench, &both[i], CALLS, round, &us[i], &fatal, error));
        ARF_TRY(arf_bench_time_mixed(r->bench, both, 2, CALLS, round, &pairs, &fatal, error));
        apart[round] = us[0] + us[1];
        together[round] = 2 * pairs;
    }
    pair->apart = arf_median(apart, RACE_ROUNDS);
    pair->together = arf_median(together, RACE_ROUNDS);
    return ARFUSE_OK;
}
