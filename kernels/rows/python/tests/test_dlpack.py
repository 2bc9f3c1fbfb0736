"""Arrays of other libraries, by DLPack."""
import numpy
import pytest
import torch

from bertha_kernels import dlpack


def test_numpy_arrays():
    x = numpy.random.default_rng(1).standard_normal((3, 7)).astype(numpy.float32)
    y = dlpack.softmax(x)
    assert isinstance(y, numpy.ndarray)
    wanted = numpy.exp(x) / numpy.exp(x).sum(-1, keepdims=True)
    numpy.testing.assert_allclose(y, wanted, rtol=1e-5)
    numpy.testing.assert_allclose(dlpack.log_softmax(x), numpy.log(wanted), rtol=1e-4)
    normal = (x - x.mean(-1, keepdims=True)) / numpy.sqrt(x.var(-1, keepdims=True) + 1e-5)
    numpy.testing.assert_allclose(dlpack.layer_norm(x), normal, rtol=1e-4, atol=1e-5)
    slope = numpy.array([0.5], dtype=numpy.float32)
    numpy.testing.assert_allclose(dlpack.prelu(x, slope), numpy.where(x > 0, x, 0.5 * x))
    reversed_rows = x[::-1]
    numpy.testing.assert_array_equal(dlpack.softmax(reversed_rows), y[::-1])

    class Derived(numpy.ndarray):
        pass
    numpy.testing.assert_array_equal(dlpack.softmax(x.view(Derived)), y)
    with pytest.raises(TypeError, match="has a mask"):
        dlpack.softmax(numpy.ma.masked_array(x, x > 0))


def test_what_is_not_an_array_is_refused():
    class JitTracer:  # as jax.jit gives them
        pass
    with pytest.raises(TypeError, match="outside jax.jit"):
        dlpack.softmax(JitTracer())
    for other in ([1.0, 2.0], 3.0, "x"):
        with pytest.raises(TypeError, match="is not an array"):
            dlpack.softmax(other)


def test_jax_arrays():
    jax = pytest.importorskip("jax")
    x = jax.numpy.linspace(-2.0, 2.0, 24).reshape(4, 6)
    y = dlpack.softmax(x)
    assert isinstance(y, jax.Array)
    numpy.testing.assert_allclose(y, jax.nn.softmax(x), rtol=1e-5)
    with pytest.raises(TypeError, match="outside jax.jit"):
        jax.jit(dlpack.softmax)(x)


def test_cupy_arrays():
    cupy = pytest.importorskip("cupy")
    x = cupy.linspace(-2.0, 2.0, 24, dtype=cupy.float32).reshape(4, 6)
    y = dlpack.softmax(x)
    assert isinstance(y, cupy.ndarray)
    wanted = torch.softmax(torch.from_dlpack(x), -1)
    torch.testing.assert_close(torch.from_dlpack(y), wanted)
