/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank 0 reads and writes files, every rank receives: one access a file however many ranks, and no
 * rank goes by bytes that another has not seen. All collective, same status everywhere.
 */
#ifndef ARF_TUNE_SHARE_H
#define ARF_TUNE_SHARE_H

#include "fit/fit.h"
#include "tune/tuner.h"

/* Rank 0's status and message on every rank; what the others bring does not count. */
arfuse_status arf_first_says(const arf_tuner *tuner, arfuse_status status, arf_error *error);

/* The status of a fit, which every rank makes of the same samples by itself. *routes is false where
 * the samples have none, which is no error and said elsewhere. */
arfuse_status arf_share_fit(const arf_tuner *tuner, arfuse_status status, bool *routes,
                            arf_error *error);

/* Rank 0's bytes (malloc) on every rank, which frees them. A NUL stands behind them. */
arfuse_status arf_share_bytes(const arf_tuner *tuner, char **data, size_t *bytes, arf_error *error);

/* A file of at most `limit` bytes as arf_read_file reads it. */
arfuse_status arf_share_file(const arf_tuner *tuner, const char *path, size_t limit, char **text,
                             size_t *bytes, arf_error *error);

/* A profile file. ARFUSE_PROFILE as arf_profile_load. */
arfuse_status arf_share_profile(const arf_tuner *tuner, const char *path, arf_profile **profile,
                                arf_error *error);

/* The weights of --weights; an empty one without it. */
arfuse_status arf_share_weights(const arf_tuner *tuner, arf_weights *weights, arf_error *error);

#endif
