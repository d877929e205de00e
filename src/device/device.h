/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam to hardware. Tuner and runtime see only this: three devices (cuda,
 * host, model) behind one table of functions.
 *
 *   device      one per process: the hardware, and the team that uses it
 *   space       the peer-visible buffers of one (shape, capacities) on it
 *   plan id     a plan made ready to launch (compiled, checked) in a space
 *   launch      one call of one plan on all local ranks
 *
 * Collective functions say so; after each of them the caller votes
 * (device/team.h), except where the function itself votes and says that.
 */
#ifndef ARF_DEVICE_DEVICE_H
#define ARF_DEVICE_DEVICE_H

#include "base/log.h"
#include "device/clocks.h"
#include "device/team.h"
#include "profile/profile.h"

typedef struct arf_device arf_device;
typedef struct arf_space arf_space;

typedef struct arf_device_options {
    const char *spec;      /* "auto", "cuda", "host", "model:FILE", "model:default" */
    int cuda_ordinal;      /* -1: the current one */
    bool gpu_sharing;      /* several ranks may share a GPU */
    bool multicast;        /* the user asked for multicast objects; default no */
    arf_numerics numerics; /* the weakest that plans will ask for, where that is known so early */
    const char *command;   /* the program's own command line, for messages; NULL: a library */
    const arf_log *log;
} arf_device_options;

/* What profiles say of the software that ran. */
typedef struct arf_device_evidence {
    char driver[ARF_NAME_TEXT]; /* or system */
    char source_digest[ARF_NAME_TEXT];
    char library[ARF_NOTE_TEXT]; /* of collectives, and its settings; "": none may be called */
} arf_device_evidence;

#define ARF_LABEL_TEXT 48

typedef struct arf_space_spec {
    arf_shape shape;
    int64_t capacity[ARF_PROTOCOLS]; /* tokens of one call of each protocol; 0: not used */
    arf_numerics numerics;           /* the weakest that plans may ask for */
    double wait_limit_seconds;       /* of every wait on a peer; 0: none */
    char label[ARF_LABEL_TEXT];      /* what messages call this space */
    const char *remedy;              /* for messages: what to do when a wait has failed the space;
                                        NULL: what a user of the runtime does. Outlives the space */
    bool check_order;                /* calls that break the ordering rule (device/order.h) are
                                        named; the model, where nothing waits, ignores it */
} arf_space_spec;

typedef struct arf_launch {
    arf_pattern pattern;
    int plan;                        /* id from prepare */
    int then;                        /* ARF_SEPARATE: id of the allreduce plan behind it; else -1 */
    int64_t tokens;                  /* at most the protocol's capacity */
    const arfuse_operands *operands; /* [local_ranks], struct_size apart */
    float epsilon, weight_bias, routed_scale;
    arfuse_stream stream;
    bool plain;        /* without programmatic dependent launch, whatever the tuning says */
    bool early_shared; /* `shared` may be read before the grid-dependency wait; may be ignored */
} arf_launch;

typedef struct arf_timing {
    int calls; /* N in one graph or loop */
    arf_policy policy;
    int64_t round; /* the model's noise depends on it */
    int launches;  /* `launch` is an array of so many, of one pattern, that calls take in turn; 0:
                      one */
} arf_timing;

/* The launches of a timing, and what call `call` of it is. */
static inline int arf_timing_launches(const arf_timing *timing)
{
    return timing->launches > 0 ? timing->launches : 1;
}
static inline const arf_launch *arf_timing_launch(const arf_timing *timing,
                                                  const arf_launch *launch, int call)
{
    return &launch[call % arf_timing_launches(timing)];
}

typedef struct arf_device_ops {
    const char *name; /* "host" */
    unsigned lacks;   /* bits 1 << protocol: what prepare refuses whatever the tuning */

    /* Collective; votes. */
    arfuse_status (*open)(const arf_device_options *options, const arf_team *team,
                          arf_device **device, arf_error *error);
    void (*close)(arf_device *device);

    /* What a profile of this machine says. Equal on all ranks (open checks that). */
    void (*describe)(const arf_device *device, arf_device_key *key);
    /* What it knows, into a zeroed one. */
    void (*evidence)(const arf_device *device, arf_device_evidence *evidence);
    /* Why plans with numerics of the library cannot run on this team, equal on all ranks; NULL:
     * they can, or the device was not opened for them. NULL function: as the rules say. */
    const char *(*no_library)(const arf_device *device);

    /* Collective; votes after every step, so all ranks have the space or none. */
    arfuse_status (*space_create)(arf_device *device, const arf_space_spec *spec, arf_space **space,
                                  arf_error *error);
    void (*space_destroy)(arf_space *space);
    /* Bytes of a rank that its peers reach, as they are taken: whole granules. NULL: what sizing
     * says (rules/sizing.h). */
    int64_t (*space_bytes)(const arf_space *space);
    /*
     * Whether there is room for such a space, from what the machine has left: none of it is taken
     * or touched, so a yes is no promise. Collective; votes. NULL: only space_create tells.
     */
    arfuse_status (*space_fits)(arf_device *device, const arf_space_spec *spec, arf_error *error);

    /*
     * Makes a plan ready: everything that can be refused or take time happens here. Local; the
     * caller votes. The same (pattern, plan) gives the same id again. ARFUSE_NOT_SUPPORTED names
     * what this device lacks, with nothing changed.
     */
    arfuse_status (*prepare)(arf_space *space, arf_pattern pattern, const arf_plan *plan, int *id,
                             arf_error *error);

    /*
     * A hint: these plans are about to be prepared here, so what takes long is done for all of them
     * at once, by several threads. Not collective, but all ranks give the same list: processes of
     * a node may share the work. What fails fails again in prepare, which says so. NULL: prepare
     * takes no time worth it.
     */
    void (*precompile)(arf_space *space, arf_pattern pattern, const arf_plan *const *plan,
                       int count);

    /*
     * Enqueues one call on every local rank (the host device runs it at once). Collective in
     * effect: all ranks launch the same. A call of 0 tokens touches nothing, no epoch either: it
     * waits for no peer, so if it took a generation, a rank could come round to one that a peer
     * has not read yet (tests/model/ll.pml, twin ZERO). No allocation, lock or log. On failure
     * nothing was enqueued, or the space is failed and peers are told.
     */
    arfuse_status (*launch)(arf_space *space, const arf_launch *launch, arf_error *error);
    /*
     * The rest of a call, of which `launch` was to be the next part, will not come: the space has
     * failed, and every reachable peer is told as when a wait expires, with this rank as culprit.
     * Nobody is told in a capture, where nothing has run. No allocation, lock or log. NULL: a
     * device that has no peers to tell.
     */
    void (*abandon)(arf_space *space, const arf_launch *launch);
    arfuse_status (*synchronize)(arf_space *space, arfuse_stream stream, arf_error *error);

    /*
     * Times `calls` calls after a device-side barrier of the team: us[local rank] gets microseconds
     * a call. Collective. The caller takes the maximum over ranks. Calls of several launches make
     * a mixed segment: its parts, timed alone, tell what changing from one to the next costs.
     */
    arfuse_status (*time)(arf_space *space, const arf_launch *launch, const arf_timing *timing,
                          double *us, arf_error *error);

    /* Why times mean nothing here, equal on all ranks; NULL: they do. A device without this
     * function always times. */
    const char *(*untimed)(const arf_device *device);

    /* One host read: ARFUSE_OK, or ARFUSE_TIMEOUT and the first culprit; where the order of calls
     * is watched, ARFUSE_IN_USE for calls that overlapped on the device. */
    arfuse_status (*state)(const arf_space *space, arfuse_culprit *culprit);

    /* Memory of one local rank that launches may use; NULL when there is none left. */
    void *(*allocate)(arf_device *device, int local_rank, size_t bytes);
    void (*release)(arf_device *device, int local_rank, void *memory);
    arfuse_status (*upload)(arf_device *device, int local_rank, void *to, const void *from,
                            size_t bytes, arf_error *error);
    arfuse_status (*download)(arf_device *device, int local_rank, void *to, const void *from,
                              size_t bytes, arf_error *error);

    /* Seconds on a monotonic clock; virtual on the model. */
    double (*now)(const arf_device *device);

    /* The clocks right now of what this process runs on. Local. NULL: a device that does not tell;
     * one that cannot leaves them 0. */
    void (*clocks)(const arf_device *device, arf_clocks *clocks);

    /*
     * Only devices that do not compute (the model) have this: the verdict that verification would
     * come to. NULL: results are compared with the reference (device/trial.h).
     */
    arfuse_status (*verdict)(arf_space *space, const arf_launch *launch, arf_error *error);

    /* True while the stream is being captured into a graph, when nothing may wait for it. NULL: a
     * device without streams, where every arfuse_stream is NULL. No allocation, lock or log. */
    bool (*capturing)(const arf_space *space, arfuse_stream stream);

    /* Ranges of a profiler on the calling thread, around what a caller does; asked for only while
     * `profiled`, which never changes, is true. All NULL: a device without. */
    bool (*profiled)(const arf_device *device);
    void (*range_begin)(const arf_device *device, const char *text);
    void (*range_end)(const arf_device *device);

    /* How many captured graphs, or what was instantiated from them, still use the space. NULL: a
     * device without capture. */
    int (*graphs)(const arf_space *space);
} arf_device_ops;

/* Every implementation's struct begins with this one. */
struct arf_device {
    const arf_device_ops *ops;
    const arf_team *team; /* outlives the device */
    arf_log log;
};
struct arf_space {
    arf_device *device;
    arf_space_spec spec;
};

/* Chooses the implementation by options->spec and opens it. Collective; votes. "auto" takes cuda
 * when an NVIDIA device node exists (a broken driver is then an error, not a silent change), else
 * host. */
arfuse_status arf_device_open(const arf_device_options *options, const arf_team *team,
                              arf_device **device, arf_error *error);
void arf_device_close(arf_device *device); /* accepts NULL */

/* The kernel set whose knobs the device's plans use. */
arf_set arf_device_set(const arf_device *device);
/* The problem that plans for this device and shape must be legal for. */
arf_problem arf_device_problem(const arf_device *device, const arf_shape *shape);

extern const arf_device_ops arf_host_device;
extern const arf_device_ops arf_model_device;
#ifdef ARF_CUDA
extern const arf_device_ops arf_cuda_device;
#endif

#endif
