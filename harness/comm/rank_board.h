#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace bertha {

/// The parts of a run, in their order.
enum class RunPhase : int64_t {
  kStart,
  kReadWeights,
  kOpenData,
  kWaitForData,
  kTrain,
  kEvaluate,
  kSave,
  kFinish,
};

/// In words for a sentence: "evaluating".
const char* name(RunPhase phase);

/// Where one rank stands, also as the bytes that go to other nodes.
struct Standing {
  int rank = 0;
  char host[72] = "";
  int64_t process = 0;  // its id on that host; 0 = it has not signed in
  bool is_here = true;  // its process can be seen by the process that reads
  int64_t step = 0;
  RunPhase phase = RunPhase::kStart;
  // Phases begun, and collective calls entered and left, by the training thread. All ranks make the
  // same ones in the same order: the rank with the smaller number is behind.
  int64_t moves = 0;
  int64_t background_moves = 0;  // the same of the pipeline's threads
  int64_t beats = 0;             // signs of life within a phase; ranks differ in them
  int64_t ticks = 0;             // of the watchdog's thread: they stand still in a stopped process
};

/// Where every rank stands, in memory that others read without the help of its owner: a stopped
/// process cannot answer. Each rank writes its own slot only.
///
/// Threads   any; writing costs an atomic addition.
class RankBoard {
 public:
  struct Slot {
    std::atomic<int64_t> process;  // 0 = nobody has signed in
    std::atomic<int64_t> is_here;  // the namespace of its process id; 0 = on another node
    std::atomic<int64_t> step, phase, moves, background_moves, beats, ticks;
    char host[sizeof(Standing::host)];  // complete before `process` is set
  };

  /// Of one rank alone.
  RankBoard();
  /// One slot per rank and one more, zeros at first, in memory that outlives this. The process
  /// signs in as `rank`.
  RankBoard(std::span<Slot> slots, int rank);
  RankBoard(const RankBoard&) = delete;
  RankBoard& operator=(const RankBoard&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(slots_.size()) - 1; }

  /// This rank begins `phase` of `step`. All ranks call it alike.
  void enter(int64_t step, RunPhase phase);
  /// It gets on within a phase that may take long.
  void beat() { ++own().beats; }
  /// It enters or leaves a collective call.
  void move() { ++own().moves; }
  void move_in_background() { ++own().background_moves; }
  /// Its watchdog's thread runs.
  void tick() { ++own().ticks; }

  /// The ranks that are known here, in rank order; one at least, this one.
  std::vector<Standing> read() const;
  /// Grows when any rank gets on, on other nodes too if news of them are posted.
  int64_t progress() const;

  /// News between nodes: what is here of one rank, the progress of all that are known here, and
  /// what has come from another node.
  Standing standing(int rank) const;
  Standing all_together() const;
  void post(const Standing& news);

 private:
  void sign_in();
  Slot& own() const { return slots_[static_cast<size_t>(rank_)]; }

  std::vector<Slot> own_memory_;
  std::span<Slot> slots_;  // the last: all together, as another node told
  int rank_ = 0;
};

}  // namespace bertha
