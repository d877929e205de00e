/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What host and kernels agree on: how a kernel is compiled, launched and
 * addressed. C99 for the host (src/device/cuda includes it) and clean for NVRTC
 * without any toolkit header: plain integer types and pointers only.
 *
 * COMPILING. One kernel a file: kernels/NAME.cu holds `extern "C" arf_NAME`.
 * A compilation is (file, macros); what the table below does not list for a
 * kernel is a launch argument and needs no compilation of its own.
 *
 *   options, always:  --gpu-architecture=sm_NN (plain)  --std=c++17  --fmad=false
 *                     --ftz=false  --prec-div=true  --prec-sqrt=true
 *                     --device-as-default-execution-space
 *   headers:          every embedded file whose name does not end in .cu
 *   macros, always:   ARF_H ARF_R ARF_LOCAL_RANKS ARF_K ARF_NORM ARF_RESIDUAL ARF_SHARED
 *                     ARF_MAX_THREADS: the smallest of 128, 256, 512, 1024 that is at least the
 *                     threads of the launch; for ht exactly those
 *
 *   kernel           further macros                                      knobs they come from
 *   ll_publish       ARF_FINALIZE ARF_ELEMENTS [ARF_PREFETCH] (publish_)elements_per_thread
 *   ll_collect       ARF_RANK_LANES                                      rank_lanes
 *   ll_single        ARF_FINALIZE ARF_RANK_LANES [ARF_PREFETCH]          the form with one kernel
 *   bt_publish       ARF_FINALIZE ARF_SLICES ARF_ELEMENTS [ARF_PREFETCH] (allreduce: ARF_ELEMENTS
 *                    is 8, ARF_VECTORS the packs of a thread)
 *   bt_reduce        ARF_SLICES
 *   bt_norm          ARF_SLICES
 *   bt_single        ARF_FINALIZE ARF_SLICES [ARF_PREFETCH]              the form with one kernel
 *   ht               ARF_FINALIZE ARF_THREADS ARF_VECTORS        consumer_threads and so on; the
 *                    ARF_STAGES ARF_NORM_GROUPS ARF_NORM_ROWS    reduction warps are what is left
 *   finalize         ARF_ELEMENTS ARF_PREFETCH                   separate, unfused finalize
 *   unfused_scatter  -
 *   unfused_reduce   -
 *   unfused_norm     -
 *   library_reduce   -
 *   library_norm     ARF_SUMMED                                          -
 *   team_barrier     -       (timing: see there)
 *
 * LAUNCHING. Every kernel has the same three parameters, by value:
 *
 *   arf_NAME(arf_call call, arf_team_view team, arf_operand_table operands)
 *
 * kernelParams = {&call, &team, &operands}. The kernel was compiled with the true ARF_R and
 * ARF_LOCAL_RANKS, so the driver copies only the front of the host's larger arrays.
 * Never launch for tokens = 0: no mailbox then moves on any rank, which is what keeps them in step.
 * (An empty call that advanced an epoch would wait for nobody, and two of them in a row would let a
 * fast rank write a generation that a slow one still reads.)
 *
 * GRID. x = rows * LOCAL_RANKS, local rank fastest; y = the parts of a row; z = 1. Rows loop: a
 * grid with fewer rows than there is work is legal everywhere (each block then takes every
 * (grid.x / LOCAL_RANKS)-th row). With P = H / 8 packs a token, L = local ranks, M = tokens,
 * E = ARF_ELEMENTS, T = threads, c = cluster size:
 *
 *   kernel           grid.x / L                        grid.y            cluster    dynamic shared
 *   ll_publish       M                                 ceil(H / (E T))   -          0
 *   ll_collect       M                                 c                 (1,c,1)    ARF_ROW_SHARED
 *   ll_single        min(M, co-resident rows)          c                 (1,c,1)    ARF_ROW_SHARED
 *   bt_publish       ceil(M P / (T V)), V = packs a    1                 -          0
 *                    thread; finalize ceil(M H / (E T))
 *   bt_reduce        max(1, ceil(O / T))               1                 -          0
 *   bt_norm          M                                 c                 (1,c,1)    ARF_ROW_SHARED
 *   bt_single        min(M, co-resident rows)          c                 (1,c,1)    ARF_ROW_SHARED
 *   ht               any that is co-resident           1                 -          ARF_HT_SHARED
 *   finalize         M                                 ceil(H / (E T))   -          0
 *   unfused_scatter  as bt_publish with V = 1          1                 -          0
 *   unfused_reduce   as bt_reduce                      1                 -          0
 *   unfused_norm     M                                 1                 -          ARF_ROW_SHARED
 *   library_reduce   as unfused_reduce                 1                 -          0
 *   library_norm     M                                 1                 -          ARF_ROW_SHARED
 *
 * O = packs that a rank owns, of the local rank that owns most: ceil(M / R) * P with whole tokens,
 * M * (P / R) with slices (which need R to divide P). Threads are a multiple of 32, up to 1024; of
 * lanes too. One cluster serves one row; c = 1 needs no cluster attribute.
 * Where rms_norm is 0 no block waits for another one; any c is still legal.
 *
 * ORDER OF KERNELS on the stream, each launched with programmatic stream serialisation where the
 * plan's enable_pdl says so (every kernel waits for its grid dependency, and triggers after that
 * wait, so waiting is transitive):
 *
 *   ll        ll_publish, ll_collect        or  ll_single (a grid that is co-resident together with
 *             one block an SM of the next kernel; launched cooperatively when L > 1)
 *   bt        bt_publish, bt_reduce, bt_norm    or  bt_single (as ll_single)
 *   ht        ht (co-resident as ll_single, and cooperative when L > 1)
 *   unfused   [finalize, then with operands.input = the contribution scratch]
 *             unfused_scatter, unfused_reduce, unfused_norm
 *   separate  finalize, then with input = the contribution scratch the allreduce pattern's plan
 *
 * MEMORY. Each rank has one segment that all peers map; team.peer[r] is where the segment of team
 * rank r stands in this process. An arf_control stands at its start; the mailboxes follow at the
 * offsets in team (multiples of 256). Row-major, in packs of 16 bytes; C = the protocol's capacity,
 * c = ceil(C / R), g = generation = epoch % ARF_MAILBOX_GENERATIONS, s = source rank, w = P / R:
 *
 *   ll             [g][C][s][P]      bytes 3 C R H 2
 *   bt_contribution[g][c][s][P]      slices: [g][C][s][w]; the larger is 3 c R H 2
 *   bt_row         [g][C][P]         bytes 3 C H 2
 *   ht_contribution[c][s][P]         bytes c R H 2
 *   ht_row         [C][P]            bytes C H 2
 *   ht_ready       [c][s]            words, 8 c R bytes: contributions that have arrived
 *   ht_arrived     [C][D]            words, 8 C D bytes, D = min(P, ARF_MOST_SHARDS): shards of the
 *                                    pre-norm row that have; the first call.shards of D are used
 *   unfused_contribution [c][s][P]   bytes c R H 2
 *   unfused_row    [C][P]            bytes C H 2
 *
 * Before first use: arf_control, ht_ready and ht_arrived all zero, ll, bt_contribution and bt_row
 * filled with the 16-bit value ARF_SENTINEL_BITS; then a device synchronise, then a team barrier.
 */
#ifndef ARF_KERNELS_ARGUMENTS_H
#define ARF_KERNELS_ARGUMENTS_H

typedef unsigned long long arf_word;

#define ARF_MAILBOX_GENERATIONS 3
#define ARF_SENTINEL_BITS 0x8000 /* bf16 -0.0: "not arrived" */
#define ARF_MOST_SHARDS 64       /* ht: slices of a token, the most that the knob allows */

#ifdef __CUDACC__ /* compiling a kernel: what a compilation does not name has a default */
#ifndef ARF_ELEMENTS
#define ARF_ELEMENTS 8 /* bf16 values a thread publishes: 1, 2, 4 or 8 */
#endif
#ifndef ARF_VECTORS
#define ARF_VECTORS 1 /* packs of a thread, up to 8 of them loaded together */
#endif
#ifndef ARF_PREFETCH
#define ARF_PREFETCH ARF_K /* expert rows in flight; above K or 16 it means those */
#endif
#ifndef ARF_RANK_LANES
#define ARF_RANK_LANES 1 /* lanes that share a pack: 1, 2, 4 or 8 */
#endif
#ifndef ARF_SLICES
#define ARF_SLICES                                                                 \
    0 /* BT: 0 the owner of token m is m mod R; 1 rank r owns packs r P/R.. of all \
       */
#endif
#ifndef ARF_FINALIZE
#define ARF_FINALIZE 0 /* the pattern */
#endif
#ifndef ARF_SUMMED
#define ARF_SUMMED 0 /* library_norm: 1: rows are a library's sums, without the residual */
#endif
#ifndef ARF_MAX_THREADS
#define ARF_MAX_THREADS 1024
#endif
#ifndef ARF_THREADS
#define ARF_THREADS 32 /* ht: threads that finalize and normalise, the block's first ones */
#endif
#ifndef ARF_STAGES
#define ARF_STAGES 2 /* ht: tiles of the ring */
#endif
#ifndef ARF_NORM_GROUPS
#define ARF_NORM_GROUPS 1 /* ht: groups of consumer threads that normalise rows of their own */
#endif
#ifndef ARF_NORM_ROWS
#define ARF_NORM_ROWS 1 /* ht: rows that such a group has at a time */
#endif
#else /* the host's arrays have room for any team */
#define ARF_VIEW_RANKS 72
#define ARF_VIEW_LOCAL_RANKS 72
#endif
#ifndef ARF_VIEW_RANKS
#define ARF_VIEW_RANKS ARF_R
#define ARF_VIEW_LOCAL_RANKS ARF_LOCAL_RANKS
#endif

/* Dynamic shared memory of the kernels that finish rows: every block keeps its packs of the
 * pre-norm row. parts: cluster size; lanes: ARF_RANK_LANES (1 but for LL). */
#define ARF_ROW_SHARED(hidden, parts, threads, lanes)                              \
    (16u * ((unsigned)(threads) / (lanes)) *                                       \
     ((((unsigned)(hidden) / 8) + (parts) * ((unsigned)(threads) / (lanes)) - 1) / \
      ((parts) * ((unsigned)(threads) / (lanes)))))

/* Dynamic shared memory of ht: the ring of tiles, two barriers and a note a stage, a count a
 * consumer warp, and the sums of squares of 32 packs each; whole packs. */
#define ARF_HT_SHARED(hidden, threads, vectors, stages, groups, rows)                   \
    (16u * (unsigned)(stages) * (unsigned)(threads) * (unsigned)(vectors) +             \
     (24u * (unsigned)(stages) + 4u * 32u +                                             \
      4u * (unsigned)(groups) * (unsigned)(rows) * ((unsigned)(hidden) / 256u) + 15u) / \
         16u * 16u)

/* ---- parameters ----------------------------------------------------------------------------- */

/* Bits of arf_call.flags. */
#define ARF_WEIGHTS_ARE_FP32 1u /* routing weights: fp32, else bf16 */
#define ARF_SHARED_EARLY 2u     /* knob load_shared_expert_before_pdl */
#define ARF_TRIGGER_EARLY 4u    /* knob release_before_store: trigger, then gather and store */
#define ARF_TRIGGER_NEVER 16u   /* what waits for peers: the next kernel starts behind its end */

typedef struct arf_call {
    long long tokens; /* M >= 1, at most the capacity of the protocol */
    float epsilon, weight_bias, routed_scale;
    unsigned flags;
    int shards;   /* ht: slices of a token, at most its packs */
    int reducers; /* ht: blocks of a local rank that reduce; 0: all */
} arf_call;

/* Device pointers of one local rank; NULL where the shape's switches say so (arfuse.h). */
typedef struct arf_operand_view {
    const void *input;
    const void *routed, *weights;
    const int *indices;
    const void *shared, *residual, *gamma;
    void *residual_out, *norm_out;
    void *contribution; /* finalize kernel: where it writes, [M,H] */
    float *inverse_rms; /* [M], for tests; NULL in production */
} arf_operand_view;

typedef struct arf_operand_table {
    arf_operand_view of[ARF_VIEW_LOCAL_RANKS];
} arf_operand_table;

/* Constant over the life of a space. */
typedef struct arf_team_view {
    int first_rank; /* team rank of local rank 0 */
    int reserved;
    arf_word wait_limit_ns; /* of every wait, by the global timer; twice that where rows of an
                               owner are awaited, who may wait itself; 0: none */
    arf_word *mirror;       /* host-mapped, device address: ARF_MIRROR_WORDS words a process, zero
                               at creation; see below */
    /* Byte offsets of the mailboxes in a segment, and capacities in tokens. 0 where unused. */
    arf_word ll, bt_contribution, bt_row, unfused_contribution, unfused_row;
    arf_word ht_contribution, ht_row, ht_ready, ht_arrived;
    long long ll_capacity, bt_capacity, unfused_capacity;
    char *peer[ARF_VIEW_RANKS]; /* segment of team rank r, own ones included */
} arf_team_view;

/* ---- the control block at the start of every segment ---------------------------------------- */

/*
 * A mailbox's call counter. All kernels of a call read `next`; the blocks of its last kernel count
 * themselves in `ended` when they have, and the last of them sets next = next + 1.
 */
typedef struct arf_epoch {
    arf_word next;
    unsigned ended;
    unsigned step[2]; /* unfused: blocks that have finished its first and second kernel */
    unsigned pad[27];
} arf_epoch; /* 128 bytes: no two share a line */

typedef struct arf_control {
    /*
     * The sticky word: 0, or the first culprit, by compare-and-swap from any rank. Once it is set,
     * every wait on this rank ends at once and its rows are filled with NaN.
     */
    arf_word culprit;
    arf_word library_calls; /* that have begun: those whose collectives are a library's */
    arf_word pad[14];
    arf_epoch ll, bt, ht, unfused, barrier;
    /* Counters, written by rank s alone: calls whose data of that step are all there. */
    arf_word scattered[72], gathered[72], reached[72];
} arf_control;

/* The room that the control block takes at the start of a segment. */
#define ARF_CONTROL_BYTES 4096u

/* The culprit word: valid bit, rank 7 bits, stage 4, token 20, epoch 32 (its low half). */
#define ARF_CULPRIT(rank, stage, token, epoch)                            \
    (1ull << 63 | (arf_word)(rank) << 56 | (arf_word)((stage)&15) << 52 | \
     ((arf_word)(token)&0xfffffull) << 32 | ((arf_word)(epoch)&0xffffffffull))
#define ARF_CULPRIT_RANK(word) ((int)((word) >> 56 & 0x7f))
#define ARF_CULPRIT_STAGE(word) ((int)((word) >> 52 & 15))
#define ARF_CULPRIT_TOKEN(word) ((long long)((word) >> 32 & 0xfffff))
#define ARF_CULPRIT_EPOCH(word) ((word)&0xffffffffull)

/* Stages, as arfuse_culprit.stage reports them. The culprit is the rank whose data were missing. */
#define ARF_STAGE_LL_COLLECT 1     /* its contribution */
#define ARF_STAGE_BT_REDUCE 2      /* its contribution, at the owner */
#define ARF_STAGE_BT_NORM 3        /* the pre-norm row (or slice) that it owns */
#define ARF_STAGE_UNFUSED_REDUCE 4 /* its contributions, all tokens (token 0) */
#define ARF_STAGE_UNFUSED_NORM 5   /* the rows that it owns, all of them (token 0) */
#define ARF_STAGE_BARRIER 6        /* its arrival at a team barrier */
#define ARF_STAGE_LAUNCH 7         /* written by a host whose launch failed half-way */
#define ARF_STAGE_HT_REDUCE 8      /* its contribution, at the owner */
#define ARF_STAGE_HT_NORM 9        /* a shard of the pre-norm row that it owns */

#define ARF_STAGE_LIBRARY 10 /* a library's collective, ended by the host: rank is who says so */

/* Words of arf_team_view.mirror. */
#define ARF_MIRROR_CULPRIT 0 /* the first culprit */
#define ARF_MIRROR_BEGUN 1   /* calls of a library: how many have begun (library_mark), */
#define ARF_MIRROR_ENDED 2   /* and how many of these have ended (library_norm, library_mark) */
#define ARF_MIRROR_WORDS 3

/* ---- team_barrier: time stamps -------------------------------------------------------------- */

/*
 * arf_team_barrier: grid (L), one block of 32 x ceil(R / 32) threads a local rank; all blocks are
 * co-resident. Waits until every team rank is there, then writes the global timer (ns) to
 * operands.of[l].contribution, a word of 8 bytes, when that is not NULL. Flag ARF_STAMP_ONLY: no
 * barrier, the stamp alone. call.tokens is not used. Timing a graph: team_barrier, N calls,
 * team_barrier with ARF_STAMP_ONLY; (end - begin) / N. The global timer ticks once in 32 ns to
 * 1 us by GPU, so N calls must last far longer than that.
 */
#define ARF_STAMP_ONLY 8u
/* arf_library_mark: one block. */
#define ARF_MARK_ENDED 32u

/* ---- order: before and behind the calls of a workspace that asks for it -----------------------
 */

/* arf_order(arf_order_mark mark): one block; one thread of it works. No other parameter, no macro
 * but ARF_MAX_THREADS. Launched without dependent launch: it waits for what stands before it. */
typedef struct arf_order_mark {
    arf_word *busy;   /* device memory, one word a GPU and process: who is in a call; 0: nobody */
    arf_word *broken; /* host-mapped: 0, or the first break, holder << 32 | intruder */
    arf_word number;  /* of the workspace, below 2^32, not 0 */
    int enter;        /* 1 before the call, 0 behind it */
} arf_order_mark;

/* ---- filler: what happens between calls (policy `decode`) -------------------------------------
 */

/*
 * arf_filler(arf_fill work): any grid. Reads `flood` (more than the L2 holds), then rewrites every
 * range in place with its own contents. No other parameter, no macro but ARF_MAX_THREADS.
 */
typedef struct arf_fill_range {
    void *at;       /* 16-byte aligned */
    arf_word packs; /* of 16 bytes */
} arf_fill_range;

typedef struct arf_fill {
    void *flood;
    arf_word flood_packs;
    const arf_fill_range *range; /* device memory */
    int ranges;
} arf_fill;

#endif
