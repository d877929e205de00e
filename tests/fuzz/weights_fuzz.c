/* SPDX-License-Identifier: Apache-2.0 */
/* A weights file: refused with its name in the message, or ascending counts with finite weights. */
#include <math.h>
#include <string.h>

#include "fit/fit.h"
#include "fuzz/fuzz.h"
#include "rules/words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    arf_weights weights = {0};
    arf_error error = ARF_ERROR_INIT;
    if (arf_weights_parse("fuzz", (const char *)data, bytes, &weights, &error) != ARFUSE_OK) {
        MUST(error.status == ARFUSE_PROFILE && strncmp(error.text, "fuzz: ", 6) == 0);
        MUST(weights.count == 0 && weights.tokens == NULL && weights.weight == NULL);
        return 0;
    }
    MUST(weights.count >= 1);
    for (int i = 0; i < weights.count; i++) {
        MUST(weights.tokens[i] >= (i == 0 ? 0 : weights.tokens[i - 1] + 1) &&
             weights.tokens[i] <= ARF_MAX_TOKENS);
        MUST(weights.weight[i] > 0 && isfinite(weights.weight[i]));
    }
    arf_weights_free(&weights);
    return 0;
}
