#include "harness/comm/rank_board.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "kernels/base/error.h"

namespace bertha {

// Processes share the slots, so an access must not need a lock within one process.
static_assert(std::atomic<int64_t>::is_always_lock_free);

const char* name(RunPhase phase) {
  constexpr std::array kNames{"starting", "reading weights", "opening data", "waiting for data",
                              "training", "evaluating",      "saving",       "finishing"};
  return kNames.at(static_cast<size_t>(phase));
}

const char* name(CollectiveCall call) {
  constexpr std::array kNames{"none",           "transport of data", "making a communicator",
                              "barrier",        "broadcast",         "agreement",
                              "reduce-scatter", "all-gather",        "all-reduce"};
  return kNames.at(static_cast<size_t>(call));
}

RankBoard::RankBoard() : own_memory_(2), slots_(own_memory_) { register_process(); }

RankBoard::RankBoard(std::span<Slot> slots, int rank) : slots_(slots), rank_(rank) {
  register_process();
}

namespace {

/// The namespace of process ids: equal for processes that can see each other. 1 if unknown.
int64_t id_namespace() {
  struct stat file {};
  return stat("/proc/self/ns/pid", &file) == 0 ? static_cast<int64_t>(file.st_ino) : 1;
}

}  // namespace

void RankBoard::register_process() {
  gethostname(own().host, sizeof(own().host) - 1);
  own().is_here = id_namespace();
  own().process = getpid();
}

void RankBoard::enter(int64_t step, RunPhase phase) {
  own().step = step;
  own().phase = static_cast<int64_t>(phase);
  ++own().moves;
}

void RankBoard::enter_call(CollectiveCall call) {
  if (call != CollectiveCall::kOfPipeline) own().call = static_cast<int64_t>(call);
  leave_call(call);
}

void RankBoard::leave_call(CollectiveCall call) {
  if (call == CollectiveCall::kOfPipeline) {
    ++own().background_moves;
    return;
  }
  ++own().call_moves;
  ++own().moves;
}

RankStatus RankBoard::status(int rank) const {
  const Slot& slot = slots_[static_cast<size_t>(rank)];
  RankStatus status{.rank = rank,
                    .process = slot.process,
                    .is_here = slot.is_here == own().is_here,
                    .step = slot.step,
                    .phase = static_cast<RunPhase>(slot.phase.load()),
                    .moves = slot.moves,
                    .call_moves = slot.call_moves,
                    .call = static_cast<CollectiveCall>(slot.call.load()),
                    .background_moves = slot.background_moves,
                    .beats = slot.beats,
                    .ticks = slot.ticks};
  std::memcpy(status.host, slot.host, sizeof(status.host));
  return status;
}

std::vector<RankStatus> RankBoard::read() const {
  std::vector<RankStatus> statuses;
  for (int r = 0; r < size(); ++r) {
    const RankStatus one = status(r);
    if (one.process != 0) statuses.push_back(one);
  }
  return statuses;
}

int64_t RankBoard::progress() const {
  int64_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.moves + slot.background_moves + slot.beats;
  return sum;
}

RankStatus RankBoard::all_together() const {
  return {.rank = size(), .process = 1, .beats = progress() - slots_.back().beats};
}

void RankBoard::store(const RankStatus& received) {
  BERTHA_CHECK(received.rank >= 0 && received.rank <= size(), "status of rank ", received.rank,
               " of ", size());
  Slot& slot = slots_[static_cast<size_t>(received.rank)];
  slot.step = received.step;
  slot.phase = static_cast<int64_t>(received.phase);
  slot.moves = received.moves;
  slot.call_moves = received.call_moves;
  slot.call = static_cast<int64_t>(received.call);
  slot.background_moves = received.background_moves;
  slot.beats = received.beats;
  slot.ticks = received.ticks;
  if (slot.process != 0) return;
  std::memcpy(slot.host, received.host, sizeof(slot.host));
  slot.process = received.process;
}

}  // namespace bertha
