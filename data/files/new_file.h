#pragma once

#include <string>
#include <string_view>

namespace bertha {

/// A file that appears whole or not at all: written next to `path` under the name path + ".tmp",
/// which is made anew, and moved to `path` by commit(), which first forces its bytes to the disk.
/// Without commit() the destructor removes the temporary file; what was at `path` stays as it was.
///
/// Errors    Error(kData) with the path and the reason, from the constructor on; also where `path`
///           is a device, a pipe or a folder. A link is replaced, outside of /dev.
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

/// Makes `link` a symbolic link to the folder `target`, seen from the link's own folder, at once in
/// place of the link that is there. Logs a warning where it cannot.
void replace_link(const std::string& link, const std::string& target);

}  // namespace bertha
