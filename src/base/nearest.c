/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include <string.h>

enum { LONGEST = 32 };

static int distance(const char *a, const char *b)
{
    int row[LONGEST + 1];
    size_t length = strlen(b);
    if (length > LONGEST || strlen(a) > LONGEST)
        return LONGEST + 1;
    for (size_t j = 0; j <= length; j++)
        row[j] = (int)j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= length; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            int gap = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < gap ? change : gap;
        }
    }
    return row[length];
}

arf_nearest arf_nearest_to(const char *typed)
{
    return (arf_nearest){.typed = typed, .apart = (int)strlen(typed) / 3 + 1};
}

void arf_nearest_offer(arf_nearest *nearest, const char *name)
{
    const int apart = distance(nearest->typed, name);
    if (apart >= nearest->apart)
        return;
    nearest->apart = apart;
    nearest->name = name;
}
