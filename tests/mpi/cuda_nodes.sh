#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# arfuse-tune on two nodes, as far as one machine can play them: each process takes itself for one of
# another node, and stand-ins play the driver and NCCL. Kernels of the stand-in do nothing, so a tune
# ends with its candidates left out (exit 5), after everything that starts a team has run.
# shellcheck disable=SC2154 # work and rc come from tune.bash
set -u
. tests/support/tune.bash

use_standins
export FAKECUDA_DEVICES=2

# run_nodes ARGS...: a process a node, each of which sees one GPU.
run_nodes() {
    timeout -k 5 "${limit:-120}" mpirun --oversubscribe \
        -n 1 -x ARFUSE_TEST_NODE=node0 -x CUDA_VISIBLE_DEVICES=0 "$tune" --device cuda --hidden 1024 "$@" : \
        -n 1 -x ARFUSE_TEST_NODE=node1 -x CUDA_VISIBLE_DEVICES=1 "$tune" --device cuda --hidden 1024 "$@" \
        >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}
tune_nodes() { # FOLDER: a short tune
    run_nodes --tokens 1 --protocols unfused --pattern allreduce --output "$work/$1"
}
# shellcheck disable=SC2317 # check calls it
header_says() { # FOLDER JQ: of the samples file's first line
    head -n 1 "$work/$1"/*/*.jsonl | jq -e "$2" >/dev/null
}

FAKECUDA_FABRIC=1 tune_nodes fabric
check "fabric handles: both ranks come to verification" \
    [ "$rc $(grep -c 'gives wrong results and is left out: rank 0: .*; rank 1: ' "$work/err" | sed 's/[1-9].*/some/')" = "5 some" ]
check "fabric handles: nothing goes unfused for want of memory" [ "$(grep -c 'by NCCL' "$work/err")" -eq 0 ]
check "fabric handles: two nodes on nvlink, and no word of NCCL" \
    header_says fabric '.device.nodes == 2 and .device.link == "nvlink" and has("library") == false'

NCCL_SOCKET_IFNAME=eth0 tune_nodes nccl
check "no fabric handles: all calls go by NCCL, with the reason" \
    grep -q '^arfuse-tune: all calls go unfused, by NCCL: .*the processes are on several nodes; by fabric handles: .*cuMemCreate' "$work/err"
check "no fabric handles: both ranks come to verification" \
    [ "$rc $(grep -c 'gives wrong results and is left out: rank 0: .*; rank 1: ' "$work/err" | sed 's/[1-9].*/some/')" = "5 some" ]
check "no fabric handles: NCCL, its version and settings are in the samples" \
    header_says nccl '.library == "NCCL 2.28.0, NCCL_SOCKET_IFNAME=eth0"'

FAKENCCL_VERSION=21000 tune_nodes none
check "neither: exit 4" [ "$rc" -eq 4 ]
check "neither: one message, which says why of both" \
    [ "$(grep -c '^arfuse-tune: ' "$work/err") $(grep -c 'several nodes.*; nor can NCCL reduce: .*version 21000' "$work/err")" = "1 1" ]

FAKECUDA_FABRIC=1 run_nodes --probe
check "probe of two nodes: buffers that travel between them, and nothing that stops a tune" \
    [ "$rc $(grep -cE '^buffers (ll|bt|ht|unfused) .*: ok in ' "$work/out") $(grep -c '^verdict nothing ' "$work/out")" = "0 4 1" ]
finish
