#include "data/pipeline/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

namespace bertha {
namespace {

std::exception_ptr error_of(const char* text) {
  return std::make_exception_ptr(std::runtime_error(text));
}

TEST(BoundedQueue, DeliversInOrderAndEnds) {
  BoundedQueue<std::unique_ptr<int>> queue(2);
  std::thread producer([&] {
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(queue.push(std::make_unique<int>(i)));
    queue.finish();
  });
  for (int i = 0; i < 1000; ++i) {
    const auto item = queue.pop();
    ASSERT_TRUE(item);
    EXPECT_EQ(**item, i);
  }
  EXPECT_FALSE(queue.pop());
  EXPECT_FALSE(queue.pop());
  producer.join();
}

TEST(BoundedQueue, HoldsNoMoreThanItsCapacity) {
  BoundedQueue<int> queue(3);
  std::atomic<int> pushed = 0;
  std::thread producer([&] {
    while (queue.push(0)) ++pushed;
  });
  for (int popped = 0; popped < 20; ++popped) {
    ASSERT_TRUE(queue.pop());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_LE(pushed, popped + 1 + 3);
  }
  queue.close();
  producer.join();
}

TEST(BoundedQueue, ErrorComesAfterTheItemsAndStays) {
  BoundedQueue<int> queue(4);
  queue.push(1);
  queue.push(2);
  queue.fail(error_of("broken"));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), 2);
  EXPECT_THROW(queue.pop(), std::runtime_error);
  EXPECT_THROW(queue.pop(), std::runtime_error);
}

TEST(BoundedQueue, RejectionReachesAProducerThatWaits) {
  BoundedQueue<int> queue(1);
  ASSERT_TRUE(queue.push(1));
  std::thread consumer([&] { queue.reject(error_of("no more")); });
  EXPECT_THROW(queue.wait_for_room(), std::runtime_error);
  EXPECT_FALSE(queue.push(2));
  consumer.join();
}

TEST(BoundedQueue, CloseWakesBothSidesAndFreesTheItems) {
  BoundedQueue<std::shared_ptr<int>> full(1);
  const auto item = std::make_shared<int>(1);
  ASSERT_TRUE(full.push(item));
  std::thread producer([&] { EXPECT_FALSE(full.wait_for_room()); });
  BoundedQueue<int> empty(1);
  std::thread consumer([&] { EXPECT_FALSE(empty.pop()); });
  full.close();
  empty.close();
  producer.join();
  consumer.join();
  EXPECT_EQ(item.use_count(), 1);
  EXPECT_TRUE(full.closed());
  EXPECT_FALSE(full.push(item));
}

}  // namespace
}  // namespace bertha
