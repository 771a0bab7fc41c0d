"""The PyTorch contenders behind the timing protocol: the variant `plain` and the strong ones."""

import torch

import peer_process
import torch_plain
import torch_strong


def variants(case):
    return ["plain", *torch_strong.variants(case)]


def build(case, variant, dim, threads):
    if variant == "plain":
        torch.set_num_threads(threads)
        return torch_plain.build(case, dim)
    return torch_strong.build(case, variant, dim, threads)


if __name__ == "__main__":
    peer_process.serve(f"torch {torch.__version__}", variants, build)
