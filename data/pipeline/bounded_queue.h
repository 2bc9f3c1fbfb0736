#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {

/// A queue of at most `capacity` items between two stages.
///
/// Errors    pop() rethrows the error passed to fail() after the items before it; wait_for_room()
///           rethrows the error passed to reject().
/// Threads   one producer, one consumer; close() from any thread.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(int64_t capacity) : capacity_(static_cast<size_t>(capacity)) {
    BERTHA_CHECK(capacity >= 1, "capacity ", capacity);
  }

  /// Producer: blocks until there is room; false when the queue was closed instead.
  bool wait_for_room() {
    std::unique_lock lock(mutex_);
    not_full_.wait(lock, [&] { return closed_ || items_.size() < capacity_; });
    if (error_) std::rethrow_exception(error_);
    return !closed_;
  }

  /// Producer: blocks until there is room; false (and the item is dropped) after close().
  bool push(T item) {
    std::unique_lock lock(mutex_);
    not_full_.wait(lock, [&] { return closed_ || items_.size() < capacity_; });
    if (closed_) return false;
    items_.push_back(std::move(item));
    not_empty_.notify_one();
    return true;
  }

  /// Producer: nothing follows.
  void finish() {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    not_empty_.notify_one();
  }

  /// Producer: nothing follows because of this error.
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    finished_ = true;
    not_empty_.notify_one();
  }

  /// Consumer: the next item, or nothing after the last one or after close().
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    not_empty_.wait(lock, [&] { return closed_ || finished_ || !items_.empty(); });
    if (closed_) return std::nullopt;
    if (items_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    T item = std::move(items_.front());
    items_.pop_front();
    not_full_.notify_one();
    return item;
  }

  /// Consumer: stops because of this error; closes the queue.
  void reject(std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      error_ = std::move(error);
    }
    close();
  }

  /// Ends both sides immediately and drops the items.
  void close() {
    std::deque<T> dropped;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(items_);
    not_full_.notify_all();
    not_empty_.notify_all();
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable not_full_;
  std::condition_variable not_empty_;
  std::deque<T> items_;
  std::exception_ptr error_;
  bool finished_ = false;
  bool closed_ = false;
};

}  // namespace bertha
