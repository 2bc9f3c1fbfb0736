#include "harness/checkpoint/tf_index.h"

#include <google/protobuf/io/coded_stream.h>
#include <leveldb/env.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>
#include <leveldb/table.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>

#include "kernels/base/error.h"

namespace bertha {
namespace {

void check(const leveldb::Status& status, const std::string& path) {
  if (status.ok()) return;
  if (status.IsNotFound()) {
    fail(ExitCode::kData, path, ": is not there; copy it beside the data files.");
  }
  fail(ExitCode::kData, path, ": cannot be read as the index of a TensorFlow checkpoint (",
       status.ToString(), "); the file is damaged or of another format, copy it again.");
}

constexpr size_t kTrailerBytes = 5;  // behind a block: how it is compressed, and its checksum

/// Whether a block compressed with Snappy states a length that its bytes cannot give.
bool is_overlong(const leveldb::Slice& block) {
  constexpr char kSnappy = 1;
  constexpr uint64_t kMostRatio = 64;  // no element of Snappy's gives more for a byte
  const size_t bytes = block.size() - kTrailerBytes;
  if (block[bytes] != kSnappy) return false;
  google::protobuf::io::CodedInputStream preamble(reinterpret_cast<const uint8_t*>(block.data()),
                                                  static_cast<int>(std::min<size_t>(bytes, 10)));
  uint64_t length = 0;
  return preamble.ReadVarint64(&length) && length > kMostRatio * bytes;
}

/// Refuses what lies outside the file, sizes that overflow when the trailer is added to them
/// included, and lengths that are not there: leveldb believes what an index states.
class FileWithin final : public leveldb::RandomAccessFile {
 public:
  FileWithin(leveldb::RandomAccessFile* file, uint64_t bytes) : file_(file), bytes_(bytes) {}

  leveldb::Status Read(uint64_t offset, size_t count, leveldb::Slice* result,
                       char* scratch) const override {
    if (count < kTrailerBytes || count > bytes_ || offset > bytes_ - count) {
      return leveldb::Status::Corruption("a block lies outside the file");
    }
    const leveldb::Status status = file_->Read(offset, count, result, scratch);
    if (status.ok() && result->size() == count && is_overlong(*result)) {
      return leveldb::Status::Corruption("a block states more bytes than it holds");
    }
    return status;
  }

 private:
  std::unique_ptr<leveldb::RandomAccessFile> file_;
  uint64_t bytes_;
};

using Bytes = google::protobuf::io::CodedInputStream;

Bytes bytes_in(const leveldb::Slice& slice) {
  return Bytes(reinterpret_cast<const uint8_t*>(slice.data()), static_cast<int>(slice.size()));
}

/// Where a block lies.
struct BlockHandle {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

/// False where the bytes end.
bool read_handle(Bytes& from, BlockHandle& handle) {
  return from.ReadVarint64(&handle.offset) && from.ReadVarint64(&handle.bytes);
}

bool fits(const BlockHandle& block, uint64_t file_bytes) {
  return block.bytes <= file_bytes && block.offset <= file_bytes - block.bytes;
}

constexpr size_t kFooterBytes = 48;
constexpr size_t kMagicBytes = 8;  // at the end of a footer

/// The file, and behind it a table whose only block is the file's index block: so leveldb itself
/// undoes its compression.
class IndexAsTable final : public leveldb::RandomAccessFile {
 public:
  /// `footer` is the file's, with `index` in it.
  IndexAsTable(const leveldb::RandomAccessFile& file, uint64_t file_bytes,
               const leveldb::Slice& footer, const BlockHandle& index)
      : file_(file), file_bytes_(file_bytes) {
    const std::string block = text_of(index);
    // An entry: nothing is as in the key before it, the key is empty, the bytes of the value.
    tail_ = {0, 0, static_cast<char>(block.size())};
    tail_ += block + std::string("\0\0\0\0\1\0\0\0", 8);  // entries are whole at 0, at 1 place
    const BlockHandle tail_block{.offset = file_bytes, .bytes = tail_.size()};
    tail_.append(kTrailerBytes, '\0');  // not compressed; the checksum is not looked at
    std::string handles = text_of({}) + text_of(tail_block);
    handles.resize(kFooterBytes - kMagicBytes);
    tail_ += handles + std::string(footer.data() + handles.size(), kMagicBytes);
  }

  uint64_t bytes() const { return file_bytes_ + tail_.size(); }

  leveldb::Status Read(uint64_t offset, size_t count, leveldb::Slice* result,
                       char* scratch) const override {
    if (offset < file_bytes_) return file_.Read(offset, count, result, scratch);
    *result = leveldb::Slice(scratch, tail_.copy(scratch, count, offset - file_bytes_));
    return leveldb::Status::OK();
  }

 private:
  static std::string text_of(const BlockHandle& handle) {
    using google::protobuf::io::CodedOutputStream;
    std::array<uint8_t, 20> text{};  // two numbers of at most 10 bytes
    uint8_t* end = CodedOutputStream::WriteVarint64ToArray(handle.offset, text.data());
    end = CodedOutputStream::WriteVarint64ToArray(handle.bytes, end);
    return {text.data(), end};
  }

  const leveldb::RandomAccessFile& file_;
  uint64_t file_bytes_;
  std::string tail_;
};

/// Whether the blocks that an index block names lie in the file. What is no index, leveldb refuses.
bool index_fits(IndexAsTable& file, uint64_t file_bytes) {
  leveldb::Table* opened_table = nullptr;
  if (!leveldb::Table::Open({}, &file, file.bytes(), &opened_table).ok()) return true;
  const std::unique_ptr<leveldb::Table> table(opened_table);
  const std::unique_ptr<leveldb::Iterator> entry(table->NewIterator({}));
  for (entry->SeekToFirst(); entry->Valid(); entry->Next()) {
    Bytes value = bytes_in(entry->value());
    BlockHandle block;
    if (read_handle(value, block) && !fits(block, file_bytes)) return false;
  }
  return true;
}

/// Whether the two blocks that the last bytes of the file name lie in it, and those that the second
/// names: leveldb takes memory for a block before it reads it. What is no footer at all, leveldb
/// refuses.
bool blocks_fit(const leveldb::RandomAccessFile& file, uint64_t file_bytes) {
  std::array<char, kFooterBytes> scratch{};
  leveldb::Slice footer;
  if (file_bytes < scratch.size() ||
      !file.Read(file_bytes - scratch.size(), scratch.size(), &footer, scratch.data()).ok()) {
    return true;
  }
  Bytes handles = bytes_in(footer);
  BlockHandle handle;
  for (int block = 0; block < 2; ++block) {
    if (!read_handle(handles, handle)) return true;
    if (!fits(handle, file_bytes)) return false;
  }
  IndexAsTable index(file, file_bytes, footer, handle);
  return index_fits(index, file_bytes);
}

std::map<std::string, std::string> read_entries(const std::string& path,
                                                leveldb::RandomAccessFile& file,
                                                uint64_t file_bytes) {
  if (!blocks_fit(file, file_bytes)) {
    check(leveldb::Status::Corruption("a block lies outside the file"), path);
  }
  leveldb::Options options;
  options.paranoid_checks = true;  // the checksum of the index block too
  leveldb::Table* opened_table = nullptr;
  check(leveldb::Table::Open(options, &file, file_bytes, &opened_table), path);
  const std::unique_ptr<leveldb::Table> table(opened_table);

  leveldb::ReadOptions reading;
  reading.verify_checksums = true;
  const std::unique_ptr<leveldb::Iterator> entry(table->NewIterator(reading));
  std::map<std::string, std::string> entries;
  for (entry->SeekToFirst(); entry->Valid(); entry->Next()) {
    entries[entry->key().ToString()] = entry->value().ToString();
  }
  check(entry->status(), path);
  return entries;
}

}  // namespace

std::map<std::string, std::string> read_tf_index(const std::string& path) {
  leveldb::Env& env = *leveldb::Env::Default();
  uint64_t file_bytes = 0;
  check(env.GetFileSize(path, &file_bytes), path);
  leveldb::RandomAccessFile* opened_file = nullptr;
  check(env.NewRandomAccessFile(path, &opened_file), path);
  FileWithin file(opened_file, file_bytes);
  try {
    return read_entries(path, file, file_bytes);
  } catch (const std::bad_alloc&) {  // leveldb takes memory for a block before it reads it
    check(leveldb::Status::Corruption("a block is larger than memory"), path);
    throw;
  }
}

}  // namespace bertha
