/* SPDX-License-Identifier: Apache-2.0 */
#include "support/pairwise.h"

#include <string.h>

typedef bool pair_set[PAIRWISE_MAX_FACTORS][PAIRWISE_MAX_LEVELS][PAIRWISE_MAX_FACTORS]
                     [PAIRWISE_MAX_LEVELS];

/* xorshift64 (Marsaglia, 2003) */
static int pick(uint64_t *state, int count)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (int)((*state >> 33) % (uint64_t)count);
}

static void draw(const pairwise_space *space, uint64_t *state, pairwise_choice *choice)
{
    for (int f = 0; f < space->factors; f++)
        choice->level[f] = pick(state, space->levels[f]);
}

/* Pairs of this choice that are in the set; takes them out when asked. */
static int pairs_in(const pairwise_space *space, const pairwise_choice *choice, pair_set set,
                    bool take)
{
    int count = 0;
    for (int a = 0; a < space->factors; a++)
        for (int b = a + 1; b < space->factors; b++) {
            bool *pair = &set[a][choice->level[a]][b][choice->level[b]];
            count += *pair;
            if (take)
                *pair = false;
        }
    return count;
}

/* What a long search never met cannot be, or is so rare that it is no pair of its own. */
static int pairs_that_can_be(const pairwise_space *space, uint64_t *state, pair_set wanted)
{
    enum { SEARCH = 20000 };
    int pairs = 0;
    pairwise_choice next = {{0}};
    for (int i = 0; i < SEARCH; i++) {
        draw(space, state, &next);
        if (!space->can_be(&next, space->context))
            continue;
        for (int a = 0; a < space->factors; a++)
            for (int b = a + 1; b < space->factors; b++) {
                bool *pair = &wanted[a][next.level[a]][b][next.level[b]];
                pairs += !*pair;
                *pair = true;
            }
    }
    return pairs;
}

/* Candidates by chance; of each batch the one that covers most. */
pairwise_cover pairwise_make(const pairwise_space *space, uint64_t seed, pairwise_choice *choice,
                             int most)
{
    enum { BATCH = 200 };
    static pair_set wanted;
    uint64_t state = seed * 2654435761u + 88172645463325252u;
    pairwise_choice best = {{0}}, next = {{0}};
    memset(wanted, 0, sizeof wanted);
    pairwise_cover cover = {.pairs = pairs_that_can_be(space, &state, wanted)};
    int idle = 0;
    while (cover.covered < cover.pairs && cover.choices < most && idle < 100) {
        int gained = 0;
        for (int i = 0; i < BATCH; i++) {
            draw(space, &state, &next);
            int gain = pairs_in(space, &next, wanted, false);
            if (gain > gained && space->can_be(&next, space->context)) {
                gained = gain;
                best = next;
            }
        }
        idle = gained > 0 ? 0 : idle + 1;
        if (gained == 0)
            continue;
        cover.covered += pairs_in(space, &best, wanted, true);
        choice[cover.choices++] = best;
    }
    return cover;
}
