/* SPDX-License-Identifier: Apache-2.0 */
#include "support/samples_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rules/knobs.h"

#define ROUNDS 9

arf_samples *samples_empty(void)
{
    arf_samples_header header;
    memset(&header, 0, sizeof header);
    header.set = ARF_SET_ARFUSE;
    header.shape = (arf_shape){8, 6144, 10, ARF_ON, ARF_ON, ARF_ON};
    strcpy(header.device.name, "test");
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
        header.version[protocol] = 1;
    arf_samples *samples = arf_samples_new(&header);
    assert_non_null(samples);
    return samples;
}

arf_plan samples_plan(arf_protocol protocol, int variant)
{
    const arf_knob_table *table = arf_knobs(ARF_SET_ARFUSE, protocol, ARF_ALLREDUCE);
    arf_plan plan = {.protocol = protocol, .tuning = arf_tuning_fallback(table)};
    plan.tuning.value[0] += variant;
    return plan;
}

void samples_add(arf_samples *samples, int64_t tokens, const arf_plan *plan, double us,
                 double spread)
{
    double rounds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        rounds[i] = us * (1.0 + spread * (i - ROUNDS / 2) / (ROUNDS / 2));
    arf_sample sample = {.pattern = ARF_ALLREDUCE,
                         .tokens = tokens,
                         .plan = *plan,
                         .outcome = ARF_SAMPLE_TIMED,
                         .calls = 20,
                         .rounds = ROUNDS,
                         .us = rounds};
    assert_int_equal(arf_samples_add(samples, &sample, NULL), ARFUSE_OK);
}

void samples_add_equal(arf_samples *samples, int64_t tokens, arf_protocol protocol, double us)
{
    arf_plan plan = samples_plan(protocol, 0);
    samples_add(samples, tokens, &plan, us, 0.0);
}
