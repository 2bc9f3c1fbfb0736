#pragma once

#include "kernels/python/from_torch.h"

#include "kernels/c/bertha_kernels.h"

namespace bertha::python {

/// One call of an operation: x, and what its other tensors have in common with x. Where a function
/// of Python raises an exception, it stays, and run() reports it.
class Call {
 public:
  explicit Call(PyObject* tensor) : x(see(tensor)) { form_.dtype = x.dtype; }

  const SeenTensor x;

  /// Whether the kernels take x as it is: all but those of softmax take no 16 bits on the CPU.
  bool is_served(bool by_softmax) const;
  /// Sets `to` where a parameter is a dense vector of x's dtype and device, of `count` elements or,
  /// if it may be, of one. Without a parameter, `to` stays.
  bool fit(PyObject* parameter, int64_t count, BerthaTensor& to, bool may_be_one = false) const;

  /// x is taken as [R, columns].
  void take_rows(int64_t columns);
  /// x is taken as (N, channels, S) of kernels/ops/prelu.h; one channel has all elements.
  void take_channels(int64_t channels);

  /// Arguments of the operation, without data where the tensor is None.
  BerthaTensor x_itself() const;
  BerthaTensor like_x(PyObject* tensor) const;
  BerthaTensor vector(PyObject* tensor, int64_t count, int32_t dtype) const;
  BerthaTensor parameter(PyObject* tensor, int64_t count) const {
    return vector(tensor, count, form_.dtype);
  }
  BerthaTensor of_channels(PyObject* tensor) const {
    return vector(tensor, form_.extents[1], BERTHA_F32);
  }
  BerthaTensor bits(PyObject* tensor) const {
    return vector(tensor, (x.elements + 7) / 8, BERTHA_U8);
  }
  /// Both are in one tensor, [2, R]: each tensor costs a call most of a microsecond.
  void set_statistics(PyObject* tensor, BerthaTensor& mean, BerthaTensor& rstd) const;

  /// Whether the operation ran; otherwise an exception is set. Without elements none has to.
  template <class Args>
  bool run(int32_t (*operation)(BerthaKernels*, void*, const Args*), const Args& args) const {
    if (PyErr_Occurred() != nullptr || x.elements == 0) return PyErr_Occurred() == nullptr;
    const Place place = enter();
    int32_t status = BERTHA_OK;
    if (place.kernels != nullptr) {
      Py_BEGIN_ALLOW_THREADS;
      status = operation(place.kernels, place.stream, &args);
      Py_END_ALLOW_THREADS;
    }
    return leave(place, status);
  }

 private:
  /// Where an operation runs.
  struct Place {
    BerthaKernels* kernels = nullptr;  // null: an exception is set
    void* stream = nullptr;
    int64_t gpu_before = SeenTensor::kCpu;  // of the thread
  };

  /// Makes x's GPU the thread's one; leave() takes the one before again.
  Place enter() const;
  bool leave(const Place& place, int32_t status) const;

  BerthaTensor form_{};  // x as the operation takes it, without data
};

/// The function of Python: devices are opened again at their next use, because the threads of a CPU
/// device do not live on in a child. Their handles are left as they are.
PyObject* forget_devices(PyObject*, PyObject*);

}  // namespace bertha::python
