#include "kernels/base/cuda/cuda_device.h"

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <type_traits>

#include "kernels/base/cuda/cuda_check.h"
#include "kernels/base/cuda/cuda_devices.h"
#include "kernels/base/cuda/handles.h"
#include "kernels/base/cuda/loaded_code.h"

namespace bertha {
namespace {

class CudaEvent final : public Event {
 public:
  CudaEvent() { BERTHA_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool is_done() const override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    if (status != cudaSuccess) fail_cuda(status, "cudaEventQuery");
    return true;
  }
  void wait_on_host() const override { BERTHA_CUDA_CHECK(cudaEventSynchronize(event_)); }
  double ms_since(const Event& earlier) const override {
    float ms = 0.0f;
    BERTHA_CUDA_CHECK(cudaEventElapsedTime(&ms, bertha::native(earlier), event_));
    return static_cast<double>(ms);
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(int priority = 0) {
    BERTHA_CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority));
  }
  explicit CudaStream(cudaStream_t borrowed) : stream_(borrowed), is_owned_(false) {}
  ~CudaStream() override {
    if (is_owned_) cudaStreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void record(Event& event) override {
    BERTHA_CUDA_CHECK(cudaEventRecord(bertha::native(event), stream_));
  }
  void wait_for(const Event& event) override {
    BERTHA_CUDA_CHECK(cudaStreamWaitEvent(stream_, bertha::native(event), 0));
  }
  void wait_on_host() override { BERTHA_CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  bool is_owned_ = true;
};

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};
using RecordedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

struct CudaGraph final : Graph {
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph> executable;
};

/// Ends the recording of a stream.
RecordedGraph end_recording(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  BERTHA_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  return RecordedGraph(graph);
}

/// Ends a recording that failed: a stream that records accepts no other work.
void abandon_recording(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(stream, &graph) != cudaSuccess) {
    cudaGetLastError();  // clears the error, which the next check would report
  }
  const RecordedGraph unfinished(graph);
}

struct MemoryInfo {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};

/// Memory of the current device.
MemoryInfo memory_info() {
  MemoryInfo info;
  BERTHA_CUDA_CHECK(cudaMemGetInfo(&info.free_bytes, &info.total_bytes));
  return info;
}

template <class Bytes>
std::string gib(Bytes bytes) {
  const double tenths = static_cast<double>(bytes) / (1 << 30) * 10;
  return concat(static_cast<int64_t>(tenths) / 10, ".", static_cast<int64_t>(tenths) % 10, " GiB");
}

}  // namespace

cudaStream_t native(Stream& stream) {
  auto* cuda = dynamic_cast<CudaStream*>(&stream);
  BERTHA_CHECK(cuda != nullptr, "the stream belongs to another backend");
  return cuda->get();
}

cudaEvent_t native(const Event& event) {
  const auto* cuda = dynamic_cast<const CudaEvent*>(&event);
  BERTHA_CHECK(cuda != nullptr, "the event belongs to another backend");
  return cuda->get();
}

void use_cuda_device(int ordinal) { BERTHA_CUDA_CHECK(cudaSetDevice(ordinal)); }

int count_cuda_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice) return 0;
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    int runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) return 0;  // no driver at all
    fail(ExitCode::kEnvironment, "the NVIDIA driver supports CUDA ", driver / 1000, ".",
         driver % 1000 / 10, ", but this program needs ", runtime / 1000, ".", runtime % 1000 / 10,
         "; install a newer driver.");
  }
  if (status != cudaSuccess) fail_cuda(status, "cudaGetDeviceCount");
  return count;
}

CudaDevice::CudaDevice(int ordinal, CudaKernels asked) : ordinal_(ordinal) {
  const int count = count_cuda_devices();
  if (count == 0) {
    fail(ExitCode::kEnvironment, "no GPU is available; check nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  if (ordinal < 0 || ordinal >= count) {
    fail(ExitCode::kEnvironment, "GPU ", ordinal, " is requested, but only ", count,
         count == 1 ? " is" : " are", " visible; check CUDA_VISIBLE_DEVICES");
  }
  use_cuda_device(ordinal);
  cudaDeviceProp properties{};
  BERTHA_CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal));
  name_ = properties.name;
  sm_count_ = properties.multiProcessorCount;
  total_memory_bytes_ = static_cast<int64_t>(properties.totalGlobalMem);
  GpuCode code{.major = properties.major, .minor = properties.minor, .compiled_for = 0};
  const std::string gpu = concat("GPU ", ordinal, " is a ", name_, " of compute capability ",
                                 code.major, ".", code.minor);
  if (code.major < kMinComputeMajor) {
    fail(ExitCode::kEnvironment, gpu, ", want ", kMinComputeMajor,
         ".0 (A100) or newer; use another GPU");
  }
  if (const cudaError_t status = find_loaded_code(code.compiled_for); status != cudaSuccess) {
    fail(ExitCode::kEnvironment, gpu, ", but this program has no code for it (",
         cudaGetErrorString(status),
         "); build with CMAKE_CUDA_ARCHITECTURES for it, as kernels/portable.md describes, or "
         "install a newer driver");
  }
  kernels_ = choose_kernels(asked, code);
  has_sm90a_code_ = code.compiled_for == 90;
  shared_bytes_ = asked == CudaKernels::kPortable
                      ? kMinSharedBytes
                      : static_cast<int64_t>(properties.sharedMemPerBlockOptin);
}

std::string CudaDevice::description() const {
  return concat(name_, ", GPU ", ordinal_, ", ", gib(total_memory_bytes_), ", ", text(kernels_));
}

int64_t CudaDevice::total_memory_bytes() const { return total_memory_bytes_; }

int64_t CudaDevice::used_memory_bytes() const {
  use_cuda_device(ordinal_);
  const auto [free_bytes, total_bytes] = memory_info();
  return static_cast<int64_t>(total_bytes - free_bytes);
}

bool CudaDevice::has_io(DType io) const {
  return io == DType::kF32 || io == DType::kF16 || io == DType::kBF16;
}

Buffer CudaDevice::allocate(int64_t bytes) {
  BERTHA_CHECK(bytes >= 0, "bytes = ", bytes);
  if (bytes == 0) return Buffer();
  use_cuda_device(ordinal_);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, which the next check would report
    const auto [free_bytes, total_bytes] = memory_info();
    fail(ExitCode::kMemory, "allocating ", gib(bytes), " on GPU ", ordinal_,
         " failed: ", gib(free_bytes), " of ", gib(total_bytes), " are free");
  }
  if (status != cudaSuccess) fail_cuda(status, "cudaMalloc");
  Buffer buffer(data, bytes, [](void* pointer) { cudaFree(pointer); });
  BERTHA_CUDA_CHECK(cudaMemset(data, 0, static_cast<size_t>(bytes)));
  // Our streams do not wait for the default one: zeros could land on top of their first writes.
  BERTHA_CUDA_CHECK(cudaStreamSynchronize(nullptr));
  return buffer;
}

Buffer CudaDevice::allocate_pinned(int64_t bytes) {
  BERTHA_CHECK(bytes >= 0, "bytes = ", bytes);
  if (bytes == 0) return Buffer();
  use_cuda_device(ordinal_);  // any thread may call this
  void* data = nullptr;
  BERTHA_CUDA_CHECK(cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable));
  return Buffer(data, bytes, [](void* pointer) { cudaFreeHost(pointer); });
}

std::unique_ptr<Stream> CudaDevice::make_stream() {
  use_cuda_device(ordinal_);
  return std::make_unique<CudaStream>();
}

std::unique_ptr<Event> CudaDevice::make_event() {
  use_cuda_device(ordinal_);
  return std::make_unique<CudaEvent>();
}

void CudaDevice::copy(Stream& stream, void* destination, const void* source, int64_t bytes) {
  BERTHA_CHECK(bytes >= 0, "bytes = ", bytes);
  if (bytes == 0) return;
  BERTHA_CUDA_CHECK(cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes),
                                    cudaMemcpyDefault, native(stream)));
}

std::unique_ptr<Graph> CudaDevice::record(Stream& stream, const std::function<void()>& enqueue) {
  const cudaStream_t recorded = native(stream);
  // Other threads may allocate meanwhile: those that read batches ahead allocate pinned memory.
  BERTHA_CUDA_CHECK(cudaStreamBeginCapture(recorded, cudaStreamCaptureModeThreadLocal));
  try {
    enqueue();
  } catch (...) {
    abandon_recording(recorded);
    throw;
  }
  const RecordedGraph graph = end_recording(recorded);
  cudaGraphExec_t made = nullptr;
  BERTHA_CUDA_CHECK(cudaGraphInstantiate(&made, graph.get(), 0));
  auto recording = std::make_unique<CudaGraph>();
  recording->executable.reset(made);
  return recording;
}

void CudaDevice::launch(Stream& stream, Graph& graph) {
  auto* cuda = dynamic_cast<CudaGraph*>(&graph);
  BERTHA_CHECK(cuda != nullptr, "the graph belongs to another backend");
  BERTHA_CUDA_CHECK(cudaGraphLaunch(cuda->executable.get(), native(stream)));
}

void CudaDevice::push_range(const char* name) { nvtxRangePushA(name); }

void CudaDevice::pop_range() { nvtxRangePop(); }

void CudaDevice::start_profiler() { BERTHA_CUDA_CHECK(cudaProfilerStart()); }

void CudaDevice::stop_profiler() { BERTHA_CUDA_CHECK(cudaProfilerStop()); }

CudaDevice& as_cuda(Device& device) {
  auto* cuda = dynamic_cast<CudaDevice*>(&device);
  BERTHA_CHECK(cuda != nullptr, "device is ", device.description(), ", want a CUDA device");
  return *cuda;
}

std::unique_ptr<Stream> make_urgent_stream(Device& device) {
  use_cuda_device(as_cuda(device).ordinal());
  int least = 0;
  int greatest = 0;
  BERTHA_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  return std::make_unique<CudaStream>(greatest);
}

std::unique_ptr<Stream> borrow_cuda_stream(CUstream_st* stream) {
  return std::make_unique<CudaStream>(stream);
}

int64_t cuda_memory_bytes(int ordinal) {
  cudaDeviceProp properties{};
  BERTHA_CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal));
  return static_cast<int64_t>(properties.totalGlobalMem);
}

std::string cuda_bus_id(int ordinal) {
  std::array<char, 32> id{};
  BERTHA_CUDA_CHECK(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), ordinal));
  std::string lower = id.data();
  for (char& letter : lower) {
    if (letter >= 'A' && letter <= 'F') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return lower;
}

std::unique_ptr<Device> make_cuda_device(int ordinal, CudaKernels kernels) {
  return std::make_unique<CudaDevice>(ordinal, kernels);
}

bool runs_sm90a_kernels(Device& device) { return as_cuda(device).kernels() == KernelSet::kSm90a; }

}  // namespace bertha
