#include "data/format/output_folder.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "data/files/new_file.h"
#include "data/format/checksum_list.h"
#include "data/format/manifest.h"
#include "data/format/shard_names.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarkerName = "made_by_bertha.txt";
constexpr const char* kMarkerText =
    "Unfinished work of `bertha data`: the same command, run again, continues it and removes this\n"
    "folder when the data set is complete.\n";

fs::path work_folder(const std::string& output_dir) { return fs::path(output_dir) / "work"; }

/// Whether a folder may be one whose maker was stopped before the marker was there: it is empty but
/// for the marker's temporary file.
bool was_just_made(const fs::path& folder) {
  std::error_code error;
  if (fs::is_symlink(folder, error)) return false;
  const fs::directory_iterator entries(folder, error);
  return !error && std::all_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
    return entry.path().filename() == std::string(kMarkerName) + ".tmp";
  });
}

/// The name of a fact as a user types it: --max-seq-tokens.
std::string option_of(const std::string& fact) {
  static const std::map<std::string, std::string> kOtherNames{
      {"num_shards", "--shards"},
      {"max_seqs_per_pack", "--max-per-pack"},
      {"shuffle_seed", "the seed of --shuffle"},
      {"text_form", "the form of the text (--prose)"},
      {"tokenizer", "the tokenizer settings next to --vocab"},
      {"vocab_sha256", "the SHA-256 of --vocab"}};
  static const std::vector<std::string> kOptions{
      "layout",       "duplication", "masked_fraction", "short_seq_probability",
      "eval_samples", "seed",        "max_seq_tokens",  "max_masked_per_seq",
      "vocab_size",   "documents",   "field",           "part_mib",
      "hold_out",     "segments"};
  if (const auto other = kOtherNames.find(fact); other != kOtherNames.end()) return other->second;
  if (std::ranges::find(kOptions, fact) == kOptions.end()) return fact;
  std::string option = "--" + fact;
  std::ranges::replace(option, '_', '-');
  return option;
}

}  // namespace

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return;
  fail(ExitCode::kData, folder, ": cannot create the folder: ", error.message(),
       "; choose another output folder");
}

FileLock lock_output_folder(const std::string& output_dir) {
  make_folder(output_dir);
  return FileLock({.folder = output_dir,
                   .name = ".bertha.lock",
                   .doing = "is writing data to this folder",
                   .advice = "choose another output folder",
                   .removes_file = true});
}

bool has_work_folder(const std::string& output_dir) {
  std::error_code ignored;
  const fs::path folder = work_folder(output_dir);
  return !fs::is_symlink(folder, ignored) && fs::is_regular_file(folder / kMarkerName, ignored);
}

std::string make_work_folder(const std::string& output_dir) {
  const fs::path folder = work_folder(output_dir);
  if (has_work_folder(output_dir)) return folder.string();
  std::error_code error;
  if (fs::exists(folder, error) && !was_just_made(folder)) {
    fail(ExitCode::kData, folder.string(),
         ": bertha uses this name for unfinished work, but did not create this folder; rename it "
         "or choose another output folder");
  }
  make_folder(folder);
  write_new_file((folder / kMarkerName).string(), kMarkerText);
  return folder.string();
}

void remove_work_folder(const std::string& output_dir) {
  if (!has_work_folder(output_dir)) return;
  const fs::path folder = work_folder(output_dir);
  std::error_code error;
  // The marker is removed last, so that a stopped run leaves a folder that is recognized as ours.
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename() != kMarkerName) fs::remove_all(entry->path(), error);
  }
  if (!error) fs::remove_all(folder, error);
}

void check_nothing_foreign(const std::string& output_dir,
                           const std::vector<std::string>& shard_names) {
  std::error_code error;
  const std::set<std::string> known(shard_names.begin(), shard_names.end());
  const bool is_ours =
      fs::exists(fs::path(output_dir) / kManifestName, error) || has_work_folder(output_dir);
  for (fs::directory_iterator entry(output_dir, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool is_list = name == kChecksumListName;
    if (!is_list && !is_shard_name(name)) continue;
    if (is_ours && (is_list || known.contains(name))) continue;
    fail(ExitCode::kData, entry->path().string(),
         ": was not written by this command, which would add or leave shards next to it; remove it "
         "or choose another output folder");
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    fail(ExitCode::kData, output_dir, ": cannot list the folder: ", error.message(),
         "; choose another output folder");
  }
}

void check_same_facts(const std::string& manifest_path, const DataFacts& found,
                      const DataFacts& wanted) {
  constexpr int kMaxListed = 3;  // every text may differ
  std::string differences;
  int listed = 0;
  for (const auto& [name, value] : wanted) {
    const auto other = found.find(name);
    const std::string other_value = other == found.end() ? "(nothing)" : other->second;
    if (other_value == value) continue;
    differences += concat(differences.empty() ? "" : ", and with ", option_of(name), " = ",
                          other_value, ", but it is now ", value);
    if (++listed == kMaxListed) break;
  }
  if (differences.empty()) return;
  fail(ExitCode::kData, manifest_path, ": the folder contains data prepared with ", differences,
       "; choose another output folder or remove this one");
}

}  // namespace bertha
