/* SPDX-License-Identifier: Apache-2.0 */
/* Token counts as people write them: refused with a message, or an ascending set within range. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "tune/tokens.h"

static void check_order(const arf_tokens *tokens)
{
    static int order[ARF_MAX_POINTS];
    bool seen[ARF_MAX_POINTS] = {false};
    arf_tokens_coarse_first(tokens, order);
    for (int i = 0; i < tokens->count; i++) {
        MUST(order[i] >= 0 && order[i] < tokens->count && !seen[order[i]]);
        seen[order[i]] = true;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static arf_tokens tokens;
    arf_error error = ARF_ERROR_INIT;
    char *text = malloc(bytes + 1);
    MUST(text != NULL);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    tokens.count = -1;
    if (arf_tokens_parse(text, &tokens, &error) != ARFUSE_OK) {
        MUST(error.status == ARFUSE_USAGE && error.text[0] != '\0' && tokens.count == -1);
    } else {
        MUST(tokens.count >= 1 && tokens.count <= ARF_MAX_POINTS);
        for (int i = 0; i < tokens.count; i++)
            MUST(tokens.value[i] >= (i == 0 ? 1 : tokens.value[i - 1] + 1) &&
                 tokens.value[i] <= ARF_MAX_TOKENS);
        check_order(&tokens);
    }
    free(text);
    return 0;
}
