/* SPDX-License-Identifier: Apache-2.0 */
/* The growing text of base/json.h, into which documents are printed. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/locale.h"
#include "base/scan.h"

/* Room for `more` bytes and the closing NUL. */
static bool reserve(arf_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (text->room - text->bytes > more)
        return true;
    size_t room = text->room < 256 ? 256 : text->room;
    while (room - text->bytes <= more)
        room *= 2;
    char *data = realloc(text->data, room);
    if (data == NULL) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->room = room;
    return true;
}

static void append(arf_text *text, const char *data, size_t bytes)
{
    if (!reserve(text, bytes))
        return;
    memcpy(text->data + text->bytes, data, bytes);
    text->bytes += bytes;
    text->data[text->bytes] = '\0';
}

void arf_text_add(arf_text *text, const char *format, ...)
{
    arf_locale locale;
    if (!arf_locale_enter(&locale)) {
        text->failed = true;
        return;
    }
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int bytes = vsnprintf(NULL, 0, format, arguments);
    if (bytes < 0)
        text->failed = true;
    else if (reserve(text, (size_t)bytes)) {
        vsnprintf(text->data + text->bytes, (size_t)bytes + 1, format, again);
        text->bytes += (size_t)bytes;
    }
    va_end(again);
    va_end(arguments);
    arf_locale_leave(&locale);
}

void arf_text_string(arf_text *text, const char *string)
{
    append(text, "\"", 1);
    size_t left = strlen(string);
    while (left > 0) {
        unsigned char c = (unsigned char)*string;
        size_t length = arf_utf8_length(string, left);
        if (c == '"' || c == '\\') {
            append(text, "\\", 1);
            append(text, string, 1);
        } else if (c < 0x20) {
            char escape[8];
            snprintf(escape, sizeof escape, "\\u%04x", c);
            append(text, escape, 6);
        } else if (length == 0) {
            /* A message cut in the middle of a character: what we write must stay readable. */
            append(text, "?", 1);
            length = 1;
        } else {
            append(text, string, length);
        }
        string += length;
        left -= length;
    }
    append(text, "\"", 1);
}

/* The fewest digits that read back equal: 15 always print as typed, 17 always suffice. */
static void shortest(double number, char *digits, size_t size)
{
    int precision = 15;
    do
        snprintf(digits, size, "%.*g", precision, number);
    while (strtod(digits, NULL) != number && ++precision <= 17);
    /* The reader refuses long integers as inexact; this one is meant as the double that it is. */
    if (fabs(number) > (double)ARF_JSON_MAX_INTEGER && strpbrk(digits, "e.") == NULL)
        strncat(digits, "e0", size - strlen(digits) - 1);
}

static void fixed(double number, int decimals, char *digits, size_t size)
{
    snprintf(digits, size, "%.*f", decimals, number);
    if (strchr(digits, '.') == NULL)
        return;
    size_t length = strlen(digits);
    while (digits[length - 1] == '0')
        length--;
    if (digits[length - 1] == '.')
        length--;
    digits[length] = '\0';
}

void arf_text_number(arf_text *text, double number, int decimals)
{
    /* DBL_MAX has 309 digits before the point. */
    char digits[400];
    arf_locale locale;
    if (!isfinite(number) || decimals > 17 || !arf_locale_enter(&locale)) {
        text->failed = true;
        return;
    }
    if (decimals < 0)
        shortest(number, digits, sizeof digits);
    else
        fixed(number, decimals, digits, sizeof digits);
    arf_locale_leave(&locale);
    const char *shown = strcmp(digits, "-0") == 0 ? "0" : digits;
    append(text, shown, strlen(shown));
}

void arf_text_free(arf_text *text)
{
    free(text->data);
    *text = (arf_text){0};
}
