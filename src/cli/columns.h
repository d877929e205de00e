/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of our tables in CSV: what `export --to csv` writes, in this order, and by which
 * names `import --from csv` finds them. The variables that a point depends on come first, where
 * the numbers came from last.
 */
#ifndef ARF_CLI_COLUMNS_H
#define ARF_CLI_COLUMNS_H

/* The first column of our own tables, and the version of their layout in it. */
#define ARF_CSV_SAMPLES "arfuse-samples-csv-1"
#define ARF_CSV_ROUTES "arfuse-routes-csv-1"

typedef enum arf_column {
    ARF_COL_FORMAT,
    ARF_COL_PATTERN,
    ARF_COL_TP,
    ARF_COL_HIDDEN,
    ARF_COL_TOP_K,
    ARF_COL_DTYPE,
    ARF_COL_NORM,
    ARF_COL_RESIDUAL,
    ARF_COL_SHARED,
    ARF_COL_TOKENS, /* samples only */
    ARF_COL_MIN,    /* routes only, as the next */
    ARF_COL_MAX,
    ARF_COL_PROTOCOL,
    ARF_COL_TRANSPORT,
    ARF_COL_NUMERICS,
    ARF_COL_TUNING,
    ARF_COL_VERSION,
    ARF_COL_THEN, /* samples only, up to THROTTLE */
    ARF_COL_OUTCOME,
    ARF_COL_REASON,
    ARF_COL_US,
    ARF_COL_SPREAD,
    ARF_COL_ROUNDS,
    ARF_COL_ROUNDS_US,
    ARF_COL_CALLS,
    ARF_COL_CLOCK,
    ARF_COL_THROTTLE,
    ARF_COL_BOUND_LOW, /* routes only, up to METHOD */
    ARF_COL_BOUND_HIGH,
    ARF_COL_RUNNER_UP,
    ARF_COL_MARGIN,
    ARF_COL_SHIFT_TOKENS,
    ARF_COL_WARM_US,
    ARF_COL_DECODE_US,
    ARF_COL_METHOD,
    ARF_COL_VARIANT,
    ARF_COL_SET,
    ARF_COL_DEVICE,
    ARF_COL_CAPABILITY,
    ARF_COL_SMS,
    ARF_COL_LINK,
    ARF_COL_NODES,
    ARF_COL_RANKS_PER_GPU,
    ARF_COL_POLICY,
    ARF_COL_SEED,
    ARF_COL_TOOL,
    ARF_COL_DRIVER,
    ARF_COL_DIGEST,
    ARF_COLUMNS
} arf_column;

/* NULL-terminated; the first is ours, the others are what public sweeps call the same thing. */
extern const char *const arf_column_names[ARF_COLUMNS][8];

#endif
