#include "kernels/base/cpu/cpu_device.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace bertha {
namespace {

constexpr int64_t kAlignmentBytes = 256;
constexpr int kMostThreads = 4096;

using Clock = std::chrono::steady_clock;

class ImmediateEvent final : public Event {
 public:
  bool is_done() const override { return true; }
  void wait_on_host() const override {}
  double ms_since(const Event& earlier) const override {
    const auto& start = dynamic_cast<const ImmediateEvent&>(earlier);
    return std::chrono::duration<double, std::milli>(recorded_at_ - start.recorded_at_).count();
  }
  void set_now() { recorded_at_ = Clock::now(); }

 private:
  Clock::time_point recorded_at_ = Clock::now();
};

class ImmediateStream final : public Stream {
 public:
  void record(Event& event) override { dynamic_cast<ImmediateEvent&>(event).set_now(); }
  void wait_for(const Event&) override {}
  void wait_on_host() override {}
};

int64_t free_memory_bytes() {
  return static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace

std::string CpuDevice::description() const {
  return concat("cpu, ", pool_.threads(), pool_.threads() == 1 ? " thread" : " threads");
}

int64_t CpuDevice::total_memory_bytes() const {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

int64_t CpuDevice::used_memory_bytes() const {
  std::ifstream statm("/proc/self/statm");  // pages: of the address space, then resident
  int64_t all_pages = 0;
  int64_t resident_pages = 0;
  if (!(statm >> all_pages >> resident_pages)) return 0;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

Buffer CpuDevice::allocate(int64_t bytes) {
  BERTHA_CHECK(bytes >= 0, "bytes = ", bytes);
  if (bytes == 0) return Buffer();
  const int64_t rounded = round_up(bytes, kAlignmentBytes);
  void* data = std::aligned_alloc(kAlignmentBytes, static_cast<size_t>(rounded));
  if (data == nullptr) {
    fail(ExitCode::kMemory, "allocating ", bytes,
         " bytes of host memory failed: ", free_memory_bytes(), " bytes are free");
  }
  std::memset(data, 0, static_cast<size_t>(rounded));
  return Buffer(data, bytes, [](void* pointer) { std::free(pointer); });
}

Buffer CpuDevice::allocate_pinned(int64_t bytes) { return allocate(bytes); }

std::unique_ptr<Stream> CpuDevice::make_stream() { return std::make_unique<ImmediateStream>(); }

std::unique_ptr<Event> CpuDevice::make_event() { return std::make_unique<ImmediateEvent>(); }

void CpuDevice::copy(Stream&, void* destination, const void* source, int64_t bytes) {
  BERTHA_CHECK(bytes >= 0, "bytes = ", bytes);
  if (bytes > 0) std::memmove(destination, source, static_cast<size_t>(bytes));
}

std::unique_ptr<Device> make_cpu_device(int threads) {
  if (threads < 1 || threads > kMostThreads) {
    fail(ExitCode::kUsage, "CPU threads = ", threads, ", want 1 to ", kMostThreads);
  }
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace bertha
