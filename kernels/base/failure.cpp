#include "kernels/base/failure.h"

#include <filesystem>
#include <ios>
#include <new>
#include <stdexcept>
#include <system_error>

namespace bertha {
namespace {

Failure memory_failure() { return {ExitCode::kMemory, "out of host memory"}; }

Failure failure_of_path(const std::filesystem::filesystem_error& error) {
  const std::string second = error.path2().empty() ? "" : concat(" (", error.path2().string(), ")");
  const std::string path = error.path1().empty() ? error.what() : error.path1().string();
  return {ExitCode::kData, concat(path, second, ": ", error.code().message(),
                                  "; check the path and its permissions")};
}

Failure failure_of_system(const std::system_error& error) {
  if (error.code() == std::errc::not_enough_memory) return memory_failure();
  if (error.code() == std::errc::resource_unavailable_try_again) {
    return {ExitCode::kEnvironment,
            concat("a thread cannot be started: ", error.code().message(),
                   "; use fewer threads or processes, or raise the limit of processes "
                   "(ulimit -u)")};
  }
  return {ExitCode::kEnvironment, concat("the system refused: ", error.what())};
}

}  // namespace

Failure failure_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {error.code, error.what()};
  } catch (const std::bad_alloc&) {
    return memory_failure();
  } catch (const std::length_error&) {  // a size larger than any memory
    return memory_failure();
  } catch (const std::filesystem::filesystem_error& error) {
    return failure_of_path(error);
  } catch (const std::ios_base::failure& error) {
    return {ExitCode::kData, concat("a file cannot be read or written: ", error.what())};
  } catch (const std::system_error& error) {
    return failure_of_system(error);
  } catch (const std::exception& error) {
    return {ExitCode::kInternal, concat("unexpected error: ", error.what())};
  }
}

}  // namespace bertha
