#include "kernels/rows/python/call.h"

#include <array>
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

/// Where memory is short, an exception is set.
Object tuple_of(std::span<const int64_t> numbers) {
  Object tuple(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  for (size_t i = 0; tuple != nullptr && i < numbers.size(); ++i) {
    PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(numbers[i]));
  }
  return tuple;
}

constexpr int kMostAxes = 8;  // of tensors that are made the quick way

}  // namespace

Call::~Call() {
  if (gpu_before_ < 0 || gpu_before_ == x.index) return;
  PyObject *kind, *value, *trace;  // functions of Python are called without an exception
  PyErr_Fetch(&kind, &value, &trace);
  call(torch.restore_gpu, Object(PyLong_FromLongLong(gpu_before_)).get());
  PyErr_Restore(kind, value, trace);
}

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

Object Call::new_statistics() {
  return new_vector(2 * form_.extents[0], x.dtype == BERTHA_F64 ? BERTHA_F64 : BERTHA_F32);
}

void Call::set_statistics(PyObject* tensor, BerthaTensor& mean, BerthaTensor& rstd) const {
  const bool is_double = x.dtype == BERTHA_F64;
  const int64_t rows = form_.extents[0];
  mean = rstd = vector(tensor, rows, is_double ? BERTHA_F64 : BERTHA_F32);
  if (mean.data == nullptr) return;
  rstd.data = static_cast<char*>(mean.data) + rows * (is_double ? 8 : 4);
}

Object Call::make(std::span<const int64_t> extents, int32_t dtype) {
  enter();
  if (PyErr_Occurred() != nullptr) return {};
  if (dtype < 0) {
    PyErr_SetString(PyExc_TypeError, "a tensor is of a dtype that the operations do not take");
    return {};
  }
  std::array<int64_t, kMostAxes> strides{};
  int64_t stride = 1;
  for (size_t axis = extents.size(); axis-- > 0; stride *= extents[axis]) strides[axis] = stride;
  const Object sizes = tuple_of(extents);
  const Object steps = tuple_of(std::span(strides).first(extents.size()));
  if (PyErr_Occurred() != nullptr) return {};
  PyObject* maker = x.index == SeenTensor::kCpu ? torch.quick_empty_cpu : torch.quick_empty_cuda;
  PyObject* type = torch.dtypes[dtype];
  if (maker != nullptr) return call(maker, sizes.get(), steps.get(), type);
  const Object device(PyObject_GetAttrString(tensor_, "device"));
  if (device == nullptr) return {};
  const Object positions(PyTuple_Pack(2, sizes.get(), steps.get()));
  const Object names(Py_BuildValue("{s:O,s:O}", "dtype", type, "device", device.get()));
  return Object(PyObject_Call(torch.empty_strided, positions.get(), names.get()));
}

Object Call::new_like_x() {
  if (PyErr_Occurred() != nullptr) return {};
  const bool is_quick = x.is_dense && x.extents != nullptr && x.rank <= kMostAxes && x.dtype >= 0;
  if (!is_quick) return call(torch.empty_like, tensor_);  // which keeps channels-last
  return make({x.extents, static_cast<size_t>(x.rank)}, x.dtype);
}

Object Call::new_vector(int64_t count, int32_t dtype) { return make({&count, 1}, dtype); }

Object Call::new_sums(int64_t count) {
  Object sums = new_vector(count, x.dtype);
  if (sums == nullptr || x.elements > 0) return sums;
  return Object(PyObject_CallMethod(sums.get(), "zero_", nullptr));
}

void Call::enter() {
  if (x.index < 0 || gpu_before_ != SeenTensor::kElsewhere) return;
  static const bool has_one_gpu = number_of(call(torch.gpus)) == 1;  // asking costs 0.3 us a call
  gpu_before_ = has_one_gpu ? x.index : number_of(call(torch.gpu));
  if (gpu_before_ == x.index || PyErr_Occurred() != nullptr) return;
  call(torch.exchange_gpu, Object(PyLong_FromLongLong(x.index)).get());
}

Call::Place Call::find_place() {
  if (x.index == SeenTensor::kCpu) {
    return {.kernels = kernels_of(false, number_of(call(torch.threads)))};
  }
  enter();
  Place place{.stream = current_stream(x.index)};
  if (PyErr_Occurred() == nullptr) place.kernels = kernels_of(true, x.index);
  return place;
}

bool Call::report(const BerthaKernels* kernels, int32_t status) {
  if (status != BERTHA_OK) raise(status, kernels);
  return status == BERTHA_OK;
}

PyObject* forget_devices(PyObject*, PyObject*) {
  opened.clear();
  Py_RETURN_NONE;
}

}  // namespace bertha::python
