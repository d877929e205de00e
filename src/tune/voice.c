/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/voice.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static atomic_int own_claim;
static atomic_int *claimed = &own_claim;
static const char *own_name = "arfuse-tune";
static int own_rank;
static arf_loudness own_loudness = ARF_NORMAL;

void arf_voice_name(const char *program)
{
    own_name = program;
}

void arf_voice_set(int rank, arf_loudness loudness)
{
    own_rank = rank;
    own_loudness = loudness;
}

void arf_voice_share(atomic_int *shared)
{
    claimed = shared != NULL ? shared : &own_claim;
}

bool arf_voice_claim(void)
{
    return atomic_exchange(claimed, 1) == 0;
}

void arf_voice_raw(const char *text, size_t bytes)
{
    /* A closed stderr is nobody's to repair, and no reason to change the exit code. */
    while (bytes > 0) {
        ssize_t written = write(STDERR_FILENO, text, bytes);
        if (written <= 0)
            return;
        text += written;
        bytes -= (size_t)written;
    }
}

/* Room for an error text with a prefix; longer lines are cut, never broken. */
#define LINE_BYTES 2048

static void line(bool with_rank, const char *format, va_list arguments)
{
    char text[LINE_BYTES];
    int used = snprintf(text, sizeof text, "%s: ", own_name);
    if (with_rank)
        used += snprintf(text + used, sizeof text - (size_t)used, "rank %d: ", own_rank);
    int more = vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
    if (more > 0)
        used += more;
    if (used > LINE_BYTES - 1)
        used = LINE_BYTES - 1;
    text[used++] = '\n';
    arf_voice_raw(text, (size_t)used);
}

#define SAY(with_rank)                      \
    do {                                    \
        va_list arguments;                  \
        va_start(arguments, format);        \
        line(with_rank, format, arguments); \
        va_end(arguments);                  \
    } while (0)

void arf_voice_error(const char *format, ...)
{
    if (own_rank != 0)
        return;
    arf_voice_claim();
    SAY(false);
}

void arf_voice_error_here(const char *format, ...)
{
    if (arf_voice_claim())
        SAY(true);
}

void arf_voice_warn(const char *format, ...)
{
    if (own_rank == 0)
        SAY(false);
}

void arf_voice_note(const char *format, ...)
{
    if (own_rank == 0 && own_loudness >= ARF_NORMAL)
        SAY(false);
}

void arf_voice_detail(const char *format, ...)
{
    if (own_rank == 0 && own_loudness >= ARF_VERBOSE)
        SAY(false);
}

void arf_voice_detail_here(const char *format, ...)
{
    if (own_loudness >= ARF_VERBOSE)
        SAY(true);
}

static void sink(void *context, arfuse_log_level level, const char *text)
{
    (void)context;
    if (level <= ARFUSE_LOG_WARNING)
        arf_voice_warn("%s", text);
    else
        arf_voice_detail("%s", text);
}

arf_log arf_voice_log(void)
{
    return (arf_log){sink, NULL,
                     own_loudness >= ARF_VERBOSE ? ARFUSE_LOG_DEBUG : ARFUSE_LOG_WARNING};
}

void arf_loss_text(double loss, char text[64])
{
    if (loss >= 0)
        snprintf(text, 64, "lose %.2f %%", loss * 100);
    else
        snprintf(text, 64, "are not slower (%.2f %% faster)", -loss * 100);
}
