/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds files to one target, in a build without libFuzzer. Usage: NAME_replay FILE... */
#include "fuzz/fuzz.h"

static int feed(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        return 1;
    }
    long bytes = ftell(file);
    rewind(file);
    /* Exactly as long as the input, so that a checked build sees a read past its end. */
    uint8_t *data = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (bytes < 0 || data == NULL || fread(data, 1, (size_t)bytes, file) != (size_t)bytes) {
        perror(path);
        return 1;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, (size_t)bytes);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        fprintf(stderr, "# %s\n", argv[i]); /* the last one named before a crash is its cause */
        if (feed(argv[i]) != 0)
            return 1;
    }
    return argc > 1 ? 0 : 1;
}
