/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of options, from their text. Each refuses with ARFUSE_USAGE and a message that names
 * the option, the value and what was expected; the output is then left alone or unspecified.
 */
#ifndef ARF_TUNE_VALUES_H
#define ARF_TUNE_VALUES_H

#include "tune/options.h"

/* Whole numbers in [low, high], as arf_number_parse. */
arfuse_status arf_take_integer(const char *name, const char *text, int64_t low, int64_t high,
                               const char *expected, int64_t *number, arf_error *error);
/* A decimal fraction in (0, high]. */
arfuse_status arf_take_number(const char *name, const char *text, double high, const char *expected,
                              double *number, arf_error *error);
/* --hidden or --topk: a comma list, each value once. */
arfuse_status arf_take_sizes(const char *name, const char *text, int *count, int *value,
                             arf_error *error);
arfuse_status arf_take_patterns(const char *text, bool chosen[ARF_PATTERNS], arf_error *error);
/* "ll,bt" or "^ht". */
arfuse_status arf_take_protocols(const char *text, bool chosen[ARF_PROTOCOLS], arf_error *error);
/* Adds a --set to the pins. */
arfuse_status arf_take_pin(const char *text, arf_tune_options *options, arf_error *error);
arfuse_status arf_take_format(const char *text, arf_format *format, arf_error *error);
/* The spelling only; the device judges the rest. */
arfuse_status arf_take_device(const char *text, const char **device, arf_error *error);
arfuse_status arf_take_path(const char *name, const char *text, const char **path,
                            arf_error *error);
/* "A,B", two different ones. */
arfuse_status arf_take_ab(const char *text, char side[2][4096], arf_error *error);

#endif
