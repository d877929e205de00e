/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people read on stderr: whole lines that begin with the program's name, one copy however many
 * ranks.
 *
 * What all ranks know, rank 0 says. What one rank alone knows (its own failure, a signal), the
 * first to claim the voice of its node says; whoever comes later is silent, so that a failure that
 * brings the other ranks down is told by its cause.
 */
#ifndef ARF_TUNE_VOICE_H
#define ARF_TUNE_VOICE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/log.h"

typedef enum arf_loudness { ARF_QUIET, ARF_NORMAL, ARF_VERBOSE } arf_loudness;

/* Before this, lines begin "arfuse-tune: ". Not copied. */
void arf_voice_name(const char *program);
/* Before this, the process has rank 0 and normal loudness. */
void arf_voice_set(int rank, arf_loudness loudness);
/* `claimed` is shared by the processes of a node and outlives every message; NULL: this process's
 * own again. */
void arf_voice_share(atomic_int *claimed);

/* An error that every rank knows; also claims the voice. Said at any loudness. */
void arf_voice_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* An error of this rank alone ("rank 3: ..."), if nobody has spoken yet. */
void arf_voice_error_here(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* It goes on, but not as asked. Said at any loudness. */
void arf_voice_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void arf_voice_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void arf_voice_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Verbose, from every rank with its number. */
void arf_voice_detail_here(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "1 rank", "2 ranks". */
#define ARF_PLURAL(count) ((count) == 1 ? "" : "s")

/* "lose 3.20 %", or "are not slower (14.00 % faster)" of a loss below zero. */
void arf_loss_text(double loss, char text[64]);

/* True for the first caller on this node. Safe in a signal handler. */
bool arf_voice_claim(void);
/* One write to stderr. Safe in a signal handler. */
void arf_voice_raw(const char *text, size_t bytes);

/* The log that devices get: warnings and worse are warnings, the rest is detail. */
arf_log arf_voice_log(void);

#endif
