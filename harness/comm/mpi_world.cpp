#include <mpi.h>

#include <atomic>
#include <cstdlib>
#include <exception>

#include "harness/comm/launcher.h"
#include "harness/comm/mpi_check.h"
#include "harness/comm/mpi_collectives.h"
#include "harness/comm/mpi_communicator.h"
#include "harness/comm/mpi_transport.h"
#include "harness/comm/world.h"
#include "kernels/base/error.h"

#ifdef __SANITIZE_ADDRESS__
// Open MPI leaves memory behind in modules that it unloads, where no suppression can name it: the
// sanitizer looks for everything but leaks in programs that start MPI.
extern "C" int __lsan_is_turned_off() { return 1; }
#endif
#ifdef __SANITIZE_THREAD__
// Open MPI is not instrumented: a thread that waits for its own message copies others' as well, and
// how they agree on it is not seen. So nothing that such libraries copy counts, only our accesses.
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
#endif

namespace bertha {
namespace {

/// MPI from start to end. Finalize meets all ranks, so an unwinding rank must leave it out.
class MpiSession {
 public:
  MpiSession() {
    int provided = MPI_THREAD_SINGLE;
    BERTHA_MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
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

class NodeCommunicator {
 public:
  explicit NodeCommunicator(const Communicator& world) {
    BERTHA_MPI_CHECK(MPI_Comm_split_type(world.get(), MPI_COMM_TYPE_SHARED, world.rank(),
                                         MPI_INFO_NULL, &comm_));
  }
  NodeCommunicator(const NodeCommunicator&) = delete;
  NodeCommunicator& operator=(const NodeCommunicator&) = delete;
  ~NodeCommunicator() {
    if (std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
  }
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// One flag in memory that the ranks of a node share: taking it needs no answer of another rank.
class NodeFlag {
 public:
  explicit NodeFlag(const Communicator& node) {
    int* own = nullptr;
    const MPI_Aint bytes = node.rank() == 0 ? MPI_Aint{sizeof(int)} : 0;
    BERTHA_MPI_CHECK(
        MPI_Win_allocate_shared(bytes, sizeof(int), MPI_INFO_NULL, node.get(), &own, &window_));
    MPI_Aint first_bytes = 0;
    int unit_bytes = 0;
    BERTHA_MPI_CHECK(MPI_Win_shared_query(window_, 0, &first_bytes, &unit_bytes, &flag_));
    if (node.rank() == 0) std::atomic_ref<int>(*flag_).store(0);
    BERTHA_MPI_CHECK(MPI_Barrier(node.get()));
  }
  NodeFlag(const NodeFlag&) = delete;
  NodeFlag& operator=(const NodeFlag&) = delete;
  ~NodeFlag() {
    if (std::uncaught_exceptions() == 0) MPI_Win_free(&window_);
  }
  bool take() { return std::atomic_ref<int>(*flag_).exchange(1) == 0; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  int* flag_ = nullptr;
};

class MpiWorld final : public World {
 public:
  MpiWorld() : world_(MPI_COMM_WORLD), node_(NodeCommunicator(world_).get()), failure_(node_) {}

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int node_rank() const override { return node_.rank(); }
  int node_size() const override { return node_.size(); }

  std::unique_ptr<Transport> make_transport() override { return make_mpi_transport(world_.get()); }
  std::unique_ptr<Collectives> make_host_collectives(Device& device) override {
    return make_mpi_collectives(world_.get(), device);
  }

  int agree_max(int value) override {
    int largest = value;
    MPI_Request request = MPI_REQUEST_NULL;
    BERTHA_MPI_CHECK(MPI_Iallreduce(&value, &largest, 1, MPI_INT, MPI_MAX, world_.get(), &request));
    wait_for(request, Patience::kLatency);
    return largest;
  }

  std::string broadcast(const std::string& text, int root) override {
    int64_t bytes = static_cast<int64_t>(text.size());
    broadcast_bytes(&bytes, int64_t{sizeof(bytes)}, root);
    std::string result = rank() == root ? text : std::string(static_cast<size_t>(bytes), '\0');
    broadcast_bytes(result.data(), bytes, root);
    return result;
  }

  void barrier() override {
    MPI_Request request = MPI_REQUEST_NULL;
    BERTHA_MPI_CHECK(MPI_Ibarrier(world_.get(), &request));
    wait_for(request, Patience::kLatency);
  }

  bool claim_failure() override { return failure_.take(); }

  void abort(int exit_code) override {
    if (size() > 1) MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  void broadcast_bytes(void* data, int64_t bytes, int root) {
    if (bytes > INT32_MAX) {
      fail(ExitCode::kEnvironment, "a text of ", bytes, " bytes for all ranks, want at most ",
           INT32_MAX);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    BERTHA_MPI_CHECK(
        MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, root, world_.get(), &request));
    wait_for(request, Patience::kLatency);
  }

  MpiSession session_;  // first in, last out
  Communicator world_;
  Communicator node_;
  NodeFlag failure_;
};

}  // namespace

std::unique_ptr<World> make_world() {
  const EnvironmentLookup lookup = [](const char* variable) { return std::getenv(variable); };
  check_srun_task(lookup);
  const std::optional<LauncherClaim> claim = find_launcher(lookup);
  auto world = std::make_unique<MpiWorld>();
  // Every rank sees the same disagreement, so all of them may meet in the end of the world.
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
