#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "data/format/hdf5_library.h"

namespace bertha {

/// The official HDF5 layouts; FORMAT.md describes them byte for byte. A row of kPacked is a pack of
/// several sequences; reading converts it to these sequences, so that no other code handles packs.
enum class ShardLayout : uint8_t { kVariableLength, kFixedLength, kPacked };

/// The name of the layout in manifests.
inline const char* layout_name(ShardLayout layout) {
  if (layout == ShardLayout::kPacked) return "packed";
  return layout == ShardLayout::kFixedLength ? "fixed_length" : "variable_length";
}

// The datasets of the layouts.
namespace dataset_names {
inline constexpr const char* kInputIds = "input_ids";
inline constexpr const char* kInputMask = "input_mask";
inline constexpr const char* kSegmentIds = "segment_ids";
inline constexpr const char* kMaskedPositions = "masked_lm_positions";
inline constexpr const char* kMaskedIds = "masked_lm_ids";
inline constexpr const char* kNextSentenceLabels = "next_sentence_labels";
inline constexpr const char* kPackedTokens = "packed_input_len";
inline constexpr const char* kPackedMasked = "packed_masked_lm_len";
}  // namespace dataset_names

/// The width of a row of a dataset in the fixed-length layout.
enum class RowWidth : uint8_t { kOne, kTokens, kMasked };

/// A reader accepts kI32 if `element` is kI16; written_element() is the type that is written.
struct DatasetFormat {
  const char* name;
  Hdf5Element element;
  Hdf5Rows rows;
  RowWidth width;
};

inline constexpr std::array<DatasetFormat, 5> kVariableLengthDatasets{{
    {dataset_names::kInputIds, Hdf5Element::kI16, Hdf5Rows::kRagged, RowWidth::kOne},
    {dataset_names::kSegmentIds, Hdf5Element::kI8, Hdf5Rows::kRagged, RowWidth::kOne},
    {dataset_names::kMaskedPositions, Hdf5Element::kI16, Hdf5Rows::kRagged, RowWidth::kOne},
    {dataset_names::kMaskedIds, Hdf5Element::kI16, Hdf5Rows::kRagged, RowWidth::kOne},
    {dataset_names::kNextSentenceLabels, Hdf5Element::kI8, Hdf5Rows::kPlain, RowWidth::kOne},
}};

inline constexpr std::array<DatasetFormat, 6> kFixedLengthDatasets{{
    {dataset_names::kInputIds, Hdf5Element::kI16, Hdf5Rows::kPlain, RowWidth::kTokens},
    {dataset_names::kInputMask, Hdf5Element::kI8, Hdf5Rows::kPlain, RowWidth::kTokens},
    {dataset_names::kSegmentIds, Hdf5Element::kI8, Hdf5Rows::kPlain, RowWidth::kTokens},
    {dataset_names::kMaskedPositions, Hdf5Element::kI16, Hdf5Rows::kPlain, RowWidth::kMasked},
    {dataset_names::kMaskedIds, Hdf5Element::kI16, Hdf5Rows::kPlain, RowWidth::kMasked},
    {dataset_names::kNextSentenceLabels, Hdf5Element::kI8, Hdf5Rows::kPlain, RowWidth::kOne},
}};

inline constexpr std::array<DatasetFormat, 7> kPackedDatasets{{
    {dataset_names::kInputIds, Hdf5Element::kI16, Hdf5Rows::kRagged, RowWidth::kOne},
    {dataset_names::kSegmentIds, Hdf5Element::kI8, Hdf5Rows::kRagged, RowWidth::kOne},
    {dataset_names::kPackedTokens, Hdf5Element::kI16, Hdf5Rows::kRagged, RowWidth::kOne},
    {dataset_names::kMaskedPositions, Hdf5Element::kI16, Hdf5Rows::kRagged, RowWidth::kOne},
    {dataset_names::kMaskedIds, Hdf5Element::kI16, Hdf5Rows::kRagged, RowWidth::kOne},
    {dataset_names::kPackedMasked, Hdf5Element::kI16, Hdf5Rows::kRagged, RowWidth::kOne},
    {dataset_names::kNextSentenceLabels, Hdf5Element::kI8, Hdf5Rows::kRagged, RowWidth::kOne},
}};

inline std::span<const DatasetFormat> datasets_of(ShardLayout layout) {
  if (layout == ShardLayout::kFixedLength) return kFixedLengthDatasets;
  if (layout == ShardLayout::kPacked) return kPackedDatasets;
  return kVariableLengthDatasets;
}

/// Element type that token ids of a vocabulary of this size are written with.
inline Hdf5Element id_element(int64_t vocab_size) {
  constexpr int64_t kMaxEntriesOf16Bits = 32768;
  return vocab_size > kMaxEntriesOf16Bits ? Hdf5Element::kI32 : Hdf5Element::kI16;
}

inline Hdf5Element written_element(const DatasetFormat& format, int64_t vocab_size) {
  const std::string_view name = format.name;
  const bool is_ids = name == dataset_names::kInputIds || name == dataset_names::kMaskedIds;
  return is_ids ? id_element(vocab_size) : format.element;
}

/// Rows per chunk of the files written here: of lists, and of padded rows, which are larger.
inline constexpr int64_t kListRowsPerChunk = 1024;
inline constexpr int64_t kPaddedRowsPerChunk = 64;
/// Rows encoded or decoded at a time; a multiple of both.
inline constexpr int64_t kRowsPerBlock = 1024;

}  // namespace bertha
