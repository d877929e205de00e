/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static arfuse_status refuse(arf_error *error, const char *name, const char *value,
                            const char *expected)
{
    return arf_fail(error, ARFUSE_USAGE, "--%s '%s': expected %s", name, value, expected);
}

arfuse_status arf_take_integer(const char *name, const char *text, int64_t low, int64_t high,
                               const char *expected, int64_t *number, arf_error *error)
{
    if (arf_number_parse(text, low, high, number))
        return ARFUSE_OK;
    return refuse(error, name, text, expected);
}

/* A decimal fraction in (0, high]; strtod alone would take spaces, hexadecimal, inf and nan. */
arfuse_status arf_take_number(const char *name, const char *text, double high, const char *expected,
                              double *number, arf_error *error)
{
    char *end;
    if (text[0] == '\0' || text[strspn(text, "0123456789.")] != '\0')
        return refuse(error, name, text, expected);
    double value = strtod(text, &end);
    if (*end != '\0' || !isfinite(value) || value <= 0 || value > high)
        return refuse(error, name, text, expected);
    *number = value;
    return ARFUSE_OK;
}

/* Walks a comma list in a copy; NULL at its end. An empty part comes back as "". */
static char *next_part(char **rest)
{
    char *part = *rest;
    if (part == NULL)
        return NULL;
    *rest = strchr(part, ',');
    if (*rest != NULL)
        *(*rest)++ = '\0';
    return part;
}

#define LIST_TEXT 512
static arfuse_status copy_list(const char *name, const char *text, char copy[LIST_TEXT],
                               arf_error *error)
{
    if (strlen(text) >= LIST_TEXT)
        return refuse(error, name, "...", "a list of at most 511 characters");
    strcpy(copy, text);
    return ARFUSE_OK;
}

arfuse_status arf_take_sizes(const char *name, const char *text, int *count, int *value,
                             arf_error *error)
{
    const bool hidden = strcmp(name, "hidden") == 0;
    const char *expected = hidden ? "multiples of 8 from 8 to 65536"
                                  : "numbers from 1 to 64 (leave --topk out for a dense model)";
    char copy[LIST_TEXT], *rest = copy, *part;
    ARF_TRY(copy_list(name, text, copy, error));
    *count = 0;
    while ((part = next_part(&rest)) != NULL) {
        int64_t number;
        if (!arf_number_parse(part, hidden ? ARF_MIN_HIDDEN : 1,
                              hidden ? ARF_MAX_HIDDEN : ARF_MAX_TOP_K, &number) ||
            (hidden && number % 8 != 0))
            return refuse(error, name, text, expected);
        for (int i = 0; i < *count; i++)
            if (value[i] == number)
                return refuse(error, name, text, "each value once");
        if (*count == ARF_MAX_SHAPE_LIST)
            return refuse(error, name, text, "at most 16 values");
        value[(*count)++] = (int)number;
    }
    return ARFUSE_OK;
}

arfuse_status arf_take_patterns(const char *text, bool chosen[ARF_PATTERNS], arf_error *error)
{
    char copy[LIST_TEXT], *rest = copy, *part;
    ARF_TRY(copy_list("pattern", text, copy, error));
    memset(chosen, 0, ARF_PATTERNS * sizeof *chosen);
    while ((part = next_part(&rest)) != NULL) {
        arf_pattern pattern;
        if (!arf_pattern_parse(part, &pattern))
            return refuse(error, "pattern", text, "allreduce, finalize or both with a comma");
        if (chosen[pattern])
            return refuse(error, "pattern", text, "each pattern once");
        chosen[pattern] = true;
    }
    return ARFUSE_OK;
}

arfuse_status arf_take_protocols(const char *text, bool chosen[ARF_PROTOCOLS], arf_error *error)
{
    static const char expected[] =
        "a comma list of ll, bt, ht, unfused, separate; or one of ^ll, ^bt, ... to leave out";
    char copy[LIST_TEXT], *rest = copy, *part;
    ARF_TRY(copy_list("protocols", text, copy, error));
    const bool leave_out = text[0] == '^';
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        chosen[p] = leave_out;
    while ((part = next_part(&rest)) != NULL) {
        arf_protocol protocol;
        if ((part[0] == '^') != leave_out || !arf_protocol_parse(part + leave_out, &protocol))
            return refuse(error, "protocols", text, expected);
        if (chosen[protocol] != leave_out)
            return refuse(error, "protocols", text, "each protocol once");
        chosen[protocol] = !leave_out;
    }
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        if (chosen[p])
            return ARFUSE_OK;
    return refuse(error, "protocols", text, "at least one protocol to be left");
}

arfuse_status arf_take_pin(const char *text, arf_tune_options *options, arf_error *error)
{
    static const char expected[] = "PROTOCOL.KNOB=NUMBER or PROTOCOL.PATTERN.KNOB=NUMBER";
    char copy[LIST_TEXT];
    ARF_TRY(copy_list("set", text, copy, error));
    if (options->pins == ARF_MAX_PINS)
        return refuse(error, "set", text, "at most 32 of them");
    arf_pin pin = {.pattern = {true, true}};
    char *value = strchr(copy, '='), *first = strchr(copy, '.');
    if (value == NULL || first == NULL || first > value)
        return refuse(error, "set", text, expected);
    *value++ = '\0';
    *first++ = '\0';
    char *knob = strchr(first, '.');
    if (knob != NULL) {
        *knob++ = '\0';
        arf_pattern pattern;
        if (!arf_pattern_parse(first, &pattern))
            return refuse(error, "set", text, expected);
        pin.pattern[!pattern] = false;
    } else {
        knob = first;
    }
    if (!arf_protocol_parse(copy, &pin.protocol) || knob[0] == '\0' ||
        strlen(knob) >= sizeof pin.knob)
        return refuse(error, "set", text, expected);
    strcpy(pin.knob, knob);
    for (int i = 0; i < options->pins; i++)
        for (int p = 0; p < ARF_PATTERNS; p++)
            if (options->pin[i].protocol == pin.protocol && options->pin[i].pattern[p] &&
                pin.pattern[p] && strcmp(options->pin[i].knob, pin.knob) == 0)
                return arf_fail(error, ARFUSE_USAGE,
                                "--set '%s': %s of %s is pinned for %s already; a knob can be "
                                "pinned to one value only",
                                text, pin.knob, arf_protocol_name(pin.protocol),
                                arf_pattern_name((arf_pattern)p));
    int64_t number;
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        number = value[0] == 't';
    else if (!arf_number_parse(value, 0, INT32_MAX, &number))
        return refuse(error, "set", text, expected);
    pin.value = (int32_t)number;
    options->pin[options->pins++] = pin;
    return ARFUSE_OK;
}

arfuse_status arf_take_format(const char *text, arf_format *format, arf_error *error)
{
    static const char *const name[] = {"table", "csv", "jsonl", "md"};
    for (int i = 0; i < 4; i++)
        if (strcmp(text, name[i]) == 0) {
            *format = (arf_format)i;
            return ARFUSE_OK;
        }
    return refuse(error, "format", text, "table, csv, jsonl or md");
}

arfuse_status arf_take_device(const char *text, const char **device, arf_error *error)
{
    if (strcmp(text, "auto") != 0 && strcmp(text, "cuda") != 0 && strcmp(text, "host") != 0 &&
        (strncmp(text, "model:", 6) != 0 || text[6] == '\0'))
        return refuse(error, "device", text, "auto, cuda, host, model:default or model:FILE");
    *device = text;
    return ARFUSE_OK;
}

arfuse_status arf_take_path(const char *name, const char *text, const char **path, arf_error *error)
{
    if (text[0] == '\0')
        return refuse(error, name, text, "a path");
    *path = text;
    return ARFUSE_OK;
}

arfuse_status arf_take_ab(const char *text, char side[2][4096], arf_error *error)
{
    const char *comma = strchr(text, ',');
    if (comma == NULL || comma == text || comma[1] == '\0' || strchr(comma + 1, ',') != NULL ||
        strlen(text) >= 4096)
        return refuse(error, "ab", text, "two of a profile's path, default, unfused: A,B");
    snprintf(side[0], 4096, "%.*s", (int)(comma - text), text);
    snprintf(side[1], 4096, "%s", comma + 1);
    if (strcmp(side[0], side[1]) == 0)
        return refuse(error, "ab", text, "two different things");
    return ARFUSE_OK;
}
