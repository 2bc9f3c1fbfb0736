#include "harness/cli/run_command.h"

#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>

#include "harness/backend_cuda.h"
#include "harness/cli/log_sink.h"
#include "harness/cli/parse.h"
#include "harness/cli/progress_line.h"
#include "harness/cli/tools.h"
#include "harness/comm/launcher.h"
#include "harness/comm/rank_failure.h"
#include "harness/comm/rank_name.h"
#include "harness/train/signals.h"
#include "kernels/base/error.h"
#include "kernels/base/failure.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

// Runs `work`; returns the exception that it throws, or null.
template <class Work>
std::exception_ptr attempt(Work work) {
  try {
    work();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

/// Whether other ranks may not know of the error.
bool is_of_this_rank(const std::exception_ptr& exception, ErrorScope scope) {
  if (scope == ErrorScope::kThisRank) return true;
  try {
    std::rethrow_exception(exception);
  } catch (const CommunicationError&) {
    return true;
  } catch (const Error&) {
    return false;
  } catch (...) {
    return true;
  }
}

int report(const std::exception_ptr& exception, const CommandContext& context) {
  World* const world = context.world;
  const bool has_others = world != nullptr && world->size() > 1;
  if (has_others && is_of_this_rank(exception, context.error_scope)) {
    end_all_ranks(*world, exception);
  }
  const Failure failure = world != nullptr ? failure_of_rank(exception) : failure_of(exception);
  if (world == nullptr || world->rank() == 0) print_error(context.terminal, failure.what);
  record_line(LogLevel::kError, failure.what);
  return static_cast<int>(failure.code);
}

int run_parsed(const Parsed& parsed, CommandContext& context) {
  if (parsed.text) {
    if (context.world == nullptr || context.world->rank() == 0) std::cout << *parsed.text;
    return 0;
  }
  const Chosen& chosen = parsed.chosen;
  show_progress_lines(!chosen.quiet);
  start_log_sink(context.terminal, context.world,
                 chosen.quiet     ? LogLevel::kWarning
                 : chosen.verbose ? LogLevel::kDebug
                                  : LogLevel::kInfo);
  return chosen.action(context);
}

/// The GPUs near which the command's ranks are bound, as far as this process can determine alone.
std::vector<std::string> gpus_for(const CommandLine& line) {
  if (line.asks_for_cpu()) return {};
  try {
    return visible_gpus();
  } catch (const Error&) {
    return {};  // reported when the backend is chosen
  }
}

}  // namespace

int run_bertha(const std::vector<std::string>& arguments) {
  const PrintableOutput output;
  std::unique_ptr<World> world;
  CommandContext context{.terminal = detect_terminal(), .arguments = arguments};
  int code = 0;
  const std::exception_ptr exception = attempt([&] {
    hand_over_to_tools(arguments);
    CommandLine line;
    Parsed parsed;
    std::exception_ptr parse_error;
    try {
      parsed = line.parse(arguments);
    } catch (const Error&) {
      parse_error = std::current_exception();  // reported once the ranks are connected
    }
    const bool trains = parsed.command == "train";
    if (trains) watch_signals();  // before MPI, whose start takes time
    if (line.runs_on_ranks()) world = make_world(gpus_for(line));
    if (trains) watch_signals();  // again: MPI loads libraries that replace the handlers
    context.world = world.get();
    if (parse_error) std::rethrow_exception(parse_error);
    if (!world && parsed.writes_output) check_single_process(std::getenv, parsed.command);
    code = run_parsed(parsed, context);
    if (std::cout.flush() || code != 0) return;  // the reason why training ended is more important
    if (!trains) fail(ExitCode::kData, "standard output cannot be written");
    log_line(LogLevel::kWarning, "standard output cannot be written; the run itself succeeded");
  });
  if (exception) code = report(exception, context);
  set_log_sink({});
  set_log_record({});
  return code;
}

}  // namespace bertha
