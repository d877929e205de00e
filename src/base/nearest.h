/* SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean": of several names the one that what was typed is nearest to. */
#ifndef ARF_BASE_NEAREST_H
#define ARF_BASE_NEAREST_H

typedef struct arf_nearest {
    const char *typed;
    const char *name; /* of those that were offered; NULL: none is near */
    int apart;
} arf_nearest;

/* Nothing is offered yet. */
arf_nearest arf_nearest_to(const char *typed);

/* Apart are insertions, deletions and changes of one letter; more than a third of what was typed is
 * not near. Of equals the first stays. */
void arf_nearest_offer(arf_nearest *nearest, const char *name);

#endif
