/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ends the program from outside: SIGINT, SIGTERM, and a step that does not come to its end.
 * Each leaves by one message, whole sample lines and no profile. There is nothing to save at that
 * moment: every sample is on disk as soon as it exists.
 */
#ifndef ARF_TUNE_STOP_H
#define ARF_TUNE_STOP_H

#include "tune/group.h"

/* Installs the handlers; `group` outlives them. */
void arf_stop_install(const arf_group *group);
/* A launcher that ends this process no longer matters. */
void arf_stop_ignore(void);

/* What the message says about going on, such as "3 samples are in FILE; add --resume to go on".
 * Copied. */
void arf_stop_advice(const char *text);

/* Between these a signal waits: a file is being written. They nest. */
void arf_stop_hold(void);
void arf_stop_release(void);

/*
 * A step of all ranks, that is bounded: when it has not ended after `seconds`, the process says
 * `what` ("allreduce M=64 ll pack_step=8"), which ranks have done their part and which have not,
 * and the job ends with code 6. arf_watch_arrived: this rank has done its part and now waits for
 * the others.
 */
void arf_watch_begin(double seconds, const char *what);
void arf_watch_arrived(void);
void arf_watch_end(void);

#endif
