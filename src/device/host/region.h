/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that peers reach: one region per rank, made as a memfd (default
 * containers have 64 MiB of /dev/shm, a memfd is not counted against that),
 * passed between processes by descriptor, mapped by all, closed at once.
 */
#ifndef ARF_DEVICE_HOST_REGION_H
#define ARF_DEVICE_HOST_REGION_H

#include <assert.h>
#include <stdatomic.h>

#include "device/device.h"
#include "device/numerics.h"

/* Mailboxes are read and written as 64-bit halves of packs, by several processes. */
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics must work between processes");
typedef _Atomic uint64_t arf_word;

/* Words that different ranks write stand apart: 128 bytes is a cache line or the pair of lines that
 * a prefetcher fetches, on every machine that arfuse meets. */
typedef struct arf_line {
    _Alignas(128) arf_word word;
} arf_line;

/* The head of a region. All zero at first. */
typedef struct arf_host_control {
    arf_line failure; /* the sticky word: 0, or the first culprit (wait.h); written by any rank */
    arf_line waiting; /* what this rank waits for, once that takes long (wait.c); 0: nothing */
    arf_line beat;    /* rises while it does: a rank that waits and does not beat is dead */
    arf_line barrier; /* how many barriers this rank has come to */

    /* Calls, or units of them, that have got so far; each family of protocols has its own, so that
     * none depends on another's having run. HT: written by the peer of that index. Unfused: by
     * this rank. */
    arf_line ht_ready[ARF_MAX_RANKS]; /* units that a source has pushed to this owner */
    arf_line ht_rows[ARF_MAX_RANKS];  /* units that an owner has pushed to this rank */
    arf_line contributed;             /* unfused calls whose contributions lie ready here */
    arf_line reduced;                 /* unfused calls whose own tokens lie ready here */

    /* Used by this rank alone; here because on a device that replays graphs they must be in its
     * memory. A call of no tokens moves none of them, on any rank: README.md says why. */
    uint64_t epoch[ARF_PROTOCOLS];
    uint64_t ht_units;
} arf_host_control;

/* Offsets in every region, in bytes; equal on all ranks. Strides are in elements. */
typedef struct arf_host_layout {
    int64_t ll;           /* [generation][source][capacity][H] */
    int64_t bt;           /* [generation][source][tokens or slices of this owner] */
    int64_t bt_rows;      /* [generation][capacity][H] */
    int64_t ht;           /* [source][tokens of this owner][H] */
    int64_t ht_rows;      /* [capacity][H] */
    int64_t unfused;      /* [capacity][H]: own contributions, read by owners */
    int64_t unfused_rows; /* [tokens of this owner][H]: sums, read by all */
    int64_t bt_source;    /* elements of one source in one generation of bt */
    int64_t bytes;        /* of the whole region, whole pages */
} arf_host_layout;

/* The layout for a spec. Fails when a size is out of range. */
arfuse_status arf_host_layout_of(const arf_space_spec *spec, arf_host_layout *layout,
                                 arf_error *error);

/* Memory for all ranks of the team, which share this machine, must be there: the kernel hands pages
 * of a memfd out until it starts to kill. Every process asks before any of them allocates. */
arfuse_status arf_host_memory_check(int64_t bytes, int ranks, arf_error *error);

/* Makes one region: a sealed memfd whose pages exist. Local. */
arfuse_status arf_host_region_create(const arf_host_layout *layout, int rank, int *descriptor,
                                     arf_error *error);
/* Maps a region of this layout; a descriptor of another size is refused. Local. */
arfuse_status arf_host_region_map(const arf_host_layout *layout, int rank, int descriptor,
                                  unsigned char **region, arf_error *error);
/* Fills the mailboxes whose payload is its own flag with sentinels. */
void arf_host_region_arm(const arf_host_layout *layout, unsigned char *region);
void arf_host_region_unmap(const arf_host_layout *layout, unsigned char *region);

/* Tokens that any one rank owns at most, of `tokens`. */
int64_t arf_host_owned_most(int64_t tokens, int tp_size);

#endif
