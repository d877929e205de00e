/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/tokens.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"

/* The longest number that can be in range has seven digits; longer ones are not even looked at. */
#define NUMBER_DIGITS 18

bool arf_number_parse(const char *text, int64_t low, int64_t high, int64_t *number)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > NUMBER_DIGITS || text[digits] != '\0')
        return false;
    if (text[0] == '0' && digits > 1)
        return false;
    int64_t value = 0;
    for (size_t i = 0; i < digits; i++)
        value = value * 10 + (text[i] - '0');
    if (value < low || value > high)
        return false;
    *number = value;
    return true;
}

bool arf_tokens_add(arf_tokens *tokens, int64_t value)
{
    int at = tokens->count;
    while (at > 0 && tokens->value[at - 1] > value)
        at--;
    if (at > 0 && tokens->value[at - 1] == value)
        return true;
    if (tokens->count == ARF_MAX_POINTS)
        return false;
    memmove(&tokens->value[at + 1], &tokens->value[at],
            (size_t)(tokens->count - at) * sizeof tokens->value[0]);
    tokens->value[at] = value;
    tokens->count++;
    return true;
}

static arfuse_status wrong(arf_error *error, const char *part, const char *why)
{
    return arf_fail(error, ARFUSE_USAGE,
                    "'%s': %s; write token counts from 1 to %d as 1,2,48 or 1-8 or 16-128+16 or "
                    "1-8192*2",
                    part, why, ARF_MAX_TOKENS);
}

static arfuse_status full(arf_error *error, const char *part)
{
    return arf_fail(error, ARFUSE_USAGE, "'%s': more than %d token counts; use a larger step", part,
                    ARF_MAX_POINTS);
}

/* One part between commas: NUMBER, or FIRST-LAST with +STEP or *FACTOR behind it. */
static arfuse_status add_part(char *part, arf_tokens *tokens, arf_error *error)
{
    char shown[64];
    snprintf(shown, sizeof shown, "%.63s", part);
    if (part[0] == '\0')
        return wrong(error, shown, "an empty part");
    char *last_text = strchr(part, '-');
    int64_t first, last, step = 1;
    bool factor = false;
    if (last_text == NULL) {
        if (!arf_number_parse(part, 1, ARF_MAX_TOKENS, &first))
            return wrong(error, shown, "not a token count");
        return arf_tokens_add(tokens, first) ? ARFUSE_OK : full(error, shown);
    }
    *last_text++ = '\0';
    char *step_text = strpbrk(last_text, "+*");
    if (step_text != NULL) {
        factor = *step_text == '*';
        *step_text++ = '\0';
        if (!arf_number_parse(step_text, factor ? 2 : 1, ARF_MAX_TOKENS, &step))
            return wrong(error, shown,
                         factor ? "the factor is not a number from 2 up"
                                : "the step is not a number from 1 up");
    }
    if (!arf_number_parse(part, 1, ARF_MAX_TOKENS, &first) ||
        !arf_number_parse(last_text, 1, ARF_MAX_TOKENS, &last))
        return wrong(error, shown, "an end of the range is not a token count");
    if (first > last)
        return wrong(error, shown, "the range ends below its start");
    for (int64_t value = first; value < last; value = factor ? value * step : value + step)
        if (!arf_tokens_add(tokens, value))
            return full(error, shown);
    return arf_tokens_add(tokens, last) ? ARFUSE_OK : full(error, shown);
}

/* True when one of the parts in the first `bytes` of `text` is this one. Ranges may share counts, a
 * part that is written twice is a slip. */
static bool is_part_of(const char *text, const char *part, ptrdiff_t bytes)
{
    const size_t length = strlen(part);
    for (const char *at = text; at < text + bytes; at += strcspn(at, ",") + 1)
        if (length > 0 && strcspn(at, ",") == length && strncmp(at, part, length) == 0)
            return true;
    return false;
}

arfuse_status arf_tokens_parse(const char *text, arf_tokens *tokens, arf_error *error)
{
    char copy[4096];
    if (strlen(text) >= sizeof copy)
        return arf_fail(error, ARFUSE_USAGE, "a list of token counts longer than %zu characters",
                        sizeof copy - 1);
    strcpy(copy, text);
    arf_tokens parsed = {0};
    char *rest = copy;
    while (rest != NULL) {
        char *part = rest;
        rest = strchr(rest, ',');
        if (rest != NULL)
            *rest++ = '\0';
        if (is_part_of(text, part, part - copy))
            return arf_fail(error, ARFUSE_USAGE, "'%.63s' stands there twice; write each once",
                            part);
        ARF_TRY(add_part(part, &parsed, error));
    }
    *tokens = parsed;
    return ARFUSE_OK;
}

/*
 * Breadth first over halves: the ends, then the middle, then the middles of both halves, and so on.
 * A queue of gaps; each gap is visited once, so the order is a permutation.
 */
void arf_tokens_coarse_first(const arf_tokens *tokens, int order[ARF_MAX_POINTS])
{
    struct {
        int low, high;
    } gap[ARF_MAX_POINTS];
    int placed = 0, head = 0, tail = 0;
    if (tokens->count == 0)
        return;
    order[placed++] = 0;
    if (tokens->count > 1)
        order[placed++] = tokens->count - 1;
    gap[tail].low = 0;
    gap[tail++].high = tokens->count - 1;
    while (head < tail) {
        int low = gap[head].low, high = gap[head].high;
        head++;
        if (high - low < 2)
            continue;
        int middle = low + (high - low) / 2;
        order[placed++] = middle;
        if (middle - low > 1) {
            gap[tail].low = low;
            gap[tail++].high = middle;
        }
        if (high - middle > 1) {
            gap[tail].low = middle;
            gap[tail++].high = high;
        }
    }
}

void arf_tokens_mix(uint64_t seed, int64_t most, int64_t *tokens, int count)
{
    uint64_t state = arf_mix(seed);
    for (int i = 0; i < count; i++) {
        const double unit = arf_random_unit(arf_random_next(&state));
        const int64_t drawn = (int64_t)exp(unit * log((double)most + 1));
        tokens[i] = drawn < 1 ? 1 : drawn > most ? most : drawn;
    }
}
