#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace bertha {

/// The phases of a run, in order; name() uses the same order.
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

/// The name in messages: "evaluating".
const char* name(RunPhase phase);

/// Collective calls; name() uses the same order.
enum class CollectiveCall : int64_t {
  kNone,
  kOfPipeline,  // from a thread that reads data
  kDuplicate,   // duplicates a communicator
  kBarrier,
  kBroadcast,
  kAgreement,
  kReduceScatter,
  kAllGather,
  kAllReduce,
};

/// The name in messages: "reduce-scatter".
const char* name(CollectiveCall call);

/// The progress of one rank, also as the bytes that are sent to other nodes.
struct RankStatus {
  int rank = 0;
  char host[72] = "";
  int64_t process = 0;  // its id on that host; 0 = not registered
  bool is_here = true;  // whether the reading process can see its process
  int64_t step = 0;
  RunPhase phase = RunPhase::kStart;
  // Number of phases begun, and collective calls entered and left, by the training thread. All
  // ranks make the same ones in the same order: a rank with a smaller number has done less.
  int64_t moves = 0;
  int64_t call_moves = 0;                       // calls among `moves`: odd = within a call
  CollectiveCall call = CollectiveCall::kNone;  // the last one entered
  int64_t background_moves = 0;                 // the same for the pipeline's threads
  int64_t beats = 0;                            // heartbeats within a phase; ranks differ in them
  int64_t ticks = 0;  // from the watchdog's thread: constant in a stopped process
};

/// The status of every rank, in shared memory, because a stopped process cannot answer a message.
/// Each rank writes only its own slot.
///
/// Threads   any; writing costs an atomic addition.
class RankBoard {
 public:
  struct Slot {
    std::atomic<int64_t> process;  // 0 = not registered
    std::atomic<int64_t> is_here;  // the namespace of its process id; 0 = on another node
    std::atomic<int64_t> step, phase, moves, call_moves, call, background_moves, beats, ticks;
    char host[sizeof(RankStatus::host)];  // complete before `process` is set
  };

  /// A board of a single rank.
  RankBoard();
  /// One slot per rank and one more, initially zero, in memory that outlives this. Registers the
  /// process as `rank`.
  RankBoard(std::span<Slot> slots, int rank);
  RankBoard(const RankBoard&) = delete;
  RankBoard& operator=(const RankBoard&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(slots_.size()) - 1; }

  /// Records that this rank begins `phase` of `step`. All ranks make the same calls.
  void enter(int64_t step, RunPhase phase);
  /// Records progress within a phase that may take long.
  void beat() { ++own().beats; }
  /// Record that this rank enters or leaves a collective call. A call that a GPU executes later
  /// ends when it is enqueued.
  void enter_call(CollectiveCall call);
  void leave_call(CollectiveCall call);
  /// Records that its watchdog's thread runs.
  void tick() { ++own().ticks; }

  /// The ranks that are known here, in rank order; at least this one.
  std::vector<RankStatus> read() const;
  /// Increases when any rank makes progress, also on other nodes whose statuses are stored.
  int64_t progress() const;

  /// For messages between nodes: the status of one rank, the progress of all known ranks, and
  /// storing the statuses received from another node.
  RankStatus status(int rank) const;
  RankStatus all_together() const;
  void store(const RankStatus& received);

 private:
  void register_process();
  Slot& own() const { return slots_[static_cast<size_t>(rank_)]; }

  std::vector<Slot> own_memory_;
  std::span<Slot> slots_;  // last slot: all ranks together, as received from another node
  int rank_ = 0;
};

/// Records that this rank is in a collective call, for the lifetime of this object.
class CallOnBoard {
 public:
  /// Without a board, records nothing.
  CallOnBoard(RankBoard* board, CollectiveCall call) : board_(board), call_(call) {
    if (board_ != nullptr) board_->enter_call(call_);
  }
  CallOnBoard(const CallOnBoard&) = delete;
  CallOnBoard& operator=(const CallOnBoard&) = delete;
  ~CallOnBoard() {
    if (board_ != nullptr) board_->leave_call(call_);
  }

 private:
  RankBoard* board_;
  CollectiveCall call_;
};

}  // namespace bertha
