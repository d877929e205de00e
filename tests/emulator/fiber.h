/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: stacks that take turns on one OS thread, by hand. */
#ifndef TESTS_EMULATOR_FIBER_H
#define TESTS_EMULATOR_FIBER_H

#include <stddef.h>

typedef struct emu_fiber emu_fiber;

/* `body(argument)` runs at the first emu_fiber_resume and must end with emu_fiber_pause, not
 * return. Stacks are kept and used again. */
emu_fiber *emu_fiber_start(void (*body)(void *argument), void *argument);
void emu_fiber_resume(emu_fiber *fiber); /* returns when it pauses */
void emu_fiber_pause(emu_fiber *fiber);  /* inside it */
void emu_fiber_drop(emu_fiber *fiber);
void emu_fibers_free(void); /* those that were dropped */

#endif
