#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# scripts/commit-hook: a commit with an invalid profile does not happen.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    root=$PWD
    command -v git >/dev/null || skip "no git"
    export ARFUSE_PROFILE_PROGRAM=$root/${BUILD:-build}/arfuse-profile
    # a hook that runs these tests must not lend them its repository
    unset GIT_DIR GIT_INDEX_FILE GIT_WORK_TREE
    export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
    repository=$BATS_TEST_TMPDIR/repository
    git init -q "$repository" && cd "$repository" || exit 1
    ln -s "$root/scripts/commit-hook" .git/hooks/pre-commit
    good=$root/tests/fixtures/profiles/good/measured.json
    bad=$root/tests/fixtures/profiles/bad/tp_size_0.json
    mkdir -p profiles/here "odd name"
}

@test "valid profiles and other files are committed" {
    cp "$good" profiles/here/a.json
    cp "$good" "odd name/b c.json"
    echo '{}' >settings.json
    mkdir profiles/schema && echo '{}' >profiles/schema/s.json
    git add -A
    run git commit -qm one
    echo "$output"
    [ "$status" = 0 ]
    [ -z "$output" ]
    [ "$(git rev-list --count HEAD)" = 1 ]
}

@test "an invalid one is refused by path, and nothing is committed" {
    cp "$good" profiles/here/a.json
    cp "$bad" "odd name/b c.json"
    git add -A
    run git commit -qm one
    [ "$status" != 0 ]
    [[ $output == *"arfuse-profile: odd name/b c.json: "*"tp_size"* ]]
    [[ $output == *"commit-hook: nothing was committed"* ]]
    run git rev-parse HEAD
    [ "$status" != 0 ]
    # below profiles/ any JSON has to be one, also without its first member
    rm -r "odd name" && echo '{ "shape": {} }' >profiles/here/c.json
    git add -A
    run git commit -qm one
    [ "$status" != 0 ]
    [[ $output == *"profiles/here/c.json"* ]]
}

@test "what is staged counts, not what lies in the working tree" {
    cp "$bad" profiles/here/a.json
    git add -A
    cp "$good" profiles/here/a.json # mended, but not staged
    run git commit -qm one
    [ "$status" != 0 ]
    git add -A
    cp "$bad" profiles/here/a.json # broken again, but not staged
    run git commit -qm one
    [ "$status" = 0 ]
    git reset -q --hard
    # a profile that goes away is not judged
    git rm -q profiles/here/a.json
    run git commit -qm two
    [ "$status" = 0 ]
}

@test "without the program it says how to get it, and commits nothing" {
    cp "$good" profiles/here/a.json
    git add -A
    mkdir "$BATS_TEST_TMPDIR/bin"
    for tool in git bash grep env; do ln -s "$(command -v $tool)" "$BATS_TEST_TMPDIR/bin/$tool"; done
    unset ARFUSE_PROFILE_PROGRAM
    PATH=$BATS_TEST_TMPDIR/bin run git commit -qm one
    echo "$output"
    [ "$status" != 0 ]
    [[ $output == *"no arfuse-profile to check staged profiles with"* ]]
}

@test "the Slurm example refuses what is no domain, before it starts anything" {
    cd "$root"
    bash -n scripts/slurm-example
    for ranks in "16 8" "4 4" "80 80"; do
        read -r tp tasks <<<"$ranks"
        run env TP="$tp" SLURM_NTASKS="$tasks" SLURM_SUBMIT_DIR="$BATS_TEST_TMPDIR" PATH=/nonexistent /bin/bash scripts/slurm-example
        [ "$status" = 2 ]
        [[ $output == "slurm-example: TP=$tp"* ]]
    done
    # what it would run, with srun standing in
    mkdir -p "$BATS_TEST_TMPDIR/bin"
    printf '#!/bin/sh\necho "srun $* HIDDEN=$HIDDEN TP=$TP"\n' >"$BATS_TEST_TMPDIR/bin/srun"
    chmod +x "$BATS_TEST_TMPDIR/bin/srun"
    mkdir -p "$BATS_TEST_TMPDIR/profiles"
    PATH=$BATS_TEST_TMPDIR/bin:$PATH SLURM_NTASKS=8 SLURM_SUBMIT_DIR=$BATS_TEST_TMPDIR HIDDEN=8192 run scripts/slurm-example
    echo "$output"
    [ "$status" = 0 ]
    [[ $output == *"arfuse-tune --tp 8 --probe"*"arfuse-tune --hidden 8192 --topk 10 --tp 8 --budget 1200 --output $BATS_TEST_TMPDIR/profiles HIDDEN=8192 TP=8"* ]]
    # the options that it uses are there
    help=$("${BUILD:-build}/arfuse-tune" --help)
    for option in $(grep -oE -- ' --(tp|probe|hidden|topk|budget|output|resume)\b' scripts/slurm-example | sort -u); do
        [[ $help == *"$option"* ]]
    done
}
