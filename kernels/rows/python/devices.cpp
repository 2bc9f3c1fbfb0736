#include "kernels/rows/python/devices.h"

#include <pthread.h>
#include <torch/csrc/stable/ops.h>

#include <map>
#include <mutex>
#include <stdexcept>

// Of libtorch_cuda.so, which builds of PyTorch for the CPU do not have.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(int32_t ordinal,
                                                                                   void** stream);

namespace bertha::python {
namespace {

using Handle = std::shared_ptr<BerthaKernels>;

/// Devices that are open.
struct Devices {
  std::mutex mutex;
  Handle cpu;
  uint32_t cpu_threads = 0;
  std::map<int32_t, Handle> gpus;
};

/// Never deleted: at exit, other threads may still be in a call.
Devices* devices = new Devices();

/// A child of fork() lacks the parent's worker threads and opens devices of its own.
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { devices = new Devices(); });

template <class Open>
Handle open(Open open_device, int32_t number) {
  BerthaKernels* kernels = nullptr;
  const int32_t status = open_device(number, &kernels);
  Handle handle(kernels, bertha_close);
  check_status(status);
  return handle;
}

}  // namespace

Place::Place(const torch::stable::Tensor& tensor) {
  const bool is_cpu = tensor.is_cpu();
  const int32_t ordinal = tensor.get_device_index();
  if (!is_cpu) {
    guard_ = std::make_unique<torch::stable::accelerator::DeviceGuard>(ordinal);
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(ordinal, &stream_));
  }
  const std::lock_guard lock(devices->mutex);
  Handle& handle = is_cpu ? devices->cpu : devices->gpus[ordinal];
  const uint32_t threads = is_cpu ? torch::stable::get_num_threads() : 0;
  if (is_cpu && threads != devices->cpu_threads) {
    handle = open(bertha_open_cpu, static_cast<int32_t>(threads));
    devices->cpu_threads = threads;
  }
  if (handle == nullptr) handle = open(bertha_open_cuda, ordinal);
  kernels_ = handle;
}

void check_status(int32_t status) {
  if (status != BERTHA_OK) throw std::runtime_error(bertha_error(nullptr));
}

}  // namespace bertha::python
