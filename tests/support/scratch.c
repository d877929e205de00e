/* SPDX-License-Identifier: Apache-2.0 */
#include "support/scratch.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

void scratch_make(char path[SCRATCH_PATH])
{
    const char *root = getenv("TMPDIR");
    int length = snprintf(path, SCRATCH_PATH, "%s/arfuse-XXXXXX",
                          root != NULL && root[0] != '\0' ? root : "/tmp");
    if (length >= SCRATCH_PATH || mkdtemp(path) == NULL) {
        perror(path);
        abort();
    }
}

static int take_away(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

void scratch_remove(const char *path)
{
    if (nftw(path, take_away, 16, FTW_DEPTH | FTW_PHYS) != 0)
        perror(path);
}
