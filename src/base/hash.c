/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <string.h>

uint64_t arf_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * ARF_HASH_PRIME;
    return hash;
}

uint64_t arf_hash_text(uint64_t hash, const char *text)
{
    return arf_hash(hash, text, strlen(text) + 1);
}

uint64_t arf_hash_number(uint64_t hash, int64_t value)
{
    unsigned char byte[8];
    for (int i = 0; i < 8; i++)
        byte[i] = (unsigned char)((uint64_t)value >> (8 * i));
    return arf_hash(hash, byte, sizeof byte);
}
