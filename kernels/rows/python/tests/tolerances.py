"""How close results are to float64, in one place.

Rounding the result to its dtype costs half a unit in the last place, relative to an element, and
arithmetic in float32 (float64 for float64) a chain of roundings, relative to the largest number in it.
"""
import torch

CHAIN = {torch.float64: 2.0 ** -53, torch.float32: 2.0 ** -24, torch.float16: 2.0 ** -24,
         torch.bfloat16: 2.0 ** -24}
STORE = {torch.float64: 2.0 ** -53, torch.float32: 2.0 ** -24, torch.float16: 2.0 ** -11,
         torch.bfloat16: 2.0 ** -8}
# Subnormals of float16 are multiples of 2^-24.
SMALLEST_STEP = {torch.float16: 2.0 ** -25}


def assert_close(actual, expected, roundings, magnitude=None):
    """|actual - expected| <= STORE * |expected| + roundings * CHAIN * magnitude; not finite elements
    are the same. `magnitude`: of the numbers in the chain; the largest expected one unless given."""
    assert actual.shape == expected.shape
    dtype = actual.dtype
    found, wanted = actual.detach().double().cpu(), expected.detach().double().cpu()
    finite = wanted.isfinite()
    torch.testing.assert_close(found[~finite], wanted[~finite], rtol=0, atol=0, equal_nan=True)
    found, wanted = found[finite], wanted[finite]
    if wanted.numel() == 0:
        return
    if magnitude is None:
        magnitude = max(1e-30, wanted.abs().max().item())
    allowed = (STORE[dtype] * wanted.abs() + roundings * CHAIN[dtype] * magnitude
               + SMALLEST_STEP.get(dtype, 0.0))
    excess = (found - wanted).abs() - allowed
    worst = excess.argmax()
    assert excess[worst] <= 0, (f"{found[worst]} for {wanted[worst]}, {excess[worst]} beyond "
                                f"{allowed[worst]}, {dtype}")
