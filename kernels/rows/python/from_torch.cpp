#include "kernels/rows/python/from_torch.h"

#include <algorithm>
#include <string>

#include "kernels/rows/c/bertha_kernels.h"

namespace bertha::python {

Torch torch;

namespace {

PyObject* requires_grad_name;
PyObject* level_name;

/// torch.PATH, or null and an exception.
PyObject* found(const std::string& path) {
  Object object(PyImport_ImportModule("torch"));
  for (size_t begin = 0; object != nullptr && begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    object.reset(PyObject_GetAttrString(object.get(), path.substr(begin, end - begin).c_str()));
    begin = end + 1;
  }
  return object.release();
}

// --- tensors ---------------------------------------------------------------------------------------

constexpr int32_t kDlpackCpu = 1;
constexpr int32_t kDlpackCuda = 2;

/// DLTensor and DLPackExchangeAPI of DLPack 1.x, by which other libraries see tensors of PyTorch.
/// Versions without the exchange interface have capsules, each of which costs 0.25 us.
struct DlpackTensor {
  void* data;
  int32_t device_type;
  int32_t device;
  int32_t rank;
  uint8_t code;  // 2: floating point, 4: bfloat
  uint8_t bits;
  uint16_t lanes;
  const int64_t* extents;
  const int64_t* strides;  // null: row-major
  uint64_t byte_offset;
};
struct DlpackExchange {
  uint32_t major, minor;
  void* not_used[4];
  int (*see)(PyObject* tensor, DlpackTensor* seen);  // not 0: an exception is set
  int (*current_stream)(int32_t device_type, int32_t device, void** stream);
};

const DlpackExchange* dlpack_exchange;

int32_t dtype_of(const DlpackTensor& tensor) {
  if (tensor.code == 4 && tensor.bits == 16) return BERTHA_BF16;
  if (tensor.code == 2 && tensor.bits == 16) return BERTHA_F16;
  if (tensor.code == 2 && tensor.bits == 32) return BERTHA_F32;
  return tensor.code == 2 && tensor.bits == 64 ? BERTHA_F64 : -1;
}

SeenTensor seen(const DlpackTensor& tensor) {
  SeenTensor seen{.data = tensor.data, .dtype = dtype_of(tensor), .rank = tensor.rank};
  if (tensor.device_type == kDlpackCpu) seen.index = SeenTensor::kCpu;
  if (tensor.device_type == kDlpackCuda) seen.index = tensor.device;
  if (tensor.byte_offset != 0) seen.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  for (int32_t axis = tensor.rank - 1; axis >= 0; --axis) {
    const int64_t extent = tensor.extents[axis];
    const bool is_next = tensor.strides == nullptr || tensor.strides[axis] == seen.elements;
    seen.is_dense = seen.is_dense && (is_next || extent == 1);
    seen.elements *= extent;
  }
  if (tensor.rank > 0) seen.first = tensor.extents[0];
  if (tensor.rank > 1) seen.second = tensor.extents[1];
  if (tensor.rank > 0) seen.last = tensor.extents[tensor.rank - 1];
  return seen;
}

// --- routes -----------------------------------------------------------------------------------

bool is_tensor(PyObject* value) {
  const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  return type == torch.tensor || type == torch.parameter;
}

}  // namespace

bool find_torch() {
  const struct {
    PyObject** to;
    const char* path;
    bool is_optional = false;
  } objects[] = {{&torch.tensor, "Tensor"},
                 {&torch.parameter, "nn.Parameter"},
                 {&torch.dispatch_modes, "_C._len_torch_dispatch_stack"},
                 {&torch.function_modes, "_C._len_torch_function_stack"},
                 {&torch.transform, "_C._functorch.peek_interpreter_stack"},
                 {&torch.tracing, "_C._is_tracing"},
                 {&torch.is_neg, "Tensor.is_neg"},
                 {&torch.is_grad_enabled, "is_grad_enabled"},
                 {&torch.empty_like, "empty_like"},
                 {&torch.empty_strided, "empty_strided"},
                 {&torch.quick_empty_cpu, "_C._dynamo.guards._empty_strided_cpu", true},
                 {&torch.quick_empty_cuda, "_C._dynamo.guards._empty_strided_cuda", true},
                 {&torch.dtypes[BERTHA_F64], "float64"},
                 {&torch.dtypes[BERTHA_F32], "float32"},
                 {&torch.dtypes[BERTHA_F16], "float16"},
                 {&torch.dtypes[BERTHA_BF16], "bfloat16"},
                 {&torch.threads, "get_num_threads"},
                 {&torch.to_dlpack, "_C._to_dlpack"},
                 {&torch.forward_mode, "autograd.forward_ad"},
                 {&torch.gpu, "_C._cuda_getDevice", true},
                 {&torch.gpus, "_C._cuda_getDeviceCount", true},
                 {&torch.stream, "_C._cuda_getCurrentRawStream", true},
                 {&torch.exchange_gpu, "_C._cuda_exchangeDevice", true},
                 {&torch.restore_gpu, "_C._cuda_maybeExchangeDevice", true},
                 {&torch.dlpack_exchange, "Tensor.__dlpack_c_exchange_api__", true}};
  for (const auto& object : objects) {
    *object.to = found(object.path);
    if (*object.to != nullptr) continue;
    if (!object.is_optional) return false;
    PyErr_Clear();
  }
  if (torch.dlpack_exchange != nullptr) {
    dlpack_exchange = static_cast<const DlpackExchange*>(
        PyCapsule_GetPointer(torch.dlpack_exchange, "dlpack_exchange_api"));
    if (dlpack_exchange == nullptr) return false;
    if (dlpack_exchange->major != 1) dlpack_exchange = nullptr;
  }
  requires_grad_name = PyUnicode_InternFromString("requires_grad");
  level_name = PyUnicode_InternFromString("_current_level");
  return requires_grad_name != nullptr && level_name != nullptr;
}

SeenTensor see(PyObject* tensor) {
  if (dlpack_exchange != nullptr) {
    DlpackTensor of_torch;
    if (dlpack_exchange->see(tensor, &of_torch) != 0) return {};
    SeenTensor found = seen(of_torch);
    found.extents = of_torch.extents;
    return found;
  }
  const Object capsule = call(torch.to_dlpack, tensor);
  const void* begins_with_tensor =
      capsule == nullptr ? nullptr : PyCapsule_GetPointer(capsule.get(), "dltensor");
  if (begins_with_tensor == nullptr) return {};
  return seen(*static_cast<const DlpackTensor*>(begins_with_tensor));
}

void* current_stream(int64_t gpu) {
  void* stream = nullptr;
  if (dlpack_exchange != nullptr) {
    const int status =
        dlpack_exchange->current_stream(kDlpackCuda, static_cast<int32_t>(gpu), &stream);
    return status == 0 ? stream : nullptr;
  }
  const Object found = call(torch.stream, Object(PyLong_FromLongLong(gpu)).get());
  return found == nullptr ? nullptr : PyLong_AsVoidPtr(found.get());
}

bool is_plain(PyObject* value) {
  const PyTypeObject* type = Py_TYPE(value);
  return value == Py_None || type == &PyBool_Type || type == &PyLong_Type || type == &PyFloat_Type;
}

Route route_of(PyObject* const* arguments, Py_ssize_t count) {
  if (number_of(call(torch.dispatch_modes)) > 0 || number_of(call(torch.function_modes)) > 0 ||
      call(torch.transform).get() != Py_None || call(torch.tracing).get() == Py_True) {
    return Route::kDispatcher;
  }
  bool wants_gradient = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (is_plain(arguments[i])) continue;
    if (!is_tensor(arguments[i])) return Route::kDispatcher;
    if (call(torch.is_neg, arguments[i]).get() == Py_True) return Route::kDispatcher;
    const Object requires_grad(PyObject_GetAttr(arguments[i], requires_grad_name));
    wants_gradient = wants_gradient || requires_grad.get() == Py_True;
  }
  // No cheap sign tells whether a tensor has a tangent: autograd refuses one.
  const Object level(PyObject_GetAttr(torch.forward_mode, level_name));
  if (number_of(level) >= 0) return Route::kAutograd;
  const bool records = wants_gradient && call(torch.is_grad_enabled).get() == Py_True;
  return records ? Route::kAutograd : Route::kDirect;
}

}  // namespace bertha::python
