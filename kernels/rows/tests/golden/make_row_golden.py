"""Writes row_golden.txt: softmax, log-softmax and LayerNorm, both directions, of PyTorch in float64.

Rows: ordinary values, a large common offset (mean 1e4, deviation 1), a constant, minus infinities,
a masked row, one column. Inputs are multiples of 2^-10: exact in f32.

Run: python3 kernels/rows/tests/golden/make_row_golden.py
"""
import random

import torch
from golden_text import write_golden

COLUMNS = (1, 2, 7, 33)
OFFSET = 10000.0


def rows_of(columns, source):
    def draw(scale=1.0, offset=0.0):
        return [round(source.gauss(offset, scale) * 1024) / 1024 for _ in range(columns)]

    masked = draw()
    for i in range(0, columns, 2):
        masked[i] = -float("inf")
    return [draw(), draw(4.0), draw(1.0, OFFSET), [-3.25] * columns, draw(1.0, -OFFSET), masked]


def softmax_case(columns, is_log, source):
    x = torch.tensor(rows_of(columns, source), dtype=torch.float64, requires_grad=True)
    bias = torch.tensor([round(source.gauss(0, 1) * 1024) / 1024 for _ in range(columns)],
                        dtype=torch.float64)
    scale = 0.375
    z = scale * x + bias
    y = torch.log_softmax(z, -1) if is_log else torch.softmax(z, -1)
    dy = torch.tensor([[round(source.gauss(0, 1) * 1024) / 1024 for _ in range(columns)]
                       for _ in range(x.shape[0])], dtype=torch.float64)
    dy[torch.isinf(x.detach())] = 0.0  # our contract does not look at these
    y.backward(dy)
    # A row without a finite value is NaN there, and zeros or minus infinities here.
    lost = torch.isinf(x.detach()).all(-1)
    y, dx = y.detach().clone(), x.grad.clone()
    y[lost] = -float("inf") if is_log else 0.0
    dx[lost] = 0.0
    return {"log": is_log, "scale": scale, "x": x.tolist(), "bias": bias.tolist(), "y": y.tolist(),
            "dy": dy.tolist(), "dx": dx.tolist()}


def norm_case(columns, source):
    x = torch.tensor(rows_of(columns, source)[:5], dtype=torch.float64, requires_grad=True)
    gamma, beta = (torch.tensor([round(source.gauss(1, 1) * 1024) / 1024 for _ in range(columns)],
                                dtype=torch.float64, requires_grad=True) for _ in range(2))
    epsilon = 0.0625
    y = torch.nn.functional.layer_norm(x, (columns,), gamma, beta, epsilon)
    dy = torch.tensor([[round(source.gauss(0, 1) * 1024) / 1024 for _ in range(columns)]
                       for _ in range(5)], dtype=torch.float64)
    y.backward(dy)
    return {"epsilon": epsilon, "x": x.tolist(), "gamma": gamma.tolist(), "beta": beta.tolist(),
            "y": y.tolist(), "dy": dy.tolist(), "dx": x.grad.tolist(),
            "dgamma": gamma.grad.tolist(), "dbeta": beta.grad.tolist()}


def main():
    source = random.Random(7)
    cases = [("softmax", softmax_case(columns, is_log, source))
             for columns in COLUMNS for is_log in (False, True)]
    cases += [("layer_norm", norm_case(columns, source)) for columns in COLUMNS]
    write_golden("row_golden.txt", f"make_row_golden.py and torch {torch.__version__}", cases)


main()
