#include "harness/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include "data/files/hashing.h"
#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"
#include "kernels/base/parse_number.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDone = "DONE";
constexpr const char* kPrefix = "step_";
constexpr const char* kPartial = ".partial";    // being written, or being removed
constexpr const char* kReplaced = ".replaced";  // until its successor has been renamed
constexpr const char* kSuperseded = ".superseded";
constexpr const char* kBest = "best";  // a link

struct DoneLine {
  std::string hash;
  uintmax_t bytes = 0;
};

[[noreturn]] void fail_write(const std::string& path) {
  fail(ExitCode::kData, path, ": writing failed (", std::strerror(errno),
       "); check space and permissions, and run again.");
}

void sync_path(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_write(path);
  const int result = fsync(descriptor);
  close(descriptor);
  if (result != 0) fail_write(path);
}

/// Whether the name is a path within the folder.
bool is_inside(const std::string& name) {
  const fs::path path(name);
  return !path.is_absolute() && *path.lexically_normal().begin() != "..";
}

std::map<std::string, DoneLine> read_done(const std::string& path) {
  if (!is_complete(path)) {
    fail(ExitCode::kData, path, ": has no ", kDone,
         " because saving it was interrupted; use an earlier checkpoint.");
  }
  std::istringstream file(read_text_file(path + "/" + kDone));
  std::map<std::string, DoneLine> lines;
  std::string text;
  while (std::getline(file, text)) {
    std::istringstream line(text);
    DoneLine done;
    std::string name;
    if (!(line >> done.hash >> done.bytes >> name) || !is_inside(name)) {
      fail(ExitCode::kData, path, "/", kDone, ": cannot read the line \"", shortened(text),
           "\"; the checkpoint is damaged, use an earlier one.");
    }
    lines[name] = done;
  }
  if (lines.empty()) {
    fail(ExitCode::kData, path, "/", kDone,
         ": does not list any file; the checkpoint is damaged, use an earlier one.");
  }
  return lines;
}

/// The step in a folder's name; none for other names, such as *.partial.
std::optional<int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto step = parse_number<int64_t>(name.substr(std::strlen(kPrefix)));
  return step && *step >= 0 ? step : std::nullopt;
}

/// Paths of the folders step_<number><suffix>.
std::vector<std::string> step_folders(const std::string& folder, const std::string& suffix) {
  std::vector<std::string> paths;
  if (!fs::is_directory(folder)) return paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    if (entry.is_directory() && path.extension() == suffix && step_of(path.stem())) {
      paths.push_back(path.string());
    }
  }
  return paths;
}

std::string without_suffix(const std::string& path) {
  return fs::path(path).replace_extension().string();
}

void rename_folder(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    fail(ExitCode::kData, from, ": cannot be renamed to ", to, " (", error.message(),
         "); check permissions, and run again.");
  }
}

/// Renames a replaced checkpoint back if its successor was never completed, and removes other
/// remains of interrupted saves and removals.
void clear_interrupted(const std::string& folder) {
  std::error_code ignored;  // leftovers do no harm
  for (const std::string& replaced : step_folders(folder, kReplaced)) {
    const std::string path = without_suffix(replaced);
    if (fs::exists(path)) {
      fs::remove_all(replaced, ignored);
    } else {
      fs::rename(replaced, path, ignored);
    }
  }
  for (const std::string& partial : step_folders(folder, kPartial)) {
    fs::remove_all(partial, ignored);
  }
}

/// Renames it to a name that nothing reads before removing it, so that a half-removed checkpoint
/// never looks complete.
void remove_checkpoint(const std::string& path) {
  const std::string partial = without_suffix(path) + kPartial;
  std::error_code ignored;  // an old checkpoint that remains does no harm
  fs::rename(path, partial, ignored);
  fs::remove_all(partial, ignored);
}

/// Removes <folder>/best if its checkpoint no longer exists.
void drop_dangling_best(const std::string& folder) {
  const fs::path link = fs::path(folder) / kBest;
  std::error_code ignored;
  if (fs::is_symlink(link, ignored) && !fs::exists(link, ignored)) fs::remove(link, ignored);
}

}  // namespace

std::string make_partial_folder(const std::string& path) {
  std::string partial = path + kPartial;
  std::error_code error;
  fs::remove_all(partial, error);
  if (!error) fs::create_directories(fs::path(partial).parent_path(), error);
  // A link that another process creates meanwhile must not be mistaken for the new folder.
  if (!error && !fs::create_directory(partial, error) && !error) {
    error = std::make_error_code(std::errc::file_exists);
  }
  if (error) {
    fail(ExitCode::kData, partial, ": cannot be created (", error.message(),
         "); check space and permissions.");
  }
  return partial;
}

std::string make_new_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  std::string folder = path;
  for (int number = 2; !error && !fs::create_directory(folder, error); ++number) {
    folder = concat(path, ".", number);  // earlier names exist already
  }
  if (error) {
    fail(ExitCode::kData, folder, ": cannot be created (", error.message(),
         "); check space and permissions.");
  }
  return folder;
}

std::string done_line(const std::string& file, const std::string& name) {
  return concat(xxh3_of_file(file), " ", fs::file_size(file), " ",
                name.empty() ? fs::path(file).filename().string() : name, "\n");
}

void seal_folder(const std::string& partial, const std::string& path,
                 const std::vector<std::string>& known_lines) {
  std::map<std::string, std::string> line_of;
  for (const std::string& line : known_lines) {
    if (line.empty()) continue;  // from a rank that wrote no file
    const size_t name = line.rfind(' ') + 1;
    line_of[line.substr(name, line.size() - 1 - name)] = line;
  }
  std::string done;
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(partial)) {
    if (!entry.is_directory()) files.push_back(entry.path().lexically_relative(partial));
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    const auto known = line_of.find(file.string());
    done += known == line_of.end() ? done_line(partial + "/" + file.string(), file.string())
                                   : known->second;
  }
  write_new_file(partial + "/" + kDone, done);
  sync_path(partial);

  // At every moment one complete checkpoint of this step exists, under one of the two names.
  const std::string replaced = path + kReplaced;
  std::error_code ignored;  // leftovers do no harm
  const bool replaces = fs::exists(path);
  if (replaces) {
    fs::remove_all(replaced, ignored);
    rename_folder(path, replaced);
  }
  try {
    rename_folder(partial, path);
  } catch (const Error&) {
    if (replaces && !fs::exists(path)) fs::rename(replaced, path, ignored);
    throw;
  }
  sync_path(fs::path(path).parent_path().string());
  if (replaces) fs::remove_all(replaced, ignored);
}

void verify_folder(const std::string& path, const std::vector<std::string>& names) {
  const std::map<std::string, DoneLine> lines = read_done(path);
  for (const auto& [name, done] : lines) {
    if (!names.empty() && std::ranges::find(names, name) == names.end()) continue;
    const std::string file = path + "/" + name;
    std::error_code error;
    const uintmax_t bytes = fs::file_size(file, error);
    if (error) fail(ExitCode::kData, file, ": is missing; use an earlier checkpoint.");
    if (bytes != done.bytes) {
      fail(ExitCode::kData, file, ": has ", bytes, " bytes, want ", done.bytes,
           "; the checkpoint is damaged, use an earlier one.");
    }
    const std::string hash = xxh3_of_file(file);
    if (hash != done.hash) {
      fail(ExitCode::kData, file, ": has the hash ", hash, ", want ", done.hash,
           "; the checkpoint is damaged, use an earlier one.");
    }
  }
  for (const std::string& name : names) {
    if (!lines.contains(name)) {
      fail(ExitCode::kData, path, ": ", kDone, " does not list ", name,
           "; the checkpoint is incomplete, use an earlier one.");
    }
  }
}

bool is_complete(const std::string& path) { return fs::exists(path + "/" + kDone); }

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::string> paths = step_folders(folder, "");
  for (const std::string& replaced : step_folders(folder, kReplaced)) {
    if (!fs::exists(without_suffix(replaced))) paths.push_back(replaced);
  }
  std::ranges::sort(paths, [](const fs::path& a, const fs::path& b) {
    return step_of(a.stem()) < step_of(b.stem());
  });
  return paths;
}

void set_aside_later_checkpoints(const std::string& folder, int64_t step) {
  clear_interrupted(folder);
  std::string names;
  for (const std::string& path : list_checkpoints(folder)) {
    if (step_of_checkpoint(path) <= step) continue;
    const std::string aside = without_suffix(path) + kSuperseded;
    int number = 1;
    while (fs::exists(concat(aside, number))) ++number;  // set aside by an earlier start
    rename_folder(path, concat(aside, number));
    names += (names.empty() ? "" : ", ") + fs::path(path).filename().string();
  }
  if (names.empty()) return;
  drop_dangling_best(folder);
  log_line(LogLevel::kInfo, concat("set aside checkpoints of an earlier run in ", folder, ": ",
                                   names, " (now *.superseded1, 2, ...)"));
}

int64_t step_of_checkpoint(const std::string& path) {
  const std::optional<int64_t> step = step_of(fs::path(path).stem());
  BERTHA_CHECK(step.has_value(), path, " is not the name of a checkpoint");
  return *step;
}

void remove_old_checkpoints(const std::string& folder, const KeptCheckpoints& kept) {
  clear_interrupted(folder);
  std::vector<std::string> complete;  // all except `saved`
  for (const std::string& path : list_checkpoints(folder)) {
    if (is_complete(path) && fs::path(path).filename() != fs::path(kept.saved).filename()) {
      complete.push_back(path);
    }
  }
  const auto surplus = static_cast<int64_t>(complete.size()) - (kept.newest - 1);
  for (int64_t i = 0; i < surplus; ++i) {
    const std::string& path = complete[static_cast<size_t>(i)];
    const bool is_multiple =
        kept.every_steps > 0 && step_of_checkpoint(path) % kept.every_steps == 0;
    if (!is_multiple && path != kept.best) remove_checkpoint(path);
  }
  drop_dangling_best(folder);
}

void point_best_to(const std::string& folder, const std::string& checkpoint) {
  replace_link((fs::path(folder) / kBest).string(), fs::path(checkpoint).filename().string());
}

}  // namespace bertha
