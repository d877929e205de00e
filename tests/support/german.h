/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_GERMAN_H
#define TESTS_SUPPORT_GERMAN_H

#include <stdbool.h>

/* Sets a German locale, which writes decimals with a comma; one made for the test, since slim
 * systems have none. False, in the C locale: it cannot be made here. */
bool german_on(void);
void german_off(void); /* back to the C locale */

#endif
