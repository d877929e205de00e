/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The samples file: JSON lines. A header (shape, device, kernel set, policy, seed, tool), then a
 * line for each measured (pattern, M, candidate) with the array of per-round maxima over ranks.
 * Resume, fit, import, merge and check all read exactly this.
 */
#ifndef ARF_PROFILE_SAMPLES_H
#define ARF_PROFILE_SAMPLES_H

#include "profile/profile.h"

#define ARF_MAX_ROUNDS 256
/* design.md section 11, item 5: a samples file has at most 2 MiB. */
#define ARF_SAMPLES_MAX_BYTES ((size_t)2 << 20)

typedef struct arf_samples_header {
    arf_set set;
    int version[ARF_PROTOCOLS];
    arf_shape shape;
    arf_device_key device;
    arf_policy policy;
    uint64_t seed;
    char tool[ARF_NAME_TEXT];
    char driver[ARF_NAME_TEXT];
    char source_digest[ARF_NAME_TEXT];
    char library[ARF_NOTE_TEXT]; /* as arf_evidence has it */
} arf_samples_header;

typedef enum arf_sample_outcome {
    ARF_SAMPLE_TIMED,
    ARF_SAMPLE_WRONG, /* verification failed: never a route */
    ARF_SAMPLE_FAILED /* did not launch, or timed out */
} arf_sample_outcome;

/* One (pattern, M, candidate). A finalize sample of ARF_SEPARATE is the time of the finalize kernel
 * and of the allreduce route behind it together; `then` is that route's plan. */
typedef struct arf_sample {
    arf_pattern pattern;
    int64_t tokens;
    arf_plan plan;
    bool has_then;
    arf_plan then;
    arf_sample_outcome outcome;
    char reason[ARF_NOTE_TEXT]; /* of an outcome other than timed */
    int calls;                  /* N of the timed graph or loop */
    int clock_mhz;              /* of the team's slowest GPU behind the point; 0: not known */
    /* What held a clock down then: "power, heat"; "": nothing known. */
    char throttle[ARF_NAME_TEXT];
    int rounds;
    double *us; /* [rounds] microseconds a call, maximum over ranks; owned by arf_samples */
} arf_sample;

typedef struct arf_samples {
    arf_samples_header header;
    int count, room;
    arf_sample *sample;
} arf_samples;

arf_samples *arf_samples_new(const arf_samples_header *header);
void arf_samples_free(arf_samples *samples);
/* Copies the sample and its `us`, rounded as a file holds them. One of the same (pattern, tokens,
 * plan) is replaced: the later measurement counts, in memory as in a file. */
arfuse_status arf_samples_add(arf_samples *samples, const arf_sample *sample, arf_error *error);
/* The sample of (pattern, tokens, plan), or NULL. */
const arf_sample *arf_samples_find(const arf_samples *samples, arf_pattern pattern, int64_t tokens,
                                   const arf_plan *plan);
/* To 0.1 ns, what a file holds: fitting from memory and from the file gives the same profile. */
double arf_sample_round(double us);
double arf_sample_median(const arf_sample *sample); /* NaN unless timed */
/* Of a sample that takes in the rounds of another: the slower clock, and what held either down. */
void arf_sample_join_clocks(arf_sample *sample, const arf_sample *other);

/*
 * Strict like the profile reader, with file and line in each refusal. A last line without a newline
 * (a killed writer) is dropped with *truncated set, never an error.
 */
arfuse_status arf_samples_load(const char *path, arf_samples **samples, bool *truncated,
                               arf_error *error);
arfuse_status arf_samples_parse(const char *name, const char *text, size_t bytes,
                                arf_samples **samples, bool *truncated, arf_error *error);

/* One line of text each, without newline; the caller frees. */
arfuse_status arf_samples_header_line(const arf_samples_header *header, char **line,
                                      arf_error *error);
arfuse_status arf_sample_line(const arf_samples_header *header, const arf_sample *sample,
                              char **line, arf_error *error);

/*
 * Creates the samples file beside a profile, or, with `resume`, keeps its whole lines and appends;
 * every line is on disk when arf_samples_append returns. Without `resume`, samples that are there
 * stay as they are: lines then go to a file with ".new" behind the name, which arf_samples_keep
 * renames over the old one, and which `resume` takes up when it is there; else what an interrupted
 * run left there stays until the first line is appended. Both files are locked
 * until the writer is closed: a second writer is refused (ARFUSE_FAILURE), as are samples of
 * another key, to resume also of another policy or tuning version, and files that hold no samples
 * (ARFUSE_PROFILE). A seed beyond 2^53 - 1 is ARFUSE_USAGE.
 */
typedef struct arf_samples_writer arf_samples_writer;
arfuse_status arf_samples_open(const char *path, const arf_samples_header *header, bool resume,
                               arf_samples_writer **writer, arf_error *error);
/* What arf_samples_open would refuse of the files that are there, before anything is made. */
arfuse_status arf_samples_judge(const char *path, const arf_samples_header *header, bool resume,
                                arf_error *error);
/* The file that lines go to; valid until arf_samples_keep or arf_samples_close. */
const char *arf_samples_place(const arf_samples_writer *writer);
/* The samples that the first line will take the place of; 0: none. */
int arf_samples_discards(const arf_samples_writer *writer);
/* The profile of these samples is stored: they replace those of the run before. */
arfuse_status arf_samples_keep(arf_samples_writer *writer, arf_error *error);
arfuse_status arf_samples_append(arf_samples_writer *writer, const arf_sample *sample,
                                 arf_error *error);
void arf_samples_close(arf_samples_writer *writer);

#endif
