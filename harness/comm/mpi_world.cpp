#include <mpi.h>
#include <sys/statvfs.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <system_error>
#include <thread>

#include "harness/comm/communicator_world.h"
#include "harness/comm/launcher.h"
#include "harness/comm/mpi_check.h"
#include "harness/comm/start_limit.h"
#include "harness/comm/status_relay.h"
#include "harness/comm/world.h"
#include "kernels/base/error.h"

#ifdef __SANITIZE_ADDRESS__
// Open MPI leaks memory in modules that it unloads, which no suppression can match: in programs
// that start MPI the sanitizer does not look for leaks.
extern "C" int __lsan_is_turned_off() { return 1; }
#endif
#ifdef __SANITIZE_THREAD__
// Open MPI is not instrumented: a thread that waits for its own message also copies messages of
// others, with synchronization that the sanitizer does not see. So it ignores accesses of such
// libraries and checks only ours.
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
#endif

namespace bertha {
namespace {

/// MPI_Init and MPI_Finalize. The latter waits for all ranks, so an unwinding rank must not call
/// it.
class MpiSession {
 public:
  MpiSession() {
    int provided = MPI_THREAD_SINGLE;
    BERTHA_MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
    // Errors are returned, also on communicators derived from this one; by default MPI ends the
    // process.
    BERTHA_MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (provided < MPI_THREAD_MULTIPLE) {
      MPI_Finalize();
      fail(ExitCode::kEnvironment, "this MPI offers thread level ", provided, ", want ",
           MPI_THREAD_MULTIPLE, " (MPI_THREAD_MULTIPLE); build against Open MPI with threads");
    }
  }
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  ~MpiSession() {
    if (std::uncaught_exceptions() == 0) MPI_Finalize();
  }
};

constexpr std::chrono::seconds kOtherRanksWait{5};

/// Reports exhausted shared memory, for which MPI only says "internal error".
void check_shared(const Communicator& node, int status) {
  if (status == MPI_SUCCESS) return;
  // All ranks of the node fail: the first one reports it and ends the others by exiting.
  if (node.rank() != 0) std::this_thread::sleep_for(kOtherRanksWait);
  struct statvfs file_system {};
  const bool is_known = statvfs("/dev/shm", &file_system) == 0;
  fail(ExitCode::kEnvironment,
       "MPI could not allocate shared memory for the ranks of this machine (", mpi_words(status),
       "), /dev/shm has ",
       is_known ? concat(file_system.f_bavail * file_system.f_frsize / 1024, " KiB left")
                : "no file system",
       "; remove files that ended programs left there, or enlarge it: `mount -o remount,size=2g "
       "/dev/shm`, in a container `--shm-size=2g`");
}

/// Memory that the ranks of a node share: reading and writing it does not need a reply of another
/// rank. It has a slot for each rank of the world, and one more.
class NodeMemory {
 public:
  NodeMemory(const Communicator& node, int num_ranks) {
    const size_t num_slots = static_cast<size_t>(num_ranks) + 1;
    const size_t bytes = sizeof(Flag) + num_slots * sizeof(RankBoard::Slot);
    char* memory = allocate(node, bytes);
    flag_ = reinterpret_cast<Flag*>(memory);
    slots_ = {reinterpret_cast<RankBoard::Slot*>(memory + sizeof(Flag)), num_slots};
    if (node.rank() == 0) {
      new (flag_) Flag{};
      for (RankBoard::Slot& slot : slots_) new (&slot) RankBoard::Slot{};
    }
    BERTHA_MPI_CHECK(MPI_Barrier(node.get()));
  }
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;
  ~NodeMemory() {
    if (std::uncaught_exceptions() == 0) MPI_Win_free(&window_);
  }

  bool claim_flag() { return flag_->taken.exchange(1) == 0; }
  std::span<RankBoard::Slot> slots() const { return slots_; }

 private:
  struct alignas(RankBoard::Slot) Flag {
    std::atomic<int> taken;
  };

  char* allocate(const Communicator& node, size_t bytes) {
    char* own = nullptr;
    const MPI_Aint own_bytes = node.rank() == 0 ? static_cast<MPI_Aint>(bytes) : 0;
    check_shared(node,
                 MPI_Win_allocate_shared(own_bytes, 1, MPI_INFO_NULL, node.get(), &own, &window_));
    BERTHA_MPI_CHECK(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
    MPI_Aint first_bytes = 0;
    int unit_bytes = 0;
    char* first = nullptr;
    BERTHA_MPI_CHECK(MPI_Win_shared_query(window_, 0, &first_bytes, &unit_bytes, &first));
    return first;
  }

  MPI_Win window_ = MPI_WIN_NULL;
  Flag* flag_ = nullptr;
  std::span<RankBoard::Slot> slots_;
};

class MpiWorld final : public CommunicatorWorld {
 public:
  explicit MpiWorld(const CoreBinding& binding)
      : start_(MPI_COMM_WORLD),
        node_(NodeCommunicator(start_).get()),
        memory_(node_, start_.size()),
        board_(memory_.slots(), start_.rank()),
        world_(MPI_COMM_WORLD, &board_),
        status_relay_(start_, node_, board_) {
    binding_ = binding;
  }
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;
  ~MpiWorld() override {
    try {
      end_limit_.emplace(std::getenv, size(), "ended MPI; everything else is done");
    } catch (const std::system_error&) {  // no thread available: continue without a limit
    }
  }

  int node_rank() const override { return node_.rank(); }
  int node_size() const override { return node_.size(); }

  bool claim_failure() override { return memory_.claim_flag(); }

  RankBoard& board() override { return board_; }
  void relay_status() override {
    const std::unique_lock<std::mutex> lock(relay_mutex_, std::try_to_lock);
    if (lock.owns_lock()) status_relay_.relay();
  }

 private:
  const Communicator& communicator() const override { return world_; }

  std::optional<StartLimit> end_limit_;
  MpiSession session_;  // first member: destroyed last
  Communicator start_;  // all ranks, before there is a board
  Communicator node_;
  NodeMemory memory_;
  RankBoard board_;
  Communicator world_;
  StatusRelay status_relay_;
  std::mutex relay_mutex_;
};

}  // namespace

std::string World::broadcast(const std::string& text, int root) {
  size_t length = text.size();
  broadcast_bytes(std::as_writable_bytes(std::span(&length, 1)), root);
  std::string result = text;
  result.resize(length);
  broadcast_bytes(std::as_writable_bytes(std::span(result)), root);
  return result;
}

std::vector<std::string> World::gather_texts(const std::string& mine) {
  std::vector<std::string> texts;
  const std::unique_ptr<Transport> transport = make_transport();
  for (const auto& bytes : transport->all_gather_bytes(std::as_bytes(std::span(mine)))) {
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return texts;
}

std::unique_ptr<World> make_world(const std::vector<std::string>& gpu_bus_ids) {
  const EnvironmentLookup lookup = std::getenv;
  check_srun_task(lookup);
  const CoreBinding binding = bind_process(lookup, gpu_bus_ids);
  const std::optional<LauncherClaim> claim = find_launcher(lookup);
  if (!has_mpi_launcher(lookup)) {
    // A single process needs no daemon: Open MPI would start one for it, and both would listen on
    // all networks of the machine. Without a daemon, all such processes would share one session
    // folder, which one may remove while another creates it, so none is created.
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    setenv("OMPI_MCA_orte_create_session_dirs", "0", 0);
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_btl", "self", 0);
  }
  // By default Open MPI 5 asks the kernel for routes and finds none to a rank of the same machine
  // if the machine also has IPv6: each rank warns, and TCP between such ranks fails.
  setenv("OMPI_MCA_reachable", "weighted", 0);
  std::unique_ptr<MpiWorld> world;
  {
    const StartLimit limit(lookup, claim ? claim->ranks : 1);
    world = std::make_unique<MpiWorld>(binding);
  }
  // Every rank sees the same disagreement, so all of them reach the end of the world together.
  std::exception_ptr disagreement;
  try {
    check_launcher(claim, world->size());
  } catch (...) {
    disagreement = std::current_exception();
  }
  if (disagreement) {
    world.reset();
    std::rethrow_exception(disagreement);
  }
  return world;
}

}  // namespace bertha
