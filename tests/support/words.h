#pragma once

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace bertha {

using Words = std::vector<std::string>;

/// The words of a line, which blanks separate and no quotes hold together.
inline Words split(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

inline Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// `first` and the words, with blanks between them.
inline std::string joined(const Words& words, const std::string& first = "") {
  std::string text = first;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace bertha
