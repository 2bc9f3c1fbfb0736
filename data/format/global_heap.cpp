#include "data/format/global_heap.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/base/error.h"

namespace bertha {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr int64_t kCollectionHeaderBytes = 16;  // "GCOL", version, 3 reserved, u64 size
constexpr int64_t kObjectHeaderBytes = 16;      // u16 index, u16 references, 4 reserved, u64 size
constexpr int64_t kSmallestCollectionBytes = 4096;
// A sound collection has up to 64 KiB, or one long list; damaged ones may all claim the whole file.
constexpr int64_t kMaxLargeBytes = int64_t{64} << 20;
// Positions inside a sample are int16, so no list can be longer.
constexpr int64_t kMaxElementsPerRow = 32768;

/// The elements at `from`, which need not be aligned.
template <class Stored, class T>
void copy_elements(const std::byte* from, std::span<T> to) {
  if constexpr (std::is_same_v<Stored, T>) {
    std::memcpy(to.data(), from, to.size_bytes());
  } else {
    using Limits = std::numeric_limits<T>;
    for (size_t i = 0; i < to.size(); ++i) {
      auto stored = load<Stored>(from + i * sizeof(Stored));
      if constexpr (sizeof(T) < sizeof(Stored)) {
        stored = std::clamp<Stored>(stored, Limits::min(), Limits::max());
      }
      to[i] = static_cast<T>(stored);
    }
  }
}

}  // namespace

GlobalHeapReader::GlobalHeapReader(const std::string& path, int64_t base_bytes)
    : path_(path), file_(path), base_bytes_(base_bytes) {}

void GlobalHeapReader::damaged(const Place& place, const std::string& what) const {
  fail(ExitCode::kData, path_, ": dataset ", place.dataset, ", row ", place.row, ": ", what,
       "; the file is damaged, prepare it again");
}

void GlobalHeapReader::read_at(int64_t offset_bytes, std::span<std::byte> out,
                               const Place& place) const {
  const int64_t want = std::ssize(out);
  if (offset_bytes < 0 || offset_bytes > file_.size_bytes() ||
      want > file_.size_bytes() - offset_bytes) {
    damaged(place, concat("stored in ", want, " bytes from byte ", offset_bytes,
                          ", but the file ends at ", file_.size_bytes()));
  }
  const std::string problem = file_.read_at(offset_bytes, out);
  if (!problem.empty()) damaged(place, problem);
}

const GlobalHeapReader::Collection& GlobalHeapReader::collection_at(int64_t address_bytes,
                                                                    const Place& place) {
  const auto slot = static_cast<uint64_t>(address_bytes / kSmallestCollectionBytes) % cache_.size();
  Collection& collection = cache_[slot];
  if (collection.address_bytes == address_bytes) return collection;
  collection.address_bytes = -1;
  collection.bytes.resize(static_cast<size_t>(kSmallestCollectionBytes));
  read_at(address_bytes, collection.bytes, place);
  const std::byte* header = collection.bytes.data();
  const int64_t size_bytes = load<int64_t>(header + 8);
  if (std::memcmp(header, "GCOL\1", 5) != 0 || size_bytes < kSmallestCollectionBytes ||
      size_bytes > file_.size_bytes() - address_bytes) {
    damaged(place, concat("no list storage at byte ", address_bytes));
  }
  if (size_bytes > kSmallestCollectionBytes) {
    large_bytes_ += size_bytes;
    if (large_bytes_ > kMaxLargeBytes) {
      cache_ = {};
      large_bytes_ = size_bytes;
    }
    collection.bytes.resize(static_cast<size_t>(size_bytes));
    read_at(address_bytes, collection.bytes, place);
  }
  find_objects(collection, place);
  collection.address_bytes = address_bytes;
  return collection;
}

void GlobalHeapReader::find_objects(Collection& collection, const Place& place) const {
  const int64_t end = std::ssize(collection.bytes);
  collection.objects.clear();
  for (int64_t at = kCollectionHeaderBytes; at + kObjectHeaderBytes <= end;) {
    const std::byte* header = collection.bytes.data() + at;
    const auto index = load<uint16_t>(header);
    const auto size_bytes = load<int64_t>(header + 8);
    if (index == 0) return;  // free space up to the end
    const int64_t begin = at + kObjectHeaderBytes;
    if (size_bytes < 0 || size_bytes > end - begin) {
      damaged(place, concat("a list of ", size_bytes, " bytes in storage of ", end));
    }
    if (collection.objects.size() <= index) collection.objects.resize(size_t{index} + 1);
    collection.objects[index] = {.begin_bytes = begin, .size_bytes = size_bytes};
    at = begin + (size_bytes + 7) / 8 * 8;
  }
}

GlobalHeapReader::Descriptor GlobalHeapReader::descriptor_of(
    const Place& place, std::span<const std::byte> descriptors) const {
  const std::byte* at = descriptors.data() + place.row * kRowDescriptorBytes;
  const auto base = static_cast<uint64_t>(base_bytes_);
  const Descriptor descriptor{.length = load<uint32_t>(at),
                              .address_bytes = static_cast<int64_t>(load<uint64_t>(at + 4) + base),
                              .index = load<uint32_t>(at + 12)};
  if (descriptor.length > kMaxElementsPerRow) {
    damaged(place, concat(descriptor.length, " elements, want at most ", kMaxElementsPerRow));
  }
  return descriptor;
}

std::vector<int64_t> GlobalHeapReader::read_lengths(const std::string& dataset,
                                                    std::span<const std::byte> descriptors) const {
  std::vector<int64_t> lengths(descriptors.size() / kRowDescriptorBytes);
  for (Place place{dataset, 0}; place.row < std::ssize(lengths); ++place.row) {
    lengths[static_cast<size_t>(place.row)] = descriptor_of(place, descriptors).length;
  }
  return lengths;
}

template <class T, class Stored>
RaggedRows<T> GlobalHeapReader::read_rows(const std::string& dataset,
                                          std::span<const std::byte> descriptors, int64_t first_row,
                                          int64_t num_rows) {
  BERTHA_CHECK((first_row + num_rows) * kRowDescriptorBytes <= std::ssize(descriptors), path_,
               ": dataset ", dataset, " has fewer rows than at first");
  RaggedRows<T> rows;
  int64_t elements = 0;
  for (Place place{dataset, first_row}; place.row < first_row + num_rows; ++place.row) {
    elements += descriptor_of(place, descriptors).length;
  }
  // A damaged file may state more than it contains.
  rows.values.reserve(static_cast<size_t>(std::min<int64_t>(elements, file_.size_bytes())));
  rows.offsets.reserve(static_cast<size_t>(num_rows) + 1);
  for (Place place{dataset, first_row}; place.row < first_row + num_rows; ++place.row) {
    const Descriptor descriptor = descriptor_of(place, descriptors);
    const auto old_size = rows.values.size();
    if (descriptor.length > 0) {
      const Collection& collection = collection_at(descriptor.address_bytes, place);
      const Object object = descriptor.index < collection.objects.size()
                                ? collection.objects[descriptor.index]
                                : Object{};
      if (object.size_bytes != descriptor.length * static_cast<int64_t>(sizeof(Stored))) {
        damaged(place, concat("a list of ", object.size_bytes, " bytes, want ", descriptor.length,
                              " elements of ", sizeof(Stored), " bytes"));
      }
      rows.values.resize(old_size + static_cast<size_t>(descriptor.length));
      if (std::ssize(rows.values) * static_cast<int64_t>(sizeof(Stored)) > file_.size_bytes()) {
        damaged(place, "more elements than the file can hold");
      }
      copy_elements<Stored>(collection.bytes.data() + object.begin_bytes,
                            std::span(rows.values).subspan(old_size));
    }
    rows.offsets.push_back(std::ssize(rows.values));
  }
  return rows;
}

using Name = const std::string&;
using Descriptors = std::span<const std::byte>;
template RaggedRows<int8_t> GlobalHeapReader::read_rows<int8_t, int8_t>(Name, Descriptors, int64_t,
                                                                        int64_t);
template RaggedRows<int16_t> GlobalHeapReader::read_rows<int16_t, int16_t>(Name, Descriptors,
                                                                           int64_t, int64_t);
template RaggedRows<int16_t> GlobalHeapReader::read_rows<int16_t, int32_t>(Name, Descriptors,
                                                                           int64_t, int64_t);
template RaggedRows<int32_t> GlobalHeapReader::read_rows<int32_t, int16_t>(Name, Descriptors,
                                                                           int64_t, int64_t);
template RaggedRows<int32_t> GlobalHeapReader::read_rows<int32_t, int32_t>(Name, Descriptors,
                                                                           int64_t, int64_t);

}  // namespace bertha
