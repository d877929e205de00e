/* SPDX-License-Identifier: Apache-2.0 */
#include "base/scan.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What may come next. */
typedef enum expect {
    VALUE,        /* after a colon, or after a comma in an array; and at the start */
    VALUE_OR_END, /* after '[' */
    NAME,         /* after a comma in an object */
    NAME_OR_END,  /* after '{' */
    COLON,        /* after a name */
    COMMA_OR_END, /* after a value inside something */
    END           /* after the outermost value */
} expect;

typedef struct scan {
    const char *text;
    size_t bytes, at;
    expect next;
    int depth, max_depth;
    char open[ARF_SCAN_MAX_DEPTH]; /* the brackets that are open, outermost first */
    arf_error *error;
} scan;

arfuse_status arf_scan_fail(const char *text, size_t offset, arf_error *error, const char *format,
                            ...)
{
    int line = 1, column = 1;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n')
            line++, column = 1;
        else if (((unsigned char)text[i] & 0xc0) != 0x80) /* not the middle of a character */
            column++;
    }
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return arf_fail(error, ARFUSE_PROFILE, "line %d, column %d: %s", line, column, message);
}

size_t arf_utf8_length(const char *text, size_t bytes)
{
    const unsigned char *byte = (const unsigned char *)text;
    if (bytes == 0)
        return 0;
    if (byte[0] < 0x80)
        return 1;
    size_t length = byte[0] >= 0xf0 ? 4 : byte[0] >= 0xe0 ? 3 : 2;
    if (byte[0] < 0xc2 || byte[0] > 0xf4 || length > bytes)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((byte[i] & 0xc0) != 0x80)
            return 0;
    /* The second byte tells overlong forms, surrogates and what lies beyond U+10FFFF. */
    if ((byte[0] == 0xe0 && byte[1] < 0xa0) || (byte[0] == 0xed && byte[1] > 0x9f) ||
        (byte[0] == 0xf0 && byte[1] < 0x90) || (byte[0] == 0xf4 && byte[1] > 0x8f))
        return 0;
    return length;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char peek(const scan *s, size_t ahead)
{
    return s->at + ahead < s->bytes ? s->text[s->at + ahead] : '\0';
}

static char innermost(const scan *s)
{
    return s->depth > 0 ? s->open[s->depth - 1] : '\0';
}

static arfuse_status fail_expected(const scan *s)
{
    const char *expected = "";
    switch (s->next) {
    case VALUE:
        expected = "a value";
        break;
    case VALUE_OR_END:
        expected = "a value or ']'";
        break;
    case NAME:
        expected = "a name in double quotes";
        break;
    case NAME_OR_END:
        expected = "a name in double quotes or '}'";
        break;
    case COLON:
        expected = "':'";
        break;
    case COMMA_OR_END:
        expected = innermost(s) == '{' ? "',' or '}'" : "',' or ']'";
        break;
    case END:
        return arf_scan_fail(s->text, s->at, s->error, "text after the document, expected its end");
    }
    if (s->at == s->bytes)
        return arf_scan_fail(s->text, s->at, s->error,
                             "the document has no end (a truncated file?), expected %s", expected);
    unsigned char c = (unsigned char)s->text[s->at];
    if (c > 0x20 && c < 0x7f)
        return arf_scan_fail(s->text, s->at, s->error, "'%c', expected %s", c, expected);
    return arf_scan_fail(s->text, s->at, s->error, "byte 0x%02x, expected %s", c, expected);
}

/* ---- tokens -------------------------------------------------------------------------------- */

/* The four digits of an escape; -1 when they are not hexadecimal. */
static int hex4(const scan *s, size_t ahead)
{
    int value = 0;
    for (size_t i = 0; i < 4; i++) {
        char c = peek(s, ahead + i);
        int digit = is_digit(c)              ? c - '0'
                    : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                    : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                             : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* At a backslash. */
static arfuse_status scan_escape(scan *s)
{
    char kind = peek(s, 1);
    if (kind != '\0' && strchr("\"\\/bfnrt", kind) != NULL) {
        s->at += 2;
        return ARFUSE_OK;
    }
    int code = kind == 'u' ? hex4(s, 2) : -1;
    if (code < 0)
        return arf_scan_fail(s->text, s->at, s->error, "not an escape of JSON");
    if (code == 0)
        return arf_scan_fail(s->text, s->at, s->error,
                             "an escaped NUL, expected a string without one");
    if (code < 0xd800 || code > 0xdfff) {
        s->at += 6;
        return ARFUSE_OK;
    }
    int low = code < 0xdc00 && peek(s, 6) == '\\' && peek(s, 7) == 'u' ? hex4(s, 8) : -1;
    if (low < 0xdc00 || low > 0xdfff)
        return arf_scan_fail(s->text, s->at, s->error, "half of a surrogate pair");
    s->at += 12;
    return ARFUSE_OK;
}

/* At the opening quote. */
static arfuse_status scan_string(scan *s)
{
    size_t start = s->at++;
    while (s->at < s->bytes) {
        unsigned char c = (unsigned char)s->text[s->at];
        if (c == '"') {
            s->at++;
            return ARFUSE_OK;
        }
        if (c < 0x20)
            return arf_scan_fail(s->text, s->at, s->error,
                                 "control character 0x%02x in a string, expected an escape", c);
        if (c == '\\') {
            ARF_TRY(scan_escape(s));
            continue;
        }
        size_t length = arf_utf8_length(s->text + s->at, s->bytes - s->at);
        if (length == 0)
            return arf_scan_fail(s->text, s->at, s->error, "byte 0x%02x is not valid UTF-8", c);
        s->at += length;
    }
    return arf_scan_fail(s->text, start, s->error,
                         "the string that begins here has no end (a truncated file?)");
}

static void skip_digits(scan *s)
{
    while (is_digit(peek(s, 0)))
        s->at++;
}

/* At a minus sign or a digit. */
static arfuse_status scan_number(scan *s)
{
    size_t start = s->at;
    bool integer = true, valid;
    if (peek(s, 0) == '-')
        s->at++;
    valid = is_digit(peek(s, 0)) && !(peek(s, 0) == '0' && is_digit(peek(s, 1)));
    skip_digits(s);
    if (valid && peek(s, 0) == '.') {
        s->at++;
        integer = false;
        valid = is_digit(peek(s, 0));
        skip_digits(s);
    }
    if (valid && (peek(s, 0) == 'e' || peek(s, 0) == 'E')) {
        s->at++;
        integer = false;
        if (peek(s, 0) == '+' || peek(s, 0) == '-')
            s->at++;
        valid = is_digit(peek(s, 0));
        skip_digits(s);
    }
    if (!valid)
        return arf_scan_fail(s->text, start, s->error, "not a number of JSON");
    size_t length = s->at - start;
    if (length > ARF_SCAN_NUMBER_CHARACTERS)
        return arf_scan_fail(s->text, start, s->error,
                             "a number of %zu characters, expected at most %d", length,
                             ARF_SCAN_NUMBER_CHARACTERS);
    char copy[ARF_SCAN_NUMBER_CHARACTERS + 1];
    memcpy(copy, s->text + start, length);
    copy[length] = '\0';
    double value = strtod(copy, NULL);
    if (!isfinite(value))
        return arf_scan_fail(s->text, start, s->error, "%s is beyond the range of a double", copy);
    if (integer && fabs(value) > (double)ARF_JSON_MAX_INTEGER)
        return arf_scan_fail(s->text, start, s->error,
                             "%s, expected an integer of at most 2^53 - 1 (a larger one is not "
                             "exact; write it as a string)",
                             copy);
    return ARFUSE_OK;
}

static arfuse_status scan_word(scan *s)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i]);
        if (s->bytes - s->at >= length && memcmp(s->text + s->at, words[i], length) == 0) {
            s->at += length;
            return ARFUSE_OK;
        }
    }
    return fail_expected(s);
}

/* ---- structure ----------------------------------------------------------------------------- */

static void value_ended(scan *s)
{
    s->next = s->depth > 0 ? COMMA_OR_END : END;
}

static arfuse_status scan_open(scan *s, char bracket)
{
    if (s->next != VALUE && s->next != VALUE_OR_END)
        return fail_expected(s);
    if (s->depth == s->max_depth)
        return arf_scan_fail(s->text, s->at, s->error,
                             "depth %d, expected at most %d nested arrays and objects",
                             s->depth + 1, s->max_depth);
    s->open[s->depth++] = bracket;
    s->next = bracket == '{' ? NAME_OR_END : VALUE_OR_END;
    s->at++;
    return ARFUSE_OK;
}

static arfuse_status scan_close(scan *s, char opened_by)
{
    bool empty = s->next == (opened_by == '{' ? NAME_OR_END : VALUE_OR_END);
    if (innermost(s) != opened_by || (!empty && s->next != COMMA_OR_END))
        return fail_expected(s);
    s->depth--;
    s->at++;
    value_ended(s);
    return ARFUSE_OK;
}

static arfuse_status scan_mark(scan *s, expect when, expect then)
{
    if (s->next != when)
        return fail_expected(s);
    s->next = then;
    s->at++;
    return ARFUSE_OK;
}

static arfuse_status scan_scalar(scan *s, char c)
{
    bool name = s->next == NAME || s->next == NAME_OR_END;
    if (name ? c != '"' : s->next != VALUE && s->next != VALUE_OR_END)
        return fail_expected(s);
    if (c == '"')
        ARF_TRY(scan_string(s));
    else if (c == '-' || is_digit(c))
        ARF_TRY(scan_number(s));
    else
        ARF_TRY(scan_word(s));
    if (name)
        s->next = COLON;
    else
        value_ended(s);
    return ARFUSE_OK;
}

static arfuse_status scan_token(scan *s)
{
    char c = s->text[s->at];
    switch (c) {
    case '{':
    case '[':
        return scan_open(s, c);
    case '}':
        return scan_close(s, '{');
    case ']':
        return scan_close(s, '[');
    case ',':
        return scan_mark(s, COMMA_OR_END, innermost(s) == '{' ? NAME : VALUE);
    case ':':
        return scan_mark(s, COLON, VALUE);
    default:
        return scan_scalar(s, c);
    }
}

static void skip_blank(scan *s)
{
    while (s->at < s->bytes && (s->text[s->at] == ' ' || s->text[s->at] == '\t' ||
                                s->text[s->at] == '\r' || s->text[s->at] == '\n'))
        s->at++;
}

arfuse_status arf_scan_json(const char *text, size_t bytes, int max_depth, arf_error *error)
{
    scan s = {.text = text, .bytes = bytes, .max_depth = max_depth, .error = error};
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return arf_scan_fail(text, 0, error, "a byte-order mark, expected plain UTF-8 without one");
    skip_blank(&s);
    if (s.at == bytes)
        return arf_scan_fail(text, 0, error, "the text is empty, expected a JSON document");
    for (; s.at < bytes; skip_blank(&s))
        ARF_TRY(scan_token(&s));
    return s.next == END ? ARFUSE_OK : fail_expected(&s);
}
