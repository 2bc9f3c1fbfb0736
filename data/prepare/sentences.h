#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bertha {

/// The sentences of a paragraph of ordinary prose, without the white space around them. A sentence
/// ends
///   - after . ! ? or … (several of them too) with the closing quotes and brackets after them,
///     if white space follows and then no lower-case letter;
///   - after the full stops of Chinese, Japanese and Hindi (。！？ ।) with what closes after them.
/// A single . does not end a sentence
///   - after one letter ("J. Smith"), after a word with a . inside ("U.S. Army"), and after a
///     number that begins the sentence ("1. Introduction");
///   - after a title (Mr. Dr. Prof. ...), and before a number after No. Fig. Vol. pp. and months.
/// Sentences that are wrongly joined become one longer sentence.
///
/// Needs     valid UTF-8.
std::vector<std::string> split_sentences(std::string_view paragraph);

}  // namespace bertha
