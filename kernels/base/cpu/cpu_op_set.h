#pragma once

#include "kernels/base/cpu/cpu_device.h"
#include "kernels/base/cpu/operations.h"
#include "kernels/base/op_set.h"

namespace bertha {

/// A set of operations, Ops or RowOps, on the threads of a CPU device.
template <class Set>
class CpuOpSet final : public Set {
 public:
  explicit CpuOpSet(Device& device) : pool_(pool_of(device)) {}

 private:
  static WorkerPool& pool_of(Device& device) {
    auto* cpu_device = dynamic_cast<CpuDevice*>(&device);
    BERTHA_CHECK(cpu_device != nullptr, "device is ", device.description(), ", want a CPU device");
    return cpu_device->pool();
  }
  void enqueue(typename Set::AnyArgs any) override {
    std::visit([&](const auto* args) { run_cpu(pool_, *args); }, any);
  }

  WorkerPool& pool_;
};

}  // namespace bertha
