#include <pthread.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>

#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "kernels/rows/python/call.h"

// Defined by libtorch_cuda.so, which builds of PyTorch for the CPU do not have.
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

void check_status(int32_t status) {
  if (status != BERTHA_OK) throw std::runtime_error(bertha_error(nullptr));
}

Handle open(auto open_device, int32_t number) {
  BerthaKernels* kernels = nullptr;
  const int32_t status = open_device(number, &kernels);
  Handle handle(kernels, bertha_close);
  check_status(status);
  return handle;
}

/// The CPU with as many threads as PyTorch has now.
Handle cpu_kernels() {
  const uint32_t threads = torch::stable::get_num_threads();
  const std::lock_guard lock(devices->mutex);
  if (threads != devices->cpu_threads) {
    devices->cpu = open(bertha_open_cpu, static_cast<int32_t>(threads));
    devices->cpu_threads = threads;
  }
  return devices->cpu;
}

Handle gpu_kernels(int32_t ordinal) {
  const std::lock_guard lock(devices->mutex);
  Handle& handle = devices->gpus[ordinal];
  if (handle == nullptr) handle = open(bertha_open_cuda, ordinal);
  return handle;
}

}  // namespace

void run_where(const Tensor& tensor,
               const std::function<int32_t(BerthaKernels*, void* stream)>& function) {
  if (tensor.is_cpu()) return check_status(function(cpu_kernels().get(), nullptr));
  const int32_t ordinal = tensor.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(ordinal);
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(ordinal, &stream));
  check_status(function(gpu_kernels(ordinal).get(), stream));
}

}  // namespace bertha::python
