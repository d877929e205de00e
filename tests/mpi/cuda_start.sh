#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# arfuse-tune on machines that a stand-in for libcuda plays: what --probe says, and what is refused
# before anything starts.
# shellcheck disable=SC2154 # work and rc come from tune.bash
set -u
. tests/support/tune.bash

use_standins

FAKECUDA_DEVICES=1 run_tune 8 --hidden 6144 --topk 10 --device cuda
check "eight ranks on one GPU: exit 4" [ "$rc" -eq 4 ]
check "eight ranks on one GPU: one message" [ "$(grep -c '^arfuse-tune: ' "$work/err")" -eq 1 ]
check "eight ranks on one GPU: within 10 s" [ "$took" -lt 10000 ]
check "eight ranks on one GPU: ranks, GPU, and a command" \
    grep -q 'ranks 0-7 on GPU-.*mpirun -n 1 arfuse-tune --hidden 6144 --topk 10 --device cuda --tp 8 --gpu-sharing' "$work/err"
command=$(sed -n 's/.*mpirun -n 1 arfuse-tune //p' "$work/err")
# shellcheck disable=SC2086 # words of a command line
FAKECUDA_DEVICES=1 run_tune 1 $command --dry-run
check "eight ranks on one GPU: the command works" \
    grep -q '^placement 8 ranks on 1 process, 8 each, device NVIDIA Stand-in (9.0, 132 SMs) on shared-gpu$' "$work/out"

FAKECUDA_DEVICES=1 run_tune 2 --gpu-sharing --hidden 6144 --topk 10 --device cuda --output "$work"
check "processes that share a GPU without MPS: exit 4" [ "$rc" -eq 4 ]
check "processes that share a GPU without MPS: times are refused, with the reason" \
    grep -q '^arfuse-tune: times are refused: 2 processes share a GPU without CUDA MPS' "$work/err"
FAKECUDA_DEVICES=1 FAKECUDA_MPS=1 run_tune 2 --gpu-sharing --hidden 6144 --topk 10 --device cuda --output "$work"
check "processes under MPS without a limit: exit 4" [ "$rc" -eq 4 ]
check "processes under MPS without a limit: which limit" \
    grep -q 'set CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50' "$work/err"

# A dry run by the processes of a run, and of one process for all ranks.
FAKECUDA_DEVICES=8 run_tune 8 --hidden 1024 --device cuda --dry-run
check "a dry run of eight processes on eight GPUs: as the run itself, told once" \
    [ "$rc $(grep -c '^placement 8 ranks on 8 processes, device NVIDIA Stand-in (9.0, 132 SMs) on nvlink$' "$work/out")" = "0 1" ]
FAKECUDA_DEVICES=4 run_tune 8 --hidden 1024 --device cuda --dry-run
check "a dry run of eight processes on four GPUs: exit 4, one message with ranks and GPUs" \
    [ "$rc $(grep -c '^arfuse-tune: ' "$work/err") $(grep -c '8 ranks on 4 GPUs: ranks 0,4 on GPU-.*, ranks 3,7 on GPU-' "$work/err")" = "4 1 1" ]

# The limit as the documentation of MPS rounds it (up), whether or not the driver counts it in where it tells the SMs.
limited() { # PROCESSES PERCENT SMS-TOLD ARGS...
    FAKECUDA_DEVICES=1 FAKECUDA_MPS=1 FAKECUDA_SMS=$3 FAKENVML_SMS=132 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$2 \
        LD_LIBRARY_PATH=$PWD/$BUILD/tests/fakenvml:$LD_LIBRARY_PATH run_tune "$1" --gpu-sharing --device cuda \
        --hidden 1024 --tokens 1 --pattern allreduce --protocols unfused --output "$work" "${@:4}"
}
for told in 34 132; do
    limited 4 25 $told
    check "four processes at 25 %, $told SMs told: exit 4, and what would do" \
        [ "$rc $(grep -c 'may use 136 SMs together, while it has 132: .*PERCENTAGE=24 (or less)' "$work/err")" = "4 1" ]
done
for told in 66 132; do
    limited 2 50 $told
    # The stand-in's kernels do nothing: a tune ends with all candidates left out, after a team has started.
    check "two processes at 50 %, $told SMs told: a team of 66 SMs each comes to verification" \
        [ "$rc $(grep -c ', 66 SMs) on shared-gpu, 2 ranks on 2 processes' "$work/err") $(grep -c 'wrong results.*rank 0: .*rank 1: ' "$work/err" | sed 's/[1-9].*/some/')" = "5 1 some" ]
done

# ---- NCCL takes one rank a GPU ------------------------------------------------------------------

dry() { # ARGS...
    "$tune" --dry-run --device cuda --hidden 1024 --numerics any --protocols unfused "$@" >"$work/out" 2>"$work/err"
    rc=$?
}
FAKECUDA_DEVICES=1 dry --tp 2 --gpu-sharing
check "the library's sums on a shared GPU: a dry run refuses them with the reason" \
    grep -qx 'refused unfused allreduce numerics=library: 2 ranks share a GPU, and NCCL takes one rank a GPU: .*' "$work/out"
check "the library's sums on a shared GPU: no candidate, and no failure" \
    [ "$rc $(grep -c '^candidate .*numerics=library' "$work/out") $(grep -c '^candidate unfused' "$work/out" | sed 's/[1-9].*/some/')" = "0 0 some" ]
FAKECUDA_DEVICES=1 dry --tp 1
check "the library's sums on a GPU of one's own: candidates" \
    [ "$(grep -c '^candidate unfused allreduce numerics=library rms_threads=' "$work/out")" -gt 0 ]

# Nor does the stand-in sum anything: what the library's sums are held to is in the refusal.
FAKECUDA_DEVICES=2 run_tune 2 --device cuda --hidden 1024 --numerics any --protocols unfused --tokens 1 --output "$work"
check "a sum of the library that is none: refused, as one in any order" \
    [ "$rc $(grep -c 'unfused numerics=library .*gives wrong results .*: rank 0: .*, in any order' "$work/err" | sed 's/[1-9].*/some/')" = "5 some" ]
check "what is not of the library beside it: refused, to the bit" \
    [ "$(grep 'unfused rms_threads=.*gives wrong results' "$work/err" | grep -c 'in any order')" -eq 0 ]

FAKECUDA_DEVICES=2 run_tune 2 --probe --device cuda
check "probe of two GPUs: exit 0" [ "$rc" -eq 0 ]
check "probe of two GPUs: both, links, trials" \
    [ "$(grep -cE '^(gpu [01] |link [01]->[01] nvlink|trial fd [01] made|trial fabric [01] refused|visible 2 GPUs)' "$work/out")" -eq 9 ]
check "probe of two GPUs: buffers with what whole granules take" \
    grep -q '^buffers ll for 64 tokens, 4718592 bytes a rank (6291456 taken: whole granules, control block): ok in ' "$work/out"
check "probe of two GPUs: bandwidth and the way of a flag, of each directed pair" \
    [ "$(grep -cE '^link (0->1|1->0) nvlink, [0-9]+ GB/s one way, a flag 0.75 us$' "$work/out")" -eq 2 ]
FAKECUDA_DEVICES=2 FAKECUDA_NO_FLAG=1 run_tune 2 --probe --device cuda
check "probe where no flag arrives: said, and it goes on" \
    [ "$(grep -cE '^link (0->1|1->0) .* a flag not measured: no flag came back within 0.2 s$' "$work/out")" -eq 2 ]
FAKECUDA_DEVICES=2 run_tune 2 --probe --device cuda --format jsonl
check "probe as JSON: every line an object, the verdict last" python3 -c "
import json
rows = [json.loads(line) for line in open('$work/out')]
assert rows[-1]['topic'] == 'verdict' and 'nothing' in rows[-1]['value'], rows[-1]
assert all(set(row) == {'topic', 'item', 'value'} for row in rows)"
FAKECUDA_DEVICES=2 FAKECUDA_NO_PEER=0-1 run_tune 2 --probe --device cuda
check "probe where a pair has no peer access: exit 4" [ "$rc" -eq 4 ]
check "probe where a pair has no peer access: no flag is sent" [ "$(grep -c '^link .* a flag' "$work/out")" -eq 0 ]
check "probe where a pair has no peer access: what stops a tune is the verdict" \
    grep -q '^verdict no peer access between 1 of 2 directed pairs of processes: 0->1 (GPU-' "$work/out"
finish
