#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "data/prepare/source_files.h"

namespace bertha {

/// Where the documents of plain text end. A record of JSON lines or of a table always is one.
enum class DocumentForm : uint8_t { kAuto, kBlank, kLine, kFile };

/// Receives a text.
struct TextSink {
  /// A line of a document, without the line end; empty, or white space, between paragraphs. A line
  /// of plain text that is longer than kMaxLineBytes comes in pieces, cut at white space.
  std::function<void(std::string_view line)> line;
  std::function<void()> end_document;
  std::function<void(int64_t bytes)> bytes = {};  // read from the file since the last call
};

/// The documents of a source, in order. Of a record it is the text of one field: a name of JSON, or
/// a column that the first line of the table names. A list of texts is one text, null is "".
///
/// JSON lines    an object a line; blank lines do not count.
/// CSV           RFC 4180: "quoted" fields may contain separators, line ends and "" for a quote.
///               Fields are separated by commas; by semicolons or tabs if the first line has those
///               and no comma.
/// TSV           tabs separate, and quotes are text.
///
/// With `ids`, every source is JSON lines: an array of ids, or an object whose field is one; an
/// array of arrays is a document of several sentences. Its lines are the ids in decimals.
///
/// Errors    as ByteStream; Error(kData) naming file and line: invalid UTF-8, a zero byte, a
///           record that cannot be read, or that lacks the field (the fields found are named); an
///           id that is reserved or not in the vocabulary.
void read_source(const SourceFile& source, DocumentForm documents, const std::string& field,
                 const TextSink& sink, const std::optional<TokenIds>& ids = std::nullopt);

}  // namespace bertha
