#include "kernels/cuda/attention/lane_recorder.h"

#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_check.h"

namespace bertha {
namespace {

constexpr int kRuns = 21;
// The first ones of a run keep the device busy until the last, which counts, is enqueued.
constexpr int kAttentionsPerRun = 3;

void destroy(cudaEvent_t event) { cudaEventDestroy(event); }

double us_between(cudaEvent_t from, cudaEvent_t to) {
  float ms = 0.0f;
  BERTHA_CUDA_CHECK(cudaEventElapsedTime(&ms, from, to));
  return static_cast<double>(ms) * 1e3;
}

double total_us(const std::vector<LaneSpan>& spans) {
  double end = 0;
  for (const LaneSpan& span : spans) end = std::max(end, span.end_us);
  return end;
}

}  // namespace

LaneRecorder::Event LaneRecorder::record(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  BERTHA_CUDA_CHECK(cudaEventCreate(&event));
  Event owned(event, &destroy);
  BERTHA_CUDA_CHECK(cudaEventRecord(event, stream));
  return owned;
}

void LaneRecorder::start(cudaStream_t stream) {
  groups_.clear();
  start_ = record(stream);
}

void LaneRecorder::begin(int lane, cudaStream_t stream, const SequenceGroup& group) {
  groups_.push_back({.span = {.lane = lane,
                              .num_seqs = group.num_seqs,
                              .longest_seq_tokens = group.longest_seq_tokens},
                     .begin = record(stream),
                     .end = Event(nullptr, nullptr)});
}

void LaneRecorder::end(cudaStream_t stream) { groups_.back().end = record(stream); }

std::vector<LaneSpan> LaneRecorder::spans() const {
  std::vector<LaneSpan> spans;
  for (const Timed& group : groups_) {
    BERTHA_CUDA_CHECK(cudaEventSynchronize(group.end.get()));
    spans.push_back(group.span);
    spans.back().begin_us = us_between(start_.get(), group.begin.get());
    spans.back().end_us = us_between(start_.get(), group.end.get());
  }
  return spans;
}

std::vector<LaneSpan> time_attention_lanes(Device& device, Stream& stream,
                                           const std::function<void(Ops&)>& attention) {
  LaneRecorder recorder;
  const std::unique_ptr<Ops> ops = make_cuda_ops(
      device, stream,
      {.attention = CudaOptions::AttentionVariant::kGrouped, .attention_recorder = &recorder});
  std::vector<std::vector<LaneSpan>> runs;
  for (int run = 0; run < kRuns; ++run) {
    for (int i = 0; i < kAttentionsPerRun; ++i) attention(*ops);
    runs.push_back(recorder.spans());
    stream.wait_on_host();
  }
  const auto middle = runs.begin() + kRuns / 2;
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const auto& a, const auto& b) { return total_us(a) < total_us(b); });
  return *middle;
}

}  // namespace bertha
