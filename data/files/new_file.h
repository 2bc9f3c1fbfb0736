#pragma once

#include <string>
#include <string_view>

namespace bertha {

/// A file that appears complete or not at all: written to a new file path + ".tmp" and moved to
/// `path` by commit(), which first forces its bytes to the disk. Without commit() the destructor
/// removes the temporary file, and an existing file at `path` does not change.
///
/// Errors    Error(kData) with the path and the reason, from the constructor on; also if `path` is
///           a device, a pipe or a folder. A link is replaced, except in /dev.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view bytes);
  void commit();

 private:
  [[noreturn]] void cannot(const char* verb, int reason) const;

  std::string path_;
  std::string temporary_path_;
  int file_ = -1;
};

/// Whether the open file is still the one at `path`: it may have been removed or replaced.
bool is_file_at(int descriptor, const std::string& path);

/// Writes the bytes as a NewFile.
void write_new_file(const std::string& path, std::string_view bytes);

/// Makes `link` a symbolic link to the folder `target`, relative to the link's folder, atomically
/// replacing an existing link. Logs a warning if that fails.
void replace_link(const std::string& link, const std::string& target);

}  // namespace bertha
