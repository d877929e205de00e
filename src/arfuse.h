/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arfuse: fused all-reduce for tensor-parallel decoding, routed by measurement.
 *
 * The tail of a tensor-parallel layer is: finalize the MoE (weighted gather of
 * top-k expert rows), add the shared expert, all-reduce over the ranks, add the
 * residual, RMSNorm. This library runs it in one call, by the protocol that a
 * routing profile (written by arfuse-tune) names for the call's token count.
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
 * The result has the same bits on every rank, for every route, token count and
 * device: engines may route by speed alone and stay batch-invariant.
 *
 * THREADS. A workspace serves one thread at a time; different workspaces are
 * independent objects. There is no global state.
 * COLLECTIVE. create and every launch are collective: all ranks make the same
 * calls with the same arguments in the same order. Calls of all workspaces that
 * share a GPU run one after another, in the same order on every rank.
 * OWNERSHIP. The caller owns streams, tensors and strings passed in; strings
 * are copied at creation. The workspace owns everything it allocates.
 * LAUNCH PATH. arfuse_allreduce and arfuse_finalize allocate nothing, take no
 * lock, read no environment, write no log, and may be captured in a CUDA graph.
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

/* ---- status and errors ------------------------------------------------------------------- */

/* 0 is success. 1 to 6 are also the exit codes of arfuse-tune and arfuse-profile. */
typedef enum arfuse_status {
    ARFUSE_OK = 0,
    ARFUSE_FAILURE = 1,      /* anything without a better name: out of memory, a system call */
    ARFUSE_USAGE = 2,        /* an argument is wrong; nothing was done */
    ARFUSE_PROFILE = 3,      /* a profile is invalid, or not usable here */
    ARFUSE_HARDWARE = 4,     /* no suitable device, driver, link or memory */
    ARFUSE_WRONG_RESULT = 5, /* a check of results failed */
    ARFUSE_TIMEOUT = 6,      /* a wait on a peer expired; the workspace has failed for good */
    ARFUSE_DISAGREE = 16,    /* ranks passed different arguments, profiles or shapes */
    ARFUSE_FAILED = 17,      /* this workspace failed earlier; destroy it and make a new one */
    ARFUSE_NOT_SERVED = 18,  /* no fused route, and the caller's policy asked for an error */
    ARFUSE_IN_USE = 19,      /* something still depends on what was to be destroyed or reused */
    ARFUSE_NOT_SUPPORTED = 20 /* a combination that this build or device does not have */
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

/* ---- log --------------------------------------------------------------------------------- */

typedef enum arfuse_log_level {
    ARFUSE_LOG_ERROR = 1,   /* the operation was given up */
    ARFUSE_LOG_WARNING = 2, /* it goes on, but not as the user asked or would expect */
    ARFUSE_LOG_INFO = 3,    /* one line per workspace: what was chosen, from where */
    ARFUSE_LOG_DEBUG = 4
} arfuse_log_level;

/* `line` has no newline and is valid during the call only. Never called on the launch path. */
typedef void (*arfuse_log_fn)(void *context, arfuse_log_level level, const char *line);

/* ---- team -------------------------------------------------------------------------------- */

/*
 * How the processes of a team find each other. rank and size count processes; the callbacks return
 * 0 on success. Only these processes take part: pass a subgroup's callbacks for a subgroup. Used
 * during create alone, on the calling thread.
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

/* ---- workspace --------------------------------------------------------------------------- */

typedef enum arfuse_pattern {
    ARFUSE_ALLREDUCE = 0, /* all-reduce + residual + RMSNorm */
    ARFUSE_FINALIZE = 1   /* MoE finalize + shared expert + the same */
} arfuse_pattern;

/* What a call does when no fused route serves its token count. */
typedef enum arfuse_fallback {
    ARFUSE_FALLBACK_UNFUSED = 0, /* run the whole operation unfused (the default) */
    ARFUSE_FALLBACK_ERROR = 1    /* ARFUSE_NOT_SERVED, nothing enqueued */
} arfuse_fallback;

/* Where the routes come from. Environment ARFUSE_ROUTES=profile|default|unfused overrides nothing
 * that the caller set here explicitly: precedence is call > option > environment > profile >
 * default. */
typedef enum arfuse_routes {
    ARFUSE_ROUTES_AUTO = 0, /* environment, else profile */
    ARFUSE_ROUTES_PROFILE = 1,
    ARFUSE_ROUTES_DEFAULT = 2,
    ARFUSE_ROUTES_UNFUSED = 3
} arfuse_routes;

typedef struct arfuse_options {
    size_t struct_size;

    /* Shape. tp_size is the sum of local_ranks over the processes. */
    int hidden_size; /* H: a positive multiple of 8, at most 65536 */
    int top_k;       /* K: 1..64; 0: a dense model, arfuse_finalize is refused */
    int rms_norm, residual, shared_expert; /* 0 or 1: what the operations contain */
    int local_ranks; /* team ranks that this process hosts, in order; 1 in production */
    int64_t capacity; /* the most tokens of one fused call; more tokens run unfused in chunks */

    /* Device: "auto", "cuda", "host" or "model:FILE"; NULL is "auto". */
    const char *device;
    int cuda_ordinal; /* -1: the current CUDA device of the calling thread */

    /* Profile. A named file that cannot be used is an error; an absent one is one warning. */
    const char *profile;      /* a file; NULL: environment ARFUSE_PROFILE, else search */
    const char *profile_path; /* folders joined by ':'; NULL: ARFUSE_PROFILE_PATH, user, system */
    int strict;               /* 1: an absent profile is an error too */
    arfuse_routes routes;
    arfuse_fallback fallback;

    double wait_limit_seconds; /* of every wait on a peer; 0: none; default 300, since ranks of a
                                  starting engine may be minutes apart */

    arfuse_log_fn log; /* NULL: silent */
    void *log_context;
    arfuse_log_level log_level;
} arfuse_options;
/* clang-format off */
#define ARFUSE_OPTIONS_INIT                                                                        \
    {sizeof(arfuse_options), 0, 0, 1, 1, 1, 1, 0, NULL, -1, NULL, NULL, 0, ARFUSE_ROUTES_AUTO,     \
     ARFUSE_FALLBACK_UNFUSED, 300.0, NULL, NULL, ARFUSE_LOG_WARNING}
/* clang-format on */

typedef struct arfuse_workspace arfuse_workspace;

/*
 * Makes the workspace of one (shape, team, capacity): buffers, kernels, routes of both patterns.
 * Collective, all or none: every rank gets the same status. Everything that can be refused is
 * refused here, so that a launch has nothing left to find out. *workspace is set only on success.
 */
ARFUSE_API arfuse_status arfuse_workspace_create(const arfuse_bootstrap *bootstrap,
                                                 const arfuse_options *options,
                                                 arfuse_workspace **workspace,
                                                 arfuse_error *error);

/* Not collective; NULL is fine. Work in flight on the caller's stream must have ended. */
ARFUSE_API arfuse_status arfuse_workspace_destroy(arfuse_workspace *workspace,
                                                  arfuse_error *error);

/* Who failed first, when a wait on a peer expired. */
typedef struct arfuse_culprit {
    size_t struct_size;
    int rank;       /* team rank that did not arrive */
    int stage;      /* device-specific step of the protocol */
    int64_t token;
    uint64_t epoch; /* which call of that mailbox, counted from 0 */
} arfuse_culprit;

/*
 * One host read, no synchronisation: ARFUSE_OK, or ARFUSE_TIMEOUT with the first culprit. Poll it
 * once a decode step. `culprit` may be NULL.
 */
ARFUSE_API arfuse_status arfuse_workspace_status(const arfuse_workspace *workspace,
                                                 arfuse_culprit *culprit);

/* ---- operations -------------------------------------------------------------------------- */

typedef struct CUstream_st *arfuse_stream; /* a CUstream or cudaStream_t; NULL on other devices */

/* Routing weights of the finalize pattern. */
typedef enum arfuse_weights { ARFUSE_WEIGHTS_BF16 = 0, ARFUSE_WEIGHTS_FP32 = 1 } arfuse_weights;

/* What is equal on all ranks in one call. */
typedef struct arfuse_call {
    size_t struct_size;
    int64_t tokens; /* M >= 0; 0 keeps all ranks in step and touches no tensor */
    arfuse_stream stream;
    float epsilon;      /* of RMSNorm, inside the square root */
    float weight_bias;  /* norm multiplies by gamma + weight_bias: 0 or 1 in practice */
    float routed_scale; /* finalize: factor of every routing weight */
} arfuse_call;
/* clang-format off */
#define ARFUSE_CALL_INIT {sizeof(arfuse_call), 0, NULL, 1e-6f, 0.0f, 1.0f}
/* clang-format on */

/*
 * The tensors of one local rank. Contiguous, 16-byte aligned (weights and indices: their own size);
 * bf16 unless said otherwise. M tokens, hidden size H, top-k K.
 *
 * residual_out may be the same tensor as residual, and norm_out as input; any other overlap is
 * refused. residual, gamma, epsilon and weight_bias must be bit-equal on all ranks.
 */
typedef struct arfuse_operands {
    size_t struct_size; /* also the distance between the elements of an array of them */

    const void *input; /* allreduce: [M,H], this rank's partial sum */

    const void *routed;     /* finalize: [routed_rows,H], this rank's expert outputs */
    int64_t routed_rows;    /* rows of `routed`; an index at or above it is the caller's bug */
    const void *weights;    /* finalize: [M,K] */
    arfuse_weights weights_type;
    const int32_t *indices; /* finalize: int32 [M,K], rows of `routed`; -1: dropped slot */
    const void *shared;     /* finalize: [M,H] this rank's shared-expert partial sum, or NULL when
                               the workspace has shared_expert 0 */

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
 * reduction is never skipped. `operands` has one element per local rank. Any M is legal: above the
 * last route it runs unfused, in chunks. `error` may be NULL.
 */
ARFUSE_API arfuse_status arfuse_allreduce(arfuse_workspace *workspace, const arfuse_call *call,
                                          const arfuse_operands *operands, arfuse_error *error);
ARFUSE_API arfuse_status arfuse_finalize(arfuse_workspace *workspace, const arfuse_call *call,
                                         const arfuse_operands *operands, arfuse_error *error);

/*
 * Says in words which route serves `tokens`, from which file, and why. Writes at most `size` bytes
 * with the closing NUL; returns ARFUSE_USAGE when they did not suffice.
 */
ARFUSE_API arfuse_status arfuse_explain(const arfuse_workspace *workspace, arfuse_pattern pattern,
                                        int64_t tokens, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
