#include "data/prepare/source_reader.h"

#include <algorithm>
#include <array>
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

constexpr size_t kMostRecordBytes = kMostTextBytes;

template <class... Parts>
[[noreturn]] void wrong(const LineReader& lines, int64_t line, const Parts&... parts) {
  fail(ExitCode::kData, lines.path(), ", line ", line, ": ", parts...);
}

/// The line without its end and without any '\r'; `scratch` stores it where there are some.
std::string_view without_line_end(std::string_view line, std::string& scratch) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.find('\r') == std::string_view::npos) return line;
  scratch = line;
  std::erase(scratch, '\r');
  return scratch;
}

void read_plain_text(LineReader& lines, DocumentForm documents, const TextSink& sink) {
  std::string scratch;
  while (const auto piece = lines.next_piece(kMostLineBytes)) {
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
    wrong(lines, number, "a zero byte in the text (\\u0000); remove it");
  }
  std::string scratch;
  while (!text.empty()) {
    const size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    for_each_piece(text.substr(0, size), kMostLineBytes,
                   [&](std::string_view piece) { sink.line(without_line_end(piece, scratch)); });
    text.remove_prefix(size);
  }
  sink.end_document();
}

/// "id, title, url".
std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "none" : first_names(names, 20);
}

const nlohmann::json& field_of(const nlohmann::json& record, const std::string& field,
                               const LineReader& lines) {
  const auto found = record.find(field);
  if (found != record.end()) return *found;
  std::vector<std::string> names;
  for (const auto& [name, value] : record.items()) names.push_back(name);
  wrong(lines, lines.line_number(), "no field \"", field, "\", found ", listed(names),
        "; choose one with --field");
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
            " is one of --special-ids, which are added here; leave them out "
            "(add_special_tokens=False)");
    }
    text += concat(id, ' ');
  }
  return text;
}

std::string text_of_json(const nlohmann::json& record, const std::string& field,
                         const LineReader& lines) {
  const nlohmann::json* found = &field_of(record, field, lines);
  if (found->is_string()) return found->get<std::string>();
  if (found->is_null()) return "";
  std::string text;
  if (!found->is_array()) {
    wrong(lines, lines.line_number(), "field \"", field, "\" is ", found->type_name(),
          ", want a text; choose another with --field");
  }
  for (const nlohmann::json& element : *found) {
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
  while (const auto line = lines.next_piece(kMostRecordBytes)) {
    if (!lines.ends_line()) {
      wrong(lines, lines.line_number(), "longer than ", kMostRecordBytes,
            " bytes, want a record a line");
    }
    if (strip(*line).empty()) continue;
    nlohmann::json record;
    try {
      record = parse_json(*line);
    } catch (const nlohmann::json::exception& error) {
      wrong(lines, lines.line_number(), "not a JSON object in one line (", error.what(),
            "); write one object a line, for example with jq -c .[]");
    }
    if (ids) {
      const nlohmann::json& value = record.is_object() ? field_of(record, field, lines) : record;
      take_record(lines, lines.line_number(), text_of_ids(value, *ids, lines), sink);
      continue;
    }
    if (!record.is_object()) {
      wrong(lines, lines.line_number(), "is ", record.type_name(),
            ", want a JSON object a line; write them with jq -c .[]");
    }
    take_record(lines, lines.line_number(), text_of_json(record, field, lines), sink);
  }
}

/// The records of a table, as RFC 4180 has them.
class TableReader {
 public:
  TableReader(LineReader& lines, SourceForm form)
      : lines_(lines), has_quotes_(form == SourceForm::kCsv) {
    const auto first = read_line();
    if (!first) return;
    const std::string_view line = *first;
    const auto has = [&](char c) { return line.find(c) != std::string_view::npos; };
    separator_ = !has_quotes_ || (!has(',') && has('\t')) ? '\t'
                 : !has(',') && has(';')                  ? ';'
                                                          : ',';
    read_record();
    names_ = fields_;
  }

  const std::vector<std::string>& names() const { return names_; }
  /// Number of the line at which the record starts.
  int64_t number() const { return number_; }

  /// The fields of the next record; nullptr at the end.
  const std::vector<std::string>* next() {
    do {
      if (!read_line()) return nullptr;
    } while (line_.empty());
    read_record();
    if (fields_.size() != names_.size()) {
      wrong(lines_, number_, "a record of ", fields_.size(), " fields, want ", names_.size(),
            " as in line 1",
            has_quotes_ ? "; quote fields that contain separators, quotes or line ends" : "");
    }
    return &fields_;
  }

 private:
  /// The next line, without its end, into line_.
  std::optional<std::string_view> read_line() {
    const auto line = lines_.next_piece(kMostRecordBytes);
    if (!line) return std::nullopt;
    line_ = *line;
    if (line_.ends_with('\n')) line_.pop_back();
    if (line_.ends_with('\r')) line_.pop_back();
    number_ = lines_.line_number();
    return line_;
  }

  /// The fields of the record that line_ begins.
  void read_record() {
    fields_.clear();
    const int64_t first = number_;
    for (size_t at = 0;; ++at) {
      fields_.emplace_back();
      if (has_quotes_ && at < line_.size() && line_[at] == '"') at = read_quoted(at + 1, first);
      const size_t end = std::min(line_.find(separator_, at), line_.size());
      fields_.back().append(line_, at, end - at);
      at = end;
      if (at == line_.size()) break;
    }
    number_ = first;
  }

  /// Reads a field up to the quote that ends it, and returns the place after that.
  size_t read_quoted(size_t at, int64_t first) {
    std::string& field = fields_.back();
    for (;;) {
      const size_t quote = line_.find('"', at);
      field.append(line_, at, quote - at);
      if (quote == std::string::npos) {
        field += '\n';
        if (field.size() > kMostRecordBytes || !read_line()) {
          wrong(lines_, first, "a quoted field that does not end, want \" after it");
        }
        at = 0;
      } else if (line_.compare(quote, 2, "\"\"") == 0) {
        field += '"';
        at = quote + 2;
      } else if (quote + 1 == line_.size() || line_[quote + 1] == separator_) {
        return quote + 1;
      } else {
        wrong(lines_, number_, "text after the quote that ends a field, want ", separator_,
              " or the line end; write a quote in a quoted field twice");
      }
    }
  }

  LineReader& lines_;
  bool has_quotes_;
  char separator_ = ',';
  std::string line_;
  int64_t number_ = 0;
  std::vector<std::string> names_;
  std::vector<std::string> fields_;
};

void read_table(LineReader& lines, SourceForm form, const std::string& field,
                const TextSink& sink) {
  TableReader table(lines, form);
  if (table.names().empty()) return;  // an empty file
  const auto column = std::ranges::find(table.names(), field);
  if (column == table.names().end()) {
    wrong(lines, 1, "no column \"", field, "\", found ", listed(table.names()),
          "; choose one with --field");
  }
  const auto place = static_cast<size_t>(column - table.names().begin());
  while (const std::vector<std::string>* record = table.next()) {
    take_record(lines, table.number(), (*record)[place], sink);
  }
}

}  // namespace

void for_each_piece(std::string_view text, size_t most,
                    const std::function<void(std::string_view piece)>& take) {
  while (!text.empty()) {
    const size_t size = first_piece(text, most);
    take(text.substr(0, size));
    text.remove_prefix(size);
  }
}

void read_source(const SourceFile& source, DocumentForm documents, const std::string& field,
                 const TextSink& sink, const std::optional<TokenIds>& ids) {
  const auto stream = source.stream ? source.stream : std::make_shared<ByteStream>(source.path);
  // Some editors begin a file with a byte order mark.
  if (std::array<char, 3> mark; stream->peek(mark.size()) == "\xef\xbb\xbf") stream->read(mark);
  LineReader lines(source.path, stream, sink.bytes);
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
