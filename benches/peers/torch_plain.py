"""Noise steps in PyTorch as a training script writes them: eager, out of place, state in Python lists."""

from collections import deque

import torch

import cases


def build(case, dim):
    gradient = torch.zeros(dim)
    return {"independent": independent, "blt4": blt}.get(case, ring)(gradient, case)


def independent(gradient, _case):
    def step():
        nonlocal gradient
        gradient = gradient + torch.randn_like(gradient)

    return step


def blt(gradient, _case):
    buffers = [torch.zeros_like(gradient) for _ in cases.DECAY]

    def step():
        nonlocal gradient
        noise = torch.randn_like(gradient)
        for scale, buffer in zip(cases.SCALE, buffers):
            noise -= scale * buffer
        for i, decay in enumerate(cases.DECAY):
            buffers[i] = decay * buffers[i] + noise
        gradient = gradient + noise

    return step


def ring(gradient, case):
    bands = cases.CASES[case].bands
    coefs = cases.ring_coefs(bands).tolist()
    # Cloned row by row, so that a dropped row really frees its memory.
    rows = torch.from_numpy(cases.history(bands - 1, len(gradient)))
    newest_first = deque((row.clone() for row in rows), maxlen=bands - 1)

    def step():
        nonlocal gradient
        noise = torch.randn_like(gradient)
        for coef, past in zip(coefs[1:], newest_first):
            noise -= coef * past
        newest_first.appendleft(noise)
        gradient = gradient + noise

    return step
