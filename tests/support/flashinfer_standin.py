#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load an exported Python configuration against a stand-in of the public classes, and compare it
with the profiles it came from.

    flashinfer_standin.py MODULE.py PROFILE.json...

The stand-in has the classes and fields of flashinfer/comm/mnnvl_cutedsl (pull request 4358) and
enforces what they do: bounds ascend strictly, only the last is open, as many targets as bounds,
static shapes are unique, tunings have these fields and no other, and each protocol and pattern
takes tunings of its own class.
"""

import enum
import importlib.util
import inspect
import json
import os
import sys
import types
from importlib.machinery import SourceFileLoader

# Python takes compiled code for that of a file whose size and second of change are the same.
sys.dont_write_bytecode = True

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

FIELDS = {
    "LLCollectiveTuning": ["cluster_size", "rank_lanes", "threads", "enable_pdl"],
    "LLFinalizeTuning": ["elements_per_thread", "threads", "prefetch_group",
                         "load_shared_expert_before_pdl", "collective"],
    "LLAllReduceTuning": ["publish_elements_per_thread", "publish_threads",
                          "publish_release_before_store", "collective"],
    "BTCollectiveTuning": ["reduction_threads", "rms_threads", "enable_pdl"],
    "BTFinalizeTuning": ["elements_per_thread", "threads", "prefetch_group",
                         "load_shared_expert_before_pdl", "collective"],
    "BTAllReduceTuning": ["publish_threads", "publish_vectors_per_thread", "collective"],
}
FIELDS["HTFinalizeTuning"] = FIELDS["HTAllReduceTuning"] = [
    "persistent_ctas", "consumer_threads", "vectors_per_thread", "stages", "reduction_warps",
    "reduction_cta_groups", "rms_token_groups", "rms_pipeline_stages", "rms_shard_major",
    "enable_pdl"]
SWITCHES = {"load_shared_expert_before_pdl", "publish_release_before_store", "enable_pdl",
            "rms_shard_major"}
MAY_BE_NONE = {"persistent_ctas", "reduction_cta_groups"}


def demand(truth, message):
    if not truth:
        raise ValueError(message)


class Tuning:
    def __init__(self, **values):
        for name, value in values.items():
            demand(name in FIELDS[type(self).__name__], "%s has no %s" % (type(self).__name__, name))
            if name == "collective":
                demand(type(value).__name__ == type(self).__name__[:2] + "CollectiveTuning",
                       "collective of a wrong class")
            elif name in SWITCHES:
                demand(isinstance(value, bool), name + " must be a bool")
            elif not (name in MAY_BE_NONE and value is None):
                demand(type(value) is int and value > 0, name + " must be a positive int")
            setattr(self, name, value)

    def flat(self):
        found = {}
        for name, value in vars(self).items():
            if name == "collective":
                found.update(("collective." + n, v) for n, v in vars(value).items())
            else:
                found[name] = value
        return found


CLASSES = {name: type(name, (Tuning,), {}) for name in FIELDS}


class ProtocolKind(enum.Enum):
    LL = "ll"
    BT = "bt"
    HT = "ht"


class KernelTarget:
    def __init__(self, protocol, preset):
        demand(isinstance(protocol, ProtocolKind), "protocol must be a ProtocolKind")
        self.protocol, self.preset = protocol, preset


class MRangeDispatch:
    def __init__(self, upper_bounds, targets):
        demand(isinstance(upper_bounds, tuple) and isinstance(targets, tuple), "tuples expected")
        demand(upper_bounds, "at least one range")
        demand(len(upper_bounds) == len(targets), "as many targets as bounds")
        previous = 0
        for i, bound in enumerate(upper_bounds):
            if bound is None:
                demand(i == len(upper_bounds) - 1, "only the last may be open")
                continue
            demand(type(bound) is int and bound > previous, "bounds must ascend strictly")
            previous = bound
        self.upper_bounds, self.targets = upper_bounds, targets


class StaticProfile:
    def __init__(self, *, tp_size, hidden_size, top_k, dtype, finalize_routes, all_reduce_routes):
        demand(hidden_size > 0 and hidden_size % 8 == 0, "hidden_size must be a multiple of 8")
        for routes, word in ((finalize_routes, "Finalize"), (all_reduce_routes, "AllReduce")):
            demand(isinstance(routes, MRangeDispatch), "routes must be an MRangeDispatch")
            for target in routes.targets:
                wanted = target.protocol.name + word + "Tuning"
                demand(type(target.preset).__name__ == wanted,
                       "%s where %s belongs" % (type(target.preset).__name__, wanted))
        self.key = (tp_size, hidden_size, top_k, dtype)
        self.routes = {"finalize": finalize_routes, "allreduce": all_reduce_routes}


class MNNVLCuteDSLConfig:
    def __init__(self, profiles, applies_rms_norm=True):
        demand(isinstance(profiles, tuple) and profiles, "at least one profile, in a tuple")
        demand(len({p.key for p in profiles}) == len(profiles), "static shapes must be unique")
        demand(applies_rms_norm in (True, False, None), "applies_rms_norm: a bool or None")
        self.profiles, self.applies_rms_norm = profiles, applies_rms_norm


def install():
    def module(name, **members):
        made = types.ModuleType(name)
        made.__path__ = []
        vars(made).update(members)
        sys.modules[name] = made

    module("torch", bfloat16="bf16")
    base = "flashinfer.comm.mnnvl_cutedsl"
    for name in ("flashinfer", "flashinfer.comm", base):
        module(name)
    module(base + ".config", KernelTarget=KernelTarget, MNNVLCuteDSLConfig=MNNVLCuteDSLConfig,
           MRangeDispatch=MRangeDispatch, ProtocolKind=ProtocolKind, StaticProfile=StaticProfile)
    for kind in ("ll", "bt", "ht"):
        module("%s.kernel_%s" % (base, kind))
        module("%s.kernel_%s.protocol" % (base, kind),
               **{n: c for n, c in CLASSES.items() if n.startswith(kind.upper())})


GIVEN = object()  # marks what config() was given, since no profile says it


def given(name):
    """Something acceptable for a parameter of config(), by its name."""
    word = "Finalize" if "_finalize_" in name else "AllReduce"
    last = name.split("_")[-1]
    if last in ("ll", "bt", "ht"):
        preset = CLASSES[last.upper() + word + "Tuning"]()
        preset.__dict__["_given"] = GIVEN
        return preset
    target = KernelTarget(ProtocolKind.LL, CLASSES["LL" + word + "Tuning"]())
    if last == "routes":
        return MRangeDispatch((None,), (target,))
    return target


def load(path):
    spec = importlib.util.spec_from_loader("exported", SourceFileLoader("exported", path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if hasattr(module, "CONFIG"):
        return module.CONFIG, []
    names = list(inspect.signature(module.config).parameters)
    return module.config(**{name: given(name) for name in names}), names


def renamed():
    sys.dont_write_bytecode = True
    loader = SourceFileLoader("importer", os.path.join(ROOT, "scripts", "import-published"))
    spec = importlib.util.spec_from_loader("importer", loader)
    importer = importlib.util.module_from_spec(spec)
    loader.exec_module(importer)
    return lambda name: importer.RENAMED.get(name, name.split(".")[-1])


def compare(exported, profile, names, rename, hints):
    norm = profile["shape"]["rms_norm"]
    prefix = "tp%d_h%d_k%d_" % exported.key[:3]
    for pattern, routes in profile["routes"].items():
        made = exported.routes[pattern]
        bounds, targets = list(made.upper_bounds), list(made.targets)
        if not routes:
            demand(prefix + pattern + "_routes" in names, "a missing pattern is no parameter")
            continue
        if "min_tokens" in routes[0]:
            demand(bounds.pop(0) == routes[0]["min_tokens"] - 1, "the beginning moved")
            targets.pop(0)
        demand(bounds == [r["max_tokens"] for r in routes],
               "%s: bounds %s, profile has %s" % (pattern, bounds, [r["max_tokens"] for r in routes]))
        demand([t.protocol.value for t in targets] == [r["protocol"] for r in routes],
               pattern + ": other protocols")
        for i, (target, route) in enumerate(zip(targets, routes)):
            name = "%s%s_%d_%s" % (prefix, pattern, i, route["protocol"])
            if "_given" in vars(target.preset):
                demand(name in names, name + " is no parameter")
                demand(route["tuning"] is None or hints, "a known tuning was left out")
                continue
            flat = {rename(n): v for n, v in target.preset.flat().items()}
            demand(flat == route["tuning"], "%s: tuning %s, profile has %s" % (name, flat, route["tuning"]))
    return norm


def main():
    install()
    config, names = load(sys.argv[1])
    profiles = [json.load(open(path)) for path in sys.argv[2:]]
    demand(len(profiles) == len(config.profiles), "another number of profiles")
    text = open(sys.argv[1]).read()
    rename = renamed()
    for exported, profile in zip(config.profiles, profiles):
        shape = profile["shape"]
        demand(exported.key == (shape["tp_size"], shape["hidden_size"], shape["top_k"], "bf16"),
               "another shape")
        hints = profile["kernels"]["set"] != "flashinfer"
        demand(hints == ("HINTS" in text), "hints must be named, and nothing else")
        norm = compare(exported, profile, names, rename, hints)
        demand(config.applies_rms_norm == norm, "another norm switch")
    print("accepted, %d parameters" % len(names))


main()
