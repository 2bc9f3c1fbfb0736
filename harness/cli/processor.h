#pragma once

namespace bertha {

/// The first of `features`, named as in kCompiledFeatures and with null at the end, that this
/// processor lacks; null = none. For the beginning of main(): runs nothing that a processor might
/// lack, and allocates nothing.
const char* missing_feature(const char* const* features);

}  // namespace bertha
