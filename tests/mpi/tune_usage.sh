#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions that check calls
# Wrong use with 4 ranks: one message of ours, the right exit code, soon.
set -u
. tests/support/tune.bash
out=$work/profiles
: >"$work/file"

refused() { # CODE WORD ARGS...
    local code=$1 word=$2
    shift 2
    run_tune 4 "$@"
    check "$*: exit $code" [ "$rc" -eq "$code" ]
    check "$*: one message, which names $word" one_with "$word"
    check "$*: within 10 s" [ "$took" -lt 10000 ]
}
one_with() { [ "$(lines)" -eq 1 ] && says "$1"; }

# Before MPI starts.
refused 2 "'0'" --hidden 0
refused 2 "'6143'" --hidden 6143
refused 2 "'abc'" --hidden abc
refused 2 "'-1'" --hidden 6144 --topk -1
refused 2 "--nope" --hidden 6144 --nope
refused 2 "'nope'" --hidden 6144 --protocols nope
refused 2 "--hidden is given twice" --hidden 8 --hidden 8
# After it.
refused 1 "$work/file" --hidden 256 --device model:default --output "$work/file/below"
refused 2 "--tp 2 with 4 processes" --hidden 256 --tp 2 --device model:default --output "$out"
refused 2 "the knobs of ll" --hidden 256 --set ll.nope=1 --device model:default --output "$out"
refused 2 "no candidate is left" --hidden 256 --protocols separate --device model:default --output "$out"
refused 3 "/nonexistent" --hidden 256 --device model:/nonexistent --output "$out"
refused 3 "/nonexistent" --hidden 256 --device model:default --weights /nonexistent --output "$out"
refused 3 "/nonexistent" --hidden 256 --device model:default --base /nonexistent.json --output "$out"

# Help and version print once.
run_tune 4 --help
check "help exits 0" [ "$rc" -eq 0 ]
check "help is printed once" [ "$(grep -c '^Usage: arfuse-tune' "$work/out")" -eq 1 ]
run_tune 4 --version
check "version is printed once" [ "$(grep -c '^arfuse-tune [0-9.]*$' "$work/out")" -eq 1 ]

# Ranks that were started with different arguments.
mpi() { timeout 60 mpirun --oversubscribe "$@" >"$work/out" 2>"$work/err" </dev/null; }
mark
mpi -n 3 "$tune" --hidden 256 --device model:default --output "$out" : \
    -n 1 "$tune" --hidden 512 --device model:default --output "$out"
rc=$?
check "different arguments: exit 2" [ "$rc" -eq 2 ]
check "different arguments: one message with the ranks" one_with "on rank 3"
mark
mpi -n 3 "$tune" --hidden 256 --device model:default --output "$out" : -n 1 "$tune" --hidden 257
rc=$?
took=$((($(date +%s%N) - began) / 1000000))
check "one rank with a wrong argument: exit 2" [ "$rc" -eq 2 ]
check "one rank with a wrong argument: it speaks" one_with "rank 3: --hidden '257'"
check "one rank with a wrong argument: within 10 s" [ "$took" -lt 10000 ]
check "no profile came of it" no_profile "$out"
finish
