/* SPDX-License-Identifier: Apache-2.0 */
/* The insides of the emulated machine, for the files of this folder. */
#ifndef TESTS_EMULATOR_STATE_H
#define TESTS_EMULATOR_STATE_H

#include "emulator/engine.h"
#include "emulator/fiber.h"
#include "emulator/machine.h"

enum { EMU_WARP = 32, EMU_BARRIERS = 16, EMU_PENDING = 128, EMU_NOTED = 64, EMU_COPIES = 16 };

typedef enum emu_thread_state {
    EMU_READY,
    EMU_BLOCKED, /* until `waits_on` wakes it */
    EMU_POLLING, /* until something changes in memory, or time passes */
    EMU_ENDED
} emu_thread_state;

typedef struct emu_block emu_block;
typedef struct emu_grid emu_grid;

/* Of a block's stores under way, by their place: those that a thread has made or seen through a
 * barrier, so that its release comes behind them. */
typedef struct emu_known {
    uint64_t bit[EMU_PENDING / 64];
} emu_known;

typedef struct emu_thread {
    emu_known known;
    emu_fiber *fiber;
    emu_block *block;
    emu_place place;
    emu_thread_state state;
    const void *waits_on;
    const char *doing;      /* for messages */
    uint64_t seen;          /* memory version at its last look */
    unsigned idle_looks;    /* looks since, that found nothing new in all of memory */
    unsigned cluster_phase; /* arrivals at the cluster's barrier so far */
} emu_thread;

typedef struct emu_barrier {
    int arrived;
    unsigned phase;
    int any, result;
    emu_known known, passed; /* of those that have arrived; of the last phase */
} emu_barrier;

typedef struct emu_warp {
    unsigned value[2][EMU_WARP]; /* by the parity of the exchange */
    emu_barrier exchange;
} emu_warp;

/* The blocks that share distributed shared memory and a barrier; of one block without a cluster. */
typedef struct emu_cluster {
    emu_block *block[16];
    int blocks, alive;
    int arrived;
    unsigned phase;
    int forgotten;
} emu_cluster;

/* A store under way. */
typedef struct emu_pending {
    char *at;
    unsigned bytes;
    unsigned char value[16];
} emu_pending;

/* What stands behind a word in shared memory by which threads of a block order themselves. */
typedef struct emu_noted {
    const void *at;
    emu_known known;
} emu_noted;

/* A bulk copy under way. */
typedef struct emu_copy {
    char *to;
    const char *from;
    unsigned bytes;
    unsigned long long *phase;
} emu_copy;

struct emu_block {
    emu_grid *grid;
    emu_cluster *cluster;
    int part; /* in the cluster */
    emu_thread *thread;
    int threads, ended, ready_count;
    int *ready;      /* threads that can go on */
    int runnable_at; /* place in the engine's table of blocks with such threads; -1: none */
    int alive_at;    /* place in the engine's table of blocks that have not ended */
    bool has_run, triggered;
    emu_barrier barrier[EMU_BARRIERS];
    emu_warp *warp;
    char *shared;                                  /* while another block's stands in the unit */
    int pending_count, pending_top, copies, notes; /* top: all behind it are free */
    emu_pending pending[EMU_PENDING];              /* bytes 0: free */
    emu_copy copy[EMU_COPIES];
    emu_noted noted[EMU_NOTED];
};

struct emu_grid {
    emu_launch launch;
    emu_grid *before, *next; /* on its stream */
    int stream;
    bool started, done;
    unsigned blocks, started_blocks, ended_blocks, triggered_blocks;
    unsigned *order;   /* in which its clusters start */
    emu_block **block; /* those that have started */
};

struct emu_engine {
    uint64_t random;
    emu_chaos chaos;
    uint64_t switches, now, version; /* version: of memory */
    uint64_t woken_version;          /* when the polling ones last looked */
    int idle;                        /* jumps of time since memory last changed */
    emu_grid *first[EMU_STREAMS], *last[EMU_STREAMS], *next_start[EMU_STREAMS];
    unsigned resident[EMU_STREAMS]; /* blocks on each GPU */
    emu_block **runnable, **alive;
    int runnable_count, alive_count, room;
    emu_thread **polling;
    int polling_count, polling_room;
    emu_block *current;
    emu_thread *running;
    char message[1024];
};

extern emu_engine *emu_running; /* the engine that runs; one at a time */

/* engine.c: for the thread that runs */
void emu_yield(emu_thread_state state, const void *waits_on, const char *doing);
void emu_maybe_yield(const char *doing);
void emu_wake(emu_block *block, const void *waits_on);
void emu_complain(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* shared.c */
size_t emu_shared_image(const emu_launch *launch);
void emu_shared_enter(emu_block *block);
void emu_shared_leave(emu_block *block); /* it has ended */
char *emu_shared_of(emu_block *block, const void *at);
/* NULL, or what stepped over the end of the dynamic part. */
const char *emu_shared_check(emu_block *block);

/* copies.c */
void emu_copy_complete(emu_block *block, int index);

/* memory.c */
void emu_know(emu_known *to, const emu_known *also);
emu_noted *emu_note(const void *at); /* of the block that runs */
void emu_poll(const void *at);       /* a look somewhere lets others go on */
void emu_deliver_known(emu_thread *thread);
void emu_deliver_all(emu_block *block);
bool emu_deliver_any(emu_engine *engine);

#endif
