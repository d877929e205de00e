/* SPDX-License-Identifier: Apache-2.0 */
#include "support/fixtures.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *fixture_text(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    char *text = malloc((4 << 20) + 2);
    if (file == NULL || text == NULL) {
        fprintf(stderr, "%s: cannot be read\n", path);
        abort();
    }
    *bytes = fread(text, 1, (4 << 20) + 1, file);
    text[*bytes] = '\0';
    fclose(file);
    return text;
}

int fixture_each(const char *folder, const char *end, void (*each)(const char *path))
{
    struct dirent **entry;
    int count = scandir(folder, &entry, NULL, alphasort), called = 0;
    for (int i = 0; i < count; i++) {
        size_t length = strlen(entry[i]->d_name), tail = strlen(end);
        if (length > tail && strcmp(entry[i]->d_name + length - tail, end) == 0) {
            char path[512];
            snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
            each(path);
            called++;
        }
        free(entry[i]);
    }
    if (count >= 0)
        free(entry);
    return called;
}
