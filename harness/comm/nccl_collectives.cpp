#include "harness/comm/nccl_collectives.h"

#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "harness/comm/nccl_check.h"
#include "harness/comm/rank_board.h"
#include "harness/comm/shard_check.h"
#include "kernels/base/cuda/cuda_check.h"
#include "kernels/base/cuda/handles.h"

namespace bertha {
namespace {

/// Checks that NCCL can sum the dtype.
ncclDataType_t number_type(const View& view) {
  switch (view.dtype) {
    case DType::kF64:
      return ncclFloat64;
    case DType::kF32:
      return ncclFloat32;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kI64:
      return ncclInt64;
    default:
      fail(ExitCode::kEnvironment, "the CUDA backend can combine f64, f32, f16, bf16 and i64 over ",
           "ranks, not ", name(view.dtype));
  }
}

size_t bytes_of(const View& view) { return static_cast<size_t>(view.bytes()); }
size_t elements_of(const View& view) { return static_cast<size_t>(view.elements()); }

/// Rank 0's NCCL id, on every rank.
ncclUniqueId shared_id(World& world) {
  ncclUniqueId id{};
  if (world.rank() == 0) BERTHA_NCCL_CHECK(ncclGetUniqueId(&id));
  const std::string text = world.broadcast(std::string(id.internal, sizeof(id.internal)), 0);
  std::memcpy(id.internal, text.data(), sizeof(id.internal));
  return id;
}

class NcclCollectives final : public Collectives {
 public:
  NcclCollectives(World& world, Device& device, const NcclOptions& options)
      : board_(world.board()),
        rank_(world.rank()),
        size_(world.size()),
        own_stream_(options.stream == nullptr ? make_urgent_stream(device) : nullptr),
        stream_(options.stream == nullptr ? *own_stream_ : *options.stream) {
    // No field of ncclConfig_t turns multicast off. NCCL reads this variable when it is first used.
    setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
    const ncclUniqueId id = shared_id(world);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (options.max_ctas > 0) config.maxCTAs = options.max_ctas;
    BERTHA_NCCL_CHECK(ncclCommInitRankConfig(&comm_, size_, id, rank_, &config));
  }
  NcclCollectives(const NcclCollectives&) = delete;
  NcclCollectives& operator=(const NcclCollectives&) = delete;

  // Destroying waits for the other ranks, aborting does not: after a failure they may have ended.
  ~NcclCollectives() override {
    if (std::uncaught_exceptions() > 0 || background_status() != ncclSuccess) {
      ncclCommAbort(comm_);
    } else {
      ncclCommDestroy(comm_);
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Stream& stream() override { return stream_; }

  void check() override {
    const ncclResult_t status = background_status();
    if (status != ncclSuccess) throw_nccl_error("communication between GPUs", status);
  }

  void reduce_scatter_sum(const View& full, const View& shard) override {
    check_shard(*this, full, shard);
    if (shard.elements() == 0) return;
    const CallOnBoard on_board(&board_, CollectiveCall::kReduceScatter);
    check();
    BERTHA_NCCL_CHECK(ncclReduceScatter(full.data, shard.data, elements_of(shard),
                                        number_type(full), ncclSum, comm_, native(stream_)));
  }

  void all_gather(const View& shard, const View& full) override {
    check_shard(*this, full, shard);
    if (shard.elements() == 0) return;
    const CallOnBoard on_board(&board_, CollectiveCall::kAllGather);
    check();
    BERTHA_NCCL_CHECK(
        ncclAllGather(shard.data, full.data, bytes_of(shard), ncclUint8, comm_, native(stream_)));
  }

  void all_reduce_sum(const View& values) override {
    all_reduce(values, number_type(values), ncclSum);
  }

  void all_reduce_max(const View& values) override {
    check_maximum(values);
    all_reduce(values, ncclInt32, ncclMax);
  }

 private:
  void all_reduce(const View& values, ncclDataType_t type, ncclRedOp_t operation) {
    if (values.elements() == 0) return;
    const CallOnBoard on_board(&board_, CollectiveCall::kAllReduce);
    check();
    BERTHA_NCCL_CHECK(ncclAllReduce(values.data, values.data, elements_of(values), type, operation,
                                    comm_, native(stream_)));
  }

  ncclResult_t background_status() const {
    ncclResult_t status = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &status);
    return asked == ncclSuccess ? status : asked;
  }

  RankBoard& board_;
  int rank_;
  int size_;
  std::unique_ptr<Stream> own_stream_;
  Stream& stream_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

std::unique_ptr<Collectives> make_nccl_collectives(World& world, Device& device,
                                                   const NcclOptions& options) {
  return std::make_unique<NcclCollectives>(world, device, options);
}

}  // namespace bertha
