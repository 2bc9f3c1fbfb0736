// The Python module bertha_kernels.c_interface: the C interface (kernels/rows/c/bertha_kernels.h)
// on tensors of PyTorch.
//
// A call runs on the device of x, its first argument, there on the current stream. It returns new
// tensors, but those of BatchNorm fill what they are given. All tensors are dense, on that device
// and as large as the operation wants them: torch_ops.py sees to that. Only direct_* check
// themselves, and return None where a call is not for them. Where autograd has to record a call
// that is, they leave it to their last argument, a function of Python.

#include "kernels/rows/python/call.h"

namespace bertha::python {
namespace {

/// The arguments of a function of Python.
struct Arguments {
  PyObject* const* values;

  PyObject* operator[](int i) const { return values[i]; }
  int32_t flag(int i) const { return values[i] == Py_True ? 1 : 0; }
  int64_t integer(int i) const { return PyLong_AsLongLong(values[i]); }
  double real(int i) const { return PyFloat_AsDouble(values[i]); }
};

/// The results of a call that ran; None in the place of those that were not wanted.
template <class... Objects>
PyObject* results_if(bool has_run, const Objects&... results) {
  if (!has_run) return nullptr;
  return PyTuple_Pack(sizeof...(results), (results == nullptr ? Py_None : results.get())...);
}

/// The call is not for a direct_* function; what was found wrong on the way is told by others.
PyObject* decline() {
  PyErr_Clear();
  Py_RETURN_NONE;
}

/// The route of any arguments.
PyObject* route(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  Route found = route_of(arguments, count);
  for (Py_ssize_t i = 0; i < count && found != Route::kDispatcher; ++i) {
    if (is_plain(arguments[i])) continue;
    const SeenTensor tensor = see(arguments[i]);
    if (!tensor.has_data() && tensor.elements > 0) found = Route::kDispatcher;
  }
  PyErr_Clear();
  return PyLong_FromLong(static_cast<long>(found));
}

// --- softmax and log-softmax ------------------------------------------------------------------------

PyObject* run_softmax(Call& call, int32_t is_log) {
  call.take_rows(call.x.last);
  Object y = call.new_like_x();
  BerthaSoftmaxFwd args{};
  args.x = call.x_itself();
  args.y = call.like_x(y.get());
  args.scale = 1.0f;
  args.is_log = is_log;
  return call.run(bertha_softmax_fwd, args) ? y.release() : nullptr;
}

/// x, is_log: y.
PyObject* softmax(const Arguments& a) {
  Call call(a[0]);
  return run_softmax(call, a.flag(1));
}

/// x, dim, dtype, is_log, record: y.
PyObject* direct_softmax(const Arguments& a) {
  const Route route = route_of(a.values, 1);
  if (a[2] != Py_None || route == Route::kDispatcher) return decline();
  Call call(a[0]);
  const int64_t dim = a.integer(1);
  if (!call.is_served(true) || (dim != -1 && dim != call.x.rank - 1)) return decline();
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (route == Route::kAutograd) return python::call(a[4], a[0], a[3]).release();
  return run_softmax(call, a.flag(3));
}

/// y, dy, is_log: dx.
PyObject* softmax_backward(const Arguments& a) {
  Call call(a[0]);
  call.take_rows(call.x.last);
  Object dx = call.new_like_x();
  BerthaSoftmaxBwd args{};
  args.dy = call.like_x(a[1]);
  args.y = call.x_itself();
  args.dx = call.like_x(dx.get());
  args.scale = 1.0f;
  args.is_log = a.flag(2);
  return call.run(bertha_softmax_bwd, args) ? dx.release() : nullptr;
}

// --- LayerNorm --------------------------------------------------------------------------------------

/// x, gamma, beta, columns, epsilon: y, the means of all rows and then their rstd.
PyObject* layer_norm(const Arguments& a) {
  Call call(a[0]);
  const int64_t columns = a.integer(3);
  call.take_rows(columns);
  const Object y = call.new_like_x();
  const Object statistics = call.new_statistics();
  BerthaLayerNormFwd args{};
  args.x = call.x_itself();
  args.gamma = call.parameter(a[1], columns);
  args.beta = call.parameter(a[2], columns);
  args.y = call.like_x(y.get());
  call.set_statistics(statistics.get(), args.mean, args.rstd);
  args.epsilon = a.real(4);
  return results_if(call.run(bertha_layer_norm_fwd, args), y, statistics);
}

/// x, gamma, beta, normalized_shape, epsilon, record: y. Only `record` computes statistics.
PyObject* direct_layer_norm(const Arguments& a) {
  const Route route = route_of(a.values, 3);
  if (route == Route::kDispatcher) return decline();
  Call call(a[0]);
  if (!call.is_served(false) || PySequence_Size(a[3]) != 1) return decline();
  const Object extent(PySequence_GetItem(a[3], 0));
  const int64_t columns = number_of(extent);
  BerthaLayerNormFwd args{};
  if (call.x.rank == 0 || columns != call.x.last || !call.fit(a[1], columns, args.gamma) ||
      !call.fit(a[2], columns, args.beta)) {
    return decline();
  }
  if (route == Route::kAutograd) {
    return python::call(a[5], a[0], a[1], a[2], extent.get(), a[4]).release();
  }
  call.take_rows(columns);
  Object y = call.new_like_x();
  args.x = call.x_itself();
  args.y = call.like_x(y.get());
  args.epsilon = a.real(4);
  return call.run(bertha_layer_norm_fwd, args) ? y.release() : nullptr;
}

/// x, dy, statistics, gamma, columns, wants_parameters: dx, dgamma, dbeta.
PyObject* layer_norm_backward(const Arguments& a) {
  Call call(a[0]);
  const int64_t columns = a.integer(4);
  call.take_rows(columns);
  const Object dx = call.new_like_x();
  Object dgamma, dbeta;
  if (a.flag(5) != 0) {
    dgamma = call.new_sums(columns);
    dbeta = call.new_sums(columns);
  }
  BerthaLayerNormBwd args{};
  args.dy = call.like_x(a[1]);
  args.x = call.x_itself();
  call.set_statistics(a[2], args.mean, args.rstd);
  args.gamma = call.parameter(a[3], columns);
  args.dx = call.like_x(dx.get());
  args.dgamma = call.parameter(dgamma.get(), columns);
  args.dbeta = call.parameter(dbeta.get(), columns);
  return results_if(call.run(bertha_layer_norm_bwd, args), dx, dgamma, dbeta);
}

// --- channels: PReLU, BatchNorm + Add + ReLU --------------------------------------------------------

PyObject* run_prelu(Call& call, BerthaPreluFwd& args) {
  call.take_channels(args.slope.extents[0]);
  Object y = call.new_like_x();
  args.x = call.x_itself();
  args.y = call.like_x(y.get());
  return call.run(bertha_prelu_fwd, args) ? y.release() : nullptr;
}

/// x, slope: y.
PyObject* prelu(const Arguments& a) {
  Call call(a[0]);
  BerthaPreluFwd args{};
  args.slope = call.parameter(a[1], see(a[1]).elements);
  return run_prelu(call, args);
}

/// x, slope, record: y.
PyObject* direct_prelu(const Arguments& a) {
  const Route route = route_of(a.values, 2);
  if (a[1] == Py_None || route == Route::kDispatcher) return decline();
  Call call(a[0]);
  BerthaPreluFwd args{};
  if (!call.is_served(false) || call.x.dtype == BERTHA_F64 ||
      !call.fit(a[1], call.x.second, args.slope, true)) {
    return decline();
  }
  if (route == Route::kAutograd) return python::call(a[2], a[0], a[1]).release();
  return run_prelu(call, args);
}

/// x, dy, slope: dx, dslope.
PyObject* prelu_backward(const Arguments& a) {
  Call call(a[0]);
  const int64_t channels = see(a[2]).elements;
  call.take_channels(channels);
  const Object dx = call.new_like_x();
  const Object dslope = call.new_sums(channels);
  BerthaPreluBwd args{};
  args.dy = call.like_x(a[1]);
  args.x = call.x_itself();
  args.slope = call.parameter(a[2], channels);
  args.dx = call.like_x(dx.get());
  args.dslope = call.parameter(dslope.get(), channels);
  return results_if(call.run(bertha_prelu_bwd, args), dx, dslope);
}

/// x, addend, gamma, beta, running_mean, running_var, y, mask, mean, rstd, uses_running, momentum,
/// epsilon.
PyObject* batch_norm_relu(const Arguments& a) {
  Call call(a[0]);
  call.take_channels(call.x.second);
  BerthaBatchNormReluFwd args{};
  args.x = call.x_itself();
  args.addend = call.like_x(a[1]);
  args.gamma = call.of_channels(a[2]);
  args.beta = call.of_channels(a[3]);
  args.running_mean = call.of_channels(a[4]);
  args.running_var = call.of_channels(a[5]);
  args.y = call.like_x(a[6]);
  args.mask = call.bits(a[7]);
  args.mean = call.of_channels(a[8]);
  args.rstd = call.of_channels(a[9]);
  args.uses_running = a.flag(10);
  args.momentum = static_cast<float>(a.real(11));
  args.epsilon = static_cast<float>(a.real(12));
  return results_if(call.run(bertha_batch_norm_relu_fwd, args));
}

/// x, dy, mask, mean, rstd, gamma, dx, daddend, dgamma, dbeta, uses_running.
PyObject* batch_norm_relu_backward(const Arguments& a) {
  Call call(a[0]);
  call.take_channels(call.x.second);
  BerthaBatchNormReluBwd args{};
  args.dy = call.like_x(a[1]);
  args.x = call.x_itself();
  args.mask = call.bits(a[2]);
  args.mean = call.of_channels(a[3]);
  args.rstd = call.of_channels(a[4]);
  args.gamma = call.of_channels(a[5]);
  args.dx = call.like_x(a[6]);
  args.daddend = call.like_x(a[7]);
  args.dgamma = call.of_channels(a[8]);
  args.dbeta = call.of_channels(a[9]);
  args.uses_running = a.flag(10);
  return results_if(call.run(bertha_batch_norm_relu_bwd, args));
}

// --- the module -------------------------------------------------------------------------------------

template <PyObject* (*run)(const Arguments&), int kCount>
PyObject* entry(PyObject*, PyObject* const* values, Py_ssize_t count) {
  if (count == kCount) return run({values});
  PyErr_Format(PyExc_TypeError, "found %zd arguments, want %d", count, kCount);
  return nullptr;
}

using Entry = PyObject*(PyObject*, PyObject* const*, Py_ssize_t);

PyMethodDef function(const char* name, Entry* entry) {
  void (*const untyped)() = reinterpret_cast<void (*)()>(entry);
  return {name, reinterpret_cast<PyCFunction>(untyped), METH_FASTCALL, nullptr};
}

PyMethodDef functions[] = {
    {"forget_devices", forget_devices, METH_NOARGS, nullptr},
    function("route", route),
    function("softmax", entry<softmax, 2>),
    function("direct_softmax", entry<direct_softmax, 5>),
    function("softmax_backward", entry<softmax_backward, 3>),
    function("layer_norm", entry<layer_norm, 5>),
    function("direct_layer_norm", entry<direct_layer_norm, 6>),
    function("layer_norm_backward", entry<layer_norm_backward, 6>),
    function("prelu", entry<prelu, 2>),
    function("direct_prelu", entry<direct_prelu, 3>),
    function("prelu_backward", entry<prelu_backward, 3>),
    function("batch_norm_relu", entry<batch_norm_relu, 13>),
    function("batch_norm_relu_backward", entry<batch_norm_relu_backward, 11>),
    {}};

PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                          .m_name = "c_interface",
                          .m_doc = nullptr,
                          .m_size = -1,
                          .m_methods = functions,
                          .m_slots = nullptr,
                          .m_traverse = nullptr,
                          .m_clear = nullptr,
                          .m_free = nullptr};

}  // namespace
}  // namespace bertha::python

PyMODINIT_FUNC PyInit_c_interface() {
  using namespace bertha::python;
  if (bertha_abi_version() != BERTHA_ABI_VERSION) {
    PyErr_Format(
        PyExc_ImportError,
        "libbertha_kernels.so has interface version %d, want %d; install bertha-kernels again",
        bertha_abi_version(), BERTHA_ABI_VERSION);
    return nullptr;
  }
  if (!find_torch()) return nullptr;
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr) return nullptr;
  PyModule_AddIntConstant(module, "DISPATCHER", static_cast<long>(Route::kDispatcher));
  PyModule_AddIntConstant(module, "AUTOGRAD", static_cast<long>(Route::kAutograd));
  PyModule_AddIntConstant(module, "DIRECT", static_cast<long>(Route::kDirect));
  return module;
}
