#include "data/prepare/source_reader.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "data/files/json_file.h"
#include "data/prepare/byte_stream.h"
#include "data/prepare/part_reader.h"
#include "data/prepare/unicode_text.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr size_t kMaxRecordBytes = kMaxTextBytes;

template <class... Parts>
[[noreturn]] void wrong(const LineReader& lines, int64_t line, const Parts&... parts) {
  fail(ExitCode::kData, lines.path(), ", line ", line, ": ", parts...);
}

void read_plain_text(LineReader& lines, DocumentForm documents, const TextSink& sink) {
  std::string scratch;
  while (const auto piece = lines.next_piece(kMaxLineBytes)) {
    const std::string_view line = without_line_end(*piece, scratch);
    sink.line(line);
    const bool ends = documents == DocumentForm::kLine
                          ? lines.ends_line()
                          : documents == DocumentForm::kBlank && strip(line).empty();
    if (ends) sink.end_document();
  }
  sink.end_document();
}

/// Gives the text of a record to the sink.
void take_record(LineReader& lines, int64_t number, std::string_view text, const TextSink& sink) {
  if (text.find('\0') != std::string_view::npos) {
    wrong(lines, number, "found a zero byte in the text (\\u0000); remove it");
  }
  std::string scratch;
  while (!text.empty()) {
    const size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    for_each_piece(text.substr(0, size), kMaxLineBytes,
                   [&](std::string_view piece) { sink.line(without_line_end(piece, scratch)); });
    text.remove_prefix(size);
  }
  sink.end_document();
}

/// `what` is "field" or "column".
[[noreturn]] void lacks(const LineReader& lines, int64_t line, const char* what,
                        const std::string& name, const std::vector<std::string>& found) {
  constexpr size_t kMaxNames = 20;
  wrong(lines, line, "no ", what, " \"", name, "\", found ",
        found.empty() ? "none" : first_names(found, kMaxNames), "; choose one with --field");
}

const nlohmann::json& field_of(const nlohmann::json& record, const std::string& field,
                               const LineReader& lines) {
  if (!record.is_object()) {
    wrong(lines, lines.line_number(), "is ", record.type_name(),
          ", want one JSON object per line; write them with jq -c .[]");
  }
  if (const auto found = record.find(field); found != record.end()) return *found;
  std::vector<std::string> names;
  for (const auto& [name, value] : record.items()) names.push_back(name);
  lacks(lines, lines.line_number(), "field", field, names);
}

std::string text_of_ids(const nlohmann::json& value, const TokenIds& ids, const LineReader& lines) {
  if (!value.is_array()) {
    wrong(lines, lines.line_number(), "found ", value.type_name(), ", want an array of token ids");
  }
  std::string text;
  for (const nlohmann::json& element : value) {
    if (element.is_array()) {
      text += text_of_ids(element, ids, lines) + "\n";
      continue;
    }
    const int64_t id = element.is_number_integer() ? element.get<int64_t>() : -1;
    if (id < 0 || id >= ids.count) {
      wrong(lines, lines.line_number(), "found ", element.dump(), ", want ids from 0 to ",
            ids.count - 1);
    }
    if (ids.reserved.contains(id)) {
      wrong(lines, lines.line_number(), "id ", id,
            " is one of --special-ids, which this command adds itself; leave them out "
            "(add_special_tokens=False)");
    }
    text += concat(id, ' ');
  }
  return text;
}

/// The text in the value of the field.
std::string text_of(const nlohmann::json& value, const std::string& field,
                    const LineReader& lines) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "";
  std::string text;
  if (!value.is_array()) {
    wrong(lines, lines.line_number(), "field \"", field, "\" is ", value.type_name(),
          ", want a text; choose another with --field");
  }
  for (const nlohmann::json& element : value) {
    if (!element.is_string()) {
      wrong(lines, lines.line_number(), "field \"", field, "\" contains ", element.type_name(),
            ", want texts");
    }
    text += element.get<std::string>() + "\n";
  }
  return text;
}

void read_json_lines(LineReader& lines, const std::string& field, const TextSink& sink,
                     const std::optional<TokenIds>& ids) {
  while (const auto line = lines.next_piece(kMaxRecordBytes)) {
    if (!lines.ends_line()) {
      wrong(lines, lines.line_number(), "longer than ", kMaxRecordBytes,
            " bytes, want one record per line");
    }
    if (strip(*line).empty()) continue;
    nlohmann::json record;
    try {
      record = parse_json(*line);
    } catch (const nlohmann::json::exception& error) {
      wrong(lines, lines.line_number(), "not a JSON object in one line (", error.what(),
            "); write one object per line, for example with jq -c .[]");
    }
    const bool is_array_of_ids = ids && !record.is_object();
    const nlohmann::json& value = is_array_of_ids ? record : field_of(record, field, lines);
    take_record(lines, lines.line_number(),
                ids ? text_of_ids(value, *ids, lines) : text_of(value, field, lines), sink);
  }
}

/// The records of a table as in RFC 4180. The first line that is not blank determines the
/// separator.
class TableReader {
 public:
  TableReader(LineReader& lines, SourceForm form)
      : lines_(lines), has_quotes_(form == SourceForm::kCsv) {}

  /// Fields of the last record.
  const std::vector<std::string>& fields() const { return fields_; }
  /// Number of the line at which it starts.
  int64_t number() const { return number_; }

  /// Reads a record; false at the end.
  bool next() {
    do {
      if (!read_line()) return false;
    } while (line_.empty());
    if (separator_ == 0) choose_separator();
    number_ = lines_.line_number();
    fields_.clear();
    for (size_t at = 0;; ++at) {
      fields_.emplace_back();
      if (has_quotes_ && at < line_.size() && line_[at] == '"') at = read_quoted(at + 1);
      const size_t end = std::min(line_.find(separator_, at), line_.size());
      fields_.back().append(line_, at, end - at);
      at = end;
      if (at == line_.size()) return true;
    }
  }

 private:
  void choose_separator() {
    const auto has = [&](char c) { return line_.find(c) != std::string::npos; };
    separator_ = !has_quotes_ || (!has(',') && has('\t')) ? '\t'
                 : !has(',') && has(';')                  ? ';'
                                                          : ',';
  }

  /// The next line, without its end, into line_.
  bool read_line() {
    const auto line = lines_.next_piece(kMaxRecordBytes);
    if (!line) return false;
    line_ = *line;
    if (line_.ends_with('\n')) line_.pop_back();
    if (line_.ends_with('\r')) line_.pop_back();
    return true;
  }

  /// Reads a field up to the quote that ends it, and returns the place after that.
  size_t read_quoted(size_t at) {
    std::string& field = fields_.back();
    for (;;) {
      const size_t quote = line_.find('"', at);
      field.append(line_, at, quote - at);
      if (quote == std::string::npos) {
        field += '\n';
        if (field.size() > kMaxRecordBytes || !read_line()) {
          wrong(lines_, number_, "a quoted field that does not end, want \" at its end");
        }
        at = 0;
      } else if (line_.compare(quote, 2, "\"\"") == 0) {
        field += '"';
        at = quote + 2;
      } else if (quote + 1 == line_.size() || line_[quote + 1] == separator_) {
        return quote + 1;
      } else {
        wrong(lines_, lines_.line_number(), "text after the quote that ends a field, want ",
              separator_, " or the line end; write a quote in a quoted field twice");
      }
    }
  }

  LineReader& lines_;
  bool has_quotes_;
  char separator_ = 0;
  std::string line_;
  int64_t number_ = 0;
  std::vector<std::string> fields_;
};

void read_table(LineReader& lines, SourceForm form, const std::string& field,
                const TextSink& sink) {
  TableReader table(lines, form);
  if (!table.next()) return;  // an empty file
  const std::vector<std::string> names = table.fields();
  const int64_t first = table.number();
  const auto column = std::ranges::find(names, field);
  if (column == names.end()) lacks(lines, first, "column", field, names);
  const auto place = static_cast<size_t>(column - names.begin());
  while (table.next()) {
    const std::vector<std::string>& fields = table.fields();
    if (fields.size() != names.size()) {
      wrong(lines, table.number(), "a record of ", fields.size(), " fields, want ", names.size(),
            " as in line ", first,
            form == SourceForm::kCsv ? "; quote fields that contain separators, quotes or line ends"
                                     : "");
    }
    take_record(lines, table.number(), fields[place], sink);
  }
}

}  // namespace

void read_source(const SourceFile& source, DocumentForm documents, const std::string& field,
                 const TextSink& sink, const std::optional<TokenIds>& ids) {
  LineReader lines(source.open(), sink.bytes);
  if (ids) return read_json_lines(lines, field, sink, ids);
  switch (source.form) {
    case SourceForm::kText:
      return read_plain_text(lines, documents, sink);
    case SourceForm::kJsonLines:
      return read_json_lines(lines, field, sink, ids);
    case SourceForm::kCsv:
    case SourceForm::kTsv:
      return read_table(lines, source.form, field, sink);
  }
}

}  // namespace bertha
