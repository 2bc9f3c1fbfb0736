#include "harness/comm/energy_meter.h"

#include <vector>

#include "harness/comm/gpu_state.h"

namespace bertha {

EnergyMeter::EnergyMeter(const std::string& bus_id, World& world)
    : bus_id_(bus_id),
      transport_(bus_id.empty() ? nullptr : world.make_transport()),
      first_mj_(reading_mj()) {}

uint64_t EnergyMeter::reading_mj() const {
  return bus_id_.empty() ? 0 : read_gpu_counters(bus_id_).energy_mj;
}

std::optional<double> EnergyMeter::joules() const {
  if (transport_ == nullptr) return std::nullopt;
  const uint64_t now_mj = reading_mj();
  const bool is_known = first_mj_ > 0 && now_mj >= first_mj_;
  const std::vector<int64_t> sums = transport_->sum(std::vector<int64_t>{
      is_known ? static_cast<int64_t>(now_mj - first_mj_) : 0, is_known ? 1 : 0});
  if (sums[1] != transport_->size()) return std::nullopt;
  return static_cast<double>(sums[0]) / 1000;
}

}  // namespace bertha
