/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arfuse: fused all-reduce for tensor-parallel decoding, routed by measurement.
 *
 * The tail of a tensor-parallel layer is: finalize the MoE (weighted gather of
 * top-k expert rows), add the shared expert, all-reduce over the ranks, add the
 * residual, RMSNorm. This library runs it in one call, by the protocol that a
 * routing profile (written by arfuse-tune) names for the call's token count.
 *
 * This header goes from simple to advanced; stop reading where you have enough:
 *
 *     1  statuses, errors, log
 *     2  a team and a workspace: what is made once
 *     3  the two operations: what is called once a layer
 *     4  which route, and why
 *     5  sites and deferred work: how an engine joins producer and consumer
 *     6  counters, histogram, checks: what one turns on to look
 *
 * In short:
 *
 *     arfuse_options options = ARFUSE_OPTIONS_INIT;
 *     options.hidden_size = 6144;
 *     options.top_k = 10;
 *     options.capacity = 8192;
 *     arfuse_workspace_create(&bootstrap, &options, &workspace, &error);
 *
 *     arfuse_call call = ARFUSE_CALL_INIT;
 *     call.tokens = 17;
 *     arfuse_allreduce(workspace, &call, &operands, &error);
 *
 *     arfuse_workspace_destroy(&workspace, &error);
 *
 * BITS. The result has the same bits on every rank, for every route, token count,
 * chunk and device: engines may route by speed alone and stay batch-invariant.
 * THREADS. A workspace serves one thread at a time; different workspaces are
 * independent objects. There is no global state.
 * STREAMS. A workspace works on one stream, the one of its first call; a call on
 * another is refused until arfuse_workspace_use_stream says that the work on the
 * old one comes first. On a device without streams (host) it is NULL, and any other is refused.
 * COLLECTIVE. create and every launch are collective: all ranks make the same
 * calls with the same arguments in the same order. Calls of all workspaces that
 * share a GPU run one after another, in the same order on every rank.
 * OWNERSHIP. The caller owns streams, tensors and strings passed in; strings
 * are copied at creation. The workspace owns everything it allocates.
 * LAUNCH PATH. arfuse_allreduce, arfuse_finalize, arfuse_defer and arfuse_consume
 * allocate nothing, take no lock, read no environment, write no log, make no
 * system call of their own, and may be captured in a CUDA graph; checked mode and
 * shadow checks (part 6), which are off unless asked for, are the exception, and a profiler that
 * listens to NVTX ranges does in them what it likes.
 * STRUCTS. Each begins with its own size, set by its initialiser (ARFUSE_..._INIT):
 * start from that, so that a later library knows what yours has.
 *
 * This header is C99 and C++, and needs no CUDA header.
 */
#ifndef ARFUSE_H
#define ARFUSE_H

#include <stddef.h>
#include <stdint.h>

#define ARFUSE_VERSION_MAJOR 0
#define ARFUSE_VERSION_MINOR 1
#define ARFUSE_VERSION_PATCH 0

#if defined(__GNUC__)
#define ARFUSE_API __attribute__((visibility("default")))
#else
#define ARFUSE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1. statuses, errors, log =============================================================== */

/* 0 is success. 1 to 6 are also the exit codes of arfuse-tune and arfuse-profile. */
typedef enum arfuse_status {
    ARFUSE_OK = 0,
    ARFUSE_FAILURE = 1,        /* anything without a better name: out of memory, a system call */
    ARFUSE_USAGE = 2,          /* an argument is wrong; nothing was done */
    ARFUSE_PROFILE = 3,        /* a profile is invalid, or not usable here */
    ARFUSE_HARDWARE = 4,       /* no suitable device, driver, link or memory */
    ARFUSE_WRONG_RESULT = 5,   /* a check of results failed */
    ARFUSE_TIMEOUT = 6,        /* a wait on a peer expired; the workspace has failed for good */
    ARFUSE_DISAGREE = 16,      /* ranks passed different arguments, profiles or shapes */
    ARFUSE_FAILED = 17,        /* this workspace failed earlier; destroy it and make a new one */
    ARFUSE_NOT_SERVED = 18,    /* no fused route, and the caller's policy asked for an error */
    ARFUSE_IN_USE = 19,        /* something still depends on what was to be destroyed or reused */
    ARFUSE_NOT_SUPPORTED = 20, /* a combination that this build or device does not have */
    ARFUSE_OWED = 21           /* a deferred reduction was dropped: nobody consumed it */
} arfuse_status;

/* A short fixed phrase for a status ("a wait on a peer expired"); never NULL. */
ARFUSE_API const char *arfuse_status_text(arfuse_status status);

/* The message of a failed call: what was wrong, where, what was expected, what to do. */
typedef struct arfuse_error {
    arfuse_status status;
    char text[1024];
} arfuse_error;
/* clang-format off */
#define ARFUSE_ERROR_INIT {ARFUSE_OK, {0}}
/* clang-format on */

ARFUSE_API const char *arfuse_version(void); /* "0.1.0" */

typedef enum arfuse_log_level {
    ARFUSE_LOG_ERROR = 1,   /* the operation was given up */
    ARFUSE_LOG_WARNING = 2, /* it goes on, but not as the user asked or would expect */
    ARFUSE_LOG_INFO = 3,    /* one line per workspace: what was chosen, from where */
    ARFUSE_LOG_DEBUG = 4
} arfuse_log_level;

/* `line` has no newline and is valid during the call only. Never called on the launch path. */
typedef void (*arfuse_log_fn)(void *context, arfuse_log_level level, const char *line);

/* ==== 2. a team and a workspace ============================================================== */

/*
 * How the processes of a team find each other. rank and size count processes; the callbacks return
 * 0 on success. Only these processes take part: pass a subgroup's callbacks for a subgroup. Used
 * during create alone (and by each call in checked mode), on the calling thread. A process that is
 * the whole team may leave the callbacks NULL, or pass no bootstrap at all.
 */
typedef struct arfuse_bootstrap {
    size_t struct_size;
    void *context;
    int rank, size;
    /* Gathers `bytes` bytes of every process into receive[size * bytes], in rank order. */
    int (*allgather)(void *context, const void *send, void *receive, size_t bytes);
    int (*barrier)(void *context);
} arfuse_bootstrap;
/* clang-format off */
#define ARFUSE_BOOTSTRAP_INIT {sizeof(arfuse_bootstrap), NULL, 0, 1, NULL, NULL}
/* clang-format on */

typedef enum arfuse_pattern {
    ARFUSE_ALLREDUCE = 0, /* all-reduce + residual + RMSNorm */
    ARFUSE_FINALIZE = 1   /* MoE finalize + shared expert + the same */
} arfuse_pattern;

/* What a call does when no fused route serves it: above the last route or the capacity, where the
 * profile itself says unfused, at a site that is switched off. Whatever it is, the reduction is
 * done or an error is returned; the bits are the same. */
typedef enum arfuse_fallback {
    ARFUSE_FALLBACK_AUTO = 0,    /* of a call: as the workspace; of a workspace: unfused */
    ARFUSE_FALLBACK_UNFUSED = 1, /* run the whole operation unfused */
    ARFUSE_FALLBACK_SERVED = 2,  /* above the last route: cut the call into pieces that the last
                                    fused route serves; otherwise unfused */
    ARFUSE_FALLBACK_ERROR = 3    /* ARFUSE_NOT_SERVED, nothing enqueued */
} arfuse_fallback;

/* Where a pattern's routes come from. Precedence is call > option > environment > profile >
 * default: the environment is asked only for a pattern that has ARFUSE_ROUTES_AUTO. */
typedef enum arfuse_routes {
    ARFUSE_ROUTES_AUTO = 0,    /* environment ARFUSE_ROUTES, else profile */
    ARFUSE_ROUTES_PROFILE = 1, /* the profile; without one, default */
    ARFUSE_ROUTES_DEFAULT = 2, /* by rules, unmeasured */
    ARFUSE_ROUTES_UNFUSED = 3  /* none */
} arfuse_routes;

#define ARFUSE_MAX_SITES 64
#define ARFUSE_MAX_DEFERRED 256

typedef struct arfuse_options {
    size_t struct_size;

    /* Shape. tp_size is the sum of local_ranks over the processes. */
    int hidden_size; /* H: a positive multiple of 8, at most 65536 */
    int top_k;       /* K: 1..64; 0: a dense model, arfuse_finalize is refused */
    int rms_norm, residual, shared_expert; /* 0 or 1: what the operations contain */
    int local_ranks;  /* team ranks that this process hosts, in order; 1 in production */
    int64_t capacity; /* the most tokens of one fused call; more tokens run unfused in chunks */

    /* Device: "auto", "cuda", "host" or "model:FILE"; NULL is "auto". */
    const char *device;
    int cuda_ordinal; /* -1: the current CUDA device of the calling thread */

    /* Profile. A named file that cannot be used is an error; an absent one is one warning. */
    const char *profile;      /* a file; NULL: environment ARFUSE_PROFILE, else search */
    const char *profile_path; /* folders joined by ':'; NULL: ARFUSE_PROFILE_PATH, user, system */
    int strict;               /* 1: an absent profile is an error too */
    arfuse_routes routes[2];  /* by arfuse_pattern */
    arfuse_fallback fallback;

    double wait_limit_seconds; /* of every wait on a peer; 0: none; default 300, since ranks of a
                                  starting engine may be minutes apart */

    /* Part 5. Names of [A-Za-z0-9._-], 1 to 31 characters; a call names one by its index. */
    const char *const *sites;
    int site_count; /* at most ARFUSE_MAX_SITES */
    int deferred;   /* reductions that may be owed at one time, at most ARFUSE_MAX_DEFERRED */

    /* Part 6. */
    int checked;      /* 1: ranks compare every call; -1: environment ARFUSE_CHECKED, else 0 */
    int shadow_every; /* every n-th call is run unfused too and compared; 0: none; -1: environment
                         ARFUSE_SHADOW_EVERY, else 0 */

    arfuse_log_fn log; /* NULL: silent */
    void *log_context;
    arfuse_log_level log_level;

    /* What messages call this workspace, 1 to 47 bytes, equal on all ranks; NULL: "h6144_k10_c8192"
     * by hidden size, top_k and capacity. */
    const char *label;
    int check_order; /* part 6; 1: calls that break the ordering rule are named; -1: environment
                        ARFUSE_CHECK_ORDER, else 0 */

    /*
     * CUDA; equal on all ranks. 0: a process that has to share a GPU with another one of the team
     * is ARFUSE_HARDWARE. 1: it may, for trying things out. Under CUDA MPS such processes run side
     * by side, and their kernels must find room at the same time: start each of n with
     * CUDA_MPS_ACTIVE_THREAD_PERCENTAGE at most 100 / n. Limits come in whole pairs of SMs: what
     * does not fit together, or is not alike, is ARFUSE_HARDWARE, which says what would do. Without
     * MPS the GPU gives each a turn of some milliseconds: results are right, every call waits for
     * turns. Local ranks of one process share a GPU in any case.
     */
    int gpu_sharing;
} arfuse_options;
/* clang-format off */
#define ARFUSE_OPTIONS_INIT                                                                        \
    {sizeof(arfuse_options), 0, 0, 1, 1, 1, 1, 0, NULL, -1, NULL, NULL, 0,                         \
     {ARFUSE_ROUTES_AUTO, ARFUSE_ROUTES_AUTO}, ARFUSE_FALLBACK_AUTO, 300.0, NULL, 0, 16, -1, -1,   \
     NULL, NULL, ARFUSE_LOG_WARNING, NULL, -1, 0}
/* clang-format on */

/*
 * The environment that creation reads (nothing reads it later): ARFUSE_PROFILE,
 * ARFUSE_PROFILE_PATH, ARFUSE_ROUTES ("default", or a pattern each: "allreduce=profile,
 * finalize=unfused"), ARFUSE_SITES_OFF ("moe_out,final_norm"), ARFUSE_CHECKED, ARFUSE_SHADOW_EVERY,
 * ARFUSE_CHECK_ORDER, and ARFUSE_SOCKET_FOLDER (where processes of one node without a common
 * network namespace meet). A variable that begins with ARFUSE_ and is none that arfuse knows is one
 * warning with the nearest.
 */
typedef struct arfuse_workspace arfuse_workspace;

/*
 * Makes the workspace of one (shape, team, capacity): buffers, kernels, routes of both patterns.
 * Collective, all or none: every rank gets the same status. Everything that can be refused is
 * refused here, so that a launch has nothing left to find out. *workspace is set only on success.
 */
ARFUSE_API arfuse_status arfuse_workspace_create(const arfuse_bootstrap *bootstrap,
                                                 const arfuse_options *options,
                                                 arfuse_workspace **workspace, arfuse_error *error);

/*
 * Not collective, and needs neither the bootstrap nor MPI any more. Work in flight on the stream
 * must have ended. While a captured graph of its calls exists, or anything that was instantiated
 * from one, this is ARFUSE_IN_USE and nothing is done. Else *workspace becomes NULL, so that
 * destroying twice is fine. ARFUSE_OWED names deferred reductions that nobody consumed; the
 * workspace is gone all the same.
 */
ARFUSE_API arfuse_status arfuse_workspace_destroy(arfuse_workspace **workspace,
                                                  arfuse_error *error);

/* Who failed first, when a wait on a peer expired. */
typedef struct arfuse_culprit {
    size_t struct_size;
    int rank;  /* team rank that did not arrive; -1: NCCL waited for it, and does not tell */
    int stage; /* device-specific step of the protocol */
    int64_t token;
    uint64_t epoch; /* which call of that mailbox, counted from 0 */
} arfuse_culprit;

/*
 * One host read, no synchronisation: ARFUSE_OK, or ARFUSE_TIMEOUT with the first culprit. Poll it
 * once a decode step. `culprit` may be NULL. With options.check_order also ARFUSE_IN_USE, when
 * calls of this workspace and another overlapped on the GPU; the next call says which other.
 */
ARFUSE_API arfuse_status arfuse_workspace_status(const arfuse_workspace *workspace,
                                                 arfuse_culprit *culprit);

typedef struct CUstream_st *arfuse_stream; /* a CUstream or cudaStream_t; NULL on other devices */

/* From now on calls come on this stream. The caller has ordered it behind the work of the old one
 * (an event, a synchronise, or a capture that forks from it), on every rank. */
ARFUSE_API arfuse_status arfuse_workspace_use_stream(arfuse_workspace *workspace,
                                                     arfuse_stream stream, arfuse_error *error);

typedef struct arfuse_info {
    size_t struct_size;
    int tp_size, first_rank, local_ranks; /* of the team; of this process */
    char device[64];                      /* "NVIDIA B300", "host" */
    int routes[2];                        /* by pattern: how many there are */
    int64_t fused_tokens[2]; /* by pattern: the most tokens of one call that runs fused and whole */
} arfuse_info;
/* clang-format off */
#define ARFUSE_INFO_INIT {sizeof(arfuse_info), 0, 0, 0, {0}, {0, 0}, {0, 0}}
/* clang-format on */
ARFUSE_API arfuse_status arfuse_workspace_info(const arfuse_workspace *workspace,
                                               arfuse_info *info);

/* ==== 3. the two operations ================================================================== */

/* Routing weights of the finalize pattern. */
typedef enum arfuse_weights { ARFUSE_WEIGHTS_BF16 = 0, ARFUSE_WEIGHTS_FP32 = 1 } arfuse_weights;

#define ARFUSE_SITE_NONE (-1)
#define ARFUSE_ROUTE_AUTO (-1)    /* by the token count */
#define ARFUSE_ROUTE_UNFUSED (-2) /* by none */

/* What is equal on all ranks in one call. */
typedef struct arfuse_call {
    size_t struct_size;
    int64_t tokens; /* M >= 0; 0 keeps all ranks in step and touches no tensor */
    arfuse_stream stream;
    float epsilon;      /* of RMSNorm, inside the square root */
    float weight_bias;  /* norm multiplies by gamma + weight_bias: 0 or 1 in practice */
    float routed_scale; /* finalize: factor of every routing weight */

    int site;                 /* index into options.sites, or ARFUSE_SITE_NONE */
    int route;                /* a route of the pattern by its index, whatever M: a longer call is
                                 cut; or ARFUSE_ROUTE_AUTO, ARFUSE_ROUTE_UNFUSED */
    arfuse_fallback fallback; /* AUTO: as the workspace */
    /* CUDA: start without overlapping the kernel before it (no programmatic dependent launch). */
    int plain_launch;
    /*
     * finalize, CUDA: may read `shared` before the kernel that was enqueued just before this call
     * has ended. HAZARD: only when that kernel is not the one that writes `shared`, nor one that
     * runs beside it; a wrong 1 gives wrong numbers now and then, and nothing can see it.
     */
    int early_shared;
} arfuse_call;
/* clang-format off */
#define ARFUSE_CALL_INIT                                                                           \
    {sizeof(arfuse_call), 0, NULL, 1e-6f, 0.0f, 1.0f, ARFUSE_SITE_NONE, ARFUSE_ROUTE_AUTO,         \
     ARFUSE_FALLBACK_AUTO, 0, 0}
/* clang-format on */

/*
 * The tensors of one local rank. Contiguous, 16-byte aligned (weights and indices: their own size);
 * bf16 unless said otherwise. M tokens, hidden size H, top-k K.
 *
 * residual_out may be the same tensor as residual, and norm_out as input; any other overlap of an
 * output with a tensor of the same rank is refused. Between the ranks of one call overlaps are not
 * looked for: that no rank's output overlaps another rank's tensors is the caller's duty. residual,
 * gamma, epsilon and weight_bias must be bit-equal on all ranks.
 */
typedef struct arfuse_operands {
    size_t struct_size; /* also the distance between the elements of an array of them */

    const void *input; /* allreduce: [M,H], this rank's partial sum */

    const void *routed;  /* finalize: [routed_rows,H], this rank's expert outputs */
    int64_t routed_rows; /* rows of `routed` */
    const void *weights; /* finalize: [M,K] */
    arfuse_weights weights_type;
    const int32_t *indices; /* finalize: int32 [M,K] (a flat array of M*K, token by token, is the
                               same thing), rows of `routed`; -1: dropped slot, never read. Any
                               other negative one, and one at or above routed_rows, is the caller's
                               bug, which only checked mode looks for */
    /* finalize: [M,H] this rank's partial sum of the shared expert: it is summed over the ranks.
     * One that is complete already is passed by rank 0, and zeros by the others. NULL when the
     * workspace has shared_expert 0. */
    const void *shared;

    const void *residual; /* [M,H]; NULL when the workspace has residual 0 */
    const void *gamma;    /* [H]; NULL when the workspace has rms_norm 0 */
    void *residual_out;   /* [M,H] the pre-norm row; may be NULL when rms_norm is 1 */
    void *norm_out;       /* [M,H]; NULL when the workspace has rms_norm 0 */
} arfuse_operands;
/* clang-format off */
#define ARFUSE_OPERANDS_INIT                                                                       \
    {sizeof(arfuse_operands), NULL, NULL, 0, NULL, ARFUSE_WEIGHTS_BF16, NULL, NULL, NULL, NULL,    \
     NULL, NULL}
/* clang-format on */

/*
 * Each enqueues the whole operation on call->stream, or returns an error with nothing enqueued: a
 * reduction is never skipped. `operands` has one element per local rank. M is 0 to 2^20 (1048576):
 * above the last route it runs unfused, in chunks. `error` may be NULL.
 *
 * Should a later chunk of a call fail, the call cannot be taken back: the workspace has failed
 * then, and says ARFUSE_FAILED from there on; peers are told as when a wait expires
 * (ARFUSE_TIMEOUT, this rank the culprit, rows not finished NaN).
 */
ARFUSE_API arfuse_status arfuse_allreduce(arfuse_workspace *workspace, const arfuse_call *call,
                                          const arfuse_operands *operands, arfuse_error *error);
ARFUSE_API arfuse_status arfuse_finalize(arfuse_workspace *workspace, const arfuse_call *call,
                                         const arfuse_operands *operands, arfuse_error *error);

/* ==== 4. which route, and why ================================================================ */

/*
 * 1 when this call would run by a fused route, 0 when not (or the arguments are wrong). Looks at
 * tokens, site, route and fallback of the call. The call itself asks the same function, so gate and
 * call cannot disagree; and whatever the answer, the call does the whole reduction.
 */
ARFUSE_API int arfuse_would_fuse(const arfuse_workspace *workspace, arfuse_pattern pattern,
                                 const arfuse_call *call);

/*
 * Says in words which route serves this call, from which file, and why. Writes at most `size` bytes
 * with the closing NUL; returns ARFUSE_USAGE when they did not suffice.
 */
ARFUSE_API arfuse_status arfuse_explain(const arfuse_workspace *workspace, arfuse_pattern pattern,
                                        const arfuse_call *call, char *text, size_t size);

/* ==== 5. sites and deferred work ============================================================= */

/*
 * A site is a named place of use in a model: "attn_out", "moe_out", "final_norm". A site that is
 * switched off declines: arfuse_would_fuse says 0 there, so that its producer skips nothing, and
 * calls at it run unfused (or are refused, as the fallback says). All ranks switch alike, between
 * the same calls. On at creation, unless ARFUSE_SITES_OFF names it.
 */
ARFUSE_API arfuse_status arfuse_site_switch(arfuse_workspace *workspace, int site, int on,
                                            arfuse_error *error);

/*
 * Deferred work. A producer (the MoE, the attention's output projection) that leaves its reduction
 * to the norm behind it hands over what it has, and gets a ticket:
 *
 *     if (arfuse_would_fuse(workspace, ARFUSE_FINALIZE, &call))
 *         arfuse_defer(workspace, ARFUSE_FINALIZE, &call, &made, "layer 3 moe", &ticket, &error);
 *
 * The consumer has residual, gamma and outputs, and runs the whole operation:
 *
 *     arfuse_consume(workspace, ticket, &call, &wanted, &error);
 *
 * A ticket is consumed exactly once, or materialised when no norm follows after all. Tickets live
 * in a fixed table of options.deferred places; nothing is allocated.
 */
typedef struct arfuse_ticket {
    const struct arfuse_workspace *workspace;
    uint64_t number; /* from 1; 0: none */
} arfuse_ticket;
/* clang-format off */
#define ARFUSE_TICKET_INIT {NULL, 0}
/* clang-format on */

/*
 * Takes the producer's half of the operands (input; or routed, routed_rows, weights, weights_type,
 * indices, shared): the pointers are borrowed until the ticket is consumed. Of the call: tokens,
 * routed_scale and site. `label` names the work in messages and is copied (47 characters at most);
 * NULL: the site's name. Enqueues nothing.
 *
 * One label owes one thing at a time. When the last ticket of this label was never consumed, this
 * returns ARFUSE_OWED, forgets that ticket and gives none: its reduction was lost, and what was
 * computed since is wrong.
 */
ARFUSE_API arfuse_status arfuse_defer(arfuse_workspace *workspace, arfuse_pattern pattern,
                                      const arfuse_call *call, const arfuse_operands *operands,
                                      const char *label, arfuse_ticket *ticket,
                                      arfuse_error *error);

/*
 * The operation that was deferred, with the consumer's half of the operands (residual, gamma and
 * outputs; the other members are not looked at). call->tokens is what was deferred, else nothing is
 * done; its site, when it names one, is the consumer's; routed_scale is the producer's. A ticket
 * that was consumed already is ARFUSE_USAGE, by label. After an error of the arguments the ticket
 * is still owed.
 */
ARFUSE_API arfuse_status arfuse_consume(arfuse_workspace *workspace, arfuse_ticket ticket,
                                        const arfuse_call *call, const arfuse_operands *operands,
                                        arfuse_error *error);

/*
 * For a deferred value that meets no norm: writes the reduced sum alone, without residual and norm,
 * rounded to bf16, into sum[local rank], [M,H]. That may be the deferred `input` itself, but no
 * other operand. The ticket is consumed. (Adding a residual afterwards rounds twice: other bits
 * than consuming gives.)
 */
ARFUSE_API arfuse_status arfuse_materialise(arfuse_workspace *workspace, arfuse_ticket ticket,
                                            const arfuse_call *call, void *const *sum,
                                            arfuse_error *error);

/* Once a decode step: ARFUSE_OWED, with the labels, when something is still owed; it is forgotten
 * then. A second step says nothing about it again. */
ARFUSE_API arfuse_status arfuse_end_step(arfuse_workspace *workspace, arfuse_error *error);

/* ==== 6. counters, histogram, checks ========================================================= */

/* Of calls made (a graph replay makes none). Those of a failed call do not count. */
typedef struct arfuse_counters {
    size_t struct_size;
    uint64_t calls, tokens;
    uint64_t fused;        /* calls by a fused route */
    uint64_t unfused;      /* the others */
    uint64_t declined;     /* of `unfused`: since the site was off */
    uint64_t beyond;       /* above the last route or the capacity, unfused or in pieces */
    uint64_t launches;     /* on the device: more than calls when some were cut */
    uint64_t deferred;     /* tickets given, */
    uint64_t materialised; /* materialised, */
    uint64_t dropped;      /* and found dropped */
    uint64_t shadowed;     /* calls that a shadow check compared */
} arfuse_counters;
/* clang-format off */
#define ARFUSE_COUNTERS_INIT {sizeof(arfuse_counters), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
/* clang-format on */

/* Of one site; ARFUSE_SITE_NONE: of calls that named none. */
ARFUSE_API arfuse_status arfuse_site_counters(const arfuse_workspace *workspace, int site,
                                              arfuse_counters *counters);
/* Of one route; ARFUSE_ROUTE_UNFUSED: of what no route served. Tickets are not counted here. */
ARFUSE_API arfuse_status arfuse_route_counters(const arfuse_workspace *workspace,
                                               arfuse_pattern pattern, int route,
                                               arfuse_counters *counters);

/*
 * Writes the token counts of this process's calls, "site,tokens,count" a line, as `arfuse-tune
 * --weights FILE` reads them: routes are then fitted to the engine's own traffic. Exact below 4096
 * tokens, else rounded down by less than 1/64. Call it on one rank. A regular file at `path` is
 * replaced at once, never seen in part; a folder, link, FIFO or device there is refused
 * (ARFUSE_FAILURE) and stands as it was.
 */
ARFUSE_API arfuse_status arfuse_write_histogram(const arfuse_workspace *workspace, const char *path,
                                                arfuse_error *error);

/*
 * SHADOW CHECK (options.shadow_every = n, equal on all ranks): every n-th call is run unfused too,
 * first, into memory of the workspace's own, and compared; ARFUSE_WRONG_RESULT names site, rank,
 * tensor, token and element. The call itself has been done then. It waits for the stream, so it is
 * left out of calls that are being captured. Routes whose numerics are not "fixed" have bits of
 * their own: their calls are neither compared nor counted, and a warning at creation names them.
 *
 * CHECKED MODE (options.checked): before each call the ranks compare workspace (by its label), call
 * number, pattern, tokens, site and scalars, and the bits of residual and gamma, through the
 * bootstrap; ARFUSE_DISAGREE on every rank names what differs and who differs, and nothing is
 * enqueued. So is it when an index is out of range, with ARFUSE_USAGE. Waits for the stream: eager
 * calls only.
 *
 * PROFILERS: on CUDA each call is a range of the NVTX domain "arfuse" on the calling thread, such
 * as "allreduce attn_out M=17 ll, route 1 of 4", when a profiler was attached before the workspace
 * was made (NVTX asks NVTX_INJECTION64_PATH then, and never later). It spans what the call
 * enqueues, in a capture the capturing; a graph replay makes no call, hence no range.
 *
 * ORDERING RULE (options.check_order, on all workspaces in question): when ranks call workspaces of
 * one team in different orders, or calls of two of them meet on one rank, the later call is
 * ARFUSE_DISAGREE or ARFUSE_IN_USE and names both workspaces and the ranks; both have failed then,
 * on all ranks, so that nobody waits for the limit. Costs a few atomic operations a call. Ranks of
 * different nodes are not compared. On CUDA the GPU looks itself whether calls of two streams or
 * graphs overlap there: two small kernels a call.
 */

#ifdef __cplusplus
}
#endif

#endif
