#include "harness/comm/gather_texts.h"

#include <fstream>
#include <memory>
#include <span>

#include "harness/comm/rank_name.h"

namespace bertha {

std::vector<std::string> gather_texts(World& world, const std::string& mine) {
  std::vector<std::string> texts;
  const std::unique_ptr<Transport> transport = world.make_transport();
  for (const std::vector<std::byte>& bytes :
       transport->all_gather_bytes(std::as_bytes(std::span(mine)))) {
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return texts;
}

std::string machine_name() {
  std::string name;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> name;
  if (!name.empty()) return name;
  return own_host();
}

}  // namespace bertha
