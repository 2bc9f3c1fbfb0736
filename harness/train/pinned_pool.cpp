#include "harness/train/pinned_pool.h"

#include <bit>
#include <map>
#include <mutex>
#include <utility>

namespace bertha {
namespace {

class PinnedPool {
 public:
  explicit PinnedPool(Device& device) : device_(device) {}

  /// The smallest free block that is large enough, else a new one.
  Buffer take(int64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = free_.lower_bound(bytes);
      if (found != free_.end()) return std::move(free_.extract(found).mapped());
    }
    return device_.allocate_pinned(
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))));
  }

  void give_back(Buffer block) {
    const std::lock_guard lock(mutex_);
    const int64_t bytes = block.bytes();
    free_.emplace(bytes, std::move(block));
  }

 private:
  Device& device_;
  std::mutex mutex_;
  std::multimap<int64_t, Buffer> free_;  // by bytes
};

}  // namespace

HostAllocator make_pinned_pool(Device& device) {
  const auto pool = std::make_shared<PinnedPool>(device);
  return [pool](int64_t bytes) {
    const auto block = std::make_shared<Buffer>(pool->take(bytes));
    return std::shared_ptr<void>(block->data(),
                                 [pool, block](void*) { pool->give_back(std::move(*block)); });
  };
}

}  // namespace bertha
