/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FNV-1a, 64 bits: equality between ranks, cache keys and kernel-set digests.
 * Not a security measure: a digest match proves nothing against an attacker.
 */
#ifndef ARF_BASE_HASH_H
#define ARF_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Offset basis and prime as published by Fowler, Noll and Vo for 64 bits. */
#define ARF_HASH_INIT UINT64_C(0xcbf29ce484222325)
#define ARF_HASH_PRIME UINT64_C(0x100000001b3)

uint64_t arf_hash(uint64_t hash, const void *data, size_t bytes);
/* A string with its closing NUL, so that "ab","c" and "a","bc" differ. */
uint64_t arf_hash_text(uint64_t hash, const char *text);
/* A number as eight little-endian bytes: equal on every host. */
uint64_t arf_hash_number(uint64_t hash, int64_t value);

#endif
