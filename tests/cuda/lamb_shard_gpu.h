#pragma once

#include <cstring>
#include <vector>

#include "tests/cuda/gpu.h"
#include "tests/kernels/lamb_shard.h"

namespace bertha::testing {

inline HostTensor<float> tensor_of(const std::vector<float>& values, int64_t pad_before = 0) {
  HostTensor<float> tensor({pad_before + static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.values.begin() + pad_before);
  return tensor;
}

/// The device's copy of a Shard. With `pad_before` its arrays begin that many elements after an
/// aligned address.
class GpuShard : public ShardArguments<GpuShard> {
 public:
  GpuShard(const Shard& shard, DType io_in, int64_t pad_before = 0)
      : segments(shard.segments),
        io(io_in),
        pad(pad_before),
        elements(static_cast<int64_t>(shard.weight.size())),
        gradient_(gpu(), io, tensor_of(shard.gradient, pad)),
        weight_(gpu(), DType::kF32, tensor_of(shard.weight, pad)),
        m_(gpu(), DType::kF32, tensor_of(shard.m, pad)),
        v_(gpu(), DType::kF32, tensor_of(shard.v, pad)),
        update_(gpu(), DType::kF32, tensor_of(shard.update, pad)),
        model_weight_(gpu(), io, tensor_of(shard.model_weight, pad)),
        norms_(gpu(), norms_of(shard)),
        state_(gpu(), bytes_of(shard.state)),
        sum_(gpu(), HostTensor<double>({1}, shard.sum)) {}

  void set_gradient(const std::vector<float>& values) {
    gradient_ = DeviceTensor(gpu(), io, tensor_of(values, pad));
  }

  View gradient_view() const { return part(gradient_); }
  View weight_view() const { return part(weight_); }
  View m_view() const { return part(m_); }
  View v_view() const { return part(v_); }
  View update_view() const { return part(update_); }
  View model_weight_view() const { return part(model_weight_); }
  View norms_view() const { return norms_.view(); }
  View state_view() const { return state_.view(); }
  View sum_view() const { return sum_.view(); }

  std::vector<float> read_gradient() const { return values_of(gradient_); }
  std::vector<float> read_weight() const { return values_of(weight_); }
  std::vector<float> read_m() const { return values_of(m_); }
  std::vector<float> read_v() const { return values_of(v_); }
  std::vector<float> read_update() const { return values_of(update_); }
  std::vector<float> read_model_weight() const { return values_of(model_weight_); }
  std::vector<double> read_norms() const { return norms_.values<double>().values; }
  LambState read_state() const {
    LambState state;
    std::memcpy(&state, state_.values<uint8_t>().values.data(), sizeof(state));
    return state;
  }

  std::vector<LambSegment> segments;
  DType io;
  int64_t pad;
  int64_t elements;

 private:
  static HostTensor<double> norms_of(const Shard& shard) {
    HostTensor<double> norms({shard.tensors, 2});
    norms.values = shard.norms;
    return norms;
  }
  static HostTensor<uint8_t> bytes_of(const LambState& state) {
    HostTensor<uint8_t> bytes({static_cast<int64_t>(sizeof(state))});
    std::memcpy(bytes.values.data(), &state, sizeof(state));
    return bytes;
  }
  View part(const DeviceTensor& tensor) const { return tensor.view().rows(pad, elements); }
  std::vector<float> values_of(const DeviceTensor& tensor) const {
    const std::vector<float> all = tensor.floats().values;
    return {all.begin() + pad, all.end()};
  }

  DeviceTensor gradient_, weight_, m_, v_, update_, model_weight_;
  DeviceTensor norms_, state_, sum_;
};

inline void expect_near(const std::vector<float>& found, const std::vector<float>& want,
                        const char* what) {
  ASSERT_EQ(found.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(found[i], want[i], tolerance::kLambDevice * std::max(1.0f, std::abs(want[i])))
        << what << " of element " << i;
  }
}

}  // namespace bertha::testing
