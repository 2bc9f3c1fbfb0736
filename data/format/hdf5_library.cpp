#include "data/format/hdf5_library.h"

#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <type_traits>
#include <utility>

#include "data/format/global_heap.h"

namespace bertha {
namespace {

static_assert(std::is_same_v<hid_t, int64_t> && std::is_same_v<herr_t, int>);

// --- the guard ---

constexpr int kLoop = SIGXCPU;  // sent by the timer
constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, kLoop};

// All that the signal handler can reach.
std::array<struct sigaction, kSignals.size()> former_actions{};
std::atomic<pid_t> thread_inside = 0;  // thread in the library, set by a guard
std::atomic<const char*> path_inside = nullptr;

void write_text(std::string_view text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(static_cast<int>(ExitCode::kData));
}

/// Runs in a signal handler, so it does not allocate.
[[noreturn]] void end_program() {
  write_text("bertha: error: ");
  for (const char letter : std::string_view(path_inside)) {
    const bool may_steer_a_terminal = static_cast<unsigned char>(letter) < ' ' || letter == 127;
    write_text(may_steer_a_terminal ? std::string_view("?") : std::string_view(&letter, 1));
  }
  write_text(
      ": it crashes the HDF5 library or keeps it in a loop; the file is damaged, prepare or copy "
      "it "
      "again\n");
  _exit(static_cast<int>(ExitCode::kData));
}

extern "C" void on_library_signal(int number, siginfo_t* info, void* /*context*/) {
  const bool is_timer = number == kLoop && info->si_code == SI_TIMER;
  const bool is_limit_of_process = number == kLoop && !is_timer;
  if (thread_inside == gettid() && !is_limit_of_process) end_program();
  if (is_timer) return;  // the call has just ended
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == number) sigaction(number, &former_actions[i], nullptr);
  }
  raise(number);  // taken when this returns
}

void install_handlers() {
  static const bool taken = [] {
    struct sigaction action {};
    action.sa_sigaction = on_library_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], &action, &former_actions[i]);
    }
    return true;
  }();
  static_cast<void>(taken);
}

/// CPU-time limit: a valid file is read in a small part of it, unless it is compressed a
/// thousandfold; a loop may fill memory meanwhile.
itimerspec max_time(int64_t file_bytes) {
  constexpr int64_t kSecond_ns = 1'000'000'000;
  const int64_t time_ns = kSecond_ns / 5 + 2000 * file_bytes;
  itimerspec limit{};
  limit.it_value.tv_sec = time_ns / kSecond_ns;
  limit.it_value.tv_nsec = time_ns % kSecond_ns;
  return limit;
}

// --- errors ---

/// Returns false if a damaged file made the library request an impossible amount.
bool memory_is_short() {
  constexpr size_t kProbeBytes = size_t{64} << 20;
  void* volatile probe = std::malloc(kProbeBytes);  // volatile, or both calls are left out
  std::free(probe);
  return probe == nullptr;
}

struct Reason {
  std::string text;
  bool is_memory = false;
};

herr_t keep_first(unsigned, const H5E_error2_t* error, void* out) {
  auto& kept = *static_cast<Reason*>(out);
  if (kept.text.empty() && error->desc != nullptr) {
    kept = {error->desc, error->min_num == H5E_NOSPACE || error->min_num == H5E_CANTALLOC};
  }
  return 0;
}

// --- the filter and the conversion ---

thread_local size_t lzf_chunk_bytes = 0;

/// Decodes a chunk for the library, which reads a whole chunk from the result: shorter streams are
/// padded with zeros. Scale-offset before LZF makes chunks longer by 21 bytes.
size_t decode_lzf(unsigned flags, size_t, const unsigned*, size_t num_bytes, size_t* capacity_bytes,
                  void** buffer) {
  if ((flags & H5Z_FLAG_REVERSE) == 0) return 0;
  const size_t most_bytes = lzf_chunk_bytes + 32;
  auto* decoded = static_cast<std::byte*>(H5allocate_memory(most_bytes, true));
  if (decoded == nullptr) return 0;
  const size_t decoded_bytes =
      lzf_decode({static_cast<const std::byte*>(*buffer), num_bytes}, {decoded, most_bytes});
  H5free_memory(decoded_bytes > 0 ? *buffer : decoded);
  if (decoded_bytes == 0) return 0;
  *buffer = decoded;
  *capacity_bytes = most_bytes;
  return decoded_bytes;
}

/// "Converts" a list to the 16 bytes that the file has for it.
herr_t keep_descriptor(hid_t, hid_t, H5T_cdata_t*, size_t, size_t, size_t, void*, void*, hid_t) {
  return 0;
}

}  // namespace

std::unique_lock<std::recursive_mutex> enter_library() {
  static std::recursive_mutex mutex;
  static const herr_t without_exit_handler = H5dont_atexit();
  static_cast<void>(without_exit_handler);
  std::unique_lock lock(mutex);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  return lock;
}

Hdf5Guard::Hdf5Guard(const std::string& path, int64_t file_bytes) {
  install_handlers();
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event._sigev_un._tid = gettid();  // glibc has no other name for it
  event.sigev_signo = kLoop;
  // If the system has no timer left, valid files are read as usual.
  has_timer_ = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) == 0;
  const itimerspec limit = max_time(file_bytes);
  if (has_timer_) timer_settime(timer_, 0, &limit, nullptr);
  path_inside = path.c_str();
  thread_inside = gettid();
}

Hdf5Guard::~Hdf5Guard() {
  thread_inside = 0;
  if (has_timer_) timer_delete(timer_);
}

Hdf5Id::Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}

Hdf5Id& Hdf5Id::operator=(Hdf5Id&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(close_, other.close_);
  return *this;
}

Hdf5Id::~Hdf5Id() { close_now(); }

bool Hdf5Id::close_now() {
  if (id_ < 0) return true;
  const auto lock = enter_library();
  return close_(std::exchange(id_, -1)) >= 0;
}

void fail_in_library(ExitCode code, const std::string& subject, const std::string& words) {
  Reason reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &reason);
  const bool is_reading = thread_inside == gettid();
  if (reason.is_memory && (!is_reading || memory_is_short())) {
    fail(ExitCode::kMemory, subject, ": out of host memory (", reason.text, ")");
  }
  const std::string quote = "error message = '";
  if (const size_t begin = reason.text.find(quote); begin != std::string::npos) {
    const size_t from = begin + quote.size();
    reason.text = reason.text.substr(from, reason.text.find('\'', from) - from);
  }
  if (reason.text.empty()) reason.text = "no reason given by the HDF5 library";
  fail(code, subject, words, " (", reason.text, ")");
}

Hdf5Id access_properties() {
  Hdf5Id properties = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "cannot set up HDF5 file access");
  checked(H5Pset_file_locking(properties.get(), false, true),
          "cannot switch HDF5 file locking off");
  // Closing the file closes all objects that are still open in it.
  checked(H5Pset_fclose_degree(properties.get(), H5F_CLOSE_STRONG),
          "cannot set up HDF5 file access");
  return properties;
}

void prepare_to_read() {
  static const bool prepared = [] {
    const H5Z_class2_t lzf{H5Z_CLASS_T_VERS, kLzfFilter, 0, 1, "lzf", nullptr, nullptr, decode_lzf};
    checked(H5Zregister(&lzf), "cannot give the HDF5 library a filter");
    const Hdf5Id list = own(H5Tvlen_create(H5T_STD_I8LE), H5Tclose, "cannot make an HDF5 type");
    const Hdf5Id descriptor = descriptor_type();
    checked(H5Tregister(H5T_PERS_SOFT, "bertha: list to descriptor", list.get(), descriptor.get(),
                        keep_descriptor),
            "cannot give the HDF5 library a conversion");
    return true;
  }();
  static_cast<void>(prepared);
}

Hdf5Id descriptor_type() {
  return own(H5Tcreate(H5T_OPAQUE, kRowDescriptorBytes), H5Tclose, "cannot make an HDF5 type");
}

void expect_lzf_chunks(size_t chunk_bytes) { lzf_chunk_bytes = chunk_bytes; }

size_t lzf_decode(std::span<const std::byte> in, std::span<std::byte> out) {
  size_t read = 0, written = 0;
  while (read < in.size()) {
    const auto control = std::to_integer<size_t>(in[read++]);
    if (control < 32) {  // control + 1 literal bytes
      const size_t length = control + 1;
      if (length > in.size() - read || length > out.size() - written) return 0;
      std::copy_n(in.begin() + static_cast<ptrdiff_t>(read), length,
                  out.begin() + static_cast<ptrdiff_t>(written));
      read += length;
      written += length;
      continue;
    }
    // A copy of earlier output: 3 bits of length, one more byte if they are all ones, then 13 bits
    // of distance, the upper 5 of which are in the control byte.
    size_t length = (control >> 5) + 2;
    const bool long_copy = control >> 5 == 7;
    if (in.size() - read < (long_copy ? 2 : 1)) return 0;
    if (long_copy) length += std::to_integer<size_t>(in[read++]);
    const size_t distance = ((control & 31) << 8) + std::to_integer<size_t>(in[read++]) + 1;
    if (distance > written || length > out.size() - written) return 0;
    for (; length > 0; --length, ++written) out[written] = out[written - distance];  // may overlap
  }
  return written;
}

}  // namespace bertha
