#include "data/prepare/sentences.h"

#include <algorithm>
#include <array>

#include "data/prepare/unicode_text.h"

namespace bertha {
namespace {

using namespace std::string_view_literals;

constexpr std::array kEnds = {"."sv, "!"sv, "?"sv, "…"sv};
constexpr std::array kEndsWithoutSpace = {"。"sv, "！"sv, "？"sv, "।"sv};
constexpr std::array kClosing = {"\""sv, "'"sv, ")"sv, "]"sv, "”"sv, "’"sv, "»"sv, "」"sv, "』"sv};
constexpr std::array kOpening = {"\""sv, "'"sv, "("sv, "["sv, "“"sv, "‘"sv,
                                 "«"sv,  "—"sv, "–"sv, "-"sv, "_"sv};
// The sentence continues after one of these: a name follows the first kind, a number the second.
constexpr std::array kBeforeNames = {"Mr"sv,     "Mrs"sv, "Ms"sv,  "Mme"sv, "Dr"sv,   "Prof"sv,
                                     "Rev"sv,    "Hon"sv, "Gen"sv, "Col"sv, "Capt"sv, "Maj"sv,
                                     "Lt"sv,     "Sgt"sv, "Gov"sv, "Sen"sv, "Rep"sv,  "Pres"sv,
                                     "Messrs"sv, "St"sv,  "Mt"sv,  "Ft"sv,  "vs"sv,   "cf"sv};
constexpr std::array kBeforeNumbers = {
    "No"sv,  "no"sv,  "Nos"sv, "Fig"sv, "fig"sv, "Vol"sv, "vol"sv,  "pp"sv,  "Jan"sv, "Feb"sv,
    "Mar"sv, "Apr"sv, "Jun"sv, "Jul"sv, "Aug"sv, "Sep"sv, "Sept"sv, "Oct"sv, "Nov"sv, "Dec"sv};
// Every mark of kEnds and kEndsWithoutSpace begins with one of these bytes.
constexpr std::string_view kFirstBytes = ".!?\xe0\xe2\xe3\xef";

/// Removes one of `marks` from the start; returns false if there is none.
template <size_t kCount>
bool take(const std::array<std::string_view, kCount>& marks, std::string_view& text) {
  for (const std::string_view mark : marks) {
    if (!text.starts_with(mark)) continue;
    text.remove_prefix(mark.size());
    return true;
  }
  return false;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether the "." between `before`, which begins with its sentence, and `after` belongs to the
/// word before it.
bool belongs_to_word(std::string_view before, std::string_view after) {
  const size_t space = before.find_last_of(" \t.");
  const bool begins = space == std::string_view::npos;
  if (!begins && before[space] == '.') return true;  // "e.g": looked for no farther back
  std::string_view word = begins ? before : before.substr(space + 1);
  while (take(kOpening, word)) {
  }
  if (!word.empty() && std::ranges::all_of(word, is_digit)) return begins;
  const std::string_view next = strip(after);
  const bool number_follows = !next.empty() && is_digit(next.front());
  return count_characters(word) == 1 ||
         std::ranges::find(kBeforeNames, word) != kBeforeNames.end() ||
         (number_follows && std::ranges::find(kBeforeNumbers, word) != kBeforeNumbers.end());
}

/// Whether a sentence may begin here, after the end of another.
bool may_begin(std::string_view rest) {
  const std::string_view next = strip(rest);
  if (next.size() == rest.size()) return rest.empty();  // no white space
  std::string_view word = next;
  while (take(kOpening, word)) {
  }
  return !starts_lower_case(word);
}

struct SentenceEnd {
  bool is_one = false;
  size_t bytes = 0;  // length of the marks and the quotes after them; 1 if there are none
};

/// Whether the marks that `rest` begins with end a sentence.
SentenceEnd end_of_sentence(std::string_view sentence, std::string_view rest) {
  std::string_view after = rest;
  size_t marks = 0;
  bool needs_space = true;
  for (;; ++marks) {
    if (take(kEndsWithoutSpace, after)) {
      needs_space = false;
    } else if (!take(kEnds, after)) {
      break;
    }
  }
  if (marks == 0) return {.bytes = 1};
  while (take(kClosing, after)) {
  }
  const size_t bytes = rest.size() - after.size();
  if (!needs_space) return {.is_one = true, .bytes = bytes};
  const bool is_single_stop = rest.front() == '.' && marks == 1;
  if (is_single_stop && belongs_to_word(sentence, after)) return {.bytes = bytes};
  return {.is_one = may_begin(after), .bytes = bytes};
}

}  // namespace

std::vector<std::string> split_sentences(std::string_view paragraph) {
  std::vector<std::string> sentences;
  std::string_view left = strip(paragraph);
  size_t at = 0;
  while ((at = left.find_first_of(kFirstBytes, at)) != std::string_view::npos) {
    const SentenceEnd end = end_of_sentence(left.substr(0, at), left.substr(at));
    at += end.bytes;
    if (!end.is_one) continue;
    sentences.emplace_back(left.substr(0, at));
    left = strip(left.substr(at));
    at = 0;
  }
  if (!left.empty()) sentences.emplace_back(left);
  return sentences;
}

}  // namespace bertha
