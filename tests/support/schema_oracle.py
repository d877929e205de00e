# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema as an oracle for the reader of profiles.

schema_oracle.py judge SCHEMA FILE...        "accepted NAME" or "refused NAME" a line
schema_oracle.py mutate SCHEMA DIR N FILE... writes N edits of the good FILEs below DIR, each of one
                                             value, and prints the judgement of each likewise

Exit 77: no module jsonschema that knows draft 2020-12.
"""
import copy
import json
import pathlib
import random
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    sys.exit(77)

ODD = [None, True, False, 0, 1, -1, 7, 8, 9, 64, 65, 72, 73, 4096, 65536, 1048576, 1048577, 2**31,
       2.5, 1e300, "", "x", "ll", "fixed", "bf16", "10.3", "shm", "nvlink", "shared-gpu",
       "published", "default", "separate", "a" * 64, [], [1], [1, 2], {}, {"a": 1}]


def places(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, path + (key,))


def mutate(document, choose):
    """One member replaced, taken out, added, or moved to another place."""
    document = copy.deepcopy(document)
    path = choose.choice([p for p in places(document) if p])
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    kind = choose.randrange(6)
    if kind == 0:
        del parent[path[-1]]
    elif kind == 1 and isinstance(parent, dict):
        parent[choose.choice(["variant", "min_tokens", "numerics", "finalize", "owner", "odd"])] = choose.choice(ODD)
    elif kind == 2 and isinstance(parent, list):
        parent.append(copy.deepcopy(choose.choice(parent)))
    elif kind == 3 and isinstance(parent[path[-1]], int):
        parent[path[-1]] = parent[path[-1]] + choose.choice([-1, 1, 8, 0.5, 100000])
    else:
        parent[path[-1]] = copy.deepcopy(choose.choice(ODD))
    return document


def main():
    command, schema, *rest = sys.argv[1:]
    schema = json.loads(pathlib.Path(schema).read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    say = lambda name, document: print("accepted" if validator.is_valid(document) else "refused", name)
    if command == "judge":
        for name in rest:
            say(name, json.loads(pathlib.Path(name).read_bytes()))
        return
    folder, count, *files = rest
    good = [json.loads(pathlib.Path(name).read_bytes()) for name in files]
    for seed in range(int(count)):
        choose = random.Random(seed)
        document = mutate(choose.choice(good), choose)
        name = pathlib.Path(folder) / f"{seed}.json"
        name.write_text(json.dumps(document), encoding="utf-8")
        say(name, document)


main()
