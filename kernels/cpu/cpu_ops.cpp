#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/operations.h"

namespace bertha {
namespace {

class CpuOps final : public Ops {
 public:
  explicit CpuOps(WorkerPool& pool) : pool_(pool) {}

 private:
  void enqueue(AnyArgs any) override {
    std::visit([&](const auto* args) { run_cpu(pool_, *args); }, any);
  }

  WorkerPool& pool_;
};

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(Device& device, Stream&) {
  auto* cpu_device = dynamic_cast<CpuDevice*>(&device);
  BERTHA_CHECK(cpu_device != nullptr, "device is ", device.description(), ", want a CPU device");
  return std::make_unique<CpuOps>(cpu_device->pool());
}

}  // namespace bertha
