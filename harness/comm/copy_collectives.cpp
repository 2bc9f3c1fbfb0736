#include "harness/comm/copy_collectives.h"

#include <algorithm>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/comm/rank_board.h"
#include "harness/comm/shard_check.h"
#include "kernels/base/log.h"
#include "kernels/cuda/p2p/peer_flags.h"
#include "kernels/cuda/p2p/peer_memory.h"
#include "kernels/cuda/p2p/sum_parts.h"

namespace bertha {
namespace {

constexpr int64_t kAlignmentBytes = 256;

static_assert(kMaxCopyRanks <= kMaxSumParts);

enum Flag : int { kReady, kArrived, kFlags };

bool is_aligned(const View& view) { return reinterpret_cast<uintptr_t>(view.data) % 16 == 0; }

/// Why a rank could not open the memory, the same message on every rank; "" if all could.
std::string open_on_all_ranks(World& world, PeerMemory& memory) {
  std::string trouble;
  std::string handle;
  const auto attempt = [&trouble](const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      trouble = error.what();
    }
  };
  attempt([&] { handle = memory.handle(); });
  const std::vector<std::string> handles = world.gather_texts(handle);
  const bool are_complete = std::ranges::find(handles, std::string()) == handles.end();
  if (are_complete) attempt([&] { memory.open(handles, world.rank()); });
  for (const std::string& text : world.gather_texts(trouble)) {
    if (!text.empty()) return text;
  }
  return "";
}

class CopyCollectives final : public Collectives {
 public:
  /// Needs     both memories to be open.
  CopyCollectives(World& world, Device& device, std::unique_ptr<Collectives> others,
                  std::unique_ptr<PeerMemory> flags, std::unique_ptr<PeerMemory> staging)
      : world_(world),
        device_(device),
        others_(std::move(others)),
        flag_memory_(std::move(flags)),
        staging_(std::move(staging)),
        flags_(*flag_memory_, others_->rank(), others_->size()),
        slot_bytes_(staging_->bytes() / others_->size() / kAlignmentBytes * kAlignmentBytes) {}
  CopyCollectives(const CopyCollectives&) = delete;
  CopyCollectives& operator=(const CopyCollectives&) = delete;

  // No rank frees memory that another one still has open or writes. After a failure the others may
  // not reach this point; the memory is then kept until the process ends, which is immediately.
  ~CopyCollectives() override {
    if (std::uncaught_exceptions() > 0 || !has_sent_all()) {
      keep_memory();
      return;
    }
    flag_memory_->close();
    staging_->close();
    for (const auto& memory : shared_) memory->close();
    try {
      world_.barrier();
    } catch (const Error&) {  // a rank has failed
      keep_memory();
    }
  }

  int rank() const override { return others_->rank(); }
  int size() const override { return others_->size(); }
  Stream& stream() override { return others_->stream(); }
  void check() override { others_->check(); }

  Buffer allocate_shared(Device& device, int64_t bytes) override {
    return Buffer(share(device, bytes).data(), bytes, [](void*) {});
  }

  void reduce_scatter_sum(const View& full, const View& shard) override {
    check_shard(*this, full, shard);
    if (!adds_up(full, shard)) return others_->reduce_scatter_sum(full, shard);
    const CallOnBoard on_board(&world_.board(), CollectiveCall::kReduceScatter);
    sum_in_rounds(full, shard, nullptr);
  }

  std::unique_ptr<ScaledSums> make_scaled_sums(Device& device, int64_t bytes) override {
    PeerMemory& ahead = share(device, bytes);
    PeerMemory& factors = share(device, size() * size_bytes(DType::kF32));
    return std::make_unique<SumsOfCopies>(*this, ahead, bytes / size(), factors);
  }

  void all_gather(const View& shard, const View& full) override {
    check_shard(*this, full, shard);
    const PeerMemory* memory = memory_of(full);
    if (memory == nullptr) return others_->all_gather(shard, full);
    const CallOnBoard on_board(&world_.board(), CollectiveCall::kAllGather);
    char* own_slot = static_cast<char*>(full.data) + rank() * shard.bytes();
    if (shard.data != own_slot) send(shard, own_slot);
    to_every_peer(
        [&](int peer) { send(shard, memory->of_rank(peer) + (own_slot - memory->data())); });
  }

  void all_reduce_sum(const View& values) override { others_->all_reduce_sum(values); }
  void all_reduce_max(const View& values) override { others_->all_reduce_max(values); }

 private:
  /// Sends views ahead of the reduction, into memory that the collectives share.
  class SumsOfCopies final : public ScaledSums {
   public:
    SumsOfCopies(CopyCollectives& copies, PeerMemory& ahead, int64_t slot_bytes,
                 PeerMemory& factors)
        : copies_(copies), ahead_(ahead), slot_bytes_(slot_bytes), factors_(factors) {}

    // Views that do not fit or are misaligned are sent at reduction time; all ranks choose alike.
    void send_ahead(const View& full) override {
      const int64_t count = full.elements() / copies_.size();
      const int64_t bytes = count * size_bytes(full.dtype);
      if (bytes % kAlignmentBytes != 0 || sent_bytes_ + bytes > slot_bytes_) return;
      const CallOnBoard on_board(&copies_.world_.board(), CollectiveCall::kReduceScatter);
      copies_.to_every_peer([&](int peer) {
        copies_.send(full.rows(peer * count, count),
                     ahead_.of_rank(peer) + copies_.rank() * slot_bytes_ + sent_bytes_);
      });
      places_[full.data] = sent_bytes_;
      sent_bytes_ += bytes;
    }

    void reduce_scatter(std::span<const ScatterSum> sums, const View& factor) override {
      const CallOnBoard on_board(&copies_.world_.board(), CollectiveCall::kReduceScatter);
      const int64_t own_place = copies_.rank() * factor.bytes();
      copies_.send(factor, factors_.data() + own_place);
      copies_.to_every_peer(
          [&](int peer) { copies_.send(factor, factors_.of_rank(peer) + own_place); });
      const auto* factors = reinterpret_cast<const float*>(factors_.data());
      for (const auto& [full, shard] : sums) {
        check_shard(copies_, full, shard);
        BERTHA_CHECK(copies_.adds_up(full, shard), "full ", full.shape_text(),
                     " cannot be summed by copies");
        const auto place = places_.find(full.data);
        if (place == places_.end()) {
          copies_.sum_in_rounds(full, shard, factors);
        } else {
          copies_.sum_received(full.rows(copies_.rank() * shard.elements(), shard.elements()),
                               ahead_.data() + place->second, slot_bytes_, shard, factors);
        }
      }
      places_.clear();
      sent_bytes_ = 0;
    }

   private:
    CopyCollectives& copies_;
    PeerMemory& ahead_;  // [W, slot_bytes_]: from each rank, before the sum
    int64_t slot_bytes_;
    PeerMemory& factors_;                    // f32 [W]
    int64_t sent_bytes_ = 0;                 // used bytes of each slot
    std::map<const void*, int64_t> places_;  // offset of each full view in a slot
  };

  void keep_memory() {
    static_cast<void>(flag_memory_.release());
    static_cast<void>(staging_.release());
    for (auto& memory : shared_) static_cast<void>(memory.release());
  }

  PeerMemory& share(Device& device, int64_t bytes) {
    auto memory = std::make_unique<PeerMemory>(device, bytes);
    const std::string trouble = open_on_all_ranks(world_, *memory);
    if (!trouble.empty()) {  // no rank frees memory that another has open
      memory->close();
      world_.barrier();
      fail(ExitCode::kEnvironment, trouble);
    }
    shared_.push_back(std::move(memory));
    return *shared_.back();
  }

  void sum_in_rounds(const View& full, const View& shard, const float* factors) {
    const int64_t most = slot_bytes_ / size_bytes(shard.dtype);
    for (int64_t begin = 0; begin < shard.elements(); begin += most) {
      const int64_t count = std::min(most, shard.elements() - begin);
      const auto part_of = [&](int r) { return full.rows(r * shard.elements() + begin, count); };
      to_every_peer([&](int peer) {
        const View part = part_of(peer);
        send(part, staging_->of_rank(peer) + rank() * slot_bytes_);
      });
      sum_received(part_of(rank()), staging_->data(), slot_bytes_, shard.rows(begin, count),
                   factors);
    }
  }

  /// Data from rank r is at `received` + r * `slot_bytes`.
  void sum_received(const View& own, const char* received, int64_t slot_bytes, const View& sum,
                    const float* factors) {
    std::vector<const void*> parts;
    for (int r = 0; r < size(); ++r) {
      parts.push_back(r == rank() ? own.data : received + r * slot_bytes);
    }
    sum_parts(stream(), parts, sum, factors);
  }

  /// Blocks: the host, until the copies of this rank are done. Returns false if they fail.
  bool has_sent_all() {
    try {
      stream().wait_on_host();
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  bool adds_up(const View& full, const View& shard) const {
    const bool is_sum_type =
        shard.dtype == DType::kF32 || shard.dtype == DType::kF16 || shard.dtype == DType::kBF16;
    return is_sum_type && shard.bytes() % 16 == 0 && is_aligned(full) && is_aligned(shard);
  }

  /// The shared memory that contains the view; null if none does.
  const PeerMemory* memory_of(const View& view) const {
    const char* data = static_cast<const char*>(view.data);
    for (const auto& memory : shared_) {
      if (data >= memory->data() && data + view.bytes() <= memory->data() + memory->bytes()) {
        return memory.get();
      }
    }
    return nullptr;
  }

  void send(const View& from, char* to) { device_.copy(stream(), to, from.data, from.bytes()); }

  /// Calls send_to(peer) for every other rank once that rank's stream has reached this call; this
  /// rank's stream continues when the data of all others has arrived. Each rank begins with another
  /// peer, to spread the load on the GPUs' links.
  template <class SendTo>
  void to_every_peer(const SendTo& send_to) {
    round_ += 1;
    flags_.signal(stream(), kReady, round_);
    flags_.await(stream(), kReady, round_);
    for (int k = 1; k < size(); ++k) send_to((rank() + k) % size());
    flags_.signal(stream(), kArrived, round_);
    flags_.await(stream(), kArrived, round_);
  }

  World& world_;
  Device& device_;
  std::unique_ptr<Collectives> others_;
  std::unique_ptr<PeerMemory> flag_memory_;
  std::unique_ptr<PeerMemory> staging_;  // [W, slot_bytes_]: from each rank
  PeerFlags flags_;
  int64_t slot_bytes_;
  std::vector<std::unique_ptr<PeerMemory>> shared_;
  uint32_t round_ = 0;
};

}  // namespace

std::unique_ptr<Collectives> make_copy_collectives(World& world, Device& device,
                                                   std::unique_ptr<Collectives> others,
                                                   const CopyOptions& options) {
  std::string trouble;
  std::unique_ptr<PeerMemory> flags;
  std::unique_ptr<PeerMemory> staging;
  if (world.node_size() != world.size()) {
    trouble = "the ranks are on several machines";
  } else if (world.size() > kMaxCopyRanks) {
    trouble = concat("there are ", world.size(), " ranks, more than ", kMaxCopyRanks);
  } else {
    flags = std::make_unique<PeerMemory>(device, PeerFlags::bytes(kFlags, world.size()));
    staging = std::make_unique<PeerMemory>(device, options.staging_bytes);
    trouble = open_on_all_ranks(world, *flags);
    if (trouble.empty()) trouble = open_on_all_ranks(world, *staging);
    if (!trouble.empty()) {  // no rank frees memory that another has open
      flags->close();
      staging->close();
      world.barrier();
    }
  }
  if (!trouble.empty() && options.use == CopyOptions::Use::kAlways) {
    fail(ExitCode::kEnvironment, "cuda.exchange is copies, but ", trouble,
         "; set it to auto, which then uses NCCL");
  }
  if (options.log && world.rank() == 0) {
    log_line(LogLevel::kInfo, trouble.empty()
                                  ? "gradients and weights are sent by copies from GPU to GPU"
                                  : concat("gradients and weights are sent by NCCL: ", trouble));
  }
  if (!trouble.empty()) return others;
  return std::make_unique<CopyCollectives>(world, device, std::move(others), std::move(flags),
                                           std::move(staging));
}

}  // namespace bertha
