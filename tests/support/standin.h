/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-ins for NVIDIA's libraries (tests/fakecuda, tests/fakenvml). */
#ifndef TESTS_SUPPORT_STANDIN_H
#define TESTS_SUPPORT_STANDIN_H

#include <stdbool.h>

/*
 * Loads one, such as "fakecuda/libcuda.so.1", from beside the running program: what is loaded under
 * its name is what a later dlopen by that name gets, so call it before anything asks for the real
 * library. NULL: says why on stderr.
 */
void *standin_load(const char *library);

/* The driver's, for a program with a kernel cache of its own and no word from outside on its GPUs;
 * NULL as above. */
void *standin_driver(void);
/* Removes the cache: the teardown of the program's group of tests. */
int standin_clear(void **state);

/* True, with a skip printed in place of all tests, where there is no compiler for kernels. */
bool standin_no_compiler(void);

#endif
