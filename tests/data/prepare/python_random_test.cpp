#include "data/random/python_random.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "tests/data/prepare/golden_samples.h"

namespace bertha {
namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

/// Repeats one call of the golden file; returns what the line should then say.
std::string repeat_call(const std::vector<std::string>& words, PythonRandom& random) {
  std::ostringstream line;
  const auto number = [&](size_t i) { return std::stoll(words.at(i)); };
  line << words[0];
  if (words[0] == "random") {
    // Hexadecimal floats are compared by value: their spelling differs between languages.
    for (size_t i = 1; i < words.size(); ++i) {
      const double value = random.random();
      line << ' ' << (value == std::strtod(words[i].c_str(), nullptr) ? words[i] : "different");
    }
  } else if (words[0] == "getrandbits") {
    line << ' ' << words[1];
    for (size_t i = 2; i < words.size(); ++i) {
      line << ' ' << random.getrandbits(static_cast<int>(number(1)));
    }
  } else if (words[0] == "randint") {
    line << ' ' << words[1] << ' ' << words[2];
    for (size_t i = 3; i < words.size(); ++i) line << ' ' << random.randint(number(1), number(2));
  } else if (words[0] == "shuffle") {
    std::vector<int64_t> values(static_cast<size_t>(number(1)));
    std::iota(values.begin(), values.end(), int64_t{0});
    random.shuffle(std::span(values));
    line << ' ' << words[1];
    for (const int64_t value : values) line << ' ' << value;
  } else if (words[0] == "sum") {
    int64_t sum = 0;
    for (int64_t i = 0; i < number(1); ++i) sum += random.randint(1, 1000);
    line << ' ' << words[1] << ' ' << sum;
  }
  return line.str();
}

TEST(PythonRandomTest, DrawsWhatCPythonPrintedForEverySeedAndCall) {
  std::ifstream file(golden_path("python_random.txt"));
  ASSERT_TRUE(file);
  PythonRandom random(0);
  std::string seed;
  int64_t num_calls = 0;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = words_of(line);
    if (words.at(0) == "seed") {
      seed = words.at(1);
      random = PythonRandom(std::stoull(seed));
      continue;
    }
    ASSERT_EQ(repeat_call(words, random), line) << "seed " << seed;
    ++num_calls;
  }
  EXPECT_EQ(num_calls, 10 * 27);
}

TEST(PythonRandomTest, ALimitBelowOneIsAnError) {
  PythonRandom random(1);
  EXPECT_THROW(random.randbelow(0), Error);
  EXPECT_THROW(random.randint(3, 2), Error);
}

}  // namespace
}  // namespace bertha
