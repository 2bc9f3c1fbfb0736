#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace bertha {

/// The parts of a run, in their order; name() lists them in this order too.
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

/// The name in a sentence: "evaluating".
const char* name(RunPhase phase);

/// What ranks call together; name() lists them in this order.
enum class CollectiveCall : int64_t {
  kNone,
  kOfPipeline,  // by a thread that reads data
  kDuplicate,   // of a communicator
  kBarrier,
  kBroadcast,
  kAgreement,
  kReduceScatter,
  kAllGather,
  kAllReduce,
};

/// The name in a sentence: "reduce-scatter".
const char* name(CollectiveCall call);

/// The progress of one rank, also as the bytes that go to other nodes.
struct RankStatus {
  int rank = 0;
  char host[72] = "";
  int64_t process = 0;  // its id on that host; 0 = it has not registered
  bool is_here = true;  // its process can be seen by the process that reads
  int64_t step = 0;
  RunPhase phase = RunPhase::kStart;
  // Phases begun, and collective calls entered and returned from, by the training thread. All ranks
  // make the same ones in the same order: the rank with the smaller number is behind.
  int64_t moves = 0;
  int64_t call_moves = 0;                       // calls among `moves`: odd = inside of one
  CollectiveCall call = CollectiveCall::kNone;  // the last entered
  int64_t background_moves = 0;                 // the same of the pipeline's threads
  int64_t beats = 0;  // signs of life within a phase; ranks differ in them
  int64_t ticks = 0;  // of the watchdog's thread: constant in a stopped process
};

/// The status of every rank, in shared memory: a stopped process could not answer a message. Each
/// rank writes its own slot only.
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

  /// The board of one rank alone.
  RankBoard();
  /// One slot per rank and one more, zeros at first, in memory that outlives this. The process
  /// registers as `rank`.
  RankBoard(std::span<Slot> slots, int rank);
  RankBoard(const RankBoard&) = delete;
  RankBoard& operator=(const RankBoard&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(slots_.size()) - 1; }

  /// This rank begins `phase` of `step`. All ranks make the same calls.
  void enter(int64_t step, RunPhase phase);
  /// It makes progress within a phase that may take long.
  void beat() { ++own().beats; }
  /// It enters a collective call; it returns from it. A call that a GPU carries out later ends when
  /// it is queued.
  void enter_call(CollectiveCall call);
  void leave_call(CollectiveCall call);
  /// Its watchdog's thread runs.
  void tick() { ++own().ticks; }

  /// The ranks that are known here, in rank order; one at least, this one.
  std::vector<RankStatus> read() const;
  /// Grows when any rank makes progress, on other nodes too where their statuses are stored.
  int64_t progress() const;

  /// For messages between nodes: the status of one rank, the progress of all that are known here,
  /// and storing what has come from another node.
  RankStatus status(int rank) const;
  RankStatus all_together() const;
  void store(const RankStatus& received);

 private:
  void register_process();
  Slot& own() const { return slots_[static_cast<size_t>(rank_)]; }

  std::vector<Slot> own_memory_;
  std::span<Slot> slots_;  // the last: all together, as received from another node
  int rank_ = 0;
};

/// This rank is in a collective call as long as this lives.
class CallOnBoard {
 public:
  /// No board: nothing is noted.
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
