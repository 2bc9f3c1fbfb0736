#include "harness/comm/solo_collectives.h"

#include "harness/comm/shard_check.h"

namespace bertha {
namespace {

class SoloCollectives final : public Collectives {
 public:
  explicit SoloCollectives(Device& device) : device_(device), stream_(device.make_stream()) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  Stream& stream() override { return *stream_; }

  void reduce_scatter_sum(const View& full, const View& shard) override {
    check_sum(full);
    copy(full, shard);
  }
  void all_gather(const View& shard, const View& full) override { copy(shard, full); }
  void all_reduce_sum(const View& values) override { check_sum(values); }
  void all_reduce_max(const View& values) override { check_maximum(values); }

 private:
  void copy(const View& from, const View& to) {
    BERTHA_CHECK(from.dtype == to.dtype && from.elements() == to.elements(), "from ",
                 from.shape_text(), ", to ", to.shape_text(), ", 1 rank");
    if (from.data != to.data) device_.copy(*stream_, to.data, from.data, from.bytes());
  }

  Device& device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

std::unique_ptr<Collectives> make_solo_collectives(Device& device) {
  return std::make_unique<SoloCollectives>(device);
}

}  // namespace bertha
