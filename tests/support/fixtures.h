/* SPDX-License-Identifier: Apache-2.0 */
/* What unit tests need of tests/fixtures: where it is, whole files, the names in a folder. */
#ifndef TESTS_SUPPORT_FIXTURES_H
#define TESTS_SUPPORT_FIXTURES_H

#include <stddef.h>

/* Tests are started in the project's root folder. */
#define FIXTURES "tests/fixtures/"

/* The whole file, NUL-terminated; the caller frees it. Ends the program when it cannot be read. */
char *fixture_text(const char *path, size_t *bytes);

/* Calls `each` with folder/name for every name in the folder that ends in `end`, in order of name.
 * Returns how many there were. */
int fixture_each(const char *folder, const char *end, void (*each)(const char *path));

#endif
