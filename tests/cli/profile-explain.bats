#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# show and explain: what they say of routes, at and around every bound.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    program=${BUILD:-build}/arfuse-profile
    good=tests/fixtures/profiles/good
}

# explain TOKENS PATTERN FILE -> the first route line
route() {
    "$program" explain --tokens "$1" --pattern "$2" "$good/$3.json" | grep -m1 '^  route' |
        sed 's/^  route   //'
}

@test "show prints both tables in words" {
    run "$program" show "$good/measured.json"
    [ "$status" = 0 ]
    [[ $output == *"tp_size 8, hidden_size 6144, top_k 10, bf16, rms_norm, residual, shared_expert on NVIDIA B300 (10.3, 148 SMs, nvlink, 1 node, 1 rank a GPU)"* ]]
    [[ $output == *"fixed: the same bits whichever route runs"* ]]
    [[ $output == *"allreduce: all-reduce + residual + RMSNorm"* ]]
    [[ $output == *"finalize: MoE finalize + shared expert + all-reduce + residual + RMSNorm"* ]]
    grep -qE '^  1-12 +ll \(low latency\)  \[bound in 12-13\]  \[next bt, \+4 % at the nearest measured point\]$' <<<"$output"
    grep -qE '^  401-1024 +separate finalize, then the allreduce route$' <<<"$output"
    grep -qE '^  more +unfused \(separate kernels\): above the last bound$' <<<"$output"
    [[ $output == *"collect_cluster=6"* ]]
}

@test "show says what is off, open or not known" {
    run "$program" show "$good/switches_off.json"
    [[ $output == *"allreduce: all-reduce"$'\n'* ]]
    [[ $output == *"finalize: MoE finalize + all-reduce"$'\n'* ]]
    run "$program" show "$good/published.json"
    [[ $output == *"variant HT_ONLY_CONFIG"* ]]
    [[ $output == *"all-reduce + residual (+ RMSNorm)"* ]]
    [[ $output == *"fewer "*"not served by this profile"* ]]
    [[ $output == *"5-23 "*"ll (low latency), multicast-store, numerics library"* ]]
    [[ $output == *"tuning not known"* ]]
    [[ $output == *"24 and more "*"ht (high throughput)"* ]]
    [ "$(grep -c '^  more ' <<<"$output")" = 0 ]
    run "$program" show "$good/dense.json"
    [[ $output == *"no routes: a dense model"* ]]
}

@test "show and explain give the mixed segment and both policies" {
    run "$program" show "$good/both_policies.json"
    [[ $output == *"mixed     allreduce: 11.48 us a call, +1.3 % (+0.4 to +2.1) against each alone, at 3,190,12,1,44,7,256,90 in turn"$'\n'* ]]
    [[ $output == *"mixed     finalize: 5.50 us a call, -0.2 % (-1.0 to +0.6) against each alone, at 2,1 in turn"$'\n'* ]]
    grep -qE '^  1-12 +ll .*  \[warm 4.21 us, decode 5.83 us \(\+38.5 %\) at 3 tokens\]$' <<<"$output"
    [ "$(grep -c 'warm .* decode ' <<<"$output")" = 2 ] # of the routes that were timed
    run "$program" explain --tokens 5 --pattern allreduce "$good/both_policies.json"
    [ "$(grep -c '^  shift   warm 4.21 us, decode 5.83 us (+38.5 %) at 3 tokens$' <<<"$output")" = 1 ]
    run "$program" explain --tokens 5 --pattern finalize "$good/both_policies.json"
    [[ $output != *"shift"* ]]
    run "$program" show "$good/measured.json"
    [[ $output != *"mixed"* && $output != *"decode"* ]]
}

@test "explain says how far an open bound reaches" {
    run "$program" explain --tokens 24 --pattern allreduce "$good/published.json"
    [[ $output == *"routes.allreduce[1] serves 24 tokens and more: its bound is open"* ]]
}

@test "explain changes its answer exactly at the bounds" {
    [ "$(route 1 allreduce measured)" = 'll (low latency)' ]
    [ "$(route 12 allreduce measured)" = 'll (low latency)' ]
    [ "$(route 13 allreduce measured)" = 'bt (balanced)' ]
    [ "$(route 1024 allreduce measured)" = 'bt (balanced)' ]
    [ "$(route 1025 allreduce measured)" = 'ht (high throughput)' ]
    [ "$(route 8192 allreduce measured)" = 'ht (high throughput)' ]
    [ "$(route 8193 allreduce measured)" = 'unfused (separate kernels)' ]
    [ "$(route 400 finalize measured)" = 'bt (balanced)' ]
    [ "$(route 401 finalize measured)" = 'separate finalize, then the allreduce route' ]
    [ "$(route 9223372036854775807 finalize measured)" = 'unfused (separate kernels)' ]
}

@test "explain says where no route is used, and why" {
    run "$program" explain --tokens 0 "$good/measured.json"
    [[ $output == *"none: no tokens, nothing to do but keep the ranks in step"* ]]
    run "$program" explain --tokens 8193 --pattern allreduce "$good/measured.json"
    [[ $output == *"8193 is above 8192, the last bound; nothing larger was measured"* ]]
    run "$program" explain --tokens 8193 --pattern allreduce "$good/default.json"
    [[ $output == *"8193 is above 8192, the last bound"* && $output != *"measured"* ]]
    run "$program" explain --tokens 4 --pattern allreduce "$good/published.json"
    [[ $output == *"4 is below 5, where the profile begins"* ]]
    run "$program" explain --tokens 4 --pattern finalize "$good/published.json"
    [[ $output == *"the profile has no route for this pattern"* ]]
    run "$program" explain --tokens 4 --pattern finalize "$good/dense.json"
    [[ $output == *"top_k is 0, a dense model has nothing to finalize"* ]]
    [ "$(route 1000000 allreduce published)" = 'ht (high throughput), multicast-store, numerics in-network' ]
}

@test "explain names file, route, reason and evidence; both patterns unless one is asked for" {
    run "$program" explain --tokens 500 "$good/measured.json"
    [ "$status" = 0 ]
    [ "$(grep -c '^allreduce, 500 tokens$' <<<"$output")" = 1 ]
    [ "$(grep -c '^finalize, 500 tokens$' <<<"$output")" = 1 ]
    [ "$(grep -c '^then allreduce, 500 tokens$' <<<"$output")" = 1 ]
    [[ $output == *"file    $good/measured.json"* ]]
    [[ $output == *"routes.allreduce[1] serves 13-1024 tokens: the first whose bound is at least 500"* ]]
    [[ $output == *"measured to lie from 1000 to 1024"* ]]
    [[ $output == *"ht, +1 % at the nearest measured point"* ]]
    run "$program" explain --tokens 500 --pattern allreduce "$good/measured.json"
    [[ $output != *"finalize"* ]]
    run "$program" explain --tokens 5000 --pattern allreduce "$good/measured.json"
    [[ $output == *"bound   the largest token count that was measured"* ]]
}
