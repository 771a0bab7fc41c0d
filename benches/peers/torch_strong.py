"""The fastest PyTorch noise steps we could write: nothing allocated, copied or rolled in a step.

A form owns the state of a case and offers kernels that advance the coordinates `lo..hi` by one step,
drawing from a given generator. A schedule decides who runs a kernel on what:

    whole-1, whole-2   all coordinates at once, with that many threads inside PyTorch
    64Ki-1, 64Ki-2     pieces of that many coordinates, so that temporaries stay in cache
    64Ki               (two generators) pieces, dealt to two Python threads of one core each

`normal_` takes one core whatever the thread count, because its generator is sequential. Two threads
with a generator each, which PyTorch's users do not write, are therefore a group of their own.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

import cases

ONE, TWO = "one-generator", "two-generators"
PIECES = {"16Ki": 1 << 14, "64Ki": 1 << 16, "256Ki": 1 << 18, "1Mi": 1 << 20}


class Independent:
    """gradient += z"""

    variants = {
        ONE: ("draw/whole-1", "draw/whole-2", "draw/64Ki-1", "draw/256Ki-1", "draw/1Mi-2"),
        TWO: ("draw/whole", "draw/64Ki", "draw/256Ki"),
    }

    def __init__(self, _case, dim):
        self.gradient = torch.zeros(dim)

    def draw(self, lo, hi, scratch, generator):
        z = scratch[: hi - lo].normal_(generator=generator)
        self.gradient[lo:hi].add_(z)

    def advance(self):
        pass


class Blt:
    """y = z - sum_i scale_i b_i;  b_i = decay_i b_i + y;  gradient += y"""

    variants = {
        ONE: ("compiled/whole-1", "compiled/whole-2", "compiled/256Ki-1", "mv/whole-2", "mv/64Ki-1",
              "mv/256Ki-2", "passes/whole-2", "passes/64Ki-1", "passes/1Mi-2"),
        TWO: ("compiled/whole", "compiled/64Ki", "compiled/256Ki", "mv/64Ki", "passes/16Ki", "passes/64Ki"),
    }

    def __init__(self, _case, dim):
        self.gradient = torch.zeros(dim)
        self.matrix, self.rows = history(len(cases.DECAY), dim)
        self.scale = torch.tensor(cases.SCALE)
        self.fused = torch.compile(blt_update, dynamic=False)

    def compiled(self, lo, hi, scratch, generator):
        z = scratch[: hi - lo].normal_(generator=generator)
        self.fused(z, self.gradient[lo:hi], *(row[lo:hi] for row in self.rows))

    def mv(self, lo, hi, scratch, generator):
        y = scratch[: hi - lo].normal_(generator=generator)
        y.addmv_(self.matrix[:, lo:hi].t(), self.scale, alpha=-1)
        self.decay_and_add(y, lo, hi)

    def passes(self, lo, hi, scratch, generator):
        y = scratch[: hi - lo].normal_(generator=generator)
        for scale, row in zip(cases.SCALE, self.rows):
            y.sub_(row[lo:hi], alpha=scale)
        self.decay_and_add(y, lo, hi)

    def decay_and_add(self, y, lo, hi):
        for decay, row in zip(cases.DECAY, self.rows):
            torch.add(y, row[lo:hi], alpha=decay, out=row[lo:hi])
        self.gradient[lo:hi].add_(y)

    def advance(self):
        pass


def blt_update(z, gradient, *buffers):
    y = z
    for scale, buffer in zip(cases.SCALE, buffers):
        y = y - scale * buffer
    for decay, buffer in zip(cases.DECAY, buffers):
        buffer.mul_(decay).add_(y)
    gradient.add_(y)


class Ring:
    """y = z - sum_k c_k y_(t-k);  gradient += y

    One slot more than the live rows need: z is drawn into it and becomes y in place.
    """

    variants = {
        ONE: ("mv/whole-1", "mv/whole-2", "mv/64Ki-1", "mv/64Ki-2", "mv/256Ki-2", "compiled/whole-1",
              "compiled/whole-2"),
        TWO: ("mv/16Ki", "mv/64Ki", "mv/256Ki", "compiled/whole", "compiled/256Ki"),
    }

    def __init__(self, case, dim):
        self.bands = cases.CASES[case].bands
        self.gradient = torch.zeros(dim)
        self.matrix, self.rows = history(self.bands, dim)
        self.new = 0
        coefs = cases.ring_coefs(self.bands)[1:]
        self.oldest_first = torch.from_numpy(coefs[::-1].copy())
        self.fused = torch.compile(partial(ring_update, coefs.tolist()), dynamic=False)

    def mv(self, lo, hi, _scratch, generator):
        # Slot order from the oldest row on: those after the new slot, then those before it.
        y, after = self.matrix[self.new, lo:hi], self.bands - 1 - self.new
        y.normal_(generator=generator)
        if after > 0:
            y.addmv_(self.matrix[self.new + 1 :, lo:hi].t(), self.oldest_first[:after], alpha=-1)
        if self.new > 0:
            y.addmv_(self.matrix[: self.new, lo:hi].t(), self.oldest_first[after:], alpha=-1)
        self.gradient[lo:hi].add_(y)

    def compiled(self, lo, hi, _scratch, generator):
        newest_first = [self.rows[self.new - age][lo:hi] for age in range(1, self.bands)]
        z = self.rows[self.new][lo:hi].normal_(generator=generator)
        self.fused(z, self.gradient[lo:hi], newest_first)

    def advance(self):
        self.new = (self.new + 1) % self.bands


def ring_update(coefs, z, gradient, newest_first):
    y = z
    for coef, past in zip(coefs, newest_first):
        y = y - coef * past
    z.copy_(y)
    gradient.add_(y)


def history(slots, dim):
    """A full history as one matrix and as rows over the same memory.

    The rows are storages of their own: given views of one storage, torch.compile copies the whole
    matrix to stay safe from aliasing. Memory from NumPy is in huge pages.
    """
    array = cases.history(slots, dim)
    return torch.from_numpy(array), [torch.from_numpy(row) for row in array]


def form(case):
    return {"independent": Independent, "blt4": Blt}.get(case, Ring)


def variants(case):
    return [f"{group}/{name}" for group, names in form(case).variants.items() for name in names]


def build(case, variant, dim, threads):
    group, kernel_name, schedule = variant.split("/")
    piece, _, inner_threads = schedule.partition("-")
    piece = PIECES.get(piece, dim if group == ONE else -(-dim // threads))
    workers, inner_threads = (1, int(inner_threads)) if group == ONE else (threads, 1)
    if inner_threads > threads:
        raise ValueError(f"{variant} wants {inner_threads} threads, allowed are {threads}")
    torch.set_num_threads(inner_threads)
    torch.compiler.reset()

    state = form(case)(case, dim)
    kernel = getattr(state, kernel_name)
    share = -(-dim // workers)
    scratch = [torch.zeros(piece if case in ("independent", "blt4") else 0) for _ in range(workers)]
    generators = [torch.Generator().manual_seed(i) for i in range(workers)]
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))

    def work(worker):
        end = min(dim, (worker + 1) * share)
        for lo in range(worker * share, end, piece):
            kernel(lo, min(lo + piece, end), scratch[worker], generators[worker])

    # The first step is not shared out: torch.compile compiles in it, which is not for two threads.
    everyone = map

    def step():
        nonlocal everyone
        list(everyone(work, range(workers)))
        everyone = map if workers == 1 else pool.map
        state.advance()

    return step
