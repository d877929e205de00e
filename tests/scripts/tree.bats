#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The rules of the tree that a reader would otherwise have to trust: who may include what, licence
# heads, names that a commit must not hold.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
}

# layer -> the folders it may include besides its own
may_include() {
    case $1 in
    base) echo '' ;;
    rules) echo 'base' ;;
    profile) echo 'base rules' ;;
    fit) echo 'base rules profile' ;;
    device) echo 'base rules profile kernels' ;;
    runtime) echo 'base rules profile device' ;;
    tune) echo 'base rules profile fit device' ;;
    cli) echo 'base rules profile fit' ;;
    *) echo "no rule for layer $1" ;;
    esac
}

@test "layers include only what lies below them" {
    bad=''
    for layer in src/*/; do
        layer=$(basename "$layer")
        case $layer in examples | man) continue ;; esac
        allowed=" $(may_include "$layer") $layer "
        while IFS=: read -r file include; do
            case $allowed in *" ${include%%/*} "*) ;; *) bad+="$file includes $include"$'\n' ;; esac
        done < <(grep -roHE '#include "[a-z]+/[^"]+"' "src/$layer" |
            sed -E 's/#include "([^"]+)"/\1/')
    done
    echo "$bad"
    [ -z "$bad" ]
}

@test "only the group file includes mpi.h" {
    run grep -rlE '#include [<"]mpi.h' src --include='*.[ch]' --exclude-dir=examples
    [ "$output" = src/tune/group.c ] || [ -z "$output" ]
}

@test "only the strict layer includes cJSON" {
    run grep -rlE '#include [<"].*cJSON' src
    [ "$output" = src/base/json.c ]
}

@test "only the CUDA device includes CUDA headers" {
    run bash -c "grep -rlE '#include [<\"](cuda|nvrtc|nccl|nvml)' src | grep -v '^src/device/cuda/'"
    echo "$output"
    [ -z "$output" ]
}

@test "asm and PTX live in the primitives header alone" {
    run bash -c "grep -lE '\basm\b' kernels/*.cu kernels/*.cuh 2>/dev/null | grep -v primitives.cuh"
    echo "$output"
    [ -z "$output" ]
}

@test "every source file has a licence head" {
    bad=''
    while read -r file; do
        case $file in */schema/* | tests/fixtures/* | *.json | *.jsonl | *.csv | *.md) continue ;; esac
        head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || bad+="$file "
    done < <(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.sh' '*.bats' '*.py' Makefile scripts)
    echo "$bad"
    [ -z "$bad" ]
}

@test "every folder of the project has a README" {
    bad=''
    for folder in src src/*/ kernels profiles scripts tests; do
        [ -z "$(git ls-files "$folder")" ] || [ -e "$folder/README.md" ] || bad+="$folder "
    done
    echo "$bad"
    [ -z "$bad" ]
}

@test "shell scripts pass shellcheck" {
    shell=$(git ls-files scripts tests .ci | xargs grep -lE '^#!.*\b(bash|sh)$')
    # shellcheck disable=SC2086
    shellcheck $shell
}

@test "no line of a bats test passes whatever it finds" {
    # bash ends a test neither at a command behind "!" nor at one before "&&".
    run bash -c "git ls-files '*.bats' | xargs grep -nE '^ *(! |(\[ |\[\[ |run |grep |cmp ).* && )' | grep -vE '\|\||\[\[ [^]]* && [^]]*\]\]'"
    echo "$output"
    [ "$status" -eq 1 ]
}
