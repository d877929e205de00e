/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C locale for the calling thread, for as long as numbers are read or
 * printed. A host program may have asked for a locale with a decimal comma, and
 * both the C library and cJSON follow it. Only this thread changes, and only
 * between the two calls: setlocale, which changes the whole process, is never
 * called.
 */
#ifndef ARF_BASE_LOCALE_H
#define ARF_BASE_LOCALE_H

#include <locale.h>
#include <stdbool.h>

typedef struct arf_locale {
    locale_t own, before;
} arf_locale;

/* False when memory ran out; then nothing was changed. */
static inline bool arf_locale_enter(arf_locale *state)
{
    state->own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (state->own == (locale_t)0)
        return false;
    state->before = uselocale(state->own);
    return true;
}

static inline void arf_locale_leave(const arf_locale *state)
{
    uselocale(state->before);
    freelocale(state->own);
}

#endif
