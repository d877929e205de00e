/* SPDX-License-Identifier: Apache-2.0 */
/* Folders that tests write to: under TMPDIR, which tests/run makes for each program and finds empty
 * behind it. */
#ifndef TESTS_SUPPORT_SCRATCH_H
#define TESTS_SUPPORT_SCRATCH_H

#define SCRATCH_PATH 96

/* Makes a new folder; aborts when it cannot. */
void scratch_make(char path[SCRATCH_PATH]);
/* Removes it with all that is in it. */
void scratch_remove(const char *path);

#endif
