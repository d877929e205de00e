#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# arfuse-profile retarget, and check over everything that is shipped.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    program=${BUILD:-build}/arfuse-profile
    from=profiles/published/flashinfer/default/tp8_h8192_k10_bf16.json
}

split() {
    out=$("$program" "$@" 2>"$BATS_TEST_TMPDIR/err") && code=0 || code=$?
    err=$(cat "$BATS_TEST_TMPDIR/err")
}

# "512x2 512x2": the HT splits of a profile's routes
splits() {
    jq -r '[.routes[][] | select(.protocol == "ht") | .tuning
            | "\(.consumer_threads)x\(.vectors_per_thread)"] | join(" ")' <<<"$out"
}

@test "check takes every shipped profile" {
    mapfile -t files < <(find profiles -name '*.json' -not -path '*/schema/*')
    [ "${#files[@]}" -ge 50 ]
    split check "${files[@]}"
    echo "$err"
    [ "$code" = 0 ]
    [ "$(wc -l <<<"$out")" = "${#files[@]}" ]
}

@test "a shape to itself changes no bound and no tuning but what was open or null" {
    split retarget "$from" --hidden 8192
    [ "$code" = 0 ]
    [ -z "$err" ]
    open='.routes | map_values(map(.max_tokens |= (. // 8192)
          | .tuning |= (if has("persistent_ctas")
                        then .persistent_ctas //= 152 | .reduction_cta_groups //= 19
                        else . end)))'
    [ "$(jq -S "$open" "$from")" = "$(jq -S .routes <<<"$out")" ]
    [ "$(jq -r .evidence.method <<<"$out")" = retargeted ]
    # Retargeting the result again changes nothing at all.
    "$program" retarget "$from" --hidden 8192 -o "$BATS_TEST_TMPDIR/once.json"
    split retarget "$BATS_TEST_TMPDIR/once.json" --hidden 8192
    [ "$(jq .routes "$BATS_TEST_TMPDIR/once.json")" = "$(jq .routes <<<"$out")" ]
}

@test "splits are the published ones, and HT is where it is reachable" {
    while read -r hidden want; do
        split retarget "$from" --hidden "$hidden"
        [ "$code" = 0 ]
        echo "$hidden: $(splits)"
        [ "$(splits)" = "${want#-}" ]
        [ "$(jq -r '.routes[] | .[-1].max_tokens' <<<"$out" | sort -u)" = 8192 ]
        [ "$(jq -r '.routes[] | .[-1].protocol' <<<"$out" | sort -u)" = "$([ "$want" = - ] && echo bt || echo ht)" ]
        echo "$out" >"$BATS_TEST_TMPDIR/made.json"
        "$program" check "$BATS_TEST_TMPDIR/made.json"
    done <<'LIST'
6144 384x2 384x2
5120 -
4096 256x2 256x2
16384 512x4 512x4
2880 -
LIST
}

@test "what is lost is said, on stderr and in the file" {
    split retarget "$from" --hidden 2880
    [ "$code" = 0 ]
    [[ $err == "arfuse-profile: $from: note: allreduce: ht dropped: "*"360 packs of a token"* ]]
    [ "$(jq '.evidence.notes | length' <<<"$out")" = 2 ]
    [ "$(jq -r .evidence.retargeted_from <<<"$out")" = "$from" ]
    [[ $(jq -r .evidence.retargeted_digest <<<"$out") =~ ^[0-9a-f]{16}$ ]]
}

@test "rule v1 gives a profile up by name, rule v2 keeps the bounds" {
    split retarget "$from" --hidden 3584 --tp 2 --rule v1
    [ "$code" = 3 ]
    [ -z "$out" ]
    [[ $err == *"a norm group of 112 threads is not whole warps" ]]
    split retarget "$from" --hidden 6144 --topk 8 --rule v2
    [ "$code" = 0 ]
    [ "$(jq -c '[.routes.finalize[].max_tokens]' <<<"$out")" = '[23,48,703,8192]' ]
}

@test "another profile is not written over, the same key is" {
    made=$BATS_TEST_TMPDIR/made.json
    split retarget "$from" --hidden 4096 -o "$made"
    [ "$code" = 0 ]
    [ -z "$out" ]
    split retarget "$from" --hidden 4096 --capacity 4096 -o "$made"
    [ "$code" = 0 ]
    [ "$(jq '.routes.finalize[-1].max_tokens' "$made")" = 4096 ]
    split retarget "$from" --hidden 6144 -o "$made"
    [ "$code" = 3 ]
    [[ $err == *"hidden_size 4096"* ]]
    [ "$(jq '.shape.hidden_size' "$made")" = 4096 ]
}

@test "usage errors are exit 2" {
    for arguments in "$from" "--hidden 8192" "$from --hidden 6143" "$from --hidden 0" "$from --hidden abc" \
        "$from --tp 73" "$from --topk -1" "$from --hidden 8 --rule v9" "$from $from --hidden 8192"; do
        # shellcheck disable=SC2086
        split retarget $arguments
        echo "$arguments: $code: $err"
        [ "$code" = 2 ]
        [ -z "$out" ]
        [[ $err == "arfuse-profile: "* ]]
    done
}

@test "a dense target has no finalize, a source without routes for a pattern is refused" {
    split retarget "$from" --topk 0
    [ "$code" = 0 ]
    [ "$(jq -c .routes.finalize <<<"$out")" = '[]' ]
    split retarget profiles/published/tokenspeed/k3-first-half/tp8_h3584_k16_bf16_noresidual_noshared.json --tp 4
    [ "$code" = 3 ]
    [[ $err == *"the source has no routes for allreduce" ]]
}
