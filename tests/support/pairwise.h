/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairwise covers: few choices of one level for each factor, such that every pair of levels of two
 * factors that can occur together occurs in some choice. A function of its seed.
 */
#ifndef TESTS_SUPPORT_PAIRWISE_H
#define TESTS_SUPPORT_PAIRWISE_H

#include <stdbool.h>
#include <stdint.h>

#define PAIRWISE_MAX_FACTORS 12
#define PAIRWISE_MAX_LEVELS 10

typedef struct pairwise_choice {
    int level[PAIRWISE_MAX_FACTORS];
} pairwise_choice;

typedef struct pairwise_space {
    int factors;
    int levels[PAIRWISE_MAX_FACTORS]; /* of each factor */
    bool (*can_be)(const pairwise_choice *choice, void *context);
    void *context;
} pairwise_space;

typedef struct pairwise_cover {
    int choices;        /* written, at most `most` */
    int pairs, covered; /* pairs that can occur, and those that do in the choices */
} pairwise_cover;

/* Not for several threads at once. */
pairwise_cover pairwise_make(const pairwise_space *space, uint64_t seed, pairwise_choice *choice,
                             int most);

#endif
