#pragma once

// Python's header comes first.
#include <Python.h>

#include <cstdint>
#include <initializer_list>
#include <memory>

namespace bertha::python {

/// Owns a reference; empty where Python has raised an exception.
struct DropReference {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Object = std::unique_ptr<PyObject, DropReference>;

/// What calls take of PyTorch.
struct Torch {
  PyObject *tensor, *parameter;                                     // types
  PyObject *dispatch_modes, *function_modes, *transform, *tracing;  // who sees all operations
  PyObject *is_neg, *is_grad_enabled, *threads;                     // functions
  PyObject *empty_like, *empty_strided;                             // functions
  PyObject *quick_empty_cpu, *quick_empty_cuda;                     // null in older versions
  PyObject* dtypes[4];                                              // by BerthaDType
  PyObject *to_dlpack, *forward_mode;                               // a function and a module
  PyObject *gpu, *gpus, *stream, *exchange_gpu, *restore_gpu;       // null where it has no CUDA
  PyObject* dlpack_exchange;                                        // null in older versions
};
extern Torch torch;

/// Finds it, when the module is imported; otherwise an exception is set.
bool find_torch();

template <class... Arguments>
Object call(PyObject* function, Arguments*... arguments) {
  return Object(PyObject_CallFunctionObjArgs(function, arguments..., nullptr));
}
/// -1 and an exception where there is none.
inline int64_t number_of(const Object& object) {
  return object == nullptr ? -1 : PyLong_AsLongLong(object.get());
}

/// A tensor of PyTorch.
struct SeenTensor {
  static constexpr int64_t kCpu = -1;
  static constexpr int64_t kElsewhere = -2;

  void* data = nullptr;
  int32_t dtype = -1;          // BerthaDType; -1: one that operations do not take
  int64_t index = kElsewhere;  // of its GPU, or kCpu
  int32_t rank = 0;
  int64_t elements = 1;
  const int64_t* extents = nullptr;  // as long as the tensor lives; null in older versions
  int64_t first = 1;                 // extents of the axes 0 and 1, and of the last one
  int64_t second = 1;
  int64_t last = 1;
  bool is_dense = true;  // row-major

  bool has_data() const { return data != nullptr && index != kElsewhere; }
};

/// Where that fails, an exception is set and the tensor has no data.
SeenTensor see(PyObject* tensor);

/// PyTorch's current one on a GPU. Where that fails, an exception is set.
void* current_stream(int64_t gpu);

/// How an operation has to run.
enum class Route {
  kDispatcher,  // by PyTorch's dispatcher: a compiler, mode, subclass or transform looks at it
  kAutograd,    // under autograd alone
  kDirect       // at once
};

/// None or a number.
bool is_plain(PyObject* value);

/// Of an operation on these arguments: plain values, and tensors that have data.
Route route_of(PyObject* const* arguments, Py_ssize_t count);

}  // namespace bertha::python
