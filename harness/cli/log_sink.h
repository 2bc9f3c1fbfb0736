#pragma once

#include <streambuf>
#include <string>

#include "harness/comm/world.h"
#include "harness/config/terminal.h"
#include "harness/report/text_format.h"
#include "kernels/base/log.h"

namespace bertha {

/// During its lifetime, std::cout writes printable() text, so that names and contents of files
/// cannot control the terminal.
class PrintableOutput : public std::streambuf {
 public:
  PrintableOutput();
  ~PrintableOutput() override;

 protected:
  int overflow(int letter) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

 private:
  std::streambuf* target_;
};

/// Prints to standard output, as print_text(). If its lines are too long for the terminal, each row
/// becomes a block: its first cell, then one line per other cell, after the name of its column.
void print_table(const TextTable& table);

/// Prints "bertha: error: WHAT" as a separate line on standard error, in one write.
void print_error(const Terminal& terminal, const std::string& what);

/// Sends log lines of `least` and above to standard error through spdlog, with the rank if it is
/// not 0, and in color if the terminal supports it. Errors look as in print_error().
void start_log_sink(const Terminal& terminal, const World* world, LogLevel least);

}  // namespace bertha
