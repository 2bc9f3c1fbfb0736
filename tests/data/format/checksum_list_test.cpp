#include "data/format/checksum_list.h"

#include <gtest/gtest.h>

#include "data/files/hashing.h"
#include "data/format/verify.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

const std::string kOne(32, '1');
const std::string kTwo(32, '2');

TEST(ChecksumList, TheShardChecksumIsThatOfPythonListsInText) {
  SampleSet samples;
  const std::vector<TokenId> rows[] = {{101, 2023, 102}, {0}, {-5, 32767, 119546}};
  for (const auto& ids : rows) {
    const std::vector<int8_t> segments(ids.size());
    SampleView sample;
    sample.token_ids = ids;
    sample.segment_ids = segments;
    samples.append(sample);
  }
  // python3: h = lambda s: hashlib.md5(s.encode()).hexdigest()
  //          h(str([h(str(r)) for r in [[101, 2023, 102], [0], [-5, 32767, 119546]]]))
  EXPECT_EQ(md5_of_lists(samples), "0646ec897104524d208efc5ee122dc2b");
  EXPECT_EQ(md5_of_lists(SampleSet()), md5_of_text("[]"));
}

TEST(ChecksumList, NamesAreFoundWhateverTheirEnding) {
  const TempFolder folder;
  const std::string path = folder.path("list.chk");
  write_bytes(path, concat("part_00000_of_00002.hdf5\t", kOne, "\npart_00001_of_00002.hdf\t", kTwo,
                           "\r\n\n"));
  const ChecksumList list = read_checksum_list(path);
  for (const char* ending : {"", ".hdf", ".hdf5"}) {
    EXPECT_EQ(list.md5_of(concat("part_00000_of_00002", ending)), kOne);
    EXPECT_EQ(list.md5_of(concat("part_00001_of_00002", ending)), kTwo);
  }
  EXPECT_EQ(list.md5_of("part_00002_of_00002.hdf5"), "");
}

TEST(ChecksumList, WhatIsWrittenIsReadBack) {
  const TempFolder folder;
  write_checksum_list(folder.path("c.chk"),
                      {{.name = "part_0.hdf5", .xxh3 = "", .md5_of_lists = kOne}});
  EXPECT_EQ(bytes_of(folder.path("c.chk")), "part_0.hdf5\t" + kOne + "\n");
  EXPECT_EQ(read_checksum_list(folder.path("c.chk")).md5_of("part_0.hdf5"), kOne);
}

TEST(ChecksumList, WhatIsNoListIsNamedWithItsLine) {
  const TempFolder folder;
  const auto complaint = [&](const std::string& text) {
    write_bytes(folder.path("c.chk"), text);
    return error_of([&] { read_checksum_list(folder.path("c.chk")); });
  };
  EXPECT_THAT(complaint("part_0\t123\n"), HasSubstr("c.chk: line 1 is \"part_0\t123\", want"));
  EXPECT_THAT(complaint(concat("part_0\t", kOne, "\npart_1\n")), HasSubstr("line 2 is \"part_1\""));
  EXPECT_THAT(complaint(concat("part_0\t", kOne, "\npart_0.hdf\t", kOne)),
              HasSubstr("line 2 lists part_0.hdf again"));
  EXPECT_THAT(complaint(""), HasSubstr("contains no checksum"));
  EXPECT_THAT(error_of([&] { read_checksum_list(folder.path("none")); }), HasSubstr("cannot open"));
}

TEST(ChecksumList, VerifyFindsWhatDiffersFromIt) {
  const TempFolder folder;
  const std::string list = folder.path("list.chk");
  for (const int i : {0, 1, 3}) {
    write_shard(folder.path(concat("part_0000", i, "_of_00004.hdf5")), ShardLayout::kVariableLength,
                example_samples(5, static_cast<uint64_t>(i)));
  }
  const auto md5 = [](uint64_t seed) { return md5_of_lists(example_samples(5, seed)); };
  write_bytes(list, concat("part_00000_of_00004.hdf5\t", md5(0), "\npart_00001_of_00004.hdf5\t",
                           kOne, "\npart_00002_of_00004.hdf5\t", kTwo, "\n"));
  const auto findings = [&](const std::string& path) {
    std::vector<std::string> texts;
    for (const Finding& one : verify_data(path, {.limits = {}, .checksum_list = list}).findings) {
      texts.push_back(one.text());
    }
    return texts;
  };
  EXPECT_THAT(findings(folder.path()),
              ElementsAre("part_00002_of_00004.hdf5: missing, judging by the other names",
                          concat("part_00001_of_00004.hdf5: checksum of the token ids is ", md5(1),
                                 ", want ", kOne, " as in ", list),
                          concat("part_00003_of_00004.hdf5: not in ", list),
                          concat("part_00002_of_00004: missing, but in ", list)));
  EXPECT_THAT(findings(folder.path("part_00000_of_00004.hdf5")), IsEmpty());
  write_bytes(
      list, concat("part_00000_of_00009.hdf5\t", kOne, "\npart_00001_of_00009.hdf5\t", kTwo, "\n"));
  EXPECT_THAT(findings(folder.path()),
              ElementsAre("part_00002_of_00004.hdf5: missing, judging by the other names",
                          concat(list,
                                 ": is the list of 2 other shards (part_00000_of_00009 and so "
                                 "on) and lists none of these 3 (part_00000_of_00004 and so on); "
                                 "give the list of this number of shards")));
}

TEST(ChecksumList, ShardsThatOnlyOneSideKnowsAreToldInOneLineEach) {
  ChecksumList list{.path = "c.chk", .md5_of_stem = {}};
  std::vector<ManifestShard> shards{{.name = "part_0.hdf5", .xxh3 = "", .md5_of_lists = kOne}};
  list.md5_of_stem["part_0"] = kOne;
  for (int i = 1; i < 200; ++i) {
    list.md5_of_stem[concat("part_a", i)] = kOne;
    shards.push_back({.name = concat("part_b", i, ".hdf5"), .xxh3 = "", .md5_of_lists = kTwo});
  }
  const auto differences = compare_checksums(list, shards);
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].text(),
            "part_b1.hdf5, part_b2.hdf5, part_b3.hdf5, part_b4.hdf5, part_b5.hdf5 and 194 more: "
            "not in c.chk");
  EXPECT_EQ(differences[1].text(),
            "part_a1, part_a10, part_a100, part_a101, part_a102 and 194 more: missing, but in "
            "c.chk");
}

}  // namespace
}  // namespace bertha
