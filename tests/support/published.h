/* SPDX-License-Identifier: Apache-2.0 */
/* The transcribed public configurations (tests/fixtures/rules/published.json) as values. Whatever
 * is wrong with the fixture fails the test that asks. */
#ifndef ARF_TESTS_PUBLISHED_H
#define ARF_TESTS_PUBLISHED_H

#include "rules/legal.h"

typedef struct published {
    arf_problem problem; /* with the SM count that the named GPU commonly reports */
    char config[128];
    arf_routes routes[ARF_PATTERNS];
} published;

/* A preset that no configuration routes to. */
typedef struct published_preset {
    arf_problem problem;
    arf_pattern pattern;
    arf_plan plan;
} published_preset;

int published_configurations(const published **list);
const published *published_find(const char *config, int hidden_size, int tp_size, int top_k);
int published_unrouted(published_preset list[16]);

#endif
