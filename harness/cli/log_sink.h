#pragma once

#include <streambuf>
#include <string>

#include "harness/comm/world.h"
#include "harness/config/terminal.h"
#include "harness/report/text_format.h"
#include "kernels/base/log.h"

namespace bertha {

/// While it lives, std::cout writes printable() text: names and texts of files cannot steer the
/// terminal.
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
/// is a block: its first cell, and below it a line for each other one, after the name of its
/// column.
void print_table(const TextTable& table);

/// "bertha: error: WHAT" as a line of its own on standard error, in one write.
void print_error(const Terminal& terminal, const std::string& what);

/// Sends log lines of `least` and above to standard error through spdlog, with the rank when it is
/// not the first, and in colour if the terminal has it. Errors look as in print_error().
void start_log_sink(const Terminal& terminal, const World* world, LogLevel least);

}  // namespace bertha
