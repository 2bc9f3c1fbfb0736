#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "harness/comm/world.h"

namespace bertha {

/// Energy of the GPUs of all ranks since its construction.
class EnergyMeter {
 public:
  /// bus_id: as for read_gpu_counters(); "" = no rank has a GPU. All ranks call it.
  EnergyMeter(const std::string& bus_id, World& world);

  /// Joules up to now; none if the driver of a rank does not report it. All ranks call it.
  std::optional<double> joules() const;

 private:
  uint64_t reading_mj() const;

  std::string bus_id_;
  std::unique_ptr<Transport> transport_;  // none without GPUs
  uint64_t first_mj_;
};

}  // namespace bertha
