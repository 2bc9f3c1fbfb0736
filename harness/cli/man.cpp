#include <CLI/CLI.hpp>
#include <iostream>
#include <sstream>

#include "harness/cli/command.h"
#include "harness/config/build_info.h"

namespace bertha {
namespace {

// Text that roff prints as it is.
std::string escaped(const std::string& line) {
  std::string out = line.starts_with('.') || line.starts_with('\'') ? "\\&" : "";
  for (const char c : line) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";  // or it becomes a hyphen, which no shell takes for an option
    } else {
      out += c;
    }
  }
  return out;
}

// The help of the commands below one, a section each.
void print_sections(const CLI::App& parent, const std::string& name) {
  for (const std::string& word : command_names(parent)) {
    const CLI::App& command = *find_command(parent, word);
    std::cout << ".SH \"" << escaped(name + " " + word) << "\"\n.nf\n";
    std::istringstream help(command.help(name));
    for (std::string line; std::getline(help, line);) std::cout << escaped(line) << '\n';
    std::cout << ".fi\n";
    print_sections(command, name + " " + word);
  }
}

int run_man(const CLI::App& program) {
  std::cout << ".TH BERTHA 1 \"\" \"bertha " << build_info().version << "\"\n.SH NAME\nbertha \\- "
            << escaped(program.get_description()) << '\n';
  print_sections(program, "bertha");
  return 0;
}

}  // namespace

void add_man_command(CLI::App& program, Chosen& chosen) {
  CLI::App& man = add_command(
      program, chosen,
      {.name = "man",
       .description = "Prints the help of all commands as a manual page.",
       .examples = {"bertha man | man -l -", "bertha man > ~/.local/share/man/man1/bertha.1",
                    "bertha man | gzip > /usr/local/share/man/man1/bertha.1.gz"}});
  set_action(man, chosen, [&program](CommandContext&) { return run_man(program); });
}

}  // namespace bertha
