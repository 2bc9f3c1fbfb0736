#!/usr/bin/env python3
"""Writes channels_golden.txt: PReLU and BatchNorm + (Add +) ReLU of PyTorch in float64.

Inputs are exact in f32. Run: python3 kernels/rows/tests/golden/make_channels_golden.py
"""
import math
import random

import torch
import torch.nn.functional as F
from golden_text import write_golden

source = random.Random(20)


def draw(*shape, centre=0.0, deviation=1.0):
    count = math.prod(shape)
    values = [round(source.gauss(centre, deviation) * 64) / 64 for _ in range(count)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def numbers(tensor):
    return [float(f"{value:.12g}") for value in tensor.detach().flatten().tolist()]


def prelu(name, x, slope, dy):
    x, slope = x.requires_grad_(), slope.requires_grad_()
    y = F.prelu(x, slope)
    y.backward(dy)
    return {"name": name, "extents": list(x.shape), "x": numbers(x), "slope": numbers(slope),
            "dy": numbers(dy), "y": numbers(y), "dx": numbers(x.grad),
            "dslope": numbers(slope.grad)}


def prelu_cases():
    corners = [0.0, -0.0, math.nan, math.inf, -math.inf, -2.0, 3.0]
    x = torch.tensor(corners * 2, dtype=torch.float64).reshape(1, 2, 7)
    infinite = torch.tensor([1.0, math.inf] * 3, dtype=torch.float64).reshape(1, 1, 6)
    return [
        prelu("channels first", draw(2, 3, 11), draw(3), draw(2, 3, 11)),
        prelu("channels last", draw(13, 5, 1), draw(5), draw(13, 5, 1)),
        prelu("one slope", draw(1, 1, 37), draw(1), draw(1, 1, 37)),
        prelu("zeros, NaN and infinities", x, torch.tensor([0.0, -0.5], dtype=torch.float64),
              torch.ones(1, 2, 7, dtype=torch.float64)),
        prelu("infinite gradients", torch.tensor([1.0, 2.0, -1.0, -2.0, 3.0, 4.0],
                                                 dtype=torch.float64).reshape(1, 1, 6),
              torch.tensor([0.25], dtype=torch.float64), infinite),
    ]


def batch_norm(name, x, dy, addend=None, training=True, momentum=0.25, epsilon=2.0 ** -10):
    channels = x.shape[1]
    gamma, beta = draw(channels).requires_grad_(), draw(channels).requires_grad_()
    running_mean, running_var = draw(channels), draw(channels).abs() + 0.5
    case = {"name": name, "extents": list(x.shape), "training": training, "momentum": momentum,
            "epsilon": epsilon, "x": numbers(x), "dy": numbers(dy), "gamma": numbers(gamma),
            "beta": numbers(beta), "running_mean": numbers(running_mean),
            "running_var": numbers(running_var)}
    x.requires_grad_()
    if addend is not None:
        case["addend"] = numbers(addend)
        addend.requires_grad_()
    z = F.batch_norm(x, running_mean, running_var, gamma, beta, training, momentum, epsilon)
    y = torch.relu(z if addend is None else z + addend)
    y.backward(dy)
    case |= {"y": numbers(y), "new_running_mean": numbers(running_mean),
             "new_running_var": numbers(running_var), "dx": numbers(x.grad),
             "dgamma": numbers(gamma.grad), "dbeta": numbers(beta.grad)}
    if addend is not None:
        case["daddend"] = numbers(addend.grad)
    return case


def batch_norm_cases():
    constant = draw(4, 3, 7)
    constant[:, 1] = 10000.0
    with_nan = draw(4, 3, 7)
    with_nan[2, 1, 3] = math.nan
    infinite = draw(4, 3, 7)  # at an element that ReLU cuts off: x is far below the mean there
    x_of_infinite = draw(4, 3, 7)
    low = draw(4, 3, 7)
    low[1, 1, 1] = -1000.0
    infinite[1, 1, 1] = math.inf
    return [
        batch_norm("channels first", draw(4, 3, 11), draw(4, 3, 11)),
        batch_norm("channels last, addend", draw(23, 5, 1), draw(23, 5, 1), draw(23, 5, 1)),
        batch_norm("inference", draw(4, 3, 7), draw(4, 3, 7), training=False),
        batch_norm("inference, addend", draw(9, 8, 1), draw(9, 8, 1), draw(9, 8, 1),
                   training=False),
        batch_norm("mean 10000, deviation 1", draw(4, 2, 49, centre=10000.0), draw(4, 2, 49)),
        batch_norm("a constant channel", constant, draw(4, 3, 7)),
        batch_norm("a NaN", with_nan, draw(4, 3, 7)),
        batch_norm("an infinite gradient at a zero bit", x_of_infinite, infinite, low),
    ]


def main():
    cases = [("prelu", case) for case in prelu_cases()]
    cases += [("batch_norm", case) for case in batch_norm_cases()]
    write_golden("channels_golden.txt", f"make_channels_golden.py and torch {torch.__version__}",
                 cases)


main()
