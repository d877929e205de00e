#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# scripts/gpu-acceptance without a GPU: refusals, the rehearsal, and with stand-ins for programs and
# GPUs, which steps run with which arguments, what a failing and a hanging step do.
# shellcheck disable=SC2154,SC2016 # status, output and lines are bats'; stand-ins expand their own

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || return
    stand=$BATS_TEST_TMPDIR/build
    mkdir -p "$stand/tests" "$stand/examples" "$BATS_TEST_TMPDIR/bin"
    for program in host_test soak_test host_failure_test gpu_protocols_test gpu_workspace_test \
        gpu_runtime_test gpu_skew_test gpu_soak_test gpu_faults_test gpu_processes_test gpu_late_test gpu_library_test \
        gpu_bench compile_bench forked_tune; do
        program "tests/$program" 'echo "ok 1 - fine"; echo "1..1"'
    done
    for program in three_layers decode_loop; do
        program "examples/$program" 'echo right'
    done
    program arfuse-profile 'echo "$2: ok"'
    # A tune writes profiles; a check accepts these as they were.
    program arfuse-tune 'while [ $# -gt 0 ]; do
        case $1 in
        --output) mkdir -p "$2/gpu" && cp '"$PWD"'/profiles/nvidia-h200-shared-gpu/*.json "$2/gpu" ;;
        --check)
            for written in '"$PWD"'/profiles/nvidia-h200-shared-gpu/*.json; do cmp -s "$2" "$written" && exit 0; done
            exit 8 ;;
        esac
        shift
    done; echo done'
}

program() { # NAME BODY: a stand-in that logs how it was called
    printf '#!/bin/bash\necho "$(basename "$0") $*" >>%s\n%s\n' "$BATS_TEST_TMPDIR/calls" "$2" >"$stand/$1"
    chmod +x "$stand/$1"
}
gpus() { # COUNT
    printf '#!/bin/bash\n[ "$1" != -L ] || seq -f "GPU %%g: NVIDIA H200 (UUID: GPU-0)" %d\n' "$1" >"$BATS_TEST_TMPDIR/bin/nvidia-smi"
    printf '#!/bin/bash\necho "mpirun $*" >>%s\nshift 2\nexec "$@"\n' "$BATS_TEST_TMPDIR/calls" >"$BATS_TEST_TMPDIR/bin/mpirun"
    chmod +x "$BATS_TEST_TMPDIR/bin/"*
    export PATH=$BATS_TEST_TMPDIR/bin:$PATH
}
accept() { run scripts/gpu-acceptance --build "$stand" --output "$BATS_TEST_TMPDIR/out" "$@"; }
not_called() { ! called "$1"; }
called() { grep -qE -- "$1" "$BATS_TEST_TMPDIR/calls"; }
inside() { tar -xzOf "$BATS_TEST_TMPDIR/out/gpu-acceptance.tar.gz" "gpu-acceptance/$1"; }

@test "without a GPU: exit 4 at once, and what works" {
    [ ! -e /dev/nvidia0 ] || skip "there is a GPU here"
    accept
    [ "$status" -eq 4 ]
    [[ $output == *"no NVIDIA GPU here; --rehearse"* ]]
    [ ! -e "$BATS_TEST_TMPDIR/out" ]
}

@test "wrong arguments: exit 2" {
    for arguments in --what --build '--seconds x' '--limit'; do
        # shellcheck disable=SC2086
        run scripts/gpu-acceptance $arguments
        [ "$status" -eq 2 ]
    done
}

@test "one GPU: eight ranks of one process share it, every step runs" {
    gpus 1
    accept
    echo "$output"
    [ "$status" -eq 0 ]
    called '^arfuse-tune --device cuda --tp 8 --gpu-sharing --hidden 6144 --topk 10 --budget 90 '
    called '^arfuse-tune .*--check .*/edited.json'
    [[ $output =~ edited-bound\ +passed ]]
    called '^arfuse-tune .*--ab .*,default'
    called '^arfuse-tune .*--ab .*,unfused'
    called '^gpu_soak_test --seconds 5$'
    called '^gpu_late_test $'
    called '^gpu_processes_test --ranks 4 --only bits,stress '
    called '^gpu_library_test --ranks 1$'
    called '^gpu_bench --device cuda --tp 8 --gpu-sharing --hidden 6144 --topk 10 --profile .*\.json --seconds '
    not_called '^mpirun'
    [ "$(inside summary.txt | grep -c ' passed ')" -eq 21 ]
    [ "$(find "$BATS_TEST_TMPDIR/out" -type f | wc -l)" -eq 1 ]
    inside profiles/gpu/tp8_h6144_k8_bf16.json | grep -q '"routes"'
    inside tables/tune.txt | grep -q 'done'
}

@test "several GPUs: one process a rank" {
    gpus 4
    accept --hidden 4096 --topk 8
    echo "$output"
    [ "$status" -eq 0 ]
    called '^mpirun -n 4 .*/arfuse-tune --device cuda --tp 4 --hidden 4096 --topk 8'
    called '^gpu_processes_test --spread --ranks 4 --only bits,times,failures$'
    called '^gpu_processes_test --spread --ranks 4 --local 2 --only bits$'
    called '^gpu_processes_test --spread --ranks 4 --only paused,stopped,dead$'
    called '^gpu_processes_test --spread --ranks 4 --only stress --stress-calls 1000000$'
    called '^mpirun -n 4 .*/arfuse-tune --device cuda --tp 8 --gpu-sharing .*--tokens 1,8,64,512 '
    called '^gpu_late_test --spread --ranks 4$'
    called '^gpu_library_test --ranks 4$'
    called '^gpu_bench --device cuda --tp 4 --processes 4 --hidden 4096 --topk 8 --profile .*\.json '
    not_called '--tp 4 .*gpu-sharing'
    [ "$(inside summary.txt | grep -c ' passed ')" -eq 24 ]
}

@test "several GPUs and no launcher: the tuner forks its processes" {
    gpus 2
    rm "$BATS_TEST_TMPDIR/bin/mpirun"
    mkdir "$BATS_TEST_TMPDIR/tools"
    for tool in bash env dirname cat date mktemp mkdir rm grep sed awk tail cut tr tee timeout find nproc uname git tar \
        id wc cp basename seq; do
        ln -s "$(command -v "$tool")" "$BATS_TEST_TMPDIR/tools"
    done
    PATH=$BATS_TEST_TMPDIR/bin:$BATS_TEST_TMPDIR/tools accept --only probe,team-verify,tune,check
    echo "$output"
    called '^forked_tune 2 --device cuda --tp 2 --probe '
    called '^forked_tune 2 --device cuda --tp 4 --gpu-sharing '
    called '^forked_tune 2 --device cuda --tp 2 --hidden 6144 --topk 10 --budget 90 '
    not_called '^arfuse-tune'
}

@test "chosen steps alone: by beginnings of names, and no table of the others" {
    gpus 2
    accept --only probe,team-bits,compile
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(inside summary.txt | grep -c ' passed ')" -eq 4 ]
    [ "$(wc -l <"$BATS_TEST_TMPDIR/calls")" -eq 5 ] # mpirun and what it starts
    [ "$(tar -tzf "$BATS_TEST_TMPDIR/out/gpu-acceptance.tar.gz" | grep -c 'tables/.')" -eq 1 ]
}

@test "a step that fails and one that hangs: the others run, exit 1, the archive is there" {
    program tests/host_test 'echo "ok 1 - a"; echo "not ok 2 - b"; echo "1..2"; exit 1'
    program tests/soak_test 'exec sleep 60'
    accept --rehearse --limit 2
    echo "$output"
    [ "$status" -eq 1 ]
    [[ $(inside summary.txt) =~ bits\ +FAILED.*exit\ 1:\ 1\ ok,\ 1\ not\ ok ]]
    [[ $(inside summary.txt) =~ stress\ +FAILED.*stopped\ after\ 2\ s ]]
    [[ $(inside summary.txt) =~ ab-unfused\ +passed ]]
    inside logs/bits.log | grep -q 'not ok 2 - b'
    [[ ${lines[-1]} == "2 failed, "* ]]
}

@test "when the time is spent, what is left out is said" {
    program tests/host_test 'exec sleep 60'
    accept --rehearse --seconds 2
    [ "$status" -eq 1 ]
    [[ $(inside summary.txt) =~ tune\ +no\ time ]]
    not_called '^arfuse-tune .*--budget'
}

@test "a tune without a profile: what needs one fails by name" {
    program arfuse-tune 'case $* in *--output*) exit 1 ;; *none*) echo "none: no such file" >&2; exit 3 ;; esac'
    accept --rehearse
    [ "$status" -eq 1 ]
    [[ $(inside summary.txt) =~ check\ +FAILED.*exit\ 3:\ none ]]
}

@test "the rehearsal, with the real programs" {
    run scripts/gpu-acceptance --rehearse --build "${BUILD:-build}" --output "$BATS_TEST_TMPDIR/out"
    echo "$output"
    [ "$status" -eq 0 ]
    inside tables/ab-unfused.md | grep -qE '^\| allreduce \| 8 \|'
    inside tables/check.txt | grep -q holds
    inside tables/benchmark.txt | grep -qE '^mark held +choosing a route'
    inside profiles/host-shm/tp2_h512_k2_bf16.samples.jsonl | grep -q '"us"'
}

@test "what is packed has its libraries" {
    [ -x "${BUILD:-build}/tests/compile_bench" ] || skip "the bench was not built"
    run scripts/gpu-acceptance --build "${BUILD:-build}" --pack "$BATS_TEST_TMPDIR/pack"
    [ "$status" -eq 0 ]
    [ -x "$BATS_TEST_TMPDIR/pack/tests/gpu_protocols_test" ]
    [ -e "$BATS_TEST_TMPDIR/pack/libmpi.so.40" ] || [ -n "$(find "$BATS_TEST_TMPDIR/pack" -name 'libmpi*')" ]
    [ "$(du -sm "$BATS_TEST_TMPDIR/pack" | cut -f 1)" -le 64 ]
}
