#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print a sweep as public scripts do: one row a (pattern, backend, tokens), with known crossings.

Each backend takes floor + slope * tokens, floors chosen so that neighbours cross where asked.
"""

import argparse
import csv
import random
import sys

LADDER = [1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768,
          1024, 1536, 2048, 3072, 4096]
SLOPES = {"ll": 0.1, "bt": 0.02, "ht": 0.006}


def floors(crossings):
    ll_bt, bt_ht = crossings
    bt = 4.0 + (SLOPES["ll"] - SLOPES["bt"]) * (ll_bt + 0.5)
    return {"ll": 4.0, "bt": bt, "ht": bt + (SLOPES["bt"] - SLOPES["ht"]) * (bt_ht + 0.5)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--crossings", default="26,900")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--top-k", default="6")
    parser.add_argument("--tp", default="4")
    parser.add_argument("--hidden", default="5120")
    parser.add_argument("--patterns", default="ar,finalize")
    parser.add_argument("--backends", default="ll,bt,ht,unfused")
    parser.add_argument("--drop", default="", help="BACKEND:LOW-HIGH, rows left out")
    parser.add_argument("--fail", default="", help="BACKEND:LOW-HIGH, rows without a time")
    parser.add_argument("--columns", default="tp_size,hidden_size,top_k,pattern,backend,m,us")
    parser.add_argument("--shuffle", action="store_true")
    a = parser.parse_args()
    random.seed(a.seed)

    def inside(spec, backend, m):
        if not spec:
            return False
        name, span = spec.split(":")
        low, high = map(int, span.split("-"))
        return name == backend and low <= m <= high

    base = floors([float(x) for x in a.crossings.split(",")])
    rows = []
    top_ks = a.top_k.split(",")
    for _ in range(a.repeat):
        for k in top_ks:
            for pattern in a.patterns.split(","):
                if pattern == "ar" and k != top_ks[0]:
                    continue  # it does not depend on k
                for m in LADDER:
                    for backend in a.backends.split(","):
                        if inside(a.drop, backend, m):
                            continue
                        kind = backend.rstrip("0123456789")
                        us = 150 + 0.1 * m
                        if kind in base:
                            us = base[kind] + SLOPES[kind] * m
                        us *= 1 + random.gauss(0, a.noise)
                        value = "nan" if inside(a.fail, backend, m) else repr(us)
                        rows.append({"tp_size": a.tp, "tp": a.tp, "hidden_size": a.hidden,
                                     "H": a.hidden, "top_k": k, "topk": k, "pattern": pattern,
                                     "backend": backend, "Protocol": backend.upper(), "m": m,
                                     "tokens": m, "us": value, "microseconds": value})
    if a.shuffle:
        random.shuffle(rows)
    writer = csv.DictWriter(sys.stdout, fieldnames=a.columns.split(","), extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)


main()
