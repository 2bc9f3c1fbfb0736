#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/format/manifest.h"
#include "data/prepare/part_reader.h"
#include "data/prepare/source_files.h"
#include "data/prepare/source_reader.h"

namespace bertha {

struct IntakeOptions {
  TextForm text_form = TextForm::kSentencePerLine;
  DocumentForm documents = DocumentForm::kAuto;
  std::string field = "text";        // field of a record
  std::optional<TokenIds> ids = {};  // the sources are token ids
  int64_t part_bytes = 0;            // approximate text per part; 0 = a part per source
  double hold_out = 0;               // share of the documents
  uint64_t seed = 0;                 // selects the documents
  std::string folder = {};           // to write to
  int workers = 0;                   // threads; 0 = one per processor
};

/// Files of text in the published form.
struct Intake {
  std::vector<ManifestSource> parts;
  std::vector<ManifestSource> held_out;
  int64_t held_out_documents = 0;
};

/// The form of the plain texts, if it is not given: documents end at blank lines if there is one
/// between lines in the inspected part of the sources (the first MiB of the first 64); otherwise a
/// line is a document if lines have 200 bytes or more in the mean; otherwise a file is. Says in
/// the log what it found.
DocumentForm find_document_form(const std::vector<SourceFile>& sources, DocumentForm given);

/// Writes all texts into files of the published form, a sentence a line and a blank line between
/// documents, of about part_bytes each, cut at document ends. The lines of plain text, and those
/// of a record, are split into sentences, and with TextForm::kProse joined before that, up to the
/// next blank line. A document of more than 1 MiB is continued as a further document.
///
/// A document is held out if the hash of its text and the seed says so: wherever it stands, and all
/// of its copies. If that would be none of several documents, it is the one with the least hash.
///
/// Memory        2 MiB and two parts per worker.
/// Exact         whatever the number of workers.
/// Errors        as read_source; Error(kData) when no document is found, or all are held out.
Intake write_text_parts(const std::vector<SourceFile>& sources, const IntakeOptions& options,
                        const std::function<void(int64_t bytes)>& on_bytes);

}  // namespace bertha
