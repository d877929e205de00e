#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make one call fail in a whole run, again and again, and see what each run comes to.

    BUILD=build tests/faults/sweep.py                      a seeded slice
    BUILD=build ARFUSE_TEST_LONG=1 tests/faults/sweep.py   each kind of call at MOST places
    BUILD=build tests/faults/sweep.py SCENARIO RANK CALL N one fault, with all that was said

CALL may be "calloc@arf_table_create": only what that function of the program calls is counted.

Each run must end within its limit with an exit code of the program's own, say one message when it
fails, leave no process, temporary file, socket or shared memory behind, and only whole sample lines
and valid profiles. Prints TAP. Needs gcc builds without sanitizers (the shim replaces malloc).
"""

import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
LONG = os.environ.get("ARFUSE_TEST_LONG") == "1"
SEED = int(os.environ.get("ARFUSE_TEST_SEED", "1"))
MOST = int(os.environ.get("ARFUSE_FAULTS_MOST", "6"))  # of one call in one rank of one scenario
SLICE = 10  # faults of one scenario in the short run; half as many where it has several processes
LIMIT = 60  # seconds of a run: far above what a loaded machine needs

PROFILE = os.path.join(ROOT, "profiles/published/flashinfer/default/tp4_h6144_k8_bf16.json")
MODEL = "--hidden 64 --topk 2 --device model:default --tokens 1,8 --pattern allreduce,finalize"
HOST = (
    "--hidden 64 --topk 2 --device host --tokens 1,3 --budget 4 --noise 50 --wait-limit 15 "
    "--protocols ll,unfused --set ll.pack_step=32 --set ll.yield_after=0 --set unfused.yield_after=0"
)
# What a loaded machine makes the tuner say beside its errors; the last only when it is alone.
NOISE = re.compile(
    r"missed the noise aim|became up to|times moved by|share \d+ core|the budget (of|cut)|"
    r"stays? unexplored|no profile was written: nothing was timed"
)
# A descriptor that does not come is waited for, for half a minute: the long run has the time.
LASTING = ("accept4", "connect", "fcntl", "getsockopt", "recvmsg", "sendmsg", "socket")
MEMORY = ("malloc", "calloc", "realloc", "aligned_alloc", "strdup", "strndup", "newlocale")
UNTIMED = re.compile(r"no profile was written: nothing was timed")


def tune(ranks, arguments):
    program = [os.path.join(BUILD, "arfuse-tune")] + arguments.split() + ["--quiet", "--output", "OUT"]
    if ranks:
        return [os.path.join(ROOT, "scripts/mpirun"), "-n", str(ranks)] + program
    return program


def profile(*arguments):
    return [os.path.join(BUILD, "arfuse-profile")] + list(arguments)


# name: (processes, command)
SCENARIOS = {
    "model, one process": (1, tune(0, MODEL + " --tp 3")),
    "host, one process": (1, tune(0, HOST + " --tp 2")),
    "model, 2 processes": (2, tune(2, MODEL)),
    "host, 2 processes": (2, tune(2, HOST)),
    "host, 4 processes": (4, tune(4, HOST)),
    "show": (1, profile("show", PROFILE)),
    "explain": (1, profile("explain", "--tokens", "17", PROFILE)),
    "check": (1, profile("check", PROFILE)),
    "example": (1, [os.path.join(BUILD, "examples/run_profile"), "MADE", "2", "64", "2"]),
}


# Faults that once hung the job, or ended it without a word of ours.
ALWAYS = [
    ("model, 2 processes", 1, "MPI_Init_thread", 1),
    ("model, 2 processes", 1, "MPI_Iallreduce", 1),
    ("model, 2 processes", 1, "MPI_Ibcast", 2),
    ("model, 2 processes", 0, "MPI_Ibcast", 6),
    ("model, 2 processes", 1, "realloc", 3),
    # A rank without memory for a fit went on without routes, and met the others in another step.
    ("model, 2 processes", 1, "calloc@arf_table_create", 5),
    ("model, 2 processes", 0, "calloc@arf_table_create", 21),
]


class Place:
    """A folder of one run: its output, its TMPDIR and its sockets."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="af-")
        self.out, self.tmp, self.run = (os.path.join(self.root, n) for n in ("out", "tmp", "run"))
        for folder in (self.out, self.tmp, self.run):
            os.mkdir(folder, 0o700)
        self.log = os.path.join(self.root, "log")

    def close(self):
        shutil.rmtree(self.root, ignore_errors=True)


MADE = []  # a profile that the host device made, for the example


def part_of(scenario, function):
    """0xFROM-0xTO of a function of the scenario's program."""
    program = next(c for c in SCENARIOS[scenario][1] if c.startswith(BUILD))
    for line in subprocess.run(["nm", "-S", program], capture_output=True, text=True).stdout.splitlines():
        words = line.split()
        if len(words) == 4 and words[3] == function:
            start, size = int(words[0], 16), int(words[1], 16)
            return "%#x-%#x" % (start, start + size)
    raise SystemExit("sweep.py: %s has no function %s" % (program, function))


def run(scenario, rank, call, at, place):
    """(exit code or None when it did not end, stdout, stderr, seconds)"""
    command = [c.replace("OUT", place.out) for c in SCENARIOS[scenario][1]]
    command = [MADE[0] if c == "MADE" else c for c in command]
    environment = dict(
        os.environ,
        TMPDIR=place.tmp,
        XDG_RUNTIME_DIR=place.run,
        ARFUSE_SOCKET_FOLDER=place.run,
        FAULT_CALL=call.split("@")[0],
        FAULT_AT=str(at),
        FAULT_RANK=str(rank),
        FAULT_LOG=place.log,
    )
    if "@" in call:
        environment["FAULT_WITHIN"] = part_of(scenario, call.split("@")[1])
    # Only the program is preloaded: env stands between the launcher and it.
    at_program = next(i for i, c in enumerate(command) if c.startswith(BUILD))
    preload = ["env", "LD_PRELOAD=" + os.path.join(BUILD, "tests/libfault.so")]
    command = command[:at_program] + preload + command[at_program:]
    start = time.time()
    process = subprocess.Popen(
        command,
        cwd=place.root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=LIMIT)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            out, err = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        code = None
    return code, out, err, time.time() - start


def counts(scenario, rank):
    place = Place()
    code, out, err, _ = run(scenario, rank, "", 0, place)
    if code != 0:
        place.close()
        raise SystemExit("Bail out! %s without a fault: exit %s\n%s%s" % (scenario, code, out, err))
    with open(place.log) as log:
        found = {w[1]: int(w[2]) for w in (line.split() for line in log) if w[0] == "count"}
    if not MADE and scenario.startswith("host"):
        handle, path = tempfile.mkstemp(suffix=".json")
        os.close(handle)
        shutil.copy(glob.glob(place.out + "/*/*.json")[0], path)
        MADE.append(path)
    place.close()
    return found


def mine(line):
    return re.match(r"(arfuse-tune|arfuse-profile|run_profile): ", line) and not NOISE.search(line)


def left_over(place):
    found = []
    for base, _, names in os.walk(place.out):
        for name in names:
            path = os.path.join(base, name)
            if not name.endswith((".json", ".samples.jsonl")):
                found.append("file " + os.path.relpath(path, place.root))
    for folder in (place.run, place.tmp):
        names = [n for n in os.listdir(folder) if not re.match(r"ompi\.|pmix|vader_segment", n)]
        found += ["file %s/%s" % (os.path.basename(folder), n) for n in names]
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if ("FAULT_LOG=" + place.log).encode() + b"\0" in file.read():
                    found.append("process " + path.split("/")[2])
        except OSError:
            pass
    return found


def files_whole(place):
    wrong = []
    for path in glob.glob(place.out + "/*/*.jsonl"):
        with open(path, "rb") as file:
            text = file.read()
        if text and not text.endswith(b"\n"):
            wrong.append("a cut line in the samples")
        for line in text.splitlines():
            try:
                json.loads(line)
            except ValueError:
                wrong.append("a broken line in the samples")
    for path in glob.glob(place.out + "/*/*.json"):
        if subprocess.run(profile("check", path), capture_output=True).returncode != 0:
            wrong.append("an invalid profile")
    return wrong


def judge(scenario, call, place, code, err):
    wrong = []
    # A profile that cannot be read is 3, whatever the reason.
    codes = (0, 1, 4, 6, 9) if "process" in scenario else (0, 1, 3)
    said = [line for line in err.splitlines() if mine(line)] or [
        line for line in err.splitlines() if UNTIMED.search(line)
    ]
    if code is None:
        wrong.append("did not end within %d s" % LIMIT)
    elif code not in codes:
        wrong.append("exit %d" % code)
    elif code == 0 and any(" failed" in line for line in said):
        wrong.append("exit 0 beside an error")
    elif code in (1, 3, 4, 6) and len(said) != 1:
        wrong.append("%d messages" % len(said))
    elif code in (1, 3, 4, 6) and call.split("@")[0] in MEMORY and "memory" not in said[0]:
        wrong.append("a message that does not name the cause")
    deadline = time.time() + 3  # what a launcher ends last may still be on its way out
    left = left_over(place)
    while left and time.time() < deadline:
        time.sleep(0.1)
        left = left_over(place)
    return wrong + ["left: " + name for name in left] + files_whole(place)


def where(scenario, hit):
    """The source line of "hit malloc 3 program+0x123"."""
    match = re.match(r"hit \S+ \d+ (\S+)\+(0x[0-9a-f]+)", hit)
    if not match:
        return hit
    program = next(c for c in SCENARIOS[scenario][1] if c.startswith(BUILD))
    binary = program if match[1] == "program" else os.path.join(BUILD, "libarfuse.so")
    command = ["addr2line", "-i", "-e", binary, match[2]]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.split("\n")
    found = [os.path.relpath(l.split(" ")[0], ROOT) for l in lines if "/src/" in l]
    return ", in ".join(found) or hit


def one(scenario, rank, call, at, loud=False):
    """None when the fault was never reached, else the list of what is wrong."""
    place = Place()
    code, out, err, seconds = run(scenario, rank, call, at, place)
    hit = ""
    if os.path.exists(place.log):
        with open(place.log) as log:
            hit = log.readline().strip()
    wrong = judge(scenario, call, place, code, err)
    if loud:
        print("%s (%s)\nexit %s after %.1f s\n%s%s" % (hit, where(scenario, hit), code, seconds, out, err))
    elif wrong:
        print("# fault: '%s' %d %s %d: %s" % (scenario, rank, call, at, "; ".join(wrong)))
        print("#   at %s, exit %s after %.1f s" % (where(scenario, hit), code, seconds))
        for line in err.splitlines()[:12]:
            print("#   " + line[:300])
        sys.stdout.flush()
    place.close()
    return (wrong if hit else None), code


def choose(dice, scenario, found):
    """(rank, call, n): every call that a rank makes, spread over its n."""
    always = [fault[1:] for fault in ALWAYS if fault[0] == scenario]
    chosen = []
    for rank, counted in found.items():
        for call, count in sorted(counted.items()):
            numbers = range(1, count + 1)
            if call in LASTING and not LONG:
                continue
            some = dice.sample(numbers, min(MOST, count))
            chosen += [(rank, call, n) for n in sorted(some)]
    slice_of = SLICE if SCENARIOS[scenario][0] == 1 else SLICE // 2
    return always + (chosen if LONG else dice.sample(chosen, min(slice_of, len(chosen))))


def main():
    if re.search(r"asan|tsan", BUILD):
        print("1..1\nok 1 - faults # skip the shim and the sanitizers both replace malloc")
        return 0
    for variable in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        os.environ[variable] = "1"
    wanted = list(SCENARIOS)
    if len(sys.argv) == 5:
        if sys.argv[1] == "example":
            counts("host, one process", 0)
        wrong, _ = one(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), loud=True)
        print("never reached" if wrong is None else "; ".join(wrong) or "survived")
        return 0
    if len(sys.argv) == 2:
        wanted = [name for name in SCENARIOS if re.search(sys.argv[1], name)]
    if "example" in wanted and not any(name.startswith("host") for name in wanted):
        counts("host, one process", 0)
    failures = 0
    for number, scenario in enumerate(wanted, 1):
        dice = random.Random("%d %s" % (SEED, scenario))
        processes = SCENARIOS[scenario][0]
        ranks = sorted({0, dice.randrange(processes)}) if LONG else [dice.randrange(processes)]
        found = {rank: counts(scenario, rank) for rank in ranks}
        injected = bad = 0
        codes = {}
        for rank, call, n in choose(dice, scenario, found):
            wrong, code = one(scenario, rank, call, n)
            if wrong is None and code == 0:
                continue  # a run on a loaded machine makes fewer calls
            injected += 1
            codes[code] = codes.get(code, 0) + 1
            bad += bool(wrong)
        failures += bad
        summary = ", ".join("%d x exit %s" % (c, k) for k, c in sorted(codes.items(), key=str))
        print(
            "%s %d - %s: %d faults (seed %d), %d survived; %s"
            % ("not ok" if bad else "ok", number, scenario, injected, SEED, injected - bad, summary)
        )
        sys.stdout.flush()
    print("1..%d" % len(wanted))
    if MADE:
        os.unlink(MADE[0])
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
