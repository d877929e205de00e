#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions that check calls
# --check, --ab and --probe: a fresh profile holds, an edited one does not, ratios and refusals.
set -u
. tests/support/tune.bash
faults=$PWD/tests/fixtures/model
profile=$work/p/model-model/tp4_h6144_k10_bf16.json
run_tune 2 --tp 4 --hidden 6144 --topk 10 --device model:default --output "$work/p"
check "a profile to compare with" [ "$rc" -eq 0 ]

run_tune 2 --tp 4 --check "$profile" --device model:default
check "a fresh profile holds: exit 0" [ "$rc" -eq 0 ]
check "a fresh profile holds: said so" says "holds here"
check "a fresh profile holds: by which rule" says "the low end of a loss's 95 % interval decides"
check "a fresh profile holds: what the columns are" grep -q "^loss: median of .*paired.*--max-regret" "$work/out"
check "every bound is looked at" [ "$(grep -cE '^  (allreduce|finalize) ' "$work/out")" -ge 6 ]
run_tune 2 --tp 4 --check "$profile" --device model:default,seed=5
check "and under other noise" [ "$rc" -eq 0 ]

# The bound of LL moved to eight times what it is, below that of BT.
python3 - "$profile" "$work/edited.json" <<'END'
import re, sys
text = open(sys.argv[1]).read()
bound = int(re.search(r'"max_tokens": (\d+), "protocol": "ll"', text).group(1))
open(sys.argv[2], 'w').write(text.replace(f'"max_tokens": {bound}, "protocol": "ll"',
                                          f'"max_tokens": {8 * bound}, "protocol": "ll"', 1))
END
check "the edited profile is a valid file" "$BUILD/arfuse-profile" check "$work/edited.json"
run_tune 2 --tp 4 --check "$work/edited.json" --device model:default
check "an LL bound at eight times its value: exit 8" [ "$rc" -eq 8 ]
check "an LL bound at eight times its value: told where" says "no longer holds here: allreduce"
run_tune 2 --tp 4 --check "$work/edited.json" --device model:default --max-regret 10
check "with a larger --max-regret: exit 0" [ "$rc" -eq 0 ]
run_tune 2 --tp 4 --check "$profile" --device "model:$faults/wrong.json"
check "results are checked too: exit 5" [ "$rc" -eq 5 ]
run_tune 2 --tp 2 --check "$profile" --device model:default
check "another team: exit 3" [ "$rc" -eq 3 ]
check "another team: one message, which names it" [ "$(lines) $(grep -c "is for 4 ranks, and this team has 2" "$work/err")" = "1 1" ]
run_tune 2 --tp 4 --check "$profile" --device host
check "another device: exit 3" [ "$rc" -eq 3 ]
for format in csv jsonl md; do
    run_tune 2 --tp 4 --check "$work/edited.json" --device model:default --format $format
    mv "$work/out" "$work/check.$format"
    check "a check as $format: exit 8" [ "$rc" -eq 8 ]
done
check "a check as data: the same points and verdicts in all, the lost ones as they are told" python3 - "$work" <<'END'
import csv, json, sys
folder = sys.argv[1] + '/check.'
rows = list(csv.DictReader(open(folder + 'csv', newline='')))
objects = [json.loads(line) for line in open(folder + 'jsonl')]
table = [[cell.strip() for cell in line.strip('|\n ').split('|')] for line in open(folder + 'md') if line.startswith('| ')]
assert table[0] == ['pattern', 'tokens', 'route', 'us', 'best', 'us', 'loss', 'at least', 'verdict'], table[0]
points = [(r['pattern'], r['tokens'], r['route_protocol'], r['verdict']) for r in rows]
assert points == [(o['pattern'], str(o['tokens']), o['route_protocol'], o['verdict']) for o in objects]
assert points == [(t[0], t[1], t[2], t[8]) for t in table[1:]]
assert len(points) >= 6 and {r['format_version'] for r in rows} == {'1'} and {o['format'] for o in objects} == {'arfuse-check'}
for r in rows:
    assert None not in r and None not in r.values() and int(r['rounds']) > 0
    assert (r['verdict'] == 'lost') == (float(r['loss_low']) > 0.05) and float(r['loss_low']) <= float(r['loss']) + 1e-9
assert any(r['verdict'] == 'lost' for r in rows)
END


# Sums of a library run where they were asked for alone.
run_tune 2 --tp 4 --hidden 6144 --device model:default --protocols unfused --set unfused.rms_threads=512 --tokens 1,64 --output "$work/l"
sed 's/^  "numerics": "fixed"/  "numerics": "library"/; s/"transport": "unicast",/& "numerics": "library",/' \
    "$work/l/model-model/tp4_h6144_bf16.json" >"$work/library.json"
check "a profile of library numerics is a valid file" "$BUILD/arfuse-profile" check "$work/library.json"
for task in "--check $work/library.json" "--ab $work/library.json,unfused --tokens 1"; do
    # shellcheck disable=SC2086 # words of a command line
    run_tune 2 --tp 4 $task --device model:default
    check "${task%% *} of library numerics: exit 2, with the option that is missing" \
        [ "$rc $(grep -c 'has routes of numerics library; add --numerics any to run them' "$work/err")" = "2 1" ]
    # shellcheck disable=SC2086
    run_tune 2 --tp 4 $task --device model:default --numerics any
    check "${task%% *} of library numerics under --numerics any: timed" grep -qE '^  allreduce +1  unfused ' "$work/out"
done

head -c 300 "$profile" >"$work/cut.json"
run_tune 2 --tp 4 --check "$work/cut.json" --device model:default
check "a truncated profile: exit 3" [ "$rc" -eq 3 ]
run_tune 2 --tp 4 --check "$work/absent.json" --device model:default
check "an absent profile: exit 3" [ "$rc" -eq 3 ]
check "an absent profile: one message" [ "$(lines)" -eq 1 ]

run_tune 2 --tp 4 --ab default,unfused --hidden 2048 --device model:default --tokens 1 --format md
check "as markdown: whose interval a column is" grep -qF '| A/B | A/B, 95 % interval |' "$work/out"

ratios() { awk '/^  (allreduce|finalize) / { print $7 }' "$work/out"; }
run_tune 2 --tp 4 --ab "$profile,unfused" --device model:default
check "against unfused: exit 0" [ "$rc" -eq 0 ]
check "against unfused: what the ratio is" grep -q "A/B: median of the rounds' paired ratios" "$work/out"
check "against unfused: 28 points" [ "$(ratios | wc -l)" -eq 28 ]
check "against unfused: the profile is faster everywhere" \
    [ "$(ratios | awk '$1 >= 1' | wc -l)" -eq 0 ]
run_tune 2 --tp 4 --ab "default,$profile" --device model:default --format csv --tokens 1,64
check "default against a file: exit 0" [ "$rc" -eq 0 ]
check "default against a file: CSV with a head and four rows" [ "$(wc -l <"$work/out")" -eq 5 ]
run_tune 2 --tp 4 --ab default,unfused --hidden 2048 --topk 4 --device model:default --tokens 1,64 --format jsonl
check "without a file: exit 0" [ "$rc" -eq 0 ]
check "without a file: JSON lines" python3 -c "
import json
rows = [json.loads(line) for line in open('$work/out')]
assert len(rows) == 4 and all(row['low'] <= row['a_over_b'] <= row['high'] for row in rows)"
run_tune 2 --tp 4 --ab default,unfused --device model:default
check "without a file and a shape: exit 2" [ "$rc" -eq 2 ]
run_tune 2 --tp 4 --hidden 2048 --ab "$profile,unfused" --device model:default
check "a file of another shape than the options: exit 3" [ "$rc" -eq 3 ]

run_tune 2 --probe --device host
check "probe: exit 0" [ "$rc" -eq 0 ]
check "probe: device, placement and library" \
    [ "$(grep -cE '^(device host on shm|placement 2 ranks on 2 processes|mpi .*MPI.*)$' "$work/out")" -eq 3 ]
check "probe: buffers are tried" [ "$(grep -cE '^buffers (ll|bt|ht|unfused) .*: ok in ' "$work/out")" -eq 4 ]
run_tune 2 --probe --device "model:$faults/memory.json" --tp 4 --tokens 8192
check "probe: buffers that cannot be had are said" [ "$(grep -c '^buffers ht .*: refused: ' "$work/out")" -eq 1 ]
finish
