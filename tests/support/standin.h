/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-ins for NVIDIA's libraries (tests/fakecuda, tests/fakenvml). */
#ifndef TESTS_SUPPORT_STANDIN_H
#define TESTS_SUPPORT_STANDIN_H

/*
 * Loads one, such as "fakecuda/libcuda.so.1", from beside the running program: what is loaded under
 * its name is what a later dlopen by that name gets, so call it before anything asks for the real
 * library. NULL: says why on stderr.
 */
void *standin_load(const char *library);

#endif
