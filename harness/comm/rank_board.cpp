#include "harness/comm/rank_board.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "kernels/base/error.h"

namespace bertha {

// Processes share the slots: no lock of one of them may be behind an access.
static_assert(std::atomic<int64_t>::is_always_lock_free);

const char* name(RunPhase phase) {
  switch (phase) {
    case RunPhase::kStart:
      return "starting";
    case RunPhase::kReadWeights:
      return "reading weights";
    case RunPhase::kOpenData:
      return "opening data";
    case RunPhase::kWaitForData:
      return "waiting for data";
    case RunPhase::kTrain:
      return "training";
    case RunPhase::kEvaluate:
      return "evaluating";
    case RunPhase::kSave:
      return "saving";
    case RunPhase::kFinish:
      return "finishing";
  }
  return "unknown";
}

RankBoard::RankBoard() : own_memory_(2), slots_(own_memory_) { sign_in(); }

RankBoard::RankBoard(std::span<Slot> slots, int rank) : slots_(slots), rank_(rank) { sign_in(); }

namespace {

/// Of process ids: equal for processes that see each other by them. 1 where nothing says so.
int64_t id_namespace() {
  struct stat file {};
  return stat("/proc/self/ns/pid", &file) == 0 ? static_cast<int64_t>(file.st_ino) : 1;
}

}  // namespace

void RankBoard::sign_in() {
  gethostname(own().host, sizeof(own().host) - 1);
  own().is_here = id_namespace();
  own().process = getpid();
}

void RankBoard::enter(int64_t step, RunPhase phase) {
  own().step = step;
  own().phase = static_cast<int64_t>(phase);
  move();
}

std::vector<Standing> RankBoard::read() const {
  std::vector<Standing> standings;
  for (int r = 0; r < size(); ++r) {
    const Slot& slot = slots_[static_cast<size_t>(r)];
    const int64_t process = slot.process;
    if (process == 0) continue;
    standings.push_back({.rank = r,
                         .host = slot.host,
                         .process = process,
                         .is_here = slot.is_here == own().is_here,
                         .step = slot.step,
                         .phase = static_cast<RunPhase>(slot.phase.load()),
                         .moves = slot.moves,
                         .background_moves = slot.background_moves,
                         .beats = slot.beats,
                         .ticks = slot.ticks});
  }
  return standings;
}

int64_t RankBoard::progress() const {
  int64_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.moves + slot.background_moves + slot.beats;
  return sum;
}

RankBoard::Line RankBoard::line(int rank) const {
  const Slot& slot = slots_[static_cast<size_t>(rank)];
  Line line{};
  line.rank = rank;
  line.process = slot.process;
  line.step = slot.step;
  line.phase = slot.phase;
  line.moves = slot.moves;
  line.background_moves = slot.background_moves;
  line.beats = slot.beats;
  line.ticks = slot.ticks;
  std::memcpy(line.host, slot.host, sizeof(line.host));
  return line;
}

RankBoard::Line RankBoard::all_together() const {
  Line line{};
  line.rank = size();
  line.process = 1;
  line.beats = progress() - slots_.back().beats;
  return line;
}

void RankBoard::post(const Line& line) {
  BERTHA_CHECK(line.rank >= 0 && line.rank <= size(), "news of rank ", line.rank, " of ", size());
  Slot& slot = slots_[static_cast<size_t>(line.rank)];
  slot.step = line.step;
  slot.phase = line.phase;
  slot.moves = line.moves;
  slot.background_moves = line.background_moves;
  slot.beats = line.beats;
  slot.ticks = line.ticks;
  if (slot.process != 0) return;
  std::memcpy(slot.host, line.host, sizeof(slot.host));
  slot.process = line.process;
}

}  // namespace bertha
