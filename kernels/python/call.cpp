#include "kernels/python/call.h"

#include <map>
#include <utility>

namespace bertha::python {
namespace {

void raise(int32_t status, const BerthaKernels* kernels) {
  PyObject* kind = status == BERTHA_INVALID  ? PyExc_ValueError
                   : status == BERTHA_MEMORY ? PyExc_MemoryError
                                             : PyExc_RuntimeError;
  PyErr_SetString(kind, bertha_error(kernels));
}

/// By kind and number, of the GPU or of CPU threads; guarded by Python's lock.
std::map<std::pair<bool, int64_t>, BerthaKernels*> opened;

/// A device that is opened at its first use; null and an exception where that fails.
BerthaKernels* kernels_of(bool is_cuda, int64_t number) {
  const auto found = opened.find({is_cuda, number});
  if (found != opened.end()) return found->second;
  BerthaKernels* kernels = nullptr;
  int32_t status = BERTHA_OK;
  Py_BEGIN_ALLOW_THREADS;
  const auto open = is_cuda ? bertha_open_cuda : bertha_open_cpu;
  status = open(static_cast<int32_t>(number), &kernels);
  Py_END_ALLOW_THREADS;
  if (status != BERTHA_OK) {
    raise(status, kernels);
    bertha_close(kernels);
    return nullptr;
  }
  const auto [place, is_first] = opened.try_emplace({is_cuda, number}, kernels);
  if (!is_first) bertha_close(kernels);  // another thread was faster
  return place->second;
}

void* data_of(PyObject* tensor) {
  return tensor == nullptr || tensor == Py_None ? nullptr : see(tensor).data;
}

BerthaTensor make_vector(void* data, int64_t count, int32_t dtype) {
  return {.data = data, .extents = {count}, .strides = {}, .dtype = dtype, .rank = 1};
}

}  // namespace

bool Call::is_served(bool by_softmax) const {
  const bool is_half = x.dtype == BERTHA_F16 || x.dtype == BERTHA_BF16;
  return x.has_data() && x.is_dense && x.dtype >= 0 && x.elements > 0 &&
         (by_softmax || !is_half || x.index != SeenTensor::kCpu);
}

bool Call::fit(PyObject* parameter, int64_t count, BerthaTensor& to, bool may_be_one) const {
  if (parameter == Py_None) return true;
  const SeenTensor seen = see(parameter);
  to = make_vector(seen.data, seen.elements, seen.dtype);
  return seen.has_data() && seen.rank == 1 && seen.is_dense && seen.dtype == x.dtype &&
         seen.index == x.index && (seen.elements == count || (may_be_one && seen.elements == 1));
}

void Call::take_rows(int64_t columns) {
  form_.extents[0] = columns > 0 ? x.elements / columns : 0;
  form_.extents[1] = columns;
  form_.rank = 2;
}

void Call::take_channels(int64_t channels) {
  if (x.elements == 0) return;
  int64_t outer = 1;
  if (channels > 1) outer = x.is_dense ? x.first : x.elements / channels;  // else channels-last
  form_.extents[0] = outer;
  form_.extents[1] = channels;
  form_.extents[2] = x.elements / (outer * channels);
  form_.rank = 3;
}

BerthaTensor Call::x_itself() const {
  BerthaTensor same = form_;
  same.data = x.data;
  return same;
}

BerthaTensor Call::like_x(PyObject* tensor) const {
  BerthaTensor same = form_;
  same.data = data_of(tensor);
  return same.data == nullptr ? BerthaTensor{} : same;
}

BerthaTensor Call::vector(PyObject* tensor, int64_t count, int32_t dtype) const {
  void* data = data_of(tensor);
  return data == nullptr ? BerthaTensor{} : make_vector(data, count, dtype);
}

void Call::set_statistics(PyObject* tensor, BerthaTensor& mean, BerthaTensor& rstd) const {
  const bool is_double = x.dtype == BERTHA_F64;
  const int64_t rows = form_.extents[0];
  mean = rstd = vector(tensor, rows, is_double ? BERTHA_F64 : BERTHA_F32);
  if (mean.data == nullptr) return;
  rstd.data = static_cast<char*>(mean.data) + rows * (is_double ? 8 : 4);
}

Call::Place Call::enter() const {
  if (x.index == SeenTensor::kCpu) {
    return {.kernels = kernels_of(false, number_of(call(torch.threads)))};
  }
  Place place{.gpu_before = number_of(call(torch.gpu))};
  const Object index(PyLong_FromLongLong(x.index));
  if (place.gpu_before != x.index) call(torch.exchange_gpu, index.get());
  const Object stream = call(torch.stream, index.get());
  if (stream != nullptr) place.stream = PyLong_AsVoidPtr(stream.get());
  if (PyErr_Occurred() == nullptr) place.kernels = kernels_of(true, x.index);
  return place;
}

bool Call::leave(const Place& place, int32_t status) const {
  if (status != BERTHA_OK) raise(status, place.kernels);
  if (place.gpu_before != x.index) {
    PyObject *kind, *value, *trace;  // functions of Python are called without an exception
    PyErr_Fetch(&kind, &value, &trace);
    call(torch.restore_gpu, Object(PyLong_FromLongLong(place.gpu_before)).get());
    PyErr_Restore(kind, value, trace);
  }
  return PyErr_Occurred() == nullptr;
}

PyObject* forget_devices(PyObject*, PyObject*) {
  opened.clear();
  Py_RETURN_NONE;
}

}  // namespace bertha::python
