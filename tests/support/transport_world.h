#pragma once

#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

#include "data/pipeline/transport.h"
#include "harness/comm/world.h"

namespace bertha::testing {

/// A World on somebody's Transport, for ranks that are threads of the test.
class TransportWorld final : public World {
 public:
  explicit TransportWorld(Transport& transport) : transport_(transport) {}

  int rank() const override { return transport_.rank(); }
  int size() const override { return transport_.size(); }
  int node_rank() const override { return rank(); }
  int node_size() const override { return size(); }
  std::unique_ptr<Transport> make_transport() override {
    return std::make_unique<CancellableTransport>(borrowed(transport_));
  }
  std::unique_ptr<Collectives> make_host_collectives(Device&) override { return nullptr; }

  int agree_max(int value) override {
    const int64_t mine = value;
    int64_t most = mine;
    for (const int64_t other : transport_.all_gather(std::span(&mine, 1))) {
      most = std::max(most, other);
    }
    return static_cast<int>(most);
  }

  void broadcast_bytes(std::span<std::byte> bytes, int root) override {
    std::ranges::copy(transport_.all_gather_bytes(bytes).at(static_cast<size_t>(root)),
                      bytes.begin());
  }

  void barrier() override { agree_max(0); }
  std::unique_ptr<World> make_node_world() override { return nullptr; }
  std::unique_ptr<World> make_peer_world() override { return nullptr; }
  [[noreturn]] void abort(int exit_code) override { std::_Exit(exit_code); }

 private:
  Transport& transport_;
};

}  // namespace bertha::testing
