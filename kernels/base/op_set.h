#pragma once

#include <concepts>
#include <variant>

namespace bertha {

/// The operations whose arguments are `Args...`, on one backend. run() checks the arguments, once,
/// then enqueues the operation on the stream of the object.
///
/// Threads   one thread at a time per object.
/// Errors    bertha::Error that names the field, the value found and the value wanted.
template <class... Args>
class OpSet {
 public:
  virtual ~OpSet() = default;

  template <class Operation>
  requires(std::same_as<Operation, Args> || ...) void run(const Operation& args) {
    validate(args);
    enqueue(&args);
  }

 protected:
  /// Arguments of one operation, which has its type.
  using AnyArgs = std::variant<const Args*...>;

 private:
  virtual void enqueue(AnyArgs args) = 0;
};

}  // namespace bertha
