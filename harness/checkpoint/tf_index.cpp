#include "harness/checkpoint/tf_index.h"

#include <google/protobuf/io/coded_stream.h>
#include <leveldb/env.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>
#include <leveldb/table.h>

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

/// Refuses what lies outside the file, sizes that overflow when five bytes of checksum are added to
/// them included: leveldb believes what an index states.
class FileWithin final : public leveldb::RandomAccessFile {
 public:
  FileWithin(leveldb::RandomAccessFile* file, uint64_t bytes) : file_(file), bytes_(bytes) {}

  leveldb::Status Read(uint64_t offset, size_t count, leveldb::Slice* result,
                       char* scratch) const override {
    constexpr size_t kTrailerBytes = 5;
    if (count < kTrailerBytes || count > bytes_ || offset > bytes_ - count) {
      return leveldb::Status::Corruption("a block lies outside the file");
    }
    return file_->Read(offset, count, result, scratch);
  }

 private:
  std::unique_ptr<leveldb::RandomAccessFile> file_;
  uint64_t bytes_;
};

/// Whether the two blocks that the last bytes of the file name lie in it: leveldb takes memory for
/// a block before it reads it. What is no footer at all, leveldb refuses.
bool footer_fits(const leveldb::RandomAccessFile& file, uint64_t file_bytes) {
  std::array<char, 48> scratch{};
  leveldb::Slice footer;
  if (file_bytes < scratch.size() ||
      !file.Read(file_bytes - scratch.size(), scratch.size(), &footer, scratch.data()).ok()) {
    return true;
  }
  google::protobuf::io::CodedInputStream handles(reinterpret_cast<const uint8_t*>(footer.data()),
                                                 static_cast<int>(footer.size()));
  for (int block = 0; block < 2; ++block) {
    uint64_t offset = 0, size = 0;
    if (!handles.ReadVarint64(&offset) || !handles.ReadVarint64(&size)) return true;
    if (size > file_bytes || offset > file_bytes - size) return false;
  }
  return true;
}

std::map<std::string, std::string> read_entries(const std::string& path,
                                                leveldb::RandomAccessFile& file,
                                                uint64_t file_bytes) {
  if (!footer_fits(file, file_bytes)) {
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
