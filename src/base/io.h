/* SPDX-License-Identifier: Apache-2.0 */
/* Files, whole or not at all: bounded reading, atomic replacing, whole appended lines. */
#ifndef ARF_BASE_IO_H
#define ARF_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/*
 * Reads a regular file of at most `limit` bytes. *text gets one extra closing NUL that *bytes does
 * not count; the caller frees it. A folder, a device or a larger file is refused by name, before
 * anything is read from it. ARFUSE_PROFILE for every reason that lies with the file, a missing one
 * too, whatever it was to hold; ARFUSE_FAILURE where memory or reading fails.
 */
arfuse_status arf_read_file(const char *path, size_t limit, char **text, size_t *bytes,
                            arf_error *error);

/*
 * For the start of a program: /dev/null takes the place of each closed one of stdin, stdout and
 * stderr, so that no file opened later gets its number and with that what is printed. It is opened
 * the wrong way round: printing to a closed stream still fails.
 */
arfuse_status arf_hold_standard(arf_error *error);

/* ARFUSE_OK where nothing stands at `path`, or a regular file (*there); else it says what does. */
arfuse_status arf_may_replace(const char *path, bool *there, arf_error *error);
/* The same with links refused as well, by ARFUSE_FAILURE: /dev/stdout is one, often to a file. */
arfuse_status arf_plain_or_absent(const char *path, arf_error *error);

/*
 * Replaces (or creates) `path` with exactly these bytes: a temporary file of a unique name in the
 * same folder, written, synced, given the mode that the umask allows, renamed, the folder synced.
 * On failure the old file stands as it was and no temporary is left. It replaces what is no regular
 * file too: ask one of the two above before. No descriptor below 3 is written to.
 */
arfuse_status arf_write_file(const char *path, const void *data, size_t bytes, arf_error *error);

/*
 * Appends one line (without its newline) to an open descriptor in one write and syncs it. A write
 * that stops half way is undone by truncating, so that the file holds whole lines only.
 */
arfuse_status arf_append_line(int descriptor, const char *path, const char *line, arf_error *error);

/* Makes a folder and its parents, as `mkdir -p`. */
arfuse_status arf_make_folder(const char *path, arf_error *error);

/* Joins folder and name into `path`; fails when the result does not fit. */
arfuse_status arf_join_path(char *path, size_t size, const char *folder, const char *name,
                            arf_error *error);

#endif
