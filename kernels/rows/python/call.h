#pragma once

#include "kernels/rows/python/from_torch.h"

#include <span>

#include "kernels/rows/c/bertha_kernels.h"

namespace bertha::python {

/// One call of an operation: x, and what its other tensors have in common with x. Where a function
/// of Python raises an exception, it stays, and run() reports it.
class Call {
 public:
  explicit Call(PyObject* tensor) : x(see(tensor)), tensor_(tensor) { form_.dtype = x.dtype; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  /// The thread's GPU is again the one before.
  ~Call();

  const SeenTensor x;

  /// Whether the kernels take x as it is: all but those of softmax take no 16 bits on the CPU.
  bool is_served(bool by_softmax) const;
  /// Sets `to` where a parameter is a dense vector of x's dtype and device, of `count` elements or,
  /// if it may be, of one. Without a parameter, `to` stays.
  bool fit(PyObject* parameter, int64_t count, BerthaTensor& to, bool may_be_one = false) const;

  /// x is taken as [R, columns].
  void take_rows(int64_t columns);
  /// x is taken as (N, channels, S) of kernels/rows/ops/prelu.h; one channel has all elements.
  void take_channels(int64_t channels);

  /// A new tensor on x's device, like x or dense; null and an exception where there is none.
  Object new_like_x();
  Object new_vector(int64_t count, int32_t dtype);
  /// For what an operation writes as a whole: zeros where x is empty, because none runs.
  Object new_sums(int64_t count);
  /// Of the rows: [2, R], because each tensor costs a call most of a microsecond.
  Object new_statistics();

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
  void set_statistics(PyObject* tensor, BerthaTensor& mean, BerthaTensor& rstd) const;

  /// Whether the operation ran; otherwise an exception is set. Without elements none has to.
  template <class Args>
  bool run(int32_t (*operation)(BerthaKernels*, void*, const Args*), const Args& args) {
    if (PyErr_Occurred() != nullptr || x.elements == 0) return PyErr_Occurred() == nullptr;
    const Place place = find_place();
    if (place.kernels == nullptr) return false;
    int32_t status = BERTHA_OK;
    Py_BEGIN_ALLOW_THREADS;
    status = operation(place.kernels, place.stream, &args);
    Py_END_ALLOW_THREADS;
    return report(place.kernels, status);
  }

 private:
  /// Where an operation runs.
  struct Place {
    BerthaKernels* kernels = nullptr;  // null: an exception is set
    void* stream = nullptr;
  };

  /// Makes x's GPU the thread's one.
  void enter();
  Place find_place();
  static bool report(const BerthaKernels* kernels, int32_t status);
  Object make(std::span<const int64_t> extents, int32_t dtype);

  PyObject* tensor_;
  BerthaTensor form_{};                          // x as the operation takes it, without data
  int64_t gpu_before_ = SeenTensor::kElsewhere;  // of the thread, once entered
};

/// The function of Python: devices are opened again at their next use, because the threads of a CPU
/// device do not live on in a child. Their handles are left as they are.
PyObject* forget_devices(PyObject*, PyObject*);

}  // namespace bertha::python
