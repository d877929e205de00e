/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tune of one shape has measured, in memory on every rank and on disk by rank 0. Every
 * function is collective and ends with the same status on all ranks.
 */
#ifndef ARF_TUNE_STORE_H
#define ARF_TUNE_STORE_H

#include "profile/samples.h"
#include "tune/tuner.h"

#define ARF_PATH_TEXT 4096

typedef struct arf_store {
    const arf_tuner *tuner;
    arf_samples *samples;
    arf_samples_writer *writer; /* rank 0 */
    char path[ARF_PATH_TEXT];   /* of the file that samples go to */
    bool replaces;              /* it is a new one, which replaces the old with the profile */
    int resumed;                /* samples that were there before */
    int kept;                   /* samples that are in the file */
    int discards; /* samples of an interrupted run, which the first point replaces; rank 0 */
} arf_store;

/* Not collective: what would be refused of the folder and the files in it, and of --base, before
 * anything is made or measured. */
arfuse_status arf_store_judge(const arf_tuner *tuner, const arf_shape *shape, arf_set set,
                              arf_error *error);

/* Makes the folder, locks and opens the samples file; with --resume or --base, rank 0 reads what is
 * there and every rank parses the same bytes. */
arfuse_status arf_store_open(const arf_tuner *tuner, const arf_shape *shape, arf_set set,
                             arf_store *store, arf_error *error);
void arf_store_close(arf_store *store);

/* The samples of one point: into memory, and on disk all or none as far as signals go. */
arfuse_status arf_store_add(arf_store *store, const arf_sample *sample, int count,
                            arf_error *error);

/* Puts behind the message of an error that ends the run where its samples are; without any,
 * nothing.
 */
void arf_store_advise(const arf_store *store, arf_error *error);

/* Rank 0 writes the profile beside the samples, which then replace older ones; every rank gets the
 * path and compares the digest of the routes it holds. */
arfuse_status arf_store_profile(const arf_store *store, const arf_profile *profile,
                                char path[ARF_PATH_TEXT], arf_error *error);

/* The path of the samples file beside a profile's path: .json becomes .samples.jsonl. */
arfuse_status arf_samples_path(const char *profile_path, char path[ARF_PATH_TEXT],
                               arf_error *error);

#endif
