// The Python module bertha_kernels.c_interface: the C interface (kernels/c/bertha_kernels.h) on
// tensors of PyTorch.
//
// A call runs on the device of x, its first argument, there on the current stream. All tensors are
// dense, on that device and as large as the operation wants them: torch_ops.py sees to that. Only
// direct_* check themselves, and return None where a call is not for them. Where autograd has to
// record a call that is, they leave it to their last argument, a function of Python.

#include "kernels/python/call.h"

namespace bertha::python {
namespace {

/// The arguments of a function of Python.
struct Arguments {
  PyObject* const* values;

  PyObject* operator[](int i) const { return values[i]; }
  int32_t flag(int i) const { return values[i] == Py_True ? 1 : 0; }
  int64_t integer(int i) const { return PyLong_AsLongLong(values[i]); }
  float real(int i) const { return static_cast<float>(PyFloat_AsDouble(values[i])); }
};

PyObject* none_if(bool has_run) {
  if (!has_run) return nullptr;
  Py_RETURN_NONE;
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

bool run_softmax(Call& call, PyObject* y, int32_t is_log) {
  call.take_rows(call.x.last);
  BerthaSoftmaxFwd args{};
  args.x = call.x_itself();
  args.y = call.like_x(y);
  args.scale = 1.0f;
  args.is_log = is_log;
  return call.run(bertha_softmax_fwd, args);
}

/// x, y, is_log.
PyObject* softmax(const Arguments& a) {
  Call call(a[0]);
  return none_if(run_softmax(call, a[1], a.flag(2)));
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
  Object y = python::call(torch.empty_like, a[0]);
  return run_softmax(call, y.get(), a.flag(3)) ? y.release() : nullptr;
}

/// y, dy, dx, is_log.
PyObject* softmax_backward(const Arguments& a) {
  Call call(a[0]);
  call.take_rows(call.x.last);
  BerthaSoftmaxBwd args{};
  args.dy = call.like_x(a[1]);
  args.y = call.x_itself();
  args.dx = call.like_x(a[2]);
  args.scale = 1.0f;
  args.is_log = a.flag(3);
  return none_if(call.run(bertha_softmax_bwd, args));
}

// --- LayerNorm --------------------------------------------------------------------------------------

/// x, gamma, beta, y, statistics, columns, epsilon.
PyObject* layer_norm(const Arguments& a) {
  Call call(a[0]);
  const int64_t columns = a.integer(5);
  call.take_rows(columns);
  BerthaLayerNormFwd args{};
  args.x = call.x_itself();
  args.gamma = call.parameter(a[1], columns);
  args.beta = call.parameter(a[2], columns);
  args.y = call.like_x(a[3]);
  call.set_statistics(a[4], args.mean, args.rstd);
  args.epsilon = a.real(6);
  return none_if(call.run(bertha_layer_norm_fwd, args));
}

/// x, gamma, beta, normalized_shape, epsilon, record: y. Only `record` computes statistics, and
/// returns them after y.
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
    const Object results = python::call(a[5], a[0], a[1], a[2], extent.get(), a[4]);
    return results == nullptr ? nullptr : PySequence_GetItem(results.get(), 0);
  }
  call.take_rows(columns);
  Object y = python::call(torch.empty_like, a[0]);
  args.x = call.x_itself();
  args.y = call.like_x(y.get());
  args.epsilon = a.real(4);
  return call.run(bertha_layer_norm_fwd, args) ? y.release() : nullptr;
}

/// x, dy, statistics, gamma, dx, dgamma, dbeta, columns.
PyObject* layer_norm_backward(const Arguments& a) {
  Call call(a[0]);
  const int64_t columns = a.integer(7);
  call.take_rows(columns);
  BerthaLayerNormBwd args{};
  args.dy = call.like_x(a[1]);
  args.x = call.x_itself();
  call.set_statistics(a[2], args.mean, args.rstd);
  args.gamma = call.parameter(a[3], columns);
  args.dx = call.like_x(a[4]);
  args.dgamma = call.parameter(a[5], columns);
  args.dbeta = call.parameter(a[6], columns);
  return none_if(call.run(bertha_layer_norm_bwd, args));
}

// --- channels: PReLU, BatchNorm + Add + ReLU --------------------------------------------------------

/// x, slope, y.
PyObject* prelu(const Arguments& a) {
  Call call(a[0]);
  const int64_t channels = see(a[1]).elements;
  call.take_channels(channels);
  BerthaPreluFwd args{};
  args.x = call.x_itself();
  args.slope = call.parameter(a[1], channels);
  args.y = call.like_x(a[2]);
  return none_if(call.run(bertha_prelu_fwd, args));
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
  call.take_channels(args.slope.extents[0]);
  Object y = python::call(torch.empty_like, a[0]);
  args.x = call.x_itself();
  args.y = call.like_x(y.get());
  return call.run(bertha_prelu_fwd, args) ? y.release() : nullptr;
}

/// x, dy, slope, dx, dslope.
PyObject* prelu_backward(const Arguments& a) {
  Call call(a[0]);
  const int64_t channels = see(a[2]).elements;
  call.take_channels(channels);
  BerthaPreluBwd args{};
  args.dy = call.like_x(a[1]);
  args.x = call.x_itself();
  args.slope = call.parameter(a[2], channels);
  args.dx = call.like_x(a[3]);
  args.dslope = call.parameter(a[4], channels);
  return none_if(call.run(bertha_prelu_bwd, args));
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
  args.momentum = a.real(11);
  args.epsilon = a.real(12);
  return none_if(call.run(bertha_batch_norm_relu_fwd, args));
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
  return none_if(call.run(bertha_batch_norm_relu_bwd, args));
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
    function("softmax", entry<softmax, 3>),
    function("direct_softmax", entry<direct_softmax, 5>),
    function("softmax_backward", entry<softmax_backward, 4>),
    function("layer_norm", entry<layer_norm, 7>),
    function("direct_layer_norm", entry<direct_layer_norm, 6>),
    function("layer_norm_backward", entry<layer_norm_backward, 8>),
    function("prelu", entry<prelu, 3>),
    function("direct_prelu", entry<direct_prelu, 3>),
    function("prelu_backward", entry<prelu_backward, 5>),
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
