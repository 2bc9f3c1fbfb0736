#include "harness/checkpoint/tf_bundle.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "harness/checkpoint/tf_index.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/checkpoint/bundle_writer.h"
#include "tests/harness/checkpoint/checkpoint_rig.h"
#include "tests/support/flip_byte.h"
#include "tests/support/source_dir.h"
#include "tests/support/temp_folder.h"

namespace bertha::testing {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = std::string(kSourceDir) + "/tests/golden/tf/";

/// A copy of one of TensorFlow's checkpoints, to be damaged.
std::string copy_golden(const TempFolder& folder, const std::string& name) {
  for (const auto& entry : fs::directory_iterator(kGolden)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with(name)) fs::copy(entry.path(), folder.path(file));
  }
  return folder.path(name);
}

void cut(const std::string& path, uintmax_t bytes) { fs::resize_file(path, bytes); }

std::string refusal(const std::string& prefix) {
  return error_of([&] {
    const TfBundle bundle(prefix);
    for (const auto& [key, tensor] : bundle.tensors()) bundle.read(key);
  });
}

BundleDraft one_tensor() {
  BundleDraft draft;
  draft.add("w", {2, 3}, {1, 2, 3, 4, 5, 6});
  return draft;
}

std::string refusal(const TempFolder& folder, const BundleDraft& draft) {
  const std::string prefix = folder.path("draft");
  draft.write(prefix);
  return refusal(prefix);
}

TEST(TfBundle, ReadsWhatTensorFlowsSaverWrote) {
  const TfBundle bundle(kGolden + "saver.ckpt-7");
  // 46 tensors with two slots each, two powers of beta, and the step.
  ASSERT_EQ(bundle.tensors().size(), 46u * 3 + 3);
  const TfTensor& words = bundle.tensors().at("bert/embeddings/word_embeddings");
  EXPECT_EQ(words.dtype, "F32");
  EXPECT_EQ(words.shape, (std::vector<int64_t>{37, 16}));
  EXPECT_EQ(bundle.read("bert/embeddings/word_embeddings").size(), 37u * 16 * 4);
  EXPECT_EQ(bundle.tensors().at("global_step").dtype, "I64");
  EXPECT_EQ(bundle.tensors().at("global_step").shape, std::vector<int64_t>{});
  int64_t step = 0;
  std::memcpy(&step, bundle.read("global_step").data(), sizeof(step));
  EXPECT_EQ(step, 7);
}

TEST(TfBundle, ReadsSeveralDataFiles) {
  const TfBundle bundle(kGolden + "sharded.ckpt");
  ASSERT_EQ(bundle.tensors().size(), 46u);
  const TfBundle whole(kGolden + "saver.ckpt-7");
  int64_t in_second = 0;
  for (const auto& [key, tensor] : bundle.tensors()) {
    EXPECT_EQ(bundle.read(key), whole.read(key)) << key;
    in_second += tensor.shard;
  }
  EXPECT_GT(in_second, 0);
  EXPECT_LT(in_second, 46);
}

TEST(TfBundle, ReadsAStringWithItsChecksums) {
  const TempFolder folder;
  const std::string key = "_CHECKPOINTABLE_OBJECT_GRAPH";
  const std::string prefix = copy_golden(folder, "objects-1");
  const std::string graph = TfBundle(prefix).read_string(key);
  EXPECT_THAT(graph, HasSubstr("bert/embeddings/word_embeddings"));
  // Its last byte, and the stored checksum of its length.
  const TfTensor tensor = TfBundle(prefix).tensors().at(key);
  const std::string data = prefix + ".data-00000-of-00001";
  for (const int64_t at : {tensor.offset_bytes + tensor.size_bytes - 1, tensor.offset_bytes + 3}) {
    flip_byte(data, at);
    EXPECT_THAT(error_of([&] { TfBundle(prefix).read_string(key); }),
                AllOf(HasSubstr(data), HasSubstr(key), HasSubstr("another checksum")));
    flip_byte(data, at);
  }
  EXPECT_EQ(TfBundle(prefix).read_string(key), graph);
}

// Every byte of an index counts, but for the padding of the footer's two handles.
TEST(TfBundle, RefusesAnIndexWithAnyByteFlipped) {
  const TempFolder folder;
  const std::string index = copy_golden(folder, "sharded.ckpt") + ".index";
  const auto file_bytes = static_cast<int64_t>(fs::file_size(index));
  constexpr int64_t kFooterBytes = 48;
  const std::map<std::string, std::string> whole = read_tf_index(index);
  for (int64_t from_end = kFooterBytes + 1; from_end <= file_bytes; from_end += 7) {
    flip_byte(index, -from_end);
    try {
      // A flipped byte of a block that nothing needs (the empty meta index) changes nothing.
      EXPECT_EQ(read_tf_index(index), whole) << from_end << " bytes from the end";
      EXPECT_LE(from_end, 128) << "a flipped byte went unnoticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ExitCode::kData);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(index), HasSubstr("copy it again")));
    }
    flip_byte(index, -from_end);
  }
}

TEST(TfBundle, SaysWhatIsWrongWithAnIndex) {
  const TempFolder folder;
  const std::string prefix = copy_golden(folder, "saver.ckpt-7");
  const std::string index = prefix + ".index";
  flip_byte(index, -1);
  EXPECT_THAT(refusal(prefix),
              AllOf(HasSubstr(index), HasSubstr("its last bytes are not those of an index")));
  flip_byte(index, -1);
  flip_byte(index, 100);
  EXPECT_THAT(refusal(prefix), AllOf(HasSubstr(index), HasSubstr("another checksum")));
  cut(index, fs::file_size(index) / 2);
  EXPECT_THAT(refusal(prefix), AllOf(HasSubstr(index), HasSubstr("cannot be read as the index")));
  cut(index, 20);
  EXPECT_THAT(refusal(prefix), AllOf(HasSubstr(index), HasSubstr("too short")));
  cut(index, 0);
  EXPECT_THAT(refusal(prefix), AllOf(HasSubstr(index), HasSubstr("copy it again")));
  fs::remove(index);
  EXPECT_THAT(refusal(prefix), AllOf(HasSubstr(index), HasSubstr("no such file")));
}

// The footer is two handles (offset and size as varints), padded to 40 bytes, and a number.
TEST(TfBundle, RefusesBlocksThatLieOutsideTheIndexOrAreLargerThanMemory) {
  const TempFolder folder;
  const std::string prefix = copy_golden(folder, "saver.ckpt-7");
  const std::string index = prefix + ".index";
  const auto footer = static_cast<std::streamoff>(fs::file_size(index)) - 48;
  for (const uint64_t size :
       {uint64_t{1} << 20, uint64_t{1} << 40, uint64_t{1} << 62, uint64_t{1} << 63, UINT64_MAX - 6,
        UINT64_MAX - 3, UINT64_MAX - 1, UINT64_MAX}) {
    for (const uint64_t offset : {uint64_t{0}, uint64_t{1} << 40, UINT64_MAX - 2}) {
      std::string handles = varint(0) + varint(0) + varint(offset) + varint(size);
      handles.resize(40);
      std::fstream(index, std::ios::in | std::ios::out | std::ios::binary)
          .seekp(footer)
          .write(handles.data(), 40);
      EXPECT_THAT(refusal(prefix), AllOf(HasSubstr(index), HasSubstr("copy it again")))
          << offset << ' ' << size;
    }
  }
}

TEST(TfBundle, SaysWhatIsWrongWithADataFile) {
  const TempFolder folder;
  const std::string prefix = copy_golden(folder, "sharded.ckpt");
  const std::string data = prefix + ".data-00001-of-00002";
  flip_byte(data, -2);
  EXPECT_THAT(refusal(prefix), AllOf(HasSubstr(data), HasSubstr("another checksum")));
  cut(data, fs::file_size(data) - 1);
  EXPECT_THAT(refusal(prefix), AllOf(HasSubstr(data), HasSubstr("truncated")));
  fs::remove(data);
  EXPECT_THAT(refusal(prefix), AllOf(HasSubstr(data), HasSubstr("copy all 2 data files")));
}

TEST(TfBundle, ReadsAnIndexOfManyBlocks) {
  const TempFolder folder;
  std::map<std::string, std::string> entries;
  for (int i = 0; i < 500; ++i) {
    entries[concat("a/long/common/prefix/", i)] = std::string(static_cast<size_t>(i), 'x');
  }
  const std::string path = folder.path("many.index");
  write_tf_index(path, entries);
  EXPECT_EQ(read_tf_index(path), entries);
  write_tf_index(path, entries, leveldb::kSnappyCompression);
  EXPECT_THAT(error_of([&] { read_tf_index(path); }), HasSubstr("it is compressed"));
}

/// A block with its compression and checksum.
std::string with_trailer(std::string block) {
  block += '\0';
  const uint32_t checksum = masked_crc32c(crc32c(block));
  return block + std::string(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
}

/// Entries, then the offsets of those whose keys are whole and their number.
std::string block_of(const std::string& entries) {
  return with_trailer(entries + std::string("\0\0\0\0\1\0\0\0", 8));
}

/// What reading a table of one block says, whose index names it at these offsets.
std::string complaint_about(const std::string& data, const std::vector<uint64_t>& offsets) {
  const TempFolder folder;
  constexpr size_t kTrailerBytes = 5;
  std::string names;
  for (const uint64_t offset : offsets) {
    const std::string handle = varint(offset) + varint(data.size() - kTrailerBytes);
    names += varint(0) + varint(0) + varint(handle.size()) + handle;
  }
  const std::string index = block_of(names);
  std::string footer =
      varint(0) + varint(0) + varint(data.size()) + varint(index.size() - kTrailerBytes);
  footer.resize(40);
  const std::string path = folder.path("made.index");
  write_bytes(path, data + index + footer + "\x57\xfb\x80\x8b\x24\x75\x47\xdb");
  return error_of([&] { read_tf_index(path); });
}

TEST(TfBundle, RefusesEntriesThatAreLongerThanTheirBlock) {
  const auto entry = [](uint64_t shared, uint64_t more, uint64_t value_bytes) {
    return block_of(varint(shared) + varint(more) + varint(value_bytes) + "kv");
  };
  EXPECT_EQ(complaint_about(entry(0, 1, 1), {0}), "no error");
  // The sum of two lengths overflows 32 bits: LevelDB reads 4 GB.
  for (const std::string& bad : {entry(0, UINT32_MAX, 3), entry(0, 3, UINT32_MAX), entry(1, 1, 1),
                                 entry(0, 1, 2), entry(0, 1, 0), block_of("\x80")}) {
    EXPECT_THAT(complaint_about(bad, {0}), HasSubstr("an entry is damaged"));
  }
  for (const std::string& bad : {std::string(), std::string(3, 'x'), std::string("\1\0\0\0", 4)}) {
    EXPECT_THAT(complaint_about(with_trailer(bad), {0}), HasSubstr("a block is damaged"));
  }
  EXPECT_THAT(complaint_about(entry(0, 1, 1), {0, 0}), HasSubstr("its blocks overlap"));
  EXPECT_THAT(complaint_about(entry(0, 1, 1), {UINT64_MAX}),
              HasSubstr("a block lies outside the file"));
}

TEST(TfBundle, RefusesShapesThat64BitsDoNotCount) {
  const TempFolder folder;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{-1}, {int64_t{1} << 32, int64_t{1} << 32}, {0, INT64_MAX, 3}}) {
    BundleDraft draft = one_tensor();
    draft.entries["w"].clear_shape();
    for (const int64_t extent : shape) {
      draft.entries["w"].mutable_shape()->add_dim()->set_size(extent);
    }
    EXPECT_THAT(refusal(folder, draft), HasSubstr("the entry of w states the shape ["));
  }
}

TEST(TfBundle, RefusesWhatItCannotRead) {
  const TempFolder folder;
  BundleDraft draft = one_tensor();
  EXPECT_EQ(refusal(folder, draft), "no error");
  draft.header = bundle_header(1, 1);
  EXPECT_THAT(refusal(folder, draft), HasSubstr("big-endian"));
  draft.header = bundle_header(1, 0, 2);
  EXPECT_THAT(refusal(folder, draft), HasSubstr("format version 2"));
  draft.header = bundle_header(0);
  EXPECT_THAT(refusal(folder, draft), HasSubstr("lists 0 data files"));
  draft.header = "\xff\xff";
  EXPECT_THAT(refusal(folder, draft), HasSubstr("its header: cannot be read"));
  draft = one_tensor();
  draft.entries["w"].add_slices("");
  EXPECT_THAT(refusal(folder, draft), AllOf(HasSubstr("w is saved in slices"), HasSubstr("draft")));
  draft = one_tensor();
  draft.entries["w"].set_shard_id(1);
  EXPECT_THAT(refusal(folder, draft), HasSubstr("the entry of w points outside"));
  draft = one_tensor();
  draft.entries["w"].set_size(std::numeric_limits<int64_t>::min());
  EXPECT_THAT(refusal(folder, draft), HasSubstr("the entry of w points outside"));
  draft.entries["w"].set_size(std::numeric_limits<int64_t>::max());
  draft.entries["w"].set_offset(8);
  EXPECT_THAT(refusal(folder, draft), HasSubstr("truncated"));

  write_tf_index(folder.path("table.index"), {{"some", "thing"}});
  EXPECT_THAT(refusal(folder.path("table")), HasSubstr("without the header"));
  write_tf_index(folder.path("torn.index"),
                 {{"", bundle_header(1)}, {"w", std::string("\x12\x7f", 2)}});
  EXPECT_THAT(refusal(folder.path("torn")), HasSubstr("the entry of w: cannot be read"));
}

}  // namespace
}  // namespace bertha::testing
