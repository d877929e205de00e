#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""arfuse as PyTorch operators, by ctypes alone.

    torch.ops.arfuse.allreduce_norm(x, residual, gamma, eps) -> y
    torch.ops.arfuse.finalize_norm(routed, weights, indices, shared, residual, gamma, eps) -> y

Both add to `residual` in place. The team is the default group of torch.distributed: its all_gather
and barrier are the bootstrap. Run as `torch_op.py [RANKS]` it starts that many processes, uses the
host device, and compares every rank's bits with a sum written out in PyTorch. The library is
libarfuse.so.0 where the loader finds it, or the file that ARFUSE_LIBRARY names (a variable of this
script alone).
"""
import ctypes as c
import os
import sys
import tempfile

import torch
import torch.distributed as dist

library = c.CDLL(os.environ.pop("ARFUSE_LIBRARY", "libarfuse.so.0"))


# Members as they stand in arfuse.h; a struct begins with its own size.
def struct(name, *members):
    return type(name, (c.Structure,), {"_fields_": [("struct_size", c.c_size_t), *members]})


def members(kind, names):
    return [(name, kind) for name in names.split()]


GATHER = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t)
BARRIER = c.CFUNCTYPE(c.c_int, c.c_void_p)
Bootstrap = struct("Bootstrap", ("context", c.c_void_p), *members(c.c_int, "rank size"),
                   ("allgather", GATHER), ("barrier", BARRIER))
Options = struct(
    "Options", *members(c.c_int, "hidden_size top_k rms_norm residual shared_expert local_ranks"),
    ("capacity", c.c_int64), ("device", c.c_char_p), ("cuda_ordinal", c.c_int),
    *members(c.c_char_p, "profile profile_path"), ("strict", c.c_int), ("routes", c.c_int * 2),
    ("fallback", c.c_int), ("wait_limit_seconds", c.c_double), ("sites", c.c_void_p),
    *members(c.c_int, "site_count deferred checked shadow_every"),
    *members(c.c_void_p, "log log_context"), ("log_level", c.c_int))
Call = struct("Call", ("tokens", c.c_int64), ("stream", c.c_void_p),
              *members(c.c_float, "epsilon weight_bias routed_scale"),
              *members(c.c_int, "site route fallback plain_launch early_shared"))
Operands = struct(
    "Operands", *members(c.c_void_p, "input routed"), ("routed_rows", c.c_int64),
    ("weights", c.c_void_p), ("weights_type", c.c_int),
    *members(c.c_void_p, "indices shared residual gamma residual_out norm_out"))


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("text", c.c_char * 1024)]


def gather(_, send, receive, size):
    try:
        mine = torch.frombuffer(bytearray(c.string_at(send, size)), dtype=torch.uint8)
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(every, mine)
        c.memmove(receive, bytes(torch.cat(every).tolist()), size * len(every))
        return 0
    except Exception as error:  # an exception cannot cross C: the code says that it failed
        print(error, file=sys.stderr)
        return 1


def barrier(_):
    dist.barrier()
    return 0


class Workspace:
    def __init__(self, hidden, top_k, capacity, device=b"auto", routes=0):
        options = Options(c.sizeof(Options), hidden, top_k, 1, 1, 1, 1, capacity, device, -1, None,
                          None, 0, (c.c_int * 2)(routes, routes), 0, 300.0, None, 0, 16, -1, -1)
        bootstrap = Bootstrap(c.sizeof(Bootstrap), None, dist.get_rank(), dist.get_world_size(),
                              GATHER(gather), BARRIER(barrier))
        self.keep, self.handle, error = bootstrap, c.c_void_p(), Error()
        if library.arfuse_workspace_create(c.byref(bootstrap), c.byref(options),
                                           c.byref(self.handle), c.byref(error)):
            raise RuntimeError(error.text.decode())

    def run(self, function, residual, gamma, eps, **given):
        norm, error = torch.empty_like(residual), Error()
        stream = torch.cuda.current_stream().cuda_stream if residual.is_cuda else None
        call = Call(c.sizeof(Call), residual.shape[0], stream, eps, 0.0, 1.0, -1, -1, 0, 0, 0)
        operands = Operands(c.sizeof(Operands), gamma=gamma.data_ptr(), norm_out=norm.data_ptr(),
                            residual=residual.data_ptr(), residual_out=residual.data_ptr(), **given)
        if function(self.handle, c.byref(call), c.byref(operands), c.byref(error)):
            raise RuntimeError(error.text.decode())
        return norm


workspace = None  # of this process, made before the first call
operators = torch.library.Library("arfuse", "DEF")
operators.define("allreduce_norm(Tensor x, Tensor(a!) residual, Tensor gamma, float eps) -> Tensor")
operators.define("finalize_norm(Tensor routed, Tensor weights, Tensor indices, Tensor shared, "
                 "Tensor(a!) residual, Tensor gamma, float eps) -> Tensor")


def allreduce_norm(x, residual, gamma, eps):
    return workspace.run(library.arfuse_allreduce, residual, gamma, eps, input=x.data_ptr())


def finalize_norm(routed, weights, indices, shared, residual, gamma, eps):
    return workspace.run(library.arfuse_finalize, residual, gamma, eps, routed=routed.data_ptr(),
                         routed_rows=routed.shape[0], weights=weights.data_ptr(),
                         weights_type=int(weights.dtype == torch.float32),
                         indices=indices.data_ptr(), shared=shared.data_ptr())


for device in ("CPU", "CUDA"):
    operators.impl("allreduce_norm", allreduce_norm, device)
    operators.impl("finalize_norm", finalize_norm, device)


# ---- the example ---------------------------------------------------------------------------------

def tree(terms):
    """Neighbours first: ((c0+c1)+(c2+c3))+..., the order that fixes the bits."""
    while len(terms) > 1:
        terms = terms + [torch.zeros_like(terms[0])] * (len(terms) % 2)
        terms = [a + b for a, b in zip(terms[::2], terms[1::2])]
    return terms[0]


def work(rank, ranks, store):
    global workspace
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=ranks)
    tokens, hidden, top_k = 5, 256, 3
    workspace = Workspace(hidden, top_k, 64, device=b"host", routes=2)

    def random(what, *shape):  # every rank can make every rank's tensors
        generator = torch.Generator().manual_seed(what)
        return torch.randn(*shape, generator=generator).to(torch.bfloat16)

    gamma, residual = random(1, hidden), random(2, tokens, hidden)
    before = residual.clone()
    y = torch.ops.arfuse.allreduce_norm(random(100 + rank, tokens, hidden), residual, gamma, 1e-6)
    summed = tree([random(100 + r, tokens, hidden).float() for r in range(ranks)])
    expected = (summed + before.float()).to(torch.bfloat16)
    assert torch.equal(residual, expected), "allreduce_norm: residual"
    x = expected.float()
    near = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * gamma.float()
    assert torch.allclose(y.float(), near, rtol=1e-2, atol=1e-2), "allreduce_norm: norm"

    indices = torch.arange(tokens * top_k, dtype=torch.int32).reshape(tokens, top_k)
    indices[2, 1] = -1
    weights = torch.full((tokens, top_k), 0.5)  # exact, so that order does not matter here

    def share(r):
        rows = random(200 + r, tokens * top_k, hidden).float().reshape(tokens, top_k, hidden) * 0.5
        rows[2, 1] = 0
        total = rows[:, 0] + rows[:, 1] + rows[:, 2]
        return (total + random(300 + r, tokens, hidden).float()).to(torch.bfloat16).float()

    before = residual.clone()
    torch.ops.arfuse.finalize_norm(random(200 + rank, tokens * top_k, hidden), weights, indices,
                                   random(300 + rank, tokens, hidden), residual, gamma, 1e-6)
    expected = (tree([share(r) for r in range(ranks)]) + before.float()).to(torch.bfloat16)
    assert torch.equal(residual, expected), "finalize_norm: residual"
    library.arfuse_workspace_destroy(c.byref(workspace.handle), None)
    if rank == 0:
        print(f"right on {ranks} ranks, PyTorch {torch.__version__}")


if __name__ == "__main__":
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(work, (processes, os.path.join(folder, "store")),
                                              processes, start_method="fork")
